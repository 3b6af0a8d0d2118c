//! Vectors of slots that are ciphertexts: [`Slots`] over the engine.
//!
//! Levels, scales and ranges are chosen by the caller, and the same calls run in the clear in the simulator. This
//! module decides how the operations are computed:
//!
//! * linear maps are one modular matrix product per prime ([`ModularGemm`]) with weights of three digits in base 256,
//!   off by at most 2^-23 of the declared bound, the precision of an f32; or of two
//!   ([`GemmWeights::usual_digits`]), off by 2^-15;
//! * sums of products are computed in strips that stay in the cache ([`Evaluator::dot_grid`]);
//! * refreshes take two vectors per bootstrap, and release their inputs tile by tile: at N = 2^16 a vector has as many
//!   MiB as it has primes, and hundreds of them come at once.

use hushed_model::StepId;
use std::sync::Arc;

use hushed_ckks::bootstrap::Bootstrapper;
use hushed_ckks::gemm::{GemmWeights, MemorySource, ModularGemm, Source as _};
use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_ckks::poly::{Arithmetic, EncryptedSum, SlotArithmetic, Weight};
use hushed_ckks::{Ciphertext, Complex64, Encoder, Evaluator, Hoisted, Plaintext, Scale};
use hushed_math::KeepMemory;

use crate::error::FheError;
use crate::files::spill::{SpillFolder, SpillUse, Spilled};
use crate::ops::folded::Folded;
use crate::run::clock::Clock;
use crate::slots::{REFRESH_TILE, Slots};
use hushed_lower::LinearMap;

/// Ciphertexts of one key set. Shared by threads; work goes to the caller's rayon pool, and results do not depend on
/// its number of threads.
pub struct Encrypted {
    evaluator: Evaluator,
    /// Without one, nothing is refreshed.
    bootstrapper: Option<Arc<Bootstrapper>>,
    encoder: Arc<Encoder>,
    gemm: ModularGemm,
    clock: Clock,
    spill: Option<SpillFolder>,
    folded: Option<Arc<Folded>>,
    /// Attention alone allocates and frees gigabytes in every group of its steps.
    _memory: KeepMemory,
}

/// Results of a linear map before their rescale: their scale includes the prime that it will drop.
pub struct EncryptedPartial(pub(crate) Vec<Ciphertext>);

impl Encrypted {
    /// Vectors under the keys of `evaluator`, refreshed by `bootstrapper`.
    ///
    /// # Errors
    /// [`FheError::Ckks`] if the two have different parameters, or keys of the bootstrap are missing.
    pub fn new(evaluator: Evaluator, bootstrapper: Arc<Bootstrapper>) -> Result<Self, FheError> {
        let params = Arc::clone(evaluator.params());
        if !Arc::ptr_eq(&params, bootstrapper.params()) {
            let operation = "bootstrapper";
            return Err(hushed_ckks::CkksError::OtherParameters { operation }.into());
        }
        bootstrapper.check_keys(evaluator.keys("bootstrap")?)?;
        Ok(Self { bootstrapper: Some(bootstrapper), ..Self::without_refreshes(evaluator) })
    }

    /// Vectors under the keys of `evaluator`, for computations that refresh none.
    pub fn without_refreshes(evaluator: Evaluator) -> Self {
        let params = Arc::clone(evaluator.params());
        Self {
            encoder: Arc::new(Encoder::new(&params)),
            gemm: ModularGemm::new(&params),
            clock: Clock::default(),
            spill: None,
            folded: None,
            evaluator,
            bootstrapper: None,
            _memory: KeepMemory::new(),
        }
    }

    /// The run's position and the time of its steps.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// Spills vectors to this folder from now on.
    pub fn spill_to(&mut self, folder: SpillFolder) {
        self.spill = Some(folder);
    }

    /// Takes maps and polynomials from `folded` from now on, if it has them, and keeps them there.
    pub fn keep(&mut self, folded: Arc<Folded>) {
        self.folded = Some(folded);
    }

    /// Bytes spilled so far.
    pub fn spilled(&self) -> SpillUse {
        self.spill.as_ref().map(SpillFolder::used).unwrap_or_default()
    }

