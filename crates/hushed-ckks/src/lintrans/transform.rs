//! A matrix prepared for ciphertexts of one length: split into rotations and encoded at its level over Q·P.
//!
//! The diagonals have the scale of the dropped prime (or a requested one), so that a ciphertext keeps exactly its
//! scale. The products are in [`super::apply`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_math::{Eval, RnsPoly};
use hushed_rlwe::hybrid::{Gadget, KeySpecs};

use crate::lintrans::common::Common;
use crate::lintrans::compact::LEAST_PERIOD;
use crate::lintrans::memory::values_at_a_time;
use crate::lintrans::store::Store;
use crate::lintrans::{CompactEncoder, CompactPlain, CostModel, Diagonals, LinTransError, Split};
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::scale::Scale;

/// Both parts (b, a) of a ciphertext, over the same prefix of the primes.
pub type Parts = (RnsPoly<Eval>, RnsPoly<Eval>);

/// How a matrix is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Method {
    /// The cheapest split by [`CostModel`].
    #[default]
    DoubleHoisted,
    /// One rotation of the input per diagonal, no rotations of sums.
    Diagonal,
    /// Baby steps by 0 … width − 1.
    Width(usize),
}

/// How a matrix is prepared.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// How it is split into rotations.
    pub method: Method,
    /// Scale of the diagonals; by default the prime that the product drops, so that a ciphertext keeps exactly its
    /// scale.
    pub plain_scale: Option<Scale>,
    /// Number of special primes; by default the cheapest.
    pub special: Option<usize>,
}

/// One giant step: its rotation and its encoded diagonals.
#[derive(Clone)]
pub(super) struct EncodedGiant {
    pub(super) rotation: usize,
    /// For each diagonal, the index of the baby that it is multiplied by.
    pub(super) babies: Vec<usize>,
    /// The diagonals, rotated back by the giant's rotation; empty if they are in a file.
    pub(super) plains: Vec<Arc<CompactPlain>>,
}

/// The header of a map in a file.
pub(super) struct Shape {
    pub(super) gadget: Gadget,
    pub(super) plain_scale: Scale,
    pub(super) dim: usize,
    pub(super) repeat: usize,
    pub(super) strip: usize,
    pub(super) babies: Vec<usize>,
    pub(super) giants: Vec<EncodedGiant>,
    pub(super) sums: [f64; 3],
}

/// A matrix for ciphertexts of `limbs` primes.
pub struct LinearTransform {
    pub(super) common: Common,
    dim: usize,
    /// Number of consecutive equal values in every diagonal, of which one is stored.
    pub(super) repeat: usize,
    pub(super) babies: Vec<usize>,
    pub(super) giants: Vec<EncodedGiant>,
    /// The store of the diagonals, if they are not in memory.
    pub(super) store: Option<Arc<Store>>,
    /// For each prime of Q·P, the limb of the diagonals.
    pub(super) places: Vec<usize>,
    /// Largest row sum of moduli and of squared moduli; sum over diagonals of their largest modulus.
    pub(super) sums: [f64; 3],
}

impl LinearTransform {
    /// Prepares `matrix` for ciphertexts of `limbs` primes; results have one prime fewer.
    ///
    /// # Errors
    /// [`LinTransError::Level`] unless 2 ≤ `limbs` ≤ all ciphertext primes; [`LinTransError::Dimension`],
    /// [`LinTransError::Empty`], [`LinTransError::Overflow`] for the matrix.
    pub fn new(
        params: &Arc<CkksParams>,
        matrix: &Diagonals,
        limbs: usize,
        options: Options,
    ) -> Result<Self, LinTransError> {
        let available = params.max_limbs();
        if limbs < 2 || limbs > available {
            return Err(LinTransError::Level { limbs, needed: 2, available });
        }
        let mut best: Option<(f64, Gadget, Split)> = None;
        let choices = match options.special {
            Some(special) => special..=special,
            None => 1..=params.rlwe().most_special(limbs),
        };
        for special in choices {
            // Too few special primes for one prime of the chain, so not an option.
            let Ok(gadget) = Gadget::new(params.rlwe(), limbs, special) else {
                continue;
            };
            let cost = CostModel::new(params.n(), limbs, special, gadget.digits().len());
            let slots = params.n() / 2;
            let split = match options.method {
                Method::DoubleHoisted => Split::best(matrix, slots, &cost)?,
                Method::Diagonal => Split::diagonal(matrix, slots)?,
                Method::Width(width) => Split::fixed(matrix, slots, width)?,
            };
            let total = split.cost(&cost);
            if best.as_ref().is_none_or(|(least, ..)| total < *least) {
                best = Some((total, gadget, split));
            }
        }
        let (_, gadget, split) = best.ok_or(LinTransError::NoGadget { limbs })?;
        Self::with_split(params, matrix, gadget, &split, options.plain_scale)
    }

