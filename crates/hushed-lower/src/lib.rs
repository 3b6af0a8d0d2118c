//! Folds what surrounds a linear layer into its weights and biases: gains and offsets of the norm before it, scales,
//! centring for the norm after it, layers side by side. Both protocols fold by these rules, in f64, and round
//! once, after everything is folded in; what one protocol alone folds is in its own crate.
#![forbid(unsafe_code)]

pub mod network;

use std::fmt;
use std::ops::Range;

use hushed_model::{Linear, ModelError, Norm, StepId, here, same};

/// A matrix of scalars with a bias: row o of the result is Σ_i `w[o][i]`·x_i + bias_o.
#[derive(Clone, PartialEq)]
pub struct LinearMap {
    /// Number of outputs.
    pub rows: usize,
    /// Number of inputs.
    pub columns: usize,
    /// rows × columns, row-major; empty if only shapes matter. Secret if they come from a model, so no entry is
    /// skipped.
    pub weights: Vec<f64>,
    /// Declared bound on the size of every weight, so that scales and digits do not depend on single weights. Infinite
    /// until [`LinearMap::bounded`] sets it, once everything is folded in; parts of a map inherit the bound of the
    /// whole.
    pub bound: f64,
    /// One per row, or none at all.
    pub bias: Option<Vec<f64>>,
}

impl fmt::Debug for LinearMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The weights are secret.
        write!(f, "LinearMap {} × {}", self.rows, self.columns)
    }
}

impl LinearMap {
    /// The map of a published layer.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] if the layer has no numbers, [`ModelError::Mismatch`] if they have another shape.
    pub fn of(id: StepId, layer: &Linear) -> Result<LinearMap, ModelError> {
        let mut weights = Vec::with_capacity(layer.outputs * layer.inputs);
        layer.each_rows(id, |rows| weights.extend(rows.iter().map(|&v| f64::from(v))))?;
        Ok(LinearMap {
            rows: layer.outputs,
            columns: layer.inputs,
            weights,
            bound: f64::INFINITY,
            bias: Some(biases(id, layer)?),
        })
    }

    /// A map with only a shape.
    pub fn shape(rows: usize, columns: usize) -> LinearMap {
        LinearMap { rows, columns, weights: Vec::new(), bound: 1.0, bias: Some(vec![0.0; rows]) }
    }

    /// The identity on `width` columns.
    pub fn identity(width: usize) -> LinearMap {
        let mut weights = vec![0.0; width * width];
        weights.iter_mut().step_by(width + 1).for_each(|w| *w = 1.0);
        LinearMap { rows: width, columns: width, weights, bound: 1.0, bias: Some(vec![0.0; width]) }
    }

    /// The map of a vector, with the biases.
    pub fn times_vector(&self, x: &[f64]) -> Vec<f64> {
        let products = self.weights.chunks_exact(self.columns.max(1));
        let bias = |row: usize| self.bias.as_ref().map_or(0.0, |bias| bias[row]);
        products.enumerate().map(|(row, w)| w.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() + bias(row)).collect()
    }

    /// Sets the bound to a power of two that no weight exceeds: how a product is computed reveals nothing else about
    /// the weights.
    #[must_use]
    pub fn bounded(mut self) -> LinearMap {
        self.bound = bound_of(&self.weights);
        self
    }

    /// The map for an operand that still has to be multiplied by `gain` and shifted by `offset`, column by column.
    #[must_use]
    pub fn reading(mut self, gain: &[f64], offset: &[f64]) -> LinearMap {
        let mut constants = Vec::with_capacity(self.rows);
        for row in self.weights.chunks_exact_mut(self.columns.max(1)) {
            let products = row.iter().zip(offset);
            constants.push(products.map(|(w, offset)| w * offset).sum::<f64>());
            row.iter_mut().zip(gain).for_each(|(w, gain)| *w *= gain);
        }
        match &mut self.bias {
            Some(bias) => {
                let both = bias.iter_mut().zip(constants);
                both.for_each(|(bias, constant)| *bias += constant);
            }
            // A layer without biases gets some if it reads an operand with offsets.
            None if constants.iter().any(|&constant| constant != 0.0) => {
                self.bias = Some(constants);
            }
            None => {}
        }
        self
    }

