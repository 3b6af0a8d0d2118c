//! How the numbers of a batch lie in vectors, as the circuits see it.

use std::ops::Range;
use std::sync::Arc;

use hushed_model::StepId;

use super::record::Recorder;
use super::{Holds, Kept, NodeId, Plain, RowMask, Texts};
use crate::choices::{AttentionChoice, HeadChoice};
use crate::error::FheError;
use crate::ops::attention::PROJECTED;
use crate::ops::mask::REAL_ROWS;
use crate::ops::softmax::Softmax;
use crate::packing::Interleave;
use crate::packing::products::{GIANTS, PAIRS};
use crate::slots::Slots;

/// The least value assumed for p(−1) where it is squared, as in [`crate::ops::key_mask`].
const LEAST_SHARE: f64 = 1.0 / (1 << 30) as f64;

/// What a circuit needs to know of a layout.
pub(crate) trait Layout {
    /// The functions of a head's softmax.
    ///
    /// # Errors
    /// As [`Softmax::new`].
    fn softmax<S: Slots>(&self, on: &S, head: &HeadChoice, choice: &AttentionChoice) -> Result<Softmax, FheError> {
        Softmax::new(on, head, choice)
    }

    /// Q and K of a head from the map of both, each `width` columns, as [`Layout::scores`] reads them. `offset`: t =
    /// Q·Kᵀ + offset.
    fn queries_keys(&self, t: &mut Recorder, map: usize, width: usize, x: NodeId, offset: f64) -> [NodeId; 2];

    /// `each` of the arguments of an exponential, a block at a time: it gets the first diagonal of the block, and the
    /// block. Returns all of its results in one.
    ///
    /// # Errors
    /// Those of `each`.
    fn scores(
        &self,
        t: &mut Recorder,
        operands: [NodeId; 2],
        offset: f64,
        each: &mut dyn FnMut(&mut Recorder, usize, NodeId) -> Result<NodeId, FheError>,
    ) -> Result<NodeId, FheError>;

    /// The sum over the keys of each row, less the share of padding, `each` for every row of padding.
    fn row_sum(&self, t: &mut Recorder, weights: NodeId, each: f64) -> NodeId;

    /// As [`Layout::row_sum`], for shares (`each`·`inverse`)². `again` records `inverse` a second time.
    fn row_sum_of_squares(
        &self,
        t: &mut Recorder,
        weights: NodeId,
        inverse: NodeId,
        again: &mut dyn FnMut(&mut Recorder) -> NodeId,
        each: f64,
    ) -> NodeId;

    /// V of some heads, from the map of all of them, as [`Layout::attend`] reads it.
    fn values(&self, t: &mut Recorder, map: usize, width: usize, heads: usize, x: NodeId) -> Vec<NodeId>;

    /// P·V, times a number per row.
    fn attend(&self, t: &mut Recorder, p: NodeId, v: NodeId, per_row: NodeId) -> NodeId;

    /// Row i gets row i − 1 of V, and the first row of a text its own.
    fn previous(&self, t: &mut Recorder, v: NodeId) -> NodeId;

    /// What [`Layout::attend`] and [`Layout::previous`] return, as `width` columns.
    fn columns(&self, t: &mut Recorder, x: NodeId, width: usize) -> NodeId;

    /// `factors` times the columns, less their mean.
    fn centred(&self, t: &mut Recorder, x: NodeId, factors: &[f64]) -> NodeId;

    /// The sum of the squares of the columns of each row.
    fn squares(&self, t: &mut Recorder, x: NodeId) -> NodeId;

    /// Where numbers per row may be refreshed: they are within 1 in the rows of the mask.
    fn statistic(&self, t: &mut Recorder, x: NodeId, mask: &RowMask) -> NodeId;

    /// `numbers` in the rows of a mask, one for each column, added to the columns.
    fn plus_rows(&self, t: &mut Recorder, x: NodeId, mask: &RowMask, numbers: &[f64]) -> NodeId;

