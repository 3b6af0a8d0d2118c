//! A run in the clear, on numbers with the primes, scales and errors of ciphertexts, that counts all operations.
//!
//! It runs the code of encrypted runs ([`Slots`](super::Slots)), so it predicts accuracy, levels, operations, rotation
//! keys and memory. It refuses what the engine refuses: scales that differ, missing levels, messages that wrap around.
//! It also refuses what an encrypted run cannot detect: values too large for a refresh ([`FheError::Range`]).
//!
//! Not simulated: the errors of relinearisations (the following rescale divides them by its prime), of encoded numbers
//! that are added, and of the imaginary parts of vectors of real numbers.
//!
//! * [`Simulator::new`]: exact numbers;
//! * [`Simulator::with_errors`]: with the errors of rescales, rotations, conjugations, encoded factors and bootstraps
//!   ([`errors`]);
//! * [`Simulator::exact`]: exact functions too, whose arguments a [`Watch`] sees, and no bounds: for calibration;
//! * [`Simulator::counting`]: no numbers: vectors are empty, only shapes count, and maps need no weights.

mod arithmetic;
mod batch;
mod errors;
mod imaginary;
mod linear;
mod maps;
mod pairs;
mod slots;
mod tally;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::mem::Discriminant;
use std::sync::{Arc, Mutex, PoisonError};

use hushed_ckks::poly::PolyError;
use hushed_ckks::{CkksError, CkksParams, Complex64, Scale};
use hushed_model::StepId;

pub use arithmetic::Sum;
pub(crate) use batch::{Batch, embedded, those_within};
#[cfg(any(feature = "client", test))]
pub(crate) use batch::{bare, columns, columns_to_last};
pub use slots::{Hoisted, Partial, Stored};
pub use tally::{Count, Counts, Op, Peak, Rotations, Tally, Visit};

use super::error::FheError;
use crate::machines::trace::TracedTape;
use crate::ops::folded::Folded;
use crate::ops::functions::Function;
use errors::{Errors, mix};
use imaginary::Imaginary;
use tally::{Counted, Held};

/// Deviation of a bootstrap's error, without that of the sine, for messages within 1 (`n16-boot-14x40`: 20.2 bits on
/// average and 16.5 in the worst slot, with both errors).
pub const REFRESH_DEVIATION: f64 = 1.174e-6;
/// The bits on average to which it belongs.
const REFRESH_BITS: f64 = 20.2;

/// The same for these parameters, by the bits that a bootstrap leaves on average.
pub(crate) fn refresh_deviation(params: &CkksParams) -> f64 {
    let mean = params.report().bootstrap_bits.map_or(REFRESH_BITS, |[_, mean]| mean);
    REFRESH_DEVIATION * (REFRESH_BITS - mean).exp2()
}

/// Tolerance on the size of a refreshed value, as a factor of the bound, as in bootstraps.
const TOLERANCE: f64 = 1.01;

/// Minimum bits of an encoded factor: with fewer the message would be lost, as in polynomials.
const LEAST_FACTOR_BITS: f64 = 20.0;

/// Observes the arguments of functions, slot by slot.
pub trait Watch: Send + Sync {
    /// Called with the arguments of one [`Slots::apply`](super::Slots::apply), as they are in the slots.
    fn see(&self, at: StepId, f: &Function, arguments: &[f64]);
}

/// Arithmetic on numbers in the clear, by the primes of a parameter set.
pub struct Simulator {
    params: Arc<CkksParams>,
    slots: usize,
    counting: bool,
    tries_fits: bool,
    errors: Option<Errors>,
    refresh_deviation: f64,
    /// If present, functions are exact and nothing is bounded.
    watch: Option<Arc<dyn Watch>>,
    /// Residues of a decomposition, by number of primes.
    decomposed: Vec<usize>,
    /// log2 of half the product of the first primes, by number of primes.
    room: Vec<f64>,
    tally: Arc<Tally>,
    /// If present, a function is counted once for all equal vectors.
    applied: Option<Mutex<Applied>>,
    folded: Option<Arc<Folded>>,
    /// If present, the nodes of tapes are told apart.
    traced: Option<Mutex<Vec<TracedTape>>>,
}

/// What functions count and return, keyed by step, function, primes of the argument and levels they take, and scales of
/// argument and result: degrees and steps depend on the step only, not on the head or the column.
type Applied = HashMap<Like, (Arc<Counted>, usize, Scale, Imaginary)>;
type Like = (StepId, Discriminant<Function>, (usize, usize), [u64; 2]);

/// A vector of slots with the primes and the scale that a ciphertext would have.
#[derive(Clone, Debug)]
pub struct Vector {
    slots: Vec<f64>,
    imaginary: Imaginary,
    limbs: usize,
    scale: Scale,
    /// Derived from the history of the vector; the seed of its errors.
    id: u64,
    /// Counts the vector's memory for as long as it lives.
    _held: Held,
}