    /// The evaluator: parameters, keys, counters.
    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    /// The bootstrap, if vectors are refreshed.
    pub fn bootstrapper(&self) -> Option<&Bootstrapper> {
        self.bootstrapper.as_deref()
    }

    /// The matrix products with weights, with a counter besides those of the evaluator.
    pub fn gemm(&self) -> &ModularGemm {
        &self.gemm
    }

    /// The encoder.
    pub fn encoder(&self) -> &Arc<Encoder> {
        &self.encoder
    }

    /// Splits a client's ciphertext (u + i·v)/2 into its columns u = z + z̄ and v = i·(z̄ − z). One conjugation.
    ///
    /// # Errors
    /// [`FheError::Ckks`] if there is no key for conjugations at its primes.
    pub fn split(&self, z: &Ciphertext) -> Result<[Ciphertext; 2], FheError> {
        let [u, v] = self.doubled(z)?;
        Ok([u, v].map(|part| self.within(part, 1.0)))
    }

    /// z + z̄ and i·(z̄ − z): twice the real and twice the imaginary parts.
    fn doubled(&self, z: &Ciphertext) -> Result<[Ciphertext; 2], FheError> {
        let mut conjugate = self.evaluator.conjugate(z)?;
        let u = self.evaluator.add(z, &conjugate)?;
        self.evaluator.sub_assign(&mut conjugate, z)?;
        self.evaluator.mul_i_assign(&mut conjugate)?;
        Ok([u, conjugate])
    }

    /// The scale of a factor that brings `x` to `target` after the next rescale.
    fn factor_scale(&self, x: &Ciphertext, target: Scale) -> Result<Scale, FheError> {
        self.factor_scale_at(x.scale(), x.limbs(), target)
    }

    fn factor_scale_at(&self, from: Scale, limbs: usize, target: Scale) -> Result<Scale, FheError> {
        if limbs < 2 {
            return Err(hushed_ckks::CkksError::LevelTooLow { operation: "product", limbs, needed: 2 }.into());
        }
        let prime = self.evaluator.params().prime(limbs - 1);
        Ok(target.times_prime(prime).over(from))
    }

    /// Encodes one number per slot, always with the full-length transform: numbers may be weights, and repeated ones
    /// must not take less time.
    fn encode(&self, v: &[f64], limbs: usize, scale: Scale) -> Result<Plaintext, FheError> {
        let slots = self.evaluator.params().slots();
        if v.len() != slots {
            return Err(hushed_ckks::CkksError::TooManyValues { given: v.len(), slots }.into());
        }
        Ok(self.encoder.encode_real(v, limbs, scale)?)
    }

    /// Repeats numbers periodically over all slots.
    fn repeated(&self, numbers: &[f64]) -> Result<Vec<f64>, FheError> {
        let (given, slots) = (numbers.len(), self.evaluator.params().slots());
        if given == 0 || !slots.is_multiple_of(given) {
            return Err(hushed_ckks::CkksError::NotPeriodic { given, slots }.into());
        }
        Ok(numbers.iter().copied().cycle().take(slots).collect())
    }

    /// Drops to the lowest primes, and takes the bound on slots from the contract: products of bounds would be looser.
    fn lowered(&self, ct: &Ciphertext) -> Result<Ciphertext, FheError> {
        let low = self.evaluator.drop_to(ct, self.floor())?;
        let bound = self.default_scale().over(low.scale()).value();
        let noise = low.noise().within(bound);
        Ok(low.with_noise(noise))
    }
}

impl Arithmetic for Encrypted {
    type Value = Ciphertext;
    type Sum = EncryptedSum;
    type Error = FheError;

    fn limbs(&self, x: &Ciphertext) -> usize {
        x.limbs()
    }

    fn scale(&self, x: &Ciphertext) -> Scale {
        x.scale()
    }

    fn prime(&self, index: usize) -> u64 {
        self.evaluator.prime(index)
    }

    fn level_primes(&self, limbs: usize) -> usize {
        self.evaluator.level_primes(limbs)
    }

    fn sum(&self, limbs: usize, scale: Scale) -> Result<EncryptedSum, FheError> {
        Ok(self.evaluator.sum(limbs, scale)?)
    }