    /// A number per row times `factor` in rows of the mask, 0 elsewhere.
    fn masked(&self, t: &mut Recorder, x: NodeId, mask: &RowMask, factor: f64) -> NodeId;
}

/// What is made of the mask of token rows that only the client knows, once for all layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// 1 in token rows.
    Tokens,
    /// The tokens of a text over m, in all of its rows.
    Part,
    /// The mask without the first row of each text.
    Later,
    /// First rows alone.
    First,
}

impl Hidden {
    pub const ALL: [Hidden; 4] = [Hidden::Tokens, Hidden::Part, Hidden::Later, Hidden::First];

    /// The name of the input.
    pub fn name(self) -> &'static str {
        match self {
            Hidden::Tokens => REAL_ROWS,
            Hidden::Part => "input.part",
            Hidden::Later => "input.later",
            Hidden::First => "input.first",
        }
    }
}

/// A batch of texts: a vector for each column.
pub(crate) struct Columns {
    /// Their lengths are not read if they are hidden.
    pub texts: Arc<Texts>,
    /// By [`Hidden`], if lengths are.
    pub hidden: Option<[NodeId; 4]>,
    /// Baby steps of Q·Kᵀ and of P·V.
    pub baby: [usize; 2],
    /// Whether rows see no key after them, as in a decoder.
    causal: bool,
}

impl Columns {
    /// Texts whose lengths the server knows, or not.
    pub fn new(t: &mut Recorder, texts: &Arc<Texts>, hidden: bool, baby: [usize; 2]) -> Columns {
        let hidden = hidden.then(|| Hidden::ALL.map(|which| t.input(which.name(), 1)));
        Columns { texts: Arc::clone(texts), hidden, baby, causal: false }
    }

    /// Texts of a decoder, of which the server knows no length. They end in the last row; of what is made of the
    /// client's mask only the tokens are read.
    pub fn causal(t: &mut Recorder, texts: &Arc<Texts>, baby: [usize; 2]) -> Columns {
        let tokens = t.input(Hidden::Tokens.name(), 1);
        Columns { texts: Arc::clone(texts), hidden: Some([tokens; 4]), baby, causal: true }
    }

    /// Texts of a decoder whose rows of padding stay zeros, as does what has no text: columns have no offsets.
    pub fn zeros(texts: &Arc<Texts>, baby: usize) -> Columns {
        Columns { texts: Arc::clone(texts), hidden: None, baby: [baby; 2], causal: true }
    }

    /// Whether columns have offsets where there is a text alone.
    pub fn has_offsets(&self) -> bool {
        self.hidden.is_some() || !self.causal
    }

    /// For circuits that read nothing of lengths.
    pub fn bare(texts: &Arc<Texts>) -> Columns {
        Columns { texts: Arc::clone(texts), hidden: None, baby: [1, 1], causal: false }
    }

    /// One of the vectors of hidden lengths.
    pub fn hidden(&self, which: Hidden) -> Option<NodeId> {
        self.hidden.map(|all| all[which as usize])
    }

    /// The mask of these rows.
    pub fn mask(&self, rows: Kept) -> RowMask {
        let which = match rows {
            Kept::All => Hidden::Tokens,
            Kept::Later => Hidden::Later,
            Kept::First(_) => Hidden::First,
        };
        self.hidden(which).map_or(RowMask::Public(rows), RowMask::Private)
    }

    pub fn plain(&self, holds: Holds) -> Plain {
        Plain::Batch { texts: Arc::clone(&self.texts), holds }
    }

    /// A number for each row of every text.
    pub fn row_vector(&self, number: impl Fn(usize) -> f64) -> Plain {
        self.plain(Holds::Rows((0..self.rows()).map(number).collect()))
    }

    /// m.
    pub fn rows(&self) -> usize {
        self.texts.layout.rows()
    }

    /// The distance of some rows, in slots.
    pub fn rotation(&self, rows: usize) -> usize {
        self.texts.layout.rotation(rows)
    }

