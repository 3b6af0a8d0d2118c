//! How long work will take: the plan's seconds, times the ratio of measured to planned time of earlier passes.
//!
//! The plan counts one core a party and no network, so its unit is arbitrary; the ratio makes it seconds of this
//! machine, this server and the way between them. Before the first pass the ratio is 1.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hushed_mpc::plan::Plan;
use hushed_mpc::{Answers, Before, Index, RunError, Terms, Wanted};
use hushed_serve::{Public, Task};

/// Weight of the last pass in the ratio: a change of load shows after a few passes, one slow pass does not decide.
const LAST: f64 = 0.3;
/// Lengths of what has been run before are rounded up to a multiple of this for plans of later tokens.
const HELD: usize = 16;

/// Predicts times.
pub struct Pace {
    program: hushed_model::Program,
    terms: Terms,
    unit: bool,
    generates: bool,
    /// Rows of the server's public prefix.
    public: usize,
    /// What the server opens of a pass.
    answers: Answers,
    /// Planned seconds by (rows that have been run before, new rows).
    planned: Mutex<HashMap<(usize, usize), f64>>,
    measured: Mutex<Measured>,
}

struct Measured {
    /// Seconds a planned second; `None` before the first pass.
    ratio: Option<f64>,
    /// Of a session's set-up.
    setup: f64,
}

impl Pace {
    /// For a model, whose sessions take `setup` to set up, behind a public prefix of `public` tokens.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] for a model without a protocol.
    pub fn new(
        model: &Public,
        terms: Terms,
        setup: Duration,
        (public, answers): (usize, Answers),
    ) -> Result<Self, RunError> {
        let pace = Self {
            program: hushed_model::Model::shapes_only(model).program(),
            terms,
            unit: model.normalise,
            generates: model.task() == Task::Generate,
            public,
            answers,
            planned: Mutex::default(),
            measured: Mutex::new(Measured {
                ratio: None,
                setup: setup.as_secs_f64(),
            }),
        };
        pace.plan(0, 3)?;
        Ok(pace)
    }

    /// Planned seconds of one text of `rows` tokens, padding included. Texts that share a pass cost less together.
    pub fn text(&self, rows: usize) -> f64 {
        self.memo(0, rows)
    }

    /// Planned seconds of each token that continues a prompt of `rows` tokens.
    pub fn answer(&self, rows: usize, tokens: usize) -> Vec<f64> {
        let later = tokens.saturating_sub(1);
        let mut each = vec![self.memo(0, rows)];
        // Later tokens cost little more with every row before them: the middle one stands for all.
        if later > 0 {
            let held = (rows + later / 2).next_multiple_of(HELD);
            each.resize(tokens, self.memo(held, 1));
        }
        each
    }

    /// Planned seconds of a search by a query of `rows` tokens.
    pub fn search(&self, rows: usize, index: &Index, wanted: Wanted) -> f64 {
        let plan = Plan::search(&self.program, index, rows, self.terms, wanted);
        plan.map_or(f64::INFINITY, |plan| plan.seconds)
    }

    /// Seconds that so many planned seconds take.
    pub fn seconds(&self, planned: f64) -> f64 {
        planned * self.lock().ratio.unwrap_or(1.0)
    }

    /// Seconds that a session's set-up takes.
    pub fn setup(&self) -> f64 {
        self.lock().setup
    }

    /// Learns what a pass took.
    pub fn pass_took(&self, planned: f64, took: Duration) {
        let now = took.as_secs_f64() / planned;
        if !now.is_finite() {
            return;
        }
        let mut measured = self.lock();
        let ratio = measured.ratio.map_or(now, |old| old + LAST * (now - old));
        measured.ratio = Some(ratio);
    }

    /// Learns what a set-up took.
    pub fn setup_took(&self, took: Duration) {
        self.lock().setup = took.as_secs_f64();
    }

    fn memo(&self, held: usize, rows: usize) -> f64 {
        let planned = || self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = planned().get(&(held, rows)) {
            return known;
        }
        // What has no plan is never admitted.
        let seconds = self.plan(held, rows).unwrap_or(f64::INFINITY);
        planned().insert((held, rows), seconds);
        seconds
    }

    fn plan(&self, held: usize, rows: usize) -> Result<f64, RunError> {
        let plan = match self.generates {
            true => {
                let public = self.public;
                let before = Before {
                    public,
                    held,
                    ..Before::default()
                };
                Plan::next_tokens(&self.program, before, &[rows], self.terms, self.answers)?
            }
            false => Plan::twopc(&self.program, &[rows], self.terms, self.unit)?,
        };
        Ok(plan.seconds)
    }

    fn lock(&self) -> MutexGuard<'_, Measured> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::{tiny_generator, tiny_model};

    use super::*;

    fn pace(public: &Public) -> Pace {
        let alone = (0, Answers::Label);
        Pace::new(public, Terms::default(), Duration::from_secs(1), alone).unwrap()
    }

    /// The sums of what comes first, behind a prefix and where more is opened.
    #[test]
    fn a_public_prefix_and_what_is_opened_cost_more() {
        let public = &tiny_generator().public;
        let first = |how| {
            let pace = Pace::new(public, Terms::default(), Duration::from_secs(1), how);
            pace.unwrap().answer(4, 3).iter().sum::<f64>()
        };
        let alone = first((0, Answers::Label));
        assert!(first((20, Answers::Label)) > alone);
        assert!(first((0, Answers::Top(5))) > alone);
    }

    #[test]
    fn longer_texts_and_answers_cost_more() {
        let texts = pace(&tiny_model().public);
        assert!(0.0 < texts.text(4) && texts.text(4) < texts.text(40));
        let tokens = pace(&tiny_generator().public);
        let of = |rows, n| tokens.answer(rows, n).iter().sum::<f64>();
        assert!(of(4, 1) < of(4, 2) && of(4, 2) < of(4, 20) && of(4, 1) < of(30, 1));
        assert_eq!(tokens.answer(4, 7).len(), 7);
    }

    #[test]
    fn passes_teach_the_ratio() {
        let pace = pace(&tiny_model().public);
        assert_eq!(pace.seconds(2.0), 2.0);
        pace.pass_took(1.0, Duration::from_secs(3));
        assert_eq!(pace.seconds(2.0), 6.0);
        pace.pass_took(1.0, Duration::from_secs(13));
        assert!((pace.seconds(1.0) - 6.0).abs() < 1e-9);
        // A pass without a plan teaches nothing.
        pace.pass_took(0.0, Duration::from_secs(1));
        assert!((pace.seconds(1.0) - 6.0).abs() < 1e-9);
    }
}
