//! Products by weights and tables that were made ahead, each for one row of a pass to come.

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

/// What a row of a pass takes of each product. It moves from the stock into the pass, and out of it into the product.
type Row = HashMap<Of, Ahead>;

/// What a party holds; wiped when the session ends.
#[derive(Default)]
pub(super) struct Stock {
    /// Of rows to come.
    rows: Vec<Row>,
    /// Of the rows of the pass that runs.
    current: Vec<Row>,
}

impl Stock {
    /// The rows of a product, if it is of as many as the pass that runs has, and they have one each: once.
    pub(super) fn take(&mut self, of: Of, rows: usize) -> Option<Ahead> {
        let held = |row: &Row| row.contains_key(&of);
        if rows != self.current.len() || !self.current.iter().all(held) {
            return None;
        }
        let taken = self.current.iter_mut().map(|row| row.remove(&of));
        Ahead::together(taken.collect::<Option<_>>()?)
    }
}

impl Protocol {
    /// Makes every product by weights, and by tables that are looked up, of this many rows of later passes, which are
    /// not known yet. Both parties call it, on the terms of these passes: on others a pass takes what it needs of it,
    /// and makes what is missing. Each row has a set of its own, which [`Protocol::spending_ahead`] takes; what is left
    /// when the session ends is wiped.
    ///
    /// # Errors
    /// As [`run`](crate::run); the session is then over.
    pub fn make_ahead(
        &mut self,
        program: &Program,
        rows: usize,
        terms: Terms,
    ) -> Result<(), RunError> {
        let mut made: Vec<Row> = (0..rows).map(|_| Row::new()).collect();
        for (id, factor) in factors_of(program, terms)? {
            let all = self.step(id, |on| on.product_ahead(id, &factor, rows))?;
            let of = match factor {
                Factor::Table(_, table) => Of::Table(table),
                Factor::Weights(_) => Of::Weights(id),
            };
            for (row, product) in made.iter_mut().zip(all) {
                row.insert(of, product);
            }
        }
        self.stock.rows.extend(made);
        Ok(())
    }

    /// Rows of later passes for which products are held.
    pub fn passes_ahead(&self) -> usize {
        self.stock.rows.len()
    }

    /// Runs a pass of so many rows over the cache, each of which gives a token, with a set a row of what was made
    /// ahead; what the pass leaves of it is wiped.
    ///
    /// # Errors
    /// [`RunError::NothingAhead`] for more rows than there are sets, before anything is sent; else those of the pass.
    pub fn spending_ahead<T>(
        &mut self,
        rows: usize,
        pass: impl FnOnce(&mut Protocol) -> Result<T, RunError>,
    ) -> Result<T, RunError> {
        let held = self.stock.rows.len();
        let left = held.checked_sub(rows).ok_or(RunError::NothingAhead)?;
        self.stock.current = self.stock.rows.split_off(left);
        let result = pass(self);
        self.stock.current.clear();
        result
    }

    /// A product for rows to come.
    fn product_ahead(
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
