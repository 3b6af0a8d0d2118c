//! The names and shapes of a model's tensors, for every source of numbers: an architecture a file.

mod encoder;
mod gpt2;
mod llama;
mod random;
mod vit;

use std::convert::Infallible;
use std::sync::Arc;

use crate::arch::Architecture;
use crate::blocks::{Embedding, Linear, Norm, NormKind, Pool};
use crate::body::Body;
use crate::error::Problem;
use crate::folder::config::NetworkConfig;
use crate::folder::decoder::WeightScale;
use crate::folder::weights::{ReadAt, Weights};
use crate::matrix::Matrix;

pub(crate) use encoder::encoder;
pub(crate) use gpt2::gpt2;
pub(crate) use llama::llama;
pub(crate) use random::Random;
pub(crate) use vit::vit;

/// The layers of this configuration, with numbers from the source.
pub(crate) fn body<S: Source>(
    config: &NetworkConfig,
    pool: Pool,
    source: &mut S,
) -> Result<Body, S::Error> {
    Ok(match config.architecture {
        Architecture::Bert | Architecture::Roberta | Architecture::DistilBert => {
            Body::Encoder(encoder(config, pool, source)?)
        }
        Architecture::Gpt2 => Body::Decoder(gpt2(config, source)?),
        Architecture::Llama | Architecture::BitNet => Body::Decoder(llama(config, source)?),
        Architecture::Vit => Body::Vision(vit(config, source)?),
    })
}

/// Supplies tensors by name; `None` where only shapes are wanted.
pub(crate) trait Source {
    type Error;
    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Self::Error>;

    /// The weights of a layer that is declared ternary, `outputs × inputs`, its scale multiplied in.
    fn ternary(
        &mut self,
        layer: &str,
        shape: [usize; 2],
        scale: WeightScale,
    ) -> Result<Option<Vec<f32>>, Self::Error>;
}

/// No numbers at all.
pub(crate) struct ShapesOnly;

impl Source for ShapesOnly {
    type Error = Infallible;
    fn tensor(&mut self, _: &str, _: &[usize]) -> Result<Option<Vec<f32>>, Infallible> {
        Ok(None)
    }

    fn ternary(
        &mut self,
        _: &str,
        _: [usize; 2],
        _: WeightScale,
    ) -> Result<Option<Vec<f32>>, Infallible> {
        Ok(None)
    }
}

/// Checks names, shapes and types, and ternary weights, collecting what is wrong.
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

    /// Reads the numbers too: whether they are ternary is not seen from their shapes.
    fn ternary(
        &mut self,
        layer: &str,
        shape: [usize; 2],
        scale: WeightScale,
    ) -> Result<Option<Vec<f32>>, Infallible> {
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

    fn ternary(
        &mut self,
        layer: &str,
        shape: [usize; 2],
        scale: WeightScale,
    ) -> Result<Option<Vec<f32>>, Problem> {
        Weights::ternary(self, layer, shape, scale).map(Some)
    }
}

/// Makes layers of tensors.
struct From<'a, S> {
    config: &'a NetworkConfig,
    source: &'a mut S,
}

impl<S: Source> From<'_, S> {
    fn norm(&mut self, name: &str) -> Result<Norm, S::Error> {
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

    fn linear(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, S::Error> {
        Ok(Linear {
            inputs,
            outputs,
            weights: self
                .matrix(&format!("{name}.weight"), outputs, inputs)?
                .map(Arc::new),
            bias: self.vector(&format!("{name}.bias"), outputs)?,
            ternary: false,
        })
    }

    /// A linear layer, ternary where the configuration says so, whose bias is zeros where the folder has none.
    fn linear_if(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        biased: bool,
    ) -> Result<Linear, S::Error> {
        let weights = match self.config.ternary {
            Some(scale) => {
                let data = self.source.ternary(name, [outputs, inputs], scale)?;
                data.and_then(|data| Matrix::new(outputs, inputs, data))
            }
            None => self.matrix(&format!("{name}.weight"), outputs, inputs)?,
        };
        let bias = match biased {
            true => self.vector(&format!("{name}.bias"), outputs)?,
            false => weights.as_ref().map(|_| vec![0.0; outputs].into()),
        };
        Ok(Linear {
            inputs,
            outputs,
            bias,
            weights: weights.map(Arc::new),
            ternary: self.config.ternary.is_some(),
        })
    }

    /// The head of a language model, without bias.
    fn head(&mut self, embedding: &Embedding) -> Result<Linear, S::Error> {
        let (inputs, outputs) = (embedding.width, embedding.vocabulary);
        let weights = match self.config.tied {
            true => embedding.tokens.clone(),
            false => self
                .matrix("lm_head.weight", outputs, inputs)?
                .map(Arc::new),
        };
        let bias = weights.as_ref().map(|_| vec![0.0; outputs].into());
        Ok(Linear {
            inputs,
            outputs,
            weights,
            bias,
            ternary: false,
        })
    }

    fn matrix(
        &mut self,
        name: &str,
        rows: usize,
        cols: usize,
    ) -> Result<Option<Matrix<f32>>, S::Error> {
        let data = self.source.tensor(name, &[rows, cols])?;
        Ok(data.and_then(|data| Matrix::new(rows, cols, data)))
    }

    fn vector(&mut self, name: &str, length: usize) -> Result<Option<Arc<[f32]>>, S::Error> {
        Ok(self.source.tensor(name, &[length])?.map(Arc::from))
    }
}
