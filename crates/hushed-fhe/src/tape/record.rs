//! Writes a tape, one operation after the other.

use std::ops::Range;
use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::StepId;

use super::functions::SlotFunction;
use super::{Grid, Mark, Node, NodeId, Op, Plain, Tape};

/// A tape that is being written.
pub(crate) struct Recorder {
    tape: Tape,
    step: StepId,
}

impl Recorder {
    pub fn new() -> Recorder {
        Recorder { tape: Tape::default(), step: StepId::outside("input") }
    }

    pub fn finish(self) -> Tape {
        self.tape
    }

    /// Names the step of the operations that follow.
    pub fn at(&mut self, step: StepId) {
        self.step = step;
    }

    /// Says that a block of the model reads these columns.
    pub fn region(&mut self, columns: NodeId) {
        self.tape.regions.push(columns);
    }

    /// The same vectors, for the residual sum after the block that is recorded next.
    pub fn kept(&mut self, x: NodeId) -> NodeId {
        let kept = self.like(Op::Kept, &[x]);
        self.tape.kept.push(kept);
        kept
    }

    /// Says that a node is the result of a step of the model.
    pub fn show(&mut self, x: NodeId) {
        self.tape.shown.push(x);
    }

    /// Rows of a block, and vectors in each.
    pub fn shape(&self, x: NodeId) -> (usize, usize) {
        self.tape.nodes[x.0].shape
    }

    /// Vectors of a block.
    pub fn count(&self, x: NodeId) -> usize {
        let (rows, columns) = self.shape(x);
        rows * columns
    }

    /// Declares that no slot that is read later is larger.
    pub fn within(&mut self, x: NodeId, bound: f64) -> NodeId {
        self.tape.nodes[x.0].bound = bound;
        x
    }

    fn push(&mut self, op: Op, inputs: &[NodeId], shape: (usize, usize)) -> NodeId {
        let (step, inputs) = (self.step, inputs.to_vec());
        self.tape.nodes.push(Node { op, step, inputs, bound: f64::INFINITY, shape });
        NodeId(self.tape.nodes.len() - 1)
    }

    fn like(&mut self, op: Op, inputs: &[NodeId]) -> NodeId {
        let shape = self.shape(inputs[0]);
        self.push(op, inputs, shape)
    }

    pub fn input(&mut self, name: &'static str, count: usize) -> NodeId {
        self.push(Op::Input(name), &[], (1, count))
    }

    pub fn output(&mut self, x: NodeId) -> NodeId {
        self.like(Op::Output, &[x])
    }

    /// A map that operations can name.
    pub fn map(&mut self, map: impl Into<Arc<LinearMap>>) -> usize {
        self.tape.constants_mut().maps.push(map.into());
        self.tape.constants.maps.len() - 1
    }

    /// A function that operations can name.
    pub fn function(&mut self, function: SlotFunction) -> usize {
        self.tape.constants_mut().functions.push(function);
        self.tape.constants.functions.len() - 1
    }

    fn numbers(&mut self, numbers: Vec<f64>) -> usize {
        self.tape.constants_mut().numbers.push(numbers);
        self.tape.constants.numbers.len() - 1
    }

    /// Plaintext vectors that operations can name.
    pub fn vectors(&mut self, vectors: Vec<Plain>) -> usize {
        self.tape.constants_mut().vectors.push(vectors);
        self.tape.constants.vectors.len() - 1
    }

    pub fn linear(&mut self, map: usize, rows: Range<usize>, x: NodeId) -> NodeId {
        let shape = (1, rows.len());
        self.push(Op::Linear { map, rows }, &[x], shape)
    }

    /// Adds the products of some columns of a map.
    pub fn linear_sum(&mut self, map: usize, columns: Range<usize>, x: NodeId, partial: Option<NodeId>) -> NodeId {
        let rows = self.tape.constants.maps[map].rows;
        let op = Op::LinearSum { map, columns, first: partial.is_none() };
        match partial {
            Some(partial) => self.push(op, &[partial, x], (1, rows)),
            None => self.push(op, &[x], (1, rows)),
        }
    }

