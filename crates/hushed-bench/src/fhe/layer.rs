//! One layer of an encoder or of a ternary decoder on a full batch, with random weights in realistic ranges, from
//! refreshed columns to refreshed columns. Reports the plan's predictions next to the measurements.

use std::sync::Arc;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::{Ciphertext, CkksParams, Complex64};
use hushed_fhe::packing::Interleave;
use hushed_fhe::plan::public_plan::{AnswerRows, Lengths};
use hushed_fhe::plan::{FheOptions, FhePlanReport, reference};
use hushed_fhe::{Acts, Choices, FheError, Pass, Placement, RowsKnown, Slots};
use hushed_model::{Matrix, Network, NetworkConfig, PlainActs, Pool, Program, Rows, plain, random_network};
use serde_json::{Value, json};

use super::bed::{Bed, Normal, ROWS, Taken, counted, layout_of};
use super::llama::{DECODERS, attends_by_softmax, chosen, decoder};
use crate::ckks::with_threads;
use crate::{BenchError, How};

/// Memory limit of a layer in bytes; a placement within it is searched for.
const MEMORY: u64 = 22 << 30;

/// Texts compared with the clear.
const COMPARED: [usize; 2] = [0, 77];

/// One row per encoder, and one per decoder that is named, for a layer of it.
pub fn layers(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let mut rows = each_model(how, |size| {
        let params = about(size.model, size.width, size.hidden);
        // The first of two layers, which ends with a refresh, as all but the last do.
        how.wants(&params).then(|| one(&size.random(2).program_of_all_rows(), &params, how.threads))
    })?;
    for (model, (width, heads, hidden), weigh) in DECODERS {
        let params = about(model, width, hidden);
        if named(how, &params) {
            let program = decoder((width, heads, hidden), ROWS, weigh(ROWS));
            rows.push(with_threads(how.threads, || one(&program, &params, how.threads))?);
        }
    }
    Ok(rows)
}

/// Whether this row of a decoder is wanted: they take long, so they have to be named.
pub(super) fn named(how: How<'_>, params: &Value) -> bool {
    how.only.is_some_and(|only| only.contains("llama")) && how.wants(params)
}

fn about(model: &str, width: usize, hidden: usize) -> Value {
    json!({ "set": "n16-boot-14x40", "model": model, "rows": ROWS, "width": width, "hidden": hidden })
}

/// The sizes of a model, with random weights.
pub(super) struct Size {
    pub model: &'static str,
    pub layers: usize,
    pub width: usize,
    pub hidden: usize,
}

impl Size {
    /// A network of this many layers, with random weights.
    pub fn random(&self, layers: usize) -> Network {
        let config = NetworkConfig {
            layers,
            width: self.width,
            heads: 12,
            hidden: self.hidden,
            vocabulary: 8,
            positions: ROWS,
            ..NetworkConfig::large()
        };
        random_network(&config, Pool::Mean, 1)
    }
}

const SIZES: [Size; 2] = [
    Size { model: "minilm", layers: 6, width: 384, hidden: 1536 },
    Size { model: "bert-base", layers: 12, width: 768, hidden: 3072 },
];

/// The results of `row` for the models that it accepts.
pub(super) fn each_model(
    how: How<'_>,
    row: impl Fn(&Size) -> Option<Result<Value, BenchError>> + Send + Sync,
) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || SIZES.iter().filter_map(row).collect())
}

