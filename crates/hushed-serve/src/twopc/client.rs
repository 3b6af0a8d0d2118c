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
            _ => self.counted_ahead(&rows_of(items)),
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
                let next = left.iter().take(options.ahead.into()).map(|item| item.rows().total);
                self.stock(&next.collect::<Vec<_>>(), options.terms())?;
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
fn rows_of<I: Clone + Into<Item>>(items: &[I]) -> Vec<usize> {
    items.iter().map(|item| item.clone().into().rows().total).collect()
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use hushed_model::TooLong;
    use hushed_model::testing::{tiny_classifier_folder, tiny_folder, tiny_generator_folder};

    use hushed_mpc::{Later, Terms};

    use super::*;
    use crate::twopc::wire::{Ahead, Next};
    use crate::{Refusal, Server, ServerConfig, ServerTrust};

    /// Serves while `ask` runs.
    fn served(config: &ServerConfig, ask: impl FnOnce(&ClientConfig)) {
        let server = Server::bind(config).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| server.run(&stop).unwrap());
            let pin = ServerTrust::Pin(server.listener().fingerprint().to_string());
            let address = server.listener().local_addr().to_string();
            ask(&ClientConfig::new(address, pin));
            stop.store(true, Ordering::SeqCst);
        });
    }

    /// A client that ignores what the welcome said.
    #[test]
    fn the_server_holds_its_limits_itself() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        config.max_tokens = Some(8);
        config.max_pass_tokens = 8;
        config.max_texts = 1;
        served(&config, |config| {
            let unbridled = || {
                let mut client = Client::connect(config).unwrap();
                client.offer.welcome.max_tokens = u32::MAX;
                client.offer.welcome.max_pass_tokens = u32::MAX;
                client.offer.welcome.max_texts = u32::MAX;
                client
            };
            let refused = |result: Result<Vec<Embedding>, ServeError>| match result.err() {
                Some(ServeError::Refused(refusal)) => refusal,
                _ => panic!("the server must refuse"),
            };
            let long = unbridled().embed(&["a b c d e f g h"], TooLong::Refuse, None);
            assert_eq!(refused(long), Refusal::TooLong { limit: 8 });
            let many = unbridled().embed(&["a", "b"], TooLong::Refuse, None);
            assert_eq!(refused(many), Refusal::TooManyTexts { limit: 1 });
            let batch = Options { batch: 4, ..Options::default() };
            let together = unbridled().embed(&["a b c d", "a b c d"], batch, None);
            assert_eq!(refused(together), Refusal::PassTooLarge { limit: 8 });
        });
    }

    /// Products for texts that are too long or too many, and a pass that uses products never made.
    #[test]
    fn the_server_holds_its_limits_of_products_ahead_itself() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        config.max_tokens = Some(8);
        config.max_pass_tokens = 12;
        config.max_texts = 2;
        config.max_ahead = 3;
        served(&config, |config| {
            let ahead = |passes, rows| Request::Ahead(Ahead { passes, rows, padded: false, public_table: false });
            let ask = |request| match Client::connect(config).unwrap().ask(&request) {
                Err(ServeError::Refused(refusal)) => refusal,
                other => panic!("{:?}", other.err().map(|error| error.name())),
            };
            assert_eq!(ask(ahead(1, 9)), Refusal::TooLong { limit: 8 });
            assert_eq!(ask(ahead(2, 8)), Refusal::PassTooLarge { limit: 12 });
            assert_eq!(ask(ahead(3, 4)), Refusal::TooManyTexts { limit: 2 });
            assert_eq!(ask(ahead(4, 2)), Refusal::TooFarAhead { limit: 3 });
            // Held for one text of four rows.
            for rows in [vec![5], vec![4, 4]] {
                let mut client = Client::connect(config).unwrap();
                client.make_ahead(Later { passes: 1, rows: 4 }, Terms::default()).unwrap();
                let request = Request::Embed { rows, padded: false, public_table: false, ahead: true };
                assert_eq!(client.ask(&request).unwrap_err().name(), "peer-gone");
            }
        });
    }

    /// Requests that our client never sends: each ends only its own session.
    #[test]
    fn the_server_holds_its_limits_of_generation_itself() {
        let folder = tempfile::tempdir().unwrap();
        tiny_generator_folder(folder.path()).unwrap();
        let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        config.max_tokens = Some(8);
        config.max_texts = 5;
        config.max_ahead = 1;
        config.answers = Some(Answers::Top(3));
        served(&config, |config| {
            let ask = |request: Request| {
                let mut client = Client::connect(config).unwrap();
                client.ask(&request).err()
            };
            let with = |begins, rows, ahead| {
                Request::Next(Next {
                    begins,
                    rows,
                    padded: false,
                    public_table: false,
                    ahead,
                    drafts: false,
                    dropped: 0,
                    temperature: 0,
                    seed: 0,
                    public: 0,
                    long: false,
                })
            };
            let next = |begins, rows| with(begins, rows, false);
            assert_eq!(ask(next(false, 1)).unwrap().name(), "peer-gone");
            for rows in [9, u32::MAX] {
                let refused = ask(next(true, rows));
                let limit = Refusal::TooLong { limit: 8 };
                assert!(matches!(refused, Some(ServeError::Refused(r)) if r == limit));
            }
            let embed = Request::Embed { rows: vec![3], padded: false, public_table: false, ahead: false };
            let task = Task::Generate;
            let other = Refusal::OtherTask { task };
            assert!(matches!(ask(embed), Some(ServeError::Refused(r)) if r == other));
            // More products ahead than the server holds, a table that is private, and a pass that uses products never
            // made.
            let far = Refusal::TooFarAhead { limit: 1 };
            let ahead = |passes, public_table| Request::Ahead(Ahead { passes, rows: 1, padded: false, public_table });
            let refused = |request, r| matches!(ask(request), Some(ServeError::Refused(found)) if found == r);
            assert!(refused(ahead(2, false), far));
            assert!(refused(ahead(1, true), Refusal::PrivateTable));
            let rows = Request::Ahead(Ahead { passes: 1, rows: 2, padded: false, public_table: false });
            assert_eq!(ask(rows).unwrap().name(), "peer-gone");
            assert!(ask(ahead(1, false)).is_none());
            let mut client = Client::connect(config).unwrap();
            let mut generation =
                client.generate("a", &GenerateOptions { max_tokens: 1, ..GenerateOptions::default() }).unwrap();
            generation.next().unwrap().unwrap();
            drop(generation);
            let error = client.ask(&with(false, 1, true)).unwrap_err();
            assert_eq!(error.name(), "peer-gone");
            assert!(ask(next(true, 8)).is_none());
            // Three tokens are opened per pass, and each counts.
            let mut client = Client::connect(config).unwrap();
            assert_eq!(client.texts_left(), 1);
            client.offer.welcome.max_texts = u32::MAX;
            let two = GenerateOptions { max_tokens: 2, ..GenerateOptions::default() };
            let mut generation = client.generate("a", &two).unwrap();
            let token = generation.next().unwrap().unwrap();
            assert_eq!((token.top.len(), token.top[0]), (3, token.id));
            let refused = generation.next().unwrap().err();
            let limit = Refusal::TooManyTexts { limit: 5 };
            assert!(matches!(refused, Some(ServeError::Refused(r)) if r == limit));
        });
    }

    /// Drafts that our client never sends, and rows that it cannot have dropped.
    #[test]
    fn the_server_holds_its_limits_of_drafts_itself() {
        let folder = tempfile::tempdir().unwrap();
        tiny_generator_folder(folder.path()).unwrap();
        let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        config.max_tokens = Some(12);
        config.max_texts = 4;
        config.max_drafts = 2;
        served(&config, |config| {
            // Asks after the prompt's pass (one text) and, if `passes` is 2, a pass with two drafts (three texts).
            let ask = |passes: usize, begins, rows, dropped, ahead| {
                let mut client = Client::connect(config).unwrap();
                client.offer.welcome.max_texts = u32::MAX;
                let options = GenerateOptions { max_tokens: 4, draft: 2, ..GenerateOptions::default() };
                let generation = client.generate("a", &options).unwrap();
                let mut wrong = |_: &[u32], most| vec![0; most];
                let mut generation = generation.guessing(&mut wrong);
                while generation.drafted().passes < passes {
                    generation.next().unwrap().unwrap();
                }
                assert_eq!(generation.drafted().drafts, 2 * (passes - 1));
                drop(generation);
                let request = Request::Next(Next {
                    begins,
                    rows,
                    padded: false,
                    public_table: false,
                    ahead,
                    drafts: true,
                    dropped,
                    temperature: 0,
                    seed: 0,
                    public: 0,
                    long: false,
                });
                client.ask(&request).map_or_else(|error| error.name(), |()| "go")
            };
            assert_eq!(ask(1, false, 3, 0, false), "go");
            assert_eq!(ask(1, false, 4, 0, false), "too-many-drafts");
            assert_eq!(ask(1, true, 2, 0, false), "peer-gone");
            assert_eq!(ask(1, false, 2, 0, true), "peer-gone");
            // The first pass had no drafts, the second two.
            assert_eq!(ask(1, false, 2, 1, false), "peer-gone");
            assert_eq!(ask(2, false, 2, 3, false), "peer-gone");
            // Each row counted.
            assert_eq!(ask(2, false, 1, 2, false), "too-many-texts");
        });
    }

    /// A client that asks for images of other sizes, or for padding.
    #[test]
    fn the_server_takes_whole_images_alone() {
        let folder = hushed_model::testing::tiny_golden("vit");
        let certificates = tempfile::tempdir().unwrap();
        let config = ServerConfig::local(folder, certificates.path());
        served(&config, |config| {
            let ask = |rows: Vec<u32>, padded, public_table| {
                Client::connect(config).unwrap().ask(&Request::Embed { rows, padded, public_table, ahead: false })
            };
            for (rows, padded) in [(vec![16], false), (vec![17, 18], false), (vec![17], true)] {
                assert_eq!(ask(rows, padded, false).unwrap_err().name(), "peer-gone");
            }
            let refused = ask(vec![17], false, true);
            let private = Refusal::PrivateTable;
            assert!(matches!(refused, Err(ServeError::Refused(r)) if r == private));
            assert!(ask(vec![17], false, false).is_ok());
        });
    }

    fn impossible() -> RunError {
        RunError::NoSuchPlace { place: 9, places: 3 }
    }

    /// An impossible answer to the first text: all passes follow, and then the end of the session, byte for byte in
    /// number as after other answers. The error comes last.
    #[test]
    fn a_client_does_not_stop_early_at_an_impossible_answer() {
        let folder = tempfile::tempdir().unwrap();
        tiny_classifier_folder(folder.path(), &["a", "b", "c"]).unwrap();
        let config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        served(&config, |config| {
            let sent = |bent: bool| {
                let mut client = Client::connect(config).unwrap();
                let texts = ["a b", "c", "d e f"];
                let ids = client.tokens(&texts, &Options::default()).unwrap();
                let (passes, answered) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
                let run: Run<'_, Vec<u32>> = &|party, model, input| {
                    let answer = labels(party, model, input, Answers::Label)?;
                    passes.set(passes.get() + 1);
                    match bent && passes.get() == 1 {
                        true => Err(impossible()),
                        false => Ok(answer),
                    }
                };
                let each = |_, _| answered.set(answered.get() + 1);
                let done = client.each_of(&ids, &Options::default(), None, run, each);
                assert_eq!((passes.get(), done.is_err()), (3, bent));
                assert_eq!(answered.get(), if bent { 0 } else { 3 });
                let stats = match bent {
                    true => {
                        let error = done.err().unwrap();
                        assert_eq!(error.name(), "peer-misbehaved");
                        assert!(error.to_string().contains("failure 1 of 3"), "{error}");
                        // The session is over, and it has been counted.
                        assert!(client.ask(&Request::Table).is_err());
                        assert_eq!(client.failures.count(), 1);
                        client.stats()
                    }
                    false => client.close().unwrap(),
                };
                (stats.frames_sent, stats.bytes_sent)
            };
            assert_eq!(sent(true), sent(false));
        });
    }

    /// The same of a text that is continued: as many passes as tokens were asked for.
    #[test]
    fn a_client_continues_a_text_after_an_impossible_token() {
        let folder = tempfile::tempdir().unwrap();
        tiny_generator_folder(folder.path()).unwrap();
        let config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        served(&config, |config| {
            for pad_output in [false, true] {
                let mut client = Client::connect(config).unwrap();
                let options = GenerateOptions { max_tokens: 5, pad_output, ..GenerateOptions::default() };
                let mut generation = client.generate("a b", &options).unwrap();
                // As if the first pass had opened it.
                generation.fault = Some(impossible().into());
                let error = generation.next().unwrap().err().unwrap();
                assert_eq!(error.name(), "peer-misbehaved");
                assert_eq!(generation.take_sent().len(), 5);
                assert!(generation.next().is_none());
                drop(generation);
                assert!(client.left);
            }
        });
    }
}
