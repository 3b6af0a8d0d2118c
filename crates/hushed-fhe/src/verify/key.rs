//! The last rung: runs on a key generated only for this comparison, and decrypts every step.

use std::sync::Arc;

use hushed_ckks::bootstrap::Bootstrapper;
use hushed_ckks::keys::{EvalKeys, KeySpecs, SecretKey};
use hushed_ckks::{CkksError, Complex64, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_math::rng::SecretRng;
use hushed_model::Matrix;

use super::options::{OnKey, OutOfRange};
use super::rung::{Rung, Take};
use super::subject::Subject;
use crate::error::FheError;
use crate::files::spill::SpillFolder;
use crate::packing::Interleave;
use crate::plan::{dry_run, key_specs};
use crate::run::clock::Progress;
use crate::run::encrypted::Encrypted;

/// A key, its evaluation keys, and a run on it between two layers.
pub(super) struct TestKey {
    on: Encrypted,
    encoder: Arc<Encoder>,
    encryptor: Encryptor,
    decryptor: Decryptor,
    rng: SecretRng,
    columns: Vec<hushed_ckks::Ciphertext>,
    mask: Option<hushed_ckks::Ciphertext>,
    layout: Interleave,
    alive: Vec<usize>,
}

impl TestKey {
    /// Generates keys for all operations of the run, as counted by a dry run. Texts that a simulation found out of
    /// range are left out.
    pub fn new(
        subject: &Subject<'_>,
        out: &[OutOfRange],
        bootstrapper: Arc<Bootstrapper>,
        bootstrap: &KeySpecs,
        how: &OnKey,
    ) -> Result<TestKey, FheError> {
        let (params, placement) = (&subject.params, &subject.placement);
        let (program, choices) = (&subject.program, &subject.choices);
        let run = dry_run(program, choices, params, &subject.options(), placement)?;
        let keys = key_specs(&run, params, bootstrap)?;
        let mut rng = SecretRng::from_os("test key of verify");
        let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        let keys = EvalKeys::generate(&key, &keys, &mut rng).map_err(CkksError::from)?;
        let keys = Arc::new(keys);
        let encoder = Arc::new(Encoder::new(params));
        let mut alive = subject.lengths.clone();
        for text in out.iter().filter_map(|o| o.text) {
            alive[text] = 0;
        }
        let mut on = Encrypted::new(Evaluator::new(params, keys)?, bootstrapper)?;
        if placement.spills() {
            let folder = how.spill.clone().unwrap_or_else(std::env::temp_dir);
            on.spill_to(SpillFolder::open(&folder)?);
        }
        Ok(TestKey {
            on,
            // The key is dropped with this value, so the number of decryptions is harmless.
            decryptor: Decryptor::with_limit(&encoder, &key, u64::MAX)?,
            encryptor: Encryptor::new(params, &key)?,
            layout: Interleave::new(params.slots(), subject.rows)?,
            columns: Vec::new(),
            mask: None,
            encoder,
            rng,
            alive,
        })
    }

    /// Encrypts the texts as a client does, two columns per ciphertext, and splits the columns. Sets `alive` to the
    /// rows of each text, 0 for one that is left out.
    pub fn start(
        &mut self,
        subject: &Subject<'_>,
        texts: &[Matrix<f64>],
        alive: &mut Vec<usize>,
    ) -> Result<(), FheError> {
        alive.clone_from(&self.alive);
        let sent: Vec<Matrix<f64>> = texts
            .iter()
            .zip(&self.alive)
            .map(|(x, &rows)| match rows {
                0 => Matrix::zero(0, x.cols()),
                _ => x.clone(),
            })
            .collect();
        let columns = subject.columns(self.layout, &sent);
        self.columns = Vec::with_capacity(columns.len());
        for pair in columns.chunks(2) {
            let (u, v) = (&pair[0], pair.get(1));
            let half = |i: usize| Complex64::new(u[i] / 2.0, v.map_or(0.0, |v| v[i] / 2.0));
            let message: Vec<Complex64> = (0..u.len()).map(half).collect();
            let ct = self.encrypt(subject, &message)?;
            let parts = self.on.split(&ct)?;
            self.columns.extend(parts.into_iter().take(pair.len()));
        }
        if let Some(mask) = subject.mask(self.layout, &self.alive) {
            let message: Vec<Complex64> = mask.into_iter().map(Complex64::from).collect();
            self.mask = Some(self.encrypt(subject, &message)?);
        }
        Ok(())
    }

    /// Encrypts vectors as a client does.
    fn encrypt(&mut self, subject: &Subject<'_>, message: &[Complex64]) -> Result<hushed_ckks::Ciphertext, FheError> {
        let (limbs, scale) = (subject.placement.upload, subject.params.default_scale());
        let plain = self.encoder.encode(message, limbs, scale)?;
        Ok(self.encryptor.encrypt(&plain, &mut self.rng)?)
    }

    /// Runs layer `i` on the columns; the results of its steps go to `take`.
    pub fn layer(
        &mut self,
        subject: &Subject<'_>,
        i: usize,
        take: Take<'_>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), FheError> {
        if i == 0 {
            let table = Arc::clone(&subject.timetable);
            self.on.clock().begin(table);
        }
        self.with(|rung, alive, open| {
            let clock = rung.on.clock();
            clock.tell(progress, || rung.layer(subject, i, alive, open, take))
        })
    }

    /// The pooled row of each text.
    pub fn pool(&mut self, subject: &Subject<'_>) -> Result<Vec<Vec<f64>>, FheError> {
        self.with(|rung, alive, open| rung.pooled(subject, alive, open))
    }

    fn with<T>(
        &mut self,
        f: impl FnOnce(
            &mut Rung<'_, Encrypted>,
            &[usize],
            super::rung::Open<'_, hushed_ckks::Ciphertext>,
        ) -> Result<T, FheError>,
    ) -> Result<T, FheError> {
        let mut rung = Rung {
            on: &self.on,
            layout: self.layout,
            columns: std::mem::take(&mut self.columns),
            mask: self.mask.clone(),
        };
        let open = |ct: &hushed_ckks::Ciphertext| {
            let slots = self.decryptor.decrypt_raw(ct)?;
            Ok(slots.iter().map(|z| z.re).collect())
        };
        let done = f(&mut rung, &self.alive, &open);
        self.columns = rung.columns;
        done
    }
}
