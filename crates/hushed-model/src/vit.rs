//! Vision transformers (Dosovitskiy et al. 2021) as classifiers of images, written once.
//!
//! An image becomes one row per patch, each a linear map of the patch's numbers, preceded by a class token, with
//! learned positions. The layers are a decoder's with attention to all rows (pre-norm). Finally row 0 is normalised,
//! and a linear layer maps it to one number per class; for the other rows the last layer computes only keys and values.

use crate::blocks::{Linear, Norm, Patches, Pool, Queries};
use crate::decoder::{Layer, layers};
use crate::program::{Block, Builder, Program};

/// The layers of a vision transformer, with their numbers or as shapes only.
#[derive(Clone)]
pub struct VisionNetwork {
    /// Patches, class token and positions.
    pub patches: Patches,
    /// In order.
    pub layers: Vec<Layer>,
    /// Applied to row 0.
    pub norm: Norm,
    /// `d → k`.
    pub classes: Linear,
}

impl VisionNetwork {
    /// The program of these layers.
    pub fn program(&self) -> Program {
        self.program_by(Queries::First)
    }

    /// The same with all rows going through the last layer, for runs where a single row is no cheaper.
    pub fn program_of_all_rows(&self) -> Program {
        self.program_by(Queries::All)
    }

    fn program_by(&self, read: Queries) -> Program {
        let (mut p, x) = Builder::new("patches", Block::Patches(self.patches.clone()));
        let mut first = layers(&mut p, x, &self.layers, read);
        if read == Queries::All {
            first = p.step("first", Block::Pool(Pool::First), &[first]);
        }
        let first = p.step("norm", Block::Norm(self.norm.clone()), &[first]);
        p.step("head", Block::Classes(self.classes.clone()), &[first]);
        p.finish()
    }
}
