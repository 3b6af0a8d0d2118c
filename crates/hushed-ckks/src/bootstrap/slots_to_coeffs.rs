//! Step 1: moves the message from the slots to the coefficients, at the bottom of the chain where everything is cheap.
//!
//! The input is a ciphertext of 1 + stc primes with slots z. The output is one modulo q_0 with coefficients scale·z,
//! real parts first, in bit-reversed order (undone by step 4), at the same scale. For a repeating message they are the
//! coefficients at powers of Y.

use std::sync::Arc;

use hushed_rlwe::hybrid::KeySpecs;

use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::{DftFactors, Direction, LinearTransform, Options};
use crate::params::CkksParams;

/// SlotsToCoeffs, in as many factors as the chain has primes for it.
pub struct SlotsToCoeffs {
    factors: Vec<LinearTransform>,
}

impl SlotsToCoeffs {
    /// Prepares the map on `slots` slots (all, or the period of messages) for the lowest primes of the chain.
    ///
    /// # Errors
    /// [`CkksError::LinTrans`].
    pub fn new(params: &Arc<CkksParams>, slots: usize) -> Result<Self, CkksError> {
        let count = params.chain().stc.len();
        let direction = Direction::SlotsToCoeffs;
        let layers = DftFactors::even_layers(direction, slots, count);
        let map = DftFactors::new(direction, slots, &layers, 1.0)?;
        let limbs = (2..=1 + map.factors().len()).rev();
        let factors = limbs
            .zip(map.factors())
            .map(|(limbs, m)| LinearTransform::new(params, m, limbs, Options::default()))
            .collect::<Result<_, _>>()?;
        Ok(Self { factors })
    }

    /// The factors, in order of application.
    pub fn factors(&self) -> &[LinearTransform] {
        &self.factors
    }

    /// Adds the keys of all factors.
    pub fn add_keys(&self, specs: &mut KeySpecs) {
        self.factors.iter().for_each(|map| map.add_keys(specs));
    }

    /// Applies the map to each ciphertext.
    ///
    /// # Errors
    /// As [`LinearTransform::apply_many`].
    pub fn apply(&self, evaluator: &Evaluator, cts: Vec<Ciphertext>) -> Result<Vec<Ciphertext>, CkksError> {
        self.factors.iter().try_fold(cts, |cts, map| map.apply_many(evaluator, &cts.iter().collect::<Vec<_>>()))
    }
}
