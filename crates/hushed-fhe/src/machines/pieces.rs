//! The pieces of work of a dry run: the nodes of tapes in tiles, with what each reads and makes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use hushed_ckks::CkksParams;
use hushed_model::StepId;

use super::trace::{Moved, Rule, TracedNode, TracedTape};
use crate::plan::Prices;
use crate::plan::steps::{Done, operations_of, seconds};
use crate::simulate::{Counts, Op};
use crate::slots::REFRESH_TILE;
use crate::tape::encoder::COLUMNS;

/// Terms of a sum that are added together, and results that are finished together.
const TILE: usize = REFRESH_TILE;

/// Work that one machine does.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub seconds: f64,
    /// The vectors that it reads, each once.
    pub reads: Vec<u32>,
    /// Primes that it reads of them.
    pub limbs: usize,
    /// Sums that it finishes, and how many vectors of them.
    pub finishes: Option<(u32, usize)>,
    /// Sums that it adds to, where it runs.
    pub adds: Option<u32>,
    /// The vectors that it makes.
    pub makes: Range<u32>,
    /// Its node, of all tapes that read columns.
    pub node: usize,
}

/// A dry run in pieces, in an order in which they can be done.
#[derive(Clone, Debug, Default)]
pub(super) struct Pieces {
    pub all: Vec<Piece>,
    /// Primes of each vector.
    pub vectors: Vec<usize>,
    /// Vectors and primes of the sums that are kept where they are made.
    pub sums: Vec<(usize, usize)>,
    /// The vectors that every machine has from the start.
    pub given: Vec<u32>,
    /// Seconds of what every machine does for itself first: it splits the request, and makes masks.
    pub before: f64,
    /// The nodes at which tapes end.
    pub ends: Vec<usize>,
    /// Sums that are finished where they are begun.
    pub together: BTreeSet<u32>,
    /// The node whose pieces are made.
    pub at: usize,
}

impl Pieces {
    /// Seconds of all pieces, one after the other.
    pub fn seconds(&self) -> f64 {
        self.before + self.all.iter().map(|piece| piece.seconds).sum::<f64>()
    }

    /// `None` for a run without a tape of columns.
    pub fn new(tapes: &[TracedTape], counts: &Counts, params: &CkksParams, prices: &Prices) -> Option<Pieces> {
        let mut clock = Clock { counts, params, prices, steps: HashMap::new(), next: 0 };
        let (mut made, mut columns) = (Pieces::default(), None);
        for tape in tapes {
            let reads = |node: &TracedNode| node.rule == Rule::Input(COLUMNS);
            if !tape.nodes.iter().any(reads) {
                // Of masks that all layers read.
                made.before += clock.until(tape.end);
                continue;
            }
            columns = Some(made.tape(tape, columns, &mut clock));
        }
        made.before += clock.until(counts.visits.len());
        columns.map(|_| made)
    }

    /// Adds a tape that reads these columns; none are given to the first. Returns those that leave it.
    fn tape(&mut self, tape: &TracedTape, columns: Option<Vec<u32>>, clock: &mut Clock<'_>) -> Vec<u32> {
        let mut values: Vec<Made> = Vec::with_capacity(tape.nodes.len());
        let first = self.ends.last().copied().unwrap_or(0);
        for (i, node) in tape.nodes.iter().enumerate() {
            self.at = first + i;
            let seconds = clock.until(node.visits);
            let operands: Vec<&Made> = node.inputs.iter().filter_map(|&of| values.get(of)).collect();
            let value = match (&node.rule, &columns) {
                (Rule::Input(COLUMNS), Some(columns)) => {
                    self.before += seconds;
                    Made::Vectors(columns.clone())
                }
                (Rule::Input(_), _) => {
                    self.before += seconds;
                    let given: Vec<u32> = self.vectors(node).collect();
                    self.given.extend(&given);
                    Made::Vectors(given)
                }
                _ => self.node(node, &operands, seconds),
            };
            values.push(value);
        }
        self.ends.push(first + tape.nodes.len());
        let outputs = values.iter().zip(&tape.nodes).filter(|(_, node)| node.rule == Rule::Output);
        outputs.flat_map(|(value, _)| value.vectors()).copied().collect()
    }

    fn vectors(&mut self, node: &TracedNode) -> Range<u32> {
        let from = self.vectors.len();
        self.vectors.resize(from + node.shape.0 * node.shape.1, node.limbs);
        from as u32..self.vectors.len() as u32
    }

