//! What a server offers: its public model and its limits, which hold for every session.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::{Model, Public};
use hushed_mpc::{Answers, Link};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::wire::{PrefixFacts, PrefixKind, Refusal, Welcome};
use crate::twopc::wire::MAX_AHEAD;

/// What a server offers.
pub struct Offer {
    /// Shapes, without weights.
    pub(super) model: Model,
    bundle_hash: Digest,
    pub(super) welcome: Welcome,
    link: Link,
}

impl Offer {
    pub(super) fn new(model: Model, bundle_hash: Digest, welcome: Welcome, link: Link) -> Self {
        Self { model, bundle_hash, welcome, link }
    }

    /// The public part of the server's model.
    #[must_use]
    pub fn public(&self) -> &Public {
        &self.model.public
    }

    /// Hash of the bundle in use: what [`crate::BundlePin::Hash`] takes.
    #[must_use]
    pub fn bundle_hash(&self) -> Digest {
        self.bundle_hash
    }

    /// The link by which the forms of a session's steps are chosen.
    #[must_use]
    pub fn link(&self) -> Link {
        self.link
    }

    /// Maximum tokens per text that this server accepts.
    #[must_use]
    pub fn max_tokens(&self) -> usize {
        self.model.public.max_tokens.min(self.welcome.max_tokens as usize)
    }

    /// Maximum tokens per pass, padding included, over all its texts.
    #[must_use]
    pub fn max_pass_tokens(&self) -> usize {
        self.welcome.max_pass_tokens as usize
    }

    /// What the server opens for a text or image that is classified, or for a token.
    #[must_use]
    pub fn answers(&self) -> Answers {
        self.welcome.answers
    }

    /// What an answer counts as, in texts.
    #[must_use]
    pub fn charge(&self) -> usize {
        self.answers().charge(self.model.body.outputs()).max(1)
    }

    /// Maximum number of texts, or tokens of an answer, per session: fewer than the server's limit if each
    /// [answer](Offer::answers) counts as several.
    #[must_use]
    pub fn max_texts(&self) -> usize {
        self.welcome.max_texts as usize / self.charge()
    }

    /// The text that the operator puts before every text that is continued.
    #[must_use]
    pub fn public_prefix(&self) -> Option<PrefixFacts> {
        self.welcome.prefix.filter(|prefix| prefix.kind == PrefixKind::Text)
    }

    /// The public head with which texts may begin: the server runs these tokens in the clear.
    #[must_use]
    pub fn public_head(&self) -> Option<PrefixFacts> {
        self.welcome.prefix.filter(|prefix| prefix.kind != PrefixKind::Text)
    }

    /// The error for a server whose model has another task.
    pub(in crate::twopc) fn other_task(&self) -> ServeError {
        ServeError::Refused(Refusal::OtherTask { task: self.public().task() })
    }

    /// How many documents of this server can be searched.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.welcome.index.map_or(0, |i| i.documents as usize)
    }

    /// Whether the documents have texts to return.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.record_bytes() > 0
    }

    /// The length of each of these texts, padded with zeros.
    #[must_use]
    pub fn record_bytes(&self) -> usize {
        self.welcome.index.map_or(0, |i| i.record_bytes as usize)
    }

    /// Whether a search may ask for scores.
    #[must_use]
    pub fn gives_scores(&self) -> bool {
        self.welcome.index.is_some_and(|i| i.scores)
    }

    /// Checks that the server makes products ahead and accepts drafts, if any are asked for: as many as it allows are
    /// then [made](crate::Options::ahead) or [guessed](crate::GenerateOptions::draft).
    ///
    /// # Errors
    /// [`Refusal::TooFarAhead`] and [`Refusal::TooManyDrafts`] if the server has none at all.
    pub fn allows(&self, ahead: u16, draft: u16) -> Result<(), ServeError> {
        if ahead > 0 && self.welcome.max_ahead == 0 {
            return Err(none_ahead());
        }
        if draft > 0 && self.welcome.max_drafts == 0 {
            return Err(ServeError::Refused(Refusal::TooManyDrafts { limit: 0 }));
        }
        Ok(())
    }

    /// Maximum number of passes for which the server holds products.
    #[must_use]
    pub fn max_ahead(&self) -> u16 {
        self.welcome.max_ahead.min(MAX_AHEAD)
    }
}

/// The error for a server that makes nothing ahead.
pub(super) fn none_ahead() -> ServeError {
    ServeError::Refused(Refusal::TooFarAhead { limit: 0 })
}
