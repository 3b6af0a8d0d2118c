//! A public prefix: rows before every text that are not secret, such as a system prompt. The server runs them once in
//! the clear. Their keys and values are its own numbers, and private rows attend to them through products with a factor
//! that one party knows. The client knows how many rows there are, but not their keys and values, which reveal
//! something of the weights.

use std::collections::BTreeMap;

use hushed_model::plain::{self, PlainCache};
use hushed_model::{Block, Heads, Matrix, ModelError, Program, Public, StepId, TextError, TokenIds, here};
use hushed_twopc::func::Format;
use zeroize::Zeroizing;

use crate::formats::{KEY_BITS, MAX_KEYS, MAX_TOKENS, QUERY, VALUE, VALUE_BITS};
use crate::{OutOfRange, RunError};

/// The longest prefix: with the longest text after it, a row attends to [`MAX_KEYS`] keys.
pub const MAX_PREFIX: usize = MAX_KEYS - MAX_TOKENS;

/// The rows before a text, as one party has them.
#[derive(Default)]
pub struct Prefix {
    rows: usize,
    /// For every attention block, at the party that has the weights: the keys, one dh × rows matrix per head in
    /// [`QUERY`], and the values, rows × dh per head with [`VALUE`]'s fraction bits.
    steps: BTreeMap<StepId, [Zeroizing<Vec<i64>>; 2]>,
}

impl Prefix {
    /// A prefix of this many rows, for the party without weights.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] above [`MAX_PREFIX`].
    pub fn of_rows(rows: usize) -> Result<Prefix, RunError> {
        if rows > MAX_PREFIX {
            return Err(RunError::Unsupported {
                site: "the public prefix".to_owned(),
                what: "prefixes of this length",
            });
        }
        Ok(Prefix { rows, steps: BTreeMap::new() })
    }

    /// Tokenizes a prefix for a model.
    ///
    /// # Errors
    /// [`ModelError::NotAGenerator`]; [`ModelError::Text`] if it is empty, or has more tokens than the model or
    /// [`MAX_PREFIX`] allows.
    pub fn tokens(public: &Public, text: &str) -> Result<TokenIds, ModelError> {
        let ids = public.prefix(text)?;
        let (tokens, limit) = (ids.rows().total, MAX_PREFIX);
        match tokens > limit {
            true => Err(TextError::TooLong { tokens, limit }.into()),
            false => Ok(ids),
        }
    }

    /// Runs a prefix in the clear.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] if it is too long; [`RunError::Model`] if it does not fit the model, or the model has
    /// shapes only; [`RunError::OutOfRange`] if the formats do not hold its keys and values.
    pub fn run(program: &Program, text: TokenIds) -> Result<Prefix, RunError> {
        let mut prefix = Prefix::of_rows(text.rows().total)?;
        let mut cache = PlainCache::default();
        plain::run_next(program, &mut cache, text)?;
        for step in program.steps() {
            let Block::Attention(a) = &step.block else {
                continue;
            };
            let past = cache.past(step.id);
            let [keys, values] = here(step.id, &past)?;
            let keys = by_heads(keys, a.heads, QUERY, true);
            let values = by_heads(values, a.heads, VALUE, false);
            for (what, numbers, bits, frac) in [
                ("keys of the public prefix", &keys, KEY_BITS, QUERY.frac),
                ("values of the public prefix", &values, VALUE_BITS, VALUE.frac),
            ] {
                if numbers.iter().any(|n| n.unsigned_abs() > 1 << bits) {
                    return Err(RunError::OutOfRange(OutOfRange {
                        site: step.id.to_string(),
                        what,
                        limit: f64::from(bits - frac).exp2(),
                    }));
                }
            }
            prefix.steps.insert(step.id, [keys, values]);
        }
        Ok(prefix)
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The keys of an attention block; empty for the party without weights.
    pub(crate) fn keys(&self, step: StepId) -> Vec<i64> {
        self.part(step, 0)
    }

    /// The values of an attention block, likewise.
    pub(crate) fn values(&self, step: StepId) -> Vec<i64> {
        self.part(step, 1)
    }

    fn part(&self, step: StepId, part: usize) -> Vec<i64> {
        let numbers = self.steps.get(&step).map(|both| both[part].to_vec());
        numbers.unwrap_or_default()
    }
}

/// Splits a rows × g·dh matrix into one matrix per head, transposed or not.
fn by_heads(x: &Matrix<f64>, heads: Heads, format: Format, transposed: bool) -> Zeroizing<Vec<i64>> {
    let (rows, dh) = (x.rows(), heads.width);
    let number = |row: usize, column: usize| format.signed(x.row(row)[column]);
    let mut all = Vec::with_capacity(rows * heads.key_columns());
    for first in (0..heads.keys).map(|head| head * dh) {
        match transposed {
            true => all.extend((0..dh * rows).map(|i| number(i % rows, first + i / rows))),
            false => all.extend((0..rows * dh).map(|i| number(i / dh, first + i % dh))),
        }
    }
    Zeroizing::new(all)
}
