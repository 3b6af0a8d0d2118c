//! The cost and exposure of a run under CKKS, computed in advance: the same code on shapes, with this machine's prices.
//!
//! [`FhePlanReport::new`] runs the model in a simulation that only counts ([`Simulator::counting`]) and totals per
//! step: levels (the ledger of MOAI's Table 3), bootstraps, key switches, products, seconds, memory. Counts equal those
//! of a run exactly; seconds are counts times prices ([`Prices`]); memory is the peak of vectors in a step,
//! plus keys and matrices. A search ([`search`]) places refreshes and decides how much is held at once.

mod assumed;
mod curve;
pub mod declared;
mod exposure;
pub mod keys;
mod measure;
mod memory;
pub mod offer;
pub(crate) mod packed;
pub mod placement;
mod prices;
pub mod public_plan;
mod search;
pub(crate) mod steps;
mod table;
mod ternary;
#[cfg(test)]
pub(crate) mod tests;
mod timetable;

use std::sync::Arc;

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::{Ciphertext, CkksParams, SeededCiphertext};
use hushed_model::Program;
use hushed_rlwe::hybrid::KeyUse;
use serde::Serialize;

pub use crate::dry::{DryRun, FheOptions, dry_run, key_specs};
pub use assumed::assumed_choices;
pub use curve::{Curve, CurvePoint, Goal};
pub use exposure::FheExposure;
pub use measure::{measure_prices, pace};
pub use memory::FheMemory;
pub use packed::packed_placement;
pub use prices::{Point, Prices};
pub use search::Alternative;
pub(crate) use search::smaller::shortened;
pub use steps::{Step, Work};
pub use table::reference;
pub use ternary::{Form, TernaryMaps};
pub use timetable::Timetable;

use super::choices::Choices;
use super::error::FheError;
use super::simulate::{Op, Simulator};
use super::slots::Slots;
use crate::dry::check_fits;
use crate::packing::Layout;
use crate::plan::offer::{answered_logits, reply_form};
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, ReplyForm};
use crate::tape::encoder::{has_rms_norms, least_upload};
use search::smaller::{THIN_ROWS, thin};
use search::{Bounds, Dry};

/// What a run will cost and reveal.
#[derive(Clone, Debug, Serialize)]
pub struct FhePlanReport {
    /// `fhe`.
    pub protocol: &'static str,
    /// Name of the parameter set.
    pub parameters: String,
    /// log2 of its largest modulus.
    pub log2_qp: f64,
    /// Layers of the model.
    pub layers: usize,
    /// Columns of the model.
    pub width: usize,
    /// Logits per answer, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logits: Option<usize>,
    /// The rows a decoder is read at; none for an encoder.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerRows>,
    /// Rows per text.
    pub rows: usize,
    /// Texts of the batch.
    pub texts: usize,
    /// Texts that fit at most, if they share places as far as the placement lets them: a batch costs the same with
    /// fewer.
    pub places: usize,
    /// Whether degrees and steps are assumed instead of calibrated.
    pub assumed: bool,
    /// The chosen placement.
    pub placement: Placement,
    /// How the layers that are declared ternary are computed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ternary: Vec<TernaryMaps>,
    /// The placements that were tried.
    pub alternatives: Vec<Alternative>,
    /// The ledger, step by step.
    pub steps: Vec<Step>,
    /// The same per visit, in the order of a run.
    #[serde(skip)]
    pub timetable: Arc<Timetable>,
    /// The sum over all steps.
    pub work: Work,
    /// Costs per text: the totals divided by `texts`, whether or not all places are full.
    pub per_text: PerText,
    /// Rotations with keys of their own, besides those of bootstraps.
    pub rotation_keys: usize,
    /// Bytes of all evaluation keys as uploaded, once for all batches of a client.
    pub key_bytes: u64,
    /// Bytes of a batch's upload.
    pub bytes_up: u64,
    /// Bytes of its reply.
    pub bytes_down: u64,
    /// The form of a reply: how large its numbers may be, and how wrong.
    pub reply: ReplyForm,
    /// Bits after the binary point that a client keeps of the reply.
    pub reply_bits: u32,
    /// Memory of the server.
    pub memory: FheMemory,
    /// Peak of bytes on the server's disk, besides keys, checkpoint and reply.
    pub disk: u64,
    /// log2 of the probability that a bootstrap of this batch fails.
    pub failure_log2: f64,
    /// Who sees what.
    pub exposures: Vec<FheExposure>,
    /// The prices that the seconds follow from.
    pub prices: Prices,
}

