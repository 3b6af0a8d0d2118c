//! Where to refresh and how much to hold: the cheapest placement that runs and fits.
//!
//! Operations get dearer with primes, so columns have as few before attention, and before the feed-forward, as the circuit allows: sought from
//! the floor up, by the ledger, which names the half that lacks levels. Sums and variances have any number: their inverses must arrive above
//! the columns, so for each the other two are sought, and a dry run prices all three. Baby steps, heads and hidden columns that are held at once follow from
//! memory: the fewest rotations and the fewest passes that fit.

use serde::Serialize;

use super::Dry;
use crate::ckks::error::FheError;
use crate::ckks::placement::Placement;

/// A placement that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// In words.
    pub what: String,
    /// Its placement.
    pub placement: Placement,
    /// Seconds, the upload with it; none if it cannot run.
    pub seconds: Option<f64>,
    /// Bytes of vectors at the worst moment.
    pub vectors: Option<u64>,
    /// Why not, if it cannot run or does not fit.
    pub refused: Option<String>,
    /// Whether it is the one.
    pub chosen: bool,
}

/// What the search is bounded by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Fewest primes of a vector.
    pub floor: usize,
    /// Most.
    pub top: usize,
    /// Rows a text.
    pub rows: usize,
    /// Heads of a layer.
    pub heads: usize,
    /// Hidden columns of a layer.
    pub hidden: usize,
    /// Bytes that vectors may take.
    pub room: Option<u64>,
}

type Price<'a> = &'a mut dyn FnMut(&Placement) -> Result<Dry, FheError>;
type Levels<'a> = &'a mut dyn FnMut(&Placement) -> Result<(), FheError>;

/// Searches from `start`. `dry` says what a placement costs, `levels` whether there are enough.
pub(super) fn search(
    dry: Price<'_>,
    levels: Levels<'_>,
    start: &Placement,
    bounds: &Bounds,
) -> Result<(Placement, Vec<Alternative>), FheError> {
    let Bounds {
        floor, top, room, ..
    } = *bounds;
    let mut tried = Vec::new();
    let mut best = start.clone();
    let fits = |dry: &Dry| room.is_none_or(|room| dry.vectors <= room);
    // Columns before each half, for each length of the statistics.
    let mut found: Option<(f64, Placement)> = None;
    for statistics in (floor + 1..=top).rev() {
        let at = Placement {
            statistics,
            ..start.clone()
        };
        let Some(at) = lowest(levels, at, bounds) else {
            continue;
        };
        let result = dry(&at)?;
        let what = format!(
            "sums and variances refreshed to level {}, columns to {} and {}",
            statistics - floor,
            at.attention - floor,
            at.feed_forward - floor
        );
        tried.push(alternative(what, &at, &Ok(result)));
        if found.as_ref().is_none_or(|(s, _)| result.seconds < *s) {
            found = Some((result.seconds, at));
        }
    }
    match found {
        Some((_, at)) => best = at,
        // Says which step has too few levels.
        None => levels(&best)?,
    }
    // The upload: where the columns are read, or at the lowest level with a refresh before the first layer.
    consider(
        dry,
        &mut best,
        &mut tried,
        room,
        "columns uploaded at the lowest level",
        |p| {
            p.upload = floor;
        },
    );
    let powers = || (0..).map(|k| 1usize << k);
    for baby in powers().take_while(|&b| b <= bounds.rows) {
        consider(
            dry,
            &mut best,
            &mut tried,
            room,
            &format!("{baby} baby steps of Q·Kᵀ"),
            |p| {
                p.scores_baby = baby;
            },
        );
    }
    for baby in powers().take_while(|&b| b <= bounds.rows) {
        consider(
            dry,
            &mut best,
            &mut tried,
            room,
            &format!("{baby} baby steps of P·V"),
            |p| {
                p.attend_baby = baby;
            },
        );
    }
    let heads = bounds.heads;
    for together in [2, 4, heads].into_iter().filter(|&h| h <= heads) {
        consider(
            dry,
            &mut best,
            &mut tried,
            room,
            &format!("{together} heads together"),
            |p| {
                p.heads_together = together;
            },
        );
    }
    for block in powers().skip(4).take_while(|&b| b <= bounds.hidden) {
        consider(
            dry,
            &mut best,
            &mut tried,
            room,
            &format!("{block} hidden columns at a time"),
            |p| {
                p.hidden_block = block;
            },
        );
    }
    let last = dry(&best)?;
    if !fits(&last) {
        return Err(FheError::Unsupported {
            what: format!(
                "a batch of this size in the memory that is left for its vectors: {} MiB are needed",
                last.vectors >> 20
            ),
            remedy: "give more memory, or fewer rows a text",
        });
    }
    for alternative in &mut tried {
        alternative.chosen = alternative.placement == best;
    }
    Ok((best, tried))
}

/// Takes a change if it runs, and if it is cheaper or fits where what was there does not.
fn consider(
    dry: Price<'_>,
    best: &mut Placement,
    tried: &mut Vec<Alternative>,
    room: Option<u64>,
    what: &str,
    change: impl FnOnce(&mut Placement),
) {
    let mut at = best.clone();
    change(&mut at);
    if at == *best {
        return;
    }
    let result = dry(&at);
    let fits = |dry: &Dry| room.is_none_or(|room| dry.vectors <= room);
    if let (Ok(new), Ok(old)) = (&result, dry(best)) {
        let better = match (fits(new), fits(&old)) {
            (true, true) => new.seconds < old.seconds,
            (false, false) => new.vectors < old.vectors,
            (new, _) => new,
        };
        if better {
            *best = at.clone();
        }
    }
    tried.push(alternative(what.to_owned(), &at, &result));
}

/// The fewest primes before attention and before the feed-forward with which both run.
fn lowest(levels: Levels<'_>, mut at: Placement, bounds: &Bounds) -> Option<Placement> {
    (at.attention, at.feed_forward) = (bounds.floor, bounds.floor);
    while at.attention.max(at.feed_forward) <= bounds.top {
        at.upload = at.attention;
        match levels(&at) {
            Ok(()) => return Some(at),
            Err(FheError::Levels { step, .. }) if step.contains(".attention") => at.attention += 1,
            Err(FheError::Levels { .. }) => at.feed_forward += 1,
            Err(_) => return None,
        }
    }
    None
}

fn alternative(what: String, at: &Placement, result: &Result<Dry, FheError>) -> Alternative {
    Alternative {
        what,
        placement: at.clone(),
        seconds: result.as_ref().ok().map(|dry| dry.seconds),
        vectors: result.as_ref().ok().map(|dry| dry.vectors),
        refused: result.as_ref().err().map(ToString::to_string),
        chosen: false,
    }
}
