//! A program over [`Slots`], layer by layer, so that a run can stop and resume between layers. The client computes
//! everything before the first layer.
//!
//! | layout | encoders | decoders |
//! |---|---|---|
//! | a batch, one vector per column | `encoder.rs` | `decoder.rs` |
//! | packed rows: one text, or a few | `packed.rs` | `packed_decoder.rs` |

mod beside;
mod blocks;
mod decoder;
mod encoder;
mod packed;
mod packed_decoder;
mod shape;

use hushed_model::{Program, StepId};

use super::choices::Choices;
use super::error::FheError;
use super::slots::Slots;
use crate::ops::acts::Acts;
use crate::ops::mask::RowsKnown;
use crate::ops::packed::rows::PackedRows;
use crate::ops::pool::Pooled;
use crate::packing::{Interleave, Layout, Spread};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;

pub use decoder::DecoderPass;
pub use encoder::Pass;
pub use packed::PackedPass;
pub use packed_decoder::PackedDecoderPass;
pub(crate) use packed_decoder::halves as packed_halves;
pub use shape::{can_run, head_is_public};

/// A program over vectors of slots, in the layout of its texts.
pub trait ForwardPass<'a, S: Slots> {
    /// Number of layers of the program.
    fn layers(&self) -> usize;

    /// The client's vectors as the first layer reads them: refreshed if they have fewer primes.
    ///
    /// # Errors
    /// Errors of the refresh; fails if the number of vectors is not the layout's.
    fn start(&self, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError>;

    /// The vectors that layer `next` reads, from a checkpoint before it; gains, offsets and bounds come from the model
    /// and the choices. After the last layer `next` is the number of layers.
    ///
    /// # Errors
    /// Fails if the model or the choices lack the layer, or the number of vectors is wrong.
    fn resume(&self, next: usize, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError>;

    /// Layer `i` of the model, from vectors to vectors.
    ///
    /// # Errors
    /// Those of its steps.
    fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError>;

    /// The answer, packed, from the result of the last layer.
    ///
    /// # Errors
    /// Those of its steps.
    fn finish(&mut self, x: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError>;

    /// Runs from the client's vectors to the answer.
    ///
    /// # Errors
    /// Those of the layers.
    fn run(&mut self, vectors: Vec<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let mut x = self.start(vectors)?;
        for i in 0..self.layers() {
            x = self.layer(i, x)?;
        }
        self.finish(&x)
    }

    /// Sets a viewer of its results; packed rows show none.
    fn view(&mut self, _: Viewer<'a, S::Value>) {}

    /// Where the columns lie in packed rows; `None` for a batch.
    fn packed_columns(&self) -> Option<&Spread> {
        None
    }

    /// Where the numbers of an answer lie in packed rows; `None` for a batch.
    fn packed_answers(&self) -> Option<&Spread> {
        self.packed_columns()
    }
}

/// A pass over these texts.
///
/// # Errors
/// As [`Pass::new`], [`PackedPass::new`], [`DecoderPass::new`] and [`PackedDecoderPass::new`].
pub fn forward_pass<'a, S: Slots>(
    on: &'a S,
    program: &'a Program,
    choices: &'a Choices,
    placement: Placement,
    texts: Texts<S::Value>,
    bound: f64,
) -> Result<Box<dyn ForwardPass<'a, S> + 'a>, FheError> {
    if placement.pairs && !matches!(texts, Texts::Last(..)) {
        return Err(FheError::Unsupported {
            what: "columns in pairs".to_owned(),
            remedy: "they are for batches of decoders",
        });
    }
    Ok(match texts {
        Texts::Columns(rows) => Box::new(Pass::new(on, program, choices, placement, rows, bound)?),
        Texts::Last(layout, answer, real) => {
            let pass = DecoderPass::new(on, program, choices, placement, layout, bound)?;
            Box::new(pass.answering(answer).masked_by(real)?)
        }
        Texts::Packed(rows) => Box::new(PackedPass::new(
            on, program, choices, placement, rows, bound,
        )?),
        Texts::PackedLast(layout, answer) => {
            let read = (layout, answer);
            Box::new(PackedDecoderPass::new(
                on, program, choices, placement, read, bound,
            )?)
        }
    })
}

/// The result of a step, passed to a [`Viewer`].
#[derive(Clone, Copy)]
pub enum Look<'a, V> {
    /// The refreshed result of a norm; in a decoder, that of a sum.
    Columns(&'a Acts<V>),
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

/// The texts of a run, in the layout of its plan.
pub enum Texts<V> {
    /// A batch, one vector per column.
    Columns(RowsKnown<V>),
    /// A batch of texts that end in row m − 1, one vector per column, answered with these rows; for softmax attention,
    /// with the mask of real rows.
    Last(Interleave, AnswerRows, Option<V>),
    /// Packed rows.
    Packed(PackedRows<V>),
    /// Packed rows of texts that end in the last row, answered with these rows.
    PackedLast(Layout, AnswerRows),
}
