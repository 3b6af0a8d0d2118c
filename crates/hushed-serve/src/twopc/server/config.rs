//! The operator's settings for a server.

use std::path::PathBuf;

use hushed_mpc::{Answers, CHECKED_LAYERS};

use crate::error::ServeError;
use crate::session::config::Entrance;

/// The default maximum of tokens per pass, over all its texts.
pub const MAX_PASS_TOKENS: usize = 256;

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Address, identity, accepted clients.
    pub entrance: Entrance,
    /// The model folder.
    pub model: PathBuf,
    /// Maximum tokens per text, below the model's own limit.
    pub max_tokens: Option<usize>,
    /// Maximum tokens per pass, over all its texts; a single text is bounded by `max_tokens` alone.
    pub max_pass_tokens: usize,
    /// Maximum texts per session.
    pub max_texts: usize,
    /// Gives the table of token vectors to clients that ask for it. Every client that may connect can then have all of
    /// it, and their lookups cost nothing.
    pub public_table: bool,
    /// An index of documents that clients may search (`hushed index`).
    pub index: Option<PathBuf>,
    /// Opens the scores of the documents found to clients that ask for them; each counts as a text.
    pub search_scores: bool,
    /// What is opened for a text that is classified or continued; each place or logit counts as a text. `None`: what is
    /// usual for the model, a label or a token, or the score of a head of one number.
    pub answers: Option<Answers>,
    /// A public text that precedes every text that is continued; it is run once, in the clear.
    pub public_prefix: Option<PathBuf>,
    /// Without a public prefix: runs the tokens that texts begin with by the model's folder (its chat template, or the
    /// token that begins every text) once, in the clear. Texts that begin with them leave them out of private runs.
    pub public_head: bool,
    /// Maximum number of texts, or of later tokens, for which a session may have products made ahead, at most
    /// [`MAX_AHEAD`](crate::MAX_AHEAD); 0 makes none. Each takes memory while it waits (`hushed plan --ahead`).
    pub max_ahead: u16,
    /// Maximum drafts per pass, at most [`MAX_DRAFTS`](crate::MAX_DRAFTS); 0 accepts none. A pass gives one token per
    /// draft, which counts as a text, and takes memory for each.
    pub max_drafts: u16,
    /// Bytes that the process may use: what sessions may need is kept free, and the rest holds transformed weights. If
    /// the untransformed weights do not fit either, they are read from disk in every pass. `None` holds the weights,
    /// none of them transformed.
    pub max_memory: Option<u64>,
    /// The number of tokens for which transformed weights are held; `None`: 16, and 1 for a model that generates.
    pub ready_tokens: Option<usize>,
    /// Layers through which every token of the vocabulary is run in the clear before the server listens; 0: none. A
    /// model is refused if a token leaves the formats of a private run.
    pub vocabulary_layers: usize,
    /// The folder in which it is kept that this was found to be in order; `None` checks at every start.
    pub checks: Option<PathBuf>,
}

impl ServerConfig {
    /// A server for this machine alone: any free port of loopback, a development certificate, 4 sessions of 1,000
    /// texts.
    #[must_use]
    pub fn local(model: impl Into<PathBuf>, certificates: impl Into<PathBuf>) -> Self {
        Self {
            entrance: Entrance::local(certificates),
            model: model.into(),
            max_tokens: None,
            max_pass_tokens: MAX_PASS_TOKENS,
            max_texts: 1000,
            public_table: false,
            index: None,
            search_scores: false,
            answers: None,
            public_prefix: None,
            public_head: true,
            max_ahead: 0,
            max_drafts: 0,
            max_memory: None,
            ready_tokens: None,
            vocabulary_layers: CHECKED_LAYERS,
            checks: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ServeError> {
        let limits = [
            ("the number of tokens", self.max_tokens.unwrap_or(1)),
            ("the number of tokens of a pass", self.max_pass_tokens),
            ("the number of texts", self.max_texts),
            ("the number of ready tokens", self.ready_tokens.unwrap_or(1)),
        ];
        match limits.into_iter().find(|(_, limit)| *limit == 0) {
            Some((name, _)) => Err(ServeError::NothingAllowed { name }),
            None => Ok(()),
        }
    }
}
