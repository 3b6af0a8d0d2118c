//! Sparse slots: repeating messages of n' < N/2 slots, for narrow statistics, at a fraction of the cost.
//!
//! Such a message is a polynomial in Y = X^(N/2n') with 2n' coefficients, and all steps work in that ring:
//!
//! * The two maps are those for n' slots, with fewer layers, diagonals and keys.
//! * ModRaise adds q_0·I with a coefficient at every power of X. The *trace*, the sum of the rotations by all multiples
//!   of n' ("SubSum"), multiplies those at powers of Y by N/2n' and sets all others to 0, in log2(N/2n') doublings. It
//!   commutes with the factors of the map, whose diagonals also have period n'. Some doublings go into the first
//!   factor, whose rotations use one-digit keys and no decomposition; the others follow it, one key switch each. The
//!   factor N/2n' goes into the scale: the message is read at a larger scale, which the later factors undo.
//! * Real and imaginary parts of the n' numbers are in the two halves of a vector of period 2n' (*packed*): the last
//!   factor has its rows twice, times −i in the second half, and the real part is taken. EvalMod runs once, instead of
//!   twice as for full slots.
//! * Masks rejoin or separate the halves. In this order no map follows EvalMod that could absorb the masks, so they
//!   take their own level.

use std::sync::Arc;

use hushed_rlwe::hybrid::KeySpecs;
use num_complex::Complex64;
use rayon::prelude::*;

use crate::ciphertext::Ciphertext;
use crate::encoding::Encoder;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::{DftFactors, Diagonals, Direction};
use crate::params::CkksParams;
use crate::scale::Scale;

/// Fewest slots: maps for fewer have a single layer, and the trace needs a factor after it.
const LEAST: usize = 4;

/// log2 of the most diagonals that the first factor may have through doublings: beyond that, a key switch is cheaper
/// than doubling the diagonals.
const FIRST: usize = 4;

/// Levels used by unpacking.
const UNPACKING: usize = 1;

const ONE: Complex64 = Complex64::new(1.0, 0.0);
const NONE: Complex64 = Complex64::new(0.0, 0.0);
const I: Complex64 = Complex64::new(0.0, 1.0);

/// The inputs of EvalMod for one ciphertext: the parts of its message, or coefficients that equal them modulo q_0.
pub enum Halves {
    /// The real part alone.
    Real(Ciphertext),
    /// Real and imaginary parts, one ciphertext each.
    Apart([Ciphertext; 2]),
    /// Both parts in the halves of a vector of twice the period.
    Packed(Ciphertext, Arc<Group>),
}

impl Halves {
    /// The ciphertexts: two or one.
    pub fn as_slice(&self) -> &[Ciphertext] {
        match self {
            Self::Apart(both) => both,
            Self::Real(one) | Self::Packed(one, _) => std::slice::from_ref(one),
        }
    }

    /// Drops the imaginary part if it is a separate ciphertext.
    pub(super) fn real_only(self) -> Self {
        match self {
            Self::Apart([real, _]) => Self::Real(real),
            one => one,
        }
    }

    /// Applies `f` to each ciphertext.
    pub(super) fn map(self, f: impl Fn(Ciphertext) -> Result<Ciphertext, CkksError> + Sync) -> Result<Self, CkksError> {
        Ok(match self {
            Self::Real(one) => Self::Real(f(one)?),
            Self::Apart([real, imaginary]) => {
                let (real, imaginary) = rayon::join(|| f(real), || f(imaginary));
                Self::Apart([real?, imaginary?])
            }
            Self::Packed(one, group) => Self::Packed(f(one)?, group),
        })
    }

    /// real + i·imaginary.
    pub(super) fn join(self, evaluator: &Evaluator) -> Result<Ciphertext, CkksError> {
        match self {
            Self::Real(real) => Ok(real),
            Self::Apart([mut real, mut imaginary]) => {
                evaluator.mul_i_assign(&mut imaginary)?;
                evaluator.add_assign(&mut real, &imaginary)?;
                Ok(real)
            }
            Self::Packed(packed, group) => {
                let other = group.exchanged(evaluator, &packed)?;
                group.choose(evaluator, [&packed, &other], [ONE, I])
            }
        }
    }

    /// Real and imaginary parts, one ciphertext each; only the real one if there is no other.
    pub(super) fn part(self, evaluator: &Evaluator) -> Result<Vec<Ciphertext>, CkksError> {
        match self {
            Self::Real(real) => Ok(vec![real]),
            Self::Apart(both) => Ok(both.into()),
            Self::Packed(packed, group) => {
                let other = group.exchanged(evaluator, &packed)?;
                let (real, imaginary) = rayon::join(
                    || group.choose(evaluator, [&packed, &other], [ONE, NONE]),
                    || group.choose(evaluator, [&packed, &other], [NONE, ONE]),
                );
                Ok(vec![real?, imaginary?])
            }
        }
    }
}

/// The slots of a sparse bootstrap.
pub struct Group {
    slots: usize,
    /// log2(N/2n').
    doublings: u32,
    /// Doublings in the first factor.
    folded: u32,
    encoder: Encoder,
}

