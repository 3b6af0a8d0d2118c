//! Harness for tests of protocols: two parties in two threads over ideal correlations.

use crate::cost::{Cost, FRAME_BYTES};
use crate::ctx::Ctx;
use crate::he::HeContext;
use crate::ot::ideal::IdealPair;
use crate::share::{BitShare, Ring, Share};
use hushed_math::rng::SecretRng;
use hushed_net::{Stats, memory_pair};

/// Runs both parties on connected contexts; returns (client's, server's) result. A panic of either
/// party is a panic of the caller.
pub fn run_pair<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx) -> A + Send,
    server: impl FnOnce(&mut Ctx) -> B + Send,
) -> (A, B) {
    let (client_session, server_session) = memory_pair();
    let (client_ot, server_ot) = IdealPair::new();
    let rng = |seed| SecretRng::insecure_from_seed(seed);
    let mut c = Ctx::new(client_session, rng(0xc11e), Box::new(client_ot));
    let mut s = Ctx::new(server_session, rng(0x5e2f), Box::new(server_ot));
    std::thread::scope(|scope| {
        // Each thread owns its context: one that fails drops its end and so wakes the other.
        let server = scope.spawn(move || server(&mut s));
        let client = scope.spawn(move || client(&mut c));
        let client = client.join();
        let server = server.join();
        match (client, server) {
            (Ok(a), Ok(b)) => (a, b),
            // The second failure is usually the consequence of the first; show both are possible.
            (Err(why), _) | (_, Err(why)) => std::panic::resume_unwind(why),
        }
    })
}

/// Uniform shares of `values`: (client's, server's).
pub fn share(ring: Ring, values: &[u64], seed: u64) -> (Share, Share) {
    let mut rng = SecretRng::insecure_from_seed(seed);
    let masks: Vec<u64> = values.iter().map(|_| rng.next_u64()).collect();
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
    let mut rng = SecretRng::insecure_from_seed(seed);
    let masks: Vec<u64> = values.iter().map(|_| rng.next_u64()).collect();
    let rest: Vec<u64> = values.iter().zip(&masks).map(|(v, m)| v ^ m).collect();
    (
        BitShare::from_low_bits(masks.into_iter()),
        BitShare::from_low_bits(rest.into_iter()),
    )
}

/// The values that two shares hold.
///
/// # Panics
/// If the shares do not fit.
pub fn reveal(client: &Share, server: &Share) -> Vec<u64> {
    client.add(server).words().to_vec()
}

/// The values as signed integers.
pub fn reveal_signed(client: &Share, server: &Share) -> Vec<i64> {
    let ring = client.ring();
    let values = reveal(client, server);
    values.into_iter().map(|v| ring.decode(v)).collect()
}

/// The bits that two shares hold, 0 or 1 each.
pub fn reveal_bits(client: &BitShare, server: &BitShare) -> Vec<u64> {
    let open = client.xor(server);
    (0..open.len()).map(|i| open.bit(i)).collect()
}

/// Runs one gadget on both sides and returns the client's counters beside the results.
pub fn run_counted<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx) -> A + Send,
    server: impl FnOnce(&mut Ctx) -> B + Send,
) -> (A, B, Stats) {
    let counted = |ctx: &mut Ctx| {
        let out = client(ctx);
        (out, ctx.session.stats())
    };
    let ((a, stats), b) = run_pair(counted, server);
    (a, b, stats)
}

/// Holds a declared cost against the client's counters. Rounds are compared only where every step is a crossing
/// exchange or the client speaks first.
///
/// # Panics
/// If they differ.
pub fn assert_cost(client: &Stats, cost: Cost) {
    assert_eq!(
        (client.frames_sent, client.frames_received),
        (cost.frames_client, cost.frames_server),
        "frames (client, server)"
    );
    assert_eq!(
        client.bytes_sent - FRAME_BYTES * client.frames_sent,
        cost.bytes_client,
        "payload bytes of the client"
    );
    assert_eq!(
        client.bytes_received - FRAME_BYTES * client.frames_received,
        cost.bytes_server,
        "payload bytes of the server"
    );
}

/// Runs a step on shares on both sides after the exchange of keys; gives its result, and the client's counters of the step alone.
///
/// # Panics
/// If the exchange of keys fails, or a party does.
pub fn run_over_rlwe(
    x: &(Share, Share),
    step: impl Fn(&mut Ctx, &HeContext, &Share) -> Share + Sync,
) -> (Vec<u64>, Stats) {
    let party = |ctx: &mut Ctx, x: &Share| {
        let he = HeContext::exchange(&mut ctx.session, &mut ctx.rng)
            .unwrap_or_else(|error| panic!("keys are exchanged: {error}"));
        let before = ctx.session.stats();
        let y = step(ctx, &he, x);
        (y, ctx.session.stats().since(&before))
    };
    let ((a, stats), (b, _)) = run_pair(|ctx| party(ctx, &x.0), |ctx| party(ctx, &x.1));
    (reveal(&a, &b), stats)
}
