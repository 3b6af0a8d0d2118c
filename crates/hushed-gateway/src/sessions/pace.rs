//! Predicts how long work takes: the plan's seconds times the ratio of measured to planned time in earlier passes.
//!
//! The plan counts one core per party and no network, so its unit is arbitrary; the ratio converts it to seconds for
//! this machine, this server and the connection between them. Before the first pass the ratio is 1.
//!
//! A prediction that refuses work is never corrected by that work. So a pass counts for at most [`MOST`] times what was
//! expected, and now and then one request that only a better pace would let through is let through: [`Pace::probe`].

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hushed_mpc::formats::is_long;
use hushed_mpc::plan::Plan;
use hushed_mpc::{Answers, Before, Index, RunError, SessionTerms, Wanted};
use hushed_serve::{Public, Sent, Task, Work};

/// Weight of the last pass in the ratio: a change of load shows after a few passes, and one slow pass does not decide.
const LAST: f64 = 0.3;
/// The most by which a pass may exceed what was expected and count in full: one that was held up says little.
const MOST: f64 = 5.0;
/// How many passes the best of the last ones is taken from.
const RECENT: usize = 8;
/// The time after which a pace that nothing has confirmed is believed half as much.
const HALVES: f64 = 60.0;
/// Minimum time between two requests that are let through to see whether the pace is still so.
const PROBES: Duration = Duration::from_secs(5);
/// Numbers of rows run before are rounded up to a multiple of this for plans of later tokens.
const HELD: usize = 16;

/// Predicts times.
pub struct Pace {
    program: hushed_model::Program,
    terms: SessionTerms,
    unit: bool,
    generates: bool,
    classifies: bool,
    /// Rows of the server's public prefix.
    public: usize,
    /// What the server opens in a pass.
    answers: Answers,
    /// Number of later tokens for which products are prepared at a time.
    ahead: usize,
    planned: Mutex<HashMap<Part, f64>>,
    measured: Mutex<Measured>,
}

/// A unit of work with planned seconds.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Part {
    /// A pass: the number of rows run before, and of new rows.
    Pass(usize, usize),
    /// Products for this many passes.
    Ahead(usize),
}

/// Planned seconds of an answer whose passes have no drafts: passes with drafts should take less per token.
#[derive(Clone, Debug, Default)]
pub struct Planned {
    /// For each token, the time since the one before: its pass, and what is prepared before that.
    pub tokens: Vec<f64>,
    /// Planned seconds of the first pass and of a later one.
    passes: [f64; 2],
    /// Planned seconds of preparing products for one pass, when `batch` are prepared together.
    made: f64,
    batch: usize,
}

impl Planned {
    /// The planned seconds of something that was sent; `None` for work that differs from the plan.
    pub fn of(&self, sent: &Sent) -> Option<f64> {
        let [first, later] = self.passes;
        match sent.work {
            // Fewer together take longer each, and would suggest that everything is slow.
            Work::Ahead if sent.rows == self.batch => Some(sent.rows as f64 * self.made),
            Work::Pass { begins: true, .. } => Some(first),
            Work::Pass { drafts: 0, ahead, .. } if ahead == (self.made > 0.0) => Some(later),
            Work::Ahead | Work::Pass { .. } => None,
        }
    }
}

struct Measured {
    /// Seconds per planned second; `None` before the first pass.
    ratio: Option<f64>,
    /// Seconds of a session's set-up.
    setup: f64,
    /// The last ratios, newest last.
    recent: VecDeque<f64>,
    /// When it was last measured, and when a request was last let through to measure it.
    measured: Instant,
    probed: Option<Instant>,
}

impl Measured {
    /// What was measured `age` seconds after it was: half of its excess over `planned` after each [`HALVES`].
    fn faded(measured: f64, planned: f64, age: f64) -> f64 {
        planned + (measured - planned).max(0.0) * (-age / HALVES).exp2()
    }
}

impl Pace {
    /// A pace for a model whose sessions take `setup` to set up, with a public prefix of `public` tokens, and with
    /// products prepared for `ahead` later tokens at a time.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] for a model without a protocol.
    pub fn new(
        model: &Public,
        terms: impl Into<SessionTerms>,
        setup: Duration,
        (public, answers): (usize, Answers),
        ahead: usize,
    ) -> Result<Self, RunError> {
        let pace = Self {
            program: hushed_model::Model::shapes_only(model).program(),
            terms: terms.into(),
            unit: model.normalise,
            generates: model.task() == Task::Generate,
            classifies: model.task() == Task::Classify,
            public,
            answers,
            ahead,
            planned: Mutex::default(),
            measured: Mutex::new(Measured {
                ratio: None,
                setup: setup.as_secs_f64(),
                recent: VecDeque::new(),
                measured: Instant::now(),
                probed: None,
            }),
        };
        pace.plan(Part::Pass(0, 3))?;
        Ok(pace)
    }

