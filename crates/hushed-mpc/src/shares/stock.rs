//! Products by weights that were made ahead, each for one row of one pass to come.

use std::collections::HashMap;

use hushed_model::{Program, StepId};
use hushed_net::Party;
use hushed_twopc::he::{Ahead, ahead_client, ahead_server};

use super::{Protocol, Shares};
use crate::RunError;
use crate::circuit::product::Product;
use crate::formats::MAIN;
use crate::weights::prepare::products_of;

/// What a pass of one row takes of each product. It moves from the stock into the pass, and out of it into the product.
type Rows = HashMap<StepId, Ahead>;

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
    pub(super) fn take(&mut self, id: StepId, rows: usize) -> Option<Ahead> {
        (rows == 1).then(|| self.current.remove(&id))?
    }
}

impl Protocol {
    /// Makes every product by weights of this many later passes of one row, whose rows are not known yet. Both parties
    /// call it. Each pass has a set of its own, which [`Protocol::spending_ahead`] takes; what is left when the session
    /// ends is wiped.
    ///
    /// # Errors
    /// As [`run`](crate::run); the session is then over.
    pub fn make_ahead(&mut self, program: &Program, passes: usize) -> Result<(), RunError> {
        let mut made: Vec<Rows> = (0..passes).map(|_| Rows::new()).collect();
        for (id, product) in products_of(program)? {
            let rows = self.step(id, |on| on.rows_ahead(id, &product, passes))?;
            for (pass, row) in made.iter_mut().zip(rows) {
                pass.insert(id, row);
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
        product: &Product,
        rows: usize,
    ) -> Result<Vec<Ahead>, RunError> {
        let layer = self.layer(id, product)?;
        let (ctx, he) = (&mut self.ctx, &self.he);
        Ok(match ctx.party() {
            Party::Client => ahead_client(ctx, he, MAIN, &layer.linear(rows))?,
            Party::Server => ahead_server(ctx, he, MAIN, rows, &layer.weights(id)?.0)?,
        })
    }
}
