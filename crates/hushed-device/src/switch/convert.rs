//! Conversions between bases, several in one launch.

use hushed_math::{MathError, RnsBasis};

use crate::error::DeviceError;
use crate::machine::Machine;
use crate::memory::Words;
use crate::ring::{DeviceRing, memories};
use crate::text::{Kernel, MOST_SOURCES};

/// Bits after the point of a quotient, as in `hushed-math`.
const POINT: u32 = 51;

/// Targets of one job: more of them read the terms less often, fewer make more jobs.
const TARGETS: usize = 7;

/// A conversion from some primes to others, prepared once: as [`hushed_math::BaseConverter`].
pub(super) struct Conversion {
    /// (F/f)^−1 modulo each f, the factors that make terms of residues.
    inverses: Vec<u64>,
    /// ⌊2^(51 + bits)/f⌋ and bits of each f.
    sources: Vec<[u64; 2]>,
    /// The prime and the position of each target, and its factors in halves of 25 bits.
    targets: Vec<(u32, u32, Vec<u32>)>,
}

impl Conversion {
    /// From the primes `from` to others, whose results go to the positions beside them.
    pub(super) fn new(
        basis: &RnsBasis,
        from: &[usize],
        to: impl Iterator<Item = (usize, usize)>,
    ) -> Result<Conversion, DeviceError> {
        at_most("primes to convert from", from.len(), MOST_SOURCES)?;
        if from.is_empty() {
            return Err(hushed_rlwe::RlweError::from(MathError::InvalidBasis { max: RnsBasis::MAX_LIMBS }).into());
        }
        let others = |skip: usize| -> Vec<usize> { from.iter().copied().filter(|&id| id != skip).collect() };
        let source = |&id: &usize| {
            let f = basis.modulus(id);
            [((1_u128 << (POINT + f.bits())) / u128::from(f.value())) as u64, u64::from(f.bits())]
        };
        let target = |(id, place): (usize, usize)| {
            let t = basis.modulus(id);
            let product = |skip: Option<usize>| {
                let primes = from.iter().filter(|&&id| Some(id) != skip);
                primes.fold(1, |product, &f| t.mul(product, t.reduce(basis.modulus(f).value())))
            };
            let factors = from.iter().map(|&f| product(Some(f))).chain([t.neg(product(None))]);
            let halves = factors.flat_map(|w| [(w & ((1 << 25) - 1)) as u32, (w >> 25) as u32]);
            (id as u32, place as u32, halves.collect())
        };
        Ok(Conversion {
            inverses: from.iter().map(|&id| inverse_of(basis, &others(id), id)).collect(),
            sources: from.iter().map(source).collect(),
            targets: to.map(target).collect(),
        })
    }

    /// The factors of the residues, by prime.
    pub(super) fn inverses(&self) -> &[u64] {
        &self.inverses
    }
}

/// Several conversions, in the lists of `convert` in `switch.cl`.
pub(super) struct Conversions {
    sources: Vec<u64>,
    targets: Vec<u32>,
    halves: Vec<u32>,
    jobs: Vec<u32>,
}

impl Conversions {
    pub(super) fn new() -> Conversions {
        Conversions { sources: Vec::new(), targets: Vec::new(), halves: Vec::new(), jobs: Vec::new() }
    }

    /// Adds a conversion of the terms from position `place` on.
    pub(super) fn add(&mut self, place: usize, conversion: &Conversion) {
        let (first, count) = (self.sources.len() / 2, conversion.sources.len());
        self.sources.extend(conversion.sources.iter().flatten());
        let portions = conversion.targets.len().div_ceil(TARGETS).max(1);
        for portion in conversion.targets.chunks(conversion.targets.len().div_ceil(portions).max(1)) {
            let job = [first, count, place, self.targets.len() / 4, portion.len(), 0, 0, 0];
            self.jobs.extend(job.map(|number| number as u32));
            for (id, place, halves) in portion {
                self.targets.extend([*id, *place, self.halves.len() as u32 / 2, 0]);
                self.halves.extend(halves);
            }
        }
    }

    /// Runs them all, from `terms` to `out`.
    pub(super) fn run<M: Machine>(
        self,
        ring: &DeviceRing<M>,
        terms: &Words<M>,
        out: &Words<M>,
    ) -> Result<(), DeviceError> {
        let rows = self.jobs.len() / 8;
        let sources = ring.long(self.sources)?;
        let [targets, halves, jobs] = [ring.short(&self.targets)?, ring.short(&self.halves)?, ring.short(&self.jobs)?];
        let arguments = memories([out, terms, &sources, &targets, &halves, ring.constants(), &jobs]);
        // SAFETY: callers give positions within `terms` and `out`, and all other numbers count what was added.
        unsafe { ring.launch(Kernel::Convert, rows, &arguments) }
    }
}

/// Refuses what kernels have no room for.
pub(super) fn at_most(what: &'static str, found: usize, most: usize) -> Result<(), DeviceError> {
    if found <= most { Ok(()) } else { Err(DeviceError::Shape { what, found, most }) }
}

/// 1 over the product of the primes `ids`, modulo prime `id`, which is not one of them.
pub(super) fn inverse_of(basis: &RnsBasis, ids: &[usize], id: usize) -> u64 {
    let q = basis.modulus(id);
    let product = ids.iter().fold(1, |product, &p| q.mul(product, q.reduce(basis.modulus(p).value())));
    // By Fermat's little theorem: the primes are distinct.
    q.pow(product, q.value() - 2)
}
