//! Vision transformers (Dosovitskiy et al. 2021) as classifiers of images, written once.
//!
//! An image is a row a patch, each a linear map of the patch's numbers, and a class token before them, with learned
//! positions. Layers are a decoder's with attention to all rows (pre-norm). Row 0 is normalised at last, and a linear
//! layer of it gives a number a class; of other rows the last layer makes keys and values alone.

use crate::blocks::{Linear, Norm, Patches, Queries};
use crate::decoder::{Layer, layers};
use crate::program::{Block, Builder, Program};

/// The layers of a vision transformer, with their numbers or as shapes only.
#[derive(Clone)]
pub struct VisionNetwork {
    /// Patches, class token and positions.
    pub patches: Patches,
    /// In order.
    pub layers: Vec<Layer>,
    /// Of row 0.
    pub norm: Norm,
    /// `d → k`.
    pub classes: Linear,
}

impl VisionNetwork {
    /// The steps.
    pub fn program(&self) -> Program {
        let (mut p, x) = Builder::new("patches", Block::Patches(self.patches.clone()));
        let first = layers(&mut p, x, &self.layers, Queries::First);
        let first = p.step("norm", Block::Norm(self.norm.clone()), &[first]);
        p.step("head", Block::Classes(self.classes.clone()), &[first]);
        p.finish()
    }
}
