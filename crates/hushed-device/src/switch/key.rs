//! Switching keys on a device: both halves whole.

use std::sync::Arc;

use hushed_rlwe::hybrid::{Gadget, KeyUse, SwitchKey};
use hushed_rlwe::{RlweError, RlweParams};

use crate::error::DeviceError;
use crate::machine::Machine;
use crate::memory::Words;
use crate::ring::DeviceRing;

/// A key on a device. The uniform half, elsewhere a seed, is expanded once.
pub struct DeviceKey<M: Machine> {
    ring: Arc<DeviceRing<M>>,
    params: Arc<RlweParams>,
    key: KeyUse,
    gadget: Gadget,
    /// By digit: b over the gadget's primes and its special ones, then a.
    words: Words<M>,
}

impl<M: Machine> DeviceKey<M> {
    /// Expands a key and copies it to the device: 16 bytes a coefficient for each digit and each prime.
    ///
    /// # Errors
    /// [`DeviceError::Rlwe`] with [`RlweError::IncompatibleParameters`] if the ring is not that of the key;
    /// [`DeviceError::OutOfMemory`], [`DeviceError::Call`].
    pub fn upload(ring: &Arc<DeviceRing<M>>, key: &SwitchKey) -> Result<Self, DeviceError> {
        let (params, gadget) = (key.params(), key.gadget());
        if !Arc::ptr_eq(params.basis(), ring.basis()) {
            return Err(RlweError::IncompatibleParameters.into());
        }
        let (n, count) = (params.n(), gadget.digits().len());
        let ids = params.extended_ids_with(gadget.limbs(), gadget.special());
        let mut words = vec![0; 2 * count * ids.len() * n];
        let mut rooms = Vec::new();
        for (limb, &id) in ids.iter().enumerate() {
            let halves = key.strips(id, count).next_strip(n, &mut rooms);
            for (half, digits) in halves.iter().enumerate() {
                for (digit, values) in digits.iter().enumerate() {
                    let at = ((2 * digit + half) * ids.len() + limb) * n;
                    words[at..at + n].copy_from_slice(values);
                }
            }
        }
        Ok(Self {
            words: ring.upload(&words)?,
            ring: Arc::clone(ring),
            params: Arc::clone(params),
            key: key.key_use(),
            gadget: gadget.clone(),
        })
    }

    /// The ring.
    pub fn ring(&self) -> &Arc<DeviceRing<M>> {
        &self.ring
    }

    /// The parameters of the key.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    /// What the key is for.
    pub fn key_use(&self) -> KeyUse {
        self.key
    }

    /// The shape of the key.
    pub fn gadget(&self) -> &Gadget {
        &self.gadget
    }

    pub(super) fn words(&self) -> &Words<M> {
        &self.words
    }
}
