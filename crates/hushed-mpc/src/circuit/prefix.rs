//! A public prefix: rows before every text that are not secret, such as a system prompt. The server runs them once in
//! the clear. Their keys and values are its own numbers, and private rows attend to them through products with a factor
//! that one party knows. The client knows how many rows there are, but not their keys and values, which reveal
//! something of the weights.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_model::plain::{self, PlainCache};
use hushed_model::{
    Attention, Block, Heads, Item, Matrix, ModelError, Program, Public, StepId, TextError, TokenIds, here,
};
use hushed_twopc::func::Format;
use zeroize::Zeroizing;

use crate::formats::{KEY_BITS, MAX_KEYS, QUERY, SHORT, VALUE, VALUE_BITS};
use crate::{OutOfRange, RunError};

/// The longest prefix: with a text of [`SHORT`] rows after it, a row attends to [`MAX_KEYS`] keys.
pub const MAX_PREFIX: usize = MAX_KEYS - SHORT;

/// The longest prefix whose rows always are rows of the text. Each of these costs a column of every product with
/// shared keys and values, a longer prefix two more products per attention block.
pub(crate) const JOINED: usize = 32;

/// The rows before a text, as one party has them.
#[derive(Default)]
pub struct Prefix {
    rows: usize,
    /// For every attention block, at the party that has the weights: the keys in [`QUERY`], and the values with
    /// [`VALUE`]'s fraction bits, each rows × g·dh.
    steps: Arc<BTreeMap<StepId, [Zeroizing<Vec<i64>>; 2]>>,
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
        Ok(Prefix { rows, steps: Arc::default() })
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
        let prefix = Prefix::of_rows(text.rows().total)?;
        let mut cache = PlainCache::default();
        plain::run_next(program, &mut cache, text)?;
        let mut steps = BTreeMap::new();
        for (id, a) in attentions(program) {
            let past = cache.past(id);
            let [keys, values] = here(id, &past)?;
            // Turned to another position, a number of a pair may become as large as the pair.
            let pairs = a.rope.as_ref().map(|rope| (0..a.heads.width / 2).map(|i| rope.pair(i, a.heads.width)));
            let turned = pairs.map_or(0.0, |pairs| largest_pair(keys, a.heads, pairs));
            for (what, largest, bits, frac) in [
                ("keys of the public prefix", turned.max(largest(keys)), KEY_BITS, QUERY.frac),
                ("values of the public prefix", largest(values), VALUE_BITS, VALUE.frac),
            ] {
                let limit = f64::from(bits - frac).exp2();
                if largest >= limit {
                    return Err(RunError::OutOfRange(OutOfRange { site: id.to_string(), what, limit }));
                }
            }
            let in_format = |x: &Matrix<f64>, format: Format| {
                Zeroizing::new(x.data().iter().map(|&v| format.signed(v)).collect::<Vec<_>>())
            };
            steps.insert(id, [in_format(keys, QUERY), in_format(values, VALUE)]);
        }
        Ok(Prefix { steps: Arc::new(steps), ..prefix })
    }

    /// Runs a public head, which may be empty, in the clear.
    ///
    /// # Errors
    /// As [`Prefix::run`].
    pub fn of_head(program: &Program, head: &[u32]) -> Result<Prefix, RunError> {
        match head.is_empty() {
            true => Ok(Prefix::default()),
            false => Prefix::run(program, TokenIds::new(head.to_vec())),
        }
    }

    /// Its first rows, which depend on no later ones; all of it, if it has no more.
    #[must_use]
    pub fn first(&self, rows: usize) -> Prefix {
        Prefix { rows: rows.min(self.rows), steps: Arc::clone(&self.steps) }
    }

    /// Whether this party has no numbers of it.
    pub(crate) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The keys of an attention block, one dh × rows matrix per head; empty for the party without weights.
    pub(crate) fn keys(&self, step: StepId, heads: Heads) -> Vec<i64> {
        by_heads(self.part(step, heads, 0), heads, true)
    }

    /// The values of an attention block, one rows × dh matrix per head, likewise.
    pub(crate) fn values(&self, step: StepId, heads: Heads) -> Vec<i64> {
        by_heads(self.part(step, heads, 1), heads, false)
    }

    /// Keys or values, rows × g·dh.
    pub(crate) fn part(&self, step: StepId, heads: Heads, part: usize) -> &[i64] {
        let numbers = self.steps.get(&step).map_or(&[][..], |both| &both[part]);
        &numbers[..numbers.len().min(self.rows * heads.key_columns())]
    }

    /// The keys of all attention blocks turned by each of `distances` distances from 0 on: a row per distance.
    pub(crate) fn turned(&self, program: &Program, distances: usize) -> Vec<i64> {
        let mut all = Vec::new();
        for distance in 0..distances {
            for (id, a) in attentions(program) {
                let dh = a.heads.width;
                for head in self.part(id, a.heads, 0).chunks_exact(dh.max(1)) {
                    let mut turned = head.to_vec();
                    let angles =
                        a.rope.iter().flat_map(|rope| rope.angles(distance, dh).map(move |angle| (rope, angle)));
                    for (i, (rope, angle)) in angles.enumerate() {
                        let (first, second) = rope.pair(i, dh);
                        let (x, y) = (head[first] as f64, head[second] as f64);
                        turned[first] = (x * angle.cos() - y * angle.sin()).round() as i64;
                        turned[second] = (x * angle.sin() + y * angle.cos()).round() as i64;
                    }
                    all.extend(turned);
                }
            }
        }
        all
    }
}

/// How many rows of a public head an item begins with, and the item without them.
pub(crate) fn without_head(head: &[u32], item: Item) -> (usize, Item) {
    match item {
        Item::Text(text) => {
            let rows = text.public_rows(head);
            (rows, text.without_first(rows).into())
        }
        image @ Item::Image(_) => (0, image),
    }
}

/// The attention blocks of a program.
pub(crate) fn attentions(program: &Program) -> impl Iterator<Item = (StepId, &Attention)> {
    program.steps().iter().filter_map(|step| match &step.block {
        Block::Attention(a) => Some((step.id, a)),
        _ => None,
    })
}

/// The largest magnitude.
fn largest(x: &Matrix<f64>) -> f64 {
    x.data().iter().fold(0.0, |most, v| f64::max(most, v.abs()))
}

/// The largest length of a pair of numbers of a head.
fn largest_pair(x: &Matrix<f64>, heads: Heads, pairs: impl Iterator<Item = (usize, usize)> + Clone) -> f64 {
    let rows = x.data().chunks_exact(heads.width.max(1));
    let lengths = rows.flat_map(|row| pairs.clone().map(|(a, b)| row[a].hypot(row[b])));
    lengths.fold(0.0, f64::max)
}

/// Splits a rows × g·dh matrix into one matrix per head, transposed or not.
fn by_heads(x: &[i64], heads: Heads, transposed: bool) -> Vec<i64> {
    let (dh, columns) = (heads.width, heads.key_columns());
    let rows = x.len() / columns.max(1);
    let mut all = Vec::with_capacity(x.len());
    for first in (0..heads.keys).map(|head| head * dh) {
        match transposed {
            true => all.extend((0..dh * rows).map(|i| x[i % rows * columns + first + i / rows])),
            false => all.extend((0..rows * dh).map(|i| x[i / dh * columns + first + i % dh])),
        }
    }
    all
}
