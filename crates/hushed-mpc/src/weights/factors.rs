//! The server's matrices that a later token's row is multiplied by, and whose products can be made ahead.

use hushed_model::{Block, Embedding, Program, StepId};
use hushed_twopc::he::LinearShape;

use crate::circuit::product::Product;
use crate::lookup::Table;
use crate::weights::prepare::products_of;
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

/// All factors of a later token on these terms, in the order of a pass. A public table is not among them, as its lookup
/// sends nothing. The table of positions is, if the server does not know the row's position.
pub(crate) fn factors_of(program: &Program, terms: Terms) -> Result<Vec<(StepId, Factor<'_>)>, RunError> {
    let mut all = Vec::new();
    for step in program.steps() {
        if let Block::Embed(e) = &step.block {
            let tokens = (!terms.public_table).then_some(Table::Tokens);
            let positions = (terms.padded && e.placed).then_some(Table::Positions);
            let tables = tokens.into_iter().chain(positions);
            all.extend(tables.map(|table| (step.id, Factor::Table(e, table))));
        }
    }
    let products = products_of(program)?.into_iter();
    all.extend(products.map(|(id, product)| (id, Factor::Weights(product))));
    Ok(all)
}
