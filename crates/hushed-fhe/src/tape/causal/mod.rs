//! A layer of LLaMA's shape over a batch: norm, causal attention with a sigmoid or a softmax, sum, norm, gated
//! feed-forward, sum (ENSI, arXiv 2509.09424, with the form of attention in docs/ensi.md).
//!
//! Texts are *right-aligned*: the last token of every text is in row m − 1, and rows before its first token are zeros.
//! They stay zeros without a mask: no layer has a bias, a norm multiplies rows, and a row of attention is a sum over
//! itself and earlier rows. Between the halves of a layer, columns are x/bound, where x is the residual stream.

pub(crate) mod attention;
pub(crate) mod norm;
pub(crate) mod paired;
pub(crate) mod sums;
#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use super::layout::{Columns, Hidden};
use super::record::Recorder;
use super::{NodeId, Texts};

/// A batch whose diagonals of scores stay in the frames of their giant steps.
pub(crate) struct Frames {
    /// Where columns are, for everything else.
    pub columns: Columns,
    /// 1 in rows of tokens, for a softmax.
    pub tokens: Option<NodeId>,
    /// Whether vectors hold two columns between halves, and up to the maps that read them.
    pub paired: bool,
}

impl Frames {
    /// Texts that end in the last row. `tokens`: whether the client sent the rows of tokens.
    pub fn new(t: &mut Recorder, texts: &Arc<Texts>, (baby, paired): (usize, bool), tokens: bool) -> Frames {
        let tokens = tokens.then(|| t.input(Hidden::Tokens.name(), 1));
        Frames { columns: Columns::zeros(texts, baby), tokens, paired }
    }

    /// The first diagonal of each frame.
    fn giants(&self) -> Vec<usize> {
        (0..self.columns.rows()).step_by(self.baby()).collect()
    }

    fn baby(&self) -> usize {
        self.columns.baby[0].max(1)
    }
}
