//! The layer between HTTP and the server: a bounded queue, and workers that each hold one session with the server.
//!
//! Nothing here is async; the HTTP thread hands in work and gets the answers over channels.

pub mod admission;
pub mod away;
mod embed;
pub mod failure;
pub mod generate;
pub mod ledger;
pub mod pace;
pub mod search;
mod session;
pub mod share;
pub mod texts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hushed_mpc::Terms;
use hushed_serve::{BundlePin, Client, Digest, Public, Sent, ServeError, Task, Work};

use crate::config::GatewayConfig;
use crate::error::GatewayError;
use admission::Admission;
use away::Away;
use failure::Failure;
use generate::Prompts;
use ledger::Ledger;
use pace::{Pace, Planned};
use session::Kept;
use share::Share;
use texts::{Limits, Texts};

/// How often a worker that stays away checks whether it may come back.
const LOOK: Duration = Duration::from_millis(20);

/// How texts are run, the same for all requests.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Pads to a multiple of this many tokens.
    pub bucket: Option<usize>,
    /// Looks tokens up in the public table.
    pub public_table: bool,
    /// Runs as many passes as an answer may have tokens.
    pub pad_output: bool,
    /// Has products prepared for this many later tokens at a time.
    pub ahead: u16,
    /// Guesses this many next tokens per pass.
    pub draft: u16,
}

/// State shared by the workers and HTTP.
pub struct Shared {
    /// The server's model.
    pub public: Public,
    /// The hash of its bundle.
    pub bundle: Digest,
    /// Most tokens per text that model and server accept.
    pub max_tokens: usize,
    /// Most tokens per pass.
    pub max_pass_tokens: usize,
    /// Most texts per session.
    pub max_texts: usize,
    /// Number of searchable documents.
    pub documents: usize,
    /// Bytes of each document's text; 0 if documents have none.
    pub record_bytes: usize,
    /// Whether search scores can be requested.
    pub scores: bool,
    /// How texts are run.
    pub how: How,
    /// Times of passes and set-ups.
    pub pace: Pace,
    /// What left this machine.
    pub ledger: Ledger,
    /// Raised to end passes at their next step.
    pub stop: Arc<AtomicBool>,
    /// Number of open sessions.
    pub open: AtomicUsize,
    /// Whether the server was reachable the last time.
    pub reachable: AtomicBool,
    /// The reason why no session is opened at present, if any.
    pub away: Away,
    /// Number of workers.
    pub sessions: usize,
    /// Most texts per pass; `None` for a model that generates.
    pub batch: Option<usize>,
    /// The places of the queue.
    pub share: Share,
}

/// The queue, by the model's task.
pub enum Queue {
    /// Texts to embed.
    Embed(Texts),
    /// Prompts to continue.
    Generate(Prompts),
}

/// Current contents of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Waiting texts or prompts.
    pub waiting: usize,
    /// Passes or answers under way.
    pub running: usize,
    /// Answers that are kept.
    pub kept: usize,
}

impl Queue {
    /// Its current contents.
    pub fn held(&self) -> Held {
        match self {
            Self::Embed(texts) => texts.held(),
            Self::Generate(prompts) => prompts.held(),
        }
    }
}

/// The queue, the workers and their shared state.
pub struct Sessions {
    /// State shared by the workers and HTTP.
    pub shared: Arc<Shared>,
    /// The queue.
    pub queue: Arc<Queue>,
    workers: Vec<JoinHandle<()>>,
}

