//! What every step needs: keys, its counts on shapes, its time, and random numbers.

use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::counters::Counts as Counters;
use hushed_ckks::keys::{EvalKeys, SecretKey};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Decryptor, Encryptor, Evaluator, Scale};
use hushed_fhe::files::spill::SpillFolder;
use hushed_fhe::packing::Interleave;
use hushed_fhe::simulate::{Counts, Op, Simulator};
use hushed_fhe::{Encrypted, FheError, KeyDemand};
use hushed_math::rng::SecretRng;
use hushed_math::rng::splitmix::SplitMix;
use serde_json::{Map, Value, json};

use crate::BenchError;
use crate::machine::{forget_peak, peak_memory};

/// Rows of each text, but for [`long`].
pub(super) const ROWS: usize = 128;

/// Keys, encoder and evaluator of one step.
pub(super) struct Bed {
    pub(super) params: Arc<CkksParams>,
    pub(super) on: Encrypted,
    pub(super) encryptor: Encryptor,
    pub(super) decryptor: Decryptor,
    pub(super) rng: SecretRng,
    /// Rows of each text.
    pub(super) rows: usize,
    pub(super) key_bytes: usize,
    pub(super) setup_seconds: f64,
}

/// The time and memory of a step.
pub(super) struct Taken {
    pub(super) seconds: f64,
    pub(super) counts: Counters,
    pub(super) peak: Option<u64>,
}

impl Bed {
    /// Makes keys for the operations of a dry run, and for bootstraps.
    pub(super) fn new(params: &Arc<CkksParams>, counts: &Counts) -> Result<Bed, BenchError> {
        let start = Instant::now();
        let bootstrapper = Arc::new(Bootstrapper::new(params, BootstrapLiteral::default())?);
        let specs = KeyDemand::of(params, counts).specs(params, &bootstrapper.key_specs())?;
        let mut rng = SecretRng::from_os("bench fhe");
        let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        let keys = EvalKeys::generate(&key, &specs, &mut rng).map_err(CkksError::from)?;
        let evaluator = Evaluator::new(params, Arc::new(keys))?;
        let mut on = Encrypted::new(evaluator, bootstrapper)?;
        // In TMPDIR. Nothing stays there: a file is unlinked as soon as it is open.
        on.spill_to(SpillFolder::open(&std::env::temp_dir()).map_err(FheError::from)?);
        Ok(Bed {
            encryptor: Encryptor::new(params, &key)?,
            decryptor: Decryptor::new(on.encoder(), &key)?,
            key_bytes: specs.memory_bytes(params.rlwe()).map_err(CkksError::from)?,
            setup_seconds: start.elapsed().as_secs_f64(),
            params: Arc::clone(params),
            rows: ROWS,
            on,
            rng,
        })
    }

    /// Encrypts numbers with `limbs` primes at `scale`.
    pub(super) fn encrypt(&mut self, values: &[f64], limbs: usize, scale: Scale) -> Result<Ciphertext, BenchError> {
        let values: Vec<Complex64> = values.iter().map(|&v| v.into()).collect();
        self.encrypt_pairs(&values, limbs, scale)
    }

    pub(super) fn encrypt_pairs(
        &mut self,
        values: &[Complex64],
        limbs: usize,
        scale: Scale,
    ) -> Result<Ciphertext, BenchError> {
        let plain = self.on.encoder().encode(values, limbs, scale)?;
        Ok(self.encryptor.encrypt(&plain, &mut self.rng)?)
    }

    /// The largest error over the slots.
    pub(super) fn error(&self, ct: &Ciphertext, expected: impl Fn(usize) -> f64) -> Result<f64, BenchError> {
        let found = self.decryptor.decrypt_raw(ct)?;
        let errors = found.iter().enumerate().map(|(i, v)| (v.re - expected(i)).abs());
        Ok(errors.fold(0.0, f64::max))
    }

    /// Runs a step; returns its counters and the process's peak memory as well.
    pub(super) fn take<T>(
        &self,
        step: impl FnOnce(&Encrypted) -> Result<T, FheError>,
    ) -> Result<(T, Taken), BenchError> {
        let counters = self.on.evaluator().counters();
        let before = counters.snapshot();
        forget_peak();
        let start = Instant::now();
        let result = step(&self.on)?;
        let taken = Taken {
            seconds: start.elapsed().as_secs_f64(),
            counts: counters.snapshot().since(&before),
            peak: peak_memory(),
        };
        Ok((result, taken))
    }

    pub(super) fn texts(&self) -> usize {
        self.params.slots() / self.rows
    }

    /// Seconds of each step that was run.
    pub(super) fn steps(&self) -> Map<String, Value> {
        let steps = self.on.clock().seconds().into_iter();
        steps.map(|(site, seconds)| (site.to_string(), json!(seconds))).collect()
    }

    /// A row; `parts` holds additional fields.
    pub(super) fn row(&self, name: &str, params: &Value, threads: usize, taken: &Taken, parts: Value) -> Value {
        let texts = self.texts() as f64;
        let counts = &taken.counts;
        let mut row = json!({
            "name": name,
            "params": params,
            "threads": threads,
            "runs": 1,
            "seconds": taken.seconds,
            "seconds_per_text": taken.seconds / texts,
            "texts": self.texts(),
            "bootstraps": counts.bootstrap,
            "bootstraps_per_text": counts.bootstrap as f64 / texts,
            "key_switches": counts.key_switch,
            "key_switches_per_text": counts.key_switch as f64 / texts,
            "setup_seconds": self.setup_seconds,
            "key_bytes": self.key_bytes,
            "peak_rss": taken.peak,
            "peak_disk": self.on.spilled().peak,
        });
        if let (Some(row), Value::Object(parts)) = (row.as_object_mut(), parts) {
            row.extend(parts);
        }
        row
    }
}

/// The counts of a step run on shapes.
pub(super) fn counted(
    params: &Arc<CkksParams>,
    step: impl FnOnce(&Simulator) -> Result<(), FheError>,
) -> Result<Counts, BenchError> {
    let on = Simulator::new(params, params.slots())?.counting();
    step(&on)?;
    Ok(on.tally().counts())
}

/// Rotations and conjugations of a step, without those of bootstraps.
pub(super) fn rotations(counts: &Counts) -> u64 {
    let ops = [Op::Rotate, Op::Conjugate, Op::MapBaby, Op::MapGiant];
    ops.iter().map(|&op| counts.total(op)).sum()
}

/// Key switches of a step, with each part, without those of bootstraps.
pub(super) fn switches(counts: &Counts) -> Value {
    let (conjugations, rotations) = (counts.total(Op::Conjugate), rotations(counts));
    let relinearisations = counts.total(Op::Relinearise);
    json!({
        "key_switches": rotations + relinearisations,
        "rotations": rotations - conjugations,
        "conjugations": conjugations,
        "relinearisations": relinearisations,
    })
}

pub(super) fn layout(params: &CkksParams) -> Result<Interleave, BenchError> {
    layout_of(params, ROWS)
}

pub(super) fn layout_of(params: &CkksParams, rows: usize) -> Result<Interleave, BenchError> {
    Ok(Interleave::new(params.slots(), rows).map_err(FheError::from)?)
}

/// Roughly normal numbers, the same in every run.
pub(super) struct Normal(SplitMix);

impl Normal {
    pub(super) fn new(seed: u64) -> Normal {
        Normal(SplitMix(seed))
    }

    pub(super) fn next(&mut self) -> f64 {
        let mut unit = || (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64 - 0.5;
        // Variance 4/12.
        (unit() + unit() + unit() + unit()) * 3f64.sqrt()
    }
}