    pub fn turned(&self, t: &mut Recorder, x: NodeId, rows: usize) -> NodeId {
        t.rotate(x, self.rotation(rows))
    }

    /// Most texts that share the rows of a place.
    pub fn most(&self) -> usize {
        self.texts.packing.most()
    }

    /// Whether rows see only some of the tokens of a place, so that scores of other keys are masked: those of other
    /// texts, or of later tokens.
    fn masks(&self) -> bool {
        self.most() > 1 || self.causal
    }

    /// Sums the rows of each place into every row of it.
    pub fn over_rows(&self, t: &mut Recorder, mut x: NodeId) -> NodeId {
        for k in 0..self.rows().ilog2() {
            let rotated = self.turned(t, x, 1 << k);
            x = t.add(x, rotated);
        }
        x
    }

    fn babies(&self, baby: usize) -> Vec<usize> {
        (0..baby).map(|r| self.rotation(r)).collect()
    }

    /// P·V in pairs, of diagonals in the frames of their giant steps, a column for each of those.
    pub fn attend_turned(&self, t: &mut Recorder, left: NodeId, v: NodeId) -> NodeId {
        let giants: Vec<usize> = (0..self.rows()).step_by(self.baby[1]).collect();
        let pairs = t.count(v);
        let mut blocks = Vec::new();
        for from in (0..pairs).step_by(PAIRS) {
            let block = t.cut(v, from..pairs.min(from + PAIRS));
            let right = self.turned_values(t, block);
            let grid = t.dot(left, right);
            blocks.push(self.homed(t, grid, &giants, None));
        }
        t.join(&blocks)
    }

    /// The rotations of pairs of V, a row for each baby step.
    pub fn turned_values(&self, t: &mut Recorder, v: NodeId) -> NodeId {
        let rotated = t.rotations(v, self.babies(self.baby[1]));
        t.turn(rotated)
    }

    /// Adds the rows of a grid to `sum`, each rotated home by its giant step.
    pub fn homed(&self, t: &mut Recorder, grid: NodeId, giants: &[usize], sum: Option<NodeId>) -> NodeId {
        let grid = t.rotate_rows(grid, giants.iter().map(|&giant| self.rotation(giant)).collect());
        let first = t.row(grid, 0);
        let mut sum = sum.map_or(first, |sum| t.add(sum, first));
        for a in 1..giants.len() {
            let row = t.row(grid, a);
            sum = t.add(sum, row);
        }
        sum
    }
}

/// Makes what [`Columns`] reads of hidden lengths from the client's mask; for a decoder, the tokens alone.
///
/// # Errors
/// None for a layout.
pub(crate) fn hidden(t: &mut Recorder, layout: Interleave, decodes: bool) -> Result<(), FheError> {
    t.at(StepId::outside(REAL_ROWS));
    let columns = Columns::bare(&Arc::new(Texts::alone(layout, Vec::new())?));
    let sent = t.input(REAL_ROWS, 1);
    let tokens = t.mark(sent, 1.0);
    if decodes {
        t.output(tokens);
        return Ok(());
    }
    let part = t.read_as(tokens, 1.0 / layout.rows() as f64);
    let part = columns.over_rows(t, part);
    t.within(part, 1.0);
    let first = |row: usize| f64::from(u8::from(row == 0));
    let later = columns.row_vector(|row| 1.0 - first(row));
    let later = t.mul_vectors(tokens, vec![later]);
    let first = t.mul_vectors(tokens, vec![columns.row_vector(first)]);
    for x in [tokens, part, later, first] {
        t.output(x);
    }
    Ok(())
}

impl Layout for Columns {
    /// Keys that are masked are not 0, as those of padding are, and their exponential is: it vanishes at −1, where
    /// [`Layout::scores`] puts them.
    fn softmax<S: Slots>(&self, on: &S, head: &HeadChoice, choice: &AttentionChoice) -> Result<Softmax, FheError> {
        match self.masks() {
            true => Softmax::masked(on, head, choice),
            false => Softmax::new(on, head, choice),
        }
    }