impl Sessions {
    /// Connects, so that a wrong address, pin or token is found at once, as is a server that does not allow the
    /// requested products ahead or drafts; then starts the workers. `keys` is the number of keys that share the queue.
    ///
    /// # Errors
    /// As [`Client::connect`]; [`GatewayError::NoRoute`] for a model that neither embeds nor generates text.
    pub fn open(config: &GatewayConfig, keys: usize) -> Result<Self, GatewayError> {
        let client = Client::connect(&config.client)?;
        let task = client.public().task();
        if task == Task::Classify {
            return Err(GatewayError::NoRoute);
        }
        client.allows(config.ahead, config.draft)?;
        let terms = Terms {
            padded: config.bucket.is_some(),
            public_table: config.public_table,
        };
        let batch = config.batch.min(client.texts_left()).max(1);
        let public = client.public_prefix().map_or(0, |p| p.tokens as usize);
        let opened = (public, client.answers());
        let (setup, ahead) = (
            client.setup().time,
            config.ahead.min(client.max_ahead()).into(),
        );
        let pace = Pace::new(client.public(), terms, setup, opened, ahead);
        let shared = Arc::new(Shared {
            public: client.public().clone(),
            bundle: client.bundle_hash(),
            max_tokens: client.max_tokens(),
            max_pass_tokens: client.max_pass_tokens(),
            max_texts: client.texts_left(),
            documents: client.documents(),
            record_bytes: client.record_bytes(),
            scores: client.gives_scores(),
            how: How {
                bucket: config.bucket,
                public_table: config.public_table,
                pad_output: config.pad_output,
                ahead: config.ahead,
                draft: config.draft,
            },
            pace: pace.map_err(ServeError::from)?,
            ledger: Ledger::default(),
            stop: Arc::default(),
            open: AtomicUsize::new(0),
            reachable: AtomicBool::new(true),
            away: Away::default(),
            sessions: config.sessions,
            batch: (task != Task::Generate).then_some(batch),
            share: Share::new(config.max_waiting, keys),
        });
        shared.ledger.session(&client.setup());
        let limits = Limits {
            texts: batch,
            rows: shared.max_pass_tokens,
        };
        let queue = match task {
            Task::Generate => Queue::Generate(Prompts::default()),
            _ => Queue::Embed(Texts::new(limits, salt()?)),
        };
        let mut sessions = Self {
            shared,
            queue: Arc::new(queue),
            workers: Vec::new(),
        };
        sessions.start(config, client)?;
        Ok(sessions)
    }

    /// Ends passes at their next step, then the workers.
    pub fn close(self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        match &*self.queue {
            Queue::Embed(texts) => texts.close(),
            Queue::Generate(prompts) => prompts.close(),
        }
        for worker in self.workers {
            // A worker's panic has been reported already.
            let _ = worker.join();
        }
    }

    fn start(&mut self, config: &GatewayConfig, first: Client) -> Result<(), GatewayError> {
        let mut first = Some(first);
        let mut client = config.client.clone();
        // Later sessions must be with the same model, or are refused.
        let pin = BundlePin::Hash(self.shared.bundle);
        client.bundle.get_or_insert(pin);
        for _ in 0..config.sessions {
            let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
            let kept = Kept::new(client.clone(), Arc::clone(&shared), first.take());
            let worker = move || match &*queue {
                Queue::Embed(texts) => embed::work(texts, &shared, kept),
                Queue::Generate(prompts) => generate::work(prompts, &shared, kept),
            };
            let named = thread::Builder::new().name("hushed session".to_owned());
            let started = named.spawn(worker).map_err(ServeError::Thread)?;
            self.workers.push(started);
        }
        Ok(())
    }
}

impl Shared {
    /// The admission rules for a request whose client waits `patience`.
    pub fn admission(&self, patience: Duration) -> Admission<'_> {
        Admission {
            pace: &self.pace,
            patience,
            sessions: self.sessions,
            batch: self.batch,
            open: self.is_open(),
            away: self.is_away(),
            share: self.share,
        }
    }

    /// Why no request is taken at present: no session is open, and none is opened.
    fn is_away(&self) -> Option<Failure> {
        match self.is_open() {
            true => None,
            false => self.away.now(),
        }
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Keeps a worker without a session from taking work for which it could not open one. Waiting clients are told by
    /// `fail`, unless another worker has a session.
    fn stay_away(&self, kept: &Kept, fail: impl Fn(&Failure)) {
        while !kept.is_open() && !self.stop.load(Ordering::Relaxed) && self.away.now().is_some() {
            if let Some(failure) = self.is_away() {
                fail(&failure);
            }
            thread::sleep(LOOK);
        }
    }

    /// Enters what was sent for an answer in the ledger, and learns from its time.
    fn sent(&self, sent: &Sent, planned: &Planned) {
        match sent.work {
            Work::Ahead => self.ledger.ahead(sent.rows, sent.counted, &sent.cost),
            Work::Pass { .. } => self.ledger.pass(vec![sent.rows], sent.counted, &sent.cost),
        }
        if let Some(planned) = planned.of(sent) {
            self.pace.pass_took(planned, sent.cost.time);
        }
    }

    /// Rows of a text with `tokens` tokens, padding included, if at most `most` are accepted.
    pub fn rows(&self, tokens: usize, most: usize) -> usize {
        let bucket = self.how.bucket.unwrap_or(1).max(1);
        tokens.div_ceil(bucket).saturating_mul(bucket).min(most)
    }
}

fn salt() -> Result<[u8; 32], ServeError> {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(|_| ServeError::NoRandomness)?;
    Ok(salt)
}