    fn node(&mut self, node: &TracedNode, operands: &[&Made], seconds: f64) -> Made {
        let of: Vec<&[u32]> = operands.iter().map(|made| made.vectors()).collect();
        let count = node.shape.0 * node.shape.1;
        let mut all = of.concat();
        match &node.rule {
            Rule::Same(Moved::Range(range)) => {
                return Made::Vectors(all.get(range.clone()).unwrap_or_default().to_vec());
            }
            Rule::Same(Moved::All) | Rule::Output => return Made::Vectors(all),
            // Nothing is computed.
            Rule::Own if seconds == 0.0 && of.len() == 1 && all.len() == count => return Made::Vectors(all),
            Rule::Begun | Rule::Squares => {
                let x = operands.last().map(|made| made.vectors()).unwrap_or_default();
                let sums = match operands.first() {
                    Some(Made::Sums(begun)) => *begun,
                    _ => self.sum(count, node.reads),
                };
                if node.rule == Rule::Squares {
                    self.together.insert(sums);
                }
                self.terms(node, &[x], sums, seconds);
                return Made::Sums(sums);
            }
            Rule::Sum if all.len() > TILE => {
                let sums = self.sum(1, node.reads);
                // Operands side by side, or one after the other.
                let side = of.len() == 2 && of[0].len() == of[1].len();
                let of = if side { of.clone() } else { vec![all.as_slice()] };
                self.terms(node, &of, sums, seconds);
                let makes = self.vectors(node);
                self.finish(node, sums, makes.clone());
                return Made::Vectors(makes.collect());
            }
            Rule::Finished => {
                let makes = self.vectors(node);
                if let Some(Made::Sums(sums)) = operands.first() {
                    let share = seconds / count.max(1) as f64;
                    for tile in tiles(makes.clone()) {
                        self.finish(node, *sums, tile.clone());
                        if let Some(last) = self.all.last_mut() {
                            last.seconds = share * tile.len() as f64;
                        }
                    }
                }
                return Made::Vectors(makes.collect());
            }
            _ => {}
        }
        let makes = self.vectors(node);
        all.sort_unstable();
        all.dedup();
        let (finishes, adds) = (None, None);
        let (limbs, at) = (node.reads, self.at);
        self.all.push(Piece { seconds, reads: all, limbs, finishes, adds, makes: makes.clone(), node: at });
        Made::Vectors(makes.collect())
    }

    fn sum(&mut self, vectors: usize, limbs: usize) -> u32 {
        self.sums.push((vectors, limbs));
        self.sums.len() as u32 - 1
    }

    /// Pieces that add terms of vectors with the same number to sums.
    fn terms(&mut self, node: &TracedNode, of: &[&[u32]], sums: u32, seconds: f64) {
        let count = of.first().map_or(0, |of| of.len());
        let share = seconds / count.max(1) as f64;
        for tile in tiles(0..count as u32) {
            let range = tile.start as usize..tile.end as usize;
            let mut reads: Vec<u32> = of.iter().flat_map(|of| of[range.clone()].iter().copied()).collect();
            reads.sort_unstable();
            reads.dedup();
            self.all.push(Piece {
                seconds: share * tile.len() as f64,
                reads,
                limbs: node.reads,
                finishes: None,
                adds: Some(sums),
                makes: 0..0,
                node: self.at,
            });
        }
    }

    fn finish(&mut self, node: &TracedNode, sums: u32, makes: Range<u32>) {
        let finishes = Some((sums, makes.len()));
        let (limbs, at) = (node.reads, self.at);
        self.all.push(Piece { seconds: 0.0, reads: Vec::new(), limbs, finishes, adds: None, makes, node: at });
    }
}

/// What a node makes.
enum Made {
    Vectors(Vec<u32>),
    /// Unfinished, each machine its own.
    Sums(u32),
}

impl Made {
    fn vectors(&self) -> &[u32] {
        match self {
            Made::Vectors(all) => all,
            Made::Sums(_) => &[],
        }
    }
}

fn tiles(all: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    all.clone().step_by(TILE).map(move |from| from..all.end.min(from + TILE as u32))
}

/// Seconds of the operations of a tally, visit by visit.
struct Clock<'a> {
    counts: &'a Counts,
    params: &'a CkksParams,
    prices: &'a Prices,
    /// All operations of a step, from which the price of a product follows.
    steps: HashMap<StepId, Vec<Done>>,
    next: usize,
}

impl Clock<'_> {
    /// Seconds of the visits from the last call's to this one.
    fn until(&mut self, end: usize) -> f64 {
        let visits = self.counts.visits.get(self.next..end).unwrap_or_default();
        self.next = self.next.max(end);
        // As few sums of floats as there are operations.
        let mut all: BTreeMap<(StepId, Op, usize), u64> = BTreeMap::new();
        for visit in visits {
            for &(op, limbs, times) in &visit.operations {
                *all.entry((visit.site, op, limbs)).or_default() += times;
            }
        }
        let mut sum = 0.0;
        for ((site, op, limbs), times) in all {
            let step = self.steps.entry(site).or_insert_with(|| operations_of(self.counts, site));
            sum += seconds((op, limbs, times), step, self.params, self.prices);
        }
        sum
    }
}
