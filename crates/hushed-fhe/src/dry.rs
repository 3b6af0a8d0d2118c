//! A dry run: a model on shapes, counted. What a plan is made for, and the keys that follow.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_ckks::poly::Arithmetic;
use hushed_model::{Program, StepId};
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::choices::Choices;
use crate::error::FheError;
use crate::machines::trace::TracedTape;
use crate::ops::mask::RowsKnown;
use crate::ops::packed::rows::PackedRows;
use crate::packing::{Interleave, Layout, SequencePacking};
use crate::pass::{Pass, Texts};
use crate::plan::Prices;
use crate::plan::keys::KeyDemand;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::simulate::{Counts, Simulator, Vector};
use crate::slots::Slots;

/// What a plan is made for, besides the model.
#[derive(Clone, Debug)]
pub struct FheOptions {
    /// Rows per text, padding included: a power of two.
    pub rows: usize,
    /// Texts of the batch, the canary included; capped at the number of places.
    pub texts: usize,
    /// What the server learns of lengths.
    pub lengths: Lengths,
    /// The rows of a text at which a decoder is read.
    pub answer: AnswerRows,
    /// Most texts that share the rows of a place of a batch ([`Placement::per_place`]).
    pub per_place: usize,
    /// Bytes of memory the server may use: what does not fit is spilled, and a plan that cannot fit is refused.
    pub max_memory: Option<u64>,
    /// Upload rate in bytes per second. It decides whether uploading at the lowest level and refreshing is quicker than
    /// uploading at the level at which the columns are read.
    pub uplink: f64,
    /// The cost of each operation here.
    pub prices: Prices,
    /// A placement to use as it is, without a search.
    pub placement: Option<Placement>,
}

/// The result of a dry run: its counts, and the form of what leaves the server.
#[derive(Clone, Debug)]
pub struct DryRun {
    /// The counters.
    pub counts: Counts,
    /// Ciphertexts of the reply.
    pub reply: usize,
    /// Primes of each of them.
    pub reply_limbs: usize,
    /// Their scale.
    pub reply_scale: f64,
}

/// Runs a model on shapes and counts. Columns uploaded with fewer primes than the first layer reads are refreshed
/// first.
///
/// # Errors
/// Fails if a placement lacks levels, the choices belong to another model, or layers have no numbers.
pub fn dry_run(
    program: &Program,
    choices: &Choices,
    params: &Arc<CkksParams>,
    options: &FheOptions,
    placement: &Placement,
) -> Result<DryRun, FheError> {
    let on = Simulator::new(params, params.slots())?.counting();
    Ok(counted_alone(on, program, choices, options, placement)?.0)
}

/// As [`dry_run`], with its tapes.
///
/// # Errors
/// As [`dry_run`].
pub(crate) fn traced_run(
    program: &Program,
    choices: &Choices,
    params: &Arc<CkksParams>,
    options: &FheOptions,
    placement: &Placement,
) -> Result<(DryRun, Vec<TracedTape>), FheError> {
    let on = Simulator::new(params, params.slots())?.counting();
    counted_alone(on.tracing(), program, choices, options, placement)
}

/// Tries the fits of a run. Where runs are counted, stand-ins take their place ([`Slots::fitted`]), so that a
/// calibration without a fit would be refused only by the server.
///
/// # Errors
/// As [`dry_run`]; [`crate::choices::ChoicesError::Unfit`] for a function without a fit.
pub(crate) fn check_fits(
    program: &Program,
    choices: &Choices,
    params: &Arc<CkksParams>,
    options: &FheOptions,
    placement: &Placement,
) -> Result<(), FheError> {
    let on = Simulator::new(params, params.slots())?.counting();
    counted_alone(on.trying_fits(), program, choices, options, placement).map(drop)
}