    fn add_product(
        &self,
        sum: &mut EncryptedSum,
        a: &Ciphertext,
        b: &Ciphertext,
        weight: Weight,
    ) -> Result<(), FheError> {
        Ok(self.evaluator.add_product(sum, a, b, weight)?)
    }

    fn add_multiple(&self, sum: &mut EncryptedSum, x: &Ciphertext, factor: f64) -> Result<(), FheError> {
        Ok(self.evaluator.add_multiple(sum, x, factor)?)
    }

    fn add_combination(&self, sum: &mut EncryptedSum, terms: &[(f64, &Ciphertext)]) -> Result<(), FheError> {
        Ok(self.evaluator.add_combination(sum, terms)?)
    }

    fn finish(&self, sum: EncryptedSum) -> Result<Ciphertext, FheError> {
        Ok(self.evaluator.finish(sum)?)
    }

    fn add_constant(&self, x: Ciphertext, c: f64) -> Result<Ciphertext, FheError> {
        Ok(self.evaluator.add_constant(x, c)?)
    }

    fn read_as(&self, x: Ciphertext, factor: f64) -> Result<Ciphertext, FheError> {
        Ok(x.read_as(factor)?)
    }

    fn within(&self, x: Ciphertext, bound: f64) -> Ciphertext {
        self.evaluator.within(x, bound)
    }

    fn take_error(&self, x: Ciphertext) -> (Ciphertext, f64) {
        self.evaluator.take_error(x)
    }

    fn with_error(&self, x: Ciphertext, deviation: f64) -> Ciphertext {
        self.evaluator.with_error(x, deviation)
    }
}

impl SlotArithmetic for Encrypted {
    fn add_multiples(&self, sum: &mut EncryptedSum, x: &Ciphertext, factors: &[f64]) -> Result<(), FheError> {
        let plain = self.encode(&self.repeated(factors)?, sum.limbs(), sum.scale().over(x.scale()))?;
        Ok(self.evaluator.add_plain_multiple(sum, x, &plain)?)
    }

    fn add_numbers(&self, x: Ciphertext, numbers: &[f64]) -> Result<Ciphertext, FheError> {
        self.add_vector(x, &self.repeated(numbers)?)
    }
}

impl Slots for Encrypted {
    type Hoisted<'a> = Hoisted<'a>;
    type Partial = EncryptedPartial;
    type Stored = Spilled;

    fn at(&self, id: StepId) {
        self.clock.at(id);
    }

    fn folded(&self) -> Option<&Folded> {
        self.folded.as_deref()
    }

    fn slots(&self) -> usize {
        self.evaluator.params().slots()
    }

    fn default_scale(&self) -> Scale {
        self.evaluator.params().default_scale()
    }

    fn floor(&self) -> usize {
        self.evaluator.params().bootstrap_limbs()
    }

    fn top(&self) -> usize {
        let fresh = || self.evaluator.params().fresh_limbs();
        self.bootstrapper.as_ref().map_or_else(fresh, |bootstrapper| bootstrapper.output_limbs())
    }

    fn drop_to(&self, x: &Ciphertext, limbs: usize) -> Result<Ciphertext, FheError> {
        Ok(self.evaluator.drop_to(x, limbs)?)
    }

    fn add_assign(&self, acc: &mut Ciphertext, x: &Ciphertext) -> Result<(), FheError> {
        Ok(self.evaluator.add_assign(acc, x)?)
    }

    fn sub_assign(&self, acc: &mut Ciphertext, x: &Ciphertext) -> Result<(), FheError> {
        Ok(self.evaluator.sub_assign(acc, x)?)
    }

    fn add_vector(&self, mut x: Ciphertext, v: &[f64]) -> Result<Ciphertext, FheError> {
        let plain = self.encode(v, x.limbs(), x.scale())?;
        self.evaluator.add_plain_assign(&mut x, &plain)?;
        Ok(x)
    }

    fn add_pairs(&self, mut x: Ciphertext, v: &[Complex64]) -> Result<Ciphertext, FheError> {
        let (given, slots) = (v.len(), self.evaluator.params().slots());
        if given != slots {
            return Err(hushed_ckks::CkksError::TooManyValues { given, slots }.into());
        }
        let plain = self.encoder.encode(v, x.limbs(), x.scale())?;
        self.evaluator.add_plain_assign(&mut x, &plain)?;
        Ok(x)
    }

