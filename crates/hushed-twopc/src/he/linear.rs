//! A shared matrix times the server's weights: `[X]·W` modulo 2^ℓ.
//!
//! The server multiplies its own share locally; the client's share goes through one oblivious linear transformation in
//! which the client encrypts it and the server multiplies by small integers. Traffic: one frame per ciphertext up, one
//! per response down, two messages in sequence. The result is off by at most one unit of the ring, far below one unit
//! of the fixed point: it has twice the fractional bits.

pub mod ahead;

use super::context::HeContext;
use super::encode::{View, encode_right, right_prefix};
use super::engine::{collect, expect_words, receive_products, respond, send_inputs};
use super::error::HeError;
use super::layout::known::Layouts;
use super::layout::{Layout, OltSpec};
use super::product::blocks::{block_tables, factors};
use super::product::{Multiplier, erase};
use super::window::{Encrypted, OltShape, OltTiling, Packing, Window};
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{Ring, Share};
use hushed_math::product_small;
use hushed_math::{BlockTables, PointMatrix};
use hushed_rlwe::RlweParams;
use std::ops::Range;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// The public parameters of a linear layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LinearShape {
    /// X is k×m, W is m×n.
    pub shape: OltShape,
    /// |w| ≤ 2^weight_bits; determines the moduli.
    pub weight_bits: u32,
}

impl LinearShape {
    /// The transformation that computes a product over `ring`.
    pub fn spec(&self, ring: Ring) -> OltSpec {
        OltSpec {
            shape: self.shape,
            batch: 1,
            ring_bits: ring.bits(),
            multiplier_bits: self.weight_bits,
            encrypted: Encrypted::Left,
            packing: Packing::InterLeave,
            window: None,
            spare_bits: 0,
        }
    }
}

/// The server's weights as integers, and their transforms if there is memory for them. Wiped when dropped.
pub struct PreparedWeights {
    /// Column-major: Wᵀ, n×m.
    weights: Vec<i32>,
    m: usize,
    n: usize,
    bits: u32,
    ready: Option<Ready>,
}

/// Side of the squares in which matrices are transposed.
const SQUARE: usize = 64;

/// The largest magnitude, 0 if there are no weights.
pub fn largest(weights: &[i32]) -> u32 {
    let sizes = weights.iter().map(|w| w.unsigned_abs());
    sizes.fold(0, u32::max)
}

fn expect_count(m: usize, n: usize, found: usize) -> Result<(), HeError> {
    let expected = m.saturating_mul(n);
    if found == expected {
        return Ok(());
    }
    Err(HeError::Operand { expected, found })
}

/// Transforms of all blocks for one window.
struct Ready {
    window: Window,
    points: Option<usize>,
    values: ReadyValues,
}

enum ReadyValues {
    /// By values of the whole degree: limb `i` of block (β, γ) is at ((β·n' + γ)·limbs + i)·N.
    Whole { columns: usize, limbs: usize, degree: usize, words: Zeroizing<Vec<u64>> },
    /// For blocks of ciphertexts: γ by β, per limb.
    Points(Vec<PointMatrix>),
}

impl PreparedWeights {
    /// m×n weights, row-major, with |w| ≤ 2^`bits` (at most 30). `bits` is public.
    ///
    /// # Errors
    /// As [`PreparedWeights::transposed`].
    pub fn new(m: usize, n: usize, bits: u32, mut weights: Vec<i32>) -> Result<Self, HeError> {
        expect_count(m, n, weights.len())?;
        let mut across = vec![0; m * n];
        // Square by square: each row of a large table has a given column in another page.
        for (i, j) in (0..m).step_by(SQUARE).flat_map(|i| (0..n).step_by(SQUARE).map(move |j| (i, j))) {
            for row in i..(i + SQUARE).min(m) {
                for column in j..(j + SQUARE).min(n) {
                    across[column * m + row] = weights[row * n + column];
                }
            }
        }
        weights.zeroize();
        Self::transposed(m, n, bits, largest(&across), across)
    }

    /// Takes Wᵀ, n×m, which is how weights are held: blocks are read along m. The caller passes the largest magnitude,
    /// so that gigabytes are not read once more to find it.
    ///
    /// # Errors
    /// [`HeError::Operand`] if the number of weights is wrong, [`HeError::Weight`] if one is too large.
    pub fn transposed(m: usize, n: usize, bits: u32, largest_weight: u32, weights: Vec<i32>) -> Result<Self, HeError> {
        expect_count(m, n, weights.len())?;
        debug_assert_eq!(largest(&weights), largest_weight, "largest weight");
        if bits > 30 || largest_weight > 1 << bits {
            return Err(HeError::Weight { bits });
        }
        Ok(Self { weights, m, n, bits, ready: None })
    }