impl Vector {
    /// The numbers (for a pair, the real parts); empty in a simulation that only counts.
    #[must_use]
    pub fn values(&self) -> &[f64] {
        &self.slots
    }

    /// The numbers with their imaginary parts, 0 if those are unknown.
    #[must_use]
    pub fn pairs(&self) -> Vec<Complex64> {
        let imaginary = self.imaginary.values().unwrap_or_default();
        let pair = |(i, &re): (usize, &f64)| Complex64::new(re, imaginary.get(i).copied().unwrap_or(0.0));
        self.slots.iter().enumerate().map(pair).collect()
    }
}

impl Simulator {
    /// Exact numbers under the primes of `params`: vectors of `slots` slots, which may be fewer than the ring's. The
    /// tally starts at 0.
    ///
    /// # Errors
    /// [`CkksError::NotPeriodic`] unless `slots` is a power of two up to the ring's.
    pub fn new(params: &Arc<CkksParams>, slots: usize) -> Result<Simulator, FheError> {
        if !slots.is_power_of_two() || slots > params.slots() {
            return Err(CkksError::NotPeriodic { given: slots, slots: params.slots() }.into());
        }
        let decomposed = |limbs: usize| -> Result<usize, FheError> {
            let special = params.cheapest_special(limbs)?;
            Ok(limbs.div_ceil(special) * (limbs + special))
        };
        let mut all = vec![0];
        for limbs in 1..=params.max_limbs() {
            all.push(decomposed(limbs)?);
        }
        Ok(Simulator {
            slots,
            counting: false,
            tries_fits: false,
            errors: None,
            refresh_deviation: REFRESH_DEVIATION,
            watch: None,
            folded: None,
            decomposed: all,
            room: (0..=params.max_limbs()).map(|limbs| params.rlwe().log2_q(limbs) - 1.0).collect(),
            params: Arc::clone(params),
            tally: Arc::default(),
            applied: None,
            traced: None,
        })
    }

    /// Adds the errors of rescales, rotations, conjugations and refreshes. They depend only on `seed`, the computation
    /// and the inputs, so not on the order of threads.
    #[must_use]
    pub fn with_errors(mut self, seed: u64) -> Simulator {
        self.errors = Some(Errors::new(seed, self.params.n(), self.slots));
        self
    }

    /// Sets the deviation of a refresh for messages within 1; the default is [`REFRESH_DEVIATION`].
    #[must_use]
    pub fn with_refresh_deviation(mut self, deviation: f64) -> Simulator {
        self.refresh_deviation = deviation;
        self
    }

    /// Takes maps and polynomials from `folded`, if it has them, and keeps them there.
    #[must_use]
    pub fn keeping(mut self, folded: Arc<Folded>) -> Simulator {
        self.folded = Some(folded);
        self
    }

    /// Uses exact functions, whose arguments `watch` sees, instead of polynomials; numbers may have any size.
    #[must_use]
    pub fn exact(mut self, watch: Arc<dyn Watch>) -> Simulator {
        self.watch = Some(watch);
        self
    }

    /// Drops numbers: operations are counted, and levels and scales checked.
    #[must_use]
    pub fn counting(mut self) -> Simulator {
        self.counting = true;
        self.errors = None;
        self
    }

    /// Tries the fits that stand-ins stand for, if it only counts.
    #[must_use]
    pub(crate) fn trying_fits(mut self) -> Simulator {
        self.tries_fits = true;
        self
    }

    /// Counts a function once for all equal vectors of a step: for counting on one thread.
    #[must_use]
    pub(crate) fn repeating(mut self) -> Simulator {
        self.applied = Some(Mutex::default());
        self
    }

    /// Tells the nodes of tapes apart, if it counts on one thread.
    #[must_use]
    pub(crate) fn tracing(mut self) -> Simulator {
        self.traced = Some(Mutex::default());
        self
    }

    /// The tapes of a run whose nodes were told apart.
    pub(crate) fn traced(&self) -> Vec<TracedTape> {
        let taken = |traced: &Mutex<Vec<TracedTape>>| {
            std::mem::take(&mut *traced.lock().unwrap_or_else(PoisonError::into_inner))
        };
        self.traced.as_ref().map(taken).unwrap_or_default()
    }