    fn mul_vector(&self, x: &Ciphertext, v: &[f64], target: Scale) -> Result<Ciphertext, FheError> {
        let plain = self.encode(v, x.limbs(), self.factor_scale(x, target)?)?;
        let product = self.evaluator.mul_plain(x, &plain)?;
        Ok(self.evaluator.rescale(&product)?)
    }

    fn mul_pairs(&self, x: &Ciphertext, v: &[Complex64], target: Scale) -> Result<Ciphertext, FheError> {
        let (given, slots) = (v.len(), self.evaluator.params().slots());
        if given != slots {
            return Err(hushed_ckks::CkksError::TooManyValues { given, slots }.into());
        }
        let scale = self.factor_scale(x, target)?;
        let plain = self.encoder.encode(v, x.limbs(), scale)?;
        let product = self.evaluator.mul_plain(x, &plain)?;
        Ok(self.evaluator.rescale(&product)?)
    }

    fn hoist<'a>(&'a self, x: &'a Ciphertext) -> Result<Hoisted<'a>, FheError> {
        Ok(self.evaluator.hoist(x)?)
    }

    fn rotate_hoisted(&self, x: &Hoisted<'_>, by: usize) -> Result<Ciphertext, FheError> {
        Ok(self.evaluator.rotate_hoisted(x, by as i64)?)
    }

    /// Without separate digits: one pass.
    fn rotate(&self, x: &Ciphertext, by: usize) -> Result<Ciphertext, FheError> {
        Ok(self.evaluator.rotate(x, by as i64)?)
    }

    fn pair(&self, mut a: Ciphertext, mut b: Ciphertext) -> Result<Ciphertext, FheError> {
        self.evaluator.mul_i_assign(&mut b)?;
        self.evaluator.add_assign(&mut a, &b)?;
        Ok(a)
    }

    fn pair_conjugate(&self, mut a: Ciphertext, mut b: Ciphertext) -> Result<Ciphertext, FheError> {
        self.evaluator.mul_i_assign(&mut b)?;
        self.evaluator.sub_assign(&mut a, &b)?;
        Ok(a)
    }

    fn real(&self, x: &Ciphertext) -> Result<Ciphertext, FheError> {
        let mut sum = self.evaluator.conjugate(x)?;
        self.evaluator.add_assign(&mut sum, x)?;
        Ok(sum.read_as(0.5)?)
    }

    fn parts(&self, x: &Ciphertext) -> Result<[Ciphertext; 2], FheError> {
        let [u, v] = self.doubled(x)?;
        Ok([u.read_as(0.5)?, v.read_as(0.5)?])
    }

    fn conjugate(&self, x: &Ciphertext) -> Result<Ciphertext, FheError> {
        Ok(self.evaluator.conjugate(x)?)
    }

    fn maps(
        &self,
        grid: &MapGrid,
        split: &GridSplit,
        x: &[Ciphertext],
        target: Scale,
    ) -> Result<Vec<Ciphertext>, FheError> {
        self.mapped(grid, split, x, target)
    }

    fn dot_grid(&self, left: &[Vec<Ciphertext>], right: &[Vec<Ciphertext>]) -> Result<Vec<Vec<Ciphertext>>, FheError> {
        Ok(self.evaluator.dot_grid(left, right)?)
    }

    fn linear_add_at(
        &self,
        map: &LinearMap,
        x: &[Ciphertext],
        (limbs, target): (usize, Scale),
        partial: Option<EncryptedPartial>,
    ) -> Result<EncryptedPartial, FheError> {
        let x = MemorySource::at(self.evaluator.params(), x, limbs)?;
        let scale = self.factor_scale_at(x.shape().scale, limbs, target)?;
        let digits = GemmWeights::usual_digits(self.evaluator.params());
        let weights = GemmWeights::with_digits(&map.weights, map.rows, map.columns, map.bound, scale, digits)?;
        let Some(EncryptedPartial(mut outputs)) = partial else {
            let outputs = self.gemm.product(&weights, &x, map.bias.as_deref())?;
            return Ok(EncryptedPartial(outputs));
        };
        self.gemm.add_product(&weights, &x, &mut outputs)?;
        for (output, &bias) in outputs.iter_mut().zip(map.bias.iter().flatten()) {
            self.evaluator.add_scalar_assign(output, bias.into())?;
        }
        Ok(EncryptedPartial(outputs))
    }

