//! The first rung: the model in the clear, with the result of each step.

use hushed_model::{Item, Kind, Matrix, ModelError, PlainActs, Program, plain};

use super::rung::Shown;
use crate::error::FheError;
use crate::simulate::bare;
use crate::tape::encoder::has_rms_norms;

/// A run between two layers.
pub(super) struct Clear {
    x: PlainActs,
    /// Whether only sums are shown, as of a decoder with RMSNorm.
    sums: bool,
}

impl Clear {
    /// Embedded and normalised.
    pub fn new(program: &Program, texts: &[Item]) -> Result<Clear, FheError> {
        // Padding in a text would add rows that no other rung has.
        let x = plain::start(program, texts.iter().map(bare).collect())?;
        let sums = has_rms_norms(program);
        Ok(Clear { x, sums })
    }

    /// The rows of each text.
    pub fn embedded(&self) -> Vec<Matrix<f64>> {
        let blocks = self.x.rows.blocks().zip(self.x.each_text());
        let cols = self.x.values.cols();
        let text = |((rows, _), data): ((std::ops::Range<usize>, _), &[f64])| {
            Matrix::new(rows.len(), cols, data.to_vec()).unwrap_or(Matrix::zero(0, cols))
        };
        blocks.map(text).collect()
    }

    /// Runs layer `i` step by step. Before a norm that ignores it the mean of each row is subtracted: the other rungs
    /// do not have it. Of a decoder with RMSNorm they show the sums.
    pub fn layer(&mut self, program: &Program, i: usize) -> Result<Shown, FheError> {
        let mut shown = Shown::new();
        let layers = program.layers();
        let range = layers.get(i).cloned().ok_or(ModelError::NoSuchLayer { asked: i, layers: layers.len() })?;
        let sums = self.sums;
        self.x = plain::run_range(program, range, self.x.clone(), |step, x| {
            if sums && step.id.kind() != Kind::Add {
                return;
            }
            let mut values = x.values.clone();
            if !sums && step.id.kind() != Kind::Norm {
                centre(&mut values);
            }
            shown.push((step.id, values));
        })?;
        Ok(shown)
    }

    /// The pooled rows, or the last rows before a decoder's head.
    pub fn pool(&self, program: &Program) -> Result<Vec<Vec<f64>>, FheError> {
        let after = program.layers().last().map_or(0, |layer| layer.end);
        let range = after..program.steps().len() - usize::from(program.vocabulary().is_some());
        let pooled = plain::run_range(program, range, self.x.clone(), |_, _| ())?;
        Ok(pooled.each_text().map(<[f64]>::to_vec).collect())
    }

    /// For each row of all texts its index in the text; `None` for a text that was left out (`alive` is 0).
    pub fn compared(&self, alive: &[usize]) -> Vec<Option<usize>> {
        let texts = self.x.rows.blocks().zip(alive);
        let rows = texts.flat_map(|((block, _), &alive)| (0..block.len()).map(move |row| (row < alive).then_some(row)));
        rows.collect()
    }
}

fn centre(x: &mut Matrix<f64>) {
    let width = x.cols().max(1);
    for row in x.data_mut().chunks_exact_mut(width) {
        let mean = row.iter().sum::<f64>() / width as f64;
        row.iter_mut().for_each(|v| *v -= mean);
    }
}
