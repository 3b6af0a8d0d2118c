//! Harness for protocol tests: two parties in two threads over ideal correlations.

use crate::cost::{Cost, FRAME_BYTES};
use crate::ctx::Ctx;
use crate::he::HeContext;
use crate::ot::ferret::{FerretOt, FerretParams};
use crate::ot::ideal::IdealPair;
use crate::share::{BitShare, Ring, Share};
use hushed_math::rng::SecretRng;
use hushed_net::Stats;

pub(crate) mod case;
mod end;
mod heard;
pub mod secrets;
mod vanish;
mod watch;

pub use heard::{Heard, heard_pair, run_heard};
pub use vanish::vanishing_pair;
pub use watch::{Watch, watched_pair};

/// Runs both parties on connected contexts and returns (client's, server's) result. If either panics, the caller
/// panics.
pub fn run_pair<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx) -> A + Send,
    server: impl FnOnce(&mut Ctx) -> B + Send,
) -> (A, B) {
    let (a, b, _) = run_watched(client, server);
    (a, b)
}

/// [`run_pair`] over the correlations of Ferret, as in real use.
pub fn run_pair_over_ferret<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx) -> A + Send,
    server: impl FnOnce(&mut Ctx) -> B + Send,
) -> (A, B) {
    let (near, far, _) = watched_pair();
    let context = |mut session, seed| {
        let mut rng = SecretRng::insecure_from_seed(seed);
        let ot = FerretOt::with_params(&mut session, &mut rng, FerretParams::K16);
        Ctx::new(session, rng, Box::new(ot.expect("correlations")))
    };
    both(move || client(&mut context(near, 0xc11e)), move || server(&mut context(far, 0x5e2f)))
}

/// [`run_pair`] with a record of the session.
fn run_watched<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx) -> A + Send,
    server: impl FnOnce(&mut Ctx) -> B + Send,
) -> (A, B, Watch) {
    let (client_session, server_session, watch) = watched_pair();
    let (client_ot, server_ot) = IdealPair::new();
    let rng = |seed| SecretRng::insecure_from_seed(seed);
    let mut c = Ctx::new(client_session, rng(0xc11e), Box::new(client_ot));
    let mut s = Ctx::new(server_session, rng(0x5e2f), Box::new(server_ot));
    let (a, b) = both(move || client(&mut c), move || server(&mut s));
    (a, b, watch)
}

/// Runs both parties in threads of their own. Each owns its context: one that fails drops its end and thereby wakes the
/// other.
fn both<A: Send, B: Send>(client: impl FnOnce() -> A + Send, server: impl FnOnce() -> B + Send) -> (A, B) {
    std::thread::scope(|scope| {
        let server = scope.spawn(server);
        let client = scope.spawn(client);
        match (client.join(), server.join()) {
            (Ok(a), Ok(b)) => (a, b),
            // The second failure is usually a consequence of the first; either is possible.
            (Err(why), _) | (_, Err(why)) => std::panic::resume_unwind(why),
        }
    })
}

/// `n` random words.
pub fn words(n: usize, seed: u64) -> Vec<u64> {
    let mut rng = SecretRng::insecure_from_seed(seed);
    (0..n).map(|_| rng.next_u64()).collect()
}

/// `n` elements of a ring: zero and the largest, those beside a sign's change, and random ones.
pub fn values(n: usize, ring: Ring, seed: u64) -> Vec<u64> {
    let half = ring.mask() >> 1;
    let edges = [0, ring.mask(), 1, half, ring.mask() ^ half];
    let random = words(n, seed).into_iter().map(|w| ring.reduce(w));
    edges.into_iter().chain(random).take(n).collect()
}

/// Uniform shares of `values`: (client's, server's).
pub fn share(ring: Ring, values: &[u64], seed: u64) -> (Share, Share) {
    let masks = words(values.len(), seed);
    let rest = values.iter().zip(&masks);
    let rest = rest.map(|(v, m)| v.wrapping_sub(*m)).collect();
    (Share::new(ring, masks), Share::new(ring, rest))
}

/// Uniform shares of signed integers.
pub fn share_signed(ring: Ring, values: &[i64], seed: u64) -> (Share, Share) {
    let values: Vec<u64> = values.iter().map(|&v| v as u64).collect();
    share(ring, &values, seed)
}

