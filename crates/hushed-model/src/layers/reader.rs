//! Where the numbers of layers come from, by the names of their tensors, and layers made of them.

use std::convert::Infallible;
use std::sync::Arc;

use crate::arch::config::NetworkConfig;
use crate::arch::config::WeightScale;
use crate::blocks::{Embedding, Linear, Norm, NormKind};
use crate::error::Problem;
use crate::folder::Stored;
use crate::folder::stored::Files;
use crate::folder::weights::{ReadAt, Weights};
use crate::matrix::Matrix;

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
pub(crate) type Numbers = (Option<Arc<Matrix<f32>>>, Option<Stored>);

/// Builds layers from tensors.
pub(crate) struct LayerReader<'a, S> {
    pub config: &'a NetworkConfig,
    pub source: &'a mut S,
}

impl<S: Source> LayerReader<'_, S> {
    pub(crate) fn norm(&mut self, name: &str) -> Result<Norm, S::Error> {
        self.norm_of(name, self.config.width)
    }

    pub(crate) fn norm_of(&mut self, name: &str, width: usize) -> Result<Norm, S::Error> {
        Ok(Norm {
            kind: NormKind::LayerNorm,
            width,
            epsilon: self.config.epsilon,
            reach: None,
            gain: self.vector(&format!("{name}.weight"), width)?,
            offset: self.vector(&format!("{name}.bias"), width)?,
        })
    }

    pub(crate) fn linear(&mut self, name: &str, inputs: usize, outputs: usize) -> Result<Linear, S::Error> {
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
    pub(crate) fn linear_if(
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

    /// A linear layer whose results are multiplied by a stored factor each.
    pub(crate) fn scaled_columns(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: usize,
        factors: &str,
    ) -> Result<Linear, S::Error> {
        let matrix = self.matrix(&format!("{name}.weight"), outputs, inputs)?;
        let bias = self.vector(&format!("{name}.bias"), outputs)?;
        let factors = self.vector(factors, outputs)?;
        let weights = matrix.zip(factors.as_ref()).map(|(mut matrix, factors)| {
            for (i, factor) in factors.iter().enumerate() {
                matrix.row_mut(i).iter_mut().for_each(|w| *w *= factor);
            }
            Arc::new(matrix)
        });
        let bias = bias.zip(factors).map(|(bias, factors)| bias.iter().zip(&*factors).map(|(b, f)| b * f).collect());
        Ok(Linear { inputs, outputs, weights, stored: None, bias, ternary: false })
    }

    /// Linear layers of the same input without biases, whose matrices are stored above each other as one.
    pub(crate) fn above_each_other<const N: usize>(
        &mut self,
        name: &str,
        inputs: usize,
        outputs: [usize; N],
    ) -> Result<[Linear; N], S::Error> {
        let all = self.matrix(&format!("{name}.weight"), outputs.iter().sum(), inputs)?;
        let mut first = 0;
        Ok(outputs.map(|outputs| {
            let rows = first..first + outputs;
            first += outputs;
            let weights = all.as_ref().map(|all| Arc::new(all.rows_of(rows)));
            let bias = weights.as_ref().map(|_| vec![0.0; outputs].into());
            Linear { inputs, outputs, weights, stored: None, bias, ternary: false }
        }))
    }

    /// The head of a language model, without a bias.
    pub(crate) fn head(&mut self, embedding: &Embedding) -> Result<Linear, S::Error> {
        let (inputs, outputs) = (embedding.width, embedding.vocabulary);
        let (weights, stored) = match self.config.tied {
            true => (embedding.tokens.clone(), embedding.stored.clone()),
            false => self.numbers("lm_head.weight", outputs, inputs)?,
        };
        let bias = no_bias(&weights, &stored, outputs);
        Ok(Linear { inputs, outputs, weights, stored, bias, ternary: false })
    }

    /// The numbers of a matrix, or where they are stored.
    pub(crate) fn numbers(&mut self, name: &str, rows: usize, cols: usize) -> Result<Numbers, S::Error> {
        match self.source.left(name, [rows, cols]) {
            Some(stored) => Ok((None, Some(stored))),
            None => Ok((self.matrix(name, rows, cols)?.map(Arc::new), None)),
        }
    }

    /// The numbers of a matrix times a factor.
    pub(crate) fn scaled(&self, factor: f64, (held, stored): Numbers) -> Numbers {
        let scaled = |m: &Matrix<f32>| m.data().iter().map(|&w| (f64::from(w) * factor) as f32).collect();
        match held.as_deref() {
            Some(m) if factor != 1.0 => (Matrix::new(m.rows(), m.cols(), scaled(m)).map(Arc::new), None),
            _ => (held, stored.map(|stored| stored.times(factor))),
        }
    }

    /// A linear layer whose results are multiplied by a factor.
    pub(crate) fn scaled_layer(&self, factor: f64, linear: Linear) -> Linear {
        let (weights, stored) = self.scaled(factor, (linear.weights, linear.stored));
        let bias = linear.bias.map(|bias| bias.iter().map(|&b| (f64::from(b) * factor) as f32).collect());
        Linear { weights, stored, bias, ..linear }
    }

    pub(crate) fn matrix(&mut self, name: &str, rows: usize, cols: usize) -> Result<Option<Matrix<f32>>, S::Error> {
        let data = self.source.tensor(name, &[rows, cols])?;
        Ok(data.and_then(|data| Matrix::new(rows, cols, data)))
    }

    pub(crate) fn vector(&mut self, name: &str, length: usize) -> Result<Option<Arc<[f32]>>, S::Error> {
        Ok(self.source.tensor(name, &[length])?.map(Arc::from))
    }
}

/// Zeros for a layer without a bias, if there are numbers.
fn no_bias(weights: &Option<Arc<Matrix<f32>>>, stored: &Option<Stored>, outputs: usize) -> Option<Arc<[f32]>> {
    (weights.is_some() || stored.is_some()).then(|| vec![0.0; outputs].into())
}
