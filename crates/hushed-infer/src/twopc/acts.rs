//! What a party holds between the steps of a model: shares, with what has not been applied to them yet.

use std::cell::RefCell;

use hushed_model::{Heads, Norm, Rows};
use hushed_twopc::func::Format;
use hushed_twopc::share::Share;

use super::formats::LINEAR;

/// One party's share of a batch of texts: rows × width.
pub struct Acts {
    pub(super) share: Share,
    pub(super) format: Format,
    pub(super) rows: Rows,
    pub(super) width: usize,
    /// A norm whose gain and offset have not been applied: the layers that read this do it.
    pub(super) norm: Option<Norm>,
    /// This matrix after that gain and offset, in [`LINEAR`], where a block that read it has left it for the residual sum.
    pub(super) residual: RefCell<Option<Share>>,
}

/// One party's share of attention scores or weights: per group of texts of one length, texts × heads × m × m.
pub struct Scores {
    pub(super) groups: Vec<Share>,
    pub(super) rows: Rows,
    pub(super) heads: Heads,
}

impl Acts {
    pub(super) fn new(share: Share, format: Format, rows: Rows, width: usize) -> Acts {
        Acts {
            share,
            format,
            rows,
            width,
            norm: None,
            residual: RefCell::new(None),
        }
    }

    /// How the rows belong to texts.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// A copy, for `verify`, which compares stages; a run itself never needs one.
    pub(crate) fn copy(&self) -> Acts {
        let mut copy = Acts::new(
            self.share.clone(),
            self.format,
            self.rows.clone(),
            self.width,
        );
        copy.norm.clone_from(&self.norm);
        copy
    }

    /// Gain and offset that have not been applied, where the numbers are known.
    pub(crate) fn waiting_norm(&self) -> Option<(&[f32], &[f32])> {
        let norm = self.norm.as_ref()?;
        Some((norm.gain.as_deref()?, norm.offset.as_deref()?))
    }

    /// Columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The share and its format.
    pub fn share(&self) -> (&Share, Format) {
        (&self.share, self.format)
    }

    /// Columns first..first+count.
    pub(super) fn columns(share: &Share, width: usize, first: usize, count: usize) -> Share {
        let rows = share.len() / width;
        let places = (0..rows).flat_map(|r| r * width + first..r * width + first + count);
        share.gather(&places.collect::<Vec<_>>())
    }
}

/// An unscaled matrix with [`LINEAR`]'s fraction bits.
pub(super) fn to_linear(x: &Acts) -> Share {
    x.share.shift_left(LINEAR.frac - x.format.frac)
}
