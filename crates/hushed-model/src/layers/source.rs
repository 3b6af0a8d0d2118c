//! Where the numbers of layers come from, by the names of their tensors, and layers made of them.

use std::convert::Infallible;
use std::sync::Arc;

use crate::arch::Architecture;
use crate::blocks::{Embedding, Linear, Norm, NormKind};
use crate::error::Problem;
use crate::folder::Stored;
use crate::folder::config::NetworkConfig;
use crate::folder::decoder::WeightScale;
use crate::folder::stored::Files;
use crate::folder::weights::{ReadAt, Weights};
use crate::matrix::Matrix;

/// The name of the linear layer that replaces the feed-forward block of layer `i`, if one does: that of the block's
/// last layer. And whether its matrix is stored as inputs × outputs.
pub(crate) fn merged_name(config: &NetworkConfig, i: usize) -> (String, bool) {
    match config.architecture {
        Architecture::Bert | Architecture::Roberta | Architecture::DistilBert => {
            let t = &config.architecture.encoder().tensors;
            (format!("{}.{i}.{}", t.layers, t.down), false)
        }
        Architecture::Gpt2 => (format!("h.{i}.mlp.c_proj"), true),
        Architecture::Llama | Architecture::BitNet => (format!("layers.{i}.mlp.down_proj"), false),
        Architecture::Vit => (format!("encoder.layer.{i}.output.dense"), false),
    }
}

/// Supplies tensors by name; `None` if only shapes are wanted.
pub(crate) trait Source {
    type Error;
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Self::Error>;

    /// The weights of a layer declared ternary, `outputs × inputs`, with the scale multiplied in. By default a tensor
    /// like any other, for sources that neither unpack nor check.
    fn ternary(&mut self, layer: &str, shape: [usize; 2], _: WeightScale) -> Result<Option<Vec<f32>>, Self::Error> {
        self.tensor(&format!("{layer}.weight"), &shape)
    }

    /// Where a matrix is stored, if the source leaves matrices there.
    fn left(&self, _: &str, _: [usize; 2]) -> Option<Stored> {
        None
    }
}

/// Supplies no numbers at all.
pub(crate) struct ShapesOnly;

impl Source for ShapesOnly {
    type Error = Infallible;
    fn tensor(&mut self, _: &str, _: &[usize]) -> Result<Option<Vec<f32>>, Infallible> {
        Ok(None)
    }
}

/// Checks names, shapes and types, and ternary weights, and collects the problems.
pub(crate) struct Checking<'a, R> {
    pub weights: &'a Weights<R>,
    pub problems: &'a mut Vec<Problem>,
}

impl<R: ReadAt> Source for Checking<'_, R> {
    type Error = Infallible;
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Infallible> {
        if let Err(problem) = self.weights.check(name, shape) {
            self.problems.push(problem);
        }
        Ok(None)
    }

    /// Reads the numbers too: shapes do not show whether they are ternary.
    fn ternary(&mut self, layer: &str, shape: [usize; 2], scale: WeightScale) -> Result<Option<Vec<f32>>, Infallible> {
        if let Err(problem) = self.weights.ternary(layer, shape, scale) {
            self.problems.push(problem);
        }
        Ok(None)
    }
}

impl<R: ReadAt> Source for &Weights<R> {
    type Error = Problem;
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Problem> {
        self.read(name, shape).map(Some)
    }

    fn ternary(&mut self, layer: &str, shape: [usize; 2], scale: WeightScale) -> Result<Option<Vec<f32>>, Problem> {
        Weights::ternary(self, layer, shape, scale).map(Some)
    }
}

/// Reads vectors and leaves matrices in the files. Ternary layers are read too: no protocol streams them.
pub(crate) struct Leaving<'a>(pub &'a Arc<Files>);

