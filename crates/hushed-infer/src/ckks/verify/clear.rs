//! The first rung: the model in the clear, with what each step gives.

use hushed_model::record::{Moment, Recorded, Value};
use hushed_model::{Bert, Matrix, Plain, PlainActs, Site, TokenIds};

use super::rung::Shown;
use crate::ckks::error::FheError;

/// A run between two layers.
pub(super) struct Clear {
    x: PlainActs,
}

impl Clear {
    /// Embedded and normalised.
    pub fn new(bert: &Bert, texts: &[TokenIds]) -> Result<Clear, FheError> {
        // Padding of a text itself would be rows that no other rung has.
        let bare =
            |t: &TokenIds| TokenIds::new(t.ids().iter().copied().take(t.rows().real).collect());
        let x = bert.start(&mut Plain, texts.iter().map(bare).collect())?;
        Ok(Clear { x })
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

    /// Layer `i`, step by step. Before a norm, what is shown has its rows' means taken off: a norm does not see them, and no other rung has
    /// them.
    pub fn layer(&mut self, bert: &Bert, i: usize) -> Result<Shown, FheError> {
        let mut shown = Shown::new();
        let mut plain = Plain;
        let mut recorded =
            Recorded::blocks(&mut plain, |at: &Site, moment, value: Value<'_, Plain>| {
                if let (Moment::Output, Value::Acts(x)) = (moment, value) {
                    let mut values = x.values.clone();
                    if !at.in_layer().ends_with("norm") {
                        centre(&mut values);
                    }
                    shown.push((at.clone(), values));
                }
            });
        self.x = bert.layer(&mut recorded, i, self.x.clone())?;
        Ok(shown)
    }

    /// The pooled rows.
    pub fn pool(&self, bert: &Bert) -> Result<Vec<Vec<f64>>, FheError> {
        let pooled = bert.finish(&mut Plain, self.x.clone())?;
        Ok(pooled.each_text().map(<[f64]>::to_vec).collect())
    }

    /// Row by row of all texts: none of a text that was left out (`alive` has no rows of it), else its index in the text.
    pub fn compared(&self, alive: &[usize]) -> Vec<Option<usize>> {
        let texts = self.x.rows.blocks().zip(alive);
        let rows = texts.flat_map(|((block, _), &alive)| {
            (0..block.len()).map(move |row| (row < alive).then_some(row))
        });
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
