//! The client: texts in, embeddings out, with a server that sees neither.
//!
//! A [`Client`] is one session: keys and correlations are made once, then texts are run, one by one or several in a
//! pass. All that leaves this process about a text is the number of its tokens, rounded up where [`Options::bucket`]
//! asks for it, and messages that are masked or encrypted.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod ahead;
mod answer;
mod cache;
mod failures;
mod generate;
mod generation;
mod greet;
mod images;
mod offer;
mod options;
mod pairs;
mod search;
mod stop;
mod table;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hushed_model::{Item, Model, Program, Task, TokenIds};
use hushed_mpc::{Answers, Input, Layers, Protocol, RunError, embeddings, labels, logits};
use hushed_net::{Expect, NetError, Session, Stats};

use crate::error::ServeError;
use crate::session::connect::{ClientConfig, open, patiently};
use crate::session::deadlines::Deadlines;
use crate::session::wire::WireFault;
use crate::twopc::wire::{ANSWER, Answer, MAX_ANSWER, REQUEST, Request};
use failures::Failures;
use greet::{greet, pinned};

pub use answer::{Answered, Class, Cost, Embedding, Made, OnProgress, Pass, Progress, Sent, Work};
pub use generate::GenerateOptions;
pub use generation::{Drafted, Finish, Generated, Generation};
pub use offer::Offer;
pub use options::Options;
pub(super) use options::longest_first;
pub use pairs::Score;
pub use search::Found;

/// Present in every binary that has the client: the build test of the server-only binary looks for it.
#[used]
static MARKER: [u8; 27] = *b"hushed-serve client is here";

/// A pass, which gives the client one answer per text.
type Run<'a, T> = &'a dyn Fn(&mut Protocol, &Model, &Input) -> Result<Option<Vec<T>>, RunError>;

/// A session with a server.
pub struct Client {
    backend: Protocol,
    offer: Offer,
    program: Program,
    cache_dir: Option<PathBuf>,
    deadlines: Deadlines,
    texts: usize,
    /// Passes that the server has let begin.
    passes: u64,
    /// What has been made ahead.
    made: Made,
    /// Runs with this server that have failed.
    failures: Failures,
    /// Whether the session was ended on this side.
    left: bool,
    setup: Cost,
    /// End of the last pass, or of the set-up.
    used: Instant,
}

impl Client {
    /// Connects and makes the handshake, keys and correlations. Waits, for as long as the configuration says, while the
    /// server has no free session.
    ///
    /// # Errors
    /// [`ServeError`]; its category distinguishes the network, a refusal and a mismatch.
    pub fn connect(config: &ClientConfig) -> Result<Self, ServeError> {
        Self::greet(config)?.establish()
    }

