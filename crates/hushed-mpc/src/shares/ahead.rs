//! Products made ahead by a run, and the passes that take them.

use std::collections::HashMap;

use hushed_model::{Program, StepId};
use hushed_twopc::he::{Ahead, ahead_client, ahead_server};

use super::stock::{Of, Set};
use super::{Protocol, Shares};
use crate::formats::MAIN;
use crate::weights::factors::{Factor, factors_of};
use crate::{RunError, Terms};

/// Passes to come, for which products are made ahead together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Later {
    /// How many.
    pub passes: usize,
    /// The rows of the text of each, including padding; 1 for those of a model that continues texts, each of which has
    /// one later row.
    pub rows: usize,
}

impl From<usize> for Later {
    /// Passes of one row.
    fn from(passes: usize) -> Later {
        Later { passes, rows: 1 }
    }
}

impl Protocol {
    /// Makes every product with weights, and with tables that are looked up, for passes over texts or rows that are not
    /// known yet. Both parties call it with the terms of these passes. A pass on other terms uses what it can and makes
    /// the rest. Each has its own set, which [`Protocol::spending_ahead`] takes; what is left when the session ends is
    /// wiped.
    ///
    /// # Errors
    /// As [`run`](crate::run); the session is then unusable.
    pub fn make_ahead(&mut self, program: &Program, later: impl Into<Later>, terms: Terms) -> Result<(), RunError> {
        let Later { passes, rows } = later.into();
        let mut made: Vec<Set> = (0..passes).map(|_| Set { rows, products: HashMap::new() }).collect();
        for (id, factor, each) in factors_of(program, rows, terms)? {
            let all = self.step(id, |on| on.product_ahead(id, &factor, (passes * each, each)))?;
            let of = match factor {
                Factor::Table(_, table) => Of::Table(table),
                Factor::Weights(_) => Of::Weights(id),
            };
            for (set, product) in made.iter_mut().zip(all) {
                set.products.insert(of, product);
            }
        }
        self.stock.sets.extend(made);
        Ok(())
    }

    /// The number of passes for which products are held.
    pub fn passes_ahead(&self) -> usize {
        self.stock.sets.len()
    }

    /// The number of these that are for a text of this many rows.
    pub fn texts_ahead(&self, rows: usize) -> usize {
        self.stock.held(rows)
    }

    /// Whether products are held for a pass over texts of these numbers of rows, or for as many rows of one text each
    /// of which gives a token: then every number is 1.
    pub fn holds_ahead(&self, rows: &[usize]) -> bool {
        self.stock.holds(rows)
    }

    /// Runs such a pass, using one set of the products made ahead per text or row. What the pass leaves of them is
    /// wiped.
    ///
    /// # Errors
    /// [`RunError::NothingAhead`] if too few are [held](Protocol::holds_ahead), before anything is sent; otherwise
    /// those of the pass.
    pub fn spending_ahead<T>(
        &mut self,
        rows: &[usize],
        pass: impl FnOnce(&mut Protocol) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        if !self.stock.begin(rows) {
            return Err(RunError::NothingAhead);
        }
        let result = pass(self);
        self.stock.current.clear();
        result
    }

    /// Makes a product for later rows, `each` of which are of one pass.
    fn product_ahead(
        &mut self,
        id: StepId,
        factor: &Factor<'_>,
        (rows, each): (usize, usize),
    ) -> Result<Vec<Ahead>, RunError> {
        if self.ctx.is_client() {
            let shape = factor.shape(rows);
            return Ok(ahead_client(&mut self.ctx, &self.he, MAIN, &shape, each)?);
        }
        match factor {
            Factor::Table(e, table) => {
                let table = self.server_table(e, *table)?;
                Ok(ahead_server(&mut self.ctx, &self.he, MAIN, (rows, each), &table)?)
            }
            Factor::Weights(product) => {
                let layer = self.layer(id, product)?;
                let weights = &layer.weights(id)?.0;
                Ok(ahead_server(&mut self.ctx, &self.he, MAIN, (rows, each), weights)?)
            }
        }
    }
}

#[cfg(test)]
mod tests;
