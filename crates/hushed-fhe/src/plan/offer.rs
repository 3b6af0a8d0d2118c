//! The public plan of a model: what its owner offers clients, made from a report of its cost and from the calibration.

use std::sync::Arc;

use hushed_ckks::keys::EvalKeyPlan;
use hushed_ckks::{CkksParams, Scale};
use hushed_model::{Embedding, ModelError, Network, Norm, StepId, TokenIds, here};
use rayon::prelude::*;

use crate::choices::{Choices, ChoicesError};
use crate::error::FheError;
use crate::ops::head;
use crate::plan::declared::Circuit;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{Canary, FhePlan, PLAN_VERSION, ReplyForm, hex, reply_deviation};
use crate::plan::{DryRun, FheOptions, dry_run, key_plan};
use crate::run::reply::fewest_limbs;

/// Room above the greatest number that a client can send.
const MARGIN: f64 = 1.0 + 1e-6;

/// What an offer is made of.
pub struct Offer<'a> {
    /// The model, with its numbers.
    pub network: &'a Network,
    /// Its calibration.
    pub choices: &'a Choices,
    /// Name of the parameter set ([`crate::plan::public_plan::named`]).
    pub parameters: &'a str,
    /// The same.
    pub params: &'a Arc<CkksParams>,
    /// The keys of a bootstrap of it.
    pub bootstrap: &'a EvalKeyPlan,
    /// Rows, lengths and the rest that the report was asked for.
    pub options: &'a FheOptions,
    /// Where the run refreshes: the report's.
    pub placement: &'a Placement,
    /// SHA-256 of the public model.
    pub public_sha256: [u8; 32],
    /// SHA-256 of the calibration's file.
    pub calibration_sha256: [u8; 32],
    /// Texts of ordinary use: what a run errs by is simulated with them ([`crate::plan::declared`]).
    pub texts: &'a [TokenIds],
    /// A text whose answer is known.
    pub canary: Option<Canary>,
    /// Who sees what, for people.
    pub exposures: Vec<String>,
}

impl Offer<'_> {
    /// The plan.
    ///
    /// # Errors
    /// [`FheError`]: a model without numbers, choices of another model, a placement that does not run, no text within
    /// the calibration.
    pub fn plan(&self) -> Result<FhePlan, FheError> {
        let (network, params) = (self.network, self.params);
        self.choices.check(network)?;
        let (keys, mut reply) = needed(
            network,
            self.choices,
            params,
            self.bootstrap,
            self.options,
            self.placement,
        )?;
        let rows = self.options.rows;
        let input_bound = input_bound(&network.embedding, &network.embedding_norm, rows)?;
        let circuit = Circuit {
            network,
            choices: self.choices,
            params,
            placement: self.placement,
            rows,
            lengths: self.options.lengths,
            input_bound,
        };
        reply.deviation = reply.deviation.max(circuit.deviation(self.texts)?);
        let mut plan = FhePlan {
            version: PLAN_VERSION,
            parameters: self.parameters.to_owned(),
            parameters_hash: hex(params.rlwe().hash()),
            rows,
            width: network.embedding.width,
            layers: network.layers.len(),
            logits: network.classifier.as_ref().map(|c| c.classes.outputs),
            input_bound,
            lengths: self.options.lengths,
            placement: self.placement.clone(),
            reply,
            keys: Vec::new(),
            public_sha256: hex(&self.public_sha256),
            calibration_sha256: hex(&self.calibration_sha256),
            canary: self.canary.clone(),
            exposures: self.exposures.clone(),
        };
        plan.set_keys(&keys);
        plan.check(params)?;
        Ok(plan)
    }
}

/// The evaluation keys that a run needs and what it replies: what a plan must say of both, and what a server compares a
/// plan with before it works by it. Of the reply's error it says the least that is declared; a plan declares more where
/// the simulation of its circuit errs by more. `bootstrap`: the keys of a bootstrap.
///
/// # Errors
/// As [`dry_run`]; [`FheError::Choices`] without layers, [`FheError::Model`] without numbers.
pub fn needed(
    network: &Network,
    choices: &Choices,
    params: &Arc<CkksParams>,
    bootstrap: &EvalKeyPlan,
    options: &FheOptions,
    placement: &Placement,
) -> Result<(EvalKeyPlan, ReplyForm), FheError> {
    let run = dry_run(network, choices, params, options, placement)?;
    let keys = key_plan(&run, params, bootstrap)?;
    Ok((keys, reply_form(network, choices, params, &run)?))
}

/// What leaves the server at the end of this run, with the primes that the answer needs.
pub(crate) fn reply_form(
    network: &Network,
    choices: &Choices,
    params: &CkksParams,
    run: &DryRun,
) -> Result<ReplyForm, FheError> {
    let most = match &network.classifier {
        Some(classifier) => head::magnitude(StepId::outside("head"), classifier)?,
        None => largest(network, choices)?,
    };
    // A power of two: what the largest number of a column could be says little of the weights.
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

/// No number of a pooled row is larger.
fn largest(network: &Network, choices: &Choices) -> Result<f64, FheError> {
    let at = StepId::outside("pool");
    let none = || ChoicesError::Unusable {
        what: "the calibration has no layers".to_owned(),
    };
    let layer = network.layers.last().ok_or_else(none)?;
    let bound = choices.layers.last().ok_or_else(none)?;
    let bound = bound.feed_forward_norm.bound;
    let norm = &layer.feed_forward_norm;
    let (gain, offset) = (here(at, &norm.gain)?, here(at, &norm.offset)?);
    let columns = gain.iter().zip(offset.iter());
    let most = columns.map(|(&g, &o)| f64::from(g).abs() * bound + f64::from(o).abs());
    Ok(most.fold(1.0, f64::max))
}

/// No number that a client sends is larger: the greatest of all token vectors at all positions, after the first norm.
/// All three are public.
///
/// # Errors
/// [`ModelError::ShapesOnly`].
pub fn input_bound(e: &Embedding, norm: &Norm, rows: usize) -> Result<f64, ModelError> {
    let at = StepId::outside("embed");
    let (tokens, offsets) = (here(at, &e.tokens)?, here(at, &e.offsets)?);
    let (gain, offset) = (here(at, &norm.gain)?, here(at, &norm.offset)?);
    let positions = offsets.rows().min(rows);
    let width = e.width as f64;
    let greatest = |token: usize| {
        let vector = tokens.row(token);
        let mut x = vec![0.0; e.width];
        (0..positions).fold(0.0_f64, |most, position| {
            let pairs = vector.iter().zip(offsets.row(position));
            for (x, (&t, &p)) in x.iter_mut().zip(pairs) {
                *x = f64::from(t) + f64::from(p);
            }
            let mean = x.iter().sum::<f64>() / width;
            let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width;
            let root = (variance + norm.epsilon).sqrt();
            let affine = x.iter().zip(gain.iter()).zip(offset.iter());
            affine.fold(most, |most, ((v, &g), &o)| {
                most.max((f64::from(g) * (v - mean) / root + f64::from(o)).abs())
            })
        })
    };
    let most = (0..tokens.rows()).into_par_iter().map(greatest);
    Ok(most.reduce(|| 0.0, f64::max).max(1e-3) * MARGIN)
}
