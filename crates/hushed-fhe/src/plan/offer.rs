//! The public plan that a model's owner offers to clients, made from a cost report and from the calibration.

use std::sync::Arc;

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::{CkksParams, Scale};
use hushed_model::{Linear, Program, StepId, TokenIds, here};

use crate::choices::Choices;
use crate::dry::{DryRun, FheOptions, dry_run, key_specs};
use crate::error::FheError;
use crate::hex::hex;
use crate::inputs::bound_of_inputs;
use crate::ops::head;
use crate::pass::head_is_public;
use crate::plan::declared::{Circuit, declared};
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Canary, FhePlan, Lengths, PLAN_VERSION, ReplyForm, reply_deviation};
use crate::resolution::{self, largest};
use crate::run::reply::fewest_limbs;

/// The inputs of an offer.
pub struct Offer<'a> {
    /// The model, with weights.
    pub program: &'a Program,
    /// Its calibration.
    pub choices: &'a Choices,
    /// Name of the parameter set ([`crate::plan::public_plan::named`]).
    pub parameters: &'a str,
    /// The parameter set.
    pub params: &'a Arc<CkksParams>,
    /// The keys of its bootstrap.
    pub bootstrap: &'a KeySpecs,
    /// The options of the report: rows, lengths and the rest.
    pub options: &'a FheOptions,
    /// Where the run refreshes, from the report.
    pub placement: &'a Placement,
    /// SHA-256 of the public model.
    pub public_sha256: [u8; 32],
    /// SHA-256 of the calibration's file.
    pub calibration_sha256: [u8; 32],
    /// Texts of ordinary use, with which a run's error is simulated ([`crate::plan::declared`]).
    pub texts: &'a [TokenIds],
    /// A text with a known answer.
    pub canary: Option<Canary>,
    /// Who sees what, for human readers.
    pub exposures: Vec<String>,
}

impl Offer<'_> {
    /// The plan.
    ///
    /// # Errors
    /// [`FheError`] if the model has no numbers, the choices belong to another model, the placement does not run, no
    /// text is within the calibration, or too few bits are left of the answers.
    pub fn plan(&self) -> Result<FhePlan, FheError> {
        let (program, params) = (self.program, self.params);
        self.choices.check(program)?;
        let (keys, mut reply) = needed(program, self.choices, params, self.bootstrap, self.options, self.placement)?;
        let rows = self.options.rows;
        let input_bound = bound_of_inputs(program, rows)?;
        let circuit = Circuit {
            program,
            choices: self.choices,
            params,
            placement: self.placement,
            rows,
            lengths: self.options.lengths,
            answer: self.options.answer,
            input_bound,
            folded: Arc::default(),
        };
        reply.deviation = reply.deviation.max(declared(circuit.deviation(self.texts)?));
        let logits = answered_logits(program, self.options.answer);
        resolution::check(program, &reply, params, logits.is_some())?;
        let mut plan = FhePlan {
            version: PLAN_VERSION,
            parameters: self.parameters.to_owned(),
            parameters_hash: hex(params.rlwe().hash()),
            rows,
            width: program.width(),
            layers: program.layers().len(),
            logits,
            answer: program.vocabulary().map(|_| self.options.answer),
            real_rows: sends_real_rows(program, self.options.lengths),
            input_bound,
            lengths: self.options.lengths,
            placement: self.placement.clone(),
            reply,
            keys: Vec::new(),
            public_sha256: hex(&self.public_sha256),
            calibration_sha256: hex(&self.calibration_sha256),
            canary: self.canary.clone().map(Canary::rounded),
            exposures: self.exposures.clone(),
        };
        plan.set_keys(&keys);
        plan.check(params)?;
        Ok(plan)
    }
}

/// The evaluation keys that a run needs and the form of its reply: what a plan must say of both, and what a server
/// checks a plan against before it follows it. The reply's error is the least that may be declared; a plan declares
/// more if the simulation of its circuit gives more. `bootstrap`: the keys of a bootstrap.
///
/// # Errors
/// As [`dry_run`] and [`head_is_public`]; [`FheError::Choices`] without layers, [`FheError::Model`] without numbers.
pub fn needed(
    program: &Program,
    choices: &Choices,
    params: &Arc<CkksParams>,
    bootstrap: &KeySpecs,
    options: &FheOptions,
    placement: &Placement,
) -> Result<(KeySpecs, ReplyForm), FheError> {
    head_is_public(program, options.answer)?;
    let run = dry_run(program, choices, params, options, placement)?;
    let keys = key_specs(&run, params, bootstrap)?;
    Ok((keys, reply_form(program, choices, params, &run, options.answer)?))
}

/// The form of what leaves the server at the end of this run, with the primes that the answer needs.
pub(crate) fn reply_form(
    program: &Program,
    choices: &Choices,
    params: &CkksParams,
    run: &DryRun,
    answer: AnswerRows,
) -> Result<ReplyForm, FheError> {
    let most = match (program.classifier(), program.classes(), program.vocabulary(), answer) {
        (Some(classifier), ..) => head::magnitude(StepId::outside("head"), classifier)?,
        (None, Some(classes), ..) => largest_logit(program, classes)?,
        (None, None, Some(head), AnswerRows::Logits) => largest_logit(program, head)?,
        _ => largest(program, choices)?,
    };
    // Rounded up to a power of two: the largest possible number of a column then reveals little of the weights.
    let magnitude = most.log2().ceil().exp2();
    let scale = Scale::new(run.reply_scale)?;
    Ok(ReplyForm {
        ciphertexts: run.reply,
        limbs: fewest_limbs(params, scale, magnitude).min(run.reply_limbs),
        scale: run.reply_scale,
        magnitude,
        deviation: reply_deviation(params, magnitude),
    })
}

/// Logits per answer: those of a classifier, or of a decoder that is read at its logits.
#[must_use]
pub fn answered_logits(program: &Program, answer: AnswerRows) -> Option<usize> {
    let classes = program.classes().map(|classes| classes.outputs);
    let tokens = program.vocabulary().map(|head| head.outputs);
    classes.or(tokens.filter(|_| answer == AnswerRows::Logits))
}

/// Whether a decoder's request has the vector of real rows ([`FhePlan::real_rows`]).
#[must_use]
pub fn sends_real_rows(program: &Program, lengths: Lengths) -> bool {
    program.vocabulary().is_some() && lengths.masks(program)
}

/// An upper bound on all logits: the last norm gives rows of length √d before its gains.
fn largest_logit(program: &Program, head: &Linear) -> Result<f64, FheError> {
    let at = StepId::outside("head");
    let (weights, norm) = (here(at, &head.weights)?, program.norms().last());
    let (_, norm) = *here(at, &norm)?;
    let (gain, offset) = (here(at, &norm.gain)?, here(at, &norm.offset)?);
    let most = |row: usize| {
        let columns = || weights.row(row).iter().map(|&w| f64::from(w));
        let squares = columns().zip(gain.iter()).map(|(w, &g)| (w * f64::from(g)).powi(2));
        let constant = columns().zip(offset.iter()).map(|(w, &o)| w * f64::from(o)).sum::<f64>();
        let bias = head.bias.as_ref().and_then(|bias| bias.get(row)).copied().unwrap_or(0.0);
        // With room for the error of the norm's inverse root.
        1.01 * (squares.sum::<f64>() * norm.width as f64).sqrt() + (constant + f64::from(bias)).abs()
    };
    Ok((0..weights.rows()).map(most).fold(1.0, f64::max))
}
