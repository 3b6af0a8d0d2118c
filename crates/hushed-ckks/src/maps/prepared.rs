//! A grid of maps, encoded over Q·P for ciphertexts of one length.

use std::collections::BTreeSet;
use std::sync::Arc;

use hushed_math::{LimbGemm, Lists, PackedWeights};
use hushed_rlwe::hybrid::{Gadget, KeySpecs};
use rayon::prelude::*;

use super::{GridSplit, MapGrid};
use crate::lintrans::{Common, CompactEncoder, LinTransError};
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
    pub(super) common: Common,
    pub(super) split: GridSplit,
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) gemms: Vec<LimbGemm>,
    /// `weights[j][p]`, giants × babies: the value of each diagonal in run p of the values of limb j.
    pub(super) weights: Vec<Vec<PackedWeights>>,
    pub(super) sums: [f64; 4],
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
            return Err(LinTransError::Level { limbs, needed: 2, available });
        }
        if grid.slots() != params.slots() {
            return Err(LinTransError::Dimension { given: grid.slots(), limit: params.slots() });
        }
        let rlwe = params.rlwe();
        let key_limbs = options.key_limbs.unwrap_or(limbs).max(limbs);
        let special = match options.special {
            Some(special) => special,
            None => params.cheapest_special(key_limbs).map_err(|_| LinTransError::NoGadget { limbs })?,
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
        let plain_scale = options.plain_scale.unwrap_or(Scale::ONE.times_prime(dropped));
        let common = Common { params: Arc::clone(params), limbs, gadget, plain_scale };
        let ids = common.ids();
        let encoder = || CompactEncoder::new(rlwe.basis(), &ids, plain_scale.value());
        let encoded = encode(grid, &split, encoder)?;
        let gemms: Vec<LimbGemm> = ids.iter().map(|&id| LimbGemm::new(*rlwe.basis().modulus(id))).collect();
        let shape = [split.giants().len(), split.babies().len()];
        let packed = gemms.par_iter().enumerate();
        let weights = packed.map(|(j, gemm)| pack(gemm, &encoded, [j, ids.len()], shape));
        Ok(Self {
            common,
            weights: weights.collect(),
            gemms,
            inputs: grid.inputs(),
            outputs: grid.outputs(),
            split,
            sums: grid.sums(),
        })
    }

    /// Number of primes of the ciphertexts it was prepared for.
    pub fn limbs(&self) -> usize {
        self.common.limbs
    }

    /// Its rotations.
    pub fn split(&self) -> &GridSplit {
        &self.split
    }

    /// Scale of the product with ciphertexts of scale `input`.
    pub fn output_scale(&self, input: Scale) -> Scale {
        self.common.output_scale(input)
    }

    /// Adds the keys it needs, with exactly its gadget.
    pub fn add_keys(&self, specs: &mut KeySpecs) {
        self.common.add_keys(specs, self.split.rotations());
    }

    /// Products of residues in one application: terms times words.
    pub fn products(&self) -> u64 {
        let terms = self.split.giants().len() * self.split.babies().len();
        let words = 2 * self.common.ids().len() * self.common.params.n();
        terms as u64 * words as u64
    }

    /// Bytes of encoded diagonals, without the padding of their panels.
    pub fn plaintext_bytes(&self) -> usize {
        let all = self.weights.iter().flatten();
        all.map(|w| 8 * w.rows() * w.columns()).sum()
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
        return Err(LinTransError::Length { expected: grid.count(), found: met.len() });
    }
    let mut encoded = Lists::new(diagonals.len(), encoder().length(period));
    let mut words = encoded.all_mut();
    let share = diagonals.len().div_ceil(rayon::current_num_threads()).max(1);
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
fn pack(gemm: &LimbGemm, encoded: &Lists, [j, limbs]: [usize; 2], shape: [usize; 2]) -> Vec<PackedWeights> {
    let runs = encoded.length() / limbs;
    let lists = (0..encoded.count()).map(|i| encoded.get(i));
    let limbs: Vec<&[u64]> = lists.map(|words| &words[j * runs..(j + 1) * runs]).collect();
    gemm.pack_residues(runs, shape, |run, words| {
        let values = limbs.iter().map(|limb| limb[run]);
        words.iter_mut().zip(values).for_each(|(word, value)| *word = value);
    })
}
