//! Which primes share a digit.

use std::ops::Range;

use crate::error::RlweError;
use crate::noise::{ERROR_VARIANCE, NoiseBound};
use crate::params::RlweParams;

/// The least ratio of P to a digit of several primes: it keeps switching noise below the rounding by P.
const MARGIN: f64 = 16.0;

/// The largest ratio of one prime to one special prime. The key to the sparse secret is modulo q_0·p_0 only, which has
/// to be small. Such a switch has up to 32 times the noise of one with a prime of P's size: some 2^12 per coefficient
/// at N = 2^15 for q_0/p_0 = 2^4, where a bootstrap's message has 2^40.
const ALONE: f64 = 32.0;

/// The shape of a key: for ciphertexts of at most `limbs` primes, with the first `special` special primes, and digits
/// of consecutive ciphertext primes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Gadget {
    limbs: usize,
    special: usize,
    digits: Vec<Range<usize>>,
    /// The only digit is the integer itself, which is at most q_0/2.
    raised: bool,
}

impl Gadget {
    /// The gadget with as few digits as possible, each at most 1/16 of P, and the largest as small as possible. A
    /// single-prime digit may be as large as 2·P: its noise is still that of one prime ([`Gadget::noise`]). One prime
    /// with one special prime may be 32 times as large: the modulus of a sparse secret is bounded more tightly than
    /// that.
    ///
    /// Sizes are floating-point products, which IEEE 754 rounds the same everywhere, so all parties get the same
    /// digits.
    ///
    /// # Errors
    /// [`RlweError::LimbCount`] for `limbs`. [`RlweError::Gadget`] if there are fewer special primes than asked for, or
    /// so many would exceed the security limit, none is asked for, or a prime exceeds 2·P, or 32·P if it is alone.
    pub fn new(params: &RlweParams, limbs: usize, special: usize) -> Result<Self, RlweError> {
        check(params, limbs, special)?;
        let q = &params.q()[..limbs];
        let p = product(&params.literal().p[..special]);
        let most = if (limbs, special) == (1, 1) { ALONE } else { 2.0 };
        if q.iter().any(|&q| q as f64 > most * p) {
            return Err(RlweError::Gadget { limbs, special });
        }
        let fewest = cut(q, p / MARGIN).len();
        // The least size that needs no more digits is the product of a run of primes.
        let sizes = (0..limbs).flat_map(|from| (from + 1..=limbs).map(move |to| product(&q[from..to])));
        let balanced = sizes
            .filter(|&size| size <= p / MARGIN)
            .map(|size| (size, cut(q, size)))
            .filter(|(_, digits)| digits.len() == fewest)
            .min_by(|left, right| left.0.total_cmp(&right.0));
        let digits = balanced.map_or_else(|| cut(q, p / MARGIN), |(_, digits)| digits);
        Ok(Self { limbs, special, digits, raised: false })
    }

    /// The gadget for polynomials raised from the modulus q_0 to `limbs` primes: as integers they are at most q_0/2, so
    /// each is its own single digit, whatever the modulus.
    ///
    /// # Errors
    /// As [`Gadget::new`] for q_0 alone.
    pub fn raised(params: &RlweParams, limbs: usize, special: usize) -> Result<Self, RlweError> {
        // Only the first prime matters for digits, all of them for security.
        let first = Self::new(params, 1, special)?;
        check(params, limbs, special)?;
        Ok(Self { limbs, digits: std::iter::once(0..limbs).collect(), raised: true, ..first })
    }

    /// The gadget without the primes of `gap`, and the original number of each of its digits. Digits that lose all
    /// their primes are dropped.
    pub fn without(&self, gap: &Range<usize>) -> (Self, Vec<usize>) {
        // Remaining primes below `id`.
        let place = |id: usize| match id {
            id if id <= gap.start => id,
            id => id.max(gap.end) - gap.len(),
        };
        let cut = |digit: &Range<usize>| place(digit.start)..place(digit.end);
        let kept = self.digits.iter().map(cut).enumerate();
        let (numbers, digits) = kept.filter(|(_, digit)| !digit.is_empty()).unzip();
        let gadget = Self { limbs: place(self.limbs), digits, ..self.clone() };
        (gadget, numbers)
    }

    /// Whether it is for polynomials raised from q_0.
    pub fn is_raised(&self) -> bool {
        self.raised
    }

    /// The most primes of a ciphertext.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// The number of special primes.
    pub fn special(&self) -> usize {
        self.special
    }

    /// The primes of each digit.
    pub fn digits(&self) -> &[Range<usize>] {
        &self.digits
    }

    /// The primes of each digit of a ciphertext with `limbs` primes: the last digit is cut, those beyond are dropped.
    pub fn digits_for(&self, limbs: usize) -> impl ExactSizeIterator<Item = Range<usize>> + '_ {
        let used = self.digits.iter().take_while(|d| d.start < limbs).count();
        let digits = self.digits.iter().take(used);
        digits.map(move |d| d.start..d.end.min(limbs))
    }

    /// The number of transforms in one key switch with `limbs` primes, a measure of its cost.
    pub fn transforms(&self, limbs: usize) -> usize {
        // All digits modulo all primes but their own; then both parts mod down.
        self.digits_for(limbs).len() * (limbs + self.special) + 2 * (limbs + self.special)
    }

    /// The noise of one key switch with `limbs` primes: Σ_i d_i·e_i / P with |d_i| ≤ D_i/2, and the rounding of both
    /// parts by P.
    pub fn noise(&self, params: &RlweParams, limbs: usize) -> NoiseBound {
        let p = product(&params.literal().p[..self.special]);
        let digits: f64 = self
            .digits_for(limbs)
            .map(|digit| if self.raised { 0..1 } else { digit })
            .map(|digit| product(&params.q()[digit]) / (2.0 * p))
            .map(|ratio| ratio * ratio)
            .sum();
        let switched = NoiseBound { bounded: 0.0, variance: digits * params.n() as f64 * ERROR_VARIANCE };
        switched.add(&NoiseBound::rounding(params))
    }
}

/// Refuses numbers of primes that there are not, and more special primes than the security limit allows.
fn check(params: &RlweParams, limbs: usize, special: usize) -> Result<(), RlweError> {
    if limbs == 0 || limbs > params.q_len() {
        return Err(RlweError::LimbCount { given: limbs, available: params.q_len() });
    }
    if special == 0 || special > params.most_special(limbs) {
        return Err(RlweError::Gadget { limbs, special });
    }
    Ok(())
}

/// Cuts digits as long as `size` allows, with at least one prime each.
fn cut(q: &[u64], size: f64) -> Vec<Range<usize>> {
    let mut digits: Vec<Range<usize>> = Vec::new();
    let mut so_far = 0.0;
    for (i, &q) in q.iter().enumerate() {
        match digits.last_mut() {
            Some(digit) if so_far * q as f64 <= size => {
                digit.end = i + 1;
                so_far *= q as f64;
            }
            _ => {
                digits.push(i..i + 1);
                so_far = q as f64;
            }
        }
    }
    digits
}

fn product(primes: &[u64]) -> f64 {
    primes.iter().fold(1.0, |product, &p| product * p as f64)
}
