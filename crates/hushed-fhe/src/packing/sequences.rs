//! Sequence packing: several texts in the rows of one place of a batch, one after another from row 0 on.
//!
//! A place is named by the lengths of its texts alone: where a text begins follows from those before it, so that texts
//! cannot overlap. Lengths are listed by place and then by number in the place, [`SequencePacking::most`] a place, with
//! 0 where there is no text.

use std::collections::BTreeMap;

use super::PackingError;

/// Texts in the rows of the places of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SequencePacking {
    most: usize,
    lengths: Vec<usize>,
    rows: usize,
    /// By place and row.
    texts: Vec<TextOfRow>,
}

/// The text that a row belongs to. Rows after the last text of a place count as rows of it, without a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextOfRow {
    /// Its number in the place.
    pub number: usize,
    /// Its first row.
    pub first: usize,
    /// Its tokens; 0 in a place without a text.
    pub length: usize,
}

impl TextOfRow {
    /// Whether a row of the place is one of its tokens.
    #[must_use]
    pub fn has(&self, row: usize) -> bool {
        row.checked_sub(self.first).is_some_and(|row| row < self.length)
    }
}

impl SequencePacking {
    /// At most `most` texts in the `rows` rows of a place.
    ///
    /// # Errors
    /// As [`check`].
    pub fn new(rows: usize, most: usize, lengths: Vec<usize>) -> Result<SequencePacking, PackingError> {
        check(rows, most, &lengths)?;
        let mut texts = vec![TextOfRow::default(); lengths.len() / most * rows];
        for (place, lengths) in texts.chunks_exact_mut(rows.max(1)).zip(lengths.chunks_exact(most)) {
            let mut first = 0;
            for (number, &length) in lengths.iter().enumerate().take_while(|(_, length)| **length > 0) {
                // Up to the end of the place: the next text overwrites.
                let rest = place.get_mut(first..).unwrap_or_default();
                rest.fill(TextOfRow { number, first, length });
                first += length;
            }
        }
        Ok(SequencePacking { most, lengths, rows, texts })
    }

    /// One text in each place, with room for `most`.
    ///
    /// # Errors
    /// As [`check`].
    pub fn one_each(rows: usize, most: usize, lengths: &[usize]) -> Result<SequencePacking, PackingError> {
        let rest = most.saturating_sub(1);
        let of_place = |&length: &usize| std::iter::once(length).chain(std::iter::repeat_n(0, rest));
        SequencePacking::new(rows, most, lengths.iter().flat_map(of_place).collect())
    }

    /// Most texts in a place.
    #[must_use]
    pub fn most(&self) -> usize {
        self.most
    }

    /// The tokens of the texts of all places.
    #[must_use]
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Places.
    #[must_use]
    pub fn places(&self) -> usize {
        self.lengths.len() / self.most
    }

    /// The text of a row; one of length 0 in a place without a text, or beyond the last place.
    #[must_use]
    pub fn text_of(&self, place: usize, row: usize) -> TextOfRow {
        let at = (row < self.rows).then_some(place * self.rows + row);
        at.and_then(|at| self.texts.get(at)).copied().unwrap_or_default()
    }

    /// Whether a place has a text of this number.
    #[must_use]
    pub fn has(&self, place: usize, number: usize) -> bool {
        let at = (number < self.most).then_some(place * self.most + number);
        at.and_then(|at| self.lengths.get(at)).is_some_and(|&length| length > 0)
    }
}

/// Checks the lengths of the texts of places with `rows` rows.
///
/// # Errors
/// [`PackingError::RowCount`] for a place whose texts have more rows than it, [`PackingError::Mismatch`] for no texts a
/// place, a list that does not end with a place, or a text after a missing one.
pub fn check(rows: usize, most: usize, lengths: &[usize]) -> Result<(), PackingError> {
    if most == 0 || !lengths.len().is_multiple_of(most) {
        return Err(PackingError::Mismatch);
    }
    for (place, lengths) in lengths.chunks_exact(most).enumerate() {
        let found = lengths.iter().fold(0, |sum: usize, &length| sum.saturating_add(length));
        if found > rows {
            return Err(PackingError::RowCount { text: place, found, rows });
        }
        let there = lengths.iter().take_while(|length| **length > 0).count();
        if lengths.iter().skip(there).any(|&length| length > 0) {
            return Err(PackingError::Mismatch);
        }
    }
    Ok(())
}

