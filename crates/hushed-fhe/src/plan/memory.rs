//! What the server of a run holds at its worst moment.
//!
//! Vectors are counted by the simulation, step by step, and so are decompositions, sums and unfinished maps. What else
//! there is, is keys, the matrices of a bootstrap, its working memory, weights, and what the program and its pool of
//! buffers keep.

use hushed_ckks::CkksParams;
use hushed_model::{Program, Step};
use serde::Serialize;

/// Bytes of the encoded matrices of a bootstrap, a slot of `n16-boot-14x40`: 614 MB in all.
const MATRICES_A_SLOT: f64 = 614e6 / 32_768.0;

/// Residues of N words that a bootstrap works with for each of the ciphertexts that go together, a prime of the raised
/// ciphertext: 0.4 GiB at 29 primes of N = 2^16.
const BOOTSTRAP_RESIDUES: f64 = 28.0;

/// Ciphertexts that go through a bootstrap together.
const TOGETHER: f64 = 4.0;

/// Program, allocator, encoder.
const PROGRAM: u64 = 150 << 20;

/// The pool of large buffers keeps up to this.
const POOL: u64 = 1 << 30;

/// Packed copies of vectors on their way to disk or back: four, of 12 MB at 18 primes.
const PACKED: u64 = 64 << 20;

/// Bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FheMemory {
    /// Vectors, at the worst step.
    pub vectors: u64,
    /// Evaluation keys, uniform halves not expanded.
    pub keys: u64,
    /// The matrices of a bootstrap, encoded.
    pub matrices: u64,
    /// What a bootstrap works with.
    pub bootstrap: u64,
    /// The model's weights, and one layer's as maps.
    pub weights: u64,
    /// The program and what it keeps.
    pub program: u64,
}

impl FheMemory {
    /// Everything but the vectors.
    pub(super) fn around(params: &CkksParams, program: &Program, key_bytes: u64) -> FheMemory {
        let n = params.n() as f64;
        let residue = 8.0 * n;
        let layer = |steps: &[Step]| {
            let linears = steps.iter().flat_map(|step| step.block.linears());
            linears.map(|l| l.inputs * l.outputs).sum::<usize>() as u64
        };
        let table = program.embedding().map_or(0, |e| {
            let positions = if e.placed { e.positions } else { 0 };
            (e.vocabulary + positions) * e.width
        });
        let layers = program.layers().into_iter();
        let layers: Vec<u64> = layers
            .map(|range| layer(program.steps().get(range).unwrap_or_default()))
            .collect();
        let widest = layers.iter().max().copied().unwrap_or(0);
        FheMemory {
            vectors: 0,
            keys: key_bytes,
            matrices: (MATRICES_A_SLOT * params.slots() as f64) as u64,
            bootstrap: (BOOTSTRAP_RESIDUES * TOGETHER * params.max_limbs() as f64 * residue) as u64,
            weights: 4 * (layers.iter().sum::<u64>() + table as u64) + 8 * widest,
            program: PROGRAM + POOL.min((64.0 * 29.0 * residue) as u64),
        }
    }

    /// With so many bytes of vectors; `spills`: some of them go through packed copies to disk and back.
    #[must_use]
    pub(super) fn with_vectors(self, vectors: u64, spills: bool) -> FheMemory {
        let packed = if spills { PACKED } else { 0 };
        let program = self.program + packed;
        FheMemory {
            vectors,
            program,
            ..self
        }
    }

    /// All of it.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.vectors + self.keys + self.matrices + self.bootstrap + self.weights + self.program
    }
}
