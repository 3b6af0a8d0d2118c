//! The state that the workers and HTTP share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use hushed_serve::{Client, ClientConfig, Digest, Public, Sent, Work};

use super::admission::Admission;
use super::away::Away;
use super::failure::Failure;
use super::ledger::{Ledger, Seen};
use super::pace::{Pace, Planned};
use super::ready::Ready;
use super::share::{Caller, Share};

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
    /// How its sessions are opened.
    pub client: ClientConfig,
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
    /// How many of the likeliest tokens or classes the server opens; `None` if it opens logits.
    pub top: Option<usize>,
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
    /// Whether the server would take a session.
    pub(super) ready: Ready,
    /// The reason why no session is opened at present, if any.
    pub away: Away,
    /// Number of workers.
    pub sessions: usize,
    /// Most texts per pass; `None` for a model that generates.
    pub batch: Option<usize>,
    /// The places of the queue.
    pub share: Share,
}

impl Shared {
    /// Looks at the server as a session would begin: its certificate, its model, this client's token. It takes no
    /// session.
    ///
    /// # Errors
    /// The failure with which a session would end.
    pub fn look(&self) -> Result<(), Failure> {
        self.ready.asked(|| {
            let failure = Client::look(&self.client).err().map(|error| Failure::from(&error));
            // A refusal for this client holds even if the server is there.
            if failure.is_none() && self.away.now().is_none_or(|failure| !failure.lasts()) {
                self.away.end();
            }
            failure
        })
    }

    /// The admission rules for a request whose client waits `patience`.
    pub fn admission(&self, patience: Duration) -> Admission<'_> {
        Admission {
            pace: &self.pace,
            patience,
            bound: None,
            sessions: self.sessions,
            batch: self.batch,
            open: self.is_open(),
            away: self.is_away(),
            share: self.share,
        }
    }

    /// Why no request is taken at present: no session is open, and none is opened.
    pub(super) fn is_away(&self) -> Option<Failure> {
        match self.is_open() {
            true => None,
            false => self.away.now(),
        }
    }

    fn is_open(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }

    /// Enters what was sent for an answer of this caller in the ledger, and learns from its time.
    pub(super) fn sent(&self, sent: &Sent, planned: &Planned, caller: Caller) {
        match sent.work {
            Work::Ahead => self.ledger.ahead(sent.rows, caller, sent.counted, &sent.cost),
            Work::Pass { .. } => self.ledger.pass(Seen::one(sent.rows, caller), sent.counted, &sent.cost),
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