    /// The map (I − 11ᵀ/d) times this one, whose result has its mean over the rows removed: for a norm that subtracts
    /// the mean.
    #[must_use]
    pub fn centred(mut self) -> LinearMap {
        let d = self.rows.max(1) as f64;
        let mut means = vec![0.0; self.columns];
        for row in self.weights.chunks_exact(self.columns.max(1)) {
            means.iter_mut().zip(row).for_each(|(mean, w)| *mean += w / d);
        }
        for row in self.weights.chunks_exact_mut(self.columns.max(1)) {
            row.iter_mut().zip(&means).for_each(|(w, mean)| *w -= mean);
        }
        if let Some(bias) = &mut self.bias {
            let mean = bias.iter().sum::<f64>() / d;
            bias.iter_mut().for_each(|b| *b -= mean);
        }
        self
    }

    /// The sum of this map and another of the same shape.
    #[must_use]
    pub fn plus(mut self, other: &LinearMap) -> LinearMap {
        let weights = self.weights.iter_mut().zip(&other.weights);
        weights.for_each(|(w, other)| *w += other);
        match (&mut self.bias, &other.bias) {
            (Some(bias), Some(other)) => bias.iter_mut().zip(other).for_each(|(b, other)| *b += other),
            (bias @ None, other) => bias.clone_from(other),
            (Some(_), None) => (),
        }
        self
    }

    /// `factor` times the map.
    #[must_use]
    pub fn times(self, factor: f64) -> LinearMap {
        self.scaled(factor, factor)
    }

    /// Multiplies weights and biases by a factor each: the two differ if the operand has a scale that the result lacks.
    #[must_use]
    pub fn scaled(mut self, weights: f64, bias: f64) -> LinearMap {
        self.weights.iter_mut().for_each(|w| *w *= weights);
        self.bias.iter_mut().flatten().for_each(|b| *b *= bias);
        self
    }

    /// Rows `range` of the map, with their biases.
    #[must_use]
    pub fn rows(&self, range: Range<usize>) -> LinearMap {
        self.picked(range)
    }

    /// Columns `range` of the map, without biases.
    #[must_use]
    pub fn columns(&self, range: Range<usize>) -> LinearMap {
        let rows = self.weights.chunks_exact(self.columns.max(1));
        LinearMap {
            rows: self.rows,
            columns: range.len(),
            weights: rows.flat_map(|row| row[range.clone()].to_vec()).collect(),
            bound: self.bound,
            bias: None,
        }
    }

    /// These rows of the map, in this order, with their biases.
    #[must_use]
    pub fn picked(&self, rows: impl IntoIterator<Item = usize>) -> LinearMap {
        let mut picked = LinearMap {
            rows: 0,
            columns: self.columns,
            weights: Vec::new(),
            bound: self.bound,
            bias: self.bias.as_ref().map(|_| Vec::new()),
        };
        for row in rows {
            picked.rows += 1;
            if !self.weights.is_empty() {
                let row = row * self.columns..(row + 1) * self.columns;
                picked.weights.extend_from_slice(&self.weights[row]);
            }
            if let (Some(picked), Some(bias)) = (&mut picked.bias, &self.bias) {
                picked.push(bias[row]);
            }
        }
        picked
    }

    /// Each row as two: its weights of even columns with its bias, then those of odd columns. For an operand that holds
    /// columns 2k and 2k + 1 in one vector; of an odd number of columns, the last is paired with zeros.
    #[must_use]
    pub fn by_parity(&self) -> LinearMap {
        let of = |row: &[f64], parity: usize| -> Vec<f64> {
            let pairs = row.chunks(2);
            pairs.map(|pair| pair.get(parity).copied().unwrap_or(0.0)).collect()
        };
        let rows = self.weights.chunks_exact(self.columns.max(1));
        LinearMap {
            rows: 2 * self.rows,
            columns: self.columns.div_ceil(2),
            weights: rows.flat_map(|row| [of(row, 0), of(row, 1)].concat()).collect(),
            bound: self.bound,
            bias: (self.bias.as_ref()).map(|bias| bias.iter().flat_map(|&b| [b, 0.0]).collect()),
        }
    }

