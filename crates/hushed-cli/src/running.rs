//! Progress of a run under encryption: a bar on a terminal, a line now and then elsewhere.

use hushed_serve::fhe::{self, JobEvent, Lines};
use indicatif::ProgressBar;

use crate::output::Output;

/// The progress of work whose parts are counted.
pub struct Counting<'a> {
    out: &'a Output,
    bar: ProgressBar,
    lines: Lines,
}

impl<'a> Counting<'a> {
    /// A bar at its beginning.
    pub fn new(out: &'a Output, what: &'static str) -> Counting<'a> {
        Counting { out, bar: out.progress(1, what), lines: Lines::default() }
    }

    /// So many parts are done, of so many.
    pub fn at(&self, what: &'static str, done: u64, of: u64) {
        self.bar.set_message(what);
        self.bar.set_length(of.max(1));
        self.bar.set_position(done);
        if let Some(line) = self.lines.counted(what, done, of).filter(|_| !self.out.shows_bars()) {
            self.out.note(&line);
        }
    }

    /// The bar, for what is not counted.
    pub fn bar(&self) -> &ProgressBar {
        &self.bar
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}

/// The progress bar of a run.
pub struct Running<'a> {
    out: &'a Output,
    bar: ProgressBar,
    lines: Lines,
}

impl<'a> Running<'a> {
    /// A bar at its beginning; `what` describes the work before the run itself.
    pub fn new(out: &'a Output, what: &'static str) -> Running<'a> {
        Running { out, bar: out.planned(what), lines: Lines::default() }
    }

    /// Shows work before or between the steps of the run.
    pub fn meanwhile(&self, what: String) {
        self.bar.set_message(what);
    }

    /// Shows an event.
    pub fn told(&self, event: &JobEvent) {
        if let JobEvent::Step { site, done, left, .. } = event
            && self.out.shows_bars()
        {
            let (step, left) = (fhe::step_words(*site), fhe::duration(*left));
            self.bar.set_message(format!("about {left} left, {step}"));
            self.bar.set_position((done * 1000.0) as u64);
        } else if let Some(line) = self.lines.line(event) {
            self.bar.suspend(|| self.out.note(&line));
        }
    }

    /// Removes the bar.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
