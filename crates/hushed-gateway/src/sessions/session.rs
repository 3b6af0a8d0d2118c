//! A worker's session: opened when there is work, kept for the next, renewed at the server's limit of texts, and closed
//! when idle. One that failed is not used again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use hushed_serve::{Client, ClientConfig, Cost, Sent, ServeError, Stats, Work};

use super::failure::Failure;
use super::ledger::Seen;
use super::shared::Shared;

/// How long an idle session is kept: it occupies another client's place at the server.
pub const IDLE: Duration = Duration::from_secs(30);

/// How often a worker that stays away checks whether it may come back.
const LOOK: Duration = Duration::from_millis(20);

/// A worker's session, if it has one.
pub struct Kept {
    config: ClientConfig,
    shared: Arc<Shared>,
    client: Option<Client>,
    /// Whether its session is counted as open.
    counted: bool,
}

/// The pass under way, as far as it is not in the ledger yet.
pub struct UnderWay {
    seen: Seen,
    since: Instant,
    before: Stats,
}

impl UnderWay {
    /// What was sent for an answer is now in the ledger, and another pass of that answer may follow.
    pub fn follows(&mut self, sent: &Sent) {
        if matches!(sent.work, Work::Pass { .. }) {
            self.seen.rows = vec![1];
        }
        self.before = sent.after;
        self.begins();
    }

    /// The next pass begins, if there is one.
    pub fn begins(&mut self) {
        self.since = Instant::now();
    }
}

impl Kept {
    /// A worker's state, without a session.
    pub fn new(config: ClientConfig, shared: Arc<Shared>) -> Self {
        Self { config, shared, client: None, counted: false }
    }

    /// Keeps a worker without a session from taking work for which it could not open one. Waiting clients are told by
    /// `fail`, unless another worker has a session.
    pub fn stay_away(&self, fail: impl Fn(&Failure)) {
        let shared = &self.shared;
        while !self.is_open() && !shared.stop.load(Ordering::Relaxed) && shared.away.now().is_some() {
            if let Some(failure) = shared.is_away() {
                fail(&failure);
            }
            thread::sleep(LOOK);
        }
    }

    /// Runs `work` in a session that accepts `texts` more. `seen` is what the server will see of its first pass, for
    /// the ledger in case of a failure. If a kept session turns out to be over before a pass has begun (the server was
    /// restarted, or gave its place to a client that waited), `work` is run once more, in another one.
    pub fn run<T>(
        &mut self,
        texts: usize,
        seen: Seen,
        work: impl FnMut(&mut Client, &mut UnderWay) -> Result<T, ServeError>,
    ) -> Result<T, Failure> {
        if let (None, Some(failure)) = (&self.client, self.shared.away.now()) {
            return Err(failure);
        }
        let done = self.attempt(texts, seen, work);
        self.count();
        let done = done.map_err(|error| Failure::from(&error));
        self.shared.ready.seen(done.is_ok());
        if let Err(failure) = &done
            && failure.lasts()
        {
            self.shared.away.set(failure);
        }
        done
    }

    /// Whether there is a session.
    pub fn is_open(&self) -> bool {
        self.client.is_some()
    }

    /// Ends the session, if there is one.
    pub fn close(&mut self) {
        if let Some(client) = self.client.take() {
            // All answers have arrived.
            let _ = client.close();
            self.count();
        }
    }

    fn attempt<T>(
        &mut self,
        texts: usize,
        seen: Seen,
        mut work: impl FnMut(&mut Client, &mut UnderWay) -> Result<T, ServeError>,
    ) -> Result<T, ServeError> {
        let kept = self.is_open();
        let mut client = self.session(texts)?;
        let begun = client.passes_begun();
        let mut pass = UnderWay { seen: seen.clone(), since: Instant::now(), before: client.stats() };
        client.stop_when(Arc::clone(&self.shared.stop));
        let mut done = work(&mut client, &mut pass);
        if let Err(error) = &done
            && kept
            && error.is_over()
            && client.passes_begun() == begun
        {
            tracing::debug!(name = error.name(), "the session was over before it was used again: another is opened");
            drop(client);
            client = self.session(texts)?;
            client.stop_when(Arc::clone(&self.shared.stop));
            pass = UnderWay { seen, since: Instant::now(), before: client.stats() };
            done = work(&mut client, &mut pass);
        }
        match &done {
            Ok(_) => self.client = Some(client),
            // The gateway checks what it sends, so whatever this is, the session is not to be trusted with more.
            Err(error) => {
                let cost = Cost { time: pass.since.elapsed(), stats: client.stats().since(&pass.before) };
                self.failed(error, pass.seen, &cost);
            }
        }
        done
    }

    /// A session that accepts `texts` more, if a fresh one does.
    fn session(&mut self, texts: usize) -> Result<Client, ServeError> {
        if let Some(client) = self.client.take() {
            if client.takes(texts) {
                return Ok(client);
            }
            let _ = client.close();
        }
        let began = Instant::now();
        let connected = Client::connect(&self.config);
        match &connected {
            Ok(client) => {
                self.shared.away.end();
                self.shared.pace.setup_took(client.setup().time);
                self.shared.ledger.session(&client.setup());
                let how = &self.shared.how;
                if let Err(error) = client.allows(how.ahead, how.draft) {
                    // The texts are the same without them.
                    tracing::warn!(name = error.name(), "the server has changed: {error}");
                }
            }
            Err(error) => {
                self.shared.away.set(&Failure::from(error));
                let cost = Cost { time: began.elapsed(), stats: Stats::default() };
                self.failed(error, Seen::default(), &cost);
            }
        }
        connected
    }

    fn failed(&self, error: &ServeError, seen: Seen, cost: &Cost) {
        tracing::warn!(name = error.name(), "no answer: {error}");
        self.shared.ledger.failure(error.name(), seen, cost);
    }

    /// Updates the number of open sessions for the admission.
    fn count(&mut self) {
        let (was, is) = (self.counted, self.client.is_some());
        self.counted = is;
        match (was, is) {
            (false, true) => self.shared.open.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.shared.open.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}
