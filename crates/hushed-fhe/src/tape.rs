//! The circuit of a model as data: recorded once, then placed ([`assign`]) and run by any [`run::Executor`].
//!
//! A node is one operation on a *block* of vectors, all with the same level and scale: the columns of a layer, the
//! diagonals of a giant step. A block is a list of rows of vectors; most have one row. A tape names no level, no scale,
//! no refresh and no key. It says where vectors may be refreshed ([`Op::Mark`]), as only there their numbers are within
//! their bound.
//!
//! Models run like this ([`crate::Pass`]), a layer at a time.

pub(crate) mod answer;
pub(crate) mod assign;
pub(crate) mod attention;
pub(crate) mod causal;
pub(crate) mod encoder;
pub(crate) mod feed_forward;
pub(crate) mod functions;
pub(crate) mod layout;
pub(crate) mod levels;
pub(crate) mod norm;
mod operations;
pub(crate) mod order;
pub(crate) mod packed;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod scales;
pub(crate) mod schedule;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::Complex64;
use hushed_ckks::lintrans::LinTransError;
use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_lower::LinearMap;
use hushed_model::StepId;

use crate::packing::sequences::TextOfRow;
use crate::packing::{Interleave, PackingError, SequencePacking};
use functions::SlotFunction;

/// The position of a node on its tape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct NodeId(pub usize);

/// A recorded computation.
#[derive(Default)]
pub(crate) struct Tape {
    /// In an order in which they can be computed.
    pub nodes: Vec<Node>,
    /// What their operations name; parts of a tape share them.
    pub constants: Arc<Constants>,
    /// The columns that a block reads: they may be on disk while it runs.
    pub regions: Vec<NodeId>,
    /// What only the residual sum after a block reads, which may be on disk as well.
    pub kept: Vec<NodeId>,
    /// The results of the model's steps, for those who look at them.
    pub shown: Vec<NodeId>,
}

/// One operation.
pub(crate) struct Node {
    /// The operation.
    pub op: Op,
    /// The step of the model that it belongs to.
    pub step: StepId,
    /// Its operands, all of them earlier nodes.
    pub inputs: Vec<NodeId>,
    /// No slot that is read later is larger; infinite if nothing is known.
    pub bound: f64,
    /// Rows of the block, and vectors in each.
    pub shape: (usize, usize),
}

/// An operation on blocks. Where the second operand has one vector, it is used with every vector of the first.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Op {
    /// Vectors from outside.
    Input(&'static str),
    /// Some rows of a map.
    Linear { map: usize, rows: Range<usize> },
    /// Some columns of a map, added to the unfinished sums that are the first of two operands. The first part of a map
    /// adds its biases.
    LinearSum { map: usize, columns: Range<usize>, first: bool },
    /// As `LinearSum`, of a map with weights −b, 0 and b, of which the signs are multiplied: b is its bound.
    TernarySum { map: usize, columns: Range<usize>, first: bool },
    /// Σ_k x_k², added to the unfinished sum that is the first of two operands.
    SquareSum { first: bool },
    /// Finishes the sums of a map, or of squares.
    Finished,
    /// Finishes the sums of a ternary map.
    TernaryFinished,
    /// A grid of maps of the vectors of all operands.
    Maps { grid: usize },
    /// `result[i][j]` = Σ_k `left[k][i]` ⊗ `right[k][j]`.
    Dot,
    /// Σ_k a_k ⊗ b_k.
    DotProduct,
    /// a ⊗ b.
    Mul,
    /// Σ_k c_k·x_k.
    Combine { numbers: usize },
    /// Σ_k v_k ⊗ x_k.
    CombineVectors { vectors: usize },
    /// c_k·x_k; a vector alone, with all of them.
    Scaled { numbers: usize },
    /// x_k + c_k.
    AddNumbers { numbers: usize },
    /// a + b.
    Add,
    /// a − b.
    Sub,
    /// The sum of all vectors of all operands.
    Total,
    /// x_k + v_k.
    AddVectors { vectors: usize },
    /// x_k ⊗ v_k; a vector alone, with all of them.
    MulVectors { vectors: usize },
    /// A function of each slot.
    Apply { function: usize },
    /// Slot i of the result is slot i + `by`, a distance for each row.
    Rotate { by: Vec<usize> },
    /// Each of the vectors by each of these distances, a row for each vector.
    Rotations { by: Vec<usize> },
    /// a + i·b, or a − i·b, of every two vectors; of an odd number the last stays.
    Pair { conjugate: bool },
    /// The first `width` vectors of the two parts of each pair.
    Parts { width: usize },
    /// Real parts.
    Real,
    /// a − i·b of each pair.
    Conjugate,
    /// The same vectors read as `factor` times themselves.
    ReadAs { factor: f64 },
    /// A row of a block.
    Row { row: usize },
    /// Some vectors of a block, numbered row by row.
    Cut { range: Range<usize> },
    /// A row as rows of this many vectors.
    Split { columns: usize },
    /// Columns as rows.
    Turn,
    /// The rows of all operands as one.
    Join,
    /// The same vectors, for a reader that comes later.
    Kept,
    /// Here vectors may be refreshed: numbers are within the bound of the node.
    Mark { mark: Mark },
    /// Vectors that leave.
    Output,
}

