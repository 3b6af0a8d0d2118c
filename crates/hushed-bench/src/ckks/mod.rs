//! Measurements of the CKKS engine: one process with `--threads` threads.
//!
//! Every parameter set has 128 bits of security; keys are made as in real use. A level is the number of rescales left.

mod bootstrap;
mod flooding;
mod gemm;
#[cfg(feature = "cuda")]
pub mod gpu;
mod lintrans;
mod maps;
mod matmul;
mod matvec;
mod ops;
mod places;
mod roofline;

use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::keys::{EvalKeys, KeySpecs, SecretKey};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::KeepMemory;
use hushed_math::rng::SecretRng;
use serde_json::{Value, json};

use super::{BenchError, median};

pub use bootstrap::bootstrap;
pub use flooding::flooding;
pub use gemm::gemm;
pub use lintrans::transforms;
pub use maps::maps;
pub use matmul::products;
pub use matvec::vectors;
pub use ops::operations;
pub(crate) use places::Places;
pub use roofline::roofline;

/// Keys, encoder and evaluator of one parameter set.
pub(crate) struct Bench {
    pub(crate) params: Arc<CkksParams>,
    pub(crate) encoder: Arc<Encoder>,
    pub(crate) evaluator: Evaluator,
    pub(crate) encryptor: Encryptor,
    pub(crate) decryptor: Decryptor,
    pub(crate) rng: SecretRng,
    key_seconds: f64,
    /// Keeps memory as runs do.
    _memory: KeepMemory,
}

impl Bench {
    pub(crate) fn new(params: &Arc<CkksParams>, specs: &KeySpecs) -> Result<Bench, CkksError> {
        Self::with_rng(params, specs, SecretRng::from_os("bench ckks"))
    }

    /// For tests.
    #[cfg(test)]
    pub(crate) fn seeded(params: &Arc<CkksParams>, specs: &KeySpecs, seed: u64) -> Bench {
        Self::with_rng(params, specs, SecretRng::insecure_from_seed(seed)).expect("keys")
    }

    fn with_rng(params: &Arc<CkksParams>, specs: &KeySpecs, mut rng: SecretRng) -> Result<Bench, CkksError> {
        let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        let start = Instant::now();
        let keys = Arc::new(EvalKeys::generate(&key, specs, &mut rng)?);
        let key_seconds = start.elapsed().as_secs_f64();
        let encoder = Arc::new(Encoder::new(params));
        Ok(Bench {
            evaluator: Evaluator::new(params, keys)?,
            encryptor: Encryptor::new(params, &key)?,
            decryptor: Decryptor::new(&encoder, &key)?,
            params: Arc::clone(params),
            encoder,
            rng,
            key_seconds,
            _memory: KeepMemory::new(),
        })
    }

    /// Random slots, each part uniform in [−1, 1).
    pub(crate) fn random(&mut self) -> Vec<Complex64> {
        let mut part = || (self.rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..self.params.slots()).map(|_| Complex64::new(part(), part())).collect()
    }

    pub(crate) fn encrypt(&mut self, values: &[Complex64], limbs: usize) -> Result<Ciphertext, CkksError> {
        let plain = self.encoder.encode(values, limbs, self.params.default_scale())?;
        self.encryptor.encrypt(&plain, &mut self.rng)
    }

    /// Bits of precision: of the worst part of a slot, and the mean over all parts.
    fn precision(&self, ct: &Ciphertext, expected: &[Complex64]) -> Result<(f64, f64), CkksError> {
        let expected: Vec<_> = expected.iter().copied().enumerate().collect();
        self.precision_at(ct, &expected)
    }

    /// As [`Bench::precision`] for some slots, each with its expected value.
    fn precision_at(&self, ct: &Ciphertext, expected: &[(usize, Complex64)]) -> Result<(f64, f64), CkksError> {
        let opened = self.decryptor.decrypt_raw(ct)?;
        let parts = |&(slot, b): &(usize, Complex64)| {
            let a = opened[slot];
            [a.re - b.re, a.im - b.im]
        };
        let bits: Vec<f64> = expected.iter().flat_map(parts).map(|e| -e.abs().max(1e-30).log2()).collect();
        let worst = bits.iter().copied().fold(f64::INFINITY, f64::min);
        Ok((worst, bits.iter().sum::<f64>() / bits.len().max(1) as f64))
    }
}

/// Describes the set, for a row.
fn describe(params: &CkksParams) -> Value {
    json!({
        "set": params.literal().name,
        "log_n": params.literal().log_n,
        "log_qp": params.rlwe().log2_qp().round(),
        "secret": "ternary",
    })
}

/// Median seconds of `call` after one discarded call, and the number of runs.
pub(crate) fn measure(runs: usize, mut call: impl FnMut() -> Result<(), CkksError>) -> Result<(f64, usize), CkksError> {
    call()?;
    let start = Instant::now();
    call()?;
    // Short calls are repeated until the clock can resolve them.
    let one = start.elapsed().as_secs_f64();
    let inner = (0.02 / one).clamp(1.0, 200.0) as usize;
    let runs = if one < 0.5 { runs.max(7) } else { runs };
    let mut samples = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        for _ in 0..inner {
            call()?;
        }
        samples.push(start.elapsed().as_secs_f64() / inner as f64);
    }
    Ok((median(samples), runs))
}

/// Runs `work` with `threads` threads.
pub(super) fn with_threads<T: Send>(
    threads: usize,
    work: impl FnOnce() -> Result<T, BenchError> + Send,
) -> Result<T, BenchError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|_| BenchError::NoThreads { threads })?.install(work)
}
