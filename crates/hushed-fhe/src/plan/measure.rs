//! Measures the prices of this machine.

use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::gemm::{GemmWeights, ModularGemm};
use hushed_ckks::keys::{EvalKeys, SecretKey};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Encoder, Encryptor, Evaluator, Plaintext};
use hushed_math::BaseConverter;
use hushed_math::rng::SecretRng;
use rayon::prelude::*;

use super::prices::{DISK, Point, Prices};
use super::table::{SWITCHED, reference};
use crate::FheError;
use crate::simulate::Op;
use crate::slots::REFRESH_TILE;

/// Numbers of primes at which operations are measured; the last only if the chain is long enough.
const MEASURED_AT: [usize; 5] = [4, 8, 12, 16, 29];

/// Rounds per measurement, of which the shortest counts: other load on the machine can only add time.
const ROUNDS: usize = 3;

/// Minimum seconds per round: the system counts in milliseconds.
const WINDOW: f64 = 0.06;

/// Measures all prices except those of bootstraps, which are scaled from the table by the time of a relinearisation at
/// the most primes; takes seconds at N = 2^16. With `bootstraps`, one bootstrap is measured too, with its keys, at the
/// floor and at the top of the chain: this takes another minute and 6 GiB of memory.
///
/// # Errors
/// Errors of the engine; none for a preset that can bootstrap.
pub fn measure_prices(params: &Arc<CkksParams>, threads: usize, bootstraps: bool) -> Result<Prices, FheError> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool
        .map_err(|source| FheError::Io { what: format!("{threads} threads"), source: std::io::Error::other(source) })?;
    pool.install(|| measure(params, threads, bootstraps))
}

fn measure(params: &Arc<CkksParams>, threads: usize, bootstraps: bool) -> Result<Prices, FheError> {
    let key = Arc::new(SecretKey::generate(params.rlwe(), &mut SecretRng::from_os("prices")));
    let mut by_limbs = Vec::new();
    for limbs in MEASURED_AT.into_iter().filter(|&l| l <= params.max_limbs()) {
        by_limbs.push(Subject::new(params, &key, limbs, threads)?.point(limbs)?);
    }
    let subject = Subject::new(params, &key, GRID_LIMBS, threads)?;
    let grid_term = subject.grid_term()?;
    let gemm_term = subject.gemm_term()?;
    let mut prices = Prices {
        set: params.name().to_owned(),
        threads,
        measured: true,
        pace: 1.0,
        by_limbs,
        grid_term,
        gemm_term,
        bootstrap: Vec::new(),
        bootstrap_call: Vec::new(),
        disk: DISK,
    };
    let table = reference(threads);
    (prices.bootstrap, prices.bootstrap_call) = if bootstraps && params.can_bootstrap() {
        bootstrap(params, &key)?
    } else {
        let most = params.max_limbs();
        let now = prices.seconds(Op::Relinearise, most);
        let then = table.seconds(Op::Relinearise, most).max(f64::MIN_POSITIVE);
        let scaled = |&(limbs, seconds): &(usize, f64)| (limbs, seconds * now / then);
        let all = |points: &[(usize, f64)]| points.iter().map(scaled).collect();
        (all(&table.bootstrap), all(&table.bootstrap_call))
    };
    Ok(prices)
}

/// How many times as long this machine takes as that of the table, by the operations of a key switch in their
/// proportion, [`TRANSFORMS`] transforms and a conversion from [`PRIMES`] primes to as many others: a tenth of a
/// second. Without AVX-512 IFMA they take two to four times as long.
///
/// # Errors
/// None for a preset.
pub fn pace(params: &CkksParams) -> Result<f64, FheError> {
    let (basis, n) = (params.rlwe().basis(), params.rlwe().n());
    let limbs = PRIMES.min(basis.len() / 2);
    let (from, to): (Vec<usize>, Vec<usize>) = ((0..limbs).collect(), (limbs..2 * limbs).collect());
    let converter = BaseConverter::new(basis, &from, &to).map_err(CkksError::from)?;
    let numbers = || (0..n as u64).collect::<Vec<u64>>();
    let (source, mut target): (Vec<_>, Vec<_>) = (0..limbs).map(|_| (numbers(), numbers())).unzip();
    let source: Vec<&[u64]> = source.iter().map(Vec::as_slice).collect();
    let mut values = numbers();
    let times = (0..REPEATS).map(|_| {
        let start = Instant::now();
        (0..TRANSFORMS).for_each(|_| basis.ntt(0).forward(&mut values));
        let mut target: Vec<&mut [u64]> = target.iter_mut().map(Vec::as_mut_slice).collect();
        converter.convert(&source, &mut target);
        start.elapsed().as_secs_f64()
    });
    let there = SWITCHED * n as f64 / f64::from(1 << 16);
    Ok(times.fold(f64::INFINITY, f64::min) / there)
}

/// Repetitions of which the shortest counts.
const REPEATS: usize = 10;
/// What is repeated: 14 transforms for 100 products of residues.
const TRANSFORMS: usize = 14;
const PRIMES: usize = 10;

