//! The answers of texts with the approximations of a calibration, in a simulation.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{Item, Model, Program};

use super::clear::Clear;
use crate::inputs::bound_of_inputs;
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::plan::public_plan::Lengths;
use crate::simulate::{Batch, Simulator, embedded, those_within};
use crate::slots::Slots;
use crate::{Choices, ChoicesError, FheError, MAX_ROWS};

/// Answers computed with the approximations of a calibration, in a simulation at the levels of a parameter set; with
/// errors drawn from `seed`, if there is one. `None` for a text that leaves an interval too far for a refresh.
///
/// # Errors
/// Fails if the choices belong to another model or need more levels, or texts are longer than their rows.
pub fn embed<T: Clone + Into<Item>>(
    model: &Model,
    choices: &Choices,
    texts: &[T],
    params: &Arc<CkksParams>,
    seed: Option<u64>,
) -> Result<Vec<Option<Vec<f64>>>, FheError> {
    let program = model.program_of_all_rows();
    choices.check(&program)?;
    let texts: Vec<Item> = texts.iter().cloned().map(T::into).collect();
    check_rows(&texts, choices.rows)?;
    if choices.decoder.is_some() {
        return answers(&program, choices, &texts, (params, seed), &mut None);
    }
    let clear = Clear { model, params, rows: choices.rows };
    let answers = clear.answers(choices, &texts, seed)?.into_iter();
    let finish = |row| model.public.finish(row);
    Ok(answers.map(|answer| answer.map(finish)).collect())
}

/// Last rows computed with the approximations of a calibration, in a simulation at the levels of a parameter set;
/// `None` for a text that leaves an interval too far for a refresh, and `outside` says where, unless it says so
/// already.
pub(super) fn answers(
    program: &Program,
    choices: &Choices,
    texts: &[Item],
    (params, seed): (&Arc<CkksParams>, Option<u64>),
    outside: &mut Option<String>,
) -> Result<Vec<Option<Vec<f64>>>, FheError> {
    let width = program.attentions().next().map_or(2, |a| a.heads.width);
    let embedded = texts.iter().map(|text| embedded(program, text));
    let embedded = embedded.collect::<Result<Vec<_>, _>>()?;
    those_within(&embedded, &mut |texts| {
        let layout = Interleave::new(choices.rows * texts.len().next_power_of_two(), choices.rows)?;
        let mut on = Simulator::new(params, layout.slots())?;
        if let Some(seed) = seed {
            on = on.with_errors(seed);
        }
        let run = Batch {
            program,
            choices,
            placement: &Placement::plain(on.top(), choices.rows, width),
            lengths: Lengths::Private,
            bound: bound_of_inputs(program, choices.rows)?,
        };
        let found = run.run(&on, choices.rows, texts, None);
        found.inspect_err(|error| {
            if let FheError::Range { .. } = error {
                outside.get_or_insert_with(|| error.to_string());
            }
        })
    })
}

pub(super) fn check_rows(texts: &[Item], rows: usize) -> Result<(), FheError> {
    if rows == 0 || rows > MAX_ROWS {
        return refuse(format!("{rows} rows per text; must be 1 to {MAX_ROWS}"));
    }
    match texts.iter().position(|t| t.rows().real > rows) {
        None => Ok(()),
        Some(i) => refuse(format!("text {i} has {} tokens, more than {rows} rows", texts[i].rows().real)),
    }
}

pub(super) fn refuse<T>(what: String) -> Result<T, FheError> {
    Err(ChoicesError::Unusable { what }.into())
}
