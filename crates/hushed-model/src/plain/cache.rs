//! Keys and values of the rows that earlier passes over a text have run. A pass takes only the next rows, and gives the
//! same as a pass over all rows.

use std::collections::BTreeMap;

use super::product::{times_transposed, transposed};
use super::{PlainActs, add_distances, functions, head_columns};
use crate::blocks::{Attention, Queries};
use crate::error::ModelError;
use crate::matrix::Matrix;
use crate::program::{StepId, same};

/// What the passes over one text have left for the next pass.
#[derive(Default)]
pub struct PlainCache {
    pub(super) rows: usize,
    /// For every attention block, its keys, rotated by their positions, and its values, rows × g·dh.
    past: BTreeMap<StepId, [Matrix<f64>; 2]>,
}

impl PlainCache {
    /// Rows in the cache, which is the position of the next row.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Drops all rows but the first `rows`.
    pub(crate) fn keep(&mut self, rows: usize) {
        if rows >= self.rows {
            return;
        }
        for held in self.past.values_mut().flatten() {
            let kept = held.data()[..rows * held.cols()].to_vec();
            *held = matrix(rows, held.cols(), kept);
        }
        self.rows = rows;
    }

    /// Keys, rotated by their positions, and values of an attention block, each rows × g·dh.
    pub fn past(&self, id: StepId) -> Option<&[Matrix<f64>; 2]> {
        self.past.get(&id)
    }

    /// Attention of the new rows to all rows: m × h·dh.
    pub(super) fn attend(
        &mut self,
        id: StepId,
        q: &PlainActs,
        k: PlainActs,
        v: PlainActs,
        a: &Attention,
    ) -> Result<PlainActs, ModelError> {
        let (h, m) = (a.heads, q.values.rows());
        same(id, "columns of K", k.values.cols(), h.key_columns())?;
        let [keys, values] = self.past.entry(id).or_insert_with(|| {
            let none = || Matrix::zero(0, h.key_columns());
            [none(), none()]
        });
        *keys = below(keys, &k.values);
        *values = below(values, &v.values);
        let n = keys.rows();
        let mut out = Matrix::zero(m, h.query_columns());
        for j in 0..h.count {
            let part = |x: &Matrix<f64>| head_columns(x, 0..n, j / h.shared(), h.width);
            let q = head_columns(&q.values, 0..m, j, h.width);
            let mut p = times_transposed(&q, &part(keys)); // m × n
            for i in 0..m {
                let row = p.row_mut(i);
                row.iter_mut().for_each(|s| *s *= h.scale);
                if let Some(distances) = &a.distances {
                    add_distances(id, row, distances, [j, self.rows + i])?;
                }
                let seen = match a.queries {
                    Queries::All => a.mask.keys(self.rows + i, n),
                    Queries::First | Queries::Last => 0..n,
                };
                functions::weigh(row, seen, a.weigh);
            }
            let o = times_transposed(&p, &transposed(&part(values))); // m × dh
            for i in 0..m {
                out.row_mut(i)[j * h.width..(j + 1) * h.width].copy_from_slice(o.row(i));
            }
        }
        let rows = q.rows.clone();
        Ok(PlainActs { rows, values: out })
    }
}

/// The rows of `new` below those of `above`.
fn below(above: &Matrix<f64>, new: &Matrix<f64>) -> Matrix<f64> {
    let data = [above.data(), new.data()].concat();
    matrix(above.rows() + new.rows(), new.cols(), data)
}

fn matrix(rows: usize, cols: usize, data: Vec<f64>) -> Matrix<f64> {
    Matrix::new(rows, cols, data).unwrap_or_else(|| Matrix::zero(0, cols))
}
