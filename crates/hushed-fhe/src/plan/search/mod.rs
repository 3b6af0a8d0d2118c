//! Where to refresh and how much to hold at once: the cheapest placement that runs and fits.
//!
//! Levels are a shortest-path problem. The circuit refreshes columns before each half of a layer and a statistic before
//! each inverse, so a half is an edge from the primes it starts with to a refresh, and nothing of it outlives that
//! refresh. Operations and refreshes cost more with more primes, so of the edges that run, the one with the fewest
//! primes is the cheapest: a half starts with no more than its steps consume. A statistic lies inside a half, its
//! inverse has to arrive above the columns, and all halves share its number of primes: for each such number the path is
//! found ([`lowest`]) and priced by a dry run. With private lengths an encoder's mask of real rows is one more vector
//! that norms read: whether to upload it with more primes than the columns need, or to refresh it, is tried afterwards.
//!
//! Baby steps change one step each, and its price is convex in their logarithm: they are doubled or halved for as long
//! as that is quicker. Finally the number of heads processed together is doubled, if that fits: their sums share calls
//! of bootstraps. Larger groups of hidden columns are never quicker.
//!
//! Memory is not a path length: it is the maximum over all steps, plus keys that all steps share. So if the quickest
//! placement takes more than the server may, it is made smaller: with nothing on disk, with either half of a layer
//! there, and with both. The quickest of these that fits is taken, disk time included, and reductions that turn out to
//! be unnecessary are undone. The result is close to the optimum, not always the optimum. Only if none of these fits
//! are a decoder's columns put in pairs, which takes more key switches.

pub(in crate::plan) mod smaller;
#[cfg(test)]
mod tests;

use hushed_model::StepId;
use serde::Serialize;

use crate::error::FheError;
use crate::plan::placement::Placement;

/// A placement that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Alternative {
    /// Its description.
    pub what: String,
    /// Its placement.
    pub placement: Placement,
    /// Seconds, upload included; none if it cannot run.
    pub seconds: Option<f64>,
    /// Peak of the server's memory, in bytes.
    pub memory: Option<u64>,
    /// The reason, if it cannot run or does not fit.
    pub refused: Option<String>,
    /// Whether it was chosen.
    pub chosen: bool,
}

/// Bounds of the search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Fewest primes of a vector.
    pub floor: usize,
    /// Fewest primes of an upload.
    pub upload: usize,
    /// Most primes of a vector.
    pub top: usize,
    /// Rows per text.
    pub rows: usize,
    /// Bytes the server may use.
    pub room: Option<u64>,
    /// Whether columns may be paired.
    pub pairs: bool,
}

/// Seconds of a placement, upload included, and bytes of the server's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dry {
    pub(super) seconds: f64,
    pub(super) memory: u64,
}

type Price<'a> = &'a mut dyn FnMut(&Placement) -> Result<Dry, FheError>;
pub(super) type Levels<'a> = &'a mut dyn FnMut(&Placement) -> Result<(), FheError>;

