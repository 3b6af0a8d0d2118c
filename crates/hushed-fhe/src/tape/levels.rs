//! The primes of every node: as many as can arrive, no more than are read.
//!
//! *Least*: from the outputs backwards, every node has the primes that its readers take, and a refresh returns no more.
//! *Given*: the primes of refreshes come from a placement of today's runs, and levels are theirs: products of matrices
//! and functions are computed where their operands are, everything else where it is read.

use std::collections::BTreeMap;

use hushed_ckks::Scale;
use hushed_ckks::poly::PolyError;

use super::{Constants, Mark, Node, Op, Tape};
use crate::error::FheError;
use crate::ops::levels::{above_by, below};
use crate::packing::PackingError;
use crate::slots::Slots;

/// Where levels come from.
#[derive(Clone, Copy)]
pub(crate) enum Heights<'a> {
    /// As few primes as suffice.
    Least,
    /// The primes of a refresh at a mark, of which at least `needed` are read before the next.
    Given(&'a dyn Fn(&Node, usize) -> usize),
}

/// The primes of the outputs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outputs {
    Exactly(usize),
    /// As many as arrive.
    AtLeast(usize),
}

impl Outputs {
    fn least(self) -> usize {
        let (Outputs::Exactly(limbs) | Outputs::AtLeast(limbs)) = self;
        limbs
    }
}

/// What a placement starts from.
#[derive(Clone)]
pub(crate) struct Limits<'a> {
    pub heights: Heights<'a>,
    /// Primes and scales of the inputs.
    pub inputs: BTreeMap<&'static str, (usize, Scale)>,
    pub outputs: Outputs,
    /// Whether the columns that a region reads are spilled while it runs, by the number of the region.
    pub spilled: Vec<bool>,
}

/// The level of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Level {
    /// Primes of its operands that are read.
    pub reads: usize,
    /// Primes of its result.
    pub limbs: usize,
    /// Whether it is a refresh.
    pub refreshed: bool,
}

/// The levels of all nodes. A mark is a refresh if fewer primes arrive than are read.
///
/// # Errors
/// [`FheError::Levels`] naming a step that has too few levels.
pub(crate) fn levels<S: Slots>(tape: &Tape, on: &S, limits: &Limits<'_>) -> Result<Vec<Level>, FheError> {
    let spares = tape.nodes.iter().any(|node| node.op == Op::Mark { mark: Mark::Spare });
    match with(tape, on, limits, false) {
        Err(_) if spares => with(tape, on, limits, true),
        found => found,
    }
}

/// The levels, with or without refreshes at spare marks.
fn with<S: Slots>(tape: &Tape, on: &S, limits: &Limits<'_>, spares: bool) -> Result<Vec<Level>, FheError> {
    let passed = |node: &Node| !spares && node.op == Op::Mark { mark: Mark::Spare };
    let needed = needed(tape, on, limits.outputs.least(), &passed)?;
    let caps = caps(tape, on, limits, (&needed, &passed))?;
    let cap = |node: &Node| operands(node).map(|id| caps[id].limbs).min().unwrap_or(0);
    let mut wanted = vec![0; tape.nodes.len()];
    let mut levels = caps.clone();
    for (i, node) in tape.nodes.iter().enumerate().rev() {
        let level = &mut levels[i];
        let least = matches!(limits.heights, Heights::Least);
        let stays = !least && matches!(node.op, Op::Dot | Op::DotProduct | Op::Apply { .. });
        if matches!(node.op, Op::Output) {
            if let Outputs::Exactly(limbs) = limits.outputs {
                level.limbs = limbs;
            }
        } else if !stays && !level.refreshed && wanted[i] > 0 {
            level.limbs = wanted[i];
        }
        level.reads = match node.op {
            Op::Input(_) => continue,
            Op::Mark { .. } if level.refreshed => {
                if least {
                    on.floor()
                } else {
                    cap(node)
                }
            }
            _ if stays => cap(node),
            _ => above(on, node, level.limbs, &tape.constants)?,
        };
        let reads = level.reads;
        for id in operands(node) {
            wanted[id] = wanted[id].max(reads);
        }
    }
    Ok(levels)
}

