//! Lookup of token vectors: private, unless the table's owner has made it public ([`super::table`]).
//!
//! The client knows its ids, so the lookup is one product of its one-hot rows (m × vocabulary, encrypted) with the server's table; no
//! equality test is needed (BumbleBee, NDSS 2025, §VII-B discusses both). Positions and the constant token type are the server's and
//! public in their place, so the server adds them to its share.

use hushed_model::{Embedding, ModelError};
use hushed_net::Party;
use hushed_twopc::TwopcError;
use hushed_twopc::he::{
    LinearShape, OltShape, PreparedWeights, linear_client, linear_server_alone,
};
use hushed_twopc::share::Share;

use super::backend::TwopcBackend;
use super::formats::{EMBEDDING, MAIN, TABLE_BITS};
use super::{Input, RunError, ranges};

/// Token vectors plus positions, in [`EMBEDDING`]: all texts' rows × width.
pub fn lookup(
    this: &mut TwopcBackend,
    x: Input,
    e: &Embedding,
    lengths: &[usize],
) -> Result<Share, RunError> {
    let rows = lengths.iter().sum();
    if x.terms().public_table {
        return looked_up(this, &x, e, lengths);
    }
    let shape = LinearShape {
        shape: OltShape {
            k: rows,
            m: e.vocabulary,
            n: e.width,
        },
        weight_bits: TABLE_BITS,
    };
    match (this.ctx.party(), x) {
        (Party::Client, Input::Texts(texts, _)) => {
            let mut hot = vec![0u64; rows * e.vocabulary];
            for (row, &id) in texts.iter().flat_map(|t| t.ids()).enumerate() {
                let id = id as usize;
                if id >= e.vocabulary {
                    return Err(ModelError::TokenOutOfRange {
                        vocabulary: e.vocabulary,
                    }
                    .into());
                }
                hot[row * e.vocabulary + id] = 1;
            }
            let hot = Share::new(MAIN, hot);
            Ok(linear_client(&mut this.ctx, &this.he, &hot, &shape)?)
        }
        (Party::Server, Input::Lengths(..)) => {
            let table = this.layers.table(e)?;
            let y = linear_server_alone(&mut this.ctx, &this.he, MAIN, rows, &table)?;
            with_positions(y, e, lengths)
        }
        _ => Err(RunError::WrongInput),
    }
}

/// The same with a public table: the token vectors are the client's share, the positions the server's.
fn looked_up(
    this: &mut TwopcBackend,
    x: &Input,
    e: &Embedding,
    lengths: &[usize],
) -> Result<Share, RunError> {
    match (this.ctx.party(), x) {
        (Party::Client, Input::Texts(texts, _)) => {
            let table = this.table.as_ref().ok_or_else(no_table)?;
            let rows = lengths.iter().sum::<usize>();
            let mut words = Vec::with_capacity(rows * e.width);
            for &id in texts.iter().flat_map(|t| t.ids()) {
                let row = table.row(id)?;
                words.extend(row.iter().map(|&v| EMBEDDING.ring.encode(i64::from(v))));
            }
            Ok(Share::new(MAIN, words))
        }
        (Party::Server, Input::Lengths(..)) => {
            let rows = lengths.iter().sum::<usize>();
            with_positions(Share::zero(MAIN, rows * e.width), e, lengths)
        }
        _ => Err(RunError::WrongInput),
    }
}

/// Adds what every position adds, by the server.
fn with_positions(share: Share, e: &Embedding, lengths: &[usize]) -> Result<Share, RunError> {
    let mut words = share.into_words();
    let offsets = e.offsets.as_deref().ok_or_else(no_table)?;
    let mut rows = words.chunks_exact_mut(e.width);
    for &m in lengths {
        for (i, row) in rows.by_ref().take(m).enumerate() {
            for (w, &p) in row.iter_mut().zip(offsets.row(i)) {
                *w = w.wrapping_add(EMBEDDING.encode(f64::from(p)));
            }
        }
    }
    Ok(Share::new(MAIN, words))
}

/// The table as integers, vocabulary × width.
pub fn integers(e: &Embedding) -> Result<PreparedWeights, RunError> {
    let values = numbers_of(e)?.iter().map(integer).collect();
    if let Some(beyond) = ranges::embedding(e)?.pop() {
        return Err(beyond.into());
    }
    Ok(
        PreparedWeights::new(e.vocabulary, e.width, TABLE_BITS, values)
            .map_err(TwopcError::from)?,
    )
}

/// The table's numbers.
pub(super) fn numbers_of(e: &Embedding) -> Result<&[f32], RunError> {
    Ok(e.tokens.as_deref().ok_or_else(no_table)?.data())
}

/// A number of the table with [`EMBEDDING`]'s fraction bits. One beyond 32 bits saturates, and is then refused as larger than
/// [`TABLE_BITS`] allow.
pub(super) fn integer(v: &f32) -> i32 {
    (f64::from(*v) * f64::from(1u32 << EMBEDDING.frac)).round() as i32
}

fn no_table() -> ModelError {
    ModelError::ShapesOnly {
        site: "embed".to_owned(),
    }
}
