//! The peak of the server's memory in a run.
//!
//! The simulation counts vectors step by step, including decompositions, sums and unfinished maps. The rest is keys,
//! the matrices of a bootstrap, its working memory, weights, and what the program and its pool of buffers keep.

use hushed_ckks::CkksParams;
use hushed_model::{Linear, Program, Step};
use serde::Serialize;

use crate::plan::public_plan::AnswerRows;
use crate::slots::REFRESH_TILE;

/// Bytes of a bootstrap's encoded matrices per slot of `n16-boot-14x40`: 614 MB in all.
const MATRICES_A_SLOT: f64 = 614e6 / 32_768.0;

/// Residues of N words that a bootstrap works with for each of the ciphertexts bootstrapped together, per prime of the
/// raised ciphertext: 0.4 GiB at 29 primes of N = 2^16.
const BOOTSTRAP_RESIDUES: f64 = 28.0;

/// Ciphertexts that are bootstrapped together, of two columns each.
const TOGETHER: f64 = (REFRESH_TILE / 2) as f64;

/// Program, allocator, encoder.
const PROGRAM: u64 = 150 << 20;

/// Maximum bytes kept by the pool of large buffers.
const POOL: u64 = 1 << 30;

/// Packed copies of vectors on their way to or from disk: four of 12 MB at 18 primes.
const PACKED: u64 = 64 << 20;

/// The server's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FheMemory {
    /// Vectors, at the worst step.
    pub vectors: u64,
    /// Evaluation keys, uniform halves not expanded.
    pub keys: u64,
    /// The encoded matrices of a bootstrap.
    pub matrices: u64,
    /// Working memory of a bootstrap.
    pub bootstrap: u64,
    /// The maps of all layers, and one layer's on their way into products.
    pub weights: u64,
    /// The program and what it keeps.
    pub program: u64,
}

impl FheMemory {
    /// Everything except the vectors.
    pub(super) fn around(params: &CkksParams, program: &Program, answer: AnswerRows, key_bytes: u64) -> FheMemory {
        let n = params.n() as f64;
        let residue = 8.0 * n;
        let size = |w: &Linear| (w.inputs * w.outputs) as u64;
        let layer = |steps: &[Step]| {
            let linears = steps.iter().flat_map(|step| step.block.linears());
            linears.map(size).sum::<u64>()
        };
        // Only logits are computed with the head of a decoder.
        let unread = program.vocabulary().filter(|_| answer != AnswerRows::Logits);
        let kept = program.linears().map(size).sum::<u64>() - unread.map_or(0, size);
        let layers = program.layers().into_iter();
        let layers = layers.map(|range| layer(program.steps().get(range).unwrap_or_default()));
        let widest = layers.max().unwrap_or(0);
        FheMemory {
            vectors: 0,
            keys: key_bytes,
            matrices: (MATRICES_A_SLOT * params.slots() as f64) as u64,
            bootstrap: (BOOTSTRAP_RESIDUES * TOGETHER * params.max_limbs() as f64 * residue) as u64,
            // In f64 ([`crate::Prepared`]).
            weights: 8 * (kept + widest),
            program: PROGRAM + POOL.min((64.0 * 29.0 * residue) as u64),
        }
    }

    /// Adds `vectors` bytes of vectors; with `spills`, also the packed copies of vectors on their way to or from disk.
    #[must_use]
    pub(super) fn with_vectors(self, vectors: u64, spills: bool) -> FheMemory {
        let packed = if spills { PACKED } else { 0 };
        let program = self.program + packed;
        FheMemory { vectors, program, ..self }
    }

    /// The total.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.vectors + self.keys + self.matrices + self.bootstrap + self.weights + self.program
    }
}
