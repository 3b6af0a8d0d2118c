//! How much memory the two parties of a run take.
//!
//! Not a bound: a model of the allocations that matter, with constants that were measured (resident memory at its peak).

use hushed_model::Bert;
use serde::Serialize;

use crate::plan::{Entry, Plan};
use crate::twopc::{RunError, Terms};

/// Program, tokenizer, thread pools, allocator.
const PROGRAM: u64 = 24 << 20;

/// Bytes that the parties of a run hold at their peaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// The client's process.
    pub client: u64,
    /// The server's process without sessions: weights as they were read and as integers.
    pub weights: u64,
    /// Each session at the server.
    pub session: u64,
}

impl Memory {
    /// The server's process with so many sessions in their largest steps at once.
    pub fn server(&self, sessions: usize) -> u64 {
        self.weights + sessions as u64 * self.session
    }

    /// The memory of the largest passes that a server lets in: one text of `tokens` rows, or several of `pass` rows together.
    ///
    /// # Errors
    /// As [`Plan::twopc`].
    pub fn largest(bert: &Bert, tokens: usize, pass: usize) -> Result<Memory, RunError> {
        // Attention grows with the square of a text's length: as many of the longest texts as fit are the worst.
        let texts = vec![tokens.max(1); (pass / tokens.max(1)).max(1)];
        Ok(Plan::twopc(bert, &texts, Terms::default(), true)?.memory)
    }
}

/// Bytes of all layers of the server: the numbers as they were read (f32) and as they are run (i32, norms and residual columns in them),
/// token vectors and positions included.
fn weights(bert: &Bert) -> u64 {
    let e = &bert.embedding;
    let read = |l: &hushed_model::Linear| l.inputs * l.outputs;
    let mut numbers = 2 * e.vocabulary * e.width + e.positions * e.width;
    for layer in &bert.layers {
        let (a, f) = (&layer.attention, &layer.feed_forward);
        let d = e.width;
        let in_file = [&a.query, &a.key, &a.value, &a.output, &f.up, &f.down].map(read);
        // Again as integers, with the diagonal of the residual beside query and up.
        numbers += 2 * in_file.iter().sum::<usize>() + 2 * d * d;
    }
    4 * numbers as u64
}

/// What a plan's steps and sizes come to.
pub(crate) fn estimate(
    bert: &Bert,
    rows: usize,
    public_table: bool,
    steps: &[Entry],
    keys: u64,
) -> Memory {
    let largest = steps.iter().map(|s| s.cots).max().unwrap_or(0);
    let session = keys * KEYS + OT_STATE + (largest as f64 * COT_BYTES) as u64;
    let e = &bert.embedding;
    let hot = match public_table {
        false => 8 * rows * e.vocabulary,
        true => 8 * e.vocabulary * e.width,
    };
    Memory {
        client: PROGRAM + session.max(keys * KEYS + OT_STATE + hot as u64),
        weights: PROGRAM + weights(bert),
        session,
    }
}

const KEYS: u64 = 3;
const OT_STATE: u64 = 40 << 20;
const COT_BYTES: f64 = 20.0;
