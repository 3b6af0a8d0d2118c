//! What stands around a linear layer, multiplied into it: gains and offsets of the norm before, scales, centring for the norm
//! after, layers side by side. Both protocols fold by these rules, in f64; what is made of a map is rounded once, when all is in it.

use std::ops::Range;

use hushed_model::{Linear, ModelError, Norm, StepId};

/// A matrix of scalars and a bias: row o of the result is Σ_i `w[o][i]`·x_i + bias_o.
#[derive(Clone, Debug, PartialEq)]
pub struct LinearMap {
    /// Results.
    pub rows: usize,
    /// Operands.
    pub columns: usize,
    /// rows × columns, row after row; none where only shapes count. Secret where they come from a model: nothing is skipped.
    pub weights: Vec<f64>,
    /// One a row, or none at all.
    pub bias: Option<Vec<f64>>,
}

impl LinearMap {
    /// A layer as published.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] where it has no numbers.
    pub fn of(id: StepId, layer: &Linear) -> Result<LinearMap, ModelError> {
        let (weights, bias) = (here(id, &layer.weights)?, here(id, &layer.bias)?);
        Ok(LinearMap {
            rows: layer.outputs,
            columns: layer.inputs,
            weights: weights.data().iter().map(|&w| f64::from(w)).collect(),
            bias: Some(bias.iter().map(|&b| f64::from(b)).collect()),
        })
    }

    /// The identity on `width` columns.
    pub fn identity(width: usize) -> LinearMap {
        let mut weights = vec![0.0; width * width];
        weights.iter_mut().step_by(width + 1).for_each(|w| *w = 1.0);
        LinearMap {
            rows: width,
            columns: width,
            weights,
            bias: Some(vec![0.0; width]),
        }
    }

    /// The map of an operand that still has to be multiplied by `gain` and shifted by `offset`, column by column.
    #[must_use]
    pub fn reading(mut self, gain: &[f64], offset: &[f64]) -> LinearMap {
        let rows = self.weights.chunks_exact_mut(self.columns.max(1));
        for (o, row) in rows.enumerate() {
            let products = row.iter().zip(offset);
            let constant: f64 = products.map(|(w, offset)| w * offset).sum();
            if let Some(bias) = self.bias.as_mut().and_then(|bias| bias.get_mut(o)) {
                *bias += constant;
            }
            row.iter_mut().zip(gain).for_each(|(w, gain)| *w *= gain);
        }
        self
    }

    /// The map of an operand that is `factor` times too small.
    #[must_use]
    pub fn of_smaller(mut self, factor: f64) -> LinearMap {
        self.weights.iter_mut().for_each(|w| *w *= factor);
        self
    }

    /// `factor` times the map.
    #[must_use]
    pub fn times(mut self, factor: f64) -> LinearMap {
        let all = self
            .weights
            .iter_mut()
            .chain(self.bias.iter_mut().flatten());
        all.for_each(|w| *w *= factor);
        self
    }

    /// Rows `range` of the map, with their biases.
    #[must_use]
    pub fn rows(&self, range: Range<usize>) -> LinearMap {
        let weights = match self.weights.is_empty() {
            true => &[],
            false => &self.weights[range.start * self.columns..range.end * self.columns],
        };
        LinearMap {
            rows: range.len(),
            columns: self.columns,
            weights: weights.to_vec(),
            bias: self.bias.as_ref().map(|b| b[range].to_vec()),
        }
    }

    /// The rows of maps of the same columns, one after another.
    #[must_use]
    pub fn stacked(maps: Vec<LinearMap>) -> LinearMap {
        let mut maps = maps.into_iter();
        let Some(mut all) = maps.next() else {
            return LinearMap::identity(0);
        };
        for map in maps {
            all.bias = match (all.bias, map.bias) {
                (None, None) => None,
                (a, b) => {
                    let zeros = |rows| vec![0.0; rows];
                    let mut bias = a.unwrap_or_else(|| zeros(all.rows));
                    bias.extend(b.unwrap_or_else(|| zeros(map.rows)));
                    Some(bias)
                }
            };
            all.rows += map.rows;
            all.weights.extend(map.weights);
        }
        all
    }
}

/// Gain and offset of a norm.
///
/// # Errors
/// [`ModelError::ShapesOnly`] where it has no numbers.
pub fn affine(id: StepId, norm: &Norm) -> Result<(Vec<f64>, Vec<f64>), ModelError> {
    let numbers = |numbers: &[f32]| numbers.iter().map(|&v| f64::from(v)).collect();
    let (gain, offset) = (here(id, &norm.gain)?, here(id, &norm.offset)?);
    Ok((numbers(gain), numbers(offset)))
}

/// The numbers of a layer, at a step that cannot do without.
///
/// # Errors
/// [`ModelError::ShapesOnly`].
pub fn here<T>(id: StepId, numbers: &Option<T>) -> Result<&T, ModelError> {
    numbers.as_ref().ok_or_else(|| ModelError::ShapesOnly {
        site: id.to_string(),
    })
}
