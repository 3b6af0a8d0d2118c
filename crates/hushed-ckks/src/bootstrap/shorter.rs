//! Refreshing to fewer levels than the set has: the same bootstrap with the same keys and matrices on a shorter chain.
//!
//! A refresh to L levels raises to q_0, the primes of SlotsToCoeffs, the first L levels, and the primes of EvalMod and
//! CoeffsToSlots, whose sizes determine the scales. The omitted levels are in the middle of the chain and are cut out
//! of it: the ring, keys and encoded matrices without them ([`hushed_rlwe::hybrid::EvalKeys::without`]) share all their
//! words with the full ones. Steps 3 to 5 then run as if the set had L levels; their precision does not depend on L.

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
    /// The primes of the whole chain that are omitted.
    gap: Range<usize>,
    params: Arc<CkksParams>,
    pub(super) coeffs_to_slots: CoeffsToSlots,
}

impl Shorter {
    /// For results of `levels` levels.
    pub(super) fn new(params: &CkksParams, whole: &CoeffsToSlots, levels: usize) -> Result<Self, CkksError> {
        let gap = params.gap(levels);
        let short = params.with_levels(levels)?;
        Ok(Self { coeffs_to_slots: whole.without(&short, &gap), params: short, gap })
    }

    /// An evaluator of the shorter chain with the keys and counters of `evaluator`.
    pub(super) fn evaluator(&self, evaluator: &Evaluator) -> Result<Evaluator, CkksError> {
        let keys = evaluator.keys("bootstrap")?;
        let keys = keys.without(self.params.rlwe(), &self.gap)?;
        evaluator.beside(&self.params, keys)
    }

    /// Moves a ciphertext modulo q_0 to the shorter chain.
    pub(super) fn enter(&self, (b, a): Encapsulated) -> Result<Encapsulated, CkksError> {
        Ok((moved(b, &self.params)?, moved(a, &self.params)?))
    }

    /// Moves a result back to the primes of `whole`.
    pub(super) fn leave(&self, ct: Ciphertext, whole: &CkksParams) -> Result<Ciphertext, CkksError> {
        let (scale, noise) = (ct.scale(), ct.noise());
        let (b, a): (RnsPoly<Eval>, RnsPoly<Eval>) = ct.into_parts();
        let ct = Ciphertext::from_parts(moved(b, whole)?, moved(a, whole)?, scale)?;
        Ok(ct.with_noise(noise))
    }
}

/// The same residues under the basis of `params`, whose first primes are those of `poly`.
fn moved<D: Domain>(poly: RnsPoly<D>, params: &CkksParams) -> Result<RnsPoly<D>, CkksError> {
    let ids = poly.ids().to_vec();
    let moved = poly.renumbered(params.rlwe().basis(), &ids);
    Ok(moved.map_err(hushed_rlwe::RlweError::from)?)
}