/// The operands whose levels bound that of a node: the mask of a statistic is only looked at.
fn operands(node: &Node) -> impl Iterator<Item = usize> {
    let looked_at = matches!(node.op, Op::Mark { mark: Mark::Statistic { .. } });
    let count = if looked_at { 1 } else { node.inputs.len() };
    node.inputs.iter().take(count).map(|id| id.0)
}

/// Which marks are no refresh, however few primes arrive.
type Passed<'a> = &'a dyn Fn(&Node) -> bool;

fn too_few<S: Slots>(on: &S, node: &Node, needed: usize) -> FheError {
    FheError::from(PolyError::LevelsTooFew { needed, available: 0, limbs: on.top() }).at_step(node.step)
}

fn above<S: Slots>(on: &S, node: &Node, limbs: usize, constants: &Constants) -> Result<usize, FheError> {
    above_by(on, limbs, node.op.levels(constants)).map_err(|error| error.at_step(node.step))
}

/// The fewest primes with which each node suffices for what follows, up to the next marks that are not passed.
fn needed<S: Slots>(tape: &Tape, on: &S, outputs: usize, passed: Passed<'_>) -> Result<Vec<usize>, FheError> {
    let mut needed = vec![on.floor().min(outputs); tape.nodes.len()];
    for (i, node) in tape.nodes.iter().enumerate().rev() {
        let reads = match node.op {
            Op::Output => outputs,
            Op::Mark { .. } if !passed(node) => on.floor(),
            _ => above(on, node, needed[i], &tape.constants)?,
        };
        for id in operands(node) {
            needed[id] = needed[id].max(reads);
        }
    }
    Ok(needed)
}

/// The fewest primes with which an input suffices for outputs with as many as a refresh takes.
///
/// # Errors
/// [`FheError::Levels`] naming a step that has too few levels.
pub(crate) fn least<S: Slots>(tape: &Tape, on: &S, name: &str) -> Result<usize, FheError> {
    let needed = needed(tape, on, on.floor(), &|_| false)?;
    let inputs = tape.nodes.iter().zip(needed).filter(|(node, _)| matches!(node.op, Op::Input(of) if of == name));
    Ok(inputs.map(|(_, needed)| needed).max().unwrap_or(on.floor()))
}

/// The most primes that can arrive at each node, with refreshes where marks need them.
fn caps<S: Slots>(
    tape: &Tape,
    on: &S,
    limits: &Limits<'_>,
    (needed, passed): (&[usize], Passed<'_>),
) -> Result<Vec<Level>, FheError> {
    let mut caps: Vec<Level> = Vec::with_capacity(tape.nodes.len());
    for (i, node) in tape.nodes.iter().enumerate() {
        let arrives = operands(node).map(|id| caps[id].limbs).min().unwrap_or(0);
        let mut level = Level { reads: arrives, limbs: arrives, refreshed: false };
        match &node.op {
            Op::Mark { .. } if passed(node) => {}
            Op::Mark { .. } if arrives < on.floor() => return Err(too_few(on, node, on.floor() - arrives)),
            Op::Output if arrives < limits.outputs.least() => {
                return Err(too_few(on, node, limits.outputs.least() - arrives));
            }
            Op::Input(name) => level.limbs = limits.inputs.get(name).ok_or(PackingError::Mismatch)?.0,
            Op::Mark { .. } => {
                let least = needed[i].max(on.floor());
                let wanted = match limits.heights {
                    Heights::Given(height) => height(node, least),
                    Heights::Least => least,
                };
                if wanted > on.top() {
                    return Err(too_few(on, node, wanted - on.top()));
                }
                // Where heights are given, a statistic is always refreshed, and the primes that arrive do not count.
                let statistic = matches!(node.op, Op::Mark { mark: Mark::Statistic { .. } });
                let always = statistic && matches!(limits.heights, Heights::Given(_));
                if always || arrives < wanted {
                    (level.limbs, level.refreshed) = (wanted, true);
                }
            }
            op => {
                let below = below(on, arrives, op.levels(&tape.constants));
                level.limbs = below.map_err(|error| error.at_step(node.step))?;
            }
        }
        caps.push(level);
    }
    Ok(caps)
}