    /// The first half of [`Client::connect`]: the server has a session for this client, and texts can be checked
    /// against what it offers before keys and correlations, megabytes of them, are made.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn greet(config: &ClientConfig) -> Result<Greeted, ServeError> {
        patiently(config, |left| greeted(config, left, false))
    }

    /// What the server offers, from a handshake alone: no session is taken. The server's certificate, bundle and this
    /// client's token are checked as for a session, and so is whether anything may be sent to it.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn look(config: &ClientConfig) -> Result<Offer, ServeError> {
        let Greeted { session, offer, .. } = greeted(config, Duration::ZERO, true)?;
        // The handshake is complete: how the connection ends does not matter.
        let _ = session.close();
        Ok(offer)
    }

    /// The number of texts, or tokens of an answer, that this session may still run: fewer than the server's limit if
    /// each [answer](Client::answers) counts as several.
    #[must_use]
    pub fn texts_left(&self) -> usize {
        (self.offer.welcome.max_texts as usize).saturating_sub(self.texts) / self.charge()
    }

    /// Whether this session may still run this many texts of any length, or an answer of this many tokens. Tokens for
    /// which products are held have already been counted; the first one uses none.
    #[must_use]
    pub fn takes(&self, texts: usize) -> bool {
        let counted = match self.public().task() {
            Task::Generate => self.passes_ahead().min(texts.saturating_sub(1)),
            Task::Embed | Task::Classify => 0,
        };
        texts - counted <= self.texts_left()
    }

    /// When its last pass ended, or its set-up.
    pub(super) fn used(&self) -> Instant {
        self.used
    }

    /// What connecting cost: handshake, bundle, keys, correlations.
    #[must_use]
    pub fn setup(&self) -> Cost {
        self.setup
    }

    /// The session's counters so far, everything included.
    pub fn stats(&mut self) -> Stats {
        self.backend.ctx().session.stats()
    }

    /// The embeddings of the texts, in their order. All texts are checked before the first is run, so a refused one
    /// costs nothing. `options` may be a [`TooLong`](hushed_model::TooLong) alone.
    ///
    /// # Errors
    /// [`ServeError::Text`] and similar errors, with the index of the text; after any other error the session is over.
    pub fn embed<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        options: impl Into<Options>,
        progress: Option<OnProgress>,
    ) -> Result<Vec<Embedding>, ServeError> {
        let mut all = Vec::with_capacity(texts.len());
        self.embed_each(texts, options, progress, |_, answer| all.push(answer))?;
        Ok(all)
    }

    /// Like [`Client::embed`], but hands out each answer (with the text's index) as it comes.
    pub fn embed_each<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        options: impl Into<Options>,
        progress: Option<OnProgress>,
        each: impl FnMut(usize, Embedding),
    ) -> Result<(), ServeError> {
        let options = options.into();
        let ids = self.texts_to_embed(texts, &options)?;
        self.enough_left(&ids)?;
        let answers = self.answers();
        self.each_of(&ids, &options, progress, &|on, model, input| embeddings(on, model, input, answers), each)
    }

    /// Hands out the class of each text, with the text's index, as it comes: the name of the largest logit, the only
    /// thing that is opened, unless the server opens [more](Client::answers).
    ///
    /// # Errors
    /// As [`Client::embed`].
    pub fn classify_each<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        options: impl Into<Options>,
        progress: Option<OnProgress>,
        each: impl FnMut(usize, Answered<Class>),
    ) -> Result<(), ServeError> {
        let options = options.into();
        let ids = self.texts_to_classify(texts, &options)?;
        self.enough_left(&ids)?;
        self.classes_of(&ids, &options, progress, each)
    }

    fn enough_left<I: Clone + Into<Item>>(&self, items: &[I]) -> Result<(), ServeError> {
        let counted = match self.passes_ahead() {
            0 => 0,
            _ => self.counted_ahead(&rows_of(&items.iter().cloned().map(I::into).collect::<Vec<_>>())),
        };
        match (items.len(), self.texts_left() + counted) {
            (texts, limit) if texts > limit => Err(ServeError::TooManyTexts { texts, limit }),
            _ => Ok(()),
        }
    }

    /// Like [`Client::embed_each`] for the output of [`Client::tokens`], at most [`Client::texts_left`].
    ///
    /// # Errors
    /// As [`Client::embed`].
    pub fn embed_tokens(
        &mut self,
        ids: &[TokenIds],
        options: &Options,
        progress: Option<OnProgress>,
        each: impl FnMut(usize, Embedding),
    ) -> Result<(), ServeError> {
        if self.public().task() != Task::Embed {
            return Err(self.other_task());
        }
        let answers = self.answers();
        self.each_of(ids, options, progress, &|on, model, input| embeddings(on, model, input, answers), each)
    }

    /// Like [`Client::classify_each`] for the output of [`Client::tokens`], at most [`Client::texts_left`].
    ///
    /// # Errors
    /// As [`Client::embed`].
    pub fn classify_tokens(
        &mut self,
        ids: &[TokenIds],
        options: &Options,
        progress: Option<OnProgress>,
        each: impl FnMut(usize, Answered<Class>),
    ) -> Result<(), ServeError> {
        self.classes_of(ids, options, progress, each)
    }

    /// Runs items to their classes, with what else is opened.
    fn classes_of<I: Clone + Into<Item>>(
        &mut self,
        items: &[I],
        options: &Options,
        progress: Option<OnProgress>,
        mut each: impl FnMut(usize, Answered<Class>),
    ) -> Result<(), ServeError> {
        let names = self.labels()?;
        let problem = self.public().config.problem;
        match self.answers() {
            Answers::Logits => self.each_of(items, options, progress, &logits, |index, answer| {
                each(index, answer.made(|row| Class::of_logits(row, &names, problem)));
            }),
            answers => {
                let run: Run<_> = &|party, model, input| labels(party, model, input, answers);
                self.each_of(items, options, progress, run, |index, answer| {
                    each(index, answer.made(|places| Class::of_places(&places, &names)));
                })
            }
        }
    }

    fn each_of<I: Clone + Into<Item>, T>(
        &mut self,
        items: &[I],
        options: &Options,
        progress: Option<OnProgress>,
        run: Run<'_, T>,
        mut each: impl FnMut(usize, Answered<T>),
    ) -> Result<(), ServeError> {
        if options.public_table {
            self.need_table()?;
        }
        let progress = progress.map(|f| Arc::new(Mutex::new(f)));
        let items: Vec<Item> = items.iter().cloned().map(I::into).collect();
        let (mut first, mut fault) = (0, None);
        while let Some(left) = items.get(first..).filter(|left| !left.is_empty()) {
            let mut sharing = options.next_pass(left, self.max_pass_tokens());
            if options.ahead > 0 {
                let next = left.get(..options.ahead.into()).unwrap_or(left);
                self.stock(&rows_of(next), options.terms())?;
            }
            let mut ahead = false;
            if self.passes_ahead() > 0 {
                (sharing, ahead) = self.share_ahead(&rows_of(left.get(..sharing).unwrap_or(left)));
            }
            let pass = left.get(..sharing).unwrap_or(left);
            if let Some(progress) = &progress {
                self.observe(first, sharing, items.len(), Arc::clone(progress));
            }
            let answers = self.run((first, ahead), pass, options, run);
            // After an impossible answer the same passes follow, and the error comes after the last.
            let answers = match after_whole_passes(answers, &mut fault)? {
                Some(answers) if fault.is_none() => answers,
                _ => Vec::new(),
            };
            for (i, answer) in answers.into_iter().enumerate() {
                each(first + i, answer);
            }
            first += sharing;
        }
        self.backend.observe(|_| ());
        match fault {
            Some(fault) => Err(self.left_after(fault)),
            None => Ok(()),
        }
    }

    /// Ends the session as after any other answer, and returns the error of a pass that was run as a whole.
    fn left_after(&mut self, fault: ServeError) -> ServeError {
        self.left = true;
        let session = &mut self.backend.ctx().session;
        session.set_limits(self.deadlines.within(self.deadlines.handshake));
        // The fault says more than a connection that is gone.
        let sent = session.send_vec(REQUEST, Request::End.encode());
        let _ = sent.and_then(|()| session.flush());
        fault
    }

    /// The error of a run that has begun: counted against its server.
    fn failed(&mut self, error: RunError) -> ServeError {
        match error {
            RunError::Stopped => error.into(),
            error => self.failures.counted(error.into()),
        }
    }

    /// Ends a pass at its next step once `flag` is raised, with an error named `stopped`; the session is then over.
    pub fn stop_when(&mut self, flag: Arc<AtomicBool>) {
        self.backend.stop_when(flag);
    }

    /// Passes that the server has let begin: before the first, nothing of a text has been sent.
    #[must_use]
    pub fn passes_begun(&self) -> u64 {
        self.passes
    }

    /// Ends the session properly; returns its counters. All answers have arrived, so a server that has already ended it
    /// is no error.
    ///
    /// # Errors
    /// [`ServeError::Net`]; it does not affect the answers.
    pub fn close(self) -> Result<Stats, ServeError> {
        let mut session = self.backend.into_ctx().session;
        session.set_limits(self.deadlines.within(self.deadlines.handshake));
        let sent = session.send_vec(REQUEST, Request::End.encode());
        let stats = session.stats();
        let closed = sent.and_then(|()| session.close()).map_err(ServeError::from);
        match closed {
            Err(error) if !error.is_over() => Err(error),
            _ => Ok(stats),
        }
    }

    fn observe(&mut self, text: usize, sharing: usize, texts: usize, progress: Arc<Mutex<OnProgress>>) {
        let layers = self.offer.model.public.config.layers;
        let mut layer = 0;
        self.backend.observe(move |step| {
            layer = step.layer().unwrap_or(layer);
            let mut call = progress.lock().unwrap_or_else(PoisonError::into_inner);
            call(Progress { text, sharing, texts, step: step.to_string(), layer, layers });
        });
    }

    /// Asks for a pass, which begins when this returns.
    fn ask(&mut self, request: &Request) -> Result<(), ServeError> {
        if self.left {
            return Err(NetError::Closed.into());
        }
        self.failures.check()?;
        let limits = self.deadlines.within(self.deadlines.text);
        let session = &mut self.backend.ctx().session;
        session.set_limits(limits);
        session.send_vec(REQUEST, request.encode())?;
        let answer = session.recv(ANSWER, Expect::AtMost(MAX_ANSWER))?;
        match Answer::decode(&answer).map_err(ServeError::malformed("answer"))? {
            Answer::Go => {
                self.passes += 1;
                Ok(())
            }
            Answer::Refused(refusal) => Err(ServeError::Refused(refusal)),
        }
    }

    /// Runs one pass over these texts or images; `first` is the index of the first. With products made `ahead`, they
    /// were counted when those were made.
    fn run<T>(
        &mut self,
        (first, ahead): (usize, bool),
        texts: &[Item],
        options: &Options,
        run: Run<'_, T>,
    ) -> Result<Vec<Answered<T>>, ServeError> {
        let began = Instant::now();
        let terms = options.terms();
        let sites_before = self.backend.costs().len();
        let before = self.stats();
        let rows = rows_of(texts);
        let request = Request::Embed {
            rows: rows.iter().map(|r| u32::try_from(*r).unwrap_or(u32::MAX)).collect(),
            padded: terms.padded,
            public_table: terms.public_table,
            ahead,
        };
        self.ask(&request)?;
        let input = Input::of(texts.to_vec(), terms);
        let (model, on) = (&self.offer.model, &mut self.backend);
        let answers = match ahead {
            true => on.spending_ahead(&rows, |on| run(on, model, &input)),
            false => run(on, model, &input),
        };
        let answers = answers.map_err(|e| self.failed(e));
        self.texts += if ahead { 0 } else { texts.len() * self.charge() };
        self.used = Instant::now();
        let answers = answers?.ok_or(ServeError::NoAnswer)?;
        let stats = self.stats().since(&before);
        let sites = self.backend.costs().iter().skip(sites_before).cloned();
        let pass = Arc::new(Pass {
            first,
            texts: texts.len(),
            cost: Cost { time: began.elapsed(), stats },
            sites: sites.collect(),
        });
        let answered = texts.iter().zip(answers).map(|(text, values)| Answered {
            values,
            tokens: text.rows().real,
            rows: text.rows().total,
            pass: Arc::clone(&pass),
        });
        Ok(answered.collect())
    }
}