impl Source for Leaving<'_> {
    type Error = Problem;
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Problem> {
        self.0.weights().tensor(name, shape)
    }

    fn ternary(&mut self, layer: &str, shape: [usize; 2], scale: WeightScale) -> Result<Option<Vec<f32>>, Problem> {
        Source::ternary(&mut self.0.weights(), layer, shape, scale)
    }

    fn left(&self, name: &str, shape: [usize; 2]) -> Option<Stored> {
        Some(Stored::new(self.0, name, shape))
    }
}

/// The numbers of a matrix, or where they are stored; neither if only shapes are wanted.
type Numbers = (Option<Arc<Matrix<f32>>>, Option<Stored>);

/// Builds layers from tensors.
pub(super) struct From<'a, S> {
    pub(super) config: &'a NetworkConfig,
    pub(super) source: &'a mut S,
}

impl<S: Source> From<'_, S> {
    pub(super) fn norm(&mut self, name: &str) -> Result<Norm, S::Error> {
        let width = self.config.width;
        Ok(Norm {
            kind: NormKind::LayerNorm,
            width,
            epsilon: self.config.epsilon,
            reach: None,
            gain: self.vector(&format!("{name}.weight"), width)?,
            offset: self.vector(&format!("{name}.bias"), width)?,
        })
    }

    pub(super) fn linear(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, S::Error> {
        let (weights, stored) = self.numbers(&format!("{name}.weight"), outputs, inputs)?;
        Ok(Linear {
            inputs,
            outputs,
            weights,
            stored,
            bias: self.vector(&format!("{name}.bias"), outputs)?,
            ternary: false,
        })
    }

    /// A linear layer, ternary if the configuration says so, with a zero bias if the folder has none.
    pub(super) fn linear_if(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        biased: bool,
    ) -> Result<Linear, S::Error> {
        let (weights, stored) = match self.config.ternary {
            Some(scale) => {
                let data = self.source.ternary(name, [outputs, inputs], scale)?;
                let weights = data.and_then(|data| Matrix::new(outputs, inputs, data));
                (weights.map(Arc::new), None)
            }
            None => self.numbers(&format!("{name}.weight"), outputs, inputs)?,
        };
        let bias = match biased {
            true => self.vector(&format!("{name}.bias"), outputs)?,
            false => no_bias(&weights, &stored, outputs),
        };
        Ok(Linear { inputs, outputs, bias, weights, stored, ternary: self.config.ternary.is_some() })
    }

    /// The head of a language model, without a bias.
    pub(super) fn head(&mut self, embedding: &Embedding) -> Result<Linear, S::Error> {
        let (inputs, outputs) = (embedding.width, embedding.vocabulary);
        let (weights, stored) = match self.config.tied {
            true => (embedding.tokens.clone(), embedding.stored.clone()),
            false => self.numbers("lm_head.weight", outputs, inputs)?,
        };
        let bias = no_bias(&weights, &stored, outputs);
        Ok(Linear { inputs, outputs, weights, stored, bias, ternary: false })
    }

    /// The numbers of a matrix, or where they are stored.
    pub(super) fn numbers(&mut self, name: &str, rows: usize, cols: usize) -> Result<Numbers, S::Error> {
        match self.source.left(name, [rows, cols]) {
            Some(stored) => Ok((None, Some(stored))),
            None => Ok((self.matrix(name, rows, cols)?.map(Arc::new), None)),
        }
    }

    pub(super) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Option<Matrix<f32>>, S::Error> {
        let data = self.source.tensor(name, &[rows, cols])?;
        Ok(data.and_then(|data| Matrix::new(rows, cols, data)))
    }

    pub(super) fn vector(&mut self, name: &str, length: usize) -> Result<Option<Arc<[f32]>>, S::Error> {
        Ok(self.source.tensor(name, &[length])?.map(Arc::from))
    }
}

/// Zeros for a layer without a bias, if there are numbers.
fn no_bias(weights: &Option<Arc<Matrix<f32>>>, stored: &Option<Stored>, outputs: usize) -> Option<Arc<[f32]>> {
    (weights.is_some() || stored.is_some()).then(|| vec![0.0; outputs].into())
}
