//! What an operator decides.

use std::path::PathBuf;

use crate::error::ServeError;
use crate::session::config::{ClientAccess, Entrance, ServerIdentity};
use crate::session::deadlines::Deadlines;
use crate::session::rate::ClientTexts;

/// Everything about a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The model folder.
    pub model: PathBuf,
    /// `HOST:PORT`; port 0 takes any free one.
    pub listen: String,
    /// How it proves who it is.
    pub identity: ServerIdentity,
    /// Whom it lets in.
    pub access: ClientAccess,
    /// Sessions at once; more are refused.
    pub max_sessions: usize,
    /// Most tokens of a text, below the model's own limit.
    pub max_tokens: Option<usize>,
    /// Most tokens of all texts of a pass together; a single text is bounded by `max_tokens` alone.
    pub max_pass_tokens: usize,
    /// Most texts of a session.
    pub max_texts: usize,
    /// Most texts of a client in a window of time, over all its sessions.
    pub texts_per_client: Option<ClientTexts>,
    /// Gives the table of token vectors to clients that ask for it: every client that may connect then has it whole. Their lookups cost nothing.
    pub public_table: bool,
    /// Bytes that the process may take: what the sessions may need is kept free, and weights are held transformed in the rest. `None` holds
    /// none.
    pub max_memory: Option<u64>,
    /// The number of tokens for which weights are held transformed.
    pub ready_tokens: usize,
    /// How long to wait for what.
    pub deadlines: Deadlines,
    /// `HOST:PORT` of `/healthz`, `/readyz` and `/metrics`, over plain HTTP: for a loopback or an inner network.
    pub metrics_listen: Option<String>,
}

impl ServerConfig {
    /// A server for this machine alone: any free port of loopback, a development certificate, 4 sessions of 1,000 texts.
    #[must_use]
    pub fn local(model: impl Into<PathBuf>, certificates: impl Into<PathBuf>) -> Self {
        Self {
            model: model.into(),
            listen: "127.0.0.1:0".to_owned(),
            identity: ServerIdentity::Development(certificates.into()),
            access: ClientAccess::Anyone,
            max_sessions: 4,
            max_tokens: None,
            max_pass_tokens: 256,
            max_texts: 1000,
            texts_per_client: None,
            public_table: false,
            max_memory: None,
            ready_tokens: 16,
            deadlines: Deadlines::default(),
            metrics_listen: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), ServeError> {
        let limits = [
            ("the number of tokens", self.max_tokens.unwrap_or(1)),
            ("the number of tokens of a pass", self.max_pass_tokens),
            ("the number of texts", self.max_texts),
            ("the number of ready tokens", self.ready_tokens),
        ];
        match limits.into_iter().find(|(_, limit)| *limit == 0) {
            Some((name, _)) => Err(ServeError::NothingAllowed { name }),
            None => Ok(()),
        }
    }

    pub(super) fn entrance(&self) -> Entrance {
        Entrance {
            listen: self.listen.clone(),
            identity: self.identity.clone(),
            access: self.access.clone(),
            max_sessions: self.max_sessions,
            texts_per_client: self.texts_per_client.clone(),
            deadlines: self.deadlines,
            metrics_listen: self.metrics_listen.clone(),
        }
    }
}
