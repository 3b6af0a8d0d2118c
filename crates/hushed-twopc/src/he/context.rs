//! Session keys: the client encrypts under its own key, and the server answers under the client's.
//!
//! The client generates a secret key and sends the public key (for the server's fresh encryptions of zero) and the
//! Galois keys of the interleaving tree, with uniform parts as seeds. One key set serves products over two and three
//! primes: the shorter modulus is a prefix of the longer one.
//!
//! The client then proves that the public key is well formed ([`super::proof`]): no context exists without that.
//!
//! The server has no key. Whoever decrypts cannot tell an honest response, which is uniform, from one that makes chosen
//! linear functions of its secret key a part of its share; and what the server computes from its share is opened to the
//! client. BumbleBee's products of shared matrices, in which both parties encrypt, thus give a client that cheats the
//! server's key for as many opened bits as the key has, and with it every operand that the server ever encrypted.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::error::HeError;
use super::layout::known::Layouts;
use super::layout::{Layout, OltSpec, packing_limbs};
use super::proof;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use hushed_net::{Expect, Kind, Party};
use hushed_rlwe::{KeySet, RlweError, RlweParams, SecretKey};
use std::sync::Arc;

const KEYS: Kind = Kind(0x0400);

/// One party's keys for products over RLWE.
pub struct HeContext {
    keys: Keys,
    levels: u32,
    layouts: Layouts,
}

enum Keys {
    /// The client's.
    Secret(SecretKey),
    /// What the server has of it.
    Published(KeySet),
}

impl HeContext {
    /// Levels for interleaving trees of up to N leaves: enough for every tiling.
    pub const ALL_LEVELS: u32 = 13;

    /// Generates the client's keys under the full preset, sends the server their public part, and proves that it is
    /// well formed; [`HeContext::exchange_cost`] says at what cost.
    ///
    /// # Errors
    /// Those of the session; [`TwopcError::Rlwe`] if the peer's bytes are not a key set, [`TwopcError::PeerMisbehaved`]
    /// if the proof fails.
    pub fn exchange(ctx: &mut Ctx) -> Result<Self, TwopcError> {
        Self::exchange_with(RlweParams::olt_full().map_err(RlweError::from)?, Self::ALL_LEVELS, ctx)
    }

    /// [`HeContext::exchange`] with other parameters and for trees of up to 2^`levels` leaves. Both parties must ask
    /// for the same.
    ///
    /// # Errors
    /// As [`HeContext::exchange`].
    pub fn exchange_with(params: Arc<RlweParams>, levels: u32, ctx: &mut Ctx) -> Result<Self, TwopcError> {
        let elements = params.interleave_elements(levels);
        let keys = match ctx.party() {
            Party::Client => {
                ctx.check_process()?;
                let mut rng = ctx.rng.fork("session keys");
                let secret = SecretKey::generate(&params, &mut rng);
                let published = KeySet::generate(&secret, &elements, packing_limbs(&params), &mut rng)?;
                ctx.session.send_vec(KEYS, published.to_bytes())?;
                proof::prove(ctx, &secret, &published.public)?;
                Keys::Secret(secret)
            }
            Party::Server => {
                let received = ctx.session.recv(KEYS, Expect::Exactly(Self::key_bytes(&params, levels)))?;
                let published = KeySet::from_bytes(&params, &elements, packing_limbs(&params), &received)?;
                proof::verify(ctx, &published.public)?;
                Keys::Published(published)
            }
        };
        Ok(Self { layouts: Layouts::over(ctx.link(), params), keys, levels })
    }

    /// Cost of the exchange, once OTs from server to client run.
    pub fn exchange_cost(params: &RlweParams, levels: u32) -> Cost {
        Cost::exchange(Self::key_bytes(params, levels) as u64, 0) + proof::cost(params)
    }

    fn key_bytes(params: &RlweParams, levels: u32) -> usize {
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

    /// The layouts of products.
    pub fn layouts(&self) -> &Layouts {
        &self.layouts
    }

    /// The layout of a product.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn layout(&self, spec: &OltSpec) -> Result<Arc<Layout>, TwopcError> {
        self.layouts.of(spec)
    }

    /// The client's key, to encrypt and to open responses.
    pub(crate) fn secret(&self) -> Result<&SecretKey, HeError> {
        match &self.keys {
            Keys::Secret(key) => Ok(key),
            Keys::Published(_) => Err(HeError::Role),
        }
    }

    /// What the server answers with.
    pub(crate) fn published(&self) -> Result<&KeySet, HeError> {
        match &self.keys {
            Keys::Published(keys) => Ok(keys),
            Keys::Secret(_) => Err(HeError::Role),
        }
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
        let exchange = |ctx: &mut Ctx| HeContext::exchange(ctx).unwrap();
        let (client, server) = run_pair(exchange, exchange);
        let samples = server.published().unwrap().published();
        let params = RlweParams::olt_full().unwrap();
        let galois = |s: &Source| matches!(s, Source::GaloisKey { .. });
        let digits = samples.iter().filter(|s| galois(&s.source)).count();
        // One digit each.
        assert_eq!(digits, params.interleave_elements(HeContext::ALL_LEVELS).len());
        assert_eq!(samples.len(), digits + 1);
        audit(&samples).unwrap();
        // A server with a key would lose it to a client that cheats.
        assert_eq!(server.secret().err(), Some(HeError::Role));
        assert_eq!(client.published().err(), Some(HeError::Role));
    }
}