    /// Reuses its memory for `count` other numbers, still to be written: a layer that is rebuilt in every pass is
    /// faster if the system need not hand out, clear and take back pages each time.
    pub fn into_room(mut self, count: usize) -> Vec<i32> {
        if self.weights.capacity() < count {
            return vec![0; count];
        }
        let mut room = std::mem::take(&mut self.weights);
        if let Some(rest) = room.get_mut(count..) {
            erase(rest);
        }
        room.resize(count, 0);
        room
    }

    /// Wᵀ, n×m.
    pub fn columns(&self) -> &[i32] {
        &self.weights
    }

    /// The public shape of the product with `rows` rows.
    pub fn shape(&self, rows: usize) -> LinearShape {
        LinearShape { shape: OltShape { k: rows, m: self.m, n: self.n }, weight_bits: self.bits }
    }

    /// Bytes of the transforms, for products with `rows` rows over `ring`.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn ready_bytes(&self, params: &Arc<RlweParams>, rows: usize, ring: Ring) -> Result<usize, TwopcError> {
        let layout = self.layout(params, rows, ring)?;
        let (_, mb, nb) = layout.tiling.blocks();
        let (columns, points) = match layout.block_points() {
            Some(points) => (nb.next_multiple_of(BlockTables::PANEL), points),
            None => (nb, params.n()),
        };
        Ok(mb * columns * layout.product_limbs * points * size_of::<u64>())
    }

    /// Transforms all blocks now, for products with `rows` rows over `ring` and for other numbers of rows whose blocks
    /// of the weights are as large; all others still transform on the fly. Takes [`PreparedWeights::ready_bytes`] of
    /// memory.
    ///
    /// # Errors
    /// As [`Layout::new`].
    pub fn make_ready(&mut self, params: &Arc<RlweParams>, rows: usize, ring: Ring) -> Result<(), TwopcError> {
        self.ready = None;
        let layout = self.layout(params, rows, ring)?;
        let (tiling, limbs) = (&layout.tiling, layout.product_limbs);
        let source = self.block_source(&layout);
        let points = layout.block_points();
        let values = match points {
            Some(points) => {
                let tables = block_tables(params, tiling, limbs, points);
                ReadyValues::Points(factors(params, tiling, &tables, &source))
            }
            None => whole(params, tiling, limbs, &source),
        };
        self.ready = Some(Ready { window: tiling.window(), points, values });
        Ok(())
    }

    /// The layout for all rows, or for most of them.
    fn layout(&self, params: &Arc<RlweParams>, rows: usize, ring: Ring) -> Result<Arc<Layout>, TwopcError> {
        let spec = self.shape(rows).spec(ring);
        let layouts = Layouts::new(Arc::clone(params));
        match layouts.of_rows(&spec)?.terms() {
            [first, ..] => Ok(Arc::clone(first.layout())),
            [] => layouts.of(&spec),
        }
    }

    pub(crate) fn block_source<'a>(&'a self, layout: &Layout) -> Blocks<'a> {
        let window = layout.tiling.window();
        // A multiplier's polynomial does not depend on the rows of the encrypted blocks.
        let same =
            |r: &&Ready| (r.window.mw, r.window.nw) == (window.mw, window.nw) && r.points == layout.block_points();
        let ready = self.ready.as_ref().filter(same);
        Blocks {
            bits: self.bits,
            view: View::new(&self.weights, self.n, self.m).transposed(),
            window,
            ready: ready.map(|ready| &ready.values),
        }
    }
}

/// The transforms of all blocks, by values of the whole degree.
fn whole(params: &RlweParams, tiling: &OltTiling, limbs: usize, source: &Blocks<'_>) -> ReadyValues {
    let ((_, mb, nb), degree) = (tiling.blocks(), params.n());
    let mut integers = Zeroizing::new(vec![0i64; right_prefix(tiling.window())]);
    let mut words = Zeroizing::new(vec![0u64; mb * nb * limbs * degree]);
    for (block, limb_words) in words.chunks_exact_mut(limbs * degree).enumerate() {
        source.block(0, block / nb, block % nb, &mut integers);
        for (limb, out) in limb_words.chunks_exact_mut(degree).enumerate() {
            super::product::values::transform(params.basis(), limb, source, &integers, out);
        }
    }
    ReadyValues::Whole { columns: nb, limbs, degree, words }
}

impl Drop for PreparedWeights {
    fn drop(&mut self) {
        erase(&mut self.weights);
    }
}

pub(crate) struct Blocks<'a> {
    bits: u32,
    view: View<'a, i32>,
    window: Window,
    ready: Option<&'a ReadyValues>,
}

