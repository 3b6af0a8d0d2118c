//! The same arithmetic on plain numbers, with exact levels and scales and the errors of an encrypted computation.
//!
//! Simulated: factors and constants are rounded to integers at their scale. A rescale adds to each slot the error of
//! rounding both parts, r_b + r_a·s: normal numbers of variance N/12, the second times s(ζ). The factor s(ζ) depends on
//! key and slot, is complex normal of variance 2N/3 over the slots, and is the same at every rescale. So the worst slot
//! of a key has 3 times the mean error, which a normal error of one variance for all slots would miss by a bit. A
//! message that wraps around the modulus is refused, where an encrypted one would be lost. Not simulated: key
//! switching, whose error before the rescale is smaller by the whole prime, and encoding.
//!
//! Used in tests, to choose parameters, and to count the cost of an evaluation: with no slots at all it only counts.

use std::sync::Mutex;

use hushed_math::rng::splitmix::SplitMix;
use num_complex::Complex64;

use super::arithmetic::{Arithmetic, Weight, scale};
use super::error::PolyError;
use crate::scale::Scale;

/// A vector in the clear with the level and scale that a ciphertext would have.
#[derive(Debug, Clone, PartialEq)]
pub struct ClearValue {
    /// The slots.
    pub slots: Vec<Complex64>,
    /// Primes.
    pub limbs: usize,
    /// Scale.
    pub scale: Scale,
}

/// A sum at one level and scale.
#[derive(Debug, Clone, PartialEq)]
pub struct ClearSum {
    value: Option<Vec<Complex64>>,
    products: bool,
    limbs: usize,
    scale: Scale,
}

/// Counts of operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Products of two vectors.
    pub products: usize,
    /// Sums that had products, each relinearised once.
    pub relinearisations: usize,
    /// Multiples by a factor.
    pub multiples: usize,
    /// Rescales.
    pub rescales: usize,
}

/// Arithmetic in the clear.
#[derive(Debug)]
pub struct Clear {
    primes: Vec<u64>,
    /// Numbers of primes from which a rescale drops two primes instead of one.
    pairs: Vec<usize>,
    /// Ring degree of the simulated errors; 0 for none.
    degree: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    tally: Tally,
    random: SplitMix,
    /// s(ζ) of each slot seen so far, divided by its deviation.
    key: Vec<Complex64>,
}

impl State {
    fn seeded(seed: u64) -> Mutex<Self> {
        Mutex::new(Self { tally: Tally::default(), random: SplitMix(seed), key: Vec::new() })
    }

    fn add_errors(&mut self, slots: &mut [Complex64], n: f64, scale: Scale) {
        while self.key.len() < slots.len() {
            let key = normal(&mut self.random) * 0.5_f64.sqrt();
            self.key.push(key);
        }
        let rounding = (0.5 * n / 12.0).sqrt() / scale.value();
        let secret = (2.0 * n / 3.0).sqrt();
        for (v, key) in slots.iter_mut().zip(&self.key) {
            let (b, a) = (normal(&mut self.random), normal(&mut self.random));
            *v += rounding * (b + secret * a * key);
        }
    }
}

impl Clear {
    /// Arithmetic over the chain `primes`, without errors.
    pub fn new(primes: Vec<u64>) -> Self {
        Self { primes, pairs: Vec::new(), degree: 0.0, state: State::seeded(0) }
    }

    /// Adds the rescaling errors of ring degree `n` under a dense ternary secret, drawn from a seed.
    #[must_use]
    pub fn with_errors(mut self, n: usize, seed: u64) -> Self {
        self.degree = n as f64;
        self.state = State::seeded(seed);
        self
    }

    /// Makes a rescale from any of these numbers of primes drop two primes at once.
    #[must_use]
    pub fn with_pairs(mut self, limbs: Vec<usize>) -> Self {
        self.pairs = limbs;
        self
    }

