//! A program over [`Slots`], layer by layer, so that a run can stop and resume between layers. The client computes
//! everything before the first layer.
//!
//! In packed rows, decoders with LayerNorm, softmax attention or norms inside blocks are refused.

mod encoder;
mod forward;
#[cfg(test)]
mod packed_tests;
mod shape;
mod texts;

use hushed_model::Program;

use super::choices::Choices;
use super::error::FheError;
use super::slots::Slots;
use crate::plan::placement::Placement;

pub use encoder::Pass;
pub use forward::{ForwardPass, Look, Viewer};
pub(crate) use shape::packed_decoder;
pub use shape::{can_run, head_is_public};
pub use texts::Texts;

/// A pass over these texts.
///
/// # Errors
/// As [`Pass::over`].
pub fn forward_pass<'a, S: Slots>(
    on: &'a S,
    program: &'a Program,
    choices: &'a Choices,
    placement: Placement,
    texts: Texts<S::Value>,
    bound: f64,
) -> Result<Box<dyn ForwardPass<'a, S> + 'a>, FheError> {
    Ok(Box::new(Pass::over(on, (program, choices), placement, texts, bound)?))
}
