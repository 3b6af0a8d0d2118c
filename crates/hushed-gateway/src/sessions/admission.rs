//! Whether a request is accepted: nothing is that, by plan and pace, would outlast its client's patience.

use std::time::{Duration, Instant};

use super::failure::Failure;
use super::pace::Pace;
use super::share::Share;

/// Current contents of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Waiting texts or prompts.
    pub waiting: usize,
    /// Passes or answers under way.
    pub running: usize,
    /// Answers that are kept.
    pub kept: usize,
}

/// The figures that decide on a request.
pub struct Admission<'a> {
    /// The pace of the work.
    pub pace: &'a Pace,
    /// How long the client waits.
    pub patience: Duration,
    /// The longest time, in seconds, for a client that can be [kept waiting](Wait::Long); `None` if it cannot.
    pub bound: Option<f64>,
    /// Sessions that work in parallel.
    pub sessions: usize,
    /// Most texts per pass, if the parts of a request are texts to embed. `None` if they are the tokens of an answer,
    /// which come one after the other in one session.
    pub batch: Option<usize>,
    /// Whether a session is open, so that no set-up comes first.
    pub open: bool,
    /// The reason why none will be opened at present, if any.
    pub away: Option<Failure>,
    /// The places of the queue.
    pub share: Share,
}

/// The work that is there already.
#[derive(Clone, Debug, Default)]
pub struct Load {
    /// Number of waiting items.
    pub waiting: usize,
    /// How many of these are the caller's own.
    pub own: usize,
    /// How many of the waiting items come first, by the callers' turns.
    pub first: usize,
    /// The planned seconds of those.
    pub planned: f64,
    /// Planned seconds and start times of running work.
    pub running: Vec<(f64, Instant)>,
}

/// How a request's client waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// No longer than it said.
    Short,
    /// Longer, while it is sent something now and then.
    Long,
}

/// Why a request is not accepted.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Refused {
    /// It would take too long even if nothing else waited.
    #[error(
        "this takes about {seconds:.1} s and the client waits {patience:.1} s: {}",
        would_fit(*fits, *of)
    )]
    TooSlow {
        /// Predicted seconds.
        seconds: f64,
        /// The client's patience in seconds.
        patience: f64,
        /// How many of its first texts (or tokens of the answer) would be ready in time.
        fits: usize,
        /// Out of how many.
        of: usize,
    },
    /// Too much work comes before it.
    #[error("the queue is busy; try again in about {after} s")]
    Busy {
        /// Seconds until it would be accepted.
        after: u64,
    },
    /// More texts than the queue holds.
    #[error("{given} texts were given and at most {limit} can wait: send them in several requests")]
    TooMany {
        /// Number of new texts.
        given: usize,
        /// The number that one key may have in the queue.
        limit: usize,
    },
    /// The server was asked a moment ago, and this is what it said.
    #[error("{}", .0.message)]
    Away(Failure),
    /// The gateway is being stopped.
    #[error("the gateway is shutting down")]
    Stopping,
}

fn would_fit(fits: usize, of: usize) -> String {
    match (fits, of) {
        (0, _) => "give it more time, or less to do: not even the first would be ready".to_owned(),
        (fits, of) => {
            format!("the first {fits} of {of} would be ready; send fewer, or wait longer")
        }
    }
}

impl Admission<'_> {
    /// Checks whether work with these planned seconds per part, in order, is accepted on top of `load`, in `places`
    /// places of the queue.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn check(&self, planned: &[f64], places: usize, load: &Load) -> Result<Wait, Refused> {
        if planned.is_empty() {
            return Ok(Wait::Short);
        }
        if let Some(failure) = &self.away {
            return Err(Refused::Away(failure.clone()));
        }
        let patience = self.patience.as_secs_f64();
        let setup = self.setup();
        let (whole, lanes) = (planned.iter().sum(), self.lanes(planned.len()));
        let mut alone = setup + self.seconds(whole, lanes);
        // A client that can be kept waiting needs no probe.
        let nothing = load.waiting == 0 && load.running.is_empty() && self.bound.is_none();
        if alone > patience && nothing && self.pace.probe(whole / lanes as f64, !self.open, patience) {
            alone = patience;
        }
        let before = self.before(load);
        // A pass that is slow only because of others is sent away, and may come again.
        let list = self.batch.is_some_and(|batch| planned.len() > batch);
        let (wait, patience) = match self.bound {
            Some(bound) if alone > patience || list && before + alone > patience => (Wait::Long, bound),
            _ => (Wait::Short, patience),
        };
        if alone > patience {
            let mut sum = 0.0;
            let ends = planned.iter().zip(1..).map(|(one, n)| {
                sum += one;
                setup + self.seconds(sum, self.lanes(n))
            });
            return Err(Refused::TooSlow {
                seconds: alone,
                patience,
                fits: ends.take_while(|end| *end <= patience).count(),
                of: planned.len(),
            });
        }
        if places > self.share.most() {
            return Err(Refused::TooMany { given: places, limit: self.share.most() });
        }
        let full = !self.share.admits(places, load.own, load.waiting);
        if full || before + alone > patience {
            // A place is free once enough of the work before it has been answered.
            let after = match full {
                true => before,
                false => before + alone - patience,
            };
            return Err(Refused::Busy { after: (after.ceil() as u64).max(1) });
        }
        Ok(wait)
    }

    /// Checks whether a client can wait for what has already been requested, up to the last of `load`.
    ///
    /// # Errors
    /// [`Refused::Busy`].
    pub fn check_joined(&self, load: &Load) -> Result<Wait, Refused> {
        let ends = self.setup() + self.before(load);
        let patience = self.patience.as_secs_f64();
        match self.bound {
            _ if ends <= patience => Ok(Wait::Short),
            Some(bound) if ends <= bound => Ok(Wait::Long),
            _ => Err(Refused::Busy { after: ((ends - patience).ceil() as u64).max(1) }),
        }
    }

    fn setup(&self) -> f64 {
        match self.open {
            true => 0.0,
            false => self.pace.setup(),
        }
    }

    /// Seconds until everything that comes first has been answered.
    pub fn before(&self, load: &Load) -> f64 {
        let running = load
            .running
            .iter()
            .map(|(planned, since)| (self.pace.seconds(*planned) - since.elapsed().as_secs_f64()).max(0.0));
        let running = running.sum::<f64>() / self.sessions as f64;
        let waiting = match self.batch {
            Some(_) => self.lanes(load.first),
            None => self.sessions.min(load.first).max(1),
        };
        running + self.seconds(load.planned, waiting)
    }

    /// Number of sessions that can work on this many parts of one request.
    fn lanes(&self, parts: usize) -> usize {
        let passes = self.batch.map_or(1, |batch| parts.div_ceil(batch.max(1)));
        self.sessions.min(passes).max(1)
    }

    /// Seconds for this many sessions together.
    fn seconds(&self, planned: f64, sessions: usize) -> f64 {
        self.pace.seconds(planned) / sessions as f64
    }
}
