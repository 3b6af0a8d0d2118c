//! Shared keys and values of the rows that earlier passes over a text have processed: a decoder's pass takes only the
//! new rows.
//!
//! Both parties hold the same number of rows. Rows of padding stay in the cache. Only the client knows which they are,
//! and it masks them from every later row ([`weigh`](super::weigh::weigh)).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_model::{Attention, Program, StepId, Weigh};
use hushed_net::Party;
use hushed_twopc::he::{Kept, MatmulShape, OltShape};
use hushed_twopc::share::Share;

use crate::RunError;
use crate::circuit::groups::{Group, Member};
use crate::circuit::input::Padding;
use crate::circuit::prefix::{Prefix, attentions};
use crate::formats::{KEY_BITS, LONG, MAX_KEYS, QUERY, SHORT, SUMS, Sums, is_long};
use crate::shares::{Local, Shares};

/// What the passes over one text leave for the next.
pub struct Cache<S> {
    prefix: Arc<Prefix>,
    /// Whether the rows of the prefix are rows of the steps, before those of the text.
    joined: bool,
    /// Whether there may be more rows of the text than those of [`SUMS`].
    long: bool,
    rows: usize,
    padding: Range<usize>,
    steps: BTreeMap<StepId, Past<S>>,
}

/// A party's cache for a text that is being continued.
pub type TextCache = Cache<Share>;

/// The keys and values of one attention block.
pub struct Past<S> {
    /// Public rows before the text that are none of `rows`.
    prefix: Arc<Prefix>,
    /// The formats of sums over its keys.
    sums: &'static Sums,
    /// Rows of earlier passes.
    rows: usize,
    /// Which of them are padding, as this party knows it.
    padding: Range<usize>,
    keys: Option<S>,
    values: Option<S>,
    /// Rows whose ciphertexts the other party may have kept, if later passes will read this: those of earlier passes
    /// over the text, with public rows among them.
    before: Option<usize>,
    /// What is kept of the ciphertexts of keys and of values.
    kept: [Kept; 2],
}

impl<S> Default for Cache<S> {
    fn default() -> Cache<S> {
        Cache::after(Arc::default())
    }
}

impl<S> Cache<S> {
    /// The empty cache of a text that begins after a public prefix.
    pub fn after(prefix: Arc<Prefix>) -> Cache<S> {
        Cache { prefix, joined: false, long: false, rows: 0, padding: 0..0, steps: BTreeMap::new() }
    }

    /// The empty cache of a text that may have more rows than [`SHORT`]: both parties say so before its first pass, as
    /// its keys and values then have wider formats.
    #[must_use]
    pub fn long(self, long: bool) -> Cache<S> {
        Cache { long, ..self }
    }

    /// The most rows of the text, public ones counted.
    pub(crate) fn longest(&self) -> usize {
        match self.long {
            true => MAX_KEYS,
            false => self.public() + SHORT,
        }
    }

    /// The number of cached rows of the text, including padding.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of cached rows that are tokens, as this party knows it.
    pub fn tokens(&self) -> usize {
        self.rows - self.padding.len()
    }

    /// The number of rows of the public prefix.
    pub fn public(&self) -> usize {
        self.prefix.rows()
    }

    /// Takes out what an attention block reads; it has to be [put back](Cache::put).
    pub(crate) fn take(&mut self, step: StepId) -> Past<S> {
        let sums = match self.prefix.rows() {
            0 if !self.long => &SUMS,
            _ => &LONG,
        };
        let first = self.first();
        let (rows, padding) = (first + self.rows, first + self.padding.start..first + self.padding.end);
        let before = Some(if self.rows > 0 { rows } else { 0 });
        let past = self.steps.remove(&step).unwrap_or_default();
        Past { prefix: self.prefix(), sums, rows, padding, before, ..past }
    }

    /// The rows of the steps before those of the text.
    fn first(&self) -> usize {
        match self.joined {
            true => self.prefix.rows(),
            false => 0,
        }
    }

    /// The prefix, while it is none of the rows; then one without rows.
    pub(crate) fn prefix(&self) -> Arc<Prefix> {
        match self.joined {
            true => Arc::default(),
            false => Arc::clone(&self.prefix),
        }
    }

    pub(crate) fn put(&mut self, step: StepId, past: Past<S>) {
        self.steps.insert(step, past);
    }

    /// Records a pass over `total` rows, of which `real` are tokens.
    pub(crate) fn passed(&mut self, real: usize, total: usize, padding: Padding) {
        let end = self.rows + total;
        if real < total {
            self.padding = match padding {
                Padding::Behind => self.rows + real..end,
                Padding::InFront => self.rows..end - real,
            };
        }
        self.rows = end;
    }
}

