//! The server: one model, many sessions, each in a thread of its own.

mod config;
mod room;
mod session;
mod vocabulary;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hushed_model::{Model, ModelError, Task};
use hushed_mpc::formats::{longest, usual};
use hushed_mpc::{Answers, Index, Layers, RunError, Sampled, Sampler, opened_bits, out_of_range, sampled};

use crate::bundle::{self, Bundle};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::listener::Listener;
use crate::twopc::index::IndexFile;
use crate::twopc::prefix::Text;
use crate::twopc::table;
use crate::twopc::wire::{MAX_AHEAD, MAX_DRAFTS};
pub use config::{MAX_PASS_TOKENS, ServerConfig};
use room::Room;
use session::Shared;

/// A server that listens.
pub struct Server {
    shared: Shared,
}

impl Server {
    /// Reads the model, prepares its weights and listens. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// [`ServeError`]: the folder, the certificate, the token file, a port in use, or [`ServeError::OpenToStrangers`].
    pub fn bind(config: &ServerConfig) -> Result<Self, ServeError> {
        config.check()?;
        // The cheap refusals first: a large model takes seconds to read.
        let listener = Listener::open(&config.entrance)?;
        let bundle = Bundle::from_folder(&config.model)?;
        // With a limit, whether it is read as a whole is decided below.
        let mut model = match config.max_memory {
            Some(_) => Model::open(&config.model)?,
            None => Model::load(&config.model)?,
        };
        let generates = model.public.task() == Task::Generate;
        let max_tokens = config.max_tokens.unwrap_or(usual(generates));
        let max_tokens = max_tokens.min(model.public.max_tokens).min(longest(generates));
        if model.public.images.is_some() && max_tokens < model.public.max_tokens {
            let name = "a limit of tokens below the rows of an image, --max-tokens,";
            return Err(ServeError::NotForImages { name });
        }
        if config.max_drafts > 0 && model.public.task() != Task::Generate {
            return Err(ModelError::NotAGenerator.into());
        }
        let logits = model.body.outputs();
        let answers = Answers::of_model(config.answers, &model.public, logits);
        answers.suits(&model.public, logits).map_err(|needs| ServeError::OtherAnswers { answers, needs })?;
        let charge = answers.charge(logits);
        if charge > config.max_texts {
            return Err(ServeError::LessThanAnAnswer { charge, limit: config.max_texts });
        }
        let index = match &config.index {
            Some(path) => Some(IndexFile::read(path)?.for_server(&model)?),
            None => None,
        };
        let mut prefix = match &config.public_prefix {
            Some(path) => Some(Text::read(path, &model.public)?),
            None if config.public_head => Text::head(&model.public),
            None => None,
        };
        // A text gets the positions that the prefix leaves; a head is part of it.
        let prefixed = prefix.as_ref().map_or(0, Text::rows);
        let max_tokens = match config.public_prefix {
            Some(_) => max_tokens.min(model.public.max_tokens.min(longest(generates)) - prefixed),
            None => max_tokens,
        };
        let memory = match config.max_memory {
            Some(limit) => {
                let own = match config.public_prefix {
                    Some(_) => max_tokens,
                    None => max_tokens.saturating_sub(prefixed),
                };
                let rows = (prefixed, own);
                Some(Room::of(&model.program(), config, rows, index.as_ref(), limit)?)
            }
            None => None,
        };
        let streams = memory.as_ref().is_some_and(Room::streams);
        let layers = match streams {
            true => match out_of_range(&model)?.pop() {
                Some(beyond) => return Err(RunError::from(beyond).into()),
                None => Layers::streaming(&model.program())?,
            },
            false => {
                if memory.is_some() {
                    model = Model::load(&config.model)?;
                }
                let layers = Layers::default();
                layers.prepare(&model)?;
                layers
            }
        };
        let head = prefix.as_ref().map_or(&[][..], Text::ids);
        let Sampled { mut beyond, inexact, needs_head } = sampled(&model, head)?;
        if let Some(beyond) = beyond.pop() {
            return Err(RunError::from(beyond).into());
        }
        let head = if needs_head { head } else { &[] };
        vocabulary::check(config, &model, (bundle.hash(), head), streams)?;
        if let Some(prefix) = &mut prefix {
            prefix.needed(needs_head);
        }
        for fit in inexact {
            tracing::warn!(site = fit.site, "rows of this norm are small: answers are inexact (`hushed check`)");
        }
        let program = model.program();
        let prefix = match prefix {
            Some(text) => Some(text.run(&program)?),
            None => None,
        };
        match memory {
            Some(memory) if streams => memory.streamed(),
            Some(memory) => memory.hold_ready(&layers, &model.public, config, max_tokens)?,
            None => {}
        }
        let table = match (config.public_table, model.embedding()) {
            (true, Some(e)) => Some(table::hash(e)?),
            (true, None) => {
                let name = "a public table, --public-table,";
                return Err(ServeError::NotForImages { name });
            }
            (false, _) => None,
        };
        Ok(Self {
            shared: Shared {
                index,
                scores: config.search_scores,
                charge,
                bits: opened_bits(&model, answers)?,
                answers,
                prefix,
                max_ahead: config.max_ahead.min(MAX_AHEAD),
                max_drafts: config.max_drafts.min(MAX_DRAFTS),
                listener,
                max_tokens,
                max_pass_tokens: config.max_pass_tokens.max(max_tokens),
                program,
                sampler: Sampler::from_os(),
                model,
                layers: Arc::new(layers),
                bundle,
                agreement: bundle::agreement_hash()?,
                max_texts: config.max_texts,
                table,
            },
        })
    }

