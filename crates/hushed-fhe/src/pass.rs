//! A program over [`Slots`], layer by layer, so that a run can stop and resume between layers. The client computes
//! everything before the first layer.
//!
//! | layout | encoders | decoders with LayerNorm | decoders with RMSNorm |
//! |---|---|---|---|
//! | a batch, one vector per column | `encoder.rs` | `encoder.rs` | `encoder.rs` |
//! | packed rows: one text, or a few | `encoder.rs` | refused | `packed_decoder.rs` |

mod blocks;
mod encoder;
mod forward;
mod packed_decoder;
#[cfg(test)]
mod packed_tests;
mod shape;

use hushed_model::Program;

use super::choices::Choices;
use super::error::FheError;
use super::slots::Slots;
use crate::ops::mask::RowsKnown;
use crate::ops::packed::rows::PackedRows;
use crate::packing::{Interleave, Layout};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::tape::encoder::has_rms_norms;

pub use encoder::Pass;
pub use forward::{ForwardPass, Look, Viewer};
pub use packed_decoder::PackedDecoderPass;
pub use shape::{can_run, head_is_public};

/// A pass over these texts.
///
/// # Errors
/// As [`Pass::new`], [`Pass::last`], [`Pass::packed`] and [`PackedDecoderPass::new`].
pub fn forward_pass<'a, S: Slots>(
    on: &'a S,
    program: &'a Program,
    choices: &'a Choices,
    placement: Placement,
    texts: Texts<S::Value>,
    bound: f64,
) -> Result<Box<dyn ForwardPass<'a, S> + 'a>, FheError> {
    Ok(match texts {
        Texts::PackedLast(layout, answer) if has_rms_norms(program) && !placement.pairs && placement.per_place == 1 => {
            let read = (layout, answer);
            Box::new(PackedDecoderPass::new(on, program, choices, placement, read, bound)?)
        }
        texts => Box::new(Pass::over(on, (program, choices), placement, texts, bound)?),
    })
}

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

impl<V> Texts<V> {
    /// The same texts, with what `f` makes of what the client sent of lengths.
    pub(crate) fn map<W>(self, f: impl FnOnce(V) -> W) -> Texts<W> {
        match self {
            Texts::Columns(RowsKnown::Public { layout, packing }) => {
                Texts::Columns(RowsKnown::Public { layout, packing })
            }
            Texts::Columns(RowsKnown::Private { layout, real }) => {
                Texts::Columns(RowsKnown::Private { layout, real: f(real) })
            }
            Texts::Last(layout, answer, real) => Texts::Last(layout, answer, real.map(f)),
            Texts::Packed(rows) => Texts::Packed(rows.map(f)),
            Texts::PackedLast(layout, answer) => Texts::PackedLast(layout, answer),
        }
    }
}
