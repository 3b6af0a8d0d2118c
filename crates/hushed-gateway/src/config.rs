//! What the user of a gateway decides.

use std::path::PathBuf;
use std::time::Duration;

use hushed_serve::{ClientConfig, ServeError};

use crate::error::GatewayError;

/// Everything about a gateway. No `Debug`: it holds the server's token.
#[derive(Clone)]
pub struct GatewayConfig {
    /// The server, and what to insist on.
    pub client: ClientConfig,
    /// Where to listen.
    pub listen: Listen,
    /// Certificate chain and key (PEM files), for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A file of keys, one a line, of which clients show one as their bearer token.
    pub api_keys: Option<PathBuf>,
    /// Names by which browsers and clients may call the gateway, beside those of a loopback address.
    pub hosts: Vec<String>,
    /// Web origins (`https://example.org`) whose pages may use the gateway, beside its own page.
    pub origins: Vec<String>,
    /// What the model is called in the APIs; `None` takes a name from its hash.
    pub model_name: Option<String>,
    /// Sessions with the server at once.
    pub sessions: usize,
    /// Most texts of a pass.
    pub batch: usize,
    /// Most texts that wait.
    pub max_waiting: usize,
    /// How long a client waits that does not say so.
    pub patience: Duration,
    /// Pads texts to a multiple of this many tokens.
    pub bucket: Option<usize>,
    /// Embeds the beginning of a text that is too long, where a request does not say otherwise.
    pub truncate: bool,
    /// Looks tokens up in the model's public table.
    pub public_table: bool,
    /// Runs as many passes as an answer may have tokens, wherever it ends.
    pub pad_output: bool,
    /// Has products made for so many later tokens of an answer at a time, before its first token; 0 makes none. See
    /// [`GenerateOptions::ahead`](hushed_serve::GenerateOptions::ahead).
    pub ahead: u16,
    /// Guesses at most so many next tokens of an answer, and has them verified in one pass; 0 guesses none. See
    /// [`GenerateOptions::draft`](hushed_serve::GenerateOptions::draft).
    pub draft: u16,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// `HOST:PORT`; port 0 takes any free one.
    Tcp(String),
    /// A Unix socket, for this user alone.
    Unix(PathBuf),
}

impl GatewayConfig {
    /// One session, passes of 8 texts, on any free port of loopback.
    #[must_use]
    pub fn new(client: ClientConfig) -> Self {
        Self {
            client,
            listen: Listen::Tcp("127.0.0.1:0".to_owned()),
            tls: None,
            api_keys: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            model_name: None,
            sessions: 1,
            batch: 8,
            max_waiting: 1024,
            patience: Duration::from_secs(600),
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
            None => Ok(()),
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
