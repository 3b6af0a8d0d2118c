//! Products with weights and tables that were made ahead of the passes that take them.

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

/// What a pass over one text, or for one later row, takes of each product. It moves from the stock into the pass, and
/// from there into the products.
pub(super) struct Set {
    /// Rows of the text.
    pub(super) rows: usize,
    pub(super) products: HashMap<Of, Ahead>,
}

/// What a party holds; wiped when the session ends.
#[derive(Default)]
pub(super) struct Stock {
    /// For passes to come, oldest first.
    pub(super) sets: Vec<Set>,
    /// For the texts or rows of the current pass, in their order.
    pub(super) current: Vec<Set>,
}

impl Stock {
    /// The number of sets for a text of this many rows.
    pub(super) fn held(&self, rows: usize) -> usize {
        self.sets.iter().filter(|set| set.rows == rows).count()
    }

    /// Whether there is a set for each text of a pass.
    pub(super) fn holds(&self, rows: &[usize]) -> bool {
        let wanted = |of: usize| rows.iter().filter(|rows| **rows == of).count();
        rows.iter().all(|&rows| wanted(rows) <= self.held(rows))
    }

    /// Makes the oldest sets for the texts of a pass current, if there are as many.
    pub(super) fn begin(&mut self, rows: &[usize]) -> bool {
        let holds = self.holds(rows);
        if holds {
            let sets = &mut self.sets;
            let mut next = |rows: &usize| sets.iter().position(|set| set.rows == *rows).map(|at| sets.remove(at));
            self.current = rows.iter().filter_map(&mut next).collect();
        }
        holds
    }

    /// Takes a product's rows, once, if the current sets have it for as many rows.
    pub(super) fn take(&mut self, of: Of, rows: usize) -> Option<Ahead> {
        let held = |set: &Set| set.products.get(&of).map(Ahead::rows);
        if self.current.iter().map(held).sum::<Option<usize>>() != Some(rows) {
            return None;
        }
        let taken = self.current.iter_mut().map(|set| set.products.remove(&of));
        Ahead::together(taken.collect::<Option<_>>()?)
    }
}