    fn queries_keys(&self, t: &mut Recorder, map: usize, width: usize, x: NodeId, offset: f64) -> [NodeId; 2] {
        let mut side = |range: Range<usize>, conjugate: bool| {
            let mut pairs = Vec::new();
            for from in range.clone().step_by(PROJECTED) {
                let made = t.linear(map, from..range.end.min(from + PROJECTED), x);
                pairs.push(t.pair(made, conjugate));
            }
            t.join(&pairs)
        };
        let (q, k) = (side(0..width, false), side(width..2 * width, true));
        let Some(real) = self.hidden(Hidden::Tokens) else {
            return [q, k];
        };
        // One more column adds (1 + offset) where the key is a token.
        let zero = t.scaled(real, vec![0.0]);
        let one = t.add_numbers(zero, vec![1.0 + offset]);
        let rows = t.scaled(real, vec![1.0]);
        t.within(rows, 1.0);
        [t.join(&[q, one]), t.join(&[k, rows])]
    }

    fn scores(
        &self,
        t: &mut Recorder,
        [q, k]: [NodeId; 2],
        offset: f64,
        each: &mut dyn FnMut(&mut Recorder, usize, NodeId) -> Result<NodeId, FheError>,
    ) -> Result<NodeId, FheError> {
        let (m, baby) = (self.rows(), self.baby[0]);
        let keys = t.rotations(k, self.babies(baby));
        let giants: Vec<usize> = (0..m).step_by(baby).collect();
        let mut done = Vec::with_capacity(giants.len());
        for giants in giants.chunks(GIANTS) {
            let back = giants.iter().map(|giant| self.rotation(m - giant)).collect();
            let turned = t.rotations(q, back);
            let grid = t.dot(turned, keys);
            for (i, &giant) in giants.iter().enumerate() {
                let row = t.row(grid, i);
                let row = self.turned(t, row, giant);
                let keys = |token: f64, other: f64| {
                    let causal = self.causal;
                    let keys = |r| self.plain(Holds::Keys { diagonal: giant + r, causal, token, other });
                    (0..baby).map(keys).collect()
                };
                // Scores of padding are 0, and those of keys that are not seen may be anything.
                let row = if self.masks() { t.mul_vectors(row, keys(1.0, 0.0)) } else { row };
                let row = t.real(row);
                let argument = match self.hidden {
                    None => t.add_vectors(row, keys(offset, -1.0)),
                    Some(_) => t.add_numbers(row, vec![-1.0]),
                };
                t.within(argument, 1.0);
                done.push(each(t, giant, argument)?);
            }
        }
        Ok(t.join(&done))
    }

    fn row_sum(&self, t: &mut Recorder, weights: NodeId, each: f64) -> NodeId {
        let (sum, m) = (t.total(&[weights]), self.rows());
        if self.causal {
            return sum;
        }
        let each = if self.masks() { 0.0 } else { each };
        match self.hidden(Hidden::Part) {
            None => {
                let padding = |tokens: usize| match m - tokens {
                    all if all == m => 1.0 - each * all as f64,
                    padded => -each * padded as f64,
                };
                t.add_vectors(sum, vec![self.plain(self.texts.each(padding))])
            }
            Some(part) => {
                let sum = t.add_numbers(sum, vec![-each * m as f64]);
                let real = t.scaled(part, vec![each * m as f64]);
                t.add(sum, real)
            }
        }
    }

