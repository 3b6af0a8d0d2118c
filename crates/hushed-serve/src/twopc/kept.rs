//! A session that is kept between calls, for callers that come back with texts to classify or to continue, or with
//! queries. (An [`Encoder`](crate::Encoder) does the same for embeddings.)
//!
//! It is renewed at the server's limit on texts, and after [`IDLE`] without work; a failed session is not used again.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hushed_model::{Public, Task, TokenIds};
use hushed_mpc::{Answers, Wanted};
use hushed_net::NetError;

use super::client::{Class, Client, Found, Options, after_whole_passes, longest_first};
use super::encoder::IDLE;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::connect::{BundlePin, ClientConfig};
use crate::twopc::wire::MAX_TOP;

/// A session kept between calls.
pub struct Kept {
    config: ClientConfig,
    public: Public,
    bundle: Digest,
    max_tokens: usize,
    max_texts: usize,
    documents: usize,
    answers: Answers,
    client: Option<Client>,
    process: u32,
}

impl Kept {
    /// Connects, so that a wrong address, pin or token, or a model for another task, shows at once.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn open(config: ClientConfig, task: Task) -> Result<Self, ServeError> {
        let greeted = Client::greet(&config)?;
        if greeted.public().task() != task {
            return Err(greeted.other_task());
        }
        let client = greeted.establish()?;
        let mut kept = Self {
            config,
            public: client.public().clone(),
            bundle: client.bundle_hash(),
            max_tokens: client.max_tokens(),
            max_texts: client.texts_left(),
            documents: client.documents(),
            answers: client.answers(),
            client: Some(client),
            process: std::process::id(),
        };
        // Later sessions are with the same model, or refused.
        let pin = BundlePin::Hash(kept.bundle);
        kept.config.bundle.get_or_insert(pin);
        Ok(kept)
    }

    /// The public part of the server's model.
    #[must_use]
    pub fn public(&self) -> &Public {
        &self.public
    }

    /// Hash of the bundle.
    #[must_use]
    pub fn bundle(&self) -> Digest {
        self.bundle
    }

    /// Maximum tokens per text that model and server accept.
    #[must_use]
    pub fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Maximum texts, or tokens of an answer, per session.
    #[must_use]
    pub fn max_texts(&self) -> usize {
        self.max_texts
    }

    /// How many documents could be searched when the first session began.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.documents
    }

    /// What the server opened for each text or token when the first session began.
    #[must_use]
    pub fn answers(&self) -> Answers {
        self.answers
    }

    /// Runs `work` in a session that accepts `texts` more texts, if a fresh session does. After an error of the network
    /// or the server the session is over. If the kept session turns out to be over before a pass has begun, `work` is
    /// run once more, in another one.
    ///
    /// # Errors
    /// As [`Client::connect`], and those of `work`; `forked` in a process other than the one that opened it.
    pub fn run<T>(
        &mut self,
        texts: usize,
        mut work: impl FnMut(&mut Client) -> Result<T, ServeError>,
    ) -> Result<T, ServeError> {
        self.check_process()?;
        let kept = self.client.is_some();
        let mut client = self.session(texts)?;
        let (mut before, begun) = (client.stats().frames_sent, client.passes_begun());
        let mut done = work(&mut client);
        if let Err(error) = &done
            && kept
            && error.is_over()
            && client.passes_begun() == begun
        {
            client = self.session(texts)?;
            before = client.stats().frames_sent;
            done = work(&mut client);
        }
        // A text refused on this side has cost nothing.
        if done.is_ok() || client.stats().frames_sent == before {
            self.client = Some(client);
        }
        done
    }

    /// The class of each text, in order, over as many sessions as they need. All texts are checked before the first is
    /// run, so a refused one costs nothing. `stop` ends the call at its next step.
    ///
    /// # Errors
    /// As [`Kept::run`] and [`Client::classify_each`], with the index of the text among all.
    pub fn classify<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        options: &Options,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Class>, ServeError> {
        options.check()?;
        if texts.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.run(1, |client| client.tokens(texts, options))?;
        self.classes_of(&ids, options, stop)
    }

    /// The same for pairs of texts, of which the longest run first, so that pairs of one length share a pass.
    ///
    /// # Errors
    /// As [`Kept::classify`] and [`Client::pair_tokens`].
    pub fn classify_pairs<S: AsRef<str>>(
        &mut self,
        pairs: &[[S; 2]],
        options: &Options,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Class>, ServeError> {
        options.check()?;
        if pairs.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.run(1, |client| client.pair_tokens(pairs, options))?;
        let (order, ids) = longest_first(ids);
        let mut placed: Vec<(usize, Class)> = order.into_iter().zip(self.classes_of(&ids, options, stop)?).collect();
        placed.sort_by_key(|(place, _)| *place);
        Ok(placed.into_iter().map(|(_, class)| class).collect())
    }

    fn classes_of(
        &mut self,
        ids: &[TokenIds],
        options: &Options,
        stop: &Arc<AtomicBool>,
    ) -> Result<Vec<Class>, ServeError> {
        let (mut classes, mut fault) = (Vec::with_capacity(ids.len()), None);
        for part in ids.chunks(self.max_texts.max(1)) {
            let done = self.run(part.len(), |client| {
                client.stop_when(Arc::clone(stop));
                client.classify_tokens(part, options, None, |_, class| classes.push(class.values))
            });
            after_whole_passes(done, &mut fault)?;
        }
        fault.map_or(Ok(classes), Err)
    }

    /// The documents nearest to a query. `stop` ends the call at its next step.
    ///
    /// # Errors
    /// As [`Kept::run`] and [`Client::search`].
    pub fn search(
        &mut self,
        query: &str,
        wanted: Wanted,
        options: &Options,
        stop: &Arc<AtomicBool>,
    ) -> Result<Found, ServeError> {
        // The search itself reports what is wrong with `top`.
        let found = Wanted { top: wanted.top.min(self.documents).min(usize::from(MAX_TOP)), ..wanted };
        self.run(found.charge().min(self.max_texts), |client| {
            client.stop_when(Arc::clone(stop));
            client.search(query, wanted, options, None)
        })
    }

    /// Ends the session, if one is open; a later call opens another. In a forked process it does nothing.
    ///
    /// # Errors
    /// As [`Client::close`].
    pub fn close(&mut self) -> Result<(), ServeError> {
        if self.check_process().is_err() {
            return Ok(());
        }
        let client = self.client.take();
        client.map_or(Ok(()), |client| client.close().map(|_| ()))
    }

    fn check_process(&self) -> Result<(), ServeError> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(NetError::Forked.into()),
        }
    }

    fn session(&mut self, texts: usize) -> Result<Client, ServeError> {
        if let Some(client) = self.client.take() {
            // Since its last pass: a caller that takes a text's tokens slowly uses up the server's patience.
            if client.takes(texts) && client.used().elapsed() < IDLE {
                return Ok(client);
            }
            // All its answers have arrived.
            let _ = client.close();
        }
        Client::connect(&self.config)
    }
}

impl Drop for Kept {
    /// Tells the server that the session is over, so that it is not counted as a failed one.
    fn drop(&mut self) {
        let _ = self.close();
    }
}
