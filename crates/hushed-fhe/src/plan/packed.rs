//! Where packed rows refresh: all starts at the top except the feed-forward, whose steps end at the lowest level.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{Program, StepId};

use super::{FheOptions, dry_run};
use crate::choices::{Choices, DecoderChoice};
use crate::error::FheError;
use crate::ledger::{self, NORM, PACKED_VARIANCE};
use crate::ops::levels::above_by;
use crate::ops::packed::causal::sigmoid_bias;
use crate::pass::packed_halves;
use crate::plan::placement::Placement;
use crate::simulate::Simulator;
use crate::slots::Slots;

/// The placement of packed rows for a few texts; `None` (plan a batch instead) if a vector has no room for one head of
/// each text side by side.
///
/// # Errors
/// [`FheError::Levels`] for a model that is too deep; [`FheError::Unsupported`] for one that packed rows do not take,
/// and for a single text without that room, which is not worth a batch.
pub fn packed_placement(
    program: &Program,
    choices: &Choices,
    params: &Arc<CkksParams>,
    options: &FheOptions,
) -> Result<Option<Placement>, FheError> {
    let slots = params.slots() / options.rows.max(1) / options.texts.max(1);
    let Some(columns) = places(program, slots) else {
        return match options.texts {
            0 | 1 => Err(too_long(program, options.rows, slots)),
            _ => Ok(None),
        };
    };
    if program.vocabulary().is_some() {
        let mut blocks = program.attentions();
        blocks.try_for_each(|a| sigmoid_bias(StepId::outside("attention"), a).map(drop))?;
    }
    let on = Simulator::new(params, params.slots())?.counting();
    let placement = match &choices.decoder {
        Some(decoder) => placed_decoder(&on, columns, decoder)?,
        None => {
            let activations = choices.layers.iter().map(|l| &l.activation);
            let degree = activations
                .filter(|a| !a.columns.is_empty())
                .map(|a| a.degree);
            let degree = degree.max();
            let placement = placed(&on, columns, degree.unwrap_or(1));
            placement.map_err(|e| e.lacking_at(StepId::outside("feed_forward")))?
        }
    };
    // Refuses a placement that cannot run.
    dry_run(program, choices, params, options, &placement)?;
    Ok(Some(placement))
}

/// Places per row of a text: as many as there are pairs of columns, so that one vector holds them, or fewer if `slots`
/// has no room, such that all vectors hold the same number of whole heads.
fn places(program: &Program, slots: usize) -> Option<usize> {
    let (count, pairs) = heads(program);
    let all = program.width().div_ceil(2).next_power_of_two();
    let sizes = std::iter::successors(Some(all), |places| Some(places / 2));
    let mut sizes = sizes.take_while(|&places| places >= pairs.max(2));
    sizes.find(|&places| {
        let vectors = count.div_ceil(places / pairs).max(1);
        places <= slots && count.is_multiple_of(vectors)
    })
}

/// The number of heads, and the pairs of columns of each.
fn heads(program: &Program) -> (usize, usize) {
    let heads = program.attentions().next().map(|a| a.heads);
    heads.map_or((1, 1), |heads| (heads.count, (heads.width / 2).max(1)))
}

/// The error of one text whose rows have fewer places than a head takes.
fn too_long(program: &Program, rows: usize, places: usize) -> FheError {
    let (_, pairs) = heads(program);
    FheError::Unsupported {
        what: format!(
            "one text of {rows} rows alone, as a head takes {} places of a row and there are {places},",
            pairs.max(2)
        ),
        remedy: "use fewer rows, or omit --texts to plan a batch",
    }
}

/// Packed rows of `columns` places for a decoder: each half of a layer starts as low as it can.
///
/// # Errors
/// Fails if there are too few levels for either half.
pub(crate) fn placed_decoder<S: Slots>(
    on: &S,
    columns: usize,
    choices: &DecoderChoice,
) -> Result<Placement, FheError> {
    let [attention, feed_forward] = packed_halves(choices);
    let least = |levels, half| {
        let least = above_by(on, on.floor(), levels);
        least.map_err(|error| error.lacking_at(StepId::outside(half)))
    };
    Ok(Placement {
        upload: on.floor(),
        attention: least(attention, "attention")?,
        feed_forward: least(feed_forward, "feed_forward")?,
        columns,
        ..Placement::plain(on.top(), 1, 2)
    })
}

/// Packed rows of `columns` places. `degree`: the maximum degree of an activation.
///
/// # Errors
/// Fails if there are too few levels for the feed-forward.
pub(crate) fn placed<S: Slots>(
    on: &S,
    columns: usize,
    degree: usize,
) -> Result<Placement, FheError> {
    let levels = NORM + ledger::feed_forward(degree, false) + PACKED_VARIANCE;
    let least = above_by(on, on.floor(), levels);
    Ok(Placement {
        upload: on.floor(),
        feed_forward: least?,
        columns,
        ..Placement::plain(on.top(), 1, 2)
    })
}