fn one(program: &Program, about: &Value, threads: usize) -> Result<Value, BenchError> {
    let planned = Planned::new(program, threads)?;
    let plan = &planned.plan;
    let measured = Measured::new(program, &planned.choices, &plan.placement, &planned.params, ROWS)?;
    let Measured { bed, taken, error } = measured;
    let ledger = plan.ledger(Some(0));
    let planned: f64 = ledger.iter().map(|step| step.work.seconds).sum();
    let mut parts = json!({
        "error": error,
        "planned_seconds": planned,
        "planned_memory": plan.memory.total(),
        "planned_disk": plan.disk,
        "core_seconds_per_text": taken.seconds * threads as f64 / bed.texts() as f64,
        "placement": plan.placement,
        "steps": bed.steps(),
    });
    if program.vocabulary().is_none() {
        // MOAI's numbers for BERT-base.
        let all = |one: f64| 12.0 * one / bed.texts() as f64;
        parts["core_seconds_per_text_of_12_layers_extrapolated"] = json!(all(taken.seconds * threads as f64));
        parts["bootstraps_per_text_of_12_layers_extrapolated"] = json!(all(taken.counts.bootstrap as f64));
        parts["paper_core_seconds_per_text"] = json!(32178.0);
        parts["paper_bootstraps_per_text"] = json!(144.6);
    }
    Ok(bed.row("fhe.layer", about, threads, &taken, parts))
}

/// A layer that was run, and its error.
pub(super) struct Measured {
    pub bed: Bed,
    pub taken: Taken,
    pub error: f64,
}

impl Measured {
    /// Runs the first layer of `program` on random columns.
    pub fn new(
        program: &Program,
        choices: &Choices,
        placement: &Placement,
        params: &Arc<CkksParams>,
        rows: usize,
    ) -> Result<Measured, BenchError> {
        let (layout, limbs) = (layout_of(params, rows)?, placement.attention);
        let (width, run) = (program.width(), (program, choices, placement, layout));
        let masks = attends_by_softmax(program);
        let counts = counted(params, |on| {
            let columns = (0..width).map(|_| on.vector(Vec::new(), limbs));
            let real = masks.then(|| on.vector(Vec::new(), limbs)).transpose()?;
            layer(on, run, columns.collect::<Result<_, _>>()?, (real, false)).map(drop)
        })?;
        let mut bed = Bed::new(params, &counts)?;
        bed.rows = rows;
        let together = if placement.pairs { 2 } else { 1 };
        let (table, columns) = random_columns(&mut bed, width, limbs, together)?;
        // Every row is a token, which the server does not know.
        let scale = params.default_scale();
        let real = masks.then(|| bed.encrypt(&vec![1.0; params.slots()], limbs, scale));
        let real = real.transpose()?;
        let (result, taken) = bed.take(|on| layer(on, run, columns, (real, placement.pairs)))?;
        let mut error = 0.0_f64;
        let open = |ct: &Ciphertext| Ok(bed.decryptor.decrypt_raw(ct)?);
        for text in COMPARED {
            let text = text % layout.texts();
            error = error.max(compare(open, program, layout, &table, &result, text)?);
        }
        Ok(Measured { bed, taken, error })
    }
}

/// A model with random weights, and the plan for a full batch within the memory limit.
pub(super) struct Planned {
    pub params: Arc<CkksParams>,
    pub choices: Choices,
    pub plan: FhePlanReport,
}

impl Planned {
    pub fn new(program: &Program, threads: usize) -> Result<Planned, BenchError> {
        Planned::of(program, ROWS, threads, None)
    }

    /// A plan for texts of `rows` rows; with a placement, whatever memory it takes.
    pub fn of(
        program: &Program,
        rows: usize,
        threads: usize,
        placement: Option<Placement>,
    ) -> Result<Planned, BenchError> {
        let params = CkksParams::n16_boot()?;
        let choices = chosen(program, rows);
        let bootstrap = Bootstrapper::new(&params, BootstrapLiteral::default())?.key_specs();
        let options = FheOptions {
            rows,
            texts: usize::MAX,
            lengths: match attends_by_softmax(program) {
                true => Lengths::Private,
                false => Lengths::Public,
            },
            answer: AnswerRows::Last,
            max_memory: placement.is_none().then_some(MEMORY),
            per_place: 1,
            uplink: f64::INFINITY,
            prices: reference(threads),
            placement,
        };
        let plan = FhePlanReport::new(program, &choices, true, &params, &bootstrap, &options)?;
        Ok(Planned { params, choices, plan })
    }
}

