//! One text or a few in packed rows ([`crate::packing::Layout`]): how heads and rows lie, and the rows that a client
//! reads. The circuit is recorded (`tape/packed/`).

pub mod pool;
pub mod rows;

use hushed_model::{Attention, Mask};

use crate::packing::heads::Heads;
use crate::packing::{Layout, PackingError};

/// Copies of an operand in Q·Kᵀ and P·V: J in docs/one-text.md, unless heads or rows have fewer.
const COPIES: usize = 4;

/// How the heads of a model lie in packed rows, as many side by side as a row has places for.
///
/// # Errors
/// [`PackingError::Mismatch`] if they do not fit: the pairs of columns per head are not a power of two, or exceed the
/// rows or the places.
pub fn heads_of(block: &Attention, layout: Layout) -> Result<Heads, PackingError> {
    let pairs = block.heads.width / 2;
    let inner = block.heads.count * block.heads.width;
    let fits = block.heads.width.is_multiple_of(2) && inner == block.query.inputs;
    if !fits || pairs == 0 {
        return Err(PackingError::Mismatch);
    }
    let copies = COPIES.min(pairs).min(layout.rows());
    let groups = layout.rows() / copies.max(1);
    // About the square root of the groups, in whole vectors of E diagonals each.
    let root = 1_usize << (groups.max(1).ilog2() / 2);
    let baby = root.max(pairs / copies.max(1)).max(2 * root).min(groups);
    let heads = Heads::new(layout, pairs, copies, baby)?;
    Ok(if block.mask == Mask::Causal { heads.causal() } else { heads })
}
