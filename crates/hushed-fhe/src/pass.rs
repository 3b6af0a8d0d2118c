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
mod texts;

use hushed_model::Program;

use super::choices::Choices;
use super::error::FheError;
use super::slots::Slots;
use crate::plan::placement::Placement;
use crate::tape::encoder::has_rms_norms;

pub use encoder::Pass;
pub use forward::{ForwardPass, Look, Viewer};
pub use packed_decoder::PackedDecoderPass;
pub use shape::{can_run, head_is_public};
pub use texts::Texts;

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