    /// Prepares `matrix` for ciphertexts under the ephemeral sparse secret that were raised from q_0 to `limbs` primes;
    /// the product switches back to the main secret. Uses one rotation of the input per diagonal, as one-digit keys are
    /// small and need no decomposition.
    ///
    /// # Errors
    /// As [`LinearTransform::new`].
    pub fn raised(
        params: &Arc<CkksParams>,
        matrix: &Diagonals,
        limbs: usize,
        special: usize,
        plain_scale: Option<Scale>,
    ) -> Result<Self, LinTransError> {
        let gadget = Gadget::raised(params.rlwe(), limbs, special)?;
        let split = Split::diagonal(matrix, params.slots())?;
        Self::with_split(params, matrix, gadget, &split, plain_scale)
    }

    /// Prepares `matrix` with the given split, for keys of the given gadget.
    ///
    /// # Errors
    /// As [`LinearTransform::new`].
    pub fn with_split(
        params: &Arc<CkksParams>,
        matrix: &Diagonals,
        gadget: Gadget,
        split: &Split,
        plain_scale: Option<Scale>,
    ) -> Result<Self, LinTransError> {
        let limbs = gadget.limbs();
        if limbs < 2 {
            return Err(LinTransError::Level { limbs, needed: 2, available: params.max_limbs() });
        }
        let dropped = params.prime(limbs - 1);
        let common = Common {
            params: Arc::clone(params),
            limbs,
            gadget,
            plain_scale: plain_scale.unwrap_or(Scale::ONE.times_prime(dropped)),
        };
        let ids = common.ids();
        let scale = common.plain_scale.value();
        let mut encoder = CompactEncoder::new(params.rlwe().basis(), &ids, scale);
        let diagonals: BTreeMap<_, _> = matrix.iter().collect();
        // All diagonals get the same period, so that one kernel handles them together; runs of fewer than 8 equal
        // values gain nothing.
        let period = match matrix.period().max(LEAST_PERIOD) {
            short if params.slots() / short >= 8 => short,
            _ => params.slots(),
        };
        let mut giants = Vec::with_capacity(split.giants.len());
        for giant in &split.giants {
            let mut plains = Vec::with_capacity(giant.terms.len());
            for &(_, offset) in &giant.terms {
                let values = diagonals.get(&offset).ok_or(LinTransError::Empty)?;
                let back = giant.rotation % period;
                let mut rotated: Vec<_> = values.iter().copied().cycle().take(period).collect();
                rotated.rotate_right(back);
                plains.push(Arc::new(encoder.encode(&rotated)?));
            }
            giants.push(EncodedGiant {
                rotation: giant.rotation,
                babies: giant.terms.iter().map(|&(baby, _)| baby).collect(),
                plains,
            });
        }
        Ok(Self {
            common,
            dim: matrix.dim(),
            repeat: params.slots() / period,
            babies: split.babies.clone(),
            giants,
            store: None,
            places: (0..ids.len()).collect(),
            sums: sums(matrix),
        })
    }

    /// The map of the given shape, without its diagonals.
    pub(super) fn from_shape(params: &Arc<CkksParams>, shape: Shape) -> Result<Self, LinTransError> {
        let places = shape.gadget.limbs() + shape.gadget.special();
        let map = Self {
            common: Common {
                params: Arc::clone(params),
                limbs: shape.gadget.limbs(),
                gadget: shape.gadget,
                plain_scale: shape.plain_scale,
            },
            dim: shape.dim,
            repeat: shape.repeat,
            babies: shape.babies,
            giants: shape.giants,
            store: None,
            places: (0..places).collect(),
            sums: shape.sums,
        };
        if map.strip_values() == shape.strip {
            return Ok(map);
        }
        Err(LinTransError::Stored)
    }

