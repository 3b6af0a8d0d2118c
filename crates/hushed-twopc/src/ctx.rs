//! What one party carries through a protocol: its session, its randomness, its correlations.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod beside;

pub use beside::beside;

use crate::error::{TwopcError, expect_len};
use crate::link::Link;
use crate::ot::Correlations;
use crate::share::{Ring, Share, wipe};
use crate::wire;
use hushed_math::rng::SecretRng;
use hushed_net::{Kind, Party, Session};
use hushed_rlwe::RlweError;

/// One party's state. Both parties call the same protocol functions in the same order.
pub struct Ctx {
    /// The counted, framed connection to the other party.
    pub session: Session,
    /// This party's secret randomness.
    pub rng: SecretRng,
    /// The source of random correlated OTs.
    pub ot: Box<dyn Correlations>,
    link: Link,
    opened_bits: u64,
}

impl Ctx {
    /// A context over an open session, with the forms of [`Link::LAN`].
    pub fn new(session: Session, rng: SecretRng, ot: Box<dyn Correlations>) -> Ctx {
        Ctx { session, rng, ot, link: Link::LAN, opened_bits: 0 }
    }

    /// The same with the forms of another link, which must be the other party's too.
    #[must_use]
    pub fn on(self, link: Link) -> Ctx {
        Ctx { link, ..self }
    }

    /// Sets the link before a step of a test; both parties do it at the same place.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_link(&mut self, link: Link) {
        self.link = link;
    }

    /// The link by which forms are chosen.
    pub fn link(&self) -> Link {
        self.link
    }

    /// Checks that the session and the randomness belong to this process. Comes before the first draw, which would
    /// otherwise panic in a forked process.
    ///
    /// # Errors
    /// [`hushed_net::NetError::Forked`], [`hushed_math::MathError::Forked`].
    pub fn check_process(&self) -> Result<(), TwopcError> {
        self.session.check_process()?;
        Ok(self.rng.check().map_err(RlweError::from)?)
    }

    /// Bits of all words that were opened so far, to either party. A party that cheats learns no more than those that
    /// were opened to it.
    pub fn opened_bits(&self) -> u64 {
        self.opened_bits
    }

    /// Which party this is.
    pub fn party(&self) -> Party {
        self.session.party()
    }

    /// Whether this is the client, which adds public constants.
    pub fn is_client(&self) -> bool {
        self.party() == Party::Client
    }

    /// [a, b] for the client and [b, a] for the server: from the halves of a batch, of which the client chooses in the
    /// first, to those in which this party chooses and offers; and back.
    pub(crate) fn by_role<T>(&self, a: T, b: T) -> [T; 2] {
        match self.party() {
            Party::Client => [a, b],
            Party::Server => [b, a],
        }
    }

    /// Whether this party draws the OTs it sends before those it receives. Both parties do, so that neither waits for
    /// the other's extension; but a direction begins with messages from its receiver, and the client's direction begins
    /// first. Until then extensions wait in the channel, a fifth of a byte per OT: a call with 10^8 OTs fits well.
    pub(crate) fn sends_first(&self) -> bool {
        self.is_client() || self.ot.has_begun()
    }

    /// Whether the other party draws the OTs it sends first.
    pub(crate) fn peer_sends_first(&self) -> bool {
        !self.is_client() || self.ot.has_begun()
    }

    /// Shares `n` values that only `owner` knows; the other party passes any slice. The masks are uniform: the owner
    /// sends the other party's words. One message of `n` packed ℓ-bit words.
    ///
    /// # Errors
    /// [`TwopcError::Misuse`] if the owner does not pass `n` values.
    pub fn share_input(&mut self, owner: Party, ring: Ring, values: &[u64], n: usize) -> Result<Share, TwopcError> {
        if self.party() == owner {
            self.check_process()?;
            expect_len("share_input", "number of values", values.len(), n)?;
            let mut masks: Vec<u64> = (0..n).map(|_| ring.reduce(self.rng.next_u64())).collect();
            let own = values.iter().zip(&masks);
            let own = own.map(|(v, m)| v.wrapping_sub(*m)).collect();
            let message = wire::pack(&masks, ring.bits());
            wipe(&mut masks);
            self.session.send(INPUT, &message)?;
            Ok(Share::new(ring, own))
        } else {
            let message = wire::recv_exactly(&mut self.session, INPUT, wire::packed_len(n, ring.bits()))?;
            Ok(Share::new(ring, wire::unpack(&message, ring.bits(), n)?))
        }
    }

    /// Reveals `x` to `to` alone, which gets the values; the other party gets `None`. Before that, both check the OTs
    /// that they have used: only then does a party that cheated in them learn nothing. This shows every bit of `x`, and
    /// how `x` was truncated before. To reveal a value only to a given place, use
    /// [`open_rounded`](crate::gadget::open_rounded).
    pub fn open_to(&mut self, to: Party, x: &Share) -> Result<Option<Vec<u64>>, TwopcError> {
        self.ot.check(&mut self.session)?;
        let ring = x.ring();
        self.opened_bits += x.len() as u64 * u64::from(ring.bits());
        if self.party() != to {
            self.session.send(OPEN, &wire::pack(x.words(), ring.bits()))?;
            return Ok(None);
        }
        let len = wire::packed_len(x.len(), ring.bits());
        let message = wire::recv_exactly(&mut self.session, OPEN, len)?;
        let other = Share::new(ring, wire::unpack(&message, ring.bits(), x.len())?);
        Ok(Some(x.add(&other).into_words()))
    }
}

