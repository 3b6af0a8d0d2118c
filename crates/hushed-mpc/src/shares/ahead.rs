//! Products made ahead by a run, and the passes that take them.

use hushed_model::{Program, StepId};
use hushed_twopc::he::{Ahead, ahead_client, ahead_server};

use super::stock::{Of, Row};
use super::{Protocol, Shares};
use crate::formats::MAIN;
use crate::weights::factors::{Factor, factors_of};
use crate::{RunError, Terms};

impl Protocol {
    /// Makes every product with weights, and with tables that are looked up, for this many rows of later passes, which
    /// are not known yet. Both parties call it with the terms of these passes. A pass on other terms uses what it can
    /// and makes the rest. Each row has its own set, which [`Protocol::spending_ahead`] takes; what is left when the
    /// session ends is wiped.
    ///
    /// # Errors
    /// As [`run`](crate::run); the session is then unusable.
    pub fn make_ahead(&mut self, program: &Program, rows: usize, terms: Terms) -> Result<(), RunError> {
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

    /// The number of later rows for which products are held.
    pub fn passes_ahead(&self) -> usize {
        self.stock.rows.len()
    }

    /// Runs a pass of this many rows over the cache, each of which gives a token, using one set of the products made
    /// ahead per row. What the pass leaves of them is wiped.
    ///
    /// # Errors
    /// [`RunError::NothingAhead`] for more rows than sets, before anything is sent; otherwise those of the pass.
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

    /// Makes a product for later rows.
    fn product_ahead(&mut self, id: StepId, factor: &Factor<'_>, rows: usize) -> Result<Vec<Ahead>, RunError> {
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
