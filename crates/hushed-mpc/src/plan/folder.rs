//! The plans for a folder's model, as printed by `hushed plan`.

use std::path::Path;

use hushed_model::{Model, ModelError, Public, PublicFiles, Task, counted};

use super::{Before, Memory, Pace, Plan};
use crate::formats::{MAX_KEYS, is_long, longest, usual};
use crate::{Answers, Later, Link, MAX_PREFIX, Prefix, RunError, SessionTerms, Terms};

/// The fewest tokens of a text with special ones: those two and one of its own.
const FEWEST: usize = 3;

/// The request for a folder's plan.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Request {
    /// The tokens of each text of a pass, including the two special ones; empty for an image model.
    pub tokens: Vec<usize>,
    /// The images of a pass; 0 for a text model.
    pub images: usize,
    /// Texts are padded to a multiple of this many tokens, at least 1, or to the model's longest.
    pub bucket: Option<usize>,
    /// The table of token vectors is public.
    pub public_table: bool,
    /// The tokens that a generating model adds, at least 1; 1 for other models.
    pub max_tokens: usize,
    /// The number of passes for later tokens, or of passes like this one, for which products are made ahead together; 0
    /// for none.
    pub ahead: usize,
    /// The drafts of a later pass; 0 for none.
    pub draft: usize,
    /// What the operator opens of a row of logits; `None`: what is usual for the model.
    pub answers: Option<Answers>,
    /// A public text before the prompt of a generating model.
    pub prefix: Option<String>,
    /// The machine whose seconds are asked for.
    pub pace: Pace,
    /// The link by which forms are chosen.
    pub link: Link,
    /// The network whose seconds are asked for, if that is another.
    pub network: Option<Link>,
    /// Without one: the text begins with the public head of the folder, if it has one, as far as it is long enough.
    /// These tokens count as tokens of the text, and are not run.
    pub head: bool,
}

impl Request {
    pub(super) fn terms(&self) -> Terms {
        Terms { padded: self.bucket.is_some(), public_table: self.public_table }
    }

    pub(super) fn session(&self) -> SessionTerms {
        self.terms().over(self.link).spending(self.ahead > 0)
    }

    /// The plan on the machine and the network that are asked for.
    pub(super) fn placed(&self, plan: Plan) -> Plan {
        plan.at(self.pace).through(self.network.unwrap_or(self.link))
    }

    /// The rows of each text and of a public prefix, if the model takes them.
    pub(super) fn rows(&self, public: &Public) -> Result<(Vec<usize>, usize), PlanError> {
        if self.images > 0 {
            return Err(PlanError::Texts);
        }
        opened(public, self)?;
        if self.tokens.is_empty() || self.bucket == Some(0) || self.max_tokens == 0 {
            return Err(PlanError::Nothing);
        }
        let (generates, later) = (public.task() == Task::Generate, self.max_tokens - 1);
        let least = match generates {
            true => 1,
            false => FEWEST,
        };
        if !generates && (later > 0 || self.draft > 0) {
            return Err(PlanError::NotGenerated);
        }
        let prefix = match &self.prefix {
            Some(_) if !generates => return Err(PlanError::NoPrefix),
            Some(text) => Prefix::tokens(public, text)?.rows().total,
            None => 0,
        };
        let shortest = self.tokens.iter().copied().min().unwrap_or(0);
        let head = self.head_rows(public).min(shortest.saturating_sub(1));
        let limit = public.max_tokens.saturating_sub(prefix + head);
        // Public rows of a text that is continued count, as a row attends to them.
        let most = match generates {
            true => MAX_KEYS.saturating_sub(prefix + head),
            false => longest(generates),
        };
        let limit = limit.min(most).saturating_sub(later);
        let taken = least..=limit + head;
        if let Some(&given) = self.tokens.iter().find(|n| !taken.contains(n)) {
            return Err(PlanError::Tokens { given, least, limit: limit + head });
        }
        if generates && self.tokens.len() > 1 {
            return Err(PlanError::OneText);
        }
        let bucket = self.bucket.unwrap_or(1);
        let up = |n: &usize| (n - head).div_ceil(bucket).saturating_mul(bucket).min(limit);
        Ok((self.tokens.iter().map(up).collect(), prefix + head))
    }