    /// A fresh vector over all primes.
    pub fn input(&self, slots: Vec<Complex64>, scale: Scale) -> ClearValue {
        ClearValue { slots, limbs: self.primes.len(), scale }
    }

    /// A fresh vector of real numbers over all primes.
    pub fn real(&self, values: &[f64], scale: Scale) -> ClearValue {
        self.input(values.iter().map(|&v| Complex64::from(v)).collect(), scale)
    }

    /// The operations since the last call.
    pub fn take_tally(&self) -> Tally {
        self.with(|state| std::mem::take(&mut state.tally))
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // A panic elsewhere leaves counters and a random state, which are valid at any time.
        f(&mut self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    fn check_room(&self, value: &[Complex64], limbs: usize, scale: Scale) -> Result<(), PolyError> {
        let largest = value.iter().fold(0.0_f64, |m, v| m.max(v.norm()));
        let bits = largest.log2() + scale.log2();
        let room = self.primes[..limbs].iter().map(|&q| (q as f64).log2()).sum::<f64>() - 1.0;
        if bits >= room {
            return Err(PolyError::Overflow { bits, limbs, room });
        }
        Ok(())
    }
}

fn check_limbs(x: &ClearValue, limbs: usize) -> Result<(), PolyError> {
    if x.limbs < limbs {
        return Err(PolyError::LevelsTooFew { needed: limbs, available: x.limbs, limbs: x.limbs });
    }
    Ok(())
}

/// A factor rounded to an integer at `scale`.
fn rounded(factor: f64, scale: f64) -> f64 {
    (factor * scale).round() / scale
}

impl ClearSum {
    fn add(&mut self, terms: impl Iterator<Item = Complex64>) {
        match &mut self.value {
            Some(value) => value.iter_mut().zip(terms).for_each(|(v, t)| *v += t),
            empty => *empty = Some(terms.collect()),
        }
    }
}

impl Arithmetic for Clear {
    type Value = ClearValue;
    type Sum = ClearSum;
    type Error = PolyError;

    fn limbs(&self, x: &ClearValue) -> usize {
        x.limbs
    }

    fn scale(&self, x: &ClearValue) -> Scale {
        x.scale
    }

    fn prime(&self, index: usize) -> u64 {
        self.primes[index]
    }

    fn level_primes(&self, limbs: usize) -> usize {
        1 + usize::from(self.pairs.contains(&limbs))
    }

    fn sum(&self, limbs: usize, scale: Scale) -> Result<ClearSum, PolyError> {
        self.check_room(&[Complex64::ONE], limbs, scale)?;
        Ok(ClearSum { value: None, products: false, limbs, scale })
    }

    fn add_product(&self, sum: &mut ClearSum, a: &ClearValue, b: &ClearValue, weight: Weight) -> Result<(), PolyError> {
        check_limbs(a, sum.limbs)?;
        check_limbs(b, sum.limbs)?;
        let right = weight.scale(a.scale.times(b.scale))?;
        if !sum.scale.matches(right) {
            let left = sum.scale;
            return Err(PolyError::ScaleMismatch { left: left.log2(), right: right.log2() });
        }
        sum.add(a.slots.iter().zip(&b.slots).map(|(x, y)| x * y * weight.value));
        sum.products = true;
        self.with(|state| state.tally.products += 1);
        Ok(())
    }

    fn add_multiple(&self, sum: &mut ClearSum, x: &ClearValue, factor: f64) -> Result<(), PolyError> {
        check_limbs(x, sum.limbs)?;
        let factor = rounded(factor, sum.scale.over(x.scale).value());
        sum.add(x.slots.iter().map(|v| v * factor));
        self.with(|state| state.tally.multiples += 1);
        Ok(())
    }

    fn finish(&self, sum: ClearSum) -> Result<ClearValue, PolyError> {
        let drop = self.level_primes(sum.limbs);
        let mut slots = sum.value.unwrap_or_default();
        self.check_room(&slots, sum.limbs, sum.scale)?;
        if drop >= sum.limbs {
            return Err(PolyError::LevelsTooFew { needed: 1, available: 0, limbs: sum.limbs });
        }
        let limbs = sum.limbs - drop;
        let divisor: f64 = self.primes[limbs..sum.limbs].iter().map(|&q| q as f64).product();
        let after = scale(sum.scale.value() / divisor)?;
        self.with(|state| {
            state.tally.rescales += 1;
            state.tally.relinearisations += usize::from(sum.products);
            if self.degree > 0.0 {
                state.add_errors(&mut slots, self.degree, after);
            }
        });
        Ok(ClearValue { slots, limbs, scale: after })
    }

    fn add_constant(&self, mut x: ClearValue, c: f64) -> Result<ClearValue, PolyError> {
        let c = rounded(c, x.scale.value());
        x.slots.iter_mut().for_each(|v| *v += c);
        Ok(x)
    }

    fn read_as(&self, mut x: ClearValue, factor: f64) -> Result<ClearValue, PolyError> {
        x.scale = scale(x.scale.value() / factor)?;
        x.slots.iter_mut().for_each(|v| *v *= factor);
        Ok(x)
    }
}

/// A complex number whose parts are standard normal (Box–Muller on SplitMix64): for simulated errors, nothing secret.
fn normal(random: &mut SplitMix) -> Complex64 {
    // In (0, 1], since 0 has no logarithm.
    let mut uniform = || ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let radius = (-2.0 * uniform().ln()).sqrt();
    Complex64::from_polar(radius, 2.0 * std::f64::consts::PI * uniform())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_scales_follow_and_errors_have_their_size() {
        let q = (1 << 40) - 87;
        let ar = Clear::new(vec![1 << 50, q, q]).with_errors(1 << 16, 7);
        let x = ar.real(&vec![0.5; 4096], Scale::from_bits(40));
        let square = x.scale.times(x.scale);
        let mut sum = ar.sum(3, square).unwrap();
        ar.add_product(&mut sum, &x, &x, Weight::ONE).unwrap();
        ar.add_multiple(&mut sum, &x, -0.25).unwrap();
        let y = ar.finish(sum).unwrap();
        assert_eq!(y.limbs, 2);
        assert!((y.scale.value() - square.value() / q as f64).abs() < 1e-3);
        let variance = y.slots.iter().map(|v| (v.re - 0.125).powi(2)).sum::<f64>() / 4096.0;
        // 2^13.4 in each part.
        assert!((variance.sqrt() * y.scale.value()).log2() - 13.42 < 0.1);
        let tally = ar.take_tally();
        assert_eq!((tally.products, tally.relinearisations, tally.rescales), (1, 1, 1));
        assert_eq!(ar.take_tally(), Tally::default());
    }

    #[test]
    fn what_an_evaluator_would_refuse_is_refused() {
        let ar = Clear::new(vec![1 << 40, 1 << 40]);
        let x = ar.real(&[1.0], Scale::from_bits(40));
        let mut sum = ar.sum(2, Scale::from_bits(78)).unwrap();
        assert!(matches!(ar.add_product(&mut sum, &x, &x, Weight::ONE), Err(PolyError::ScaleMismatch { .. })));
        assert!(matches!(ar.finish(ar.sum(1, Scale::from_bits(30)).unwrap()), Err(PolyError::LevelsTooFew { .. })));
        assert!(matches!(ar.sum(2, Scale::from_bits(80)), Err(PolyError::Overflow { .. })));
        let large = ar.real(&[4.0], Scale::from_bits(39));
        let mut sum = ar.sum(2, Scale::from_bits(78)).unwrap();
        ar.add_product(&mut sum, &large, &large, Weight::ONE).unwrap();
        assert!(matches!(ar.finish(sum), Err(PolyError::Overflow { .. })));
    }
}
