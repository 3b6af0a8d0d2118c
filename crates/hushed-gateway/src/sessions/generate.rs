//! Waiting prompts, and a worker that continues them, one at a time in a session.
//!
//! Nothing is shared between requests: a client that goes away ends its answer at the next token.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hushed_serve::{Client, Finish, GenerateOptions, Prompt, ServeError};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use zeroize::Zeroizing;

use super::admission::{Admission, Held, Load, Refused};
use super::failure::Failure;
use super::ledger::Seen;
use super::pace::Planned;
use super::session::{IDLE, Kept, UnderWay};
use super::share::{Caller, Turns, before};
use super::shared::Shared;

/// How long a client may take to read what it is sent; meanwhile nobody else can use its session.
const READER: Duration = Duration::from_secs(30);
/// How often to check whether there is room again.
const LOOK: Duration = Duration::from_millis(10);

/// A prompt that the model and the server accept. No `Debug`: it is private.
pub struct Job {
    /// The caller.
    pub caller: Caller,
    /// The prompt.
    pub prompt: Prompt,
    /// Its rows, padding included, as the server will see them.
    pub rows: usize,
    /// How to continue it.
    pub options: GenerateOptions,
    /// Planned seconds.
    pub planned: Planned,
    /// Where the tokens go. Dropping the other end ends the answer.
    pub events: mpsc::Sender<Event>,
}

/// Progress of a job.
pub enum Event {
    /// A token.
    Token {
        /// Its id.
        id: u32,
        /// The likeliest tokens of its pass, this one among them.
        top: Vec<u32>,
        /// The text it adds; may be empty.
        text: Zeroizing<String>,
        /// If it is the last token, the reason.
        last: Option<Finish>,
    },
    /// No more tokens will come.
    Failed(Failure),
}

/// The queue.
#[derive(Default)]
pub struct Prompts {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    waiting: VecDeque<Job>,
    turns: Turns,
    /// Jobs under way: ids, planned seconds, and start times.
    running: Vec<(u64, f64, Instant)>,
    jobs: u64,
    closed: bool,
}

enum Next {
    Job(u64, Box<Job>),
    Idle,
    Closed,
}

