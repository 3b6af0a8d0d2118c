//! The comparison for texts in packed rows: each text is run alone, as in its own request. Only answers are compared,
//! not steps: there a value is a pair of columns in a place, scaled by the range of its norm.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{Item, Matrix, Model};

use super::answers::answers;
use super::clear::Clear;
use super::options::{Event, Options, OutOfRange, Which};
use super::range::is_range;
use super::report::Report;
use super::subject::planned;
use crate::choices::Choices;
use crate::error::FheError;
use crate::inputs::bound_of_inputs;
use crate::packing::PackingError;
use crate::plan::{packed_placement, shortened};
use crate::simulate::{Batch, Simulator};

/// The rungs without the encrypted one, over requests of `together` texts.
///
/// # Errors
/// [`FheError::Unsupported`] for more texts than fit in packed rows; errors of the model and of the circuit.
pub(super) fn verify(
    model: &Model,
    choices: &Choices,
    params: &Arc<CkksParams>,
    texts: &[Item],
    (options, together): (&Options, usize),
    progress: &(dyn Fn(Event) + Sync),
) -> Result<Report, FheError> {
    let program = model.program_of_all_rows();
    choices.check(&program)?;
    let layers = options.layers.unwrap_or(usize::MAX);
    let (program, choices) = shortened(&program, choices, layers);
    let rows = options.rows;
    let mut alive: Vec<usize> = texts.iter().map(|t| t.rows().real).collect();
    if let Some((text, &found)) = alive.iter().enumerate().find(|(_, l)| **l > rows) {
        return Err(PackingError::RowCount { text, found, rows }.into());
    }
    let planned = planned(rows, together, options.lengths);
    let placement = packed_placement(&program, &choices, params, &planned)?;
    let placement = placement.ok_or_else(|| FheError::Unsupported {
        what: format!("{together} texts in one request of packed rows"),
        remedy: "omit --texts to verify a batch",
    })?;
    let batch = Batch {
        program: &program,
        choices: &choices,
        placement: &placement,
        lengths: options.lengths,
        bound: bound_of_inputs(&program, rows)?,
    };
    let mut clear = Clear::new(&program, texts)?;
    let embedded = clear.embedded();
    for layer in 0..program.layers().len() {
        clear.layer(&program, layer)?;
    }
    let pooled = clear.pool(&program)?;
    let run = |x: &Matrix<f64>, seed: Option<u64>| -> Result<Vec<f64>, FheError> {
        let on = Simulator::new(params, rows * placement.columns)?;
        let on = match seed {
            Some(seed) => on.with_errors(seed),
            None => on,
        };
        let found = batch.run(&on, rows, std::slice::from_ref(x), None)?;
        Ok(found.into_iter().next().unwrap_or_default())
    };
    let mut out_of_range = Vec::new();
    let mut found = [Which::Polynomial, Which::Predicted].map(|which| (which, Vec::new()));
    for (text, x) in embedded.iter().enumerate() {
        for (which, rows) in &mut found {
            progress(Event::Text { text, rung: *which });
            if alive[text] == 0 {
                rows.push(Vec::new());
                continue;
            }
            let seed = (*which == Which::Predicted).then_some(options.seed);
            let answer = match run(x, seed) {
                Ok(answer) => answer,
                Err(error) if is_range(&error) => {
                    alive[text] = 0;
                    out_of_range.push(OutOfRange {
                        text: Some(text),
                        layer: None,
                        rung: *which,
                        message: error.to_string(),
                    });
                    Vec::new()
                }
                Err(error) => return Err(error),
            };
            rows.push(answer);
        }
    }
    Ok(Report { stages: Vec::new(), answers: answers(&model.public, &pooled, &found, &alive), out_of_range })
}
