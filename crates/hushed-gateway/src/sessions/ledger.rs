//! What left this machine, as counts of passes and sessions that a person can read. Nothing in it depends on a text
//! beyond what the server itself saw. A pass may have texts of several API keys; each of them is shown its own part.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use hushed_serve::Cost;
use serde::Serialize;

use super::share::Caller;

/// Most lines that are kept.
const LINES: usize = 200;

/// Lines and their sums.
#[derive(Default)]
pub struct Ledger(Mutex<Everything>);

#[derive(Default)]
struct Everything {
    total: Sum,
    /// Of each caller, what its own part of the lines adds up to.
    parts: HashMap<Caller, Sum>,
    /// Newest first.
    entries: VecDeque<(Line, Vec<Caller>)>,
}

/// The ledger, or one caller's part of it.
#[derive(Clone, Default, Serialize)]
pub struct Book {
    /// Sums since the gateway started.
    pub total: Sum,
    /// The last lines, newest first.
    pub lines: Vec<Line>,
}

/// What the server sees of a pass: the rows of each text, padding included; and whose each is.
#[derive(Clone, Default)]
pub struct Seen {
    /// One number per text.
    pub rows: Vec<usize>,
    /// As many.
    pub callers: Vec<Caller>,
}

impl Seen {
    /// One text.
    pub fn one(rows: usize, caller: Caller) -> Self {
        Self { rows: vec![rows], callers: vec![caller] }
    }
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
        self.write("session", Seen::default(), 0, cost);
    }

    /// Records a pass, which counted as `counted` texts.
    pub fn pass(&self, seen: Seen, counted: usize, cost: &Cost) {
        self.write("pass", seen, counted, cost);
    }

    /// Records that products were prepared for `passes` passes of an answer, and counted as `counted` texts.
    pub fn ahead(&self, passes: usize, caller: Caller, counted: usize, cost: &Cost) {
        self.write("ahead", Seen::one(passes, caller), counted, cost);
    }

    /// Records that a pass or a set-up failed, with the bytes sent so far.
    pub fn failure(&self, name: &'static str, seen: Seen, cost: &Cost) {
        self.write(name, seen, 0, cost);
    }

    /// All of it.
    pub fn book(&self) -> Book {
        let all = self.lock();
        Book { total: all.total, lines: all.entries.iter().map(|(line, _)| line.clone()).collect() }
    }

    /// What belongs to one caller: of a pass with texts of others too, its own texts and their share of the bytes.
    pub fn book_of(&self, caller: Caller) -> Book {
        let all = self.lock();
        let lines = all.entries.iter().filter_map(|(line, callers)| line.part(callers, caller));
        Book { total: all.parts.get(&caller).copied().unwrap_or_default(), lines: lines.collect() }
    }

    /// The sums of each caller.
    pub fn parts(&self) -> HashMap<Caller, Sum> {
        self.lock().parts.clone()
    }

    fn write(&self, what: &'static str, seen: Seen, counted: usize, cost: &Cost) {
        let Cost { time, stats } = cost;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let Seen { rows, callers } = seen;
        let line = Line {
            at: now.map_or(0, |d| d.as_secs()),
            what,
            bytes_sent: stats.bytes_sent,
            bytes_received: stats.bytes_received,
            rounds: stats.rounds,
            seconds: time.as_secs_f64(),
            tokens: rows,
            counted,
        };
        let mut all = self.lock();
        all.total.add(&line);
        for (place, caller) in callers.iter().enumerate() {
            let first = callers.iter().take(place).all(|before| before != caller);
            if first && let Some(part) = line.part(&callers, *caller) {
                all.parts.entry(*caller).or_default().add(&part);
            }
        }
        all.entries.push_front((line, callers));
        all.entries.truncate(LINES);
    }

    fn lock(&self) -> MutexGuard<'_, Everything> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The part of a caller, if it has one. `callers` says whose each text is.
    fn part(&self, callers: &[Caller], caller: Caller) -> Option<Line> {
        let own = self.tokens.iter().zip(callers).filter(|(_, of)| **of == caller);
        let tokens: Vec<usize> = own.map(|(tokens, _)| *tokens).collect();
        let sum = |tokens: &[usize]| tokens.iter().sum::<usize>() as u64;
        let (part, whole) = (sum(&tokens), sum(&self.tokens).max(1));
        let share =
            |bytes: u64| u64::try_from(u128::from(bytes) * u128::from(part) / u128::from(whole)).unwrap_or(bytes);
        (!tokens.is_empty()).then(|| Line {
            bytes_sent: share(self.bytes_sent),
            bytes_received: share(self.bytes_received),
            counted: self.counted * tokens.len() / self.tokens.len(),
            tokens,
            ..*self
        })
    }
}

impl Sum {
    fn add(&mut self, line: &Line) {
        let tokens = line.tokens.iter().sum::<usize>() as u64;
        match line.what {
            "session" => self.sessions += 1,
            "pass" => {
                self.passes += 1;
                self.texts += line.tokens.len() as u64;
                self.tokens += tokens;
            }
            "ahead" => self.ahead += tokens,
            _ => self.failures += 1,
        }
        self.counted += line.counted as u64;
        self.bytes_sent += line.bytes_sent;
        self.bytes_received += line.bytes_received;
        self.rounds += line.rounds;
        self.seconds += line.seconds;
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
        let caller = Caller::default();
        ledger.session(&cost);
        ledger.ahead(5, caller, 5, &cost);
        for _ in 0..LINES {
            ledger.pass(Seen { rows: vec![4, 6], callers: vec![caller; 2] }, 2, &cost);
        }
        // Three rows of an answer with products prepared ahead, which have counted already.
        ledger.pass(Seen::one(3, caller), 0, &cost);
        ledger.failure("peer-gone", Seen::one(4, caller), &cost);
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

    #[test]
    fn a_caller_sees_its_own_texts_and_nothing_of_others() {
        let ledger = Ledger::default();
        let [ann, bob, eve] = [1, 2, 3].map(|i| Caller([i; 32]));
        let stats = Stats { bytes_sent: 100, bytes_received: 200, rounds: 3, ..Stats::default() };
        let cost = Cost { time: Duration::from_secs(1), stats };
        ledger.session(&cost);
        // Two passes for each text.
        ledger.pass(Seen { rows: vec![60, 30, 10], callers: vec![ann, bob, ann] }, 6, &cost);
        ledger.pass(Seen::one(7, bob), 2, &cost);
        ledger.failure("peer-gone", Seen::one(9, bob), &cost);
        let book = ledger.book_of(ann);
        let line = &book.lines[0];
        assert_eq!((book.lines.len(), line.tokens.as_slice()), (1, &[60, 10][..]));
        assert_eq!((line.bytes_sent, line.bytes_received, line.counted), (70, 140, 4));
        let sum = Sum {
            passes: 1,
            texts: 2,
            tokens: 70,
            counted: 4,
            bytes_sent: 70,
            bytes_received: 140,
            rounds: 3,
            seconds: 1.0,
            ..Sum::default()
        };
        assert_eq!(book.total, sum);
        let book = ledger.book_of(bob);
        let seen: Vec<_> = book.lines.iter().map(|line| (line.what, line.tokens.clone())).collect();
        assert_eq!(seen, [("peer-gone", vec![9]), ("pass", vec![7]), ("pass", vec![30])]);
        assert_eq!((book.total.failures, book.total.sessions, book.total.counted), (1, 0, 4));
        let book = ledger.book_of(eve);
        assert_eq!((book.lines.len(), book.total), (0, Sum::default()));
        assert_eq!(ledger.book().total.tokens, 107);
    }
}
