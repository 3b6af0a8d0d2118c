//! What all runs of a manifest share, read and predicted once.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hushed_fhe::calibrate::weights_sha256;
use hushed_fhe::plan::declared::{self, Circuit};
use hushed_fhe::plan::offer::{answered_logits, needed, sends_real_rows};
use hushed_fhe::plan::public_plan::Params;
use hushed_fhe::plan::{FheOptions, FhePlanReport, reference};
use hushed_fhe::run::job::{Bootstrapper, KeySpecs, bootstrap};
use hushed_fhe::{Choices, Division, FheError, FhePlan, MAX_BYTES, Prepared, can_run};
use hushed_model::{Model, ModelError, Program, TooLong};
use sha2::{Digest as _, Sha256};

use super::{FheJobError, PublicModel, read_plan, system};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;

/// The inputs of a run that do not depend on a request.
#[derive(Clone, Debug)]
pub struct ContextOptions {
    /// The model folder.
    pub model: PathBuf,
    /// The run manifest.
    pub plan: PathBuf,
    /// The calibration that the manifest was made with.
    pub calibration: PathBuf,
    /// The seed of the randomness of replies; made on first use and kept.
    pub secret: PathBuf,
    /// Bytes of memory that a run may use; the machine's memory if `None`.
    pub max_memory: Option<u64>,
    /// Threads; as many as the machine has if `None`.
    pub threads: Option<usize>,
}

/// A model, its calibration and its manifest in memory, for any number of runs ([`RunContext::run`]).
///
/// They are read once. A later change of the model folder, calibration or manifest on disk is not noticed: runs go on
/// with what was loaded until it is loaded again. The dry run of the plan is made at the first run and kept. So is what
/// runs make of the weights, which then takes their place in memory ([`Prepared`]).
pub struct RunContext {
    pub(super) plan: FhePlan,
    pub(super) params: Params,
    pub(super) choices: Choices,
    pub(super) secret: PathBuf,
    pub(super) threads: Option<usize>,
    max_memory: Option<u64>,
    predicted: OnceLock<Predicted>,
    weights: Mutex<Weights>,
}

/// A model's weights: as published until the first run, and then as runs read them.
enum Weights {
    Published(Box<Model>, Program),
    Prepared(Arc<Prepared>),
}

impl Weights {
    fn program(&self) -> &Program {
        match self {
            Weights::Published(_, program) => program,
            Weights::Prepared(prepared) => prepared.program(),
        }
    }
}

/// The result of the dry run of a plan.
pub(super) struct Predicted {
    pub(super) report: FhePlanReport,
    pub(super) bootstrapper: Arc<Bootstrapper>,
}

impl RunContext {
    /// Reads manifest, model and calibration, and checks that they belong together.
    ///
    /// # Errors
    /// [`ServeError::Model`]; [`FheJobError::OtherModel`] if the manifest was made for another model or calibration;
    /// [`FheJobError::Plan`], [`FheJobError::Choices`].
    pub fn load(options: &ContextOptions) -> Result<RunContext, ServeError> {
        let (plan, params) = read_plan(&options.plan)?;
        Self::of(plan, params, options)
    }

    /// Like [`RunContext::load`], for a manifest that has already been read.
    pub(super) fn of(plan: FhePlan, params: Params, options: &ContextOptions) -> Result<RunContext, ServeError> {
        let (model, program, choices) = fitting(&options.model, &options.calibration, &plan)?;
        Ok(RunContext {
            plan,
            params,
            choices,
            secret: options.secret.clone(),
            threads: options.threads,
            max_memory: options.max_memory,
            predicted: OnceLock::new(),
            weights: Mutex::new(Weights::Published(Box::new(model), program)),
        })
    }

    /// What the plan's placement costs; refused if it takes more memory than allowed.
    pub(super) fn predicted(&self) -> Result<&Predicted, ServeError> {
        let predicted = match self.predicted.get() {
            Some(predicted) => predicted,
            None => {
                let predicted = self.dry_run()?;
                self.predicted.get_or_init(|| predicted)
            }
        };
        let needed = predicted.report.memory.total();
        // If the machine cannot hold a run, the system would kill it after hours.
        let limit = self.max_memory.or_else(system::memory);
        match limit.filter(|&limit| limit < needed) {
            Some(limit) => Err(FheJobError::Memory { needed: needed >> 20, limit: limit >> 20 }.into()),
            None => Ok(predicted),
        }
    }

    /// The run, cut for so many machines at so many bytes per second.
    pub(super) fn divide(&self, report: &FhePlanReport, machines: (usize, f64)) -> Result<Division, ServeError> {
        let weights = self.weights();
        let program = weights.program();
        let division = Division::new((program, &self.choices), &self.params, &self.options(), report, machines);
        Ok(division.map_err(FheJobError::from)?)
    }

    fn options(&self) -> FheOptions {
        let plan = &self.plan;
        let all = std::thread::available_parallelism().map_or(1, usize::from);
        FheOptions {
            rows: plan.rows,
            texts: usize::MAX,
            lengths: plan.lengths,
            answer: plan.answer.unwrap_or_default(),
            per_place: plan.placement.per_place,
            max_memory: None,
            uplink: f64::INFINITY,
            prices: reference(self.threads.unwrap_or(all)),
            placement: Some(plan.placement.clone()),
        }
    }

