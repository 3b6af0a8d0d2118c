//! Where packed rows refresh, and how many columns lie side by side.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::Program;

use super::search::lowest;
use super::{FheOptions, dry_run};
use crate::choices::Choices;
use crate::error::FheError;
use crate::pass::packed_decoder;
use crate::plan::placement::Placement;
use crate::simulate::{Count, Op, Simulator};
use crate::slots::Slots;
use crate::tape::encoder::{begins_with_norm, has_rms_norms, least_upload};

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
        packed_decoder(program)?;
    }
    placed(program, choices, params, options, columns).map(Some)
}

/// Packed rows of `columns` places: the fewest primes before a layer with which it runs. Columns are always refreshed
/// first, so that they are sent with as few primes as a refresh takes.
///
/// # Errors
/// [`FheError::Levels`] for a model that is too deep; as [`dry_run`].
pub(crate) fn placed(
    program: &Program,
    choices: &Choices,
    params: &Arc<CkksParams>,
    options: &FheOptions,
    columns: usize,
) -> Result<Placement, FheError> {
    let on = Simulator::new(params, params.slots())?.counting();
    let upload = least_upload(&on, program)?;
    let mut at = Placement {
        upload,
        attention: on.floor(),
        feed_forward: on.floor(),
        columns,
        ..Placement::plain(on.top(), 1, 2)
    };
    let mut runs = |at: &Placement| {
        let at = Placement { upload, ..at.clone() };
        dry_run(program, choices, params, options, &at).map(drop)
    };
    lowest(&mut runs, &mut at, on.top())?;
    at.upload = upload;
    // For the reader of a plan: a recorded layer refreshes columns to what it reads.
    let counts = dry_run(program, choices, params, options, &at)?.counts;
    let after_sums = begins_with_norm(program) || has_rms_norms(program);
    let end = if after_sums { "attention.add.refresh" } else { "attention.norm.refresh" };
    let before = |c: &&Count| c.op == Op::Refreshed && c.site.to_string().ends_with(end);
    at.feed_forward = counts.operations.iter().filter(before).map(|c| c.limbs).max().unwrap_or(upload);
    Ok(at)
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
