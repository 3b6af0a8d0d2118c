//! Progress of a run, and its wording.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hushed_fhe::Progress;
use hushed_model::{StepId, counted};

/// Minimum time between two progress lines, and minimum fraction of the run.
const LINE_EVERY: Duration = Duration::from_secs(60);
const LINE_PART: f64 = 0.05;

/// Progress of a run.
#[derive(Clone, Debug)]
pub enum JobEvent {
    /// Keys are being read.
    Keys {
        /// So far.
        done: usize,
        /// In all.
        of: usize,
    },
    /// The planned time of the whole run.
    Estimate {
        /// Seconds, an estimate that is corrected during the run.
        seconds: f64,
        /// Layers in all.
        layers: usize,
    },
    /// It continues from a checkpoint before this layer, from 0.
    Resumed {
        /// The layer.
        layer: usize,
    },
    /// Progress: every second, and at the end.
    Step {
        /// The current step.
        site: StepId,
        /// Fraction of the whole run, up to 1, in seconds of the plan.
        done: f64,
        /// Fraction of the layer, up to 1; outside the layers, of all steps before or after them.
        part: f64,
        /// Estimated seconds left.
        left: f64,
    },
    /// A layer is done.
    Layer {
        /// From 0.
        layer: usize,
        /// In all.
        of: usize,
        /// Seconds that it took.
        seconds: f64,
        /// Estimated seconds left.
        left: f64,
    },
}

impl From<Progress> for JobEvent {
    fn from(now: Progress) -> JobEvent {
        JobEvent::Step { done: now.done(), left: now.left(), part: now.part, site: now.site }
    }
}

impl JobEvent {
    /// The event as a line of text, if it deserves one.
    #[must_use]
    pub fn line(&self) -> Option<String> {
        match self {
            Self::Keys { done, of } if done + 1 == *of => Some(format!("{} read", counted(*of, "key"))),
            Self::Estimate { seconds, .. } => Some(format!("about {} by the plan", duration(*seconds))),
            Self::Resumed { layer } => Some(format!("resuming at layer {}", layer + 1)),
            Self::Layer { layer, of, seconds, left } => {
                Some(format!("layer {} of {of} took {}; about {} left", layer + 1, duration(*seconds), duration(*left)))
            }
            Self::Keys { .. } | Self::Step { .. } => None,
        }
    }
}

/// A step in words: `layer 2 attention scores`, layers counted from 1 as in [`JobEvent::line`].
#[must_use]
pub fn step_words(step: StepId) -> String {
    let words = step.within_layer().to_string().replace(['.', '_'], " ");
    match step.layer() {
        Some(layer) => format!("layer {} {words}", layer + 1),
        None => words,
    }
}

/// A duration in words.
#[must_use]
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("{s:.1} s"),
        s if s < 7200.0 => format!("{:.1} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

/// The events of a run as lines, if there is no progress bar: progress is reported now and then.
#[derive(Debug)]
pub struct Lines {
    began: Instant,
    /// Time and fraction of the run at the last progress line.
    last: Mutex<Option<(Duration, f64)>>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines { began: Instant::now(), last: Mutex::default() }
    }
}

impl Lines {
    /// The event as a line, if one is due now.
    #[must_use]
    pub fn line(&self, event: &JobEvent) -> Option<String> {
        self.line_at(event, self.began.elapsed())
    }

    fn line_at(&self, event: &JobEvent, gone: Duration) -> Option<String> {
        let JobEvent::Step { site, done, left, .. } = event else {
            return event.line();
        };
        self.is_due(gone, *done).then(|| {
            format!(
                "{:.0} %, {}, {} gone, about {} left",
                done * 100.0,
                step_words(*site),
                duration(gone.as_secs_f64()),
                duration(*left)
            )
        })
    }

    /// The same for work whose parts are counted, such as keys that are made.
    #[must_use]
    pub fn counted(&self, what: &str, done: u64, of: u64) -> Option<String> {
        self.counted_at((what, done, of), self.began.elapsed())
    }

    fn counted_at(&self, (what, done, of): (&str, u64, u64), gone: Duration) -> Option<String> {
        let part = done as f64 / of.max(1) as f64;
        self.is_due(gone, part).then(|| format!("{what}: {done} of {of}, {} gone", duration(gone.as_secs_f64())))
    }

    /// Whether a line is due with this part of the work done.
    fn is_due(&self, gone: Duration, done: f64) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        // A run that continues from a checkpoint begins with much of it done.
        let (then, before) = *last.get_or_insert((gone, done));
        // Less is done than before where other work has begun.
        let due = gone >= then + LINE_EVERY && (done >= before + LINE_PART || done < before);
        if due {
            *last = Some((gone, done));
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attention_of_layer_2() -> StepId {
        let config = hushed_model::testing::tiny_config();
        let program = hushed_model::network_shapes(&config, hushed_model::Pool::Mean).program_of_all_rows();
        let layer = program.layers()[1].clone();
        program.steps()[layer.start].id
    }

    #[test]
    fn a_line_is_told_now_and_then() {
        let lines = Lines::default();
        let at = |seconds: u64, done: f64| {
            let site = attention_of_layer_2().part("first_inverse");
            let step = JobEvent::Step { site, done, part: 0.5, left: 60.0 * 80.0 };
            lines.line_at(&step, Duration::from_secs(seconds))
        };
        // No line for what was done before the first look, for little progress, or too soon.
        assert_eq!(at(5, 0.3), None);
        assert_eq!(at(64, 0.4), None);
        assert_eq!(at(100, 0.34), None);
        let told = at(2460, 0.351).unwrap();
        assert_eq!(told, "35 %, layer 2 attention first inverse, 41.0 min gone, about 80.0 min left");
        assert_eq!(at(2500, 0.42), None);
        assert!(at(2520, 0.42).is_some());
        let layer = JobEvent::Layer { layer: 0, of: 6, seconds: 90.0, left: 7200.0 };
        let line = "layer 1 of 6 took 90.0 s; about 2.0 h left";
        assert_eq!(lines.line(&layer).as_deref(), Some(line));
        let resumed = JobEvent::Resumed { layer: 1 };
        assert_eq!(lines.line(&resumed).unwrap(), "resuming at layer 2");
        // Counted work, and other work after it.
        let lines = Lines::default();
        let at = |seconds: u64, what, done| lines.counted_at((what, done, 40), Duration::from_secs(seconds));
        assert_eq!((at(0, "keys", 1), at(5, "keys", 20)), (None, None));
        assert_eq!(at(90, "keys", 30).unwrap(), "keys: 30 of 40, 90.0 s gone");
        assert_eq!((at(100, "texts", 1), at(200, "texts", 2).is_some()), (None, true));
    }
}