    /// Its address and certificate.
    #[must_use]
    pub fn listener(&self) -> &Listener {
        &self.shared.listener
    }

    /// Hash of the bundle: what clients pin to insist on this model.
    #[must_use]
    pub fn bundle_hash(&self) -> Digest {
        self.shared.bundle.hash()
    }

    /// Maximum tokens per text.
    #[must_use]
    pub fn max_tokens(&self) -> usize {
        self.shared.max_tokens
    }

    /// How many documents may be searched.
    #[must_use]
    pub fn documents(&self) -> usize {
        self.shared.index.as_ref().map_or(0, Index::documents)
    }

    /// The number of tokens of its public prefix.
    #[must_use]
    pub fn prefix_tokens(&self) -> usize {
        let prefix = self.shared.prefix.as_ref();
        prefix.map_or(0, |p| p.prefix.rows())
    }

    /// Whether its model reads images.
    #[must_use]
    pub fn reads_images(&self) -> bool {
        self.shared.model.public.images.is_some()
    }

    /// Whether its model gives scores of pairs of texts.
    #[must_use]
    pub fn scores_pairs(&self) -> bool {
        self.shared.model.public.config.scores() && self.shared.model.public.reads_pairs()
    }

    /// The task of its model.
    #[must_use]
    pub fn task(&self) -> Task {
        self.shared.task()
    }

    /// Serves until `stop` is raised, then lets texts in progress finish (within [`crate::Deadlines::drain`]) and cuts
    /// off the rest. A session that fails, however it fails, ends alone.
    ///
    /// # Errors
    /// [`ServeError::Thread`] if the metrics' thread cannot be started.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), ServeError> {
        let shared = &self.shared;
        tracing::info!(
            address = %self.listener().local_addr(),
            certificate = %self.listener().fingerprint(),
            bundle = %self.bundle_hash(),
            max_sessions = shared.listener.max_sessions,
            max_tokens = shared.max_tokens,
            "serving"
        );
        shared.listener.run(stop, &|entry, socket, peer, outcome| session::serve(shared, entry, socket, peer, outcome))
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use std::sync::atomic::Ordering;
    use std::thread;
    use std::time::Duration;

    use hushed_model::Matrix;
    use hushed_model::testing::tiny_folder;

    use super::*;
    use crate::{Client, ClientConfig, ServerTrust, TooLong};

    /// A table of positions that is smaller than stated imitates a defect.
    #[test]
    fn a_panic_ends_one_session_and_not_the_server() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        let mut server = Server::bind(&config).unwrap();
        let wrong = Arc::new(Matrix::zero(1, 32));
        let e = server.shared.model.body.embedding_mut();
        e.unwrap().offsets = Some(wrong);
        let pin = ServerTrust::Pin(server.listener().fingerprint().to_string());
        let client = ClientConfig::new(server.listener().local_addr().to_string(), pin);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| server.run(&stop).unwrap());
            for _ in 0..2 {
                let mut client = Client::connect(&client).unwrap();
                let error = client.embed(&["hello"], TooLong::Refuse, None).err();
                assert_eq!(error.unwrap().name(), "peer-gone");
            }
            while server.shared.listener.registry.len() > 0 {
                thread::sleep(Duration::from_millis(20));
            }
            stop.store(true, Ordering::SeqCst);
        });
        let metrics = server.shared.listener.metrics.render();
        assert!(metrics.contains("hushed_sessions_total{end=\"panic\"} 2"), "{metrics}");
    }
}