    /// Planned seconds of one text of `rows` tokens, padding included. Texts that share a pass cost less together.
    pub fn text(&self, rows: usize) -> f64 {
        self.memo(Part::Pass(0, rows))
    }

    /// Planned seconds of the tokens that continue a prompt of `rows` tokens.
    pub fn answer(&self, rows: usize, tokens: usize) -> Planned {
        let later = tokens.saturating_sub(1);
        let first = self.memo(Part::Pass(0, rows));
        // Later tokens get only slightly more expensive with each row before them, so the middle one stands for all.
        let each = match later {
            0 => 0.0,
            _ => {
                let held = (rows + later / 2).next_multiple_of(HELD);
                self.memo(Part::Pass(held, 1))
            }
        };
        let batch = self.ahead.min(later);
        let made = match batch {
            0 => 0.0,
            passes => self.memo(Part::Ahead(passes)) / passes as f64,
        };
        let mut planned = vec![each; tokens];
        planned[..tokens.min(1)].fill(first);
        // Before the first token, and before each token that finds none left.
        let mut left = later;
        let mut at = 0;
        while made > 0.0 && left > 0 {
            let passes = self.ahead.min(left);
            planned[at] += passes as f64 * made;
            at += passes + usize::from(at == 0);
            left -= passes;
        }
        Planned { tokens: planned, passes: [first, each], made, batch }
    }

    /// Planned seconds of a search by a query of `rows` tokens.
    pub fn search(&self, rows: usize, index: &Index, wanted: Wanted) -> f64 {
        let plan = Plan::search(&self.program, index, rows, self.terms, wanted);
        plan.map_or(f64::INFINITY, |plan| plan.seconds)
    }

    /// Predicted seconds for this many planned seconds.
    pub fn seconds(&self, planned: f64) -> f64 {
        planned * self.lock().ratio.unwrap_or(1.0)
    }

    /// Predicted seconds of a session's set-up.
    pub fn setup(&self) -> f64 {
        self.lock().setup
    }

    /// Learns from the duration of a pass.
    pub fn pass_took(&self, planned: f64, took: Duration) {
        let now = took.as_secs_f64() / planned;
        if !now.is_finite() {
            return;
        }
        let mut measured = self.lock();
        let now = now.min(MOST * measured.ratio.unwrap_or(1.0));
        let ratio = measured.ratio.map_or(now, |old| old + LAST * (now - old));
        measured.ratio = Some(ratio);
        measured.recent.push_back(now);
        if measured.recent.len() > RECENT {
            measured.recent.pop_front();
        }
        measured.measured = Instant::now();
    }

    /// Whether to let a request through that seems too slow, to see whether the pace is still so: if it would be in
    /// time at the best pace of the last passes, or at the plan's, the more the longer ago that was. `planned`: its
    /// planned seconds by one session; `sets_up`: whether a set-up comes first.
    pub fn probe(&self, planned: f64, sets_up: bool, patience: f64) -> bool {
        let mut measured = self.lock();
        let age = measured.measured.elapsed().as_secs_f64();
        let best = measured.recent.iter().copied().reduce(f64::min);
        let ratio = best.map_or(1.0, |best| Measured::faded(best, best.min(1.0), age));
        let setup = if sets_up { Measured::faded(measured.setup, 0.0, age) } else { 0.0 };
        let may = setup + planned * ratio <= patience && measured.probed.is_none_or(|last| last.elapsed() >= PROBES);
        if may {
            measured.probed = Some(Instant::now());
        }
        may
    }

    /// Learns from the duration of a set-up.
    pub fn setup_took(&self, took: Duration) {
        let mut measured = self.lock();
        (measured.setup, measured.measured) = (took.as_secs_f64(), Instant::now());
    }

    fn memo(&self, part: Part) -> f64 {
        let planned = || self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(&known) = planned().get(&part) {
            return known;
        }
        // Work without a plan is never admitted.
        let seconds = self.plan(part).unwrap_or(f64::INFINITY);
        planned().insert(part, seconds);
        seconds
    }

