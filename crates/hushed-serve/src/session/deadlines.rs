//! How long each part of a session may take.

use std::time::{Duration, Instant};

use hushed_net::Limits;

/// The deadlines of one side. A heartbeat resets the silence deadline; the others hold however active the peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// Connecting, the TLS handshake and the first messages: everything before the peer is authenticated. 10 s.
    pub handshake: Duration,
    /// The longest silence allowed to the peer. 60 s.
    pub silence: Duration,
    /// The bundle, keys and correlations. 3 min.
    pub setup: Duration,
    /// One text. 30 min.
    pub text: Duration,
    /// How long a server keeps a session without a request. 5 min.
    pub idle: Duration,
    /// How long a session may go without a request while another client waits for one; ten times as long while a text
    /// is being continued. 3 s.
    pub rest: Duration,
    /// How long a server keeps a client waiting for a session. 15 min.
    pub queue: Duration,
    /// How long a stopping server waits for texts in progress. 2 min.
    pub drain: Duration,
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(10),
            silence: Duration::from_secs(60),
            setup: Duration::from_secs(180),
            text: Duration::from_secs(30 * 60),
            idle: Duration::from_secs(300),
            rest: Duration::from_secs(3),
            queue: Duration::from_secs(15 * 60),
            drain: Duration::from_secs(120),
        }
    }
}

impl Deadlines {
    /// Limits before authentication: little time in all, and small queues.
    pub(crate) fn before_authentication(&self) -> Limits {
        Limits {
            silence: self.handshake,
            until: Instant::now().checked_add(self.handshake),
            ..Limits::before_authentication()
        }
    }

    /// Limits for a client that waits this long for a session: it sends nothing but heartbeats.
    pub(crate) fn in_queue(&self, whole: Duration) -> Limits {
        let whole = whole.saturating_add(self.handshake);
        let until = Instant::now().checked_add(whole);
        Limits { silence: self.silence, until, ..Limits::before_authentication() }
    }

    /// Limits after authentication, for a part of the session that may take `whole`.
    pub(crate) fn within(&self, whole: Duration) -> Limits {
        Limits { silence: self.silence, until: Instant::now().checked_add(whole), ..Limits::session() }
    }
}
