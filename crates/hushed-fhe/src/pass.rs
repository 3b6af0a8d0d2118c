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
    if placement.pairs && !(matches!(texts, Texts::Last(..)) && has_rms_norms(program)) {
        return Err(FheError::Unsupported {
            what: "columns in pairs".to_owned(),
            remedy: "they are for batches of decoders with RMSNorm",
        });
    }
    if placement.per_place > 1 && !matches!(texts, Texts::Columns(RowsKnown::Public { .. })) {
        return Err(FheError::Unsupported {
            what: "texts that share places".to_owned(),
            remedy: "they are for batches of encoders, with public lengths",
        });
    }
    Ok(match texts {
        Texts::Columns(rows) => Box::new(Pass::new(on, program, choices, placement, rows, bound)?),
        Texts::Last(layout, answer, real) => {
            Box::new(Pass::last(on, (program, choices), placement, (layout, answer, real), bound)?)
        }
        Texts::Packed(rows) => Box::new(Pass::packed(on, program, choices, placement, rows, bound)?),
        Texts::PackedLast(..) if !has_rms_norms(program) => {
            return Err(FheError::Unsupported {
                what: "a decoder with LayerNorm, in packed rows".to_owned(),
                remedy: "omit --texts to plan a batch",
            });
        }
        Texts::PackedLast(layout, answer) => {
            let read = (layout, answer);
            Box::new(PackedDecoderPass::new(on, program, choices, placement, read, bound)?)
        }
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
