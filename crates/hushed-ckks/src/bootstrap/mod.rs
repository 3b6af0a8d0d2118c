//! Bootstrapping: turns a ciphertext at the bottom of the chain into one of the same message near its top.
//!
//! SlotsToCoeffs comes first (as in poulpy's presets), so that it runs on four primes and EvalMod leaves the message in
//! the slots:
//!
//! ```text
//! 1  slots_to_coeffs   slots z at the lowest 1 + stc primes  →  coefficients Δ·z modulo q_0
//! 2  encapsulate       to the ephemeral secret of weight 32
//! 3  ModRaise          the same integers modulo all primes: Δ·z + q_0·I, |I| < K     } coeffs_to_slots, whose first
//! 4  coeffs_to_slots   coefficients over q_0 into slots, real and imaginary parts     } factor does both
//! 5  EvalMod           removes q_0·I: sin(2πx)/2π for x = I + Δ·z/q_0, on each part   poly::EvalMod
//! ```
//!
//! The two parts are recombined, or returned separately: two real columns u + i·v share one bootstrap, and an overflow
//! in one does not affect the other; a single one takes one EvalMod (`real.rs`). Repeating messages of fewer slots take
//! less of everything (`group.rs`).
//!
//! *Memory* at N = 2^16, 14 levels: 119 keys take 3.2 GiB in memory (uniform halves are expanded at each use; 2.2 GiB
//! packed on disk), matrices 0.6 GiB, and each ciphertext 0.4 GiB, of which at most four are processed together. The
//! peak is 4.5 GiB for one, 6 GiB for many.
//!
//! *Range.* The real and imaginary parts of each slot, times the scale, must stay below bound·q_0/ratio of the EvalMod:
//! 1 at scale q_0/1024. Any other scale works: a message within 8 at an eighth of that scale is treated the same.

mod coeffs_to_slots;
mod encapsulate;
mod group;
mod real;
mod reduce;
mod shorter;
mod slots_to_coeffs;
mod two_pass;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hushed_rlwe::hybrid::{EvalKeys, KeySpecs, KeyUse};
use rayon::prelude::*;

pub use coeffs_to_slots::CoeffsToSlots;
pub use encapsulate::{Encapsulated, encapsulate};
pub use group::{Group, Halves};
pub use slots_to_coeffs::SlotsToCoeffs;

use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::lintrans::LinearTransform;
use crate::noise::Noise;
use crate::params::{CkksParams, EPHEMERAL_WEIGHT, log2_failure};
use crate::poly::{EvalMod, EvalModLiteral};
use crate::scale::Scale;
use shorter::Shorter;

/// Unchecked parameters of a bootstrap.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct BootstrapLiteral {
    /// The modular reduction; its ratio is q_0 divided by the scale at which messages are within its bound.
    pub eval_mod: EvalModLiteral,
    /// Scale of the results; by default that of the parameters.
    pub output_scale: Option<Scale>,
    /// Sparse slots: the period of messages, a power of two from 4 to N/4. They need smaller maps, one EvalMod instead
    /// of two, and one more level. By default all N/2 slots.
    pub slots: Option<usize>,
}

/// Tolerance on each part of a message: scales near the default may be off by one percent.
const SLACK: f64 = 1.01;

/// Tolerance on |slot|: only the parts need to be bounded, and the fit reaches half as far again, so a real message may
/// be this large, at a larger error.
const MODULUS: f64 = std::f64::consts::SQRT_2 * SLACK;

/// Ciphertexts processed together: at N = 2^16 each takes 0.4 GiB besides keys and matrices, and a larger number would
/// save no further reads of those.
const TILE: usize = 4;

/// A bootstrap prepared for one parameter set, with encoded matrices and fitted polynomial. Threads may share it.
pub struct Bootstrapper {
    params: Arc<CkksParams>,
    literal: BootstrapLiteral,
    output_scale: Scale,
    eval_mod: EvalMod,
    /// Deviation of the error from EvalMod's rescales, in units of its message.
    rescaling: f64,
    group: Option<Arc<Group>>,
    slots_to_coeffs: SlotsToCoeffs,
    coeffs_to_slots: CoeffsToSlots,
    specs: KeySpecs,
    /// Shorter chains by levels of the results, made on first use.
    shorter: Mutex<BTreeMap<usize, Arc<Shorter>>>,
}

