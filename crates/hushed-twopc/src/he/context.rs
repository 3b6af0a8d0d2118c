//! Session keys: what each party needs to encrypt under its own key and to answer under the other's.
//!
//! Each party generates a secret key and sends the public key (for the answering party's fresh encryptions of zero) and
//! the Galois keys of the interleaving tree, with uniform parts as seeds. One key set serves products over two and
//! three primes: the shorter modulus is a prefix of the longer one.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::layout::{Layout, Layouts, OltSpec, packing_limbs};
use crate::error::TwopcError;
use hushed_math::rng::SecretRng;
use hushed_net::{Expect, Kind, Session};
use hushed_rlwe::{KeySet, RlweError, RlweParams, SecretKey};
use std::sync::Arc;

const KEYS: Kind = Kind(0x0400);

/// One party's keys for products over RLWE.
pub struct HeContext {
    own: SecretKey,
    peer: KeySet,
    levels: u32,
    layouts: Layouts,
}

impl HeContext {
    /// Levels for interleaving trees of up to N leaves: enough for every tiling.
    pub const ALL_LEVELS: u32 = 13;

    /// Generates this party's keys under the full preset and exchanges them with the peer: one message each way, one
    /// round, [`HeContext::exchange_bytes`] bytes in either direction.
    ///
    /// # Errors
    /// Those of the session; [`TwopcError::Rlwe`] if the peer's bytes are not a key set.
    pub fn exchange(session: &mut Session, rng: &mut SecretRng) -> Result<Self, TwopcError> {
        Self::exchange_with(RlweParams::olt_full().map_err(RlweError::from)?, Self::ALL_LEVELS, session, rng)
    }

    /// [`HeContext::exchange`] with other parameters and for trees of up to 2^`levels` leaves. Both parties must ask
    /// for the same.
    ///
    /// # Errors
    /// As [`HeContext::exchange`].
    pub fn exchange_with(
        params: Arc<RlweParams>,
        levels: u32,
        session: &mut Session,
        rng: &mut SecretRng,
    ) -> Result<Self, TwopcError> {
        rng.check().map_err(RlweError::from)?;
        let mut rng = rng.fork("session keys");
        let elements = params.interleave_elements(levels);
        let own = SecretKey::generate(&params, &mut rng);
        let published = KeySet::generate(&own, &elements, packing_limbs(&params), &mut rng)?;
        let bytes = Self::exchange_bytes(&params, levels);
        session.send_vec(KEYS, published.to_bytes())?;
        drop(published);
        let received = session.recv(KEYS, Expect::Exactly(bytes))?;
        let peer = KeySet::from_bytes(&params, &elements, packing_limbs(&params), &received)?;
        Ok(Self { layouts: Layouts::new(params), own, peer, levels })
    }

    /// Payload bytes that each party sends in the exchange.
    pub fn exchange_bytes(params: &RlweParams, levels: u32) -> usize {
        let elements = params.interleave_elements(levels).len();
        KeySet::bytes(params, elements, packing_limbs(params))
    }

    /// The parameters.
    pub fn params(&self) -> &Arc<RlweParams> {
        self.layouts.params()
    }

    /// log2 of the size of the largest interleaving tree.
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// The layout of a product.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn layout(&self, spec: &OltSpec) -> Result<Arc<Layout>, TwopcError> {
        self.layouts.of(spec)
    }

    pub(crate) fn own(&self) -> &SecretKey {
        &self.own
    }

    pub(crate) fn peer(&self) -> &KeySet {
        &self.peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::run_pair;
    use hushed_rlwe::audit::{Source, audit};

    /// Checks the key set that a session really sends, as the peer has read it.
    #[test]
    fn exchanged_keys_are_within_the_security_table() {
        let exchange = |ctx: &mut crate::ctx::Ctx| {
            let he = HeContext::exchange(&mut ctx.session, &mut ctx.rng).unwrap();
            he.peer().published()
        };
        let (client, server) = run_pair(exchange, exchange);
        let params = RlweParams::olt_full().unwrap();
        for samples in [&client, &server] {
            let galois = |s: &Source| matches!(s, Source::GaloisKey { .. });
            let digits = samples.iter().filter(|s| galois(&s.source)).count();
            // One digit each.
            assert_eq!(digits, params.interleave_elements(HeContext::ALL_LEVELS).len());
            assert_eq!(samples.len(), digits + 1);
        }
        // Together: the parties share no uniform part either.
        audit(&[client, server].concat()).unwrap();
    }
}