    /// The tokens of the folder's public head, where there is no prefix.
    fn head_rows(&self, public: &Public) -> usize {
        match self.head && self.prefix.is_none() {
            true => public.head().len().min(MAX_PREFIX),
            false => 0,
        }
    }
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The model folder is faulty.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The model does not take a text of this length.
    #[error(
        "a text has {}, and this model takes {least} to {limit}, special ones and those of an answer counted",
        counted(*given, "token")
    )]
    Tokens {
        /// The length.
        given: usize,
        /// The fewest.
        least: usize,
        /// The model's limit.
        limit: usize,
    },
    /// No text, or a bucket or answer of no tokens.
    #[error("a plan is for at least one text, one token of answer and, where there is one, a bucket of at least 1")]
    Nothing,
    /// An answer of several tokens, or drafts of them, from a model that generates none.
    #[error("only models that generate text add tokens to it")]
    NotGenerated,
    /// Texts for an image model.
    #[error("the model takes images, all of one size: give their number (--images) and no tokens")]
    Images,
    /// Images for a text model.
    #[error("the model takes texts: give their numbers of tokens (--tokens) and no images")]
    Texts,
    /// Padding or a public table for images.
    #[error("images are not padded, and have no table of token vectors")]
    NoTerms,
    /// A public prefix for a model that does not generate.
    #[error("only models that generate text take a public prefix")]
    NoPrefix,
    /// The model does not have what is to be opened.
    #[error("the model cannot open {answers}: {needs}")]
    OtherAnswers {
        /// What was asked for.
        answers: Answers,
        /// What it needs.
        needs: &'static str,
    },
    /// Several texts to continue.
    #[error("one text is continued at a time: give one number of tokens")]
    OneText,
    /// A step has no protocol.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Plan {
    /// The plan of one pass over texts of these lengths; for a generating model, one plan per token. Reads the folder's
    /// public files, not its weights.
    ///
    /// # Errors
    /// [`PlanError`] if there is no plan.
    pub fn of_folder(folder: &Path, request: &Request) -> Result<Vec<Plan>, PlanError> {
        let public = public_of(folder)?;
        if public.images.is_some() {
            let plans = Plan::of_images(&public, request)?;
            return Ok(plans.into_iter().map(|plan| request.placed(plan)).collect());
        }
        let (rows, prefix) = request.rows(&public)?;
        let (terms, later) = (request.session(), request.max_tokens - 1);
        let program = Model::shapes_only(&public).program();
        let answers = opened(&public, request)?;
        let held = rows.iter().sum::<usize>();
        let long = is_long(held + later);
        let next = |held, rows: &[usize]| {
            let before = Before { public: prefix, held, long, ..Before::default() };
            Plan::next_tokens(&program, before, rows, terms, answers)
        };
        let first = match public.task() {
            Task::Generate => next(0, &rows)?,
            Task::Classify => Plan::classes(&program, &rows, terms, answers)?,
            Task::Embed => Plan::twopc(&program, &rows, terms, public.normalise, answers)?,
        };
        let later = (0..later).map(|i| Ok(next(held + i, &[1])?));
        let plans = std::iter::once(Ok(first)).chain(later);
        plans.map(|plan| plan.map(|plan| request.placed(plan))).collect()
    }

    /// [`Plan::ahead`] of a folder's model, for texts of the first one's length. Reads the folder's public files.
    ///
    /// # Errors
    /// As [`Plan::of_folder`].
    pub fn ahead_of_folder(folder: &Path, request: &Request) -> Result<Plan, PlanError> {
        let public = public_of(folder)?;
        let rows = match (public.task(), public.images.is_some()) {
            (Task::Generate, _) => 1,
            (_, true) => public.max_tokens,
            (_, false) => request.rows(&public)?.0.first().copied().unwrap_or(1),
        };
        let later = Later { passes: request.ahead, rows };
        let program = Model::shapes_only(&public).program();
        Ok(request.placed(Plan::ahead(&program, later, request.session())?))
    }

    /// The plan of a pass over images, which all have the same number of rows.
    fn of_images(public: &Public, request: &Request) -> Result<Vec<Plan>, PlanError> {
        if !request.tokens.is_empty() || request.images == 0 {
            return Err(PlanError::Images);
        }
        if request.max_tokens != 1 || request.draft > 0 {
            return Err(PlanError::NotGenerated);
        }
        if request.prefix.is_some() {
            return Err(PlanError::NoPrefix);
        }
        let rows = vec![public.max_tokens; request.images];
        let terms = request.terms();
        if terms != Terms::default() {
            return Err(PlanError::NoTerms);
        }
        let program = Model::shapes_only(public).program();
        let answers = opened(public, request)?;
        let terms = request.session();
        let plan = match public.task() {
            Task::Classify => Plan::classes(&program, &rows, terms, answers)?,
            Task::Embed | Task::Generate => Plan::twopc(&program, &rows, terms, public.normalise, answers)?,
        };
        Ok(vec![plan])
    }
}

impl Memory {
    /// The memory of a server of a folder's model that takes texts as long as the model allows and passes of `pass`
    /// rows, with the request's public prefix, drafts per pass, and sets of products made ahead. Reads the folder's
    /// public files.
    ///
    /// # Errors
    /// [`PlanError`] if there is no plan.
    pub fn of_folder(folder: &Path, request: &Request, pass: usize) -> Result<Memory, PlanError> {
        let public = public_of(folder)?;
        let prefix = match &request.prefix {
            Some(text) => Prefix::tokens(&public, text)?.rows().total,
            None => request.head_rows(&public),
        };
        let tokens = public.max_tokens.saturating_sub(prefix).clamp(1, usual(public.task() == Task::Generate));
        let (program, rows) = (Model::shapes_only(&public).program(), (prefix, tokens));
        let pass = pass.max(tokens);
        let memory = Memory::largest(&program, rows, pass)?;
        Ok(memory.with_later(&program, rows, pass, (request.ahead, request.draft))?)
    }
}

pub(super) fn public_of(folder: &Path) -> Result<Public, ModelError> {
    let files = PublicFiles::read(folder)?;
    Ok(files.parse().map_err(|mut error| {
        folder.clone_into(&mut error.folder);
        error
    })?)
}

/// What is opened, if the model has it.
pub(super) fn opened(public: &Public, request: &Request) -> Result<Answers, PlanError> {
    let outputs = Model::shapes_only(public).body.outputs();
    let answers = Answers::of_model(request.answers, public, outputs);
    answers.suits(public, outputs).map_err(|needs| PlanError::OtherAnswers { answers, needs })?;
    Ok(answers)
}