/// Texts in the places of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arranged {
    /// The tokens of the texts of each place, as in [`SequencePacking`].
    pub lengths: Vec<usize>,
    /// Where each text is in this list.
    pub texts: Vec<usize>,
}

/// Puts texts of these numbers of tokens into places of `rows` rows, at most `most` into one ([`places_of`]). With one
/// text a place they keep their order.
///
/// # Errors
/// [`PackingError::Places`] for texts that take more than `places` places, [`PackingError::RowCount`] for a text that
/// is longer than a place, [`PackingError::Mismatch`] for no texts a place.
pub fn arranged(rows: usize, most: usize, places: usize, tokens: &[usize]) -> Result<Arranged, PackingError> {
    let mut of = places_of(rows, most, tokens)?;
    if most == 1 {
        of = (0..tokens.len()).collect();
    }
    let found = of.iter().map(|place| place + 1).max().unwrap_or(0);
    if found > places {
        return Err(PackingError::Places { found, room: places, rows });
    }
    let mut lengths = vec![0; places.saturating_mul(most)];
    let mut there = vec![0; places];
    let mut texts = Vec::with_capacity(tokens.len());
    for (&place, &length) in of.iter().zip(tokens) {
        let number = there.get_mut(place).ok_or(PackingError::Mismatch)?;
        let at = place * most + *number;
        *number += 1;
        *lengths.get_mut(at).ok_or(PackingError::Mismatch)? = length;
        texts.push(at);
    }
    Ok(Arranged { lengths, texts })
}

/// Texts like these, with as many tokens, that `places` places hold.
///
/// # Errors
/// As [`places_of`]; [`PackingError::Mismatch`] for no texts.
pub fn texts_a_batch(rows: usize, most: usize, places: usize, tokens: &[usize]) -> Result<usize, PackingError> {
    let needed = places_of(rows, most, tokens)?.into_iter().max().ok_or(PackingError::Mismatch)? + 1;
    Ok(tokens.len().saturating_mul(places) / needed)
}

