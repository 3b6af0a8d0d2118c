//! The result of a comparison.

use super::answers::Answer;
use super::compare::{Difference, Stage};
use super::options::OutOfRange;

/// The result of [`super::verify`].
pub struct Report {
    /// One per step, up to the layer at which no text was left, if there is one.
    pub stages: Vec<Stage>,
    /// One per text that is left at the end.
    pub answers: Vec<Answer>,
    /// Texts that left a calibrated interval.
    pub out_of_range: Vec<OutOfRange>,
}

impl Report {
    /// The stages after whole layers.
    pub fn layers(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(|stage| stage.is_output())
    }

    /// The layer over which an error grew the most; `of` selects the error.
    pub fn worst_layer(&self, of: impl Fn(&Stage) -> Option<Difference>) -> Option<&Stage> {
        let sizes = || self.layers().map(|s| of(s).map(|d| d.rms));
        let before = std::iter::once(Some(0.0)).chain(sizes());
        let grown = self.layers().zip(sizes()).zip(before);
        let grown = grown.filter_map(|((stage, now), before)| Some((stage, now? - before?)));
        grown.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(stage, _)| stage)
    }
}
