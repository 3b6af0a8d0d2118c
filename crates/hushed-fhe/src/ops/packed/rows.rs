//! Which rows of the texts in packed rows are tokens, and masks made from that.
//!
//! With public lengths the masks are plaintext vectors. With private lengths the client sends two more vectors,
//! encrypted as the parts of one ciphertext: 1 in all places of token rows, and, in all places of a text, one over
//! their number ([`super::pool::hidden_rows`]). They replace a plaintext vector in products that are needed anyway, so
//! they cost relinearisations and no level; the plaintext vectors are then those of texts that fill all their rows.

use hushed_ckks::{Complex64, Scale};
use hushed_model::StepId;

use crate::error::FheError;
use crate::ops::levels::{above, above_by, divisor, scale_of};
use crate::ops::mask::REAL_ROWS;
use crate::ops::norm::product;
use crate::packing::heads::{Heads, keys_of_scores};
use crate::packing::{Layout, PackingError};
use crate::slots::Slots;

/// A layout, and which rows of each text are tokens.
#[derive(Clone)]
pub struct PackedRows<V> {
    layout: Layout,
    /// The lengths as far as the server knows them.
    lengths: Vec<usize>,
    hidden: Option<Hidden<V>>,
}

/// The encrypted masks of lengths that the server does not know.
#[derive(Clone)]
struct Hidden<V> {
    /// 1 in token rows, 0 in others.
    tokens: V,
    /// 1 over the number of token rows of a text; none before [`PackedRows::lifted`], when both are one vector.
    shares: Option<V>,
    /// For each vector of scores, 1 where the key is a token.
    keys: Vec<V>,
}

/// The factors that turn sums over the rows of texts into means.
#[derive(Clone, Copy)]
pub enum Shares<'a, V> {
    /// None: the sums are answers already.
    One,
    /// The numbers of tokens of the texts, to divide by.
    Known(&'a [usize]),
    /// The encrypted token rows, and 1 over their number in all places of a text.
    Hidden {
        /// 1 in token rows.
        tokens: &'a V,
        /// 1 over their number.
        shares: &'a V,
    },
}

/// A choice of rows of every text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All rows, including padding.
    All,
    /// Token rows.
    Tokens,
    /// Token rows but the first, whose results some layers replace by constants.
    Later,
    /// The first row, in places with a text.
    First,
    /// The last row of all texts, where a decoder's texts end.
    Last,
}

impl<V> PackedRows<V> {
    /// Texts with these numbers of tokens; places without a text have none.
    ///
    /// # Errors
    /// [`PackingError`] for too many texts, or a text longer than the rows.
    pub fn new(layout: Layout, mut lengths: Vec<usize>) -> Result<Self, PackingError> {
        let (texts, room, rows) = (lengths.len(), layout.texts(), layout.rows());
        if texts > room {
            let slots = layout.slots();
            return Err(PackingError::TooMany { texts, room, slots, rows });
        }
        if let Some(text) = lengths.iter().position(|&l| l > rows) {
            let found = lengths[text];
            return Err(PackingError::RowCount { text, found, rows });
        }
        lengths.resize(room, 0);
        Ok(Self { layout, lengths, hidden: None })
    }

    /// Texts in all places, with their token rows given only by two encrypted vectors: `sent` is half of
    /// [`super::pool::hidden_rows`], as a pair.
    pub fn private(layout: Layout, sent: V) -> Self {
        Self {
            layout,
            lengths: vec![layout.rows(); layout.texts()],
            hidden: Some(Hidden { tokens: sent, shares: None, keys: Vec::new() }),
        }
    }

