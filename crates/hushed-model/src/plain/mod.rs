//! A model in the clear, in f64: the oracle for every private run.

mod cache;
mod functions;
mod product;
mod run;

use rayon::prelude::*;

use crate::blocks::{
    Activation, Distances, Embedding, Heads, Linear, Mask, Norm, NormKind, Patches, Pool, Rope, Weigh,
};
use crate::error::ModelError;
use crate::images::Pixels;
use crate::matrix::Matrix;
use crate::program::{StepId, here, same};
use crate::rows::Rows;
use crate::tokens::TokenIds;

pub use cache::PlainCache;
pub use functions::activation;
pub(crate) use product::times_transposed;
pub use run::{
    Moment, Seen, What, attention, run, run_next, run_parts, run_parts_until, run_range, run_rounded, start,
};

/// The rows of all texts, one after another.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainActs {
    /// Which rows belong to which text.
    pub rows: Rows,
    /// `rows.total() × width`.
    pub values: Matrix<f64>,
}

/// An `m × m` matrix per text and head, or the row of its single query.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainScores {
    /// Which keys belong to which text.
    pub rows: Rows,
    /// `texts[t][head]`.
    pub texts: Vec<Vec<Matrix<f64>>>,
}

impl PlainActs {
    /// The rows of each text, padding included, as one slice.
    pub fn each_text(&self) -> impl Iterator<Item = &[f64]> {
        let width = self.values.cols();
        self.rows.blocks().map(move |(rows, _)| &self.values.data()[rows.start * width..rows.end * width])
    }
}

impl PlainScores {
    /// Adds a bias by distance, of texts in which every row makes queries.
    fn add(&mut self, at: StepId, distances: &Distances) -> Result<(), ModelError> {
        for heads in &mut self.texts {
            for (head, scores) in heads.iter_mut().enumerate() {
                (0..scores.rows())
                    .try_for_each(|row| add_distances(at, scores.row_mut(row), distances, [head, row]))?;
            }
        }
        Ok(())
    }
}

/// Adds the biases of a head to a row of its scores.
fn add_distances(at: StepId, scores: &mut [f64], d: &Distances, [head, row]: [usize; 2]) -> Result<(), ModelError> {
    let table = here(at, &d.table)?;
    let each = scores.iter_mut().enumerate();
    each.for_each(|(key, s)| *s += f64::from(table.row(Distances::bucket(row, key))[head]));
    Ok(())
}

/// Columns `head·dh .. (head+1)·dh` of a block of rows: `m × dh`.
fn head_columns(x: &Matrix<f64>, rows: std::ops::Range<usize>, head: usize, dh: usize) -> Matrix<f64> {
    let mut part = Matrix::zero(rows.len(), dh);
    for (i, row) in rows.enumerate() {
        part.row_mut(i).copy_from_slice(&x.row(row)[head * dh..(head + 1) * dh]);
    }
    part
}

/// The rows of all images: the class token, then one row per patch, positions added: `(count + 1) × d` per image.
///
/// # Errors
/// Fails with shapes only, or if an image has another size.
fn embed_patches(at: StepId, images: &[Pixels], p: &Patches) -> Result<PlainActs, ModelError> {
    let (class, offsets) = (here(at, &p.class)?, here(at, &p.offsets)?);
    let rows = Rows::unpadded(&vec![p.count + 1; images.len()]);
    let d = p.linear.outputs;
    let mut values = Matrix::zero(rows.total(), d);
    for (image, (block, _)) in images.iter().zip(rows.blocks()) {
        let patches = image.patches();
        same(at, "patches", patches.rows(), p.count)?;
        let data = patches.data().iter().map(|&v| f64::from(v)).collect();
        let numbers = Matrix::new(patches.rows(), patches.cols(), data);
        let x = PlainActs { rows: Rows::unpadded(&[p.count]), values: numbers.unwrap_or_else(|| Matrix::zero(0, 0)) };
        let x = linear(at, &x, &p.linear)?; // count × d
        let first = values.row_mut(block.start).iter_mut();
        first.zip(class.iter()).for_each(|(v, &c)| *v = f64::from(c));
        for i in 0..p.count {
            values.row_mut(block.start + 1 + i).copy_from_slice(x.values.row(i));
        }
        for (i, row) in block.enumerate() {
            let place = values.row_mut(row).iter_mut().zip(offsets.row(i));
            place.for_each(|(v, &p)| *v += f64::from(p));
        }
    }
    Ok(PlainActs { rows, values })
}

/// `E[id_i] + P[i]` for every token, without P if the embedding has no positions, and plus what token type 1 adds in
/// the rows that have it: `m × d` per text.
///
/// # Errors
/// Fails with shapes only, or if a text does not fit.
pub fn embed(at: StepId, texts: Vec<TokenIds>, e: &Embedding) -> Result<PlainActs, ModelError> {
    embed_after(at, texts, e, 0)
}