/// Costs per text of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerText {
    /// Seconds, with the threads that the prices are for.
    pub seconds: f64,
    /// Seconds times threads.
    pub core_seconds: f64,
    /// Bootstraps.
    pub bootstraps: f64,
    /// Key switches outside bootstraps.
    pub key_switches: f64,
    /// Bytes uploaded.
    pub bytes_up: f64,
    /// Bytes of the reply.
    pub bytes_down: f64,
}

impl FhePlanReport {
    /// The plan of a batch. `assumed`: the choices are [`assumed_choices`]. `bootstrap`: the keys of a bootstrap.
    ///
    /// # Errors
    /// Fails if no placement runs or none fits, the choices belong to another model or, unless assumed, have a function
    /// without a fit, or layers have no numbers.
    pub fn new(
        program: &Program,
        choices: &Choices,
        assumed: bool,
        params: &Arc<CkksParams>,
        bootstrap: &KeySpecs,
        options: &FheOptions,
    ) -> Result<FhePlanReport, FheError> {
        let report = FhePlanReport::unfitted(program, choices, assumed, params, bootstrap, options)?;
        if !assumed {
            check_fits(program, choices, params, options, &report.placement)?;
        }
        Ok(report)
    }

    /// As [`FhePlanReport::new`], without a check of the fits.
    fn unfitted(
        program: &Program,
        choices: &Choices,
        assumed: bool,
        params: &Arc<CkksParams>,
        bootstrap: &KeySpecs,
        options: &FheOptions,
    ) -> Result<FhePlanReport, FheError> {
        let columns = options.placement.as_ref().map_or(1, |p| p.columns);
        let layout = Layout::new(params.slots(), options.rows, columns)?;
        let per_place = options.placement.as_ref().map_or(options.per_place, |p| p.per_place);
        let (width, places) = (program.width(), layout.texts() * per_place.max(1));
        let texts = options.texts.min(places);
        let upload = |placement: &Placement| {
            // Two columns per ciphertext, or vectors of packed rows; and the mask of real rows.
            let vectors = width.div_ceil(2 * placement.columns);
            let sent = vectors + usize::from(options.lengths.masks(program));
            SeededCiphertext::list_bytes(params, placement.upload, sent) as u64
        };
        let memory = |run: &DryRun, steps: &[Step]| -> Result<FheMemory, FheError> {
            let keys = key_bytes(&key_specs(run, params, bootstrap)?, params)?;
            let vectors = steps.iter().map(|s| s.peak).max().unwrap_or(0);
            let around = FheMemory::around(params, program, options.answer, keys);
            Ok(around.with_vectors(vectors, run.counts.disk > 0))
        };
        let priced = |program: &Program, choices: &Choices, placement: &Placement| {
            let run = dry_run(program, choices, params, options, placement)?;
            // How many vectors are refreshed together when columns are.
            let wide = match placement.columns {
                1 => width,
                columns => 2 * width.div_ceil(2 * columns),
            };
            let steps = steps::steps(&run.counts, params, &options.prices, wide);
            let memory = memory(&run, &steps)?;
            Ok::<_, FheError>((run, steps, memory))
        };
        let whole = |placement: &Placement| priced(program, choices, placement);
        let (placement, alternatives, (run, steps, memory)) = match &options.placement {
            Some(placement) => (placement.clone(), Vec::new(), whole(placement)?),
            None => {
                let all = (program, choices);
                // Layers are alike: one with a feed-forward, and the last one, decide as well as all of them.
                let mut layers = program.feed_forwards();
                let first = layers.position(|f| f.is_some()).unwrap_or(0);
                let (program, choices) = shortened(program, choices, first + 2);
                let mut dry = |placement: &Placement| -> Result<Dry, FheError> {
                    let (_, steps, memory) = priced(&program, &choices, placement)?;
                    let seconds: f64 = steps.iter().map(|s| s.work.seconds).sum();
                    Ok(Dry { seconds: seconds + upload(placement) as f64 / options.uplink, memory: memory.total() })
                };
                let on = Simulator::new(params, params.slots())?.counting();
                let (thin_program, thin_choices) = match program.vocabulary() {
                    // Levels depend on which maps are ternary and on the steps of each layer's norms.
                    Some(_) => (all.0.clone(), all.1.clone()),
                    None => thin(all.0, all.1),
                };
                let least = FheOptions { rows: THIN_ROWS, ..options.clone() };
                let mut enough = |placement: &Placement| {
                    let placement = Placement { scores_baby: 1, attend_baby: 1, ..placement.clone() };
                    dry_run(&thin_program, &thin_choices, params, &least, &placement).map(drop)
                };
                let head = program.attentions().next().map_or(1, |a| a.heads.width);
                let mut bounds = Bounds {
                    floor: on.floor(),
                    upload: least_upload(&on, &program)?,
                    top: on.top(),
                    rows: options.rows,
                    room: options.max_memory,
                    pairs: may_pair(&program),
                };
                let start = Placement::plain(on.top(), options.rows, head);
                let start = Placement { per_place: options.per_place, ..start };
                let search = &mut |bounds: &Bounds| {
                    let (placement, tried) = search::search(&mut dry, &mut enough, &start, bounds)?;
                    let found = whole(&placement)?;
                    Ok::<_, FheError>((placement, tried, found))
                };
                let mut found = search(&bounds)?;
                // All layers may need more keys: a rotation done often enough gets another, quicker key.
                let more = found.2.2.total().saturating_sub(chosen_memory(&found.1));
                if let Some(room) = options.max_memory.filter(|&room| found.2.2.total() > room) {
                    bounds.room = Some(room.saturating_sub(more));
                    found = search(&bounds)?;
                }
                found
            }
        };
        let timetable = Timetable::new(&run.counts, params, &options.prices);
        let keys = key_specs(&run, params, bootstrap)?;
        let mut work = Work::default();
        for step in &steps {
            work.add(&step.work);
        }
        if let Some(most) = options.max_memory.filter(|&most| memory.total() > most) {
            return Err(FheError::too_large(most, memory.total()));
        }
        let bytes_up = upload(&placement);
        let reply = reply_form(program, choices, params, &run, options.answer)?;
        let bytes_down = Ciphertext::list_bytes(params, reply.limbs, reply.ciphertexts) as u64;
        let each = |x: f64| x / texts.max(1) as f64;
        let bootstraps = run.counts.total(Op::Bootstrap);
        Ok(FhePlanReport {
            protocol: "fhe",
            parameters: params.name().to_owned(),
            log2_qp: params.rlwe().log2_qp(),
            layers: program.layers().len(),
            width,
            logits: answered_logits(program, options.answer),
            answer: program.vocabulary().map(|_| options.answer),
            rows: options.rows,
            texts,
            places,
            assumed,
            ternary: ternary::ternary_maps(program, &placement),
            alternatives,
            per_text: PerText {
                seconds: each(work.seconds),
                core_seconds: each(work.seconds * options.prices.threads as f64),
                bootstraps: each(work.bootstraps() as f64),
                key_switches: each(work.key_switches() as f64),
                bytes_up: each(bytes_up as f64),
                bytes_down: each(bytes_down as f64),
            },
            work,
            rotation_keys: rotations(&keys, bootstrap),
            key_bytes: keys.artefact_bytes(params.rlwe()).map_err(hushed_ckks::CkksError::from)? as u64,
            bytes_up,
            bytes_down,
            reply_bits: reply.bits(params),
            reply,
            memory,
            disk: run.counts.disk,
            failure_log2: (bootstraps.max(1) as f64).log2() + params.log2_bootstrap_failure(),
            exposures: exposure::exposures(program, choices, options, layout.texts()),
            prices: options.prices.clone(),
            timetable: Arc::new(timetable),
            steps,
            placement,
        })
    }