/// Searches from `start`. `dry` returns the cost of a placement, `levels` whether it has enough levels.
pub(super) fn search(
    dry: Price<'_>,
    levels: Levels<'_>,
    start: &Placement,
    bounds: &Bounds,
) -> Result<(Placement, Vec<Alternative>), FheError> {
    let mut tried = Vec::new();
    // The quickest statistics for each placement of columns.
    let mut found: Vec<Priced> = Vec::new();
    let mut at =
        Placement { upload: bounds.upload, attention: bounds.floor, feed_forward: bounds.floor, ..start.clone() };
    for statistics in (bounds.floor + 1..=bounds.top).rev() {
        // With fewer primes for statistics, columns need at least as many as before.
        at.statistics = statistics;
        match lowest(levels, &mut at, bounds.top) {
            Ok(()) => {}
            Err(error) if found.is_empty() => return Err(error),
            Err(_) => break,
        }
        let result = dry(&at)?;
        let level = |primes: usize| primes - bounds.floor;
        let what = format!(
            "sums and variances refreshed to level {}, columns to {} and {}",
            level(statistics),
            level(at.attention),
            level(at.feed_forward)
        );
        tried.push(alternative(what, &at, &Ok(result)));
        let columns = |p: &Placement| (p.attention, p.feed_forward);
        match found.last_mut() {
            Some(last) if columns(&last.1) == columns(&at) => {
                if result.seconds < last.0.seconds {
                    *last = (result, at.clone());
                }
            }
            _ => found.push((result, at.clone())),
        }
    }
    let mut walk = Walk { dry, room: bounds.room, tried };
    let quickest = found.into_iter().map(|from| walk.quickest(from, bounds));
    let quickest = quickest.min_by(|(a, _), (b, _)| a.seconds.total_cmp(&b.seconds));
    let start = quickest.ok_or_else(|| FheError::Levels {
        step: StepId::outside("input"),
        needed: 1,
        available: bounds.top.saturating_sub(bounds.floor),
    })?;
    let mut found = match walk.fits(&start.0) {
        true => start,
        false => walk.fitting(start, bounds)?,
    };
    let more: fn(&mut Placement) = |p| p.heads_together *= 2;
    let heads = found.1.heads_together;
    while walk.quicker_by(WORTH, "more heads at a time", &mut found, more) {}
    if found.1.heads_together != heads {
        // Refreshes in fewer calls may be worth more primes.
        for statistics in bounds.floor + 1..=bounds.top {
            walk.quicker("other primes of sums and variances", &mut found, |p| p.statistics = statistics);
        }
    }
    let (_, best) = found;
    for alternative in &mut walk.tried {
        alternative.chosen = alternative.placement == best;
    }
    Ok((best, walk.tried))
}

/// Of the time without them, what a run with twice the heads at a time may take: they hold gigabytes, and save calls of
/// bootstraps alone (eight heads instead of two: 5 GiB and a quarter of a percent of MiniLM's time).
const WORTH: f64 = 0.995;

/// The state of the search.
struct Walk<'a> {
    dry: Price<'a>,
    room: Option<u64>,
    tried: Vec<Alternative>,
}

/// A placement and its cost.
type Priced = (Dry, Placement);

/// Selects one number of a placement.
type Size = fn(&mut Placement) -> &mut usize;

