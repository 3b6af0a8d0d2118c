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
mod ready;
pub mod search;
mod session;
pub mod share;
mod shared;
pub mod texts;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use hushed_mpc::Terms;
use hushed_serve::{BundlePin, Client, Refusal, ServeError, Task};

use crate::config::GatewayConfig;
use crate::error::GatewayError;
use away::Away;
use generate::Prompts;
use ledger::Ledger;
use pace::Pace;
use ready::Ready;
use session::Kept;
use share::Share;
use texts::{Limits, Texts};

pub use admission::Held;
pub use shared::{How, Shared};

/// The queue, by the model's task.
pub enum Queue {
    /// Texts to embed.
    Embed(Texts),
    /// Prompts to continue.
    Generate(Prompts),
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
    /// Looks at the server, so that a wrong address, pin or token is found at once, as is a server that does not allow
    /// the requested products ahead or drafts; then starts the workers. A session is opened when there is work. `keys`
    /// is the number of keys that share the queue.
    ///
    /// # Errors
    /// As [`Client::look`]; [`GatewayError::NoRoute`] for a model that neither embeds nor generates text.
    pub fn open(config: &GatewayConfig, keys: usize) -> Result<Self, GatewayError> {
        let began = Instant::now();
        let client = Client::look(&config.client)?;
        let task = client.public().task();
        if client.public().images.is_some() {
            return Err(GatewayError::NoRoute);
        }
        if config.ahead > 0 && task != Task::Generate {
            return Err(ServeError::Refused(Refusal::OtherTask { task }).into());
        }
        client.allows(config.ahead, config.draft)?;
        let terms = Terms { padded: config.bucket.is_some(), public_table: config.public_table };
        let batch = config.batch.min(client.max_texts()).max(1);
        let public = client.public_prefix().map_or(0, |p| p.tokens as usize);
        let opened = (public, client.answers());
        let (setup, ahead) = (began.elapsed(), config.ahead.min(client.max_ahead()).into());
        let pace = Pace::new(client.public(), terms.over(client.link()), setup, opened, ahead);
        let stop = Arc::<AtomicBool>::default();
        let mut later = config.client.clone();
        // Sessions must be with the same model, or are refused.
        later.bundle.get_or_insert(BundlePin::Hash(client.bundle_hash()));
        later.stop = Some(Arc::clone(&stop));
        later.on_wait = Some(Arc::new(|waiting| tracing::info!("{waiting}")));
        let shared = Arc::new(Shared {
            client: later,
            public: client.public().clone(),
            bundle: client.bundle_hash(),
            max_tokens: client.max_tokens(),
            max_pass_tokens: client.max_pass_tokens(),
            max_texts: client.max_texts(),
            top: client.answers().top(),
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
            stop,
            open: AtomicUsize::new(0),
            ready: Ready::now(),
            away: Away::default(),
            sessions: config.sessions,
            batch: (task != Task::Generate).then_some(batch),
            share: Share::new(config.max_waiting, keys),
        });
        let limits = Limits { texts: batch, rows: shared.max_pass_tokens };
        let queue = match task {
            Task::Generate => Queue::Generate(Prompts::default()),
            _ => Queue::Embed(Texts::new(limits, salt()?)),
        };
        let mut sessions = Self { shared, queue: Arc::new(queue), workers: Vec::new() };
        sessions.start(config)?;
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

    fn start(&mut self, config: &GatewayConfig) -> Result<(), GatewayError> {
        let client = self.shared.client.clone();
        for _ in 0..config.sessions {
            let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
            let kept = Kept::new(client.clone(), Arc::clone(&shared));
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

fn salt() -> Result<[u8; 32], ServeError> {
    let mut salt = [0; 32];
    getrandom::fill(&mut salt).map_err(|_| ServeError::NoRandomness)?;
    Ok(salt)
}