impl Deref for Client {
    type Target = Offer;

    fn deref(&self) -> &Offer {
        &self.offer
    }
}

/// A session after its handshake: it [`Deref`]s to what the server offers. Nothing of a text has left this process, and
/// the server waits for [`Greeted::establish`]. Dropping it ends the connection, which the server counts as no fault.
pub struct Greeted {
    session: Session,
    offer: Offer,
    cache_dir: Option<PathBuf>,
    deadlines: Deadlines,
    failures: Failures,
    /// When it began, not counting the wait for it.
    began: Instant,
}

impl Greeted {
    /// Makes keys and correlations.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn establish(self) -> Result<Client, ServeError> {
        let Self { mut session, offer, cache_dir, deadlines, failures, began } = self;
        session.set_limits(deadlines.within(deadlines.setup));
        let mut backend = Protocol::establish(session, Arc::<Layers>::default(), offer.link())?;
        let setup = Cost { time: began.elapsed(), stats: backend.ctx().session.stats() };
        Ok(Client {
            backend,
            program: offer.model.program(),
            offer,
            cache_dir,
            deadlines,
            texts: 0,
            passes: 0,
            made: Made::default(),
            failures,
            left: false,
            setup,
            used: Instant::now(),
        })
    }
}

impl Deref for Greeted {
    type Target = Offer;

