//! Results of a session: embeddings, cost, progress.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::ops::AddAssign;
use std::sync::Arc;
use std::time::Duration;

use hushed_model::ProblemType;
use hushed_mpc::StepCost;
use hushed_net::Stats;

/// What a part of a session cost this party.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Wall time, waiting for the server included.
    pub time: Duration,
    /// Bytes, frames and rounds.
    pub stats: Stats,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.time += other.time;
        self.stats += other.stats;
    }
}

/// Products that were made ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// For how many passes.
    pub passes: usize,
    /// What they cost.
    pub cost: Cost,
}

impl AddAssign for Made {
    fn add_assign(&mut self, other: Self) {
        self.passes += other.passes;
        self.cost += other.cost;
    }
}

/// An embedding: its numbers, of unit length if the model says so.
pub type Embedding = Answered<Vec<f64>>;

/// The answer to one text or image. No `Debug`: it is private.
#[derive(Clone)]
pub struct Answered<T> {
    /// The answer itself.
    pub values: T,
    /// Tokens of the text, or rows of the image.
    pub tokens: usize,
    /// What the server learned of that: tokens and padding.
    pub rows: usize,
    /// The pass that gave it.
    pub pass: Arc<Pass>,
}

/// The class of a text or image. No `Debug`: it is private.
#[derive(Clone, PartialEq)]
pub struct Class {
    /// The names of the largest logits, largest first: as many as the server's operator opens, at least one, and all if
    /// the logits are opened. Of classes of which several or none may be right: those above the threshold, or with a
    /// probability above one half if the logits are opened.
    pub top: Vec<String>,
    /// All logits, in the order of the model's classes, if the server's operator opens them.
    pub logits: Option<Vec<f64>>,
}

impl Class {
    /// From the places that were opened.
    pub(super) fn of_places(places: &[u32], names: &[String]) -> Class {
        let name = |place: &u32| names.get(*place as usize).cloned().unwrap_or_default();
        Class { top: places.iter().map(name).collect(), logits: None }
    }

    /// From all logits.
    pub(super) fn of_logits(logits: Vec<f64>, names: &[String], problem: ProblemType) -> Class {
        let least = match problem {
            ProblemType::MultiLabel => 0.0,
            _ => f64::NEG_INFINITY,
        };
        let places = ProblemType::MultiLabel.answer(&logits, least).into_iter();
        let top = places.map(|place| names.get(place).cloned().unwrap_or_default()).collect();
        Class { top, logits: Some(logits) }
    }

    /// The name of the largest logit.
    #[must_use]
    pub fn name(&self) -> &str {
        self.top.first().map_or("", String::as_str)
    }
}

impl<T> Answered<T> {
    /// Makes something of the values.
    pub(super) fn made<V>(self, of: impl FnOnce(T) -> V) -> Answered<V> {
        Answered { values: of(self.values), tokens: self.tokens, rows: self.rows, pass: self.pass }
    }
}

/// What one pass over one or several texts cost.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The index of its first text.
    pub first: usize,
    /// The number of its texts.
    pub texts: usize,
    /// What it cost in all.
    pub cost: Cost,
    /// What each step cost, in order.
    pub sites: Vec<StepCost>,
}

/// What was sent for a text that is continued.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// What it was.
    pub work: Work,
    /// The rows of the pass as the server saw them, or the number of later passes that the products are for.
    pub rows: usize,
    /// What it counted as at the server, in texts.
    pub counted: usize,
    /// What it cost.
    pub cost: Cost,
    /// The session's counters at its end.
    pub after: Stats,
}

/// What can be sent for a text that is continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Products for passes to come.
    Ahead,
    /// A pass.
    Pass {
        /// Whether it is the text's first.
        begins: bool,
        /// How many of its rows are guesses.
        drafts: usize,
        /// Whether it took products made ahead.
        ahead: bool,
    },
}

/// Progress of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first text of the pass under way, from 0.
    pub text: usize,
    /// How many share that pass.
    pub sharing: usize,
    /// How many texts there are.
    pub texts: usize,
    /// The step that has ended.
    pub step: String,
    /// Layers of this pass that are done, between 0 and `layers`.
    pub layer: usize,
    /// Layers of the model.
    pub layers: usize,
}

/// Called after every step of every pass.
pub type OnProgress = Box<dyn FnMut(Progress) + Send>;
