//! The user's settings for a gateway.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use hushed_serve::{ClientConfig, ServeError, host};

use crate::error::GatewayError;

/// The settings of a gateway. No `Debug`: it holds the server's token.
#[derive(Clone)]
pub struct GatewayConfig {
    /// The server and what to insist on.
    pub client: ClientConfig,
    /// Where to listen.
    pub listen: Listen,
    /// Certificate chain and key (PEM files), for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A private file of keys, one per line, or `sha256:` and the digest of one, each with a name before it if it has
    /// one; clients must show one of them as their bearer token. The key with the name `operator` sees what all do.
    pub api_keys: Option<PathBuf>,
    /// Once raised, keys and certificate are read again, and the flag is lowered.
    pub reload: Arc<AtomicBool>,
    /// Names by which browsers and clients may call the gateway, besides those of a loopback address.
    pub hosts: Vec<String>,
    /// Web origins (`https://example.org`) whose pages may use the gateway, besides its own page.
    pub origins: Vec<String>,
    /// The model's name in the APIs; `None` derives one from its hash.
    pub model_name: Option<String>,
    /// Further names of the model, which programs already use.
    pub aliases: Vec<String>,
    /// Accepts every name of a model.
    pub any_model: bool,
    /// Number of simultaneous sessions with the server.
    pub sessions: usize,
    /// Most texts per pass.
    pub batch: usize,
    /// Most texts that can wait.
    pub max_waiting: usize,
    /// How long a client waits if it does not say.
    pub patience: Duration,
    /// How long requests under way may take once the gateway is stopped.
    pub drain: Duration,
    /// The longest time that a list of texts may take which its client is kept waiting for.
    pub longest: Duration,
    /// Pads texts to a multiple of this many tokens.
    pub bucket: Option<usize>,
    /// Embeds the beginning of a text that is too long, unless the request says otherwise.
    pub truncate: bool,
    /// Looks tokens up in the model's public table.
    pub public_table: bool,
    /// Runs as many passes as an answer may have tokens, wherever it ends.
    pub pad_output: bool,
    /// Has products prepared for this many later tokens of an answer at a time, before its first token; 0 prepares
    /// none. See [`GenerateOptions::ahead`](hushed_serve::GenerateOptions::ahead).
    pub ahead: u16,
    /// Guesses at most this many next tokens of an answer, and has them verified in one pass; 0 guesses none. See
    /// [`GenerateOptions::draft`](hushed_serve::GenerateOptions::draft).
    pub draft: u16,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `HOST:PORT`; port 0 takes any free one.
    Tcp(String),
    /// A Unix socket that only this user can open.
    Unix(PathBuf),
}

impl GatewayConfig {
    /// One session, passes of 8 texts, on any free loopback port.
    #[must_use]
    pub fn new(client: ClientConfig) -> Self {
        Self {
            client,
            listen: Listen::Tcp("127.0.0.1:0".to_owned()),
            tls: None,
            api_keys: None,
            reload: Arc::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            model_name: None,
            aliases: Vec::new(),
            any_model: false,
            sessions: 1,
            batch: 8,
            max_waiting: 1024,
            patience: Duration::from_secs(600),
            drain: Duration::from_secs(120),
            longest: Duration::from_secs(86_400),
            bucket: None,
            truncate: false,
            public_table: false,
            pad_output: false,
            ahead: 0,
            draft: 0,
        }
    }

    pub(crate) fn check(&self) -> Result<(), GatewayError> {
        let numbers = [
            ("the number of sessions", self.sessions),
            ("the number of texts of a pass", self.batch),
            ("the length of the queue", self.max_waiting),
            ("the bucket", self.bucket.unwrap_or(1)),
        ];
        match numbers.into_iter().find(|(_, number)| *number == 0) {
            Some((name, _)) => Err(GatewayError::Nothing { name }),
            None if self.draft > 0 && self.pad_output => Err(ServeError::DraftsShow.into()),
            None => Ok(self.check_addresses()?),
        }
    }

    /// Refuses addresses that are none.
    fn check_addresses(&self) -> Result<(), ServeError> {
        host(&self.client.server)?;
        match &self.listen {
            Listen::Tcp(address) => host(address).map(drop),
            Listen::Unix(path) if path.as_os_str().is_empty() => {
                Err(ServeError::Address { address: "unix:".to_owned() })
            }
            Listen::Unix(_) => Ok(()),
        }
    }
}

impl From<&str> for Listen {
    /// `HOST:PORT`, or `unix:PATH`.
    fn from(text: &str) -> Self {
        match text.strip_prefix("unix:") {
            Some(path) => Self::Unix(path.into()),
            None => Self::Tcp(text.to_owned()),
        }
    }
}
