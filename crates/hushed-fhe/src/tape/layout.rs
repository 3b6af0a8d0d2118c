//! How the numbers of a batch lie in vectors, as the circuits see it.

use std::ops::Range;
use std::sync::Arc;

use hushed_model::StepId;

use super::record::Recorder;
use super::{NodeId, Plain, RowMask, Texts};
use crate::error::FheError;
use crate::ops::attention::PROJECTED;
use crate::ops::mask::{REAL_ROWS, token_rows};
use crate::packing::Interleave;
use crate::packing::products::{GIANTS, PAIRS};

/// The least value assumed for p(−1) where it is squared, as in [`crate::ops::key_mask`].
const LEAST_SHARE: f64 = 1.0 / (1 << 30) as f64;

/// What a circuit needs to know of a layout.
pub(crate) trait Layout {
    /// Q and K of a head from the map of both, each `width` columns, as [`Layout::scores`] reads them. `offset`: t =
    /// Q·Kᵀ + offset.
    fn queries_keys(&self, t: &mut Recorder, map: usize, width: usize, x: NodeId, offset: f64) -> [NodeId; 2];

    /// The arguments of an exponential, a block at a time: `each` gets the first diagonal of the block, and the block.
    ///
    /// # Errors
    /// Those of `each`.
    fn scores(
        &self,
        t: &mut Recorder,
        operands: [NodeId; 2],
        offset: f64,
        each: &mut dyn FnMut(&mut Recorder, usize, NodeId) -> Result<NodeId, FheError>,
    ) -> Result<Vec<NodeId>, FheError>;

    /// The sum over the keys of each row, less the share of padding, `each` for every row of padding.
    fn row_sum(&self, t: &mut Recorder, blocks: &[NodeId], each: f64) -> NodeId;

    /// As [`Layout::row_sum`], for shares (`each`·`inverse`)². `again` records `inverse` a second time.
    fn row_sum_of_squares(
        &self,
        t: &mut Recorder,
        blocks: &[NodeId],
        inverse: NodeId,
        again: &mut dyn FnMut(&mut Recorder) -> NodeId,
        each: f64,
    ) -> NodeId;

    /// V of some heads, from the map of all of them, as [`Layout::attend`] reads it.
    fn values(&self, t: &mut Recorder, map: usize, width: usize, heads: usize, x: NodeId) -> Vec<NodeId>;

    /// P·V, times a number per row.
    fn attend(&self, t: &mut Recorder, p: &[NodeId], v: NodeId, per_row: NodeId) -> NodeId;

    /// Row i gets row i − 1 of V, and row 0 its own.
    fn previous(&self, t: &mut Recorder, v: NodeId) -> NodeId;

    /// What [`Layout::attend`] and [`Layout::previous`] return, as `width` columns.
    fn columns(&self, t: &mut Recorder, x: NodeId, width: usize) -> NodeId;

    /// `factors` times the columns, less their mean.
    fn centred(&self, t: &mut Recorder, x: NodeId, factors: &[f64]) -> NodeId;

    /// The sum of the squares of the columns of each row.
    fn squares(&self, t: &mut Recorder, x: NodeId) -> NodeId;

    /// A number per row times `factor` in rows of the mask, 0 elsewhere.
    fn masked(&self, t: &mut Recorder, x: NodeId, mask: &RowMask, factor: f64) -> NodeId;
}

/// The rows of the texts.
pub(crate) enum Rows {
    Public(Arc<Texts>),
    /// With the mask of token rows, and the tokens of each text over m.
    Private {
        real: NodeId,
        part: NodeId,
    },
}

/// A batch of texts: a vector for each column.
pub(crate) struct Columns {
    pub layout: Interleave,
    pub rows: Rows,
    /// Baby steps of Q·Kᵀ and of P·V.
    pub baby: [usize; 2],
}

impl Columns {
    /// Texts whose lengths the server knows.
    pub fn public(layout: Interleave, lengths: Vec<usize>, baby: [usize; 2]) -> Columns {
        Columns { layout, rows: Rows::Public(Arc::new(Texts { layout, lengths })), baby }
    }

    /// Texts with an encrypted mask.
    pub fn private(t: &mut Recorder, layout: Interleave, baby: [usize; 2]) -> Columns {
        t.at(StepId::outside(REAL_ROWS));
        let sent = t.input(REAL_ROWS, 1);
        let real = t.mark(sent, 1.0);
        let m = layout.rows();
        let mut part = t.read_as(real, 1.0 / m as f64);
        for k in 0..m.ilog2() {
            let rotated = t.rotate(part, layout.rotation(1 << k));
            part = t.add(part, rotated);
        }
        t.within(part, 1.0);
        Columns { layout, rows: Rows::Private { real, part }, baby }
    }

    /// The mask of token rows; of these, those where `rows` is 1.
    pub fn tokens(&self, t: &mut Recorder, rows: Option<&dyn Fn(usize) -> bool>) -> RowMask {
        let m = self.layout.texts();
        match (&self.rows, rows) {
            (Rows::Public(texts), rows) => {
                let mut mask = token_rows(self.layout, &texts.lengths);
                for (slot, number) in mask.iter_mut().enumerate() {
                    *number *= f64::from(u8::from(rows.is_none_or(|rows| rows(slot / m))));
                }
                RowMask::Public(mask.into())
            }
            (Rows::Private { real, .. }, None) => RowMask::Private(*real),
            (Rows::Private { real, .. }, Some(rows)) => {
                let kept = self.row_vector(|row| f64::from(u8::from(rows(row))));
                RowMask::Private(t.mul_vectors(*real, vec![kept]))
            }
        }
    }

