//! What a pass shows of its steps.

use hushed_model::StepId;

use crate::error::FheError;

/// The result of a step, passed to a [`Viewer`].
#[derive(Clone, Copy)]
pub enum Look<'a, V> {
    /// The refreshed result of a norm; in a decoder, that of a sum.
    Columns {
        /// The vectors.
        columns: &'a [V],
        /// The factor of each column.
        gain: &'a [f64],
        /// Added after the factor, in rows of tokens.
        offset: &'a [f64],
    },
    /// The result of a step before a norm: κ·(y − mean of y).
    Centred {
        /// The columns.
        columns: &'a [V],
        /// κ.
        scale: f64,
    },
}

/// Called with the results of attention, feed-forward, sums and norms; an error it returns ends the run.
pub type Viewer<'a, V> = Box<dyn FnMut(StepId, Look<'_, V>) -> Result<(), FheError> + 'a>;