    fn linear_join(&self, mut a: EncryptedPartial, b: EncryptedPartial) -> Result<EncryptedPartial, FheError> {
        if a.0.len() != b.0.len() {
            return Err(crate::packing::PackingError::Mismatch.into());
        }
        for (a, b) in a.0.iter_mut().zip(&b.0) {
            self.evaluator.add_assign(a, b)?;
        }
        Ok(a)
    }

    fn linear_finish(&self, partial: EncryptedPartial) -> Result<Vec<Ciphertext>, FheError> {
        // One at a time: a rescale is parallel in itself, and its input is released.
        let rescaled = partial.0.into_iter().map(|ct| self.evaluator.rescale(&ct));
        Ok(rescaled.collect::<Result<_, _>>()?)
    }

    fn ternary_add(
        &self,
        map: &LinearMap,
        x: &[Ciphertext],
        partial: Option<EncryptedPartial>,
    ) -> Result<EncryptedPartial, FheError> {
        // Every weight is read and none is skipped; weights that are not integers are refused at the end.
        let mut other = false;
        let sign = |w: &f64| {
            let w = w / map.bound;
            other |= w.fract() != 0.0;
            w as i8
        };
        let signs: Vec<i8> = map.weights.iter().map(sign).collect();
        if other {
            return Err(crate::packing::PackingError::Mismatch.into());
        }
        let weights = GemmWeights::ternary(&signs, map.rows, map.columns)?;
        let x = MemorySource::new(self.evaluator.params(), x)?;
        let Some(EncryptedPartial(mut outputs)) = partial else {
            let outputs = self.gemm.product(&weights, &x, None)?;
            return Ok(EncryptedPartial(outputs));
        };
        self.gemm.add_product(&weights, &x, &mut outputs)?;
        Ok(EncryptedPartial(outputs))
    }

    fn ternary_finish(&self, partial: EncryptedPartial) -> Result<Vec<Ciphertext>, FheError> {
        Ok(partial.0)
    }

    fn refresh(&self, id: StepId, x: Vec<Ciphertext>, limbs: usize) -> Result<Vec<Ciphertext>, FheError> {
        if limbs < self.floor() || limbs > self.top() {
            return Err(hushed_ckks::CkksError::LimbCount { operation: "refresh", limbs, available: self.top() }.into());
        }
        let Some(bootstrapper) = &self.bootstrapper else {
            return Err(FheError::Unsupported {
                what: format!("a refresh at {id}"),
                remedy: "choose parameters with a bootstrap, or a computation of fewer levels",
            });
        };
        // All refusals come before any of the work, and what is above the floor is released before it.
        let mut low = Vec::with_capacity(x.len());
        for ct in x {
            low.push(self.lowered(&ct)?);
        }
        let mut done = Vec::with_capacity(low.len());
        let mut rest = low.into_iter();
        while rest.len() > 0 {
            let tile: Vec<_> = rest.by_ref().take(REFRESH_TILE).collect();
            let vectors: Vec<_> = tile.iter().collect();
            let fresh = bootstrapper.bootstrap_real(&self.evaluator, &vectors, limbs)?;
            self.clock.refreshed(fresh.len());
            done.extend(fresh);
        }
        Ok(done)
    }

    fn store(&self, x: Vec<Ciphertext>) -> Result<Spilled, FheError> {
        let folder = self.spill.as_ref().ok_or_else(FheError::no_spill_folder)?;
        Ok(folder.store(self.evaluator.params(), x)?)
    }

    fn load(&self, stored: Spilled) -> Result<Vec<Ciphertext>, FheError> {
        Ok(stored.load(self.evaluator.params())?)
    }
}

mod maps;

#[cfg(test)]
mod contained;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod heads_tests;
#[cfg(test)]
mod images_tests;
#[cfg(test)]
mod lemmas;
#[cfg(test)]
mod packed_decoder_tests;
#[cfg(test)]
mod packed_tests;
#[cfg(test)]
mod sums_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod whole;
