//! Whose vectors a pass reads.

use crate::ops::mask::RowsKnown;
use crate::ops::packed::rows::PackedRows;
use crate::packing::{Interleave, Layout};
use crate::plan::public_plan::AnswerRows;

/// The texts of a run, in the layout of its plan.
pub enum Texts<V> {
    /// A batch, one vector per column.
    Columns(RowsKnown<V>),
    /// A batch of texts that end in row m − 1, one vector per column, answered with these rows; for softmax attention,
    /// with the mask of real rows.
    Last(Interleave, AnswerRows, Option<V>),
    /// Packed rows.
    Packed(PackedRows<V>),
    /// Packed rows of texts that end in the last row, answered with these rows.
    PackedLast(Layout, AnswerRows),
}

impl<V> Texts<V> {
    /// The same texts, with what `f` makes of what the client sent of lengths.
    pub(crate) fn map<W>(&self, f: impl FnOnce(&V) -> W) -> Texts<W> {
        match self {
            Texts::Columns(RowsKnown::Public { layout, packing }) => {
                Texts::Columns(RowsKnown::Public { layout: *layout, packing: packing.clone() })
            }
            Texts::Columns(RowsKnown::Private { layout, real }) => {
                Texts::Columns(RowsKnown::Private { layout: *layout, real: f(real) })
            }
            Texts::Last(layout, answer, real) => Texts::Last(*layout, *answer, real.as_ref().map(f)),
            Texts::Packed(rows) => Texts::Packed(rows.map(f)),
            Texts::PackedLast(layout, answer) => Texts::PackedLast(*layout, *answer),
        }
    }
}
