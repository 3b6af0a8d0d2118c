//! The kernels of a ternary decoder that ENSI (arXiv 2509.09424) measures, at its sizes: a product with a ternary
//! matrix (Figure 7), the sigmoid of a ciphertext (Table I), RMSNorm (Table II), rotary positions (Table III). All
//! slots are full: with m rows per text there are slots/m texts, and `seconds_per_text` is for one of them.

use std::time::Instant;

use hushed_ckks::poly::evaluate;
use hushed_ckks::{Ciphertext, CkksParams, Complex64};
use hushed_fhe::ops::norm::root_levels;
use hushed_fhe::ops::rope::{Turned, turns};
use hushed_fhe::packing::Interleave;
use hushed_fhe::simulate::{Counts, Op};
use hushed_fhe::{Acts, Encrypted, FheError, Interval, LinearMap, NormChoice, Slots, fits, rms_norm};
use hushed_model::{Heads, Norm, NormKind, Pairs, Rope, RopeScaling, StepId};
use serde_json::{Value, json};

use super::bed::{Bed, Normal, Taken, counted};
use super::ensi;
use crate::ckks::with_threads;
use crate::{BenchError, How};

/// Levels of the columns that a norm's statistic takes: squares, and the scale of a refresh.
const STATISTIC: usize = 2;
/// Columns of a product that are held at once.
const BLOCK: usize = 128;

/// A step's result and its cost, from the fastest of the runs.
fn quickest<T>(
    bed: &Bed,
    how: How<'_>,
    step: impl Fn(&Encrypted) -> Result<T, FheError>,
) -> Result<(T, Taken), BenchError> {
    let mut found = bed.take(&step)?;
    for _ in 1..how.runs {
        let run = bed.take(&step)?;
        if run.1.seconds < found.1.seconds {
            found = run;
        }
    }
    Ok(found)
}

/// One row for the product of ENSI's Figure 7.
pub fn ternary_products(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let params = json!({ "set": "n16-boot-14x40", "rows": 2048, "inputs": 768, "outputs": 64, "primes": 14 });
    with_threads(how.threads, || how.wants(&params).then(|| ternary(&params, how)).into_iter().collect())
}

/// 64 sums of 768 columns, in blocks of columns: one block is encrypted and stands for all, since the time does not
/// depend on the contents.
fn ternary(about: &Value, how: How<'_>) -> Result<Value, BenchError> {
    const ROWS: usize = 2048;
    const INPUTS: usize = 768;
    const OUTPUTS: usize = 64;
    const PRIMES: usize = 14;
    let params = CkksParams::n16_boot()?;
    let mut bed = Bed::new(&params, &Counts::default())?;
    let slots = params.slots();
    let mut random = Normal::new(5);
    let table: Vec<Vec<f64>> = (0..BLOCK).map(|_| (0..slots).map(|_| random.next() / 4.0).collect()).collect();
    let scale = params.default_scale();
    let block = table.iter().map(|column| bed.encrypt(column, PRIMES, scale)).collect::<Result<Vec<_>, _>>()?;
    let signs = (0..OUTPUTS * INPUTS).map(|i| ((i * 7919 + i / 11) % 3) as f64 - 1.0);
    let map = LinearMap { rows: OUTPUTS, columns: INPUTS, weights: signs.collect(), bound: 1.0, bias: None };
    let (sums, taken) = quickest(&bed, how, |on| {
        let mut partial = None;
        for start in (0..INPUTS).step_by(BLOCK) {
            let part = map.columns(start..start + BLOCK);
            partial = Some(on.ternary_add(&part, &block, partial)?);
        }
        partial.map_or(Ok(Vec::new()), |partial| on.ternary_finish(partial))
    })?;
    let row = &map.weights[..INPUTS];
    let expected = |slot: usize| -> f64 {
        let products = row.iter().enumerate();
        products.map(|(j, w)| w * table[j % BLOCK][slot]).sum()
    };
    let first = sums.first().ok_or(BenchError::BadWeights)?;
    let error = bed.error(first, expected)?;
    let columns: Vec<&Ciphertext> = block.iter().cycle().take(INPUTS).collect();
    let texts = slots / ROWS;
    let parts = json!({
        "error": error,
        "ensi_algorithm_1": ensi::product(&bed, &map, &columns, expected)?,
        "runs": how.runs,
        "texts": texts,
        "seconds_per_text": taken.seconds / texts as f64,
        "paper_seconds_per_text": 1.41,
    });
    Ok(bed.row("fhe.pcmm", about, how.threads, &taken, parts))
}