/// Uniform shares of bits, 0 or 1 each.
pub fn share_bits(values: &[u64], seed: u64) -> (BitShare, BitShare) {
    let masks = words(values.len(), seed);
    let rest: Vec<u64> = values.iter().zip(&masks).map(|(v, m)| v ^ m).collect();
    (BitShare::from_low_bits(masks.into_iter()), BitShare::from_low_bits(rest.into_iter()))
}

/// The values that the two shares add up to.
///
/// # Panics
/// If the shares do not match.
pub fn reveal(client: &Share, server: &Share) -> Vec<u64> {
    client.add(server).words().to_vec()
}

/// The values as signed integers.
pub fn reveal_signed(client: &Share, server: &Share) -> Vec<i64> {
    let ring = client.ring();
    let values = reveal(client, server);
    values.into_iter().map(|v| ring.decode(v)).collect()
}

/// The bits that the two shares XOR to, 0 or 1 each.
pub fn reveal_bits(client: &BitShare, server: &BitShare) -> Vec<u64> {
    let open = client.xor(server);
    (0..open.len()).map(|i| open.bit(i)).collect()
}

/// The cost of a step: one party's counters, and the rounds of the pair.
#[derive(Clone, Copy, Debug)]
pub struct Counted {
    /// The client's counters for the step alone.
    pub client: Stats,
    /// Rounds, as [`Cost::rounds`] defines them; `None` if a party broke off.
    pub rounds: Option<u64>,
}

/// Runs one gadget on both sides and returns its cost along with the results.
pub fn run_counted<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx) -> A + Send,
    server: impl FnOnce(&mut Ctx) -> B + Send,
) -> (A, B, Counted) {
    run_after(|_| (), |ctx, ()| client(ctx), |ctx, ()| server(ctx))
}

/// Runs a step on both sides after a first one, usually a key exchange, and returns the cost of the second step along
/// with its results.
pub fn run_after<S, A: Send, B: Send>(
    first: impl Fn(&mut Ctx) -> S + Sync,
    client: impl FnOnce(&mut Ctx, &S) -> A + Send,
    server: impl FnOnce(&mut Ctx, &S) -> B + Send,
) -> (A, B, Counted) {
    fn party<S, T>(
        ctx: &mut Ctx,
        first: impl Fn(&mut Ctx) -> S,
        then: impl FnOnce(&mut Ctx, &S) -> T,
    ) -> (T, [Stats; 2]) {
        let made = first(ctx);
        let before = ctx.session.stats();
        let out = then(ctx, &made);
        (out, [before, ctx.session.stats()])
    }
    let ((a, c), (b, s), watch) = run_watched(|ctx| party(ctx, &first, client), |ctx| party(ctx, &first, server));
    let counted = Counted { client: c[1].since(&c[0]), rounds: watch.rounds(&c[0]..&c[1], &s[0]..&s[1]) };
    (a, b, counted)
}

/// Compares a declared cost with what the protocol used: frames, payload bytes and rounds, all exactly.
///
/// # Panics
/// If they differ.
pub fn assert_cost(counted: &Counted, cost: Cost) {
    let client = &counted.client;
    assert_eq!(
        (client.frames_sent, client.frames_received),
        (cost.frames_client, cost.frames_server),
        "frames (client, server)"
    );
    assert_eq!(client.bytes_sent - FRAME_BYTES * client.frames_sent, cost.bytes_client, "payload bytes of the client");
    assert_eq!(
        client.bytes_received - FRAME_BYTES * client.frames_received,
        cost.bytes_server,
        "payload bytes of the server"
    );
    assert_eq!(counted.rounds, Some(cost.rounds), "rounds");
}

/// A party's end of the key exchange.
///
/// # Panics
/// If it fails.
pub fn keys(ctx: &mut Ctx) -> HeContext {
    HeContext::exchange(ctx).unwrap_or_else(|error| panic!("keys are exchanged: {error}"))
}

/// Runs a step on shares on both sides after the key exchange; returns its result and the cost of the step alone.
///
/// # Panics
/// If the key exchange or a party fails.
pub fn run_over_rlwe(
    x: &(Share, Share),
    step: impl Fn(&mut Ctx, &HeContext, &Share) -> Share + Sync,
) -> (Vec<u64>, Counted) {
    let (a, b, counted) = run_after(keys, |ctx, he| step(ctx, he, &x.0), |ctx, he| step(ctx, he, &x.1));
    (reveal(&a, &b), counted)
}
