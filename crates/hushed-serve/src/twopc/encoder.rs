//! Many texts over as many sessions as they need, for callers that come back: a library, a gateway.
//!
//! Texts are run longest first, so that texts of one length share a pass, and answered in their order. A session is
//! opened when texts come, kept for the next call, renewed at the server's limit on texts, and closed when nothing has
//! come for [`IDLE`], so that it does not take another client's place.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hushed_model::{Public, Similarity, Task, TooLong};
use hushed_mpc::RunError;
use hushed_net::{NetError, Stats};

use super::client::{Client, Embedding, OnProgress, Options, Progress, longest_first};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::connect::{BundlePin, ClientConfig};

/// How long a session without work is kept.
pub const IDLE: Duration = Duration::from_secs(30);

/// An encoder of texts. Clones share its session, one call at a time.
#[derive(Clone)]
pub struct Encoder {
    state: Arc<Mutex<State>>,
    facts: Arc<Facts>,
    public: Arc<Public>,
    /// The process that made it: the lock of a forked copy may be held by a thread that the copy does not have.
    process: u32,
}

/// What is public about the server's model. It holds for every session of an encoder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// Numbers per answer.
    pub width: usize,
    /// Maximum tokens per text that model and server accept.
    pub max_tokens: usize,
    /// The model's prompts by their names.
    pub prompts: BTreeMap<String, String>,
    /// How embeddings are compared.
    pub similarity: Similarity,
    /// Whether a text behind a prompt is answered as the published model answers it.
    pub pools_prompts: bool,
    /// Hash of the bundle.
    pub bundle: Digest,
}

/// How to follow a call and end it.
#[derive(Default)]
pub struct Watch {
    /// Called after every step.
    pub progress: Option<OnProgress>,
    /// Raised to end the call at its next step, with an error named `stopped`.
    pub stop: Arc<AtomicBool>,
}

/// Answers, and what they cost.
pub struct Encoded {
    /// In the order of the texts.
    pub answers: Vec<Embedding>,
    /// What the call cost.
    pub spent: Spent,
}

/// What left this machine for a call, and what came back. A session's set-up is charged to the first call that uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// What the server learned of each text: its tokens, padding included. In the order of the texts.
    pub rows: Vec<usize>,
    /// Passes over the model.
    pub passes: usize,
    /// Sessions that were set up.
    pub sessions: usize,
    /// Bytes of frames, client to server.
    pub bytes_sent: u64,
    /// Bytes of frames, server to client.
    pub bytes_received: u64,
    /// How often the client waited for the server.
    pub rounds: u64,
    /// Time spent setting up sessions.
    pub setup: Duration,
    /// Time spent in passes.
    pub time: Duration,
}