/// The same for texts whose `first` rows have been run before.
fn embed_after(at: StepId, texts: Vec<TokenIds>, e: &Embedding, first: usize) -> Result<PlainActs, ModelError> {
    let tokens = e.numbers(at)?;
    let offsets = match e.placed {
        true => Some(here(at, &e.offsets)?),
        false => None,
    };
    let rows = Rows::new(texts.iter().map(TokenIds::rows));
    let mut values = Matrix::zero(rows.total(), e.width);
    let mut row = 0;
    for text in &texts {
        let rows = first + text.ids().len();
        if text.ids().is_empty() || rows > e.positions {
            let (found, expected) = (rows, e.positions);
            return Err(ModelError::Mismatch { site: at.to_string(), what: "tokens", found, expected });
        }
        for (i, (&id, second)) in text.ids().iter().zip(text.second()).enumerate() {
            let id = id as usize;
            if id >= e.vocabulary {
                return Err(ModelError::TokenOutOfRange { vocabulary: e.vocabulary });
            }
            let sum = values.row_mut(row);
            let token = sum.iter_mut().zip(tokens.row(id));
            token.for_each(|(s, &t)| *s = f64::from(t));
            if let Some(offsets) = offsets {
                let place = sum.iter_mut().zip(offsets.row(first + i));
                place.for_each(|(s, &p)| *s += f64::from(p));
            }
            if e.typed && second {
                let kind = sum.iter_mut().zip(here(at, &e.second)?.iter());
                kind.for_each(|(s, &t)| *s += f64::from(t));
            }
            row += 1;
        }
    }
    Ok(PlainActs { rows, values })
}

/// Normalises each row: see [`NormKind`].
///
/// # Errors
/// Fails if shapes differ, or with shapes only.
pub fn norm(at: StepId, mut x: PlainActs, n: &Norm) -> Result<PlainActs, ModelError> {
    same(at, "columns", x.values.cols(), n.width)?;
    let (gain, offset) = (here(at, &n.gain)?, here(at, &n.offset)?);
    for row in x.values.data_mut().chunks_exact_mut(n.width) {
        let mean = match n.kind {
            NormKind::LayerNorm => row.iter().sum::<f64>() / n.width as f64,
            NormKind::RmsNorm => 0.0,
        };
        row.iter_mut().for_each(|v| *v -= mean);
        let variance = row.iter().map(|v| v * v).sum::<f64>() / n.width as f64;
        let factor = 1.0 / (variance + n.epsilon).sqrt();
        for ((v, &g), &b) in row.iter_mut().zip(gain.iter()).zip(offset.iter()) {
            *v = *v * factor * f64::from(g) + f64::from(b);
        }
    }
    Ok(x)
}

/// `a + b`.
///
/// # Errors
/// Fails if shapes differ.
pub fn add(at: StepId, a: &PlainActs, b: &PlainActs) -> Result<PlainActs, ModelError> {
    same(at, "rows", b.values.rows(), a.values.rows())?;
    same(at, "columns", b.values.cols(), a.values.cols())?;
    let mut sum = a.clone();
    sum.values.data_mut().iter_mut().zip(b.values.data()).for_each(|(s, v)| *s += v);
    Ok(sum)
}

/// Pools to one row per text.
pub fn pool(x: &PlainActs, p: &Pool) -> PlainActs {
    let mut values = Matrix::zero(x.rows.texts().len(), x.values.cols());
    for (t, (rows, real)) in x.rows.blocks().enumerate() {
        let used = match p {
            Pool::First => rows.start..rows.start + 1,
            Pool::Mean => rows.start..rows.start + real,
            Pool::Last => rows.start + real - 1..rows.start + real,
            Pool::Max => {
                values.row_mut(t).fill(f64::NEG_INFINITY);
                for row in rows.start..rows.start + real {
                    let top = values.row_mut(t).iter_mut().zip(x.values.row(row));
                    top.for_each(|(s, v)| *s = s.max(*v));
                }
                continue;
            }
        };
        let share = 1.0 / used.len() as f64;
        for row in used {
            values.row_mut(t).iter_mut().zip(x.values.row(row)).for_each(|(s, v)| *s += v * share);
        }
    }
    PlainActs { rows: x.rows.pooled(), values }
}

/// `X·Wᵀ + b`: `m × inputs` to `m × outputs`.
///
/// # Errors
/// Fails if shapes differ, or with shapes only.
pub fn linear(at: StepId, x: &PlainActs, w: &Linear) -> Result<PlainActs, ModelError> {
    same(at, "columns", x.values.cols(), w.inputs)?;
    let (weights, bias) = (w.numbers(at)?, here(at, &w.bias)?);
    let mut values = product::times_transposed(&x.values, &weights); // m × outputs
    for row in values.data_mut().chunks_exact_mut(w.outputs) {
        row.iter_mut().zip(bias.iter()).for_each(|(v, &b)| *v += f64::from(b));
    }
    Ok(PlainActs { rows: x.rows.clone(), values })
}

