//! What left this machine, as counts of passes and sessions that a person can read. Nothing in it depends on a text
//! beyond what the server itself saw.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hushed_serve::Cost;
use serde::Serialize;

/// Most lines that are kept.
const LINES: usize = 200;

/// Lines and their sums.
#[derive(Default)]
pub struct Ledger(Mutex<Book>);

/// The whole ledger, for the page.
#[derive(Clone, Default, Serialize)]
pub struct Book {
    /// Sums since the gateway started.
    pub total: Sum,
    /// The last lines, newest first.
    pub lines: VecDeque<Line>,
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// Sessions that were set up.
    pub sessions: u64,
    /// Passes through the model that succeeded.
    pub passes: u64,
    /// Passes and set-ups that failed.
    pub failures: u64,
    /// Texts in these passes; each pass of an answer has one.
    pub texts: u64,
    /// Their tokens as the server saw them, including padding and any wrong drafts.
    pub tokens: u64,
    /// Passes for which products were prepared ahead.
    pub ahead: u64,
    /// What all of it counted as, in texts, towards what the server allows. Every token that was opened for an answer
    /// counts, also after a wrong draft; one with products prepared ahead counts when these are made.
    pub counted: u64,
    /// Bytes, client to server.
    pub bytes_sent: u64,
    /// Bytes, server to client.
    pub bytes_received: u64,
    /// How often the client waited for the server.
    pub rounds: u64,
    /// Duration of passes and set-ups.
    pub seconds: f64,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Seconds since 1970.
    pub at: u64,
    /// `session`, `pass`, `ahead` (products were prepared), or the name of an error.
    pub what: &'static str,
    /// What the server saw of each text: its tokens, padding included. For products prepared ahead: how many passes.
    pub tokens: Vec<usize>,
    /// What it counted as, in texts.
    pub counted: usize,
    /// Bytes, client to server.
    pub bytes_sent: u64,
    /// Bytes, server to client.
    pub bytes_received: u64,
    /// How often the client waited for the server.
    pub rounds: u64,
    /// How long it took.
    pub seconds: f64,
}

impl Ledger {
    /// Records that a session was set up.
    pub fn session(&self, cost: &Cost) {
        self.write("session", Vec::new(), 0, cost);
    }

    /// Records a pass over texts with these numbers of rows, which counted as `counted` texts.
    pub fn pass(&self, rows: Vec<usize>, counted: usize, cost: &Cost) {
        self.write("pass", rows, counted, cost);
    }

    /// Records that products were prepared for `passes` passes, and counted as `counted` texts.
    pub fn ahead(&self, passes: usize, counted: usize, cost: &Cost) {
        self.write("ahead", vec![passes], counted, cost);
    }

    /// Records that a pass or a set-up failed, with the bytes sent so far.
    pub fn failure(&self, name: &'static str, rows: Vec<usize>, cost: &Cost) {
        self.write(name, rows, 0, cost);
    }

    /// A copy.
    pub fn book(&self) -> Book {
        self.lock().clone()
    }

    fn write(&self, what: &'static str, tokens: Vec<usize>, counted: usize, cost: &Cost) {
        let Cost { time, stats } = cost;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = Line {
            at: now.map_or(0, |d| d.as_secs()),
            what,
            bytes_sent: stats.bytes_sent,
            bytes_received: stats.bytes_received,
            rounds: stats.rounds,
            seconds: time.as_secs_f64(),
            tokens,
            counted,
        };
        let mut book = self.lock();
        let total = &mut book.total;
        match what {
            "session" => total.sessions += 1,
            "pass" => {
                total.passes += 1;
                total.texts += line.tokens.len() as u64;
                total.tokens += line.tokens.iter().sum::<usize>() as u64;
            }
            "ahead" => total.ahead += line.tokens.iter().sum::<usize>() as u64,
            _ => total.failures += 1,
        }
        total.counted += line.counted as u64;
        total.bytes_sent += line.bytes_sent;
        total.bytes_received += line.bytes_received;
        total.rounds += line.rounds;
        total.seconds += line.seconds;
        book.lines.push_front(line);
        book.lines.truncate(LINES);
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hushed_serve::Stats;

    use super::*;

    #[test]
    fn lines_add_up_and_are_bounded() {
        let ledger = Ledger::default();
        let stats = Stats { bytes_sent: 10, bytes_received: 20, rounds: 3, ..Stats::default() };
        let time = Duration::from_secs(1);
        let cost = Cost { time, stats };
        ledger.session(&cost);
        ledger.ahead(5, 5, &cost);
        for _ in 0..LINES {
            ledger.pass(vec![4, 6], 2, &cost);
        }
        // Three rows of an answer with products prepared ahead, which have counted already.
        ledger.pass(vec![3], 0, &cost);
        ledger.failure("peer-gone", vec![4], &cost);
        let book = ledger.book();
        let n = LINES as u64;
        let sum = Sum {
            sessions: 1,
            passes: n + 1,
            failures: 1,
            texts: 2 * n + 1,
            tokens: 10 * n + 3,
            ahead: 5,
            counted: 2 * n + 5,
            bytes_sent: 10 * (n + 4),
            bytes_received: 20 * (n + 4),
            rounds: 3 * (n + 4),
            seconds: (n + 4) as f64,
        };
        assert_eq!(book.total, sum);
        assert_eq!(book.lines.len(), LINES);
        assert_eq!(book.lines[0].what, "peer-gone");
    }
}
