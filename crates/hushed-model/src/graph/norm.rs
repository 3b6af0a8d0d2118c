//! Normalisations of rows: LayerNorm and RMSNorm.

use std::sync::Arc;

/// `(x − mean)/√(variance + ε)` of each row, or with the mean taken as 0, then a gain and an offset for each of its
/// numbers.
#[derive(Clone)]
pub struct RowNorm {
    /// The last dimensions of the operand, which are a row.
    pub shape: Vec<usize>,
    /// Whether the mean is subtracted (LayerNorm), or taken as 0 (RMSNorm).
    pub centred: bool,
    /// ε, added to the variance.
    pub epsilon: f64,
    /// The degree of the polynomial of `1/√v` under encryption, if the owner chose one.
    pub degree: Option<usize>,
    /// Whether the folder has gains.
    pub has_gain: bool,
    /// Whether the folder has offsets; only with gains.
    pub has_bias: bool,
    /// The gains; `None` without, or with shapes only.
    pub gain: Option<Arc<[f32]>>,
    /// The offsets; `None` as the gains.
    pub bias: Option<Arc<[f32]>>,
}

impl RowNorm {
    /// Numbers of a row.
    pub fn size(&self) -> usize {
        self.shape.iter().product::<usize>().max(1)
    }

    /// The value; `None` without the gains or offsets that the folder has.
    pub fn value(&self, x: &[f64]) -> Option<Vec<f64>> {
        let centred = self.deviations(x);
        let squares: Vec<f64> = centred.iter().map(|v| v * v).collect();
        let unit = centred.iter().zip(self.variances(&squares)).map(|(x, v)| x / v.sqrt());
        self.scaled(&unit.collect::<Vec<_>>())
    }

    /// What each number is beyond the mean of its row, or it itself.
    pub fn deviations(&self, x: &[f64]) -> Vec<f64> {
        let row = |row: &[f64]| {
            let mean = if self.centred { row.iter().sum::<f64>() / row.len() as f64 } else { 0.0 };
            row.iter().map(|v| v - mean).collect::<Vec<_>>()
        };
        x.chunks_exact(self.size()).flat_map(row).collect()
    }

    /// For each number the mean of its row's squares, and ε.
    pub fn variances(&self, squares: &[f64]) -> Vec<f64> {
        let row = |row: &[f64]| vec![row.iter().sum::<f64>() / row.len() as f64 + self.epsilon; row.len()];
        squares.chunks_exact(self.size()).flat_map(row).collect()
    }

    /// With gains and offsets; `None` without those that the folder has.
    pub fn scaled(&self, unit: &[f64]) -> Option<Vec<f64>> {
        let there = (self.gain.is_some(), self.bias.is_some()) == (self.has_gain, self.has_bias);
        let of = |numbers: &Option<Arc<[f32]>>, i: usize, or: f64| {
            numbers.as_ref().and_then(|numbers| numbers.get(i % self.size())).map_or(or, |&v| f64::from(v))
        };
        let scaled = unit.iter().enumerate().map(|(i, v)| v * of(&self.gain, i, 1.0) + of(&self.bias, i, 0.0));
        there.then(|| scaled.collect())
    }
}