/// Primes at which sums of products and matrix products are measured.
const GRID_LIMBS: usize = 5;

/// Operands, keys and evaluator at one number of primes, with one operand per thread.
struct Subject {
    evaluator: Evaluator,
    encoder: Encoder,
    values: Vec<Complex64>,
    plain: Plaintext,
    left: Vec<Ciphertext>,
    right: Vec<Ciphertext>,
}

impl Subject {
    fn new(params: &Arc<CkksParams>, key: &Arc<SecretKey>, limbs: usize, threads: usize) -> Result<Self, CkksError> {
        let mut rng = SecretRng::from_os("prices");
        let specs = params.key_specs(limbs, true, &ROTATIONS, false)?;
        let keys = Arc::new(EvalKeys::generate(key, &specs, &mut rng)?);
        let encoder = Encoder::new(params);
        let values: Vec<Complex64> = (0..params.slots()).map(|i| spread(i).into()).collect();
        let plain = encoder.encode(&values, limbs, params.default_scale())?;
        let encryptor = Encryptor::new(params, key)?;
        let mut operands = || -> Result<Vec<Ciphertext>, CkksError> {
            (0..threads).map(|_| encryptor.encrypt(&plain, &mut rng)).collect()
        };
        let (left, right) = (operands()?, operands()?);
        Ok(Self { evaluator: Evaluator::new(params, keys)?, encoder, values, plain, left, right })
    }

    fn point(&self, limbs: usize) -> Result<Point, CkksError> {
        let e = &self.evaluator;
        let scale = self.plain.scale();
        let wide = scale.times(scale);
        let tensors = || -> Result<Vec<_>, CkksError> {
            let pairs = self.left.iter().zip(&self.right);
            pairs.map(|(l, r)| e.tensor(l, r)).collect()
        };
        let hoisted = self.left.iter().map(|ct| e.hoist(ct)).collect::<Result<Vec<_>, _>>()?;
        // The digits are computed at the first rotation.
        let both = self.each(|i| {
            let hoisted = e.hoist(&self.left[i])?;
            e.rotate_hoisted(&hoisted, ROTATIONS[0]).map(drop)
        })?;
        let turn = std::sync::atomic::AtomicUsize::new(0);
        let rotate_hoisted = self.each(|i| {
            // Keys alternate, as in a run, so that none stays in the cache.
            let turn = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            e.rotate_hoisted(&hoisted[i], ROTATIONS[turn % ROTATIONS.len()]).map(drop)
        })?;
        let finished = tensors()?;
        let cells: Vec<_> = tensors()?.into_iter().map(std::sync::Mutex::new).collect();
        let lock = |i: usize| cells[i].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let product = self.each(|i| e.tensor_add_assign(&mut lock(i), &self.left[i], &self.right[i]))?;
        let multiple = self.each(|i| e.tensor_add_multiple(&mut lock(i), &self.left[i], FACTOR))?;
        let relinearise = self.each(|i| e.relinearize_rescale(&finished[i]).map(drop))?;
        Ok(Point {
            limbs,
            hoist: (both - rotate_hoisted).max(0.0),
            rotate_hoisted,
            product,
            relinearise,
            rescale: self.each(|i| e.rescale(&self.left[i]).map(drop))?,
            multiple,
            add: self.each(|i| e.add(&self.left[i], &self.right[i]).map(drop))?,
            encode: self.each(|_| self.encoder.encode(&self.values, limbs, wide).map(drop))?,
            mul_plain: self.each(|i| e.mul_plain(&self.left[i], &self.plain).map(drop))?,
        })
    }

    /// Seconds per call while every thread makes calls.
    fn each<E: Send>(&self, call: impl Fn(usize) -> Result<(), E> + Sync) -> Result<f64, E> {
        let threads = self.left.len();
        let round = |times: usize| {
            let clock = Clock::start();
            (0..threads).into_par_iter().try_for_each(|i| (0..times).try_for_each(|_| call(i)))?;
            Ok(clock.seconds(threads) / (threads * times) as f64)
        };
        let start = Instant::now();
        round(1)?;
        let times = (WINDOW / start.elapsed().as_secs_f64()).clamp(1.0, 100.0) as usize;
        (0..ROUNDS).try_fold(f64::INFINITY, |least, _| Ok(round(times)?.min(least)))
    }

    fn limbs(&self) -> f64 {
        self.plain.limbs() as f64
    }

    /// A grid of four by four, 32 products each.
    fn grid_term(&self) -> Result<f64, FheError> {
        let side = |from: &[Ciphertext]| -> Vec<Vec<Ciphertext>> {
            (0..32).map(|_| from.iter().cycle().take(4).cloned().collect()).collect()
        };
        let (left, right) = (side(&self.left), side(&self.right));
        let seconds = once(|| Ok(self.evaluator.dot_grid(&left, &right).map(drop)?))?;
        let tensors = self
            .left
            .iter()
            .zip(&self.right)
            .map(|(l, r)| self.evaluator.tensor(l, r))
            .collect::<Result<Vec<_>, _>>()?;
        let finish = self.each(|i| self.evaluator.relinearize_rescale(&tensors[i]).map(drop))?;
        Ok((seconds - 16.0 * finish).max(0.0) / (512.0 * self.limbs()))
    }

