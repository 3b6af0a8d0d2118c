//! A server's memory limit: whether it holds the weights, and how many of them transformed.

use hushed_model::{Program, Public, Task};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Index, Layers, Memory, Terms, Wanted};

use super::ServerConfig;
use crate::error::ServeError;
use crate::twopc::wire::{MAX_AHEAD, MAX_DRAFTS, MAX_TOP};

/// The memory that a server may use, and what it needs.
pub(super) struct Room {
    limit: u64,
    sessions: usize,
    needed: Memory,
}

impl Room {
    /// `rows`: those of the public prefix and of the longest text.
    pub(super) fn of(
        program: &Program,
        config: &ServerConfig,
        rows: (usize, usize),
        index: Option<&Index>,
        limit: u64,
    ) -> Result<Self, ServeError> {
        let (_, max_tokens) = rows;
        let pass = config.max_pass_tokens.max(max_tokens);
        let (ahead, drafts) = (config.max_ahead.min(MAX_AHEAD), config.max_drafts.min(MAX_DRAFTS));
        let mut needed =
            Memory::largest(program, rows, pass)?.with_later(program, rows, pass, (ahead.into(), drafts.into()))?;
        if let Some(index) = index {
            let wanted = Wanted {
                top: index.documents().min(usize::from(MAX_TOP)),
                records: index.has_records(),
                scores: config.search_scores,
            };
            let search = Plan::search(program, index, max_tokens, Terms::default(), wanted)?;
            needed.session = needed.session.max(search.memory.session);
            needed.weights += index.bytes();
        }
        Ok(Self { limit, sessions: config.entrance.max_sessions, needed })
    }

    /// Whether weights are read from disk in every pass.
    pub(super) fn streams(&self) -> bool {
        self.needed.streams(self.sessions, self.limit)
    }

    /// Logs that weights are read in every pass.
    pub(super) fn streamed(&self) {
        let needed = self.needed.streaming(self.sessions);
        self.warn(needed);
        tracing::info!(needed, held = self.needed.server(self.sessions), "weights read from disk in every pass");
    }

    /// Transforms weights into the memory that sessions do not need.
    pub(super) fn hold_ready(
        &self,
        layers: &Layers,
        public: &Public,
        config: &ServerConfig,
        max_tokens: usize,
    ) -> Result<(), ServeError> {
        let needed = self.needed.server(self.sessions);
        let usual = match public.task() {
            _ if public.images.is_some() => max_tokens,
            Task::Generate => 1,
            Task::Embed | Task::Classify => 16,
        };
        let rows = config.ready_tokens.unwrap_or(usual).min(max_tokens);
        let ready = layers.make_ready(rows, self.limit.saturating_sub(needed))?;
        self.warn(needed);
        tracing::info!(
            matrices = ready.held,
            of = ready.matrices,
            bytes = ready.bytes,
            kept_free = needed,
            "weights transformed"
        );
        Ok(())
    }

    fn warn(&self, needed: u64) {
        if needed > self.limit {
            tracing::warn!(
                needed,
                allowed = self.limit,
                "sessions may need more memory than allowed: lower --max-sessions, --max-tokens or --max-pass-tokens"
            );
        }
    }
}
