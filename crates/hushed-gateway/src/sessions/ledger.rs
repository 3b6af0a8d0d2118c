//! What left this machine: counts that a person can read, of passes and sessions. Nothing in it depends on a text
//! beyond what the server itself saw.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hushed_serve::{Cost, Stats};
use serde::Serialize;

/// Most lines that are kept.
const LINES: usize = 200;

/// Lines and their sums.
#[derive(Default)]
pub struct Ledger(Mutex<Book>);

/// All of it, for the page.
#[derive(Clone, Default, Serialize)]
pub struct Book {
    /// Sums since the gateway began.
    pub total: Sum,
    /// The last lines, newest first.
    pub lines: VecDeque<Line>,
}

/// Sums.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sum {
    /// Sessions that were set up.
    pub sessions: u64,
    /// Passes through the model that ended well.
    pub passes: u64,
    /// Passes and set-ups that failed.
    pub failures: u64,
    /// Texts of these passes; tokens of an answer are one each.
    pub texts: u64,
    /// Their tokens as the server saw them, padding included.
    pub tokens: u64,
    /// Bytes, client to server.
    pub bytes_sent: u64,
    /// Bytes, server to client.
    pub bytes_received: u64,
    /// How often the client waited for the server.
    pub rounds: u64,
    /// Of passes and set-ups.
    pub seconds: f64,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Line {
    /// Seconds since 1970.
    pub at: u64,
    /// `session`, `pass`, or the name of an error.
    pub what: &'static str,
    /// What the server saw of each text: its tokens, padding included.
    pub tokens: Vec<usize>,
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
    /// A session was set up.
    pub fn session(&self, cost: &Cost) {
        self.write("session", Vec::new(), cost.time, &cost.stats);
    }

    /// A pass over texts of these numbers of rows.
    pub fn pass(&self, rows: Vec<usize>, time: Duration, stats: &Stats) {
        self.write("pass", rows, time, stats);
    }

    /// A pass or a set-up failed, after so many bytes.
    pub fn failure(&self, name: &'static str, rows: Vec<usize>, time: Duration, stats: &Stats) {
        self.write(name, rows, time, stats);
    }

    /// A copy.
    pub fn book(&self) -> Book {
        self.lock().clone()
    }

    fn write(&self, what: &'static str, tokens: Vec<usize>, time: Duration, stats: &Stats) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let line = Line {
            at: now.map_or(0, |d| d.as_secs()),
            what,
            bytes_sent: stats.bytes_sent,
            bytes_received: stats.bytes_received,
            rounds: stats.rounds,
            seconds: time.as_secs_f64(),
            tokens,
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
            _ => total.failures += 1,
        }
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
    use super::*;

    #[test]
    fn lines_add_up_and_are_bounded() {
        let ledger = Ledger::default();
        let stats = Stats {
            bytes_sent: 10,
            bytes_received: 20,
            rounds: 3,
            ..Stats::default()
        };
        let time = Duration::from_secs(1);
        ledger.session(&Cost { time, stats });
        for _ in 0..LINES {
            ledger.pass(vec![4, 6], time, &stats);
        }
        ledger.failure("peer-gone", vec![4], time, &stats);
        let book = ledger.book();
        let n = LINES as u64;
        let sum = Sum {
            sessions: 1,
            passes: n,
            failures: 1,
            texts: 2 * n,
            tokens: 10 * n,
            bytes_sent: 10 * (n + 2),
            bytes_received: 20 * (n + 2),
            rounds: 3 * (n + 2),
            seconds: (n + 2) as f64,
        };
        assert_eq!(book.total, sum);
        assert_eq!(book.lines.len(), LINES);
        assert_eq!(book.lines[0].what, "peer-gone");
    }
}
