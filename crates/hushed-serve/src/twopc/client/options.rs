//! How texts are put into passes, and what the server learns from it.

use std::cmp::Reverse;

use hushed_model::{Item, TokenIds, TooLong};
use hushed_mpc::Terms;

use crate::error::ServeError;
use crate::twopc::wire::MAX_PASS_TEXTS;

/// How to run texts. [`TooLong`] alone stands for one text at a time without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// What to do with a text of more tokens than the model accepts.
    pub too_long: TooLong,
    /// Pads every text to a multiple of this many tokens (or to the longest text that the server takes), which is then
    /// all that the server learns of its length. `None` pads nothing.
    pub bucket: Option<usize>,
    /// Maximum number of consecutive texts that share a pass; fewer if the server's limit requires. Texts of the same
    /// padded length share most.
    pub batch: usize,
    /// Fetches the table of token vectors, if the server's operator has made it public, and looks tokens up in it: the
    /// lookup then costs nothing. The table is kept in [`crate::ClientConfig::cache_dir`].
    pub public_table: bool,
    /// For how many texts at a time products are [made](super::Client::make_ahead) before they are run, at most as many
    /// as the server holds; no more share a pass. 0 makes none. Of images and searches, none are.
    pub ahead: u16,
}

impl Default for Options {
    fn default() -> Self {
        TooLong::default().into()
    }
}

impl From<TooLong> for Options {
    fn from(too_long: TooLong) -> Self {
        Self { too_long, bucket: None, batch: 1, public_table: false, ahead: 0 }
    }
}

impl Options {
    pub(in crate::twopc) fn check(&self) -> Result<(), ServeError> {
        if self.bucket == Some(0) {
            return Err(ServeError::EmptyOption { name: "the bucket" });
        }
        if self.batch == 0 {
            return Err(ServeError::EmptyOption { name: "the batch" });
        }
        Ok(())
    }

    pub(super) fn terms(&self) -> Terms {
        Terms { padded: self.bucket.is_some(), public_table: self.public_table }
    }

    /// Pads a text as it will be run; `limit` is the length of the longest.
    pub(super) fn pad(&self, ids: TokenIds, padding_id: u32, limit: usize) -> TokenIds {
        match self.bucket {
            Some(bucket) => {
                let tokens = ids.rows().real;
                ids.pad_to(tokens.div_ceil(bucket).saturating_mul(bucket).min(limit), padding_id)
            }
            None => ids,
        }
    }

    /// How many of the remaining texts share the next pass: at least one, if any are left.
    pub(super) fn next_pass(&self, texts: &[Item], most_rows: usize) -> usize {
        let mut rows = 0;
        let most = self.batch.min(MAX_PASS_TEXTS);
        let fits = texts.iter().take(most).take_while(|text| {
            rows += text.rows().total;
            rows <= most_rows
        });
        fits.count().max(1).min(texts.len())
    }
}

/// The texts by decreasing length, with their places in the given list. Texts of equal length keep their order.
pub(in crate::twopc) fn longest_first(ids: Vec<TokenIds>) -> (Vec<usize>, Vec<TokenIds>) {
    let mut placed: Vec<(usize, TokenIds)> = ids.into_iter().enumerate().collect();
    placed.sort_by_key(|(_, text)| Reverse(text.rows().total));
    placed.into_iter().unzip()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tokens: usize) -> TokenIds {
        TokenIds::new(vec![1; tokens])
    }

    #[test]
    fn lengths_are_rounded_up_and_never_beyond_the_limit() {
        let bucket = |bucket, tokens| {
            let options = Options { bucket: Some(bucket), ..Options::default() };
            options.pad(text(tokens), 0, 50).rows().total
        };
        assert_eq!((bucket(16, 3), bucket(16, 16), bucket(16, 17)), (16, 16, 32));
        assert_eq!((bucket(16, 49), bucket(usize::MAX, 3)), (50, 50));
        assert_eq!(Options::default().pad(text(3), 0, 50).rows().total, 3);
    }

    #[test]
    fn passes_take_what_fits() {
        let options = Options { batch: 3, ..Options::default() };
        let texts = [5, 5, 5, 5].map(|tokens| Item::from(text(tokens)));
        assert_eq!(options.next_pass(&texts, 100), 3);
        assert_eq!(options.next_pass(&texts, 10), 2);
        assert_eq!(options.next_pass(&texts, 4), 1);
        assert_eq!(options.next_pass(&texts[3..], 100), 1);
        assert_eq!(options.next_pass(&[], 100), 0);
        let huge = Options { batch: usize::MAX, ..options };
        assert_eq!(huge.next_pass(&vec![text(1).into(); 300], 1000), MAX_PASS_TEXTS);
    }

    #[test]
    fn the_longest_come_first_and_equal_lengths_keep_their_order() {
        let texts = [3, 5, 3, 9, 5].map(text);
        let (order, sorted) = longest_first(texts.to_vec());
        assert_eq!(order, [3, 1, 4, 0, 2]);
        let lengths: Vec<usize> = sorted.iter().map(|t| t.rows().total).collect();
        assert_eq!(lengths, [9, 5, 5, 3, 3]);
    }
}
