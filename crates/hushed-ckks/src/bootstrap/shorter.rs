//! Refreshing to fewer levels than the set has: the same bootstrap over a shorter chain, with the same keys and
//! matrices.
//!
//! A refresh that needs L levels raises to q_0, the primes of SlotsToCoeffs, the first L levels, and those of EvalMod
//! and CoeffsToSlots, whose sizes determine the scales. The levels left out lie in the middle of the chain, so they are
//! taken out of it: the ring, the keys and the encoded matrices without them
//! ([`hushed_rlwe::hybrid::EvalKeys::without`]) share all their words with the whole ones. Steps 3 to 5 then run as if
//! the set had L levels; their precision does not depend on it.

use std::ops::Range;
use std::sync::Arc;

use hushed_math::poly::Domain;
use hushed_math::{Eval, RnsPoly};

use crate::bootstrap::coeffs_to_slots::CoeffsToSlots;
use crate::bootstrap::encapsulate::Encapsulated;
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::params::CkksParams;

/// Steps 3 to 5 without some of the levels.
pub(super) struct Shorter {
    /// The primes of the whole chain that are left out.
    gap: Range<usize>,
    params: Arc<CkksParams>,
    pub(super) coeffs_to_slots: CoeffsToSlots,
}

impl Shorter {
    /// For results of `levels` levels.
    pub(super) fn new(
        params: &CkksParams,
        whole: &CoeffsToSlots,
        levels: usize,
    ) -> Result<Self, CkksError> {
        let gap = params.gap(levels);
        let short = params.with_levels(levels)?;
        Ok(Self {
            coeffs_to_slots: whole.without(&short, &gap),
            params: short,
            gap,
        })
    }

    /// An evaluator of the shorter chain with the keys of `evaluator`, counting with it.
    pub(super) fn evaluator(&self, evaluator: &Evaluator) -> Result<Evaluator, CkksError> {
        let keys = evaluator.keys("bootstrap")?;
        let keys = keys.without(self.params.rlwe(), &self.gap)?;
        evaluator.beside(&self.params, keys)
    }

    /// A ciphertext modulo q_0, over the shorter chain.
    pub(super) fn enter(&self, (b, a): Encapsulated) -> Result<Encapsulated, CkksError> {
        Ok((moved(b, &self.params)?, moved(a, &self.params)?))
    }

    /// A result, over the primes of `whole` that it has.
    pub(super) fn leave(
        &self,
        ct: Ciphertext,
        whole: &CkksParams,
    ) -> Result<Ciphertext, CkksError> {
        let (scale, noise) = (ct.scale(), ct.noise());
        let (b, a): (RnsPoly<Eval>, RnsPoly<Eval>) = ct.into_parts();
        let ct = Ciphertext::from_parts(moved(b, whole)?, moved(a, whole)?, scale)?;
        Ok(ct.with_noise(noise))
    }
}

/// The same residues under the first primes of `params`, which are those that it has.
fn moved<D: Domain>(poly: RnsPoly<D>, params: &CkksParams) -> Result<RnsPoly<D>, CkksError> {
    let ids = poly.ids().to_vec();
    let moved = poly.renumbered(params.rlwe().basis(), &ids);
    Ok(moved.map_err(hushed_rlwe::RlweError::from)?)
}