    /// The ledger of one layer as in MOAI's Table 3, one line per step; `None` gives the steps outside the layers.
    #[must_use]
    pub fn ledger(&self, layer: Option<usize>) -> Vec<&Step> {
        let of = |step: &&Step| step.site.layer() == layer;
        self.steps.iter().filter(of).collect()
    }
}

/// Memory in bytes that the search found for its choice.
fn chosen_memory(tried: &[Alternative]) -> u64 {
    let chosen = tried.iter().filter(|alternative| alternative.chosen);
    chosen.filter_map(|a| a.memory).max().unwrap_or(0)
}

/// Bytes of keys in memory.
fn key_bytes(keys: &KeySpecs, params: &CkksParams) -> Result<u64, FheError> {
    let bytes = keys.memory_bytes(params.rlwe());
    Ok(bytes.map_err(hushed_ckks::CkksError::from)? as u64)
}

/// Number of rotations that have a key besides those of bootstraps.
fn rotations(keys: &KeySpecs, bootstrap: &KeySpecs) -> usize {
    let own = keys.iter().filter(|key| !bootstrap.iter().any(|b| b == *key));
    let mut elements: Vec<usize> = own
        .filter_map(|key| match key.key {
            KeyUse::Galois(element) => Some(element),
            _ => None,
        })
        .collect();
    elements.sort_unstable();
    elements.dedup();
    elements.len()
}

/// Whether columns of this program may be paired: those of a decoder with RMSNorm.
fn may_pair(program: &Program) -> bool {
    has_rms_norms(program) && program.width().is_multiple_of(2)
}