    /// A number for each row of every text.
    pub fn row_vector(&self, number: impl Fn(usize) -> f64) -> Plain {
        Plain::Given(self.layout.vector(self.layout.texts(), |_, row| number(row)).into())
    }

    fn turned(&self, t: &mut Recorder, x: NodeId, rows: usize) -> NodeId {
        t.rotate(x, self.layout.rotation(rows))
    }

    fn babies(&self, baby: usize) -> Vec<usize> {
        (0..baby).map(|r| self.layout.rotation(r)).collect()
    }
}

impl Layout for Columns {
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
        let Rows::Private { real, .. } = self.rows else {
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
    ) -> Result<Vec<NodeId>, FheError> {
        let (m, baby) = (self.layout.rows(), self.baby[0]);
        let keys = t.rotations(k, self.babies(baby));
        let giants: Vec<usize> = (0..m).step_by(baby).collect();
        let mut done = Vec::with_capacity(giants.len());
        for giants in giants.chunks(GIANTS) {
            let back = giants.iter().map(|giant| self.layout.rotation(m - giant)).collect();
            let turned = t.rotations(q, back);
            let grid = t.dot(turned, keys);
            for (i, &giant) in giants.iter().enumerate() {
                let row = t.row(grid, i);
                let row = self.turned(t, row, giant);
                let row = t.real(row);
                let argument = match &self.rows {
                    Rows::Public(texts) => {
                        let keys = |r| Plain::Keys { texts: Arc::clone(texts), diagonal: giant + r, token: offset };
                        t.add_vectors(row, (0..baby).map(keys).collect())
                    }
                    Rows::Private { .. } => t.add_numbers(row, vec![-1.0]),
                };
                t.within(argument, 1.0);
                done.push(each(t, giant, argument)?);
            }
        }
        Ok(done)
    }

    fn row_sum(&self, t: &mut Recorder, blocks: &[NodeId], each: f64) -> NodeId {
        let (sum, m) = (t.total(blocks), self.layout.rows());
        match &self.rows {
            Rows::Public(texts) => {
                let padding = |tokens: usize| match m - tokens {
                    all if all == m => 1.0 - each * all as f64,
                    padded => -each * padded as f64,
                };
                t.add_vectors(sum, vec![Plain::Given(texts.by_text(padding).into())])
            }
            Rows::Private { part, .. } => {
                let sum = t.add_numbers(sum, vec![-each * m as f64]);
                let real = t.scaled(*part, vec![each * m as f64]);
                t.add(sum, real)
            }
        }
    }

    fn row_sum_of_squares(
        &self,
        t: &mut Recorder,
        blocks: &[NodeId],
        inverse: NodeId,
        again: &mut dyn FnMut(&mut Recorder) -> NodeId,
        each: f64,
    ) -> NodeId {
        let (sum, m) = (t.total(blocks), self.layout.rows());
        let share = match &self.rows {
            Rows::Public(texts) => {
                let root = |tokens: usize| match m - tokens {
                    all if all == m => 0.0,
                    padded => each * (padded as f64).sqrt(),
                };
                let roots = t.mul_vectors(inverse, vec![Plain::Given(texts.by_text(root).into())]);
                t.mul(roots, roots)
            }
            Rows::Private { part, .. } => {
                let again = again(t);
                let root = t.read_as(again, each.abs().max(LEAST_SHARE));
                t.within(root, 1.0);
                let square = t.mul(root, root);
                t.within(square, 1.0);
                let real = t.scaled(*part, vec![-(m as f64)]);
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

    fn attend(&self, t: &mut Recorder, p: &[NodeId], v: NodeId, per_row: NodeId) -> NodeId {
        let (m, baby) = (self.layout.rows(), self.baby[1]);
        let mut turned = Vec::with_capacity(m / baby);
        let all = if p.len() == m / baby { None } else { Some(t.join(p)) };
        for (a, giant) in (0..m).step_by(baby).enumerate() {
            let row = match all {
                Some(all) => t.cut(all, giant..giant + baby),
                None => p[a],
            };
            turned.push(self.turned(t, row, m - giant));
        }
        let left = t.stack(&turned);
        let left = t.turn(left);
        let pairs = t.count(v);
        let mut blocks = Vec::new();
        for from in (0..pairs).step_by(PAIRS) {
            let block = t.cut(v, from..pairs.min(from + PAIRS));
            let rotated = t.rotations(block, self.babies(baby));
            let right = t.turn(rotated);
            let grid = t.dot(left, right);
            let mut sum = t.row(grid, 0);
            for a in 1..m / baby {
                let row = t.row(grid, a);
                let home = self.turned(t, row, a * baby);
                sum = t.add(sum, home);
            }
            blocks.push(sum);
        }
        let o = t.join(&blocks);
        let o = t.dot(o, per_row);
        t.turn(o)
    }

    fn previous(&self, t: &mut Recorder, v: NodeId) -> NodeId {
        let m = self.layout.rows();
        let first = |row: usize| f64::from(u8::from(row == 0));
        let own = t.mul_vectors(v, vec![self.row_vector(first)]);
        if m == 1 {
            return own;
        }
        let before = self.turned(t, v, m - 1);
        let before = t.mul_vectors(before, vec![self.row_vector(|row| 1.0 - first(row))]);
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

    fn masked(&self, t: &mut Recorder, x: NodeId, mask: &RowMask, factor: f64) -> NodeId {
        match mask {
            RowMask::Public(mask) => {
                let scaled: Vec<f64> = mask.iter().map(|m| m * factor).collect();
                t.mul_vectors(x, vec![Plain::Given(scaled.into())])
            }
            RowMask::Private(mask) => {
                let x = if factor == 1.0 { x } else { t.read_as(x, factor) };
                t.mul(x, *mask)
            }
        }
    }
}
