//! Where to refresh and how much to hold: the cheapest placement that runs and fits.
//!
//! Operations get dearer with primes, so columns have as few before attention, and before the feed-forward, as the
//! circuit allows, which runs that count find. Sums and variances have any number: their inverses must arrive above
//! the columns, so for each the other two are sought, and a dry run prices all three. Then come baby steps, heads and
//! hidden columns that are held at once: first the quickest, whatever they take. If that is more than the server may
//! take, the placement is made smaller, once with nothing on disk, once with what attention can do without there, once
//! with what both halves of a layer can; the quickest that fits is taken, time at the disk included.

use hushed_ckks::poly::PolyError;
use serde::Serialize;

use super::Dry;
use crate::error::FheError;
use crate::plan::placement::Placement;

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
    walk.quickest(bounds);
    if !walk.fits(&walk.cost) {
        walk.fitting(bounds)?;
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

    /// The quickest placement, whatever it takes.
    fn quickest(&mut self, bounds: &Bounds) {
        let floor = bounds.floor;
        self.consider("columns uploaded at the lowest level".to_owned(), |p| {
            p.upload = floor;
        });
        let powers = |from: u32, most: usize| {
            let all = (from..usize::BITS).map(|k| 1usize << k);
            all.take_while(move |&b| b <= most)
        };
        for baby in powers(0, bounds.rows) {
            self.consider(format!("{baby} baby steps of Q·Kᵀ"), |p| {
                p.scores_baby = baby;
            });
        }
        for baby in powers(0, bounds.rows) {
            self.consider(format!("{baby} baby steps of P·V"), |p| {
                p.attend_baby = baby;
            });
        }
        for together in [4, bounds.heads] {
            self.consider(format!("{together} heads together"), |p| {
                p.heads_together = together.min(bounds.heads);
            });
        }
        for block in powers(4, bounds.hidden) {
            self.consider(format!("{block} hidden columns at a time"), |p| {
                p.hidden_block = block;
            });
        }
    }

    /// The quickest placement that fits: the quickest of all made smaller, with nothing on disk, with what attention
    /// can do without there, and with what both halves of a layer can.
    fn fitting(&mut self, bounds: &Bounds) -> Result<(), FheError> {
        let start = self.best.clone();
        let (mut found, mut least): (Option<(Dry, Placement)>, _) = (None, self.cost.memory);
        for (attention, feed_forward, what) in [
            (true, false, "attention on disk"),
            (true, true, "attention and feed-forward on disk"),
            (false, false, "nothing on disk"),
        ] {
            let from = Placement {
                spill_attention: attention,
                spill_feed_forward: feed_forward,
                ..start.clone()
            };
            let beaten = found.as_ref().map(|(cost, _)| cost.seconds);
            let (cost, at) = self.shrunk(what, from, bounds, beaten)?;
            least = least.min(cost.memory);
            let quicker = |(c, _): &(Dry, Placement)| cost.seconds < c.seconds;
            if self.fits(&cost) && found.as_ref().is_none_or(quicker) {
                found = Some((cost, at));
            }
        }
        let room = self.room.unwrap_or(0);
        let (cost, best) = found.ok_or_else(|| FheError::Unsupported {
            what: format!(
                "a batch of this size in {} MiB, as it needs {}",
                room >> 20,
                least >> 20
            ),
            remedy: "give more memory, or fewer rows a text",
        })?;
        (self.cost, self.best) = (cost, best);
        Ok(())
    }

    /// Makes a placement smaller until it fits, or until nothing makes it smaller. What holds most at the worst moment
    /// is one step of a layer: of the changes, in the order of what they cost, the first that helps is taken.
    fn shrunk(
        &mut self,
        what: &str,
        mut at: Placement,
        bounds: &Bounds,
        beaten: Option<f64>,
    ) -> Result<(Dry, Placement), FheError> {
        let mut cost = self.look(what, &at)?;
        // Smaller ones are no quicker.
        let worth = |cost: &Dry| beaten.is_none_or(|seconds| cost.seconds < seconds);
        while !self.fits(&cost) && worth(&cost) {
            let mut better = None;
            for change in CHANGES {
                let mut smaller = at.clone();
                change(&mut smaller, bounds);
                if smaller == at {
                    continue;
                }
                let new = self.look(what, &smaller)?;
                if new.memory < cost.memory {
                    better = Some((new, smaller));
                    break;
                }
            }
            let Some(better) = better else { break };
            (cost, at) = better;
        }
        Ok((cost, at))
    }

    fn look(&mut self, what: &str, at: &Placement) -> Result<Dry, FheError> {
        let result = (self.dry)(at);
        let what = format!(
            "{what}: {} and {} baby steps, {} heads, {} hidden columns",
            at.scores_baby, at.attend_baby, at.heads_together, at.hidden_block
        );
        self.tried.push(alternative(what, at, &result));
        result
    }

    /// Takes a change if it runs, and is quicker.
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
        if new.seconds < self.cost.seconds {
            (self.best, self.cost) = (at, new);
        }
    }
}

/// Makes a placement smaller.
type Change = fn(&mut Placement, &Bounds);

/// Smaller blocks cost nothing but passes; then come rotations, a fiftieth of a run at a halving; heads one at a time
/// take twice the bootstraps of sums; the upload at the lowest level takes a refresh of all columns.
const CHANGES: [Change; 5] = [
    |p, _| p.hidden_block = (p.hidden_block / 2).max(16).min(p.hidden_block),
    |p, _| p.scores_baby = (p.scores_baby / 2).max(1),
    |p, _| p.attend_baby = (p.attend_baby / 2).max(1),
    |p, _| p.heads_together = 1,
    |p, bounds| p.upload = bounds.floor,
];

/// The fewest primes before attention and before the feed-forward with which both run.
fn lowest(levels: Levels<'_>, mut at: Placement, bounds: &Bounds) -> Option<Placement> {
    at.feed_forward = bounds.top;
    let mut least = |set: fn(&mut Placement, usize)| {
        // What is enough with some primes is with more.
        let (mut low, mut high) = (bounds.floor, bounds.top + 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            set(&mut at, middle);
            match levels(&at) {
                Ok(()) => high = middle,
                Err(_) => low = middle + 1,
            }
        }
        set(&mut at, low);
        low <= bounds.top
    };
    let found = least(|at, limbs| (at.attention, at.upload) = (limbs, limbs))
        && least(|at, limbs| at.feed_forward = limbs);
    found.then_some(at)
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
