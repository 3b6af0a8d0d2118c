//! Texts and pairs of texts as tokens, and the scores of pairs.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::{Task, TextError, TokenIds, Tokenizer, TooLong};
use hushed_mpc::logits;

use super::options::longest_first;
use super::{Answered, Client, Offer, OnProgress, Options};
use crate::error::ServeError;

/// The score of a text or pair by a classifier's head of one number. No `Debug`: it is private.
#[derive(Clone, Copy, PartialEq)]
pub struct Score {
    /// The number itself, rounded as it was opened.
    pub logit: f64,
    /// What the model's folder makes of it: σ of it, unless it says otherwise.
    pub value: f64,
}

impl Offer {
    /// The tokens of texts that are to be embedded, padded as `options` say, if a session would run them.
    ///
    /// # Errors
    /// [`ServeError::Text`] and similar errors, with the index of the text; the refusal of another task.
    pub fn texts_to_embed<S: AsRef<str>>(&self, texts: &[S], options: &Options) -> Result<Vec<TokenIds>, ServeError> {
        self.embeds()?;
        self.checked(texts.len(), options)?;
        self.tokens(texts, options)
    }

    /// The same for texts that are to be classified.
    ///
    /// # Errors
    /// As [`Offer::texts_to_embed`].
    pub fn texts_to_classify<S: AsRef<str>>(
        &self,
        texts: &[S],
        options: &Options,
    ) -> Result<Vec<TokenIds>, ServeError> {
        self.labels()?;
        self.checked(texts.len(), options)?;
        self.tokens(texts, options)
    }

    /// The same for pairs that are to be scored.
    ///
    /// # Errors
    /// As [`Offer::texts_to_embed`]; [`ServeError::NoScores`] for a classifier of several classes,
    /// [`TextError::NoPairs`] for a model that reads none.
    pub fn pairs_to_score<S: AsRef<str>>(
        &self,
        pairs: &[[S; 2]],
        options: &Options,
    ) -> Result<Vec<TokenIds>, ServeError> {
        self.check_scores()?;
        self.checked(pairs.len(), options)?;
        self.pair_tokens(pairs, options)
    }

    /// Checks the number of texts or images, and what does not depend on them.
    pub(super) fn checked(&self, texts: usize, options: &Options) -> Result<(), ServeError> {
        options.check()?;
        match self.max_texts() {
            limit if texts > limit => Err(ServeError::TooManyTexts { texts, limit }),
            _ => Ok(()),
        }
    }

    /// Checks that the server's model gives embeddings.
    pub(super) fn embeds(&self) -> Result<(), ServeError> {
        match self.public().task() {
            Task::Embed => Ok(()),
            _ => Err(self.other_task()),
        }
    }

    pub(super) fn labels(&self) -> Result<Vec<String>, ServeError> {
        match self.public().labels() {
            Some(names) if self.public().task() == Task::Classify => Ok(names.to_vec()),
            _ => Err(self.other_task()),
        }
    }

    /// The token ids of every text, padded as `options` say.
    ///
    /// # Errors
    /// [`ServeError::Text`] and [`ServeError::TextAboveLimit`], with the index of the text; as [`Offer::allows`].
    pub fn tokens<S: AsRef<str>>(&self, texts: &[S], options: &Options) -> Result<Vec<TokenIds>, ServeError> {
        let encode =
            |tokenizer: &Tokenizer, text: &S, limit, too_long| tokenizer.encode(text.as_ref(), limit, too_long);
        self.encoded(texts, options, encode)
    }

    /// The token ids of every pair, likewise: each is one input of the model.
    ///
    /// # Errors
    /// As [`Offer::tokens`], with the index of the pair; [`TextError::NoPairs`] for a model that reads none.
    pub fn pair_tokens<S: AsRef<str>>(&self, pairs: &[[S; 2]], options: &Options) -> Result<Vec<TokenIds>, ServeError> {
        self.encoded(pairs, options, |tokenizer, [first, second], limit, too_long| {
            tokenizer.encode_pair([first.as_ref(), second.as_ref()], limit, too_long)
        })
    }

    fn encoded<T>(
        &self,
        items: &[T],
        options: &Options,
        encode: impl Fn(&Tokenizer, &T, usize, TooLong) -> Result<TokenIds, TextError>,
    ) -> Result<Vec<TokenIds>, ServeError> {
        self.allows(options.ahead, 0)?;
        let too_long = options.too_long;
        let public = self.public();
        let limit = self.max_tokens();
        let one = |(index, item)| {
            let (own, theirs) = match too_long {
                TooLong::Cut | TooLong::CutLeft => (limit, limit),
                TooLong::Refuse => (public.max_tokens, limit),
            };
            let refused = |source| ServeError::Text { index, source };
            let tokenizer = public.tokenizer().map_err(refused)?;
            let ids = encode(tokenizer, item, own, too_long).map_err(refused)?;
            let tokens = ids.rows().total;
            if tokens > theirs {
                return Err(ServeError::TextAboveLimit { index, tokens, limit });
            }
            Ok(options.pad(ids, tokenizer.padding_id(), limit))
        };
        items.iter().enumerate().map(one).collect()
    }

    /// Checks that the server's model gives scores.
    ///
    /// # Errors
    /// [`ServeError::NoScores`], or for a model that is no classifier the refusal of another task.
    pub fn check_scores(&self) -> Result<(), ServeError> {
        match self.public().labels() {
            _ if self.public().task() != Task::Classify => Err(self.other_task()),
            Some([_]) => Ok(()),
            labels => Err(ServeError::NoScores { numbers: labels.map_or(0, <[String]>::len) }),
        }
    }
}

impl Client {
    /// The scores of the pairs, in their order. All pairs are checked before the first is run; then the longest run
    /// first, so that pairs of one length share a pass.
    ///
    /// # Errors
    /// [`ServeError::NoScores`] for a classifier of several classes; [`TextError::NoPairs`]; as [`Client::embed`].
    pub fn scores<S: AsRef<str>>(
        &mut self,
        pairs: &[[S; 2]],
        options: impl Into<Options>,
        progress: Option<OnProgress>,
    ) -> Result<Vec<Answered<Score>>, ServeError> {
        let options = options.into();
        let ids = self.pairs_to_score(pairs, &options)?;
        self.enough_left(&ids)?;
        let (order, ids) = longest_first(ids);
        let mut found: Vec<Option<Answered<Score>>> = order.iter().map(|_| None).collect();
        self.score_tokens(&ids, &options, progress, |index, score| {
            if let Some(place) = order.get(index).and_then(|&at| found.get_mut(at)) {
                *place = Some(score);
            }
        })?;
        found.into_iter().collect::<Option<_>>().ok_or(ServeError::NoAnswer)
    }

    /// Hands out the score of each output of [`Offer::tokens`] or [`Offer::pair_tokens`], at most
    /// [`Client::texts_left`], with its index, as it comes.
    ///
    /// # Errors
    /// As [`Client::scores`].
    pub fn score_tokens(
        &mut self,
        ids: &[TokenIds],
        options: &Options,
        progress: Option<OnProgress>,
        mut each: impl FnMut(usize, Answered<Score>),
    ) -> Result<(), ServeError> {
        self.check_scores()?;
        let function = self.public().score;
        self.each_of(ids, options, progress, &logits, |index, answer| {
            let score = |row: Vec<f64>| {
                let logit = row.first().copied().unwrap_or(f64::NAN);
                Score { logit, value: function.of(logit) }
            };
            each(index, answer.made(score));
        })
    }
}