    /// A product of 64 rows with 192 columns: about the size of a head's queries or of a block of hidden columns.
    fn gemm_term(&self) -> Result<f64, FheError> {
        const ROWS: usize = 64;
        const COLUMNS: usize = 192;
        let params = self.evaluator.params();
        let gemm = ModularGemm::new(params);
        let scale = gemm.weight_scale(self.plain.limbs());
        let values: Vec<f64> = (0..ROWS * COLUMNS).map(|i| spread(i) / 8.0).collect();
        let digits = GemmWeights::usual_digits(params);
        let weights = GemmWeights::with_digits(&values, ROWS, COLUMNS, 0.0625, scale, digits)?;
        let inputs: Vec<_> = self.left.iter().cycle().take(COLUMNS).cloned().collect();
        let seconds = once(|| Ok(gemm.multiply_all(&weights, &inputs, None).map(drop)?))?;
        Ok(seconds / ((ROWS * COLUMNS) as f64 * self.limbs()))
    }
}

/// The minimum over the rounds, after one warm-up.
fn once(call: impl Fn() -> Result<(), FheError>) -> Result<f64, FheError> {
    call()?;
    (0..ROUNDS).try_fold(f64::INFINITY, |least: f64, _| {
        let clock = Clock::start();
        call()?;
        Ok(clock.seconds(rayon::current_num_threads()).min(least))
    })
}

/// Time as it would pass on an otherwise idle machine: the CPU time of this process's threads, if the system reports
/// it.
struct Clock {
    start: Instant,
    computed: Option<f64>,
}

impl Clock {
    fn start() -> Clock {
        Clock { computed: computed_seconds(), start: Instant::now() }
    }

    /// Seconds since the start, divided among `threads` threads.
    fn seconds(&self, threads: usize) -> f64 {
        let wall = self.start.elapsed().as_secs_f64();
        match (self.computed, computed_seconds()) {
            (Some(before), Some(now)) if now > before => ((now - before) / threads as f64).min(wall),
            _ => wall,
        }
    }
}

/// CPU seconds of the living threads of this process.
fn computed_seconds() -> Option<f64> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?.flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(nanoseconds.sum::<u64>() as f64 / 1e9)
}

/// Numbers in [-1/2, 1/2) that do not repeat for a while.
fn spread(i: usize) -> f64 {
    (i * 7919 % 10_007) as f64 / 10_007.0 - 0.5
}

/// A constant.
const FACTOR: Complex64 = Complex64::new(0.3, 0.0);

/// Rotations that have keys.
const ROTATIONS: [i64; 4] = [1, 2, 3, 4];

/// By primes of the results, seconds.
type BySize = Vec<(usize, f64)>;

/// Seconds of a bootstrap and of a call beside its bootstraps, at the floor and at the top of the chain: from one pair
/// alone in its call, and from four, the most that a run has in one.
fn bootstrap(params: &Arc<CkksParams>, key: &Arc<SecretKey>) -> Result<(BySize, BySize), FheError> {
    let bootstrapper = Bootstrapper::new(params, BootstrapLiteral::default())?;
    let mut rng = SecretRng::from_os("prices");
    let keys = EvalKeys::generate(key, &bootstrapper.key_specs(), &mut rng).map_err(CkksError::from)?;
    let evaluator = Evaluator::new(params, Arc::new(keys))?;
    let encoder = Encoder::new(params);
    let values: Vec<Complex64> = (0..params.slots()).map(|i| spread(i).into()).collect();
    let plain = encoder.encode(&values, params.bootstrap_limbs(), params.default_scale())?;
    let ct = Encryptor::new(params, key)?.encrypt(&plain, &mut rng)?;
    let vectors = [&ct; REFRESH_TILE];
    let lengths = [params.bootstrap_limbs(), bootstrapper.output_limbs()];
    let timed = |pairs: usize, limbs: usize| -> Result<f64, FheError> {
        let clock = Clock::start();
        bootstrapper.bootstrap_real(&evaluator, &vectors[..2 * pairs], limbs)?;
        Ok(clock.seconds(rayon::current_num_threads()))
    };
    let (mut each, mut call) = (Vec::new(), Vec::new());
    for limbs in lengths {
        // The first bootstrap of a length prepares what the length needs.
        timed(1, limbs)?;
        let most = REFRESH_TILE / 2;
        let (one, all) = (timed(1, limbs)?, timed(most, limbs)?);
        // Two timings with noise: a further one takes no longer than each of all.
        let further = ((all - one) / (most - 1) as f64).clamp(0.0, all / most as f64);
        each.push((limbs, further));
        call.push((limbs, (one - further).max(0.0)));
    }
    Ok((each, call))
}