/// Columns of numbers with deviation 1, divided by [`input_bound`], in the clear and encrypted with `limbs` primes,
/// one or two per vector.
pub(super) fn random_columns(
    bed: &mut Bed,
    width: usize,
    limbs: usize,
    together: usize,
) -> Result<(Vec<Vec<f64>>, Vec<Ciphertext>), BenchError> {
    let (slots, bound) = (bed.params.slots(), input_bound(width));
    let mut random = Normal::new(3);
    let column = |_| (0..slots).map(|_| random.next() / bound).collect();
    let table: Vec<Vec<f64>> = (0..width).map(column).collect();
    let scale = bed.params.default_scale();
    let encrypted = table.chunks(together).map(|columns| match columns {
        [re, im] => {
            let both = re.iter().zip(im);
            let pairs: Vec<Complex64> = both.map(|(&re, &im)| Complex64::new(re, im)).collect();
            bed.encrypt_pairs(&pairs, limbs, scale)
        }
        alone => bed.encrypt(&alone.concat(), limbs, scale),
    });
    let encrypted = encrypted.collect::<Result<_, BenchError>>()?;
    Ok((table, encrypted))
}

/// The rows of a text, taken from its columns.
pub(super) fn rows_of(table: &[Vec<f64>], layout: Interleave, text: usize) -> Result<Matrix<f64>, BenchError> {
    let bound = input_bound(table.len());
    let data = (0..layout.rows())
        .flat_map(|row| table.iter().map(move |column| (row, column)))
        .map(|(row, column)| bound * column[layout.slot(text, row)])
        .collect();
    Matrix::new(layout.rows(), table.len(), data).ok_or(BenchError::BadWeights)
}

/// A bound that normal numbers of variance 1, made from four uniform ones, stay within.
pub(super) fn input_bound(width: usize) -> f64 {
    (width as f64).sqrt().min(4.0)
}

pub(super) fn layer<S: Slots>(
    on: &S,
    (program, choices, placement, layout): (&Program, &Choices, &Placement, Interleave),
    columns: Vec<S::Value>,
    (real, paired): (Option<S::Value>, bool),
) -> Result<Acts<S::Value>, FheError> {
    let (bound, placement) = (input_bound(program.width()), placement.clone());
    if program.vocabulary().is_some() {
        let read = (layout, AnswerRows::Last, real);
        let mut pass = Pass::last(on, (program, choices), placement, read, bound)?;
        let x = match paired {
            true => Acts::over(columns, program.width(), bound),
            false => pass.start(columns)?,
        };
        return pass.layer(0, x);
    }
    let rows = RowsKnown::public(layout, vec![layout.rows(); layout.texts()])?;
    let mut pass = Pass::new(on, program, choices, placement, rows, bound)?;
    let x = pass.start(columns)?;
    pass.layer(0, x)
}

/// The largest error of a text's numbers, compared with the clear.
pub(super) fn compare<V>(
    open: impl Fn(&V) -> Result<Vec<Complex64>, BenchError>,
    program: &Program,
    layout: Interleave,
    table: &[Vec<f64>],
    result: &Acts<V>,
    text: usize,
) -> Result<f64, BenchError> {
    let width = table.len();
    let values = rows_of(table, layout, text)?;
    let rows = Rows::unpadded(&[layout.rows()]);
    let first = program.layers().into_iter().next().unwrap_or_default();
    let clear = plain::run_range(program, first, PlainActs { rows, values }, |_, _| ())?;
    let mut error = 0.0_f64;
    let together = width / result.columns.len().max(1);
    for j in (0..width).step_by(width / 16 + 1) {
        let found = open(&result.columns[j / together])?;
        for row in 0..layout.rows() {
            let pair = found[layout.slot(text, row)];
            let v = if j % together == 0 { pair.re } else { pair.im };
            let v = result.gain[j] * v + result.offset[j];
            error = error.max((v - clear.values.row(row)[j]).abs());
        }
    }
    Ok(error)
}