    /// As [`Recorder::linear_sum`], of a ternary map.
    pub fn ternary_sum(&mut self, map: usize, columns: Range<usize>, x: NodeId, partial: Option<NodeId>) -> NodeId {
        let shape = (1, self.tape.constants.maps[map].rows);
        let inputs: Vec<NodeId> = partial.into_iter().chain([x]).collect();
        self.push(Op::TernarySum { map, columns, first: partial.is_none() }, &inputs, shape)
    }

    /// Adds the squares of some vectors.
    pub fn square_sum(&mut self, x: NodeId, sum: Option<NodeId>) -> NodeId {
        let inputs: Vec<NodeId> = sum.into_iter().chain([x]).collect();
        self.push(Op::SquareSum { first: sum.is_none() }, &inputs, (1, 1))
    }

    pub fn finished(&mut self, partial: NodeId) -> NodeId {
        self.like(Op::Finished, &[partial])
    }

    pub fn ternary_finished(&mut self, partial: NodeId) -> NodeId {
        self.like(Op::TernaryFinished, &[partial])
    }

    /// A map whose rows r are rows 2r and 2r + 1 of the result, for single columns and for others.
    pub fn by_parity(&mut self, map: usize, rows: Range<usize>) -> usize {
        let map = self.tape.constants.maps[map].rows(rows).by_parity();
        self.map(map)
    }

    /// The `outputs` vectors of a grid of maps.
    pub fn maps(&mut self, grid: Grid, outputs: usize, x: &[NodeId]) -> NodeId {
        self.tape.constants_mut().grids.push(grid);
        let grid = self.tape.constants.grids.len() - 1;
        self.push(Op::Maps { grid }, x, (1, outputs))
    }

    pub fn dot(&mut self, left: NodeId, right: NodeId) -> NodeId {
        let shape = (self.shape(left).1, self.shape(right).1);
        self.push(Op::Dot, &[left, right], shape)
    }

    pub fn dot_product(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.push(Op::DotProduct, &[a, b], (1, 1))
    }

    pub fn mul(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.like(Op::Mul, &[a, b])
    }

    pub fn combine(&mut self, x: NodeId, numbers: Vec<f64>) -> NodeId {
        let numbers = self.numbers(numbers);
        self.push(Op::Combine { numbers }, &[x], (1, 1))
    }

    pub fn combine_vectors(&mut self, x: NodeId, vectors: Vec<Plain>) -> NodeId {
        let vectors = self.vectors(vectors);
        self.push(Op::CombineVectors { vectors }, &[x], (1, 1))
    }

    /// A vector alone, with each of the numbers.
    pub fn scaled(&mut self, x: NodeId, numbers: Vec<f64>) -> NodeId {
        let (shape, op) = (self.spread(x, numbers.len()), Op::Scaled { numbers: self.numbers(numbers) });
        self.push(op, &[x], shape)
    }

    /// The shape of an operation of `x` with this many constants.
    fn spread(&self, x: NodeId, constants: usize) -> (usize, usize) {
        match self.shape(x) {
            (1, 1) => (1, constants),
            shape => shape,
        }
    }

    pub fn add_numbers(&mut self, x: NodeId, numbers: Vec<f64>) -> NodeId {
        let numbers = self.numbers(numbers);
        self.like(Op::AddNumbers { numbers }, &[x])
    }

    pub fn add(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.like(Op::Add, &[a, b])
    }

    pub fn sub(&mut self, a: NodeId, b: NodeId) -> NodeId {
        self.like(Op::Sub, &[a, b])
    }

    pub fn total(&mut self, x: &[NodeId]) -> NodeId {
        self.push(Op::Total, x, (1, 1))
    }

    pub fn add_vectors(&mut self, x: NodeId, vectors: Vec<Plain>) -> NodeId {
        let vectors = self.vectors(vectors);
        self.like(Op::AddVectors { vectors }, &[x])
    }