impl Encoder {
    /// Connects, so that a wrong address, pin or token is known at once.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn open(config: ClientConfig) -> Result<Self, ServeError> {
        let mut state = State { config, session: None, used: Instant::now(), watched: false };
        let open = state.session()?;
        let facts = Facts::of(&open.client);
        let public = open.client.public().clone();
        // Later sessions are with the same model, or refused.
        let pin = BundlePin::Hash(facts.bundle);
        state.config.bundle.get_or_insert(pin);
        state.session = Some(open);
        let encoder = Self {
            state: Arc::new(Mutex::new(state)),
            facts: Arc::new(facts),
            public: Arc::new(public),
            process: std::process::id(),
        };
        encoder.close_when_idle(&mut encoder.lock());
        Ok(encoder)
    }

    /// What is public about the server's model.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The tokens of texts as they are run, without padding. Nothing is sent.
    ///
    /// # Errors
    /// [`ServeError::Text`], with the index of the text.
    pub fn tokenize<S: AsRef<str>>(&self, texts: &[S], too_long: TooLong) -> Result<Vec<Vec<u32>>, ServeError> {
        let one = |(index, text): (usize, &S)| {
            let refused = |source| ServeError::Text { index, source };
            let tokenizer = self.public.tokenizer().map_err(refused)?;
            let ids = tokenizer.encode(text.as_ref(), self.facts.max_tokens, too_long);
            Ok(ids.map_err(refused)?.ids().to_vec())
        };
        texts.iter().enumerate().map(one).collect()
    }

    /// The answers to the texts, in their order. All texts are checked before the first is run, so a refused one costs
    /// nothing.
    ///
    /// # Errors
    /// As [`Client::embed`]; `forked` in a process other than the one that opened it. Most errors end the session; the
    /// next call opens another.
    pub fn encode<S: AsRef<str>>(&self, texts: &[S], options: Options, watch: Watch) -> Result<Encoded, ServeError> {
        self.check_process()?;
        options.check()?;
        let mut state = self.lock();
        if watch.stop.load(Ordering::Relaxed) {
            return Err(ServeError::Run(RunError::Stopped));
        }
        let encoded = state.encode(texts, &options, watch);
        state.used = Instant::now();
        self.close_when_idle(&mut state);
        encoded
    }

    /// Ends the session, if one is open; a later call opens another. In a forked process it does nothing: the session
    /// is its parent's.
    ///
    /// # Errors
    /// As [`Client::close`].
    pub fn close(&self) -> Result<(), ServeError> {
        if self.check_process().is_err() {
            return Ok(());
        }
        let open = self.lock().session.take();
        open.map_or(Ok(()), |open| open.client.close().map(|_| ()))
    }

    /// Checks that this process opened it.
    ///
    /// # Errors
    /// [`NetError::Forked`].
    pub fn check_process(&self) -> Result<(), ServeError> {
        match self.process == std::process::id() {
            true => Ok(()),
            false => Err(NetError::Forked.into()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Starts the thread that closes the session, unless there is one.
    fn close_when_idle(&self, state: &mut State) {
        if state.watched || state.session.is_none() {
            return;
        }
        let weak = Arc::downgrade(&self.state);
        let thread = thread::Builder::new().name("hushed idle".to_owned());
        // Without the thread, the server ends the session, later.
        state.watched = thread.spawn(move || close_after(&weak, IDLE)).is_ok();
    }
}

impl Facts {
    fn of(client: &Client) -> Self {
        let public: &Public = client.public();
        Self {
            width: public.config.width,
            max_tokens: client.max_tokens(),
            prompts: public.prompts.clone(),
            similarity: public.similarity,
            pools_prompts: public.pools_prompts,
            bundle: client.bundle_hash(),
        }
    }
}

struct State {
    config: ClientConfig,
    /// Taken out while it is used: a session that failed does not come back.
    session: Option<Open>,
    used: Instant,
    /// Whether a thread will close the session.
    watched: bool,
}

/// A session, and how much of its cost has been reported.
struct Open {
    client: Client,
    reported: Option<Stats>,
}

impl State {
    /// A session that accepts at least one more text.
    fn session(&mut self) -> Result<Open, ServeError> {
        if let Some(open) = self.session.take() {
            if open.client.texts_left() > 0 {
                return Ok(open);
            }
            // The answers have already arrived.
            let _ = open.client.close();
        }
        let greeted = Client::greet(&self.config)?;
        if greeted.public().task() != Task::Embed {
            return Err(greeted.other_task());
        }
        if greeted.max_texts() == 0 {
            return Err(ServeError::TooManyTexts { texts: 1, limit: 0 });
        }
        Ok(Open { client: greeted.establish()?, reported: None })
    }

    fn encode<S: AsRef<str>>(&mut self, texts: &[S], options: &Options, watch: Watch) -> Result<Encoded, ServeError> {
        let mut spent = Spent::default();
        let mut answers: Vec<Option<Embedding>> = texts.iter().map(|_| None).collect();
        if texts.is_empty() {
            return Ok(Encoded { answers: Vec::new(), spent });
        }
        self.config.stop = Some(Arc::clone(&watch.stop));
        let mut kept = self.session.is_some();
        let mut open = self.session()?;
        let ids = match open.client.tokens(texts, options) {
            Ok(ids) => ids,
            Err(error) => {
                // Nothing was sent.
                self.session = Some(open);
                return Err(error);
            }
        };
        spent.rows = ids.iter().map(|t| t.rows().total).collect();
        let (order, ids) = longest_first(ids);
        let progress = watch.progress.map(|f| Arc::new(Mutex::new(f)));
        let mut first = 0;
        while first < ids.len() {
            if open.client.texts_left() == 0 {
                self.session = Some(open);
                open = self.session()?;
                kept = false;
            }
            let left = ids.get(first..).unwrap_or_default();
            let part = left.get(..open.client.texts_left()).unwrap_or(left);
            open.client.stop_when(Arc::clone(&watch.stop));
            let follow = progress.as_ref().map(|f| further(f, first, ids.len()));
            let begun = open.client.passes_begun();
            let ran = open.client.embed_tokens(part, options, follow, |i, answer| {
                spent.add_pass(i, &answer);
                let place = order.get(first + i).and_then(|&at| answers.get_mut(at));
                if let Some(place) = place {
                    *place = Some(answer);
                }
            });
            match ran {
                // A kept session that was over before it was used again; nothing was sent.
                Err(error) if error.is_over() && kept && open.client.passes_begun() == begun => {
                    open = self.session()?;
                    kept = false;
                    continue;
                }
                ran => ran?,
            }
            spent.add_session(&mut open);
            first += part.len();
        }
        self.session = Some(open);
        let answers: Option<Vec<Embedding>> = answers.into_iter().collect();
        Ok(Encoded { answers: answers.ok_or(ServeError::NoAnswer)?, spent })
    }
}

impl Drop for State {
    /// Tells the server that the session is over, so that it is not counted as a failed one.
    fn drop(&mut self) {
        if let Some(open) = self.session.take() {
            let _ = open.client.close();
        }
    }
}

impl Spent {
    fn add_pass(&mut self, index: usize, answer: &Embedding) {
        if index == answer.pass.first {
            self.passes += 1;
            self.time += answer.pass.cost.time;
        }
    }

    /// Adds what the session has sent and received since the last report.
    fn add_session(&mut self, open: &mut Open) {
        let now = open.client.stats();
        let since = match &open.reported {
            Some(before) => now.since(before),
            None => {
                self.sessions += 1;
                self.setup += open.client.setup().time;
                now
            }
        };
        open.reported = Some(now);
        self.bytes_sent += since.bytes_sent;
        self.bytes_received += since.bytes_received;
        self.rounds += since.rounds;
    }
}

/// Progress of a session that begins after `first` of `texts`.
fn further(progress: &Arc<Mutex<OnProgress>>, first: usize, texts: usize) -> OnProgress {
    let progress = Arc::clone(progress);
    Box::new(move |p: Progress| {
        let mut call = progress.lock().unwrap_or_else(PoisonError::into_inner);
        call(Progress { text: first + p.text, texts, ..p });
    })
}

/// A panic leaves no session behind, so the rest of the state is sound.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes the session when it has not been used for `idle`; ends with the session, or with its encoder.
fn close_after(state: &Weak<Mutex<State>>, idle: Duration) {
    let mut wait = idle;
    loop {
        thread::sleep(wait);
        let Some(state) = state.upgrade() else {
            return;
        };
        let mut state = lock(&state);
        wait = idle.saturating_sub(state.used.elapsed());
        if wait.is_zero() || state.session.is_none() {
            state.watched = false;
            if let Some(open) = state.session.take() {
                let _ = open.client.close();
            }
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::tiny_folder;

    use super::*;
    use crate::{Server, ServerConfig, ServerTrust};

    #[test]
    fn a_session_without_work_is_closed_and_the_next_call_opens_another() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        let server = Server::bind(&config).unwrap();
        let pin = ServerTrust::Pin(server.listener().fingerprint().to_string());
        let config = ClientConfig::new(server.listener().local_addr().to_string(), pin);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| server.run(&stop).unwrap());
            let encoder = Encoder::open(config).unwrap();
            assert!(encoder.lock().session.is_some() && encoder.lock().watched);
            // It returns when it has closed the session.
            close_after(&Arc::downgrade(&encoder.state), Duration::from_millis(1));
            assert!(encoder.lock().session.is_none());
            let encoded = encoder.encode(&["a"], Options::default(), Watch::default());
            assert_eq!(encoded.unwrap().spent.sessions, 1);
            encoder.close().unwrap();
            stop.store(true, Ordering::SeqCst);
        });
    }
}
