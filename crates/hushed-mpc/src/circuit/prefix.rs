//! A public prefix: rows before every text that are no secret, such as a system prompt. The server runs them in the
//! clear, once, and their keys and values are its own numbers: private rows attend to them by products with a factor
//! that one party knows. The client knows how many rows there are, and nothing of their keys and values, which tell of
//! the weights.

use std::collections::BTreeMap;

use hushed_model::plain::{self, PlainCache};
use hushed_model::{
    Block, Heads, Matrix, ModelError, Program, Public, StepId, TextError, TokenIds, here,
};
use hushed_twopc::func::Format;
use zeroize::Zeroizing;

use crate::RunError;
use crate::formats::{KEY_BITS, MAX_KEYS, MAX_TOKENS, QUERY, VALUE, VALUE_BITS};
use crate::weights::ranges::OutOfRange;

/// The longest prefix: with the longest text after it, a row sees [`MAX_KEYS`] keys.
pub const MAX_PREFIX: usize = MAX_KEYS - MAX_TOKENS;

/// Rows before a text, as a party has them.
#[derive(Default)]
pub struct Prefix {
    rows: usize,
    /// Of every attention block, at who has the weights: its keys, a matrix of dh × rows a head, in [`QUERY`], and its
    /// values, rows × dh a head, with [`VALUE`]'s fraction bits.
    steps: BTreeMap<StepId, [Zeroizing<Vec<i64>>; 2]>,
}

impl Prefix {
    /// Of so many rows, at who has no weights.
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
        Ok(Prefix {
            rows,
            steps: BTreeMap::new(),
        })
    }

    /// The tokens of a prefix that a model takes.
    ///
    /// # Errors
    /// [`ModelError::NotAGenerator`]; [`ModelError::Text`] for one that is empty, or has more tokens than the model or
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
    /// [`RunError::Unsupported`] for one that is too long; [`RunError::Model`] for one that does not fit the model, or
    /// a model of shapes; [`RunError::OutOfRange`] for keys and values that the formats do not hold.
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
                (
                    "values of the public prefix",
                    &values,
                    VALUE_BITS,
                    VALUE.frac,
                ),
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

    /// How many there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The keys of an attention block; nothing at who has no weights.
    pub(crate) fn keys(&self, step: StepId) -> Vec<i64> {
        self.part(step, 0)
    }

    /// Its values.
    pub(crate) fn values(&self, step: StepId) -> Vec<i64> {
        self.part(step, 1)
    }

    fn part(&self, step: StepId, part: usize) -> Vec<i64> {
        let numbers = self.steps.get(&step).map(|both| both[part].to_vec());
        numbers.unwrap_or_default()
    }
}

/// A rows × g·dh matrix as one matrix a head, transposed or not.
fn by_heads(
    x: &Matrix<f64>,
    heads: Heads,
    format: Format,
    transposed: bool,
) -> Zeroizing<Vec<i64>> {
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
