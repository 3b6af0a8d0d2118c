//! A batch of texts through a simulated decoder: right-aligned, as a client packs them.

use hushed_model::{Matrix, ModelError, Program, TokenIds};

use super::batch::embedded;
use super::{Simulator, Vector};
use crate::choices::Choices;
use crate::error::FheError;
use crate::ops::pool::unpack;
use crate::packing::Interleave;
use crate::pass::DecoderPass;
use crate::plan::placement::Placement;

/// A decoder and how it is run in the clear.
pub(crate) struct Decoded<'a> {
    pub program: &'a Program,
    pub choices: &'a Choices,
    pub placement: Placement,
    /// Bound by which a client divides its columns.
    pub bound: f64,
}

impl Decoded<'_> {
    /// The normalised last row of each text.
    ///
    /// # Errors
    /// Those of the pass.
    pub fn run(
        &self,
        on: &Simulator,
        layout: Interleave,
        texts: &[TokenIds],
    ) -> Result<Vec<Vec<f64>>, FheError> {
        let placement = self.placement.clone();
        let upload = placement.upload;
        let columns = columns_to_last(self.program, texts, layout, self.bound)?;
        let columns = columns.into_iter().map(|v| on.vector(v, upload));
        let columns = columns.collect::<Result<Vec<Vector>, _>>()?;
        let (program, choices) = (self.program, self.choices);
        let mut pass = DecoderPass::new(on, program, choices, placement, layout, self.bound)?;
        let answer = pass.run(columns)?;
        let vectors: Vec<Vec<f64>> = answer.vectors.iter().map(|v| v.values().to_vec()).collect();
        let rows = vec![1; texts.len()];
        Ok(unpack(
            layout,
            &rows,
            answer.width,
            answer.factor,
            &vectors,
        )?)
    }
}

/// The slots of each column of texts that end in row m − 1, divided by `bound`; zeros elsewhere.
///
/// # Errors
/// Those of the model.
pub(crate) fn columns_to_last(
    program: &Program,
    texts: &[TokenIds],
    layout: Interleave,
    bound: f64,
) -> Result<Vec<Vec<f64>>, ModelError> {
    let texts = texts.iter().map(|text| embedded(program, text));
    let texts = texts.collect::<Result<Vec<Matrix<f64>>, _>>()?;
    let column = |j: usize| {
        layout.vector(texts.len(), |text, row| {
            let x = &texts[text];
            let first = layout.rows().saturating_sub(x.rows());
            match row.checked_sub(first) {
                Some(row) => x.row(row)[j] / bound,
                None => 0.0,
            }
        })
    };
    Ok((0..program.width()).map(column).collect())
}
