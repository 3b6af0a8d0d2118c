//! A grid of maps, encoded over Q·P for ciphertexts of one length.

use std::collections::BTreeSet;
use std::sync::Arc;

use hushed_math::{Automorphism, LimbGemm, Lists, PackedWeights};
use hushed_rlwe::RlweError;
use hushed_rlwe::hybrid::{EvalKeyPlan, EvalKeys, Gadget, KeySpec, KeyUse, SwitchKey};
use rayon::prelude::*;

use super::{GridSplit, MapGrid};
use crate::lintrans::{CompactEncoder, LinTransError};
use crate::noise::{Noise, worst};
use crate::params::CkksParams;
use crate::scale::Scale;

/// How a grid is prepared.
#[derive(Clone, Debug, Default)]
pub struct GridOptions {
    /// How it is split; by default [`GridSplit::best`].
    pub split: Option<GridSplit>,
    /// Most primes of the ciphertexts that the keys are for, if they also serve longer ones.
    pub key_limbs: Option<usize>,
    /// Special primes of the keys; by default those with the fewest transforms ([`CkksParams::cheapest_special`]).
    pub special: Option<usize>,
    /// Scale of the diagonals; by default the prime that the product drops, so that a ciphertext keeps its scale.
    pub plain_scale: Option<Scale>,
}

/// A grid of maps for ciphertexts of [`PreparedGrid::limbs`] primes; results have one prime fewer.
pub struct PreparedGrid {
    pub(super) params: Arc<CkksParams>,
    pub(super) limbs: usize,
    pub(super) gadget: Gadget,
    pub(super) split: GridSplit,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) gemms: Vec<LimbGemm>,
    /// `weights[j][p]`, giants × babies: the value of each diagonal in run p of the values of limb j.
    pub(super) weights: Vec<Vec<PackedWeights>>,
    plain_scale: Scale,
    sums: [f64; 4],
}

impl PreparedGrid {
    /// Encodes `grid` for ciphertexts of `limbs` primes.
    ///
    /// # Errors
    /// [`LinTransError::Level`] unless 2 ≤ `limbs` ≤ all ciphertext primes; [`LinTransError::Dimension`] if the grid is
    /// for another number of slots; [`LinTransError::Empty`] for an output without diagonals;
    /// [`LinTransError::Overflow`]; [`LinTransError::NoGadget`], [`LinTransError::Rlwe`] for impossible keys.
    pub fn new(
        params: &Arc<CkksParams>,
        grid: &MapGrid,
        limbs: usize,
        options: GridOptions,
    ) -> Result<Self, LinTransError> {
        let available = params.max_limbs();
        if limbs < 2 || limbs > available {
            return Err(LinTransError::Level {
                limbs,
                needed: 2,
                available,
            });
        }
        if grid.slots() != params.slots() {
            return Err(LinTransError::Dimension {
                given: grid.slots(),
                limit: params.slots(),
            });
        }
        let rlwe = params.rlwe();
        let key_limbs = options.key_limbs.unwrap_or(limbs).max(limbs);
        let special = match options.special {
            Some(special) => special,
            None => params
                .cheapest_special(key_limbs)
                .map_err(|_| LinTransError::NoGadget { limbs })?,
        };
        let gadget = Gadget::new(rlwe, key_limbs, special)?;
        let split = match options.split {
            Some(split) => split,
            None => {
                let digits = gadget.digits_for(limbs).len();
                GridSplit::best(grid, params.n(), [limbs, special, digits])?
            }
        };
        let dropped = params.prime(limbs - 1);
        let plain_scale = options
            .plain_scale
            .unwrap_or(Scale::ONE.times_prime(dropped));
        let ids = rlwe.extended_ids_with(limbs, special);
        let encoder = || CompactEncoder::new(rlwe.basis(), &ids, plain_scale.value());
        let encoded = encode(grid, &split, encoder)?;
        let gemms: Vec<LimbGemm> = ids
            .iter()
            .map(|&id| LimbGemm::new(*rlwe.basis().modulus(id)))
            .collect();
        let shape = [split.giants().len(), split.babies().len()];
        let packed = gemms.par_iter().enumerate();
        let weights = packed.map(|(j, gemm)| pack(gemm, &encoded, [j, ids.len()], shape));
        Ok(Self {
            params: Arc::clone(params),
            limbs,
            weights: weights.collect(),
            gemms,
            gadget,
            inputs: grid.inputs(),
            outputs: grid.outputs(),
            split,
            plain_scale,
            sums: grid.sums(),
        })
    }

    /// Number of primes of the ciphertexts it was prepared for.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// Its rotations.
    pub fn split(&self) -> &GridSplit {
        &self.split
    }

    /// Scale of the product with ciphertexts of scale `input`.
    pub fn output_scale(&self, input: Scale) -> Scale {
        let dropped = self.params.prime(self.limbs - 1);
        input.times(self.plain_scale).over_prime(dropped)
    }

    /// Adds the keys it needs, with exactly its gadget.
    pub fn add_keys(&self, plan: &mut EvalKeyPlan) {
        for k in self.split.rotations() {
            plan.insert(self.key_use(k), self.gadget.limbs(), self.gadget.special());
        }
    }

    /// Products of residues in one application: terms times words.
    pub fn products(&self) -> u64 {
        let terms = self.split.giants().len() * self.split.babies().len();
        let words = 2 * (self.limbs + self.gadget.special()) * self.params.n();
        terms as u64 * words as u64
    }

