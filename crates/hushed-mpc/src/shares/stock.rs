//! Products with weights and tables that were made ahead, each for one row of a later pass.

use std::collections::HashMap;

use hushed_model::StepId;
use hushed_twopc::he::Ahead;

use crate::lookup::Table;

/// The server's factor of a product.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Table(Table),
    Weights(StepId),
}

/// What a row of a pass takes of each product. It moves from the stock into the pass, and from there into the product.
pub(super) type Row = HashMap<Of, Ahead>;

/// What a party holds; wiped when the session ends.
#[derive(Default)]
pub(super) struct Stock {
    /// For later rows.
    pub(super) rows: Vec<Row>,
    /// For the rows of the current pass.
    pub(super) current: Vec<Row>,
}

impl Stock {
    /// Takes a product's rows, once, if there are as many as the current pass has and each holds the product.
    pub(super) fn take(&mut self, of: Of, rows: usize) -> Option<Ahead> {
        let held = |row: &Row| row.contains_key(&of);
        if rows != self.current.len() || !self.current.iter().all(held) {
            return None;
        }
        let taken = self.current.iter_mut().map(|row| row.remove(&of));
        Ahead::together(taken.collect::<Option<_>>()?)
    }
}
