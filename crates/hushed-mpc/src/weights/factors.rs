//! The server's matrices that the rows of a pass to come are multiplied by, and whose products can be made ahead.

use hushed_model::{Block, Embedding, Program, StepId};
use hushed_twopc::he::LinearShape;

use crate::circuit::product::Product;
use crate::circuit::token::predicts_tokens;
use crate::lookup::Table;
use crate::weights::prepare::products_in;
use crate::{RunError, Terms};

/// One of these matrices.
pub(crate) enum Factor<'a> {
    /// A table, multiplied by the one-hot row of a place.
    Table(&'a Embedding, Table),
    /// The weights of a step.
    Weights(Product),
}

impl Factor<'_> {
    /// The shape of the product with this many rows.
    pub(crate) fn shape(&self, rows: usize) -> LinearShape {
        match self {
            Factor::Table(e, table) => table.shape(e, rows),
            Factor::Weights(product) => product.shape(rows),
        }
    }
}

/// All factors of a pass on these terms, with the rows that each multiplies, in the order of a pass: over a text of
/// this many rows, or, of a model that continues texts, over one later row. A public table is not among them, as its
/// lookup sends nothing. The table of positions is, if the server does not know a later row's position.
pub(crate) fn factors_of(
    program: &Program,
    rows: usize,
    terms: Terms,
) -> Result<Vec<(StepId, Factor<'_>, usize)>, RunError> {
    let (mut all, later) = (Vec::new(), predicts_tokens(program));
    for step in program.steps() {
        if let Block::Embed(e) = &step.block {
            let tokens = (!terms.public_table).then_some(Table::Tokens);
            let positions = (later && terms.padded && e.placed).then_some(Table::Positions);
            let tables = tokens.into_iter().chain(positions);
            all.extend(tables.map(|table| (step.id, Factor::Table(e, table), rows)));
        }
    }
    products_in(program, (rows, terms), |id, product, rows| {
        all.push((id, Factor::Weights(product.clone()), rows));
        Ok(())
    })?;
    Ok(all)
}
