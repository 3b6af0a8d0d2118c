//! Splits a grid of maps into rotations of inputs (babies) and of sums (giants).

use std::collections::BTreeSet;

use super::MapGrid;
use crate::lintrans::{CostModel, LinTransError, stride};

/// Nanoseconds per word for writing a rotated input to memory and reading it back, and per product in the sums.
/// Estimates, not fitted to measurements: they decide between splits of nearly equal cost.
const KEPT: f64 = 1.2;
const PRODUCT: f64 = 0.09;

/// Rotations of the inputs and of the sums. A rotation by 0 needs no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GridSplit {
    /// (rotation, input), ascending.
    babies: Vec<(usize, usize)>,
    /// (rotation, output), ascending.
    giants: Vec<(usize, usize)>,
}

impl GridSplit {
    /// The cheapest width under a time model, for keys of `digits` digits over `limbs` and `special` primes.
    ///
    /// # Errors
    /// [`LinTransError::Empty`] if an output has no diagonal.
    pub fn best(grid: &MapGrid, n: usize, [limbs, special, digits]: [usize; 3]) -> Result<Self, LinTransError> {
        let cost = CostModel::new(n, limbs, special, digits);
        let words = (2 * (limbs + special) * n) as f64;
        Self::cheapest(grid, |split| {
            let (babies, giants) = split.key_switches();
            let keys = split.babies.iter().map(|&(k, _)| k).filter(|&k| k != 0);
            let keys = keys.collect::<BTreeSet<_>>().len();
            keys as f64 * cost.baby
                + babies as f64 * (0.3 * cost.baby + KEPT * words)
                + giants as f64 * cost.giant
                + (split.babies.len() * split.giants.len()) as f64 * words * PRODUCT
        })
    }

    /// The width with the fewest key switches, counting an unhoisted one as four. It depends only on shapes, so that a
    /// simulation and a run use the same rotations.
    ///
    /// # Errors
    /// As [`GridSplit::best`].
    pub fn balanced(grid: &MapGrid) -> Result<Self, LinTransError> {
        Self::cheapest(grid, |split| {
            let (babies, giants) = split.key_switches();
            (babies + 4 * giants) as f64
        })
    }

    fn cheapest(grid: &MapGrid, time: impl Fn(&Self) -> f64) -> Result<Self, LinTransError> {
        let offsets = grid.offsets();
        let span = match (offsets.first(), offsets.last()) {
            (Some(first), Some(last)) => ((last - first) / stride(offsets.iter().copied()) + 1) as usize,
            _ => return Err(LinTransError::Empty),
        };
        let mut best: Option<(f64, Self)> = None;
        // Fine steps while the width is small, coarse ones where one more changes little.
        let mut width = 1;
        while width <= span {
            let split = Self::width(grid, width)?;
            let time = time(&split);
            if best.as_ref().is_none_or(|(least, _)| time < *least) {
                best = Some((time, split));
            }
            width += (width / 8).max(1);
        }
        best.map(|(_, split)| split).ok_or(LinTransError::Empty)
    }

    /// Baby steps by 0 … `width` − 1 times the stride of the offsets.
    ///
    /// # Errors
    /// As [`GridSplit::best`].
    pub fn width(grid: &MapGrid, width: usize) -> Result<Self, LinTransError> {
        let block = stride(grid.offsets().into_iter()) * width.max(1) as i64;
        Self::cut(grid, |_, offset| offset.div_euclid(block) * block)
    }

    /// One giant step per output, by `turns[output]`; all other rotations are of inputs.
    ///
    /// # Errors
    /// As [`GridSplit::best`], and [`LinTransError::Length`] unless there is one turn per output.
    pub fn around(grid: &MapGrid, turns: &[i64]) -> Result<Self, LinTransError> {
        if turns.len() != grid.outputs() {
            return Err(LinTransError::Length { expected: grid.outputs(), found: turns.len() });
        }
        Self::cut(grid, |output, _| turns[output])
    }

    /// No rotations of sums.
    ///
    /// # Errors
    /// As [`GridSplit::best`].
    pub fn diagonal(grid: &MapGrid) -> Result<Self, LinTransError> {
        Self::cut(grid, |_, _| 0)
    }

    /// Splits by a function from output and offset of a diagonal to its giant step.
    fn cut(grid: &MapGrid, giant: impl Fn(usize, i64) -> i64) -> Result<Self, LinTransError> {
        let (mut babies, mut giants) = (BTreeSet::new(), BTreeSet::new());
        for (output, input, offset) in grid.places() {
            let giant = giant(output, offset);
            babies.insert((grid.rotation(offset - giant), input));
            giants.insert((grid.rotation(giant), output));
        }
        let reached: BTreeSet<usize> = giants.iter().map(|&(_, output)| output).collect();
        if reached.len() < grid.outputs() {
            return Err(LinTransError::Empty);
        }
        Ok(Self { babies: babies.into_iter().collect(), giants: giants.into_iter().collect() })
    }

    /// (rotation, input) of each rotated input, by ascending rotation.
    pub fn babies(&self) -> &[(usize, usize)] {
        &self.babies
    }

    /// (rotation, output) of each sum, by ascending rotation.
    pub fn giants(&self) -> &[(usize, usize)] {
        &self.giants
    }

    /// Key switches: hoisted ones, then those with their own decomposition.
    pub fn key_switches(&self) -> (usize, usize) {
        let turned = |steps: &[(usize, usize)]| steps.iter().filter(|&&(k, _)| k != 0).count();
        (turned(&self.babies), turned(&self.giants))
    }

    /// Rotations that need a key, ascending and distinct.
    pub fn rotations(&self) -> Vec<usize> {
        let all = self.babies.iter().chain(&self.giants).map(|&(k, _)| k);
        let all: BTreeSet<usize> = all.filter(|&k| k != 0).collect();
        all.into_iter().collect()
    }
}