impl Walk<'_> {
    fn fits(&self, dry: &Dry) -> bool {
        self.room.is_none_or(|room| dry.memory <= room)
    }

    /// The quickest placement with these columns and statistics, regardless of memory.
    fn quickest(&mut self, mut at: Priced, bounds: &Bounds) -> Priced {
        self.quicker("columns uploaded at the lowest level", &mut at, |p| {
            p.upload = bounds.upload;
        });
        // The encrypted mask of real rows is uploaded with as many primes, and then needs no refresh.
        self.quicker("rows of tokens uploaded as norms need them", &mut at, |p| {
            p.upload = p.attention.max(p.statistics + 1).min(bounds.top);
        });
        let baby: [(_, Size); 2] = [("Q·Kᵀ", |p| &mut p.scores_baby), ("P·V", |p| &mut p.attend_baby)];
        for (product, steps) in baby {
            let what = format!("other baby steps of {product}");
            let fewer = |p: &mut Placement| *steps(p) = (*steps(p) / 2).max(1);
            let more = |p: &mut Placement| *steps(p) = (*steps(p) * 2).min(bounds.rows);
            let mut less = false;
            while self.quicker(&what, &mut at, fewer) {
                less = true;
            }
            while !less && self.quicker(&what, &mut at, more) {}
        }
        at
    }

    /// Takes a change if it runs, is quicker, and fits (or the current placement does not fit either).
    fn quicker(&mut self, what: &str, at: &mut Priced, change: impl Fn(&mut Placement)) -> bool {
        self.quicker_by(1.0, what, at, change)
    }

    /// As [`Walk::quicker`], if the change takes less than `share` of the time.
    fn quicker_by(&mut self, share: f64, what: &str, at: &mut Priced, change: impl Fn(&mut Placement)) -> bool {
        let mut other = at.1.clone();
        change(&mut other);
        if other == at.1 {
            return false;
        }
        match self.look(what, &other) {
            Ok(cost) if cost.seconds < share * at.0.seconds && (self.fits(&cost) || !self.fits(&at.0)) => {
                *at = (cost, other);
                true
            }
            _ => false,
        }
    }

    /// The quickest placement that fits: the quickest one overall made smaller, with nothing on disk, with one half of
    /// a layer there, or with both.
    fn fitting(&mut self, (cost, start): Priced, bounds: &Bounds) -> Result<Priced, FheError> {
        let (mut found, mut least): (Option<Priced>, _) = (None, cost.memory);
        for (attention, feed_forward, what) in [
            (true, false, "attention on disk"),
            (true, true, "attention and feed-forward on disk"),
            (false, false, "nothing on disk"),
            (false, true, "feed-forward on disk"),
        ] {
            let from = Placement { spill_attention: attention, spill_feed_forward: feed_forward, ..start.clone() };
            let beaten = found.as_ref().map(|(cost, _)| cost.seconds);
            let (cost, at) = self.shrunk(what, from, bounds, beaten)?;
            least = least.min(cost.memory);
            let quicker = |(c, _): &Priced| cost.seconds < c.seconds;
            if self.fits(&cost) && found.as_ref().is_none_or(quicker) {
                found = Some((cost, at));
            }
        }
        if found.is_none() && bounds.pairs {
            let from = Placement { spill_attention: true, spill_feed_forward: true, pairs: true, ..start.clone() };
            let (cost, at) = self.shrunk("columns in pairs", from, bounds, None)?;
            least = least.min(cost.memory);
            found = self.fits(&cost).then_some((cost, at));
        }
        let refused = || FheError::too_large(self.room.unwrap_or(0), least);
        let mut found = found.ok_or_else(refused)?;
        // A reduction may no longer be needed after those that followed it.
        let back: [&dyn Fn(&mut Placement); 4] = [
            &|p| p.upload = p.attention,
            &|p| p.heads_together = start.heads_together,
            &|p| p.scores_baby = (2 * p.scores_baby).min(bounds.rows),
            &|p| p.attend_baby = (2 * p.attend_baby).min(bounds.rows),
        ];
        for change in back {
            while self.quicker("holding more again", &mut found, change) {}
        }
        Ok(found)
    }

    /// Makes a placement smaller until it fits or cannot shrink further. Memory peaks in one step of a
    /// layer; of the changes, ordered by cost, the first that lowers the peak is taken.
    fn shrunk(
        &mut self,
        what: &str,
        mut at: Placement,
        bounds: &Bounds,
        beaten: Option<f64>,
    ) -> Result<Priced, FheError> {
        let mut cost = self.look(what, &at)?;
        // Smaller placements are never quicker.
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
}

/// Makes a placement smaller.
type Change = fn(&mut Placement, &Bounds);

/// In order of cost. Smaller blocks cost nothing but passes; fewer baby steps cost rotations, a fiftieth of a run per
/// halving; heads one at a time double the bootstraps of sums; uploading at the lowest level refreshes all columns.
const CHANGES: [Change; 5] = [
    |p, _| p.hidden_block = (p.hidden_block / 2).max(16).min(p.hidden_block),
    |p, _| p.scores_baby = (p.scores_baby / 2).max(1),
    |p, _| p.attend_baby = (p.attend_baby / 2).max(1),
    |p, _| p.heads_together = 1,
    |p, bounds| p.upload = bounds.upload,
];

/// Raises `at` to the fewest primes before attention and before the feed-forward with which both run.
pub(super) fn lowest(levels: Levels<'_>, at: &mut Placement, top: usize) -> Result<(), FheError> {
    if levels(at).is_ok() {
        return Ok(());
    }
    let feed_forward = std::mem::replace(&mut at.feed_forward, top);
    raised(levels, at, top, |at| &mut at.attention)?;
    at.upload = at.attention;
    at.feed_forward = feed_forward;
    raised(levels, at, top, |at| &mut at.feed_forward)
}

/// Raises one number of primes of `at` to the fewest with which it runs.
fn raised(levels: Levels<'_>, at: &mut Placement, top: usize, primes: Size) -> Result<(), FheError> {
    while let Err(error) = levels(at) {
        // One more level takes one more prime, or two.
        let lacking = match error {
            FheError::Levels { needed, available, .. } => needed.saturating_sub(available).max(1),
            _ => 1,
        };
        let primes = primes(at);
        if *primes >= top {
            return Err(error);
        }
        *primes = (*primes + lacking).min(top);
    }
    Ok(())
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