    fn deref(&self) -> &Offer {
        &self.offer
    }
}

/// Connects and makes the handshake, for a session or to look, unless too many runs with the server have failed.
fn greeted(config: &ClientConfig, patience: Duration, looks: bool) -> Result<Greeted, ServeError> {
    let failures = Failures::of(config);
    failures.check()?;
    let began = Instant::now();
    let pinned = pinned(config.bundle.as_ref())?;
    let (mut session, link) = open(config)?;
    let (welcome, bundle, waited) = greet(&mut session, config, pinned, (patience, looks, link))?;
    let model = Model::shapes_only(bundle.public());
    if welcome.answers.suits(&model.public, model.body.outputs()).is_err() {
        let fault = WireFault::Undefined { field: "answers" };
        return Err(ServeError::malformed("reply")(fault));
    }
    Ok(Greeted {
        session,
        offer: Offer::new(model, bundle.hash(), welcome, link),
        cache_dir: config.cache_dir.clone(),
        deadlines: config.deadlines,
        failures,
        began: began + waited,
    })
}

/// The rows of each text or image, padding included.
fn rows_of(items: &[Item]) -> Vec<usize> {
    items.iter().map(|item| item.rows().total).collect()
}

/// The result of a pass. An error of one that was run as a whole is kept for the end, the first of them.
pub(super) fn after_whole_passes<T>(
    result: Result<T, ServeError>,
    fault: &mut Option<ServeError>,
) -> Result<Option<T>, ServeError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_of_a_whole_pass() => {
            fault.get_or_insert(error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