impl Group {
    /// A group for messages of `slots` slots.
    ///
    /// # Errors
    /// [`CkksError::NotPeriodic`] unless that is a power of two from 4 to N/4.
    pub fn new(params: &Arc<CkksParams>, slots: usize) -> Result<Self, CkksError> {
        let all = params.slots();
        if !slots.is_power_of_two() || slots < LEAST || 2 * slots > all {
            return Err(CkksError::NotPeriodic { given: slots, slots: all });
        }
        let doublings = (all / slots).trailing_zeros();
        // 2^k diagonals for k layers: those over all n' slots wrap around.
        let count = params.chain().cts.len();
        let layers = DftFactors::even_layers(Direction::CoeffsToSlots, slots, count);
        let room = layers.first().map_or(0, |first| FIRST.saturating_sub(*first));
        Ok(Self { slots, doublings, folded: doublings.min(room as u32), encoder: Encoder::new(params) })
    }

    /// n'.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// N/2n', the factor by which the trace multiplies a message.
    pub(super) fn copies(&self) -> usize {
        1 << self.doublings
    }

    /// Levels between EvalMod and the result.
    pub(super) fn levels(&self) -> usize {
        UNPACKING
    }

    /// Adds the trace keys for ciphertexts of `limbs` primes.
    pub(super) fn add_trace_keys(
        &self,
        params: &CkksParams,
        limbs: usize,
        specs: &mut KeySpecs,
    ) -> Result<(), CkksError> {
        let special = params.cheapest_special(limbs)?;
        for steps in self.trace_steps() {
            specs.galois(params.rotation_element(steps), limbs, special);
        }
        Ok(())
    }

    /// Adds the key for unpacking ciphertexts of at most `limbs` primes.
    pub(super) fn add_unpacking_keys(
        &self,
        params: &CkksParams,
        limbs: usize,
        specs: &mut KeySpecs,
    ) -> Result<(), CkksError> {
        let special = params.cheapest_special(limbs)?;
        specs.galois(params.rotation_element(self.slots as i64), limbs, special);
        Ok(())
    }

    /// Completes the sum of all rotations by multiples of n', read as the message they have in common.
    pub(super) fn trace(&self, evaluator: &Evaluator, cts: Vec<Ciphertext>) -> Result<Vec<Ciphertext>, CkksError> {
        let one = |mut ct: Ciphertext| {
            for steps in self.trace_steps() {
                let turned = evaluator.rotate(&ct, steps)?;
                evaluator.add_assign(&mut ct, &turned)?;
            }
            ct.read_as(1.0 / self.copies() as f64)
        };
        cts.into_par_iter().map(one).collect()
    }

    /// The doublings not included in the first factor.
    pub(super) fn trace_steps(&self) -> impl Iterator<Item = i64> {
        let slots = self.slots as i64;
        (self.folded..self.doublings).map(move |j| slots << j)
    }

    /// `first`, the first factor for n' slots, extended by as many doublings of the trace as it has room for.
    pub(super) fn folding(&self, first: &Diagonals) -> Result<Diagonals, CkksError> {
        let dim = self.slots << self.folded;
        let mut folding = Diagonals::new(dim)?;
        for (offset, values) in first.iter() {
            for block in (0..dim).step_by(self.slots) {
                folding.set((block + offset) as i64, values.to_vec())?;
            }
        }
        Ok(folding)
    }

    /// `last`, a factor for n' slots, extended to outputs of twice the period: times −i in the second half, so that the
    /// real part of the whole is packed.
    pub(super) fn packing(&self, last: &Diagonals) -> Result<Diagonals, CkksError> {
        let dim = 2 * self.slots;
        let mut packing = Diagonals::new(dim)?;
        for (offset, values) in last.iter() {
            let repeated = values.iter().copied().cycle().take(self.slots);
            let rows: Vec<_> = repeated.clone().chain(repeated.map(|x| -I * x)).collect();
            // Inputs have period n', so an offset may be replaced by the one near 0.
            let near = if 2 * offset > self.slots { offset as i64 - self.slots as i64 } else { offset as i64 };
            packing.set(near, rows)?;
        }
        Ok(packing)
    }

    /// Swaps the halves.
    fn exchanged(&self, evaluator: &Evaluator, packed: &Ciphertext) -> Result<Ciphertext, CkksError> {
        evaluator.rotate(packed, self.slots as i64)
    }

    /// a·first half + b·second half in every slot of the period; takes one level and keeps the scale.
    fn choose(
        &self,
        evaluator: &Evaluator,
        [packed, exchanged]: [&Ciphertext; 2],
        [a, b]: [Complex64; 2],
    ) -> Result<Ciphertext, CkksError> {
        let limbs = packed.limbs();
        let scale = Scale::ONE.times_prime(self.encoder.params().prime(limbs - 1));
        let mask = |low: Complex64, high: Complex64| {
            let values = [vec![low; self.slots], vec![high; self.slots]].concat();
            self.encoder.encode_periodic(&values, limbs, scale)
        };
        let mut sum = evaluator.mul_plain(packed, &mask(a, b)?)?;
        evaluator.mul_plain_add_assign(&mut sum, exchanged, &mask(b, a)?)?;
        evaluator.rescale(&sum)
    }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
