//! Which rows of a batch belong to which text.

use std::ops::Range;

/// The rows of one text: the first `real` are tokens, the rest up to `total` padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextRows {
    /// Tokens, including the first and last special ones.
    pub real: usize,
    /// Rows computed: `total ≥ real`.
    pub total: usize,
}

/// The rows of a batch, text after text.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Rows {
    texts: Vec<TextRows>,
}

impl Rows {
    /// Texts with these numbers of tokens, none padded.
    pub fn unpadded(tokens: &[usize]) -> Rows {
        Rows { texts: tokens.iter().map(|&m| TextRows { real: m, total: m }).collect() }
    }

    /// Texts with these rows; a `total` below `real` is raised to it.
    pub fn new(texts: impl IntoIterator<Item = TextRows>) -> Rows {
        let texts = texts.into_iter().map(|t| TextRows { real: t.real, total: t.total.max(t.real) }).collect();
        Rows { texts }
    }

    /// One row per text, as after pooling.
    pub fn pooled(&self) -> Rows {
        Rows { texts: vec![TextRows { real: 1, total: 1 }; self.texts.len()] }
    }

    /// The texts in order.
    pub fn texts(&self) -> &[TextRows] {
        &self.texts
    }

    /// All rows of the batch, padding included.
    pub fn total(&self) -> usize {
        self.texts.iter().map(|t| t.total).sum()
    }

    /// The rows of the longest text, padding included.
    pub fn longest(&self) -> usize {
        self.texts.iter().map(|t| t.total).max().unwrap_or(0)
    }

    /// For each text, its rows in the batch, padding included, and how many of them are tokens.
    pub fn blocks(&self) -> impl Iterator<Item = (Range<usize>, usize)> + '_ {
        self.texts.iter().scan(0, |start, t| {
            let block = *start..*start + t.total;
            *start = block.end;
            Some((block, t.real))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_one_another() {
        let rows =
            Rows::new([TextRows { real: 3, total: 3 }, TextRows { real: 2, total: 4 }, TextRows { real: 5, total: 0 }]);
        assert_eq!(rows.total(), 12);
        assert_eq!(rows.blocks().collect::<Vec<_>>(), [(0..3, 3), (3..7, 2), (7..12, 5)]);
        assert_eq!(rows.pooled().total(), 3);
    }
}