/// Scale and length of refreshed ciphertexts.
#[derive(Clone, Copy)]
struct Target {
    scale: Scale,
    limbs: usize,
    /// Whether the last message is real, so that its imaginary part needs no EvalMod.
    last_real: bool,
}

impl Target {
    fn new(scale: Scale, limbs: usize) -> Target {
        Target { scale, limbs, last_real: false }
    }
}

impl Bootstrapper {
    /// Prepares a bootstrap.
    ///
    /// # Errors
    /// [`CkksError::Params`] if overflows leave the range of the EvalMod too often; [`CkksError::BootstrapLevels`] if
    /// the chain has no bootstrapping primes, or not exactly as many for EvalMod as it needs;
    /// [`CkksError::NotPeriodic`] or [`CkksError::LevelTooLow`] for an impossible number of sparse slots or a chain too
    /// short for them; [`CkksError::Poly`], [`CkksError::LinTrans`] for parameters that cannot be fitted or encoded.
    pub fn new(params: &Arc<CkksParams>, literal: BootstrapLiteral) -> Result<Self, CkksError> {
        params.check_range(literal.eval_mod.range)?;
        Self::of_any_range(params, literal)
    }

    /// As [`Bootstrapper::new`], however often overflows leave the range. **Gives wrong results**, for tests that count
    /// them.
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    pub fn insecure_for_tests(params: &Arc<CkksParams>, literal: BootstrapLiteral) -> Result<Self, CkksError> {
        Self::of_any_range(params, literal)
    }

    fn of_any_range(params: &Arc<CkksParams>, literal: BootstrapLiteral) -> Result<Self, CkksError> {
        let eval_mod = EvalMod::new(literal.eval_mod)?;
        let available = params.eval_mod_levels();
        if !params.can_bootstrap() || eval_mod.levels() != available {
            return Err(CkksError::BootstrapLevels { needed: eval_mod.levels(), available });
        }
        // Only the primes are used.
        let chain = Evaluator::without_keys(params);
        let limbs = params.chain().eval_mod.end;
        let input = eval_mod.input_scale(&chain, limbs)?;
        let rounding = Noise::new(0.0, 0.0).rounded(params.n(), Scale::ONE);
        let rescaling = eval_mod.rescaling_error(&chain, limbs, rounding.deviation())?;
        let group = match literal.slots {
            Some(slots) => Some(Arc::new(Group::new(params, slots)?)),
            None => None,
        };
        let slots = group.as_ref().map_or(params.slots(), |group| group.slots());
        let slots_to_coeffs = SlotsToCoeffs::new(params, slots)?;
        let scaling = eval_mod.input_scaling();
        let coeffs_to_slots = CoeffsToSlots::new(params, group.clone(), scaling, input)?;
        let mut specs = KeySpecs::new();
        specs.insert(KeyUse::ToSparse, 1, 1);
        slots_to_coeffs.add_keys(&mut specs);
        coeffs_to_slots.add_keys(&mut specs)?;
        specify_relin(params, limbs, params.chain().eval_mod.start + 1, &mut specs)?;
        if let Some(group) = &group {
            group.add_unpacking_keys(params, params.chain().eval_mod.start, &mut specs)?;
        }
        Ok(Self {
            group,
            slots_to_coeffs,
            coeffs_to_slots,
            specs,
            output_scale: literal.output_scale.unwrap_or(params.default_scale()),
            params: Arc::clone(params),
            literal,
            eval_mod,
            rescaling,
            shorter: Mutex::default(),
        })
    }

    /// The parameter set.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// The literal it was made from.
    pub fn literal(&self) -> &BootstrapLiteral {
        &self.literal
    }

    /// Slots of a message: N/2, or its period.
    pub fn slots(&self) -> usize {
        let group = self.group.as_ref();
        group.map_or(self.params.slots(), |group| group.slots())
    }

    /// log2 of the probability that one bootstrap fails because an overflow leaves the range of its EvalMod.
    pub fn log2_failure(&self) -> f64 {
        let range = self.eval_mod.literal().range;
        log2_failure(EPHEMERAL_WEIGHT, range, self.slots())
    }

    /// The modular reduction, with its properties.
    pub fn eval_mod(&self) -> &EvalMod {
        &self.eval_mod
    }

    /// Most primes of the results.
    pub fn output_limbs(&self) -> usize {
        self.params.chain().eval_mod.start - self.unpacking()
    }

    /// Levels between EvalMod and the results.
    fn unpacking(&self) -> usize {
        self.group.as_ref().map_or(0, |group| group.levels())
    }