impl Prompts {
    /// Takes the prompts of a request into the queue, all or none; its client waits for the first `counted` tokens of
    /// each.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn submit(&self, jobs: Vec<Job>, counted: usize, admission: &Admission<'_>) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Stopping);
        }
        state.waiting.retain(|job| !job.events.is_closed());
        let caller = jobs.first().map(|job| job.caller).unwrap_or_default();
        let planned: Vec<f64> = jobs.iter().flat_map(|job| job.planned.tokens.iter().take(counted)).copied().collect();
        admission.check(&planned, jobs.len(), &state.load(caller, jobs.len()))?;
        state.waiting.extend(jobs);
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Its current contents.
    pub fn held(&self) -> Held {
        let state = self.lock();
        Held { waiting: state.waiting.len(), running: state.running.len(), kept: 0 }
    }

    /// Fails everything that waits, with this failure.
    pub fn fail(&self, failure: &Failure) {
        self.lock().fail(failure);
    }

    /// Closes the queue; what waits fails.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.fail(&Failure::stopping());
        drop(state);
        self.changed.notify_all();
    }

    fn next(&self, idle: Duration) -> Next {
        let mut state = self.lock();
        let until = Instant::now() + idle;
        loop {
            if state.closed {
                return Next::Closed;
            }
            if let Some(job) = state.take() {
                let id = state.jobs;
                state.jobs += 1;
                let planned = job.planned.tokens.iter().sum();
                state.running.push((id, planned, Instant::now()));
                return Next::Job(id, Box::new(job));
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Idle;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn ended(&self, id: u64) {
        self.lock().running.retain(|(running, ..)| *running != id);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The oldest prompt of the caller whose turn it is, among those for which somebody still waits.
    fn take(&mut self) -> Option<Job> {
        self.waiting.retain(|job| !job.events.is_closed());
        self.turns.take(&mut self.waiting, |job| job.caller)
    }

    fn fail(&mut self, failure: &Failure) {
        for job in self.waiting.drain(..) {
            // Nothing has been sent to it, so there is room; one that has gone needs no answer.
            let _ = job.events.try_send(Event::Failed(failure.clone()));
        }
    }

    fn load(&self, caller: Caller, new: usize) -> Load {
        let own = self.waiting.iter().filter(|job| job.caller == caller);
        let own = own.count();
        let planned = self.waiting.iter().map(|job| (job.caller, job.planned.tokens.iter().sum()));
        let (first, planned) = before(planned, caller, own, own + new);
        Load {
            waiting: self.waiting.len(),
            own,
            first,
            planned,
            running: self.running.iter().map(|&(_, p, since)| (p, since)).collect(),
        }
    }
}

/// Continues prompts until the queue is closed.
pub fn work(prompts: &Prompts, shared: &Arc<Shared>, mut kept: Kept) {
    loop {
        match prompts.next(IDLE) {
            Next::Closed => return kept.close(),
            Next::Idle => kept.close(),
            Next::Job(id, job) => {
                let run = || {
                    let tokens = job.options.max_tokens;
                    let seen = Seen::one(job.rows, job.caller);
                    kept.run(tokens, seen, |client, pass| answer(client, shared, &job, pass))
                };
                let failure = match catch_unwind(AssertUnwindSafe(run)) {
                    Ok(Ok(())) => None,
                    Ok(Err(failure)) => Some(failure),
                    Err(_) => Some(Failure::defect()),
                };
                let failed = failure.is_some();
                if let Some(failure) = failure {
                    // A client that has gone needs no answer.
                    send(&job.events, Event::Failed(failure), &shared.stop, READER);
                }
                prompts.ended(id);
                if failed {
                    kept.stay_away(|failure| prompts.fail(failure));
                }
            }
        }
    }
}

/// Runs a job until it ends or its client goes away.
fn answer(client: &mut Client, shared: &Shared, job: &Job, pass: &mut UnderWay) -> Result<(), ServeError> {
    // A restarted server may allow less. The text is the same.
    let mut options = job.options.clone();
    if client.allows(options.ahead, 0).is_err() {
        options.ahead = 0;
    }
    if client.allows(0, options.draft).is_err() {
        options.draft = 0;
    }
    let mut generation = client.generate_prompt(&job.prompt, &options)?;
    loop {
        let token = generation.next();
        // Counted by what was sent: a pass with drafts gives several tokens, and not every pass gives one.
        for sent in generation.take_sent() {
            shared.sent(&sent, &job.planned, job.caller);
            pass.follows(&sent);
        }
        let Some(token) = token.transpose()? else {
            return Ok(());
        };
        let event = Event::Token { id: token.id, top: token.top, text: Zeroizing::new(token.text), last: token.last };
        let reads = send(&job.events, event, &shared.stop, READER);
        // The reader's time must not count towards the next pass.
        pass.begins();
        if !reads {
            return generation.end();
        }
    }
}

/// Hands an event to a client that reads it in time. Returns `false` if the client has gone or does not read, or if the
/// gateway is being stopped.
fn send(events: &mpsc::Sender<Event>, mut event: Event, stop: &AtomicBool, patience: Duration) -> bool {
    let until = Instant::now() + patience;
    loop {
        event = match events.try_send(event) {
            Ok(()) => return true,
            Err(TrySendError::Closed(_)) => return false,
            Err(TrySendError::Full(event)) => event,
        };
        if stop.load(Ordering::Relaxed) || Instant::now() >= until {
            return false;
        }
        thread::sleep(LOOK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> Event {
        Event::Token { id: 0, top: Vec::new(), text: Zeroizing::new(String::new()), last: None }
    }

    #[test]
    fn a_reader_that_does_not_read_ends_its_answer() {
        let (events, mut coming) = mpsc::channel(1);
        let stop = AtomicBool::new(false);
        assert!(send(&events, token(), &stop, Duration::from_secs(600)));
        assert!(!send(&events, token(), &stop, Duration::from_millis(30)));
        // A client that reads in time gets the next event.
        thread::scope(|scope| {
            scope.spawn(|| coming.blocking_recv());
            assert!(send(&events, token(), &stop, Duration::from_secs(600)));
        });
        // Full again: neither a stopping gateway waits, nor one whose client has gone.
        stop.store(true, Ordering::Relaxed);
        assert!(!send(&events, token(), &stop, Duration::from_secs(600)));
        drop(coming);
        stop.store(false, Ordering::Relaxed);
        assert!(!send(&events, token(), &stop, Duration::from_secs(600)));
    }
}
