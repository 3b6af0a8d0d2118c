//! Products by weights and tables that were made ahead, each for one row of one pass to come.

use std::collections::HashMap;

use hushed_model::{Program, StepId};
use hushed_twopc::he::{Ahead, ahead_client, ahead_server};

use super::{Protocol, Shares};
use crate::formats::MAIN;
use crate::lookup::Table;
use crate::weights::factors::{Factor, factors_of};
use crate::{RunError, Terms};

/// What a product is of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Of {
    Table(Table),
    Weights(StepId),
}

/// What a pass of one row takes of each product. It moves from the stock into the pass, and out of it into the product.
type Rows = HashMap<Of, Ahead>;

/// What a party holds; wiped when the session ends.
#[derive(Default)]
pub(super) struct Stock {
    /// For passes to come.
    passes: Vec<Rows>,
    /// Of the pass that runs.
    current: Rows,
}

impl Stock {
    /// The row of a product, if the pass that runs has one: once.
    pub(super) fn take(&mut self, of: Of, rows: usize) -> Option<Ahead> {
        (rows == 1).then(|| self.current.remove(&of))?
    }
}

impl Protocol {
    /// Makes every product by weights, and by tables that are looked up, of this many later passes of one row, whose
    /// rows are not known yet. Both parties call it, on the terms of these passes: on others a pass takes what it needs
    /// of it, and makes what is missing. Each pass has a set of its own, which [`Protocol::spending_ahead`] takes; what
    /// is left when the session ends is wiped.
    ///
    /// # Errors
    /// As [`run`](crate::run); the session is then over.
    pub fn make_ahead(
        &mut self,
        program: &Program,
        passes: usize,
        terms: Terms,
    ) -> Result<(), RunError> {
        let mut made: Vec<Rows> = (0..passes).map(|_| Rows::new()).collect();
        for (id, factor) in factors_of(program, terms)? {
            let rows = self.step(id, |on| on.rows_ahead(id, &factor, passes))?;
            let of = match factor {
                Factor::Table(_, table) => Of::Table(table),
                Factor::Weights(_) => Of::Weights(id),
            };
            for (pass, row) in made.iter_mut().zip(rows) {
                pass.insert(of, row);
            }
        }
        self.stock.passes.extend(made);
        Ok(())
    }

    /// Passes for which products are held.
    pub fn passes_ahead(&self) -> usize {
        self.stock.passes.len()
    }

    /// Runs a pass of one row over the cache with a set of what was made ahead; what the pass leaves of it is wiped.
    ///
    /// # Errors
    /// [`RunError::NothingAhead`] before anything is sent; else those of the pass.
    pub fn spending_ahead<T>(
        &mut self,
        pass: impl FnOnce(&mut Protocol) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        self.stock.current = self.stock.passes.pop().ok_or(RunError::NothingAhead)?;
        let result = pass(self);
        self.stock.current.clear();
        result
    }

    /// A product for rows to come.
    fn rows_ahead(
        &mut self,
        id: StepId,
        factor: &Factor<'_>,
        rows: usize,
    ) -> Result<Vec<Ahead>, RunError> {
        if self.ctx.is_client() {
            let shape = factor.shape(rows);
            return Ok(ahead_client(&mut self.ctx, &self.he, MAIN, &shape)?);
        }
        match factor {
            Factor::Table(e, table) => {
                let table = self.server_table(e, *table)?;
                Ok(ahead_server(&mut self.ctx, &self.he, MAIN, rows, &table)?)
            }
            Factor::Weights(product) => {
                let layer = self.layer(id, product)?;
                let weights = &layer.weights(id)?.0;
                Ok(ahead_server(&mut self.ctx, &self.he, MAIN, rows, weights)?)
            }
        }
    }
}

#[cfg(test)]
mod tests;
