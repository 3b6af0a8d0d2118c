//! Where to refresh and how much to hold: the cheapest placement that runs and fits.
//!
//! Operations get dearer with primes, so columns have as few before attention, and before the feed-forward, as the circuit allows: sought from
//! the floor up, by the ledger, which names the half that lacks levels. Sums and variances have any number: their inverses must arrive above
//! the columns, so for each the other two are sought, and a dry run prices all three. Baby steps, heads and hidden columns that are held at once follow from
//! memory: the fewest rotations and the fewest passes that fit.

use hushed_ckks::poly::PolyError;
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
    /// Bytes of the server at the worst moment.
    pub memory: Option<u64>,
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
    /// Bytes that the server may take.
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
    // Columns before each half, for each length of the statistics.
    let mut found: Option<(Dry, Placement)> = None;
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
        if found
            .as_ref()
            .is_none_or(|(s, _)| result.seconds < s.seconds)
        {
            found = Some((result, at));
        }
    }
    let Some((cost, best)) = found else {
        // Says which step has too few levels.
        levels(start)?;
        return Err(PolyError::LevelsTooFew {
            needed: top - floor + 1,
            available: top - floor,
            limbs: top,
        }
        .into());
    };
    let mut walk = Walk {
        dry,
        room,
        best,
        cost,
        tried,
    };
    walk.consider("columns uploaded at the lowest level".to_owned(), |p| {
        p.upload = floor;
    });
    let powers = |from: u32, most: usize| {
        let all = (from..usize::BITS).map(|k| 1usize << k);
        all.take_while(move |&b| b <= most)
    };
    for baby in powers(0, bounds.rows) {
        walk.consider(format!("{baby} baby steps of Q·Kᵀ"), |p| {
            p.scores_baby = baby;
        });
    }
    for baby in powers(0, bounds.rows) {
        walk.consider(format!("{baby} baby steps of P·V"), |p| {
            p.attend_baby = baby;
        });
    }
    for together in [4, bounds.heads] {
        walk.consider(format!("{together} heads together"), |p| {
            p.heads_together = together.min(bounds.heads);
        });
    }
    for block in powers(4, bounds.hidden) {
        walk.consider(format!("{block} hidden columns at a time"), |p| {
            p.hidden_block = block;
        });
    }
    if !walk.fits(&walk.cost) {
        return Err(FheError::Unsupported {
            what: format!(
                "a batch of this size in {} MiB, as it needs {}",
                room.unwrap_or(0) >> 20,
                walk.cost.memory >> 20
            ),
            remedy: "give more memory, or fewer rows a text",
        });
    }
    for alternative in &mut walk.tried {
        alternative.chosen = alternative.placement == walk.best;
    }
    Ok((walk.best, walk.tried))
}

/// What is looked at, and the best of it.
struct Walk<'a> {
    dry: Price<'a>,
    room: Option<u64>,
    best: Placement,
    cost: Dry,
    tried: Vec<Alternative>,
}

impl Walk<'_> {
    fn fits(&self, dry: &Dry) -> bool {
        self.room.is_none_or(|room| dry.memory <= room)
    }

    /// Takes a change if it runs, and if it is cheaper or fits where what was there does not.
    fn consider(&mut self, what: String, change: impl FnOnce(&mut Placement)) {
        let mut at = self.best.clone();
        change(&mut at);
        if at == self.best {
            return;
        }
        let result = (self.dry)(&at);
        self.tried.push(alternative(what, &at, &result));
        let Ok(new) = result else {
            return;
        };
        let better = match (self.fits(&new), self.fits(&self.cost)) {
            (true, true) => new.seconds < self.cost.seconds,
            (false, false) => new.memory < self.cost.memory,
            (new, _) => new,
        };
        if better {
            (self.best, self.cost) = (at, new);
        }
    }
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
        memory: result.as_ref().ok().map(|dry| dry.memory),
        refused: result.as_ref().err().map(ToString::to_string),
        chosen: false,
    }
}