    /// The same map for ciphertexts without the primes of `gap`, under parameters without them. It shares the encoded
    /// diagonals, and its keys are parts of those of the whole map.
    pub(crate) fn without(&self, params: &Arc<CkksParams>, gap: &Range<usize>) -> Self {
        let (gadget, _) = self.common.gadget.without(gap);
        let limbs = self.limbs();
        let places = self.places.iter().copied().enumerate();
        let places = places.filter(|(id, _)| *id >= limbs || !gap.contains(id));
        Self {
            common: Common {
                params: Arc::clone(params),
                limbs: gadget.limbs(),
                gadget,
                plain_scale: self.common.plain_scale,
            },
            dim: self.dim,
            repeat: self.repeat,
            babies: self.babies.clone(),
            giants: self.giants.clone(),
            store: self.store.clone(),
            places: places.map(|(_, place)| place).collect(),
            sums: self.sums,
        }
    }

    /// Scale of the product with a ciphertext of scale `input`.
    pub fn output_scale(&self, input: Scale) -> Scale {
        self.common.output_scale(input)
    }

    /// Number of primes of the ciphertexts it was prepared for.
    pub fn limbs(&self) -> usize {
        self.common.limbs
    }

    /// The shape of the keys it needs.
    pub fn gadget(&self) -> &Gadget {
        &self.common.gadget
    }

    /// Rows and columns of the matrix. If it is smaller than the number of slots, inputs must repeat with this period.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Rotations that need a key, ascending and distinct.
    pub fn rotations(&self) -> Vec<usize> {
        let giants = self.giants.iter().map(|giant| giant.rotation);
        let mut all: Vec<usize> = self.babies.iter().copied().chain(giants).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|&k| self.needs_key(k));
        all
    }

    /// Rotation by 0 needs no key, unless it switches between secrets.
    pub(super) fn needs_key(&self, rotation: usize) -> bool {
        rotation != 0 || self.common.gadget.is_raised()
    }

    /// Key switches of one product: hoisted ones, then those with their own decomposition.
    pub fn key_switches(&self) -> (usize, usize) {
        let babies = self.babies.iter().filter(|&&k| self.needs_key(k)).count();
        let giants = self.giants.iter().filter(|giant| giant.rotation != 0);
        (babies, giants.count())
    }

    /// Number of products with plaintexts.
    pub fn products(&self) -> usize {
        self.giants.iter().map(|giant| giant.babies.len()).sum()
    }

    /// Adds the keys it needs, with exactly its gadget.
    pub fn add_keys(&self, specs: &mut KeySpecs) {
        self.common.add_keys(specs, self.rotations());
    }

    /// Bytes of encoded diagonals in memory: 0 for a map opened from a file.
    pub fn plaintext_bytes(&self) -> usize {
        let plains = self.giants.iter().flat_map(|giant| &giant.plains);
        plains.map(|plain| plain.bytes()).sum()
    }

    /// Number of values of a limb that a giant step processes at a time.
    pub(super) fn strip_values(&self) -> usize {
        let keyed = self.babies.iter().filter(|&&k| self.needs_key(k));
        let orbits = keyed.map(|&k| self.common.permutation(k).orbit());
        let (run, strip) = values_at_a_time(self.common.params.n(), orbits.max().unwrap_or(1));
        run.min(strip)
    }

    /// Noise of the product with a ciphertext of this noise and scale.
    pub(super) fn noise(&self, input: Noise, scale: Scale) -> Noise {
        let [l1, l2, diagonals] = self.sums;
        let sums = [l1, l2, diagonals, self.products() as f64];
        self.common.noise(input, scale, sums, self.giants.len())
    }
}

/// Largest row sum of moduli and of squared moduli; sum over diagonals of their largest modulus.
fn sums(matrix: &Diagonals) -> [f64; 3] {
    let period = matrix.period();
    let mut rows = vec![[0.0; 2]; period];
    let mut diagonals = 0.0;
    for (_, values) in matrix.iter() {
        for (sum, value) in rows.iter_mut().zip(values.iter().cycle()) {
            *sum = [sum[0] + value.norm(), sum[1] + value.norm_sqr()];
        }
        diagonals += values.iter().map(|value| value.norm()).fold(0.0, f64::max);
    }
    rows.iter().fold([0.0, 0.0, diagonals], |[l1, l2, all]: [f64; 3], row| [l1.max(row[0]), l2.max(row[1]), all])
}