/// Rotates the rows of Q or K by their positions, where the first row of a text has position `first`: see [`Rope`].
///
/// # Errors
/// Fails if the columns are not whole heads of `width`.
pub fn turn(at: StepId, mut x: PlainActs, rope: &Rope, width: usize, first: usize) -> Result<PlainActs, ModelError> {
    same(at, "columns beyond whole heads", x.values.cols() % width.max(1), 0)?;
    let blocks: Vec<_> = x.rows.blocks().collect();
    for (rows, _) in blocks {
        for (i, row) in rows.enumerate() {
            let turns: Vec<_> = rope.angles(first + i, width).map(f64::sin_cos).collect();
            for head in x.values.row_mut(row).chunks_exact_mut(width) {
                for (i, (sin, cos)) in turns.iter().enumerate() {
                    let (a, b) = rope.pair(i, width);
                    let (u, v) = (head[a], head[b]);
                    head[a] = u * cos - v * sin;
                    head[b] = u * sin + v * cos;
                }
            }
        }
    }
    Ok(x)
}

/// `scale·Q_j·K_jᵀ` for every head j, where `Q_j` are the columns `j·dh .. (j+1)·dh` of Q and `K_j` the columns of the
/// head of K that Q's head j reads. Q has as many rows as K, or one per text.
///
/// # Errors
/// Fails if shapes differ.
pub fn scores(at: StepId, q: &PlainActs, k: &PlainActs, h: &Heads) -> Result<PlainScores, ModelError> {
    same(at, "columns of Q", q.values.cols(), h.query_columns())?;
    same(at, "columns of K", k.values.cols(), h.key_columns())?;
    same(at, "texts", q.rows.texts().len(), k.rows.texts().len())?;
    let head = |[asking, keys]: [std::ops::Range<usize>; 2], j| {
        let (q, k) =
            (head_columns(&q.values, asking, j, h.width), head_columns(&k.values, keys, j / h.shared(), h.width));
        let mut s = product::times_transposed(&q, &k); // m × m
        s.data_mut().iter_mut().for_each(|v| *v *= h.scale);
        s
    };
    let blocks = q.rows.blocks().zip(k.rows.blocks());
    let texts = blocks
        .map(|((asking, _), (keys, _))| {
            let heads = 0..h.count;
            heads.map(|j| head([asking.clone(), keys.clone()], j)).collect()
        })
        .collect();
    Ok(PlainScores { rows: k.rows.clone(), texts })
}

/// Turns scores into weights, row by row, over the keys that are neither masked nor padding.
pub fn weigh(mut s: PlainScores, w: Weigh, mask: &Mask) -> PlainScores {
    for (heads, rows) in s.texts.iter_mut().zip(s.rows.texts()) {
        for scores in heads {
            let each = scores.data_mut().chunks_exact_mut(rows.total);
            each.enumerate().for_each(|(i, row)| {
                functions::weigh(row, mask.keys(i, rows.real), w);
            });
        }
    }
    s
}

/// `P_j·V_j` for every head, concatenated: `m × h·dh`.
///
/// # Errors
/// Fails if shapes differ.
pub fn attend(at: StepId, p: &PlainScores, v: &PlainActs, h: &Heads) -> Result<PlainActs, ModelError> {
    same(at, "columns of V", v.values.cols(), h.key_columns())?;
    same(at, "texts", p.texts.len(), v.rows.texts().len())?;
    let asked = p.texts.iter().map(|heads| heads.first().map_or(0, Matrix::rows));
    let rows = match asked.sum::<usize>() == v.values.rows() {
        true => v.rows.clone(),
        false => v.rows.pooled(),
    };
    let mut values = Matrix::zero(rows.total(), h.query_columns());
    for (((keys, _), (asking, _)), heads) in v.rows.blocks().zip(rows.blocks()).zip(&p.texts) {
        for (j, p) in heads.iter().enumerate() {
            let v = head_columns(&v.values, keys.clone(), j / h.shared(), h.width);
            let o = product::times_transposed(p, &product::transposed(&v)); // m × dh
            for (i, row) in asking.clone().enumerate() {
                values.row_mut(row)[j * h.width..(j + 1) * h.width].copy_from_slice(o.row(i));
            }
        }
    }
    Ok(PlainActs { rows, values })
}

/// The element-wise product of two matrices.
///
/// # Errors
/// Fails if shapes differ.
pub fn multiply(at: StepId, mut a: PlainActs, b: &PlainActs) -> Result<PlainActs, ModelError> {
    same(at, "rows", b.values.rows(), a.values.rows())?;
    same(at, "columns", b.values.cols(), a.values.cols())?;
    let both = a.values.data_mut().iter_mut().zip(b.values.data());
    both.for_each(|(a, b)| *a *= b);
    Ok(a)
}

/// Applies a function to every element.
pub fn activate(mut x: PlainActs, f: Activation) -> PlainActs {
    x.values
        .data_mut()
        .par_chunks_mut(4096)
        .for_each(|part| part.iter_mut().for_each(|v| *v = functions::activation(f, *v)));
    x
}