impl Multiplier for Blocks<'_> {
    fn bits(&self) -> u32 {
        self.bits
    }

    fn block(&self, _p: usize, beta: usize, gamma: usize, out: &mut [i64]) {
        encode_right(self.view, self.window, 0, beta, gamma, out, i64::from);
    }

    fn blocks(&self, _p: usize, betas: Range<usize>, gamma: usize, (prefix, stride): (usize, usize), out: &mut [i32]) {
        // One column after another, each as it lies in memory.
        let Window { mw, nw, .. } = self.window;
        let rows = betas.start * mw..self.view.rows().min(betas.end * mw);
        let columns = gamma * nw..self.view.columns().min((gamma + 1) * nw);
        // Blocks at the edge of the matrix have fewer numbers.
        if rows.len() < betas.len() * mw || columns.len() < nw {
            for out in out.chunks_mut(stride) {
                let block = prefix.min(out.len());
                out[..block].fill(0);
            }
        }
        for (c, column) in columns.enumerate() {
            let column = self.view.column(column, rows.clone()).unwrap_or_default();
            for (block, out) in column.chunks(mw).zip(out.chunks_mut(stride)) {
                out[c * mw..][..block.len()].copy_from_slice(block);
            }
        }
    }

    fn values(&self, _p: usize, beta: usize, gamma: usize, limb: usize) -> Option<&[u64]> {
        let Some(ReadyValues::Whole { columns, limbs, degree, words }) = self.ready else {
            return None;
        };
        let at = ((beta * columns + gamma) * limbs + limb) * degree;
        (limb < *limbs).then(|| words.get(at..at + degree))?
    }

    fn points(&self, limb: usize) -> Option<&PointMatrix> {
        match self.ready {
            Some(ReadyValues::Points(limbs)) => limbs.get(limb),
            _ => None,
        }
    }
}

/// The server's part: takes its share of X (k×m) and its weights, and returns its share of X·W (k×n).
///
/// # Errors
/// [`HeError::Operand`] if the share is not a multiple of m long; else those of the session and of the peer's bytes.
pub fn linear_server(ctx: &mut Ctx, he: &HeContext, x: &Share, weights: &PreparedWeights) -> Result<Share, TwopcError> {
    let rows = x.len() / weights.m.max(1);
    expect_words(x.words(), rows * weights.m)?;
    let answered = linear_server_alone(ctx, he, x.ring(), rows, weights)?;
    let own = product_small(x.words(), &weights.weights, rows, weights.m, weights.n);
    Ok(answered.add(&Share::new(x.ring(), own)))
}

/// The server's part if all of X is the client's, as in a lookup by one-hot rows: the server's share of X is zero.
///
/// # Errors
/// As [`linear_server`].
pub fn linear_server_alone(
    ctx: &mut Ctx,
    he: &HeContext,
    ring: Ring,
    rows: usize,
    weights: &PreparedWeights,
) -> Result<Share, TwopcError> {
    let answer = he.layouts().of_rows(&weights.shape(rows).spec(ring))?;
    let sources: Vec<_> = answer.terms().iter().map(|term| weights.block_source(&term.layout)).collect();
    let inputs = receive_products(&mut ctx.session, he, &answer, &sources)?;
    let words = respond(ctx, he, &answer, &inputs, &sources)?;
    Ok(Share::new(ring, words))
}

/// The client's part: takes its share of X (k×m) and the layer's public shape, and returns its share of X·W (k×n).
///
/// # Errors
/// [`HeError::Operand`] if the share does not fit the shape; else those of the session and of the peer's bytes.
pub fn linear_client(ctx: &mut Ctx, he: &HeContext, x: &Share, shape: &LinearShape) -> Result<Share, TwopcError> {
    let OltShape { k, m, .. } = shape.shape;
    expect_words(x.words(), k * m)?;
    let answer = he.layouts().of_rows(&shape.spec(x.ring()))?;
    let mut rows = x.words();
    for term in answer.terms() {
        let (first, rest) = rows.split_at(term.layout.tiling.inner_shape().k * m);
        send_inputs(ctx, he, &term.layout, first)?;
        rows = rest;
    }
    let words = collect(&mut ctx.session, he, &answer)?;
    Ok(Share::new(x.ring(), words))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The buffer for coefficients still holds those of other columns.
    #[test]
    fn blocks_are_written_over_anything_at_the_edges_too() {
        const OLD: i32 = -7;
        let (m, n, window) = (61, 19, Window { kw: 1, mw: 16, nw: 4 });
        let weights: Vec<i32> = (1..=(m * n) as i32).collect();
        let source = Blocks { bits: 20, view: View::new(&weights, n, m).transposed(), window, ready: None };
        let (prefix, betas) = (right_prefix(window), m.div_ceil(window.mw));
        let stride = prefix + 5;
        for gamma in 0..n.div_ceil(window.nw) {
            let mut out = vec![OLD; betas * stride];
            source.blocks(0, 0..betas, gamma, (prefix, stride), &mut out);
            for (beta, out) in out.chunks(stride).enumerate() {
                let mut expected = vec![0; prefix];
                source.block(0, beta, gamma, &mut expected);
                let (found, rest) = out.split_at(prefix);
                assert!(found.iter().map(|&w| i64::from(w)).eq(expected), "{beta}");
                assert!(rest.iter().all(|&w| w == OLD));
            }
        }
    }
}