/// What is refreshed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// Vectors at the scale of a refresh, divided by the bound if that is above 1.
    Vectors,
    /// A vector at any scale within 1 in the rows of these masks: a public one, or the second operand; without a mask,
    /// in all.
    Statistic { mask: Option<usize> },
    /// The same, refreshed only if a chain has too few levels for what is before and after it.
    Spare,
}

/// What operations name: by number, so that a tape can be compared and hashed without the model's weights.
#[derive(Clone, Default)]
pub(crate) struct Constants {
    /// Maps with everything folded in.
    pub maps: Vec<Arc<LinearMap>>,
    /// Numbers, one per vector.
    pub numbers: Vec<Vec<f64>>,
    /// Plaintext vectors, one per vector of a block or one for all.
    pub vectors: Vec<Vec<Plain>>,
    /// Grids of maps.
    pub grids: Vec<Grid>,
    /// Functions of a slot.
    pub functions: Vec<SlotFunction>,
}

/// A grid of maps, made when it is used.
#[derive(Clone)]
pub(crate) struct Grid {
    /// Whether it is of the vectors of each operand and of their conjugates.
    pub conjugates: bool,
    pub make: Arc<MakeGrid>,
}

/// A grid, and how its rotations are split.
pub(crate) type SplitGrid = Result<(MapGrid, GridSplit), LinTransError>;

type MakeGrid = dyn Fn() -> SplitGrid + Send + Sync;

/// A plaintext vector, made when it is used.
#[derive(Clone)]
pub(crate) enum Plain {
    /// Numbers of a batch.
    Batch { texts: Arc<Texts>, holds: Holds },
    /// Numbers of packed rows.
    Numbers(Arc<dyn Fn() -> Vec<f64> + Send + Sync>),
    /// Pairs of packed rows.
    Pairs(Arc<dyn Fn() -> Vec<Complex64> + Send + Sync>),
}

/// What a plaintext vector holds.
#[derive(Clone)]
pub(crate) enum Holds {
    /// Numbers of rows, the same for every text.
    Rows(Vec<f64>),
    /// The same, 0 in places without a text of this number.
    TextRows { numbers: Vec<f64>, text: usize },
    /// A number for each number of tokens, from 0 on: that of the row's text.
    Lengths(Arc<[f64]>),
    /// `first` in the first row of every text, `other` in all others.
    Firsts { first: f64, other: f64 },
    /// `factor` in some rows of every text.
    Mask { rows: Kept, factor: f64 },
    /// `value` in one row of every text, divided by the rows of the text.
    Share { row: usize, value: f64 },
    /// `value` in the rows of each place's text of this number, divided by their number; or in the first of them.
    OfText { text: usize, value: f64, first: bool },
    /// For diagonal `diagonal` of scores: `token` where the key is a token of the row's text, and with `causal` not
    /// after the row; `other` elsewhere.
    Keys { diagonal: usize, causal: bool, token: f64, other: f64 },
}

/// Rows of the tokens of each text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    All,
    /// All but the first.
    Later,
    /// The first, put into this row.
    First(usize),
}

/// Rows that are 1 in a mask.
#[derive(Clone, Copy)]
pub(crate) enum RowMask {
    Public(Kept),
    Private(NodeId),
}

/// The texts of a batch.
pub(crate) struct Texts {
    /// The packing.
    pub layout: Interleave,
    /// Tokens of each text, where the server knows them, and how texts share places.
    pub packing: SequencePacking,
}

impl Texts {
    /// One text a place, with these numbers of tokens; none if the server does not know them.
    ///
    /// # Errors
    /// [`PackingError`] for a text that is too long.
    pub fn alone(layout: Interleave, lengths: Vec<usize>) -> Result<Texts, PackingError> {
        Ok(Texts { layout, packing: SequencePacking::new(layout.rows(), 1, lengths)? })
    }

