//! Columns, one a vector or two: runs that lack the memory for one column per vector put two into each.
//!
//! Columns 2k and 2k + 1 are the real and the imaginary part of vector z_k, which halves the memory of the columns.
//! Maps read pairs as they are:
//!
//! ```text
//! Σ_k (w_2k − i·w_2k+1)·z_k = Σ_k (w_2k·x_2k + w_2k+1·x_2k+1) + i·(…)
//! ```
//!
//! So a row takes as many products as with single columns and two rescales, and its result is a real part. Removing the
//! rest takes one conjugation per result, or per two results that are read as a pair; splitting the columns would take
//! one per pair for each map, and room for the columns.

use std::ops::Range;

use crate::tape::NodeId;
use crate::tape::record::Recorder;

/// Pairs split or multiplied at once.
const BLOCK: usize = 16;

/// Columns refreshed before they are paired: a multiple of what a bootstrap takes at once.
const REFRESHED: usize = 64;

/// The columns of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Vectors {
    pub node: NodeId,
    /// Whether each vector holds two of them.
    pub paired: bool,
}

impl Vectors {
    /// Some rows of a map.
    pub fn linear(self, t: &mut Recorder, map: usize, rows: Range<usize>) -> NodeId {
        if !self.paired {
            return t.linear(map, rows, self.node);
        }
        let made = self.complex(t, map, rows);
        t.real(made)
    }

    /// As [`Vectors::linear`], with results 2k and 2k + 1 in one vector, a + i·b; a − i·b if `conjugate`. Of an odd
    /// number of results, the last stands alone.
    pub fn linear_in_pairs(self, t: &mut Recorder, map: usize, rows: Range<usize>, conjugate: bool) -> NodeId {
        if !self.paired {
            let made = t.linear(map, rows, self.node);
            return t.pair(made, conjugate);
        }
        // u ± i·v plus the conjugate of u ∓ i·v is twice the pair of the real parts of u and v.
        let made = self.complex(t, map, rows);
        let [one, other] = [conjugate, !conjugate].map(|conjugate| t.pair(made, conjugate));
        let other = t.conjugate(other);
        let sum = t.add(one, other);
        t.read_as(sum, 0.5)
    }

    /// Vectors whose real parts are the results of a map of pairs.
    fn complex(self, t: &mut Recorder, map: usize, rows: Range<usize>) -> NodeId {
        let count = 2 * rows.len();
        let map = t.by_parity(map, rows);
        let made = t.linear(map, 0..count, self.node);
        t.pair(made, true)
    }

    /// The columns one a vector, some at a time, with the numbers of their vectors.
    pub fn blocks(self, t: &Recorder) -> Vec<Range<usize>> {
        let count = t.count(self.node);
        let block = if self.paired { BLOCK } else { count.max(1) };
        (0..count).step_by(block).map(|from| from..count.min(from + block)).collect()
    }

    /// The columns of some vectors, one a vector and within 1.
    pub fn single(self, t: &mut Recorder, vectors: Range<usize>) -> NodeId {
        let count = 2 * vectors.len();
        let x = t.cut(self.node, vectors);
        if !self.paired {
            return x;
        }
        let columns = t.parts(x, count);
        t.within(columns, 1.0)
    }

    /// Each of the vectors times a real vector.
    pub fn times(self, t: &mut Recorder, by: NodeId) -> NodeId {
        if !self.paired {
            let made = t.mul(self.node, by);
            return t.within(made, 1.0);
        }
        let mut done = Vec::new();
        for vectors in self.blocks(t) {
            let x = t.cut(self.node, vectors);
            let made = t.dot(x, by);
            done.push(t.turn(made));
        }
        t.join(&done)
    }

    /// Marks single columns, and pairs them if `paired`: single refreshed columns are then never all in memory.
    pub fn marked(t: &mut Recorder, columns: NodeId, paired: bool) -> Vectors {
        if !paired {
            return Vectors { node: t.mark(columns, 1.0), paired };
        }
        let (mut done, count) = (Vec::new(), t.count(columns));
        for from in (0..count).step_by(REFRESHED) {
            let x = t.cut(columns, from..count.min(from + REFRESHED));
            let x = t.mark(x, 1.0);
            done.push(t.pair(x, false));
        }
        Vectors { node: t.join(&done), paired }
    }
}