    /// The maps in order of application: SlotsToCoeffs, then CoeffsToSlots.
    pub fn maps(&self) -> impl Iterator<Item = &LinearTransform> {
        let first = self.slots_to_coeffs.factors().iter();
        first.chain(self.coeffs_to_slots.factors())
    }

    /// All keys that a bootstrap needs.
    pub fn key_specs(&self) -> KeySpecs {
        self.specs.clone()
    }

    /// Checks that all keys of a bootstrap are present, before one begins.
    ///
    /// # Errors
    /// [`CkksError::Rlwe`] with `MissingKey` for the first one that is missing.
    pub fn check_keys(&self, keys: &EvalKeys) -> Result<(), CkksError> {
        Ok(self.specs.check_among(&keys.specs())?)
    }

    /// Bytes of the encoded matrices.
    pub fn plaintext_bytes(&self) -> usize {
        self.maps().map(LinearTransform::plaintext_bytes).sum()
    }

    /// The same message with [`Bootstrapper::output_limbs`] primes, at the scale of the literal.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`] below 1 + stc primes; [`CkksError::BootstrapRange`] for a message beyond the range at
    /// its scale; [`CkksError::NoKeys`], [`CkksError::Rlwe`] or [`CkksError::LinTrans`] for missing keys;
    /// [`CkksError::OtherParameters`].
    pub fn bootstrap(&self, evaluator: &Evaluator, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let mut all = self.bootstrap_many(evaluator, &[ct])?;
        all.pop().ok_or(CkksError::BootstrapLevels { needed: 0, available: 0 })
    }

    /// As [`Bootstrapper::bootstrap`] for several ciphertexts, reading keys and matrices once for every four.
    pub fn bootstrap_many(&self, evaluator: &Evaluator, cts: &[&Ciphertext]) -> Result<Vec<Ciphertext>, CkksError> {
        self.bootstrap_many_to(evaluator, cts, self.output_limbs())
    }

    /// As [`Bootstrapper::bootstrap_many`], but to results of `limbs` primes. Fewer than [`Bootstrapper::output_limbs`]
    /// take less time, with the same keys and precision.
    ///
    /// # Errors
    /// As [`Bootstrapper::bootstrap`], and [`CkksError::LimbCount`] for more than those, or [`CkksError::LevelTooLow`]
    /// for fewer than a bootstrap starts from.
    pub fn bootstrap_many_to(
        &self,
        evaluator: &Evaluator,
        cts: &[&Ciphertext],
        limbs: usize,
    ) -> Result<Vec<Ciphertext>, CkksError> {
        let target = Target::new(self.output_scale, limbs);
        let halves = self.refresh_at(evaluator, cts, target)?;
        let both = halves.into_iter().zip(cts);
        both.map(|(halves, ct)| self.joined(evaluator, halves, ct)).collect()
    }

    /// real + i·imaginary.
    fn joined(&self, evaluator: &Evaluator, halves: Halves, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let packed = matches!(halves, Halves::Packed(..));
        let out = halves.join(evaluator)?;
        // The modulus keeps its bound, rather than the sum of the parts' bounds.
        let noise = self.noise(ct);
        let noise = if packed { out.noise().within(noise.magnitude()) } else { noise };
        Ok(out.with_noise(noise))
    }

