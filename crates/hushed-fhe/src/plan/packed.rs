//! Where packed rows refresh: everything begins at the top, but the feed-forward, whose steps end at the lowest level.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::{Program, StepId};

use super::{FheOptions, dry_run};
use crate::choices::Choices;
use crate::error::FheError;
use crate::ops::activation;
use crate::ops::levels::above_by;
use crate::packing::Layout;
use crate::plan::placement::Placement;
use crate::simulate::Simulator;
use crate::slots::Slots;

/// Levels of a feed-forward in packed rows without its activation: a norm, two maps, squares, the mask of their sums.
const FEED_FORWARD: usize = 5;

/// The placement of packed rows for a few texts: `None` where so many texts do not fit beside each other, and a batch
/// is what to plan.
///
/// # Errors
/// [`FheError::Levels`] for a model that is too deep; [`FheError::Unsupported`] for one that packed rows do not take.
pub fn packed_placement(
    program: &Program,
    choices: &Choices,
    params: &Arc<CkksParams>,
    options: &FheOptions,
) -> Result<Option<Placement>, FheError> {
    let columns = program.width().div_ceil(2).next_power_of_two();
    let layout = Layout::new(params.slots(), options.rows, columns);
    if !layout.is_ok_and(|layout| options.texts <= layout.texts()) || columns == 1 {
        return Ok(None);
    }
    let on = Simulator::new(params, params.slots())?.counting();
    let degree = choices.layers.iter().map(|l| l.activation.degree).max();
    let placement = placed(&on, columns, degree.unwrap_or(1));
    let placement = placement.map_err(|e| e.lacking_at(StepId::outside("feed_forward")))?;
    // Refuses what cannot run.
    dry_run(program, choices, params, options, &placement)?;
    Ok(Some(placement))
}

/// Packed rows of `columns` places. `degree`: the greatest of an activation.
///
/// # Errors
/// Too few levels for the feed-forward.
pub(crate) fn placed<S: Slots>(
    on: &S,
    columns: usize,
    degree: usize,
) -> Result<Placement, FheError> {
    let levels = FEED_FORWARD + activation::levels(degree);
    let least = above_by(on, on.floor(), levels);
    Ok(Placement {
        upload: on.floor(),
        feed_forward: least?,
        columns,
        ..Placement::plain(on.top(), 1, 2)
    })
}