    fn plan(&self, part: Part) -> Result<f64, RunError> {
        let plan = match part {
            Part::Pass(held, rows) if self.generates => {
                let before = Before { public: self.public, held, long: is_long(held + rows), ..Before::default() };
                let terms = self.terms.spending(self.ahead > 0);
                Plan::next_tokens(&self.program, before, &[rows], terms, self.answers)?
            }
            Part::Pass(_, rows) if self.classifies => Plan::classes(&self.program, &[rows], self.terms, self.answers)?,
            Part::Pass(_, rows) => Plan::twopc(&self.program, &[rows], self.terms, self.unit, self.answers)?,
            Part::Ahead(passes) => Plan::ahead(&self.program, passes, self.terms)?,
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
    use hushed_mpc::Terms;
    use hushed_serve::{Cost, Stats};

    use super::*;

    fn pace(public: &Public) -> Pace {
        with(public, (0, Answers::Label), 0)
    }

    fn with(public: &Public, opened: (usize, Answers), ahead: usize) -> Pace {
        let setup = Duration::from_secs(1);
        Pace::new(public, Terms::default(), setup, opened, ahead).unwrap()
    }

    fn sum(planned: &Planned) -> f64 {
        planned.tokens.iter().sum()
    }

    /// A public prefix and larger openings make what comes first cost more.
    #[test]
    fn a_public_prefix_and_what_is_opened_cost_more() {
        let public = &tiny_generator().public;
        let first = |how| sum(&with(public, how, 0).answer(4, 3));
        let alone = first((0, Answers::Label));
        assert!(first((20, Answers::Label)) > alone);
        assert!(first((0, Answers::Top(5))) > alone);
    }

    #[test]
    fn longer_texts_and_answers_cost_more() {
        let texts = pace(&tiny_model().public);
        assert!(0.0 < texts.text(4) && texts.text(4) < texts.text(40));
        let tokens = pace(&tiny_generator().public);
        let of = |rows, n| sum(&tokens.answer(rows, n));
        assert!(of(4, 1) < of(4, 2) && of(4, 2) < of(4, 20) && of(4, 1) < of(30, 1));
        assert_eq!(tokens.answer(4, 7).tokens.len(), 7);
    }

    /// Two at a time: before the first token, and before the fourth and the sixth, which find none left.
    #[test]
    fn products_are_made_before_the_tokens_that_find_none() {
        let public = &tiny_generator().public;
        let plain = pace(public).answer(4, 7);
        let ahead = with(public, (0, Answers::Label), 2).answer(4, 7);
        let [first, later] = ahead.passes;
        assert_eq!(first, plain.tokens[0]);
        assert!(later < plain.tokens[1] && ahead.made > 0.0);
        let more: Vec<f64> = ahead.tokens.iter().map(|t| t - later).collect();
        let made = |at: usize| (more[at] / ahead.made * 1e6).round() / 1e6;
        assert_eq!([1, 2, 3, 4, 5, 6].map(made), [0.0, 0.0, 2.0, 0.0, 2.0, 0.0]);
        assert!((ahead.tokens[0] - first - 2.0 * ahead.made).abs() < 1e-9);
        // One token needs none.
        assert_eq!(with(public, (0, Answers::Label), 2).answer(4, 1).made, 0.0);
    }

    /// Work sent as planned has the seconds planned for it; a pass with drafts has none.
    #[test]
    fn what_was_sent_has_its_planned_seconds() {
        let planned = with(&tiny_generator().public, (0, Answers::Label), 2).answer(4, 7);
        let of =
            |rows, work| planned.of(&Sent { work, rows, counted: 0, cost: Cost::default(), after: Stats::default() });
        let pass = |begins, drafts, ahead| Work::Pass { begins, drafts, ahead };
        let [first, later] = planned.passes;
        assert_eq!(of(4, pass(true, 0, false)), Some(first));
        assert_eq!(of(1, pass(false, 0, true)), Some(later));
        assert_eq!(of(1, pass(false, 0, false)), None);
        assert_eq!(of(3, pass(false, 2, true)), None);
        assert_eq!(of(2, Work::Ahead), Some(2.0 * planned.made));
        assert_eq!(of(1, Work::Ahead), None);
    }

    /// A pass that was held up neither decides what all later ones take, nor keeps out those that would correct it.
    #[test]
    fn one_slow_pass_does_not_decide() {
        let pace = pace(&tiny_model().public);
        pace.pass_took(1.0, Duration::from_secs(25));
        assert_eq!(pace.seconds(1.0), MOST);
        // As slow again and again, it is so.
        for _ in 0..20 {
            pace.pass_took(1.0, Duration::from_secs(25));
        }
        assert!(pace.seconds(1.0) > 24.0);
        // At none of the last passes' paces would this be in time, and that is not a minute ago.
        assert!(!pace.probe(1.0, false, 15.0));
        pace.lock().measured = Instant::now().checked_sub(Duration::from_secs(120)).unwrap();
        assert!(pace.probe(1.0, false, 15.0));
        // One at a time.
        assert!(!pace.probe(1.0, false, 15.0));
        pace.pass_took(1.0, Duration::from_secs(1));
        pace.lock().probed = None;
        assert!(pace.seconds(1.0) > 15.0 && pace.probe(1.0, false, 15.0));
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