    /// Steps 3 to 5 for results of `limbs` primes; `None` for the whole chain.
    fn shorter(&self, limbs: usize) -> Result<Option<Arc<Shorter>>, CkksError> {
        let operation = "bootstrap";
        let (needed, available) = (self.params.bootstrap_limbs(), self.output_limbs());
        if limbs > available {
            return Err(CkksError::LimbCount { operation, limbs, available });
        }
        if limbs == available {
            return Ok(None);
        }
        let Some(levels) = limbs.checked_sub(needed) else {
            return Err(CkksError::LevelTooLow { operation, limbs, needed });
        };
        // A panic while the lock is held leaves the map as it was.
        let mut known = self.shorter.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shorter) = known.get(&levels) {
            return Ok(Some(Arc::clone(shorter)));
        }
        let longer = levels + self.unpacking();
        let made = Arc::new(Shorter::new(&self.params, &self.coeffs_to_slots, longer)?);
        known.insert(levels, Arc::clone(&made));
        Ok(Some(made))
    }

    /// Steps 1 to 5: real and imaginary parts of each message, with as many primes as unpacking needs.
    fn refresh_at(&self, evaluator: &Evaluator, cts: &[&Ciphertext], target: Target) -> Result<Vec<Halves>, CkksError> {
        // Detects missing keys and mismatches before any work is done.
        self.check_keys(evaluator.keys("bootstrap")?)?;
        let shorter = self.shorter(target.limbs)?;
        let short = match &shorter {
            None => None,
            Some(shorter) => Some((&**shorter, shorter.evaluator(evaluator)?)),
        };
        let limbs = self.params.bootstrap_limbs();
        let mut low = Vec::with_capacity(cts.len());
        for ct in cts {
            low.push(self.lowered(evaluator, ct, limbs)?);
            self.check_range(ct, MODULUS)?;
        }
        let mut done = Vec::with_capacity(cts.len());
        let mut low = low.into_iter();
        for (number, tile) in cts.chunks(TILE).enumerate() {
            let low = low.by_ref().take(tile.len()).collect();
            let low = self.encapsulated(evaluator, low)?;
            let last_real = target.last_real && (number + 1) * TILE >= cts.len();
            let target = Target { last_real, ..target };
            done.extend(match &short {
                None => {
                    let map = &self.coeffs_to_slots;
                    self.refresh_tile(evaluator, map, tile, &low, target)?
                }
                Some((shorter, evaluator)) => {
                    let low = low.into_iter().map(|ct| shorter.enter(ct));
                    let low = low.collect::<Result<Vec<_>, _>>()?;
                    let map = &shorter.coeffs_to_slots;
                    let parts = self.refresh_tile(evaluator, map, tile, &low, target)?;
                    let whole = |ct| shorter.leave(ct, &self.params);
                    let parts = parts.into_iter().map(|halves| halves.map(whole));
                    parts.collect::<Result<Vec<_>, CkksError>>()?
                }
            });
        }
        Ok(done)
    }

    /// Steps 1 and 2 for ciphertexts at the lowest primes.
    fn encapsulated(&self, evaluator: &Evaluator, low: Vec<Ciphertext>) -> Result<Vec<Encapsulated>, CkksError> {
        let low = self.slots_to_coeffs.apply(evaluator, low)?;
        let low = low.into_iter().map(|ct| encapsulate(evaluator, ct));
        low.collect()
    }

    /// Steps 3 to 5 for `low`, which came from the ciphertexts `cts`, all together.
    fn refresh_tile(
        &self,
        evaluator: &Evaluator,
        coeffs_to_slots: &CoeffsToSlots,
        cts: &[&Ciphertext],
        low: &[Encapsulated],
        target: Target,
    ) -> Result<Vec<Halves>, CkksError> {
        let mut parts = coeffs_to_slots.apply(evaluator, low)?;
        if target.last_real {
            let last = parts.pop().map(Halves::real_only);
            parts.extend(last);
        }
        let work: Vec<_> = parts.into_iter().zip(cts).collect();
        let done = work.into_par_iter().map(|(parts, ct)| {
            let parts = parts.map(|part| self.reduce_at(evaluator, &part, ct, target.scale))?;
            evaluator.counters().bootstrap.one();
            Ok(parts)
        });
        done.collect()
    }

    /// The map of step 1.
    pub fn slots_to_coeffs(&self) -> &SlotsToCoeffs {
        &self.slots_to_coeffs
    }

    /// The map of steps 3 and 4.
    pub fn coeffs_to_slots(&self) -> &CoeffsToSlots {
        &self.coeffs_to_slots
    }

    fn lowered(&self, evaluator: &Evaluator, ct: &Ciphertext, limbs: usize) -> Result<Ciphertext, CkksError> {
        if ct.limbs() < limbs {
            return Err(CkksError::LevelTooLow { operation: "bootstrap", limbs: ct.limbs(), needed: limbs });
        }
        evaluator.drop_to(ct, limbs)
    }
}

/// EvalMod's relinearisation keys, for products of at most `limbs` primes and at least `fewest`: one for each
/// number of special primes that is cheapest at some length. A key is small beside those of the maps.
fn specify_relin(params: &CkksParams, limbs: usize, fewest: usize, specs: &mut KeySpecs) -> Result<(), CkksError> {
    let mut last = None;
    for limbs in (fewest..=limbs).rev() {
        let special = params.cheapest_special(limbs)?;
        if last.replace(special) != Some(special) {
            specs.relin(limbs, special);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