/// Rows for the sigmoid of all slots of one ciphertext, by degree.
pub fn sigmoids(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let mut rows = Vec::new();
        for degree in [15, 31] {
            let params = json!({ "set": "n16-boot-14x40", "numbers": 32_768, "degree": degree });
            if how.wants(&params) {
                rows.push(sigmoid(degree, &params, how)?);
            }
        }
        Ok(rows)
    })
}

/// 1/(1 + e^{4.85 − s}), s in [−8, 8]: the bias for 128 rows.
fn sigmoid(degree: usize, about: &Value, how: How<'_>) -> Result<Value, BenchError> {
    const BIAS: f64 = -4.85;
    let params = CkksParams::n16_boot()?;
    let scores = Interval { low: -8.0, high: 8.0 };
    let polynomial = fits::sigmoid(scores, BIAS, degree).map_err(FheError::from)?;
    // As in attention: the product with the values follows, plus one level for the refresh.
    let limbs = params.bootstrap_limbs() + polynomial.depth() + 2;
    let scale = params.default_scale();
    let counts = counted(&params, |on| {
        let t = on.vector(Vec::new(), limbs)?;
        evaluate(on, &t, &polynomial, scale)?;
        Ok(())
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    let wide = fits::masked(scores);
    let spread = |slot: usize| (slot * 7919 % 32_771) as f64 / 32_771.0;
    let score = |slot: usize| scores.low + 2.0 * scores.half() * spread(slot);
    let argument = |slot| (score(slot) - wide.middle()) / wide.half();
    let values: Vec<f64> = (0..params.slots()).map(argument).collect();
    let t = bed.encrypt(&values, limbs, scale)?;
    let (found, taken) = quickest(&bed, how, |on| evaluate(on, &t, &polynomial, scale))?;
    let error = bed.error(&found, |slot| 1.0 / (1.0 + (-score(slot) - BIAS).exp()))?;
    let parts = json!({
        "error": error,
        "runs": how.runs,
        "primes": limbs,
        "texts": Value::Null,
        "seconds_per_text": Value::Null,
        "paper_seconds": [1.217, 1.261],
    });
    Ok(bed.row("fhe.sigmoid", about, how.threads, &taken, parts))
}

/// One row for the rotary positions of ENSI's Table III: the turns of one of the 16 heads are timed, including one
/// encoding of each plaintext; queries and keys of all heads take 32 times that. A layer turns queries once per giant
/// step and keys once per baby step, with its mask in the same plaintexts, in the time of its scores.
pub fn turned(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let about = json!({ "set": "n16-boot-14x40", "rows": 2048, "width": 96, "heads": 16, "primes": 14 });
    with_threads(how.threads, || how.wants(&about).then(|| turned_head(&about, how)).into_iter().collect())
}

fn turned_head(about: &Value, how: How<'_>) -> Result<Value, BenchError> {
    const PRIMES: usize = 14;
    let heads = Heads { count: 16, keys: 16, width: 96, scale: 1.0 };
    let rope = Rope { theta: 500_000.0, pairs: Pairs::Halves, scaling: RopeScaling::None, columns: None };
    let params = CkksParams::n16_boot()?;
    let mut bed = Bed::new(&params, &Counts::default())?;
    let (slots, scale) = (params.slots(), params.default_scale());
    let layout = Interleave::new(slots, 2048).map_err(FheError::from)?;
    let mut random = Normal::new(9);
    // Columns i and i + 48 of a head in one vector, for all pairs.
    let pair = |_| Complex64::new(random.next() / 4.0, random.next() / 4.0);
    let values: Vec<Complex64> = (0..slots).map(pair).collect();
    let x = bed.encrypt_pairs(&values, PRIMES, scale)?;
    let turn = |i| turns(layout, &heads, Some(&rope), i, 1, Turned::DiagonalQuery);
    let plain: Vec<Vec<Complex64>> = (0..heads.width / 2).map(turn).collect();
    let (last, taken) = quickest(&bed, how, |on| {
        let mut last = None;
        for by in &plain {
            last = Some((on.mul_pairs(&x, by, scale)?, by));
        }
        Ok(last)
    })?;
    let (turned, by) = last.ok_or(BenchError::BadWeights)?;
    let opened = bed.decryptor.decrypt_raw(&turned)?;
    let pairs = opened.iter().zip(values.iter().zip(by));
    let error = pairs.map(|(found, (x, by))| (found - x * by).norm());
    let (texts, all) = (slots / 2048, 2 * heads.count);
    let [ours, as_printed] = ensi::positions(PRIMES, heads.width)?;
    let parts = json!({
        "error": error.fold(0.0, f64::max),
        "ours": ours,
        "ensi_algorithm_2": as_printed,
        "runs": how.runs,
        "texts": texts,
        "seconds_per_text": (all as f64) * taken.seconds / texts as f64,
        "paper_seconds_per_text": 1.61,
    });
    Ok(bed.row("fhe.rope", about, how.threads, &taken, parts))
}

/// Rows for RMSNorm at the sizes of ENSI's Table II.
pub(super) fn rms_norms(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let mut found = Vec::new();
    for (rows, width, paper) in [(2048, 128, [6.8, 6.2]), (4096, 512, [26.1, 22.9])] {
        let params = json!({ "set": "n16-boot-14x40", "kind": "rms", "rows": rows, "width": width });
        if how.wants(&params) {
            found.push(rms(rows, width, (&params, how), paper)?);
        }
    }
    Ok(found)
}

fn rms(rows: usize, width: usize, (about, how): (&Value, How<'_>), paper: [f64; 2]) -> Result<Value, BenchError> {
    const BOUND: f64 = 8.0;
    let params = CkksParams::n16_boot()?;
    let choice = NormChoice {
        scale: (1.0 / (4.0 * width as f64)).sqrt(),
        low: 0.04,
        bound: (width as f64).sqrt(),
        seed: 15,
        // One step leaves 8·10^−6, the error of the degree-15 polynomial squared.
        steps: 2,
    };
    let norm = Norm {
        kind: NormKind::RmsNorm,
        width,
        epsilon: 1e-6,
        reach: None,
        gain: Some(vec![1.0; width].into()),
        offset: Some(vec![0.0; width].into()),
    };
    let site = StepId::outside("norm");
    let limbs = params.bootstrap_limbs() + 3;
    let statistics = limbs + root_levels(&choice)?;
    let counts = counted(&params, |on| {
        let columns = (0..width).map(|_| on.vector(Vec::new(), limbs));
        let x = Acts::from_client(columns.collect::<Result<_, _>>()?, BOUND);
        rms_norm(on, site, x, &norm, &choice, statistics).map(drop)
    })?;
    let start = Instant::now();
    let mut bed = Bed::new(&params, &counts)?;
    let slots = params.slots();
    // Each slot is a row with a root mean square from 0.5 to 1.8.
    let size = |slot: usize| 0.5 + 1.3 * (slot * 7919 % 10_007) as f64 / 10_007.0;
    let mut random = Normal::new(1);
    let mut squares = vec![0.0; slots];
    let (mut kept, mut columns) = (Vec::new(), Vec::with_capacity(width));
    for j in 0..width {
        let column: Vec<f64> = (0..slots).map(|s| random.next() * size(s)).collect();
        let sum = squares.iter_mut().zip(&column);
        sum.for_each(|(square, x)| *square += x * x / width as f64);
        let sent: Vec<f64> = column.iter().map(|x| x / BOUND).collect();
        columns.push(bed.encrypt(&sent, limbs, params.default_scale())?);
        if j.is_multiple_of(width / 8) {
            kept.push((j, column));
        }
    }
    let setup = start.elapsed().as_secs_f64();
    let x = Acts::from_client(columns, BOUND);
    let (y, taken) = bed.take(|on| rms_norm(on, site, x, &norm, &choice, statistics))?;
    let (mut largest, mut sum) = (0.0_f64, 0.0);
    for (j, column) in &kept {
        let found = bed.decryptor.decrypt_raw(&y.columns[*j])?;
        for (slot, z) in found.iter().enumerate() {
            let expected = column[slot] / (squares[slot] + norm.epsilon).sqrt();
            let error = (y.gain[*j] * z.re - expected).abs();
            largest = largest.max(error);
            sum += error;
        }
    }
    let texts = slots / rows;
    let parts = json!({
        "error": largest,
        "mean_error": sum / (kept.len() * slots) as f64,
        "ours": { "counted": ensi::levels(STATISTIC, root_levels(&choice)? + 1, counts.total(Op::Bootstrap)) },
        "ensi_algorithm_3": ensi::norm(width)?,
        "setup_seconds": setup,
        "texts": texts,
        "seconds_per_text": taken.seconds / texts as f64,
        "paper_seconds": paper,
        "paper_mean_error": [4.0e-6, 3.5e-6],
    });
    Ok(bed.row("fhe.rms_norm", about, how.threads, &taken, parts))
}
