//! Rotary positions and the causal mask as one plaintext product of pairs of columns.
//!
//! A head's columns i and i + d'/2 form a vector z = x_i + i·x_{i+d'/2}, and the row at place t is turned by e^{itθ_i}:
//! one level, no rotation, plaintexts shared by all heads. (ENSI, Algorithm 2, rotates twice and multiplies four times;
//! as printed it rotates tokens.)
//!
//! With m = b·g and scores in the frame of their giant step, j = ab + r in rows u = query + ab:
//!
//! ```text
//! Σ_i Re( q'_a ⊗ k'_r ),  q'_a = [u < ab or u ≥ m − b]·Rot_{−ab}(q),  k'_r = [u < m − b or u ≥ m − r]·Rot_r(k̄)
//! ```
//!
//! is the score where the key is before the query, and exactly 0 elsewhere: a query u − ab sees the key u + r iff u <
//! ab or u ≥ m − r. The mask is in the plaintexts of the turns, so it costs no level and no product. j = 0, the
//! diagonal, is never masked and has plaintexts of its own.

use hushed_ckks::Complex64;
use hushed_model::{Heads, Rope};

use crate::packing::Interleave;

/// Which product a vector is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turned {
    /// Queries, rotated back by this many rows.
    Query(usize),
    /// Conjugate keys, rotated by this many rows.
    Key(usize),
    /// Queries of the diagonal, unmasked.
    DiagonalQuery,
    /// Keys of the diagonal.
    DiagonalKey,
}

/// The plaintext of pair `i`: the turn of the row in each slot after the rotation, or 0 where it is masked. `baby` is
/// b. Without `rope`, only the mask.
#[must_use]
pub fn turns(
    layout: Interleave,
    heads: &Heads,
    rope: Option<&Rope>,
    i: usize,
    baby: usize,
    which: Turned,
) -> Vec<Complex64> {
    let m = layout.rows();
    let turn = rope.map_or(0.0, |rope| rope.turn(i, heads.width));
    let row = |u: usize| -> Complex64 {
        let (place, seen, sign) = match which {
            Turned::Query(giant) => ((u + m - giant) % m, u < giant || u + baby >= m, 1.0),
            Turned::Key(r) => ((u + r) % m, u + baby < m || u + r >= m, -1.0),
            Turned::DiagonalQuery => (u, true, 1.0),
            Turned::DiagonalKey => (u, true, -1.0),
        };
        if !seen {
            return Complex64::new(0.0, 0.0);
        }
        let (sin, cos) = (sign * (place as f64 * turn)).sin_cos();
        Complex64::new(cos, sin)
    };
    let texts = layout.texts();
    let rows: Vec<Complex64> = (0..m).map(row).collect();
    (0..layout.slots()).map(|slot| rows[slot / texts]).collect()
}

/// Whether the score of diagonal j = `giant` + `r` is seen in row u of its frame.
#[must_use]
pub fn seen(m: usize, giant: usize, r: usize, u: usize) -> bool {
    giant + r == 0 || u < giant || u + r >= m
}