const INPUT: Kind = Kind(0x0300);
const OPEN: Kind = Kind(0x0301);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run_pair;

    #[test]
    fn inputs_are_shared_by_either_owner_and_opened_to_either() {
        let ring = Ring::new(37);
        let values: Vec<u64> = (0..100).map(|i| ring.reduce(i * 0x0123_4567_89ab)).collect();
        for owner in [Party::Client, Party::Server] {
            let run = |ctx: &mut Ctx| {
                let mine = if ctx.party() == owner { values.as_slice() } else { &[] };
                let x = ctx.share_input(owner, ring, mine, values.len()).unwrap();
                // Neither share is the value itself.
                assert!(x.words() != values);
                let first = ctx.open_to(Party::Client, &x).unwrap();
                let second = ctx.open_to(Party::Server, &x).unwrap();
                (first, second)
            };
            let (client, server) = run_pair(run, run);
            assert_eq!((client.0.as_ref(), client.1), (Some(&values), None));
            assert_eq!((server.0, server.1.as_ref()), (None, Some(&values)));
        }
    }

    /// Nothing of the parent's leaves the child, and each call says why, including those that draw before they send.
    #[test]
    fn fork_refuses_a_context_of_the_parent() {
        use hushed_math::process::{Child, in_child};
        use hushed_net::NetError;
        let ring = Ring::new(20);
        let run = |ctx: &mut Ctx| {
            let client = ctx.is_client();
            if client {
                let seen = in_child(|| {
                    let forked = |error: Option<TwopcError>| matches!(error, Some(TwopcError::Net(NetError::Forked)));
                    let x = Share::new(ring, vec![1, 2]);
                    let answers = [
                        ctx.check_process().err(),
                        ctx.share_input(Party::Client, ring, &[5], 1).err(),
                        ctx.share_input(Party::Server, ring, &[], 1).err(),
                        ctx.open_to(Party::Server, &x).err(),
                    ];
                    u8::from(!answers.into_iter().all(forked))
                });
                assert_eq!(seen, Child::Code(0));
            }
            let x = ctx.share_input(Party::Client, ring, &[5], 1).unwrap();
            ctx.open_to(Party::Client, &x).unwrap()
        };
        assert_eq!(run_pair(run, run), (Some(vec![5]), None));
    }

    #[test]
    fn the_owner_must_have_all_values() {
        run_pair(|ctx| assert!(ctx.share_input(Party::Client, Ring::Z64, &[1], 2).is_err()), |_| ());
    }
}
