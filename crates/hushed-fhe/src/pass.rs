//! A program over [`Slots`], layer by layer, so that a run can stop and resume between layers. The client computes
//! everything before the first layer.
//!
//! In packed rows, decoders with LayerNorm, softmax attention or norms inside blocks are refused.

mod encoder;
mod look;
#[cfg(test)]
mod packed_tests;
mod shape;
mod texts;

pub use encoder::Pass;
pub use look::{Look, Viewer};
pub(crate) use shape::packed_decoder;
pub use shape::{can_run, head_is_public};
pub use texts::Texts;