    /// A vector alone, with each of the plaintext vectors.
    pub fn mul_vectors(&mut self, x: NodeId, vectors: Vec<Plain>) -> NodeId {
        let (shape, op) = (self.spread(x, vectors.len()), Op::MulVectors { vectors: self.vectors(vectors) });
        self.push(op, &[x], shape)
    }

    pub fn apply(&mut self, function: usize, x: NodeId) -> NodeId {
        self.like(Op::Apply { function }, &[x])
    }

    /// Unchanged for a whole turn.
    pub fn rotate(&mut self, x: NodeId, by: usize) -> NodeId {
        let rows = self.shape(x).0;
        self.rotate_rows(x, vec![by; rows])
    }

    /// Each row by its distance.
    pub fn rotate_rows(&mut self, x: NodeId, by: Vec<usize>) -> NodeId {
        if by.iter().all(|&by| by == 0) { x } else { self.like(Op::Rotate { by }, &[x]) }
    }

    /// A row as rows of `columns` vectors.
    pub fn split(&mut self, x: NodeId, columns: usize) -> NodeId {
        let shape = (self.count(x) / columns.max(1), columns);
        self.push(Op::Split { columns }, &[x], shape)
    }

    pub fn rotations(&mut self, x: NodeId, by: Vec<usize>) -> NodeId {
        let shape = (self.shape(x).1, by.len());
        self.push(Op::Rotations { by }, &[x], shape)
    }

    pub fn pair(&mut self, x: NodeId, conjugate: bool) -> NodeId {
        let shape = (1, self.count(x).div_ceil(2));
        self.push(Op::Pair { conjugate }, &[x], shape)
    }

    pub fn parts(&mut self, x: NodeId, width: usize) -> NodeId {
        self.push(Op::Parts { width }, &[x], (1, width))
    }

    pub fn real(&mut self, x: NodeId) -> NodeId {
        self.like(Op::Real, &[x])
    }

    pub fn conjugate(&mut self, x: NodeId) -> NodeId {
        self.like(Op::Conjugate, &[x])
    }

    pub fn read_as(&mut self, x: NodeId, factor: f64) -> NodeId {
        self.like(Op::ReadAs { factor }, &[x])
    }

    pub fn row(&mut self, x: NodeId, row: usize) -> NodeId {
        let shape = (1, self.shape(x).1);
        self.push(Op::Row { row }, &[x], shape)
    }

    pub fn cut(&mut self, x: NodeId, range: Range<usize>) -> NodeId {
        if range == (0..self.count(x)) {
            return x;
        }
        let shape = (1, range.len());
        self.push(Op::Cut { range }, &[x], shape)
    }

    pub fn turn(&mut self, x: NodeId) -> NodeId {
        let (rows, columns) = self.shape(x);
        self.push(Op::Turn, &[x], (columns, rows))
    }

    pub fn join(&mut self, rows: &[NodeId]) -> NodeId {
        if let [one] = rows {
            return *one;
        }
        let shape = (1, rows.iter().map(|&x| self.count(x)).sum());
        self.push(Op::Join, rows, shape)
    }

    /// Vectors may be refreshed here: their numbers are within `bound`.
    pub fn mark(&mut self, x: NodeId, bound: f64) -> NodeId {
        let mark = self.like(Op::Mark { mark: Mark::Vectors }, &[x]);
        self.within(mark, bound)
    }

    /// A statistic may be refreshed here: it is within 1 in the rows of a mask, a plaintext vector or a node.
    pub fn statistic(&mut self, x: NodeId, plain: Option<usize>, mask: Option<NodeId>) -> NodeId {
        let inputs: Vec<NodeId> = [x].into_iter().chain(mask).collect();
        let mark = self.like(Op::Mark { mark: Mark::Statistic { mask: plain } }, &inputs);
        self.within(mark, 1.0)
    }

    /// As [`Recorder::statistic`], where a refresh is wanted only if there are too few levels without.
    pub fn spare(&mut self, x: NodeId) -> NodeId {
        let mark = self.like(Op::Mark { mark: Mark::Spare }, &[x]);
        self.within(mark, 1.0)
    }
}
