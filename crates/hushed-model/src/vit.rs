//! Vision transformers (Dosovitskiy et al. 2021), written once.
//!
//! An image becomes one row per patch, each a linear map of the patch's numbers, preceded by a class token, with
//! learned positions, and in CLIP a norm. The layers are a decoder's with attention to all rows (pre-norm). Finally row
//! 0 is normalised, and it is the answer, or a linear layer maps it to one number per class, or to the columns of an
//! embedding; for the other rows the last layer computes only keys and values.

use crate::blocks::{Linear, Norm, Patches, Pool, Queries};
use crate::decoder::{Layer, layers};
use crate::program::{Block, Builder, Program};

/// The layers of a vision transformer, with their numbers or as shapes only.
#[derive(Clone)]
pub struct VisionNetwork {
    /// Patches, class token and positions.
    pub patches: Patches,
    /// After them, if there is one.
    pub first_norm: Option<Norm>,
    /// In order.
    pub layers: Vec<Layer>,
    /// Applied to row 0.
    pub norm: Norm,
    /// `d → k`, of a classifier.
    pub classes: Option<Linear>,
    /// From `d` to the columns of an embedding, where there is such a layer.
    pub projection: Option<Linear>,
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
        let x = match &self.first_norm {
            Some(norm) => p.step("patches.norm", Block::Norm(norm.clone()), &[x]),
            None => x,
        };
        let mut first = layers(&mut p, x, &self.layers, read);
        if read == Queries::All {
            first = p.step("first", Block::Pool(Pool::First), &[first]);
        }
        let first = p.step("norm", Block::Norm(self.norm.clone()), &[first]);
        match (&self.classes, &self.projection) {
            (Some(classes), _) => p.step("head", Block::Classes(classes.clone()), &[first]),
            (None, projection) => {
                let pooled = p.step("pool", Block::Pool(Pool::First), &[first]);
                let project = |linear: &Linear| p.step("project", Block::Linear(linear.clone()), &[pooled]);
                projection.as_ref().map_or(pooled, project)
            }
        };
        p.finish()
    }

    /// Columns of the answer.
    pub fn outputs(&self) -> usize {
        let last = self.classes.as_ref().or(self.projection.as_ref());
        last.map_or(self.norm.width, |linear| linear.outputs)
    }
}