/// Makes the prefix of a text that has no rows yet its first rows. With padding in front of the text, given as the real
/// and all rows of its first pass, their keys are turned by as many positions as there is padding.
///
/// # Errors
/// Those of the session.
pub(crate) fn join<S: Shares>(
    on: &mut S,
    program: &Program,
    cache: &mut Cache<S::Share>,
    padded: Option<(usize, usize)>,
) -> Result<(), RunError> {
    let prefix = cache.prefix();
    let rows = prefix.rows();
    if on.knows(Party::Server) && prefix.is_empty() {
        return Err(RunError::WrongInput);
    }
    let columns = |a: &Attention| rows * a.heads.key_columns();
    let all: usize = attentions(program).map(|(_, a)| columns(a)).sum();
    let keys = match padded {
        Some((real, total)) => on.step(StepId::outside("public rows"), |on| {
            let chosen = || (0..total).map(|distance| i64::from(distance == total - real)).collect();
            let chosen = on.known(Party::Client, total, chosen);
            let chosen = on.shared(&chosen, QUERY.ring);
            let table = on.known(Party::Server, total * all, || prefix.turned(program, total));
            let shape = MatmulShape { shape: OltShape { k: 1, m: total, n: all }, batch: 1 };
            on.times_known(&chosen, &table, &shape, KEY_BITS)
        })?,
        None => {
            let numbers = || attentions(program).flat_map(|(id, a)| prefix.part(id, a.heads, 0)).copied().collect();
            on.shared(&on.known(Party::Server, all, numbers), QUERY.ring)
        }
    };
    let mut from = 0;
    for (id, a) in attentions(program) {
        let part = from..from + columns(a);
        from = part.end;
        let ring = match a.weigh {
            Weigh::Softmax => LONG.value.ring,
            Weigh::Sigmoid { .. } => LONG.standing.ring,
        };
        let values = on.known(Party::Server, part.len(), || prefix.part(id, a.heads, 1).to_vec());
        let values = on.shared(&values, ring);
        cache.put(id, Past::of(keys.gather(part.len(), || part.collect()), values));
    }
    cache.joined = true;
    Ok(())
}

impl<S: Local> Cache<S> {
    /// Keeps the first `rows` rows of the text and drops the rest, such as those of rejected drafts. Padding is in a
    /// text's first pass, and stays.
    ///
    /// # Errors
    /// [`RunError::WrongInput`] for no rows, more than there are, or fewer than the padding needs.
    pub fn keep(&mut self, rows: usize) -> Result<(), RunError> {
        if rows == 0 || rows > self.rows || rows < self.padding.end {
            return Err(RunError::WrongInput);
        }
        if rows == self.rows {
            return Ok(());
        }
        let first = self.first();
        for past in self.steps.values_mut() {
            for held in past.keys.iter_mut().chain(&mut past.values) {
                let kept = held.elements() / (first + self.rows) * (first + rows);
                *held = held.gather(kept, || (0..kept).collect());
            }
            past.kept.iter_mut().for_each(|kept| kept.truncate(first + rows));
        }
        self.rows = rows;
        Ok(())
    }
}

impl<S> Default for Past<S> {
    fn default() -> Past<S> {
        let (before, kept) = (None, Default::default());
        Past { prefix: Arc::default(), sums: &SUMS, rows: 0, padding: 0..0, keys: None, values: None, before, kept }
    }
}

impl<S> Past<S> {
    /// Nothing before texts of at most this many rows.
    pub(crate) fn none(rows: usize) -> Past<S> {
        let sums = if is_long(rows) { &LONG } else { &SUMS };
        Past { sums, ..Past::default() }
    }

    /// Keys and values alone.
    pub(crate) fn of(keys: S, values: S) -> Past<S> {
        Past { keys: Some(keys), values: Some(values), ..Past::default() }
    }
}

impl<S: Local> Past<S> {
    /// The position of the next row.
    pub(crate) fn place(&self) -> usize {
        self.prefix.rows() + self.rows
    }

    /// The public rows before the text.
    pub(crate) fn prefix(&self) -> &Prefix {
        &self.prefix
    }

    /// The formats of sums over its keys: the same for all passes over a text, as the cached values are in one of them.
    pub(crate) fn sums(&self) -> &'static Sums {
        self.sums
    }

    /// Rows whose ciphertexts may be kept from earlier passes, if later ones will read this.
    pub(crate) fn rows_before(&self) -> Option<usize> {
        self.before
    }

    /// What is kept of the ciphertexts of keys, and of values.
    pub(crate) fn kept(&mut self) -> &mut [Kept; 2] {
        &mut self.kept
    }

    /// Appends the new keys and returns all.
    pub(crate) fn with_keys(&mut self, new: S) -> S {
        after(&mut self.keys, new)
    }

    /// Appends the new values and returns all.
    pub(crate) fn with_values(&mut self, new: S) -> S {
        after(&mut self.values, new)
    }

    /// A group with its earlier rows, not counting the prefix. Only a text on its own has earlier rows.
    pub(crate) fn before(&self, group: &Group) -> Group {
        let texts = group.texts.iter().map(|text| Member { start: text.start, real: self.rows + text.real });
        Group { rows: self.rows + group.rows, texts: texts.collect() }
    }

    /// Whether an earlier row is padding.
    pub(crate) fn is_padding(&self, row: usize) -> bool {
        self.padding.contains(&row)
    }
}

fn after<S: Local>(held: &mut Option<S>, new: S) -> S {
    let all = match held.take() {
        Some(held) => S::concat(new.ring(), &[held, new]),
        None => new,
    };
    held.insert(all).clone()
}