    /// The operations so far.
    #[must_use]
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// The parameter set.
    #[must_use]
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// A vector of these numbers with `limbs` primes, at the default scale. In a simulation that only counts, the
    /// numbers are dropped.
    ///
    /// # Errors
    /// [`CkksError::LimbCount`], [`CkksError::TooManyValues`] unless there is one number per slot, or none if only
    /// shapes count.
    pub fn vector(&self, values: Vec<f64>, limbs: usize) -> Result<Vector, FheError> {
        if limbs == 0 || limbs > self.params.max_limbs() {
            return Err(CkksError::LimbCount { operation: "vector", limbs, available: self.params.max_limbs() }.into());
        }
        self.check_length(&values)?;
        let slots = if self.counting { Vec::new() } else { values };
        let id = if self.errors.is_some() { errors::name(&slots) } else { 0 };
        Ok(self.make(slots, limbs, self.params.default_scale(), id))
    }

    /// A vector of zeros with these primes and this scale.
    pub(crate) fn stand_in(&self, limbs: usize, scale: Scale) -> Vector {
        self.make(vec![0.0; self.slots], limbs, scale, 0)
    }

    fn make(&self, slots: Vec<f64>, limbs: usize, scale: Scale, id: u64) -> Vector {
        Vector { slots, imaginary: Imaginary::Zero, limbs, scale, id, _held: Held::new(&self.tally, 2 * limbs) }
    }

    fn check_length(&self, values: &[f64]) -> Result<(), FheError> {
        self.check_count(values.len())
    }

    fn check_count(&self, given: usize) -> Result<(), FheError> {
        if given == self.slots || self.counting && given == 0 {
            return Ok(());
        }
        let slots = self.slots;
        Err(CkksError::TooManyValues { given, slots }.into())
    }

    /// Refuses a list of numbers that does not repeat over the slots.
    fn check_period(&self, given: usize) -> Result<(), FheError> {
        match given > 0 && self.slots.is_multiple_of(given) {
            true => Ok(()),
            false => self.check_count(given),
        }
    }

    /// The divisor of a rescale of a vector with `limbs` primes, and the primes left after it.
    fn level(&self, limbs: usize) -> Result<(f64, usize), FheError> {
        let drop = self.params.level_primes(limbs).max(1);
        if drop >= limbs {
            return Err(PolyError::LevelsTooFew { needed: 1, available: 0, limbs }.into());
        }
        let divisor = (limbs - drop..limbs).map(|i| self.params.prime(i) as f64);
        Ok((divisor.product(), limbs - drop))
    }

    /// Rescales a sum of `limbs` primes at scale `wide` by one level.
    fn rescale(&self, mut slots: Vec<f64>, limbs: usize, wide: f64, id: u64) -> Result<Vector, FheError> {
        self.check_room(&slots, limbs, wide)?;
        let (divisor, left) = self.level(limbs)?;
        let scale = Scale::new(wide / divisor)?;
        self.tally.count(Op::Rescale, limbs, 1);
        let id = mix(id, limbs as u64);
        if let Some(errors) = &self.errors {
            errors.rescale(&mut slots, id, scale.value());
        }
        Ok(self.make(slots, left, scale, id))
    }

    /// Adds the error of the key switch of a rotation or conjugation to numbers at `scale`.
    fn switched(&self, slots: &mut [f64], id: u64, scale: Scale) {
        if let Some(errors) = &self.errors {
            errors.rescale(slots, mix(id, 0x6b73), scale.value());
        }
    }

    /// Checks that no number wraps around at scale `wide`; a NaN does.
    fn check_room(&self, slots: &[f64], limbs: usize, wide: f64) -> Result<(), FheError> {
        if self.watch.is_some() {
            return Ok(());
        }
        let largest = slots.iter().fold(0.0_f64, |m, v| if v.abs() <= m { m } else { v.abs() });
        let (bits, room) = (largest.log2() + wide.log2(), self.room[limbs]);
        if bits < room {
            return Ok(());
        }
        Err(PolyError::Overflow { bits, limbs, room }.into())
    }

    /// The scale of a factor that takes vectors at scale `from` with `limbs` primes to `target`, one level lower.
    fn factor_scale(&self, from: Scale, target: Scale, limbs: usize) -> Result<f64, FheError> {
        let (divisor, _) = self.level(limbs)?;
        let factor = target.value() * divisor / from.value();
        if factor.log2() < LEAST_FACTOR_BITS {
            let log2 = factor.log2();
            return Err(PolyError::ScaleTooSmall { log2 }.into());
        }
        Ok(factor)
    }
}

fn check_scales(left: Scale, right: Scale) -> Result<(), FheError> {
    if left.matches(right) {
        return Ok(());
    }
    Err(PolyError::ScaleMismatch { left: left.log2(), right: right.log2() }.into())
}

fn check_limbs(x: &Vector, limbs: usize) -> Result<(), FheError> {
    if x.limbs >= limbs {
        return Ok(());
    }
    Err(CkksError::LevelTooLow { operation: "simulate", limbs: x.limbs, needed: limbs }.into())
}

/// A factor as encoded: rounded to an integer over `scale`.
fn rounded(factor: f64, scale: f64) -> f64 {
    (factor * scale).round() / scale
}
