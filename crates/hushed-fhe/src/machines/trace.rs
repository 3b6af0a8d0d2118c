//! A dry run node by node: what each node is made of, and which of the counted operations are its own.

use std::ops::Range;

use hushed_model::StepId;

/// A tape that was counted.
#[derive(Clone, Debug, Default)]
pub struct TracedTape {
    /// In the order of the run.
    pub nodes: Vec<TracedNode>,
    /// Visits of the tally that followed the last node.
    pub end: usize,
}

/// A node that was counted.
#[derive(Clone, Debug)]
pub struct TracedNode {
    /// The step of the model.
    pub step: StepId,
    /// Its operands.
    pub inputs: Vec<usize>,
    /// Rows of the block, and vectors in each.
    pub shape: (usize, usize),
    /// Primes that it reads of its operands.
    pub reads: usize,
    /// Primes of its result.
    pub limbs: usize,
    /// Which vectors its own are made of.
    pub rule: Rule,
    /// Visits of the tally up to its end; its own begin where those of the node before end.
    pub visits: usize,
}

/// What a node's vectors are made of. Vectors of a block are numbered row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// From outside.
    Input(&'static str),
    /// The operand, which leaves the tape.
    Output,
    /// Vectors of the operands, in this order of theirs one after the other: nothing is computed.
    Same(Moved),
    /// All of those of the operands.
    Own,
    /// One vector, the sum of terms of vector k of each operand: terms can be added in any order, with the same bytes.
    Sum,
    /// Unfinished sums of terms of the last operand's vectors; they are added to those of the first if there are two.
    Begun,
    /// As `Begun`, of squares: they are finished where they are begun.
    Squares,
    /// The vectors of unfinished sums.
    Finished,
}

/// What is taken of operands without computing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Moved {
    /// All.
    All,
    /// Some.
    Range(Range<usize>),
}