    fn dry_run(&self) -> Result<Predicted, ServeError> {
        let (params, options) = (&self.params, self.options());
        let (bootstrapper, bootstrap) = bootstrap(params).map_err(FheJobError::from)?;
        // Made before the weights are prepared: bounds on logits follow from the published ones.
        let weights = self.weights();
        let program = weights.program();
        self.check_needed(program, &bootstrap, &options)?;
        let choices = &self.choices;
        let report = FhePlanReport::new(program, choices, false, params, &bootstrap, &options);
        Ok(Predicted { report: report.map_err(FheJobError::from)?, bootstrapper })
    }

    /// The model as runs read it, with the error of a run: simulated on the texts with which the manifest was made.
    pub(super) fn prepared(&self) -> Result<Arc<Prepared>, FheError> {
        let mut weights = self.weights();
        let prepared = match &*weights {
            Weights::Prepared(prepared) => return Ok(Arc::clone(prepared)),
            Weights::Published(model, program) => Arc::new(self.prepare(model, program)?),
        };
        *weights = Weights::Prepared(Arc::clone(&prepared));
        Ok(prepared)
    }

    fn prepare(&self, model: &Model, program: &Program) -> Result<Prepared, FheError> {
        let plan = &self.plan;
        let known = plan.canary.as_ref();
        let known = known.map(|canary| model.tokens(&canary.text, TooLong::Refuse));
        let tokenizer = model.public.tokenizer().map_err(ModelError::from)?;
        let texts = declared::texts(tokenizer, plan.rows, known.transpose()?);
        let circuit = Circuit {
            program,
            choices: &self.choices,
            params: &self.params,
            placement: &plan.placement,
            rows: plan.rows,
            lengths: plan.lengths,
            answer: plan.answer.unwrap_or_default(),
            input_bound: plan.input_bound,
            folded: Arc::default(),
        };
        Prepared::new(&circuit, &texts)
    }

    fn weights(&self) -> MutexGuard<'_, Weights> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that the manifest's keys, its reply and whether rows of tokens are sent are those that an offer of this
    /// model lists. With fewer keys a run would fail after hours; otherwise a reply could leave more than the answer.
    fn check_needed(&self, program: &Program, bootstrap: &KeySpecs, asked: &FheOptions) -> Result<(), ServeError> {
        let plan = &self.plan;
        let other = |what, planned, found| Err(FheJobError::OtherModel { what, planned, found }.into());
        let real_rows = sends_real_rows(program, plan.lengths);
        if real_rows != plan.real_rows {
            let said = |sent: bool| if sent { "sent" } else { "not sent" }.to_owned();
            return other("vector of real rows", said(plan.real_rows), said(real_rows));
        }
        let found = needed(program, &self.choices, &self.params, bootstrap, asked, &plan.placement);
        let (keys, mut reply) = found.map_err(FheJobError::from)?;
        // The manifest's simulated error may be larger; a smaller one was refused when it was read, and a reply with a
        // larger error is not sealed.
        reply.deviation = reply.deviation.max(plan.reply.deviation);
        let mut ours = plan.clone();
        ours.set_keys(&keys);
        if ours.keys != plan.keys {
            let (planned, found) = (plan.keys.len(), ours.keys.len());
            let differ = ours.keys.iter().filter(|key| !plan.keys.contains(key));
            let missing = differ.count();
            return other(
                "set of evaluation keys",
                format!("{planned} keys"),
                format!("{found} keys, of which the plan lacks {missing}"),
            );
        }
        if reply != plan.reply {
            let (planned, found) = (format!("{:?}", plan.reply), format!("{reply:?}"));
            return other("reply", planned, found);
        }
        Ok(())
    }
}

/// Loads the model and the calibration that the manifest was made for; fails with what does not match.
fn fitting(folder: &Path, calibration: &Path, plan: &FhePlan) -> Result<(Model, Program, Choices), ServeError> {
    let model = Model::load(folder)?;
    let other = |what, planned: String, found: String| FheJobError::OtherModel { what, planned, found };
    let sizes = |(layers, width, logits): (usize, usize, Option<usize>)| match logits {
        Some(logits) => format!("{layers} layers of {width} columns, {logits} logits"),
        None => format!("{layers} layers of {width} columns"),
    };
    let program = model.program_of_all_rows();
    can_run(&program).map_err(FheJobError::from)?;
    let logits = answered_logits(&program, plan.answer.unwrap_or_default());
    let found = (program.layers().len(), program.width(), logits);
    let planned = (plan.layers, plan.width, plan.logits);
    if found != planned {
        return Err(other("model", sizes(planned), sizes(found)).into());
    }
    let public = PublicModel::from_folder(folder, &model)?.hash();
    if public.to_string() != plan.public_sha256 {
        let planned = plan.public_sha256.clone();
        return Err(other("public model", planned, public.to_string()).into());
    }
    let bytes = files::read(calibration, MAX_BYTES as u64)?;
    let found = Digest(Sha256::digest(&bytes).into()).to_string();
    if found != plan.calibration_sha256 {
        let planned = plan.calibration_sha256.clone();
        return Err(other("calibration", planned, found).into());
    }
    let choices = Choices::from_json(&bytes).map_err(FheJobError::from)?;
    choices.check(&program).map_err(FheJobError::from)?;
    let weights = weights_sha256(folder).map_err(|source| ServeError::File {
        operation: "read",
        path: folder.to_owned(),
        source,
    })?;
    choices.check_model(&weights).map_err(FheJobError::from)?;
    Ok((model, program, choices))
}