    /// Stacks the rows of maps that have the same columns.
    #[must_use]
    pub fn stacked(maps: Vec<LinearMap>) -> LinearMap {
        let mut maps = maps.into_iter();
        let Some(mut all) = maps.next() else {
            return LinearMap::shape(0, 0);
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

/// A power of two that no weight exceeds, used as their declared bound.
pub fn bound_of(weights: &[f64]) -> f64 {
    let largest = weights.iter().fold(0.0_f64, |m, w| m.max(w.abs()));
    largest.max(f64::MIN_POSITIVE).log2().ceil().exp2()
}

/// The biases of a published layer.
///
/// # Errors
/// As [`LinearMap::of`].
pub fn biases(id: StepId, layer: &Linear) -> Result<Vec<f64>, ModelError> {
    let bias = here(id, &layer.bias)?;
    same(id, "biases", bias.len(), layer.outputs)?;
    Ok(bias.iter().map(|&v| f64::from(v)).collect())
}

/// The gain and offset of a norm.
///
/// # Errors
/// [`ModelError::ShapesOnly`] if the norm has no numbers.
pub fn affine(id: StepId, norm: &Norm) -> Result<(Vec<f64>, Vec<f64>), ModelError> {
    let numbers = |numbers: &[f32]| numbers.iter().map(|&v| f64::from(v)).collect();
    let (gain, offset) = (here(id, &norm.gain)?, here(id, &norm.offset)?);
    Ok((numbers(gain), numbers(offset)))
}

#[cfg(test)]
mod tests {
    use super::LinearMap;

    #[test]
    fn a_sum_has_the_biases_of_both() {
        let map = |weight: f64, bias: Option<f64>| LinearMap {
            rows: 1,
            columns: 1,
            weights: vec![weight],
            bound: f64::INFINITY,
            bias: bias.map(|b| vec![b]),
        };
        for (a, b, sum) in [
            (None, None, None),
            (None, Some(2.0), Some(2.0)),
            (Some(1.0), None, Some(1.0)),
            (Some(1.0), Some(2.0), Some(3.0)),
        ] {
            assert!(map(3.0, a).plus(&map(4.0, b)) == map(7.0, sum), "{a:?} {b:?}");
        }
    }

    #[test]
    fn rows_by_parity_and_in_another_order() {
        let map = LinearMap {
            rows: 2,
            columns: 3,
            weights: vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            bound: 8.0,
            bias: Some(vec![0.5, 0.25]),
        };
        let apart = map.by_parity();
        assert_eq!((apart.rows, apart.columns, apart.bound), (4, 2, 8.0));
        assert_eq!(apart.weights, [1.0, 3.0, 2.0, 0.0, 4.0, 6.0, 5.0, 0.0]);
        assert_eq!(apart.bias, Some(vec![0.5, 0.0, 0.25, 0.0]));
        let picked = map.picked([1, 0, 1]);
        assert_eq!(picked.weights, [4.0, 5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(picked.bias, Some(vec![0.25, 0.5, 0.25]));
        let shape = LinearMap::shape(2, 3);
        assert!(shape.by_parity() == LinearMap::shape(4, 2));
        assert!(shape.picked([0]) == LinearMap::shape(1, 3));
    }

    /// W·(g ⊙ x + o) + b, with and without b, and with a zero offset.
    #[test]
    fn offsets_of_an_operand_become_biases() {
        let map = |bias: Option<Vec<f64>>| LinearMap {
            rows: 2,
            columns: 2,
            weights: vec![1.0, 2.0, 3.0, 4.0],
            bound: f64::INFINITY,
            bias,
        };
        let read = |bias, offset: [f64; 2]| map(bias).reading(&[10.0, 100.0], &offset);
        let some = read(Some(vec![0.5, 0.25]), [1.0, -1.0]);
        assert_eq!(some.weights, [10.0, 200.0, 30.0, 400.0]);
        assert_eq!(some.bias, Some(vec![-0.5, -0.75]));
        assert_eq!(read(None, [1.0, -1.0]).bias, Some(vec![-1.0, -1.0]));
        assert_eq!(read(None, [0.0, 0.0]).bias, None);
    }
}