/// A place for each text, counted from 0: the longest first, each into the fullest place that has rows for it, or into
/// a new one (best fit decreasing: at most 11/9 of the fewest places, and one). Texts of equal length keep their order.
///
/// # Errors
/// [`PackingError::RowCount`] for a text that is longer than a place, [`PackingError::Mismatch`] for no texts a place.
pub fn places_of(rows: usize, most: usize, lengths: &[usize]) -> Result<Vec<usize>, PackingError> {
    if most == 0 {
        return Err(PackingError::Mismatch);
    }
    if let Some((text, &found)) = lengths.iter().enumerate().find(|(_, length)| **length > rows) {
        return Err(PackingError::RowCount { text, found, rows });
    }
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&text| std::cmp::Reverse(lengths.get(text)));
    // Places with room for a text more, by the rows they have left: (place, texts in it).
    let mut open: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
    let mut places = vec![0; lengths.len()];
    let mut next = 0;
    for text in order {
        let length = lengths.get(text).copied().unwrap_or(0).max(1);
        let fullest = open.range_mut(length..).next();
        let found = fullest.and_then(|(&left, places)| Some((left, places.pop()?)));
        let (left, (place, texts)) = found.unwrap_or_else(|| {
            next += 1;
            (rows, (next - 1, 0))
        });
        if open.get(&left).is_some_and(Vec::is_empty) {
            open.remove(&left);
        }
        if let Some(at) = places.get_mut(text) {
            *at = place;
        }
        if texts + 1 < most && left > length {
            open.entry(left - length).or_default().push((place, texts + 1));
        }
    }
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_belongs_to_the_last_text_that_begins_before_it() {
        let packing = SequencePacking::new(8, 3, vec![3, 4, 0, 0, 0, 0, 2, 1, 5]).unwrap();
        assert_eq!((packing.places(), packing.most()), (3, 3));
        let text = |number, first, length| TextOfRow { number, first, length };
        let rows = |place: usize| (0..8).map(|row| packing.text_of(place, row)).collect::<Vec<_>>();
        let [a, b] = [text(0, 0, 3), text(1, 3, 4)];
        // The last row has no token.
        assert_eq!(rows(0), [a, a, a, b, b, b, b, b]);
        assert!(b.has(3) && b.has(6) && !b.has(7) && !b.has(2));
        assert_eq!(rows(1), [TextOfRow::default(); 8]);
        assert!(!packing.text_of(1, 0).has(0));
        let [c, d, e] = [text(0, 0, 2), text(1, 2, 1), text(2, 3, 5)];
        assert_eq!(rows(2), [c, c, d, e, e, e, e, e]);
        assert!(packing.has(2, 2) && !packing.has(0, 2) && !packing.has(3, 0) && !packing.has(0, 3));
        // Beyond the places and the rows.
        assert_eq!(packing.text_of(3, 0), TextOfRow::default());
        assert_eq!(packing.text_of(0, 8), TextOfRow::default());
        let one = SequencePacking::one_each(8, 3, &[5, 0, 8]).unwrap();
        assert_eq!(one.lengths(), [5, 0, 0, 0, 0, 0, 8, 0, 0]);
    }

    #[test]
    fn texts_that_do_not_fit_a_place_are_refused() {
        let refused = |rows, most, lengths: &[usize]| check(rows, most, lengths).err();
        assert_eq!(refused(8, 2, &[4, 4, 8, 0, 0, 0]), None);
        let long = PackingError::RowCount { text: 1, found: 9, rows: 8 };
        assert_eq!(refused(8, 2, &[4, 4, 8, 1]), Some(long));
        let all = PackingError::RowCount { text: 0, found: usize::MAX, rows: 8 };
        assert_eq!(refused(8, 2, &[usize::MAX, usize::MAX]), Some(all));
        // A text after a missing one, a place that is not whole, and no texts a place.
        assert_eq!(refused(8, 2, &[0, 4]), Some(PackingError::Mismatch));
        assert_eq!(refused(8, 2, &[4, 4, 4]), Some(PackingError::Mismatch));
        assert_eq!(refused(8, 0, &[]), Some(PackingError::Mismatch));
    }

    #[test]
    fn the_longest_texts_come_first_and_fill_places() {
        assert_eq!(places_of(8, 4, &[2, 5, 3, 6, 8, 2]).unwrap(), [1, 2, 2, 1, 0, 3]);
        // One text a place keeps the order of texts of equal length.
        assert_eq!(places_of(8, 1, &[3, 3, 3]).unwrap(), [0, 1, 2]);
        // No more than two a place.
        assert_eq!(places_of(8, 2, &[2, 2, 2]).unwrap(), [0, 0, 1]);
        assert!(matches!(places_of(8, 2, &[2, 9]), Err(PackingError::RowCount { text: 1, found: 9, rows: 8 })));
        assert_eq!(places_of(8, 0, &[]), Err(PackingError::Mismatch));
    }

    #[test]
    fn texts_are_found_where_they_were_put() {
        let tokens = [2, 5, 3, 6, 8, 2];
        let found = arranged(8, 3, 5, &tokens).unwrap();
        assert_eq!(found.lengths, [8, 0, 0, 2, 6, 0, 5, 3, 0, 2, 0, 0, 0, 0, 0]);
        assert!(found.texts.iter().zip(&tokens).all(|(&at, &length)| found.lengths[at] == length));
        let refused = PackingError::Places { found: 4, room: 3, rows: 8 };
        assert_eq!(arranged(8, 3, 3, &tokens), Err(refused));
        // A batch of ten places has room for fifteen like them.
        assert_eq!(texts_a_batch(8, 3, 10, &tokens).unwrap(), 15);
        assert!(texts_a_batch(8, 3, 10, &[]).is_err());
        // Alone, in their order.
        assert_eq!(arranged(8, 1, 6, &tokens).unwrap().lengths, tokens);
    }

    /// Whatever the lengths: nothing overlaps, and all but one place are more than half full if only rows limit them.
    #[test]
    fn packed_texts_never_overlap() {
        let mut state = 7_u64;
        let mut random = move |most: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % most
        };
        for (rows, most) in [(16, 16), (16, 3), (128, 8), (4, 1)] {
            let lengths: Vec<usize> = (0..200).map(|_| 1 + random(rows)).collect();
            let places = places_of(rows, most, &lengths).unwrap();
            let count = places.iter().max().unwrap() + 1;
            let mut of = vec![Vec::new(); count];
            places.iter().zip(&lengths).for_each(|(&place, &length)| of[place].push(length));
            assert!(of.iter().all(|texts| texts.len() <= most && texts.iter().sum::<usize>() <= rows));
            assert_eq!(of.iter().map(Vec::len).sum::<usize>(), lengths.len());
            if most == rows {
                assert!(of.iter().filter(|texts| 2 * texts.iter().sum::<usize>() <= rows).count() <= 1);
            }
        }
    }
}