    /// `f` of each possible number of tokens.
    pub fn each(&self, f: impl Fn(usize) -> f64) -> Holds {
        Holds::Lengths((0..=self.layout.rows()).map(f).collect())
    }
}

impl Holds {
    /// The numbers.
    fn numbers(&self, texts: &Texts) -> Vec<f64> {
        let m = texts.layout.rows();
        let number = |numbers: &[f64], i: usize| numbers.get(i).copied().unwrap_or(0.0);
        let one = |there: bool, number: f64| if there { number } else { 0.0 };
        let shared = |of: &TextOfRow, value: f64| value / of.length.max(1) as f64;
        let at = |place: usize, row: usize| {
            let of = texts.packing.text_of(place, row);
            match self {
                Holds::Rows(numbers) => number(numbers, row),
                Holds::TextRows { numbers, text } => one(texts.packing.has(place, *text), number(numbers, row)),
                Holds::Lengths(numbers) => number(numbers, of.length),
                Holds::Firsts { first, other } => {
                    if row == of.first {
                        *first
                    } else {
                        *other
                    }
                }
                Holds::Mask { rows, factor } => {
                    let there = match *rows {
                        Kept::All => of.has(row),
                        Kept::Later => row > of.first && of.has(row),
                        Kept::First(at) => of.length > 0 && row == of.first + at,
                    };
                    one(there, *factor)
                }
                Holds::Share { row: at, value } => one(row == *at, shared(&of, *value)),
                Holds::OfText { text, value, first } => match first {
                    true => one(of.number == *text && of.length > 0 && row == of.first, *value),
                    false => one(of.number == *text && of.has(row), shared(&of, *value)),
                },
                Holds::Keys { diagonal, causal, token, other } => {
                    let key = (row + diagonal) % m;
                    if of.has(key) && (!causal || key <= row) { *token } else { *other }
                }
            }
        };
        texts.layout.vector(texts.layout.texts(), at)
    }
}

impl Plain {
    /// The numbers; the real parts of pairs.
    pub fn numbers(&self) -> Vec<f64> {
        match self {
            Plain::Batch { texts, holds } => holds.numbers(texts),
            Plain::Numbers(make) => make(),
            Plain::Pairs(make) => make().into_iter().map(|z| z.re).collect(),
        }
    }
}

impl Tape {
    /// The constants, to add some.
    pub fn constants_mut(&mut self) -> &mut Constants {
        Arc::make_mut(&mut self.constants)
    }
}

impl Op {
    /// Whether it adds terms to unfinished sums.
    pub fn adds(&self) -> bool {
        matches!(self, Op::LinearSum { .. } | Op::TernarySum { .. } | Op::SquareSum { .. })
    }

    /// Whether it finishes sums.
    pub fn finishes(&self) -> bool {
        matches!(self, Op::Finished | Op::TernaryFinished)
    }

    /// Whether the scale of its result can be chosen.
    pub fn chooses_scale(&self) -> bool {
        matches!(
            self,
            Op::Linear { .. }
                | Op::LinearSum { .. }
                | Op::Maps { .. }
                | Op::Combine { .. }
                | Op::CombineVectors { .. }
                | Op::Scaled { .. }
                | Op::MulVectors { .. }
                | Op::Apply { .. }
        )
    }

    /// Whether its result has the scale of its operands.
    pub fn keeps_scale(&self) -> bool {
        matches!(
            self,
            Op::TernarySum { .. }
                | Op::TernaryFinished
                | Op::Kept
                | Op::AddNumbers { .. }
                | Op::Add
                | Op::Sub
                | Op::Total
                | Op::AddVectors { .. }
                | Op::Rotate { .. }
                | Op::Rotations { .. }
                | Op::Pair { .. }
                | Op::Conjugate
                | Op::Row { .. }
                | Op::Cut { .. }
                | Op::Split { .. }
                | Op::Turn
                | Op::Join
                | Op::Mark { .. }
                | Op::Output
        )
    }

    /// The levels from its operands to its result.
    pub fn levels(&self, constants: &Constants) -> usize {
        match self {
            Op::Apply { function } => constants.functions.get(*function).map_or(0, SlotFunction::levels),
            Op::Linear { .. }
            | Op::Finished
            | Op::Maps { .. }
            | Op::Dot
            | Op::DotProduct
            | Op::Mul
            | Op::Combine { .. }
            | Op::CombineVectors { .. }
            | Op::Scaled { .. }
            | Op::MulVectors { .. } => 1,
            _ => 0,
        }
    }
}