    /// The same, ready for layers: if lengths are private, their vectors are refreshed if they have fewer than `limbs`
    /// primes, and the masks of keys are made from them, a level above scores with `scores` primes.
    ///
    /// # Errors
    /// Those of a refresh; too few levels, a missing key.
    pub(crate) fn lifted<S: Slots<Value = V>>(
        self,
        on: &S,
        heads: &Heads,
        [limbs, scores]: [usize; 2],
    ) -> Result<Self, FheError> {
        let Some(Hidden { tokens: sent, .. }) = self.hidden else {
            return Ok(self);
        };
        let id = StepId::outside(REAL_ROWS);
        on.at(id);
        let mut parts = Vec::from(on.parts(&on.read_as(sent, 2.0)?)?);
        if parts.iter().any(|part| on.limbs(part) < limbs) {
            parts = on.refresh(id, parts, limbs)?;
        }
        let shares = parts.pop();
        let tokens = parts.pop().ok_or(PackingError::Mismatch)?;
        let low = on.drop_to(&tokens, above_by(on, scores, 2)?)?;
        let keys = keys_of_scores(on, heads, &low)?;
        Ok(Self { hidden: Some(Hidden { tokens, shares, keys }), ..self })
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// For each vector of scores, 1 where the key of a slot is a token; only if lengths are private, when plaintext
    /// vectors say that all keys are tokens.
    pub fn keys(&self) -> Option<&[V]> {
        self.hidden.as_ref().map(|hidden| hidden.keys.as_slice())
    }

    /// The factors that turn sums over the rows of a text into means.
    pub fn shares(&self) -> Shares<'_, V> {
        let hidden = self.hidden.as_ref();
        match hidden.and_then(|h| Some((&h.tokens, h.shares.as_ref()?))) {
            Some((tokens, shares)) => Shares::Hidden { tokens, shares },
            None => Shares::Known(&self.lengths),
        }
    }

    /// Whether only the encrypted vector says which rows these are.
    pub fn hides(&self, kept: Kept) -> bool {
        self.hidden_tokens(kept).is_some()
    }

    /// The encrypted vector, if it alone says which rows these are.
    fn hidden_tokens(&self, kept: Kept) -> Option<&V> {
        let hidden = self.hidden.as_ref();
        let hidden = hidden.filter(|_| matches!(kept, Kept::Tokens | Kept::Later));
        hidden.map(|hidden| &hidden.tokens)
    }

    /// The number of tokens of a text; if lengths are private, all rows.
    pub fn length(&self, text: usize) -> usize {
        self.lengths.get(text).copied().unwrap_or(0)
    }

    /// Whether a row is one of these, or may be if lengths are private.
    pub fn holds(&self, kept: Kept, text: usize, row: usize) -> bool {
        let token = row < self.length(text);
        match kept {
            Kept::All => true,
            Kept::Tokens => token,
            Kept::Later => token && row > 0,
            Kept::First => token && row == 0,
            Kept::Last => row + 1 == self.layout.rows(),
        }
    }

    /// x times `number(place)` in these rows, 0 in others: one level below x, at scale `target`.
    ///
    /// # Errors
    /// Too few levels.
    pub fn times<S: Slots<Value = V>>(
        &self,
        on: &S,
        x: &V,
        (kept, number): (Kept, impl Fn(usize) -> f64),
        target: Scale,
    ) -> Result<V, FheError> {
        let mask = self.numbers(on, |text, row, place| match self.holds(kept, text, row) {
            true => number(place),
            false => 0.0,
        });
        times_both(on, x, self.hidden_tokens(kept), &mask, target)
    }

    /// x + plaintext `pairs` in these rows; the pairs are 0 in rows known to be others.
    ///
    /// # Errors
    /// Too few levels.
    pub fn plus<S: Slots<Value = V>>(&self, on: &S, x: V, (kept, pairs): (Kept, &[Complex64])) -> Result<V, FheError> {
        plus_both(on, x, self.hidden_tokens(kept), pairs)
    }

    /// x − `number` in these rows if only the encrypted vector says which they are; x if they are known.
    ///
    /// # Errors
    /// Too few levels.
    pub fn less_where_hidden<S: Slots<Value = V>>(
        &self,
        on: &S,
        mut x: V,
        (kept, number): (Kept, f64),
    ) -> Result<V, FheError> {
        if let Some(tokens) = self.hidden_tokens(kept) {
            let tokens = on.drop_to(tokens, above(on, on.limbs(&x))?)?;
            let numbers = self.numbers(on, |text, row, _| match self.holds(kept, text, row) {
                true => number,
                false => 0.0,
            });
            let taken = on.mul_vector(&tokens, &numbers, on.scale(&x))?;
            on.sub_assign(&mut x, &taken)?;
        }
        Ok(x)
    }