    /// Bytes of encoded diagonals, without the padding of their panels.
    pub fn plaintext_bytes(&self) -> usize {
        let all = self.weights.iter().flatten();
        all.map(|w| 8 * w.rows() * w.columns()).sum()
    }

    fn key_use(&self, rotation: usize) -> KeyUse {
        KeyUse::Galois(self.params.rotation_element(rotation as i64))
    }

    pub(super) fn permutation(&self, rotation: usize) -> Arc<Automorphism> {
        let element = self.params.rotation_element(rotation as i64);
        self.params.rlwe().basis().automorphism(element)
    }

    /// The key of a rotation, with exactly the gadget of this grid.
    pub(super) fn key<'k>(
        &self,
        keys: &'k EvalKeys,
        rotation: usize,
    ) -> Result<&'k SwitchKey, LinTransError> {
        let spec = KeySpec {
            key: self.key_use(rotation),
            limbs: self.gadget.limbs(),
            special: self.gadget.special(),
        };
        let exact = keys.iter().find(|key| key.spec() == spec);
        exact.ok_or_else(|| {
            let same = keys.iter().filter(|key| key.key_use() == spec.key);
            LinTransError::Rlwe(RlweError::MissingKey {
                key: spec.key,
                limbs: spec.limbs,
                longest: same.map(|key| key.gadget().limbs()).max().unwrap_or(0),
            })
        })
    }

    /// Noise of each output for inputs of this scale with at most this noise: like that of one map
    /// (`lintrans/transform.rs`), over the terms of the output with the most terms.
    pub(super) fn noise(&self, input: Noise, scale: Scale) -> Noise {
        let n = self.params.n();
        let [l1, l2, diagonals, count] = self.sums;
        if !input.is_known() {
            return Noise::UNKNOWN;
        }
        let rounding = Noise::encoded(n, self.plain_scale, 0.0).deviation();
        let products = count.sqrt() * rounding * input.magnitude();
        let switching = worst::switching(n, self.digit_ratios());
        let error = input.norm() + switching / scale.value();
        let encoding =
            count * worst::encoding(n) / self.plain_scale.value() + worst::DOUBLES * diagonals;
        let meets = input.magnitude() + (n as f64).sqrt() * error;
        let giants = self.split.giants().len() as f64 * (switching + worst::rounding(n));
        let norm =
            diagonals * error + encoding * meets + giants / scale.times(self.plain_scale).value();
        Noise::new(input.magnitude() * l1, input.deviation() * l2.sqrt())
            .with_norm(norm)
            .plus(products, 0.0)
            .rounded(n, self.output_scale(scale))
    }

    /// Σ D_i/P over the digits of its keys.
    fn digit_ratios(&self) -> f64 {
        let log2 = |primes: &[u64]| primes.iter().map(|&q| (q as f64).log2()).sum::<f64>();
        let (q, p) = (self.params.rlwe().q(), &self.params.rlwe().literal().p);
        let p = log2(&p[..self.gadget.special()]);
        let digits = self.gadget.digits_for(self.limbs);
        digits.map(|digit| (log2(&q[digit]) - p).exp2()).sum()
    }
}

/// The diagonal of each giant and baby under all primes, giant by giant, rotated back by its giant; zeros where the
/// grid has none. Each thread encodes a share of them, with its own encoder, whose tables are built once.
fn encode<'a>(
    grid: &MapGrid,
    split: &GridSplit,
    encoder: impl Fn() -> CompactEncoder<'a> + Sync,
) -> Result<Lists, LinTransError> {
    let period = grid.period();
    let mut met = BTreeSet::new();
    let mut diagonals = Vec::with_capacity(split.giants().len() * split.babies().len());
    for &(giant, output) in split.giants() {
        for &(baby, input) in split.babies() {
            let place = (output, input, grid.signed((giant + baby) as i64));
            // A diagonal belongs to the first pair of steps that reach it.
            let values = grid.diagonal(place).filter(|_| met.insert(place));
            diagonals.push((giant % period, values));
        }
    }
    if met.len() < grid.count() {
        // A split of another grid.
        return Err(LinTransError::Length {
            expected: grid.count(),
            found: met.len(),
        });
    }
    let mut encoded = Lists::new(diagonals.len(), encoder().length(period));
    let mut words = encoded.all_mut();
    let share = diagonals
        .len()
        .div_ceil(rayon::current_num_threads())
        .max(1);
    let shares = words.par_chunks_mut(share).zip(diagonals.par_chunks(share));
    shares.try_for_each(|(words, diagonals)| {
        let mut encoder = encoder();
        for (words, &(giant, values)) in words.iter_mut().zip(diagonals) {
            let Some(values) = values else {
                words.fill(0);
                continue;
            };
            let mut rotated = values.to_vec();
            rotated.rotate_right(giant);
            encoder.encode_into(&rotated, words)?;
        }
        Ok::<(), LinTransError>(())
    })?;
    Ok(encoded)
}

/// One matrix per run of equal values in limb `j` of `limbs`.
fn pack(
    gemm: &LimbGemm,
    encoded: &Lists,
    [j, limbs]: [usize; 2],
    shape: [usize; 2],
) -> Vec<PackedWeights> {
    let runs = encoded.length() / limbs;
    let lists = (0..encoded.count()).map(|i| encoded.get(i));
    let limbs: Vec<&[u64]> = lists
        .map(|words| &words[j * runs..(j + 1) * runs])
        .collect();
    gemm.pack_residues(runs, shape, |run, words| {
        let values = limbs.iter().map(|limb| limb[run]);
        words
            .iter_mut()
            .zip(values)
            .for_each(|(word, value)| *word = value);
    })
}