/// Counts on one thread: counting is so little work that threads would wait for each other's counts, and for jobs. A
/// search counts hundreds of times; callers on other threads do not wait for each other.
fn counted_alone(
    on: Simulator,
    program: &Program,
    choices: &Choices,
    options: &FheOptions,
    placement: &Placement,
) -> Result<(DryRun, Vec<TracedTape>), FheError> {
    thread_local! {
        static ALONE: Option<ThreadPool> = ThreadPoolBuilder::new().num_threads(1).build().ok();
    }
    let run = |on: Simulator| {
        let run = counted(&on, program, choices, options, placement)?;
        Ok((run, on.traced()))
    };
    ALONE.with(|alone| match alone {
        Some(pool) => pool.install(|| run(on.repeating())),
        None => run(on),
    })
}

pub(crate) fn counted(
    on: &Simulator,
    program: &Program,
    choices: &Choices,
    options: &FheOptions,
    placement: &Placement,
) -> Result<DryRun, FheError> {
    let params = on.params();
    let layout = Layout::new(params.slots(), options.rows, placement.columns)?;
    on.at(StepId::outside("input"));
    let width = program.width();
    let (rows, vectors) = match (placement.columns, options.lengths) {
        (1, _) if program.vocabulary().is_some() => {
            let layout = Interleave::new(params.slots(), options.rows)?;
            let real = options.lengths.masks(program);
            let real = real.then(|| on.vector(Vec::new(), placement.upload));
            (Texts::Last(layout, options.answer, real.transpose()?), width)
        }
        (1, lengths) => {
            let layout = Interleave::new(params.slots(), options.rows)?;
            let rows = match lengths.encrypted() {
                true => RowsKnown::private(layout, on.vector(Vec::new(), placement.upload)?),
                false => {
                    let lengths = vec![options.rows; layout.texts()];
                    RowsKnown::shared(layout, SequencePacking::one_each(options.rows, placement.per_place, &lengths)?)?
                }
            };
            (Texts::Columns(rows), width)
        }
        (columns, _) if program.vocabulary().is_some() => {
            let texts = Texts::PackedLast(layout, options.answer);
            (texts, width.div_ceil(2 * columns))
        }
        (columns, lengths) => {
            let rows = match lengths.encrypted() {
                true => PackedRows::private(layout, on.vector(Vec::new(), placement.upload)?),
                false => PackedRows::new(layout, vec![options.rows; layout.texts()])?,
            };
            (Texts::Packed(rows), width.div_ceil(2 * columns))
        }
    };
    let mut pass = Pass::over(on, (program, choices), placement.clone(), rows, 1.0)?;
    let vectors = match placement.columns {
        1 => columns(on, vectors, placement.upload)?,
        _ => (0..vectors).map(|_| on.vector(Vec::new(), placement.upload)).collect::<Result<Vec<Vector>, _>>()?,
    };
    let answer = pass.run(vectors)?.vectors;
    let first = answer.first();
    Ok(DryRun {
        reply: answer.len(),
        reply_limbs: first.map_or(0, |v| on.limbs(v)),
        reply_scale: first.map_or(0.0, |v| on.scale(v).value()),
        counts: on.tally().counts(),
    })
}

/// The columns of an upload, split from ciphertexts of two by a conjugation each ([`crate::Encrypted::split`]).
fn columns(on: &Simulator, width: usize, limbs: usize) -> Result<Vec<Vector>, FheError> {
    on.at(StepId::outside("input.columns"));
    let mut columns = Vec::with_capacity(width + 1);
    while columns.len() < width {
        for part in on.parts(&on.vector(Vec::new(), limbs)?)? {
            columns.push(on.read_as(part, 2.0)?);
        }
    }
    columns.truncate(width);
    Ok(columns)
}

/// The evaluation keys of a run and those of its bootstraps.
///
/// # Errors
/// As [`KeyDemand::specs`].
pub fn key_specs(run: &DryRun, params: &CkksParams, bootstrap: &KeySpecs) -> Result<KeySpecs, FheError> {
    KeyDemand::of(params, &run.counts).specs(params, bootstrap)
}