    /// `entry(text, row, place)` in every slot; empty if only shapes count.
    pub fn numbers<S: Slots>(&self, on: &S, entry: impl Fn(usize, usize, usize) -> f64) -> Vec<f64> {
        on.plain(|| self.each(&entry))
    }

    /// As [`PackedRows::numbers`], for pairs.
    pub fn pairs<S: Slots>(&self, on: &S, entry: impl Fn(usize, usize, usize) -> Complex64) -> Vec<Complex64> {
        on.plain_pairs(|| self.each(&entry))
    }

    /// In the order of slots: row, text, place.
    fn each<T>(&self, entry: &impl Fn(usize, usize, usize) -> T) -> Vec<T> {
        let (texts, places) = (self.layout.texts(), self.layout.columns());
        let slot = |slot: usize| {
            let (row, text) = (slot / places / texts, slot / places % texts);
            entry(text, row, slot % places)
        };
        (0..self.layout.slots()).map(slot).collect()
    }
}

/// x times plaintext `numbers`, and times `hidden` if given, which has one more level: one level below x, at scale
/// `target`.
///
/// # Errors
/// Too few levels.
pub(crate) fn times_both<S: Slots>(
    on: &S,
    x: &S::Value,
    hidden: Option<&S::Value>,
    numbers: &[f64],
    target: Scale,
) -> Result<S::Value, FheError> {
    let Some(hidden) = hidden else {
        return on.mul_vector(x, numbers, target);
    };
    let limbs = on.limbs(x);
    let scale = scale_of(target.value() * divisor(on, limbs)? / on.scale(x).value())?;
    let high = on.drop_to(hidden, above(on, limbs)?)?;
    product(on, x, &on.mul_vector(&high, numbers, scale)?)
}

/// x + plaintext `pairs`, multiplied by `hidden` if given, which has one more level than x.
///
/// # Errors
/// Too few levels.
pub(crate) fn plus_both<S: Slots>(
    on: &S,
    mut x: S::Value,
    hidden: Option<&S::Value>,
    pairs: &[Complex64],
) -> Result<S::Value, FheError> {
    let Some(hidden) = hidden else {
        return on.add_pairs(x, pairs);
    };
    let high = on.drop_to(hidden, above(on, on.limbs(&x))?)?;
    let added = on.mul_pairs(&high, pairs, on.scale(&x))?;
    on.add_assign(&mut x, &added)?;
    Ok(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_padding_and_places_without_a_text_are_in_no_mask() {
        let layout = Layout::new(64, 4, 4).unwrap();
        let rows = PackedRows::<()>::new(layout, vec![3, 0, 1]).unwrap();
        let at = |kept, text| (0..4).filter(|&row| rows.holds(kept, text, row)).collect::<Vec<_>>();
        assert_eq!(at(Kept::Tokens, 0), [0, 1, 2]);
        assert_eq!(at(Kept::Later, 0), [1, 2]);
        assert_eq!(at(Kept::First, 0), [0]);
        assert_eq!(at(Kept::First, 2), [0]);
        for text in [1, 3] {
            assert!(at(Kept::Tokens, text).is_empty() && at(Kept::First, text).is_empty());
            assert_eq!(at(Kept::All, text).len(), 4);
        }
        let slots = rows.each(&|text, row, place| (text, row, place));
        for (slot, &(text, row, place)) in slots.iter().enumerate() {
            assert_eq!(layout.slot(text, row, place), slot);
        }
        assert!(matches!(PackedRows::<()>::new(layout, vec![5]), Err(PackingError::RowCount { found: 5, .. })));
        assert!(PackedRows::<()>::new(layout, vec![1; 5]).is_err());
    }
}