    fn row_sum_of_squares(
        &self,
        t: &mut Recorder,
        weights: NodeId,
        inverse: NodeId,
        again: &mut dyn FnMut(&mut Recorder) -> NodeId,
        each: f64,
    ) -> NodeId {
        let (sum, m) = (t.total(&[weights]), self.rows());
        if self.masks() {
            // Masked keys have no share.
            return sum;
        }
        let share = match self.hidden(Hidden::Part) {
            None => {
                let root = |tokens: usize| match m - tokens {
                    all if all == m => 0.0,
                    padded => each * (padded as f64).sqrt(),
                };
                let roots = t.mul_vectors(inverse, vec![self.plain(self.texts.each(root))]);
                t.mul(roots, roots)
            }
            Some(part) => {
                let again = again(t);
                let root = t.read_as(again, each.abs().max(LEAST_SHARE));
                t.within(root, 1.0);
                let square = t.mul(root, root);
                t.within(square, 1.0);
                let real = t.scaled(part, vec![-(m as f64)]);
                let padded = t.add_numbers(real, vec![m as f64]);
                t.mul(square, padded)
            }
        };
        t.sub(sum, share)
    }

    fn values(&self, t: &mut Recorder, map: usize, width: usize, heads: usize, x: NodeId) -> Vec<NodeId> {
        let all = t.linear(map, 0..heads * width, x);
        let mut head = |h: usize| {
            let columns = t.cut(all, h * width..(h + 1) * width);
            t.pair(columns, false)
        };
        (0..heads).map(&mut head).collect()
    }

    fn attend(&self, t: &mut Recorder, p: NodeId, v: NodeId, per_row: NodeId) -> NodeId {
        let (m, baby) = (self.rows(), self.baby[1]);
        let rows = t.split(p, baby);
        let back = (0..m).step_by(baby).map(|giant| self.rotation(m - giant)).collect();
        let left = t.rotate_rows(rows, back);
        let left = t.turn(left);
        let o = self.attend_turned(t, left, v);
        let o = t.dot(o, per_row);
        t.turn(o)
    }

    fn previous(&self, t: &mut Recorder, v: NodeId) -> NodeId {
        let m = self.rows();
        let firsts = |first: f64| vec![self.plain(Holds::Firsts { first, other: 1.0 - first })];
        let own = t.mul_vectors(v, firsts(1.0));
        if m == 1 {
            return own;
        }
        let before = self.turned(t, v, m - 1);
        let before = t.mul_vectors(before, firsts(0.0));
        t.add(own, before)
    }

    fn columns(&self, t: &mut Recorder, x: NodeId, width: usize) -> NodeId {
        t.parts(x, width)
    }

    fn centred(&self, t: &mut Recorder, x: NodeId, factors: &[f64]) -> NodeId {
        let d = factors.len() as f64;
        let mean = t.combine(x, factors.iter().map(|f| -f / d).collect());
        let scaled = t.scaled(x, factors.to_vec());
        t.add(scaled, mean)
    }

    fn squares(&self, t: &mut Recorder, x: NodeId) -> NodeId {
        t.dot_product(x, x)
    }

    fn statistic(&self, t: &mut Recorder, x: NodeId, mask: &RowMask) -> NodeId {
        match *mask {
            RowMask::Public(rows) => {
                let mask = t.vectors(vec![self.plain(Holds::Mask { rows, factor: 1.0 })]);
                t.statistic(x, Some(mask), None)
            }
            RowMask::Private(mask) => t.statistic(x, None, Some(mask)),
        }
    }

    fn plus_rows(&self, t: &mut Recorder, x: NodeId, mask: &RowMask, numbers: &[f64]) -> NodeId {
        match *mask {
            RowMask::Public(rows) => {
                let added = |&factor: &f64| self.plain(Holds::Mask { rows, factor });
                t.add_vectors(x, numbers.iter().map(added).collect())
            }
            RowMask::Private(mask) => {
                let added = t.scaled(mask, numbers.to_vec());
                t.add(x, added)
            }
        }
    }

    fn masked(&self, t: &mut Recorder, x: NodeId, mask: &RowMask, factor: f64) -> NodeId {
        match mask {
            RowMask::Public(rows) => t.mul_vectors(x, vec![self.plain(Holds::Mask { rows: *rows, factor })]),
            RowMask::Private(mask) => {
                let x = if factor == 1.0 { x } else { t.read_as(x, factor) };
                t.mul(x, *mask)
            }
        }
    }
}
