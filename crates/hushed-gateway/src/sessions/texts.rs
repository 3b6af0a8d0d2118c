//! Texts that wait for a pass, texts in a pass, and answers that are kept.
//!
//! Equal texts under one API key share one run: a request for a text that is waiting, running or was answered in the
//! last [`KEPT`] joins it. So a client's retry costs nothing, and nobody can learn from the time of an answer what was
//! asked with another key. Kept answers are wiped when they are removed. A text for which nobody waits any more leaves
//! the queue; one that is already running is run to its end, in case of a retry.

use std::cmp::Reverse;
use std::collections::hash_map::Entry as Place;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hushed_serve::TooLong;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::admission::{Admission, Held, Load, Refused, Wait};
use super::failure::Failure;
use super::ledger::Seen;
use super::search::Job;
use super::share::{Caller, Turns, before};

/// How long an answer is kept.
pub const KEPT: Duration = Duration::from_secs(600);
/// How long an idle worker waits for more texts after the first: programs that send several at once send them within
/// milliseconds, and a pass takes seconds.
const GATHER: Duration = Duration::from_millis(20);
/// Most answers that are kept.
const MOST_KEPT: usize = 4096;

/// One input of a model. No `Debug`: it is private.
#[derive(Clone)]
pub struct Reading {
    /// The text, or the first of a pair.
    pub text: Zeroizing<String>,
    /// The second of a pair.
    pub second: Option<Zeroizing<String>>,
}

impl From<Zeroizing<String>> for Reading {
    fn from(text: Zeroizing<String>) -> Reading {
        Reading { text, second: None }
    }
}

/// A text or pair that the model and the server accept. No `Debug`: it is private.
pub struct Prepared {
    /// The caller.
    pub caller: Caller,
    /// The text or pair.
    pub text: Reading,
    /// Which part of it is embedded if it is too long.
    pub too_long: TooLong,
    /// Its tokens, padding included, as the server will see them.
    pub rows: usize,
    /// Planned seconds.
    pub planned: f64,
}

/// An answer of a model that reads whole texts. No `Debug`: it is private.
pub struct Answer {
    /// The embedding, or a classifier's logits if the server opens them; wiped on drop.
    pub values: Zeroizing<Vec<f32>>,
    /// The names of the likeliest classes, the likeliest first; empty for an embedding.
    pub labels: Vec<String>,
    /// Number of tokens of the text.
    pub tokens: usize,
}

/// What a waiting client gets.
pub type Outcome = Result<Arc<Answer>, Arc<Failure>>;

/// A text's answer, available now or later.
pub enum Ticket {
    /// It is available.
    Ready(Arc<Answer>),
    /// It will come; dropping this leaves the queue.
    Coming(oneshot::Receiver<Outcome>),
}

/// The texts of the next pass.
pub struct Pass {
    /// Their keys, for [`Texts::finish`].
    pub keys: Vec<Key>,
    /// The texts themselves, and which part is embedded of one that is too long.
    pub texts: Vec<(Reading, TooLong)>,
    /// Their rows, and whose they are.
    pub seen: Seen,
    /// Planned seconds if each were to run alone.
    pub planned: f64,
    /// Its id among the passes under way.
    id: u64,
}

/// A worker's next task.
pub enum Next {
    /// Run this pass.
    Pass(Pass),
    /// Run this search, which has this id among the running tasks.
    Search(u64, Job),
    /// Nothing has come within the time given.
    Idle,
    /// Stop.
    Closed,
}

/// Limits of a pass.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most texts per pass.
    pub texts: usize,
    /// Most rows per pass; a single text may have more.
    pub rows: usize,
}

/// The salted SHA-256 of the caller and the text.
pub type Key = [u8; 32];

/// The queue and the kept answers.
pub struct Texts {
    state: Mutex<State>,
    changed: Condvar,
    salt: [u8; 32],
    limits: Limits,
}

#[derive(Default)]
struct State {
    entries: HashMap<Key, Entry>,
    /// Keys of waiting entries, oldest first.
    waiting: VecDeque<Key>,
    /// Keys of kept entries, oldest first.
    kept: VecDeque<Key>,
    /// Waiting searches. They run alone, taking turns with passes.
    searches: VecDeque<Job>,
    turns: Turns,
    /// Whether the task started last was a search.
    searched: bool,
    /// Passes and searches under way: their ids, planned seconds, and start times.
    running: Vec<(u64, f64, Instant)>,
    passes: u64,
    closed: bool,
}

enum Entry {
    Waiting(Prepared, Waiters),
    Running(Waiters),
    Kept(Arc<Answer>, Instant),
}

type Waiters = Vec<oneshot::Sender<Outcome>>;

impl Texts {
    /// An empty queue; `salt` must be random.
    pub fn new(limits: Limits, salt: [u8; 32]) -> Self {
        Self { state: Mutex::default(), changed: Condvar::new(), salt, limits }
    }

    /// Takes the texts of a request, which belong to one caller: all or none.
    ///
    /// # Errors
    /// [`Refused`] by the admission or because the queue is full; [`Refused::Stopping`].
    pub fn submit(&self, texts: Vec<Prepared>, admission: &Admission<'_>) -> Result<(Vec<Ticket>, Wait), Refused> {
        let keyed: Vec<(Key, Prepared)> = texts.into_iter().map(|text| (self.key(&text), text)).collect();
        let caller = keyed.first().map(|(_, text)| text.caller);
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Stopping);
        }
        state.forget(Instant::now());
        state.drop_abandoned();
        let mut new: HashMap<&Key, f64> = HashMap::new();
        for (key, text) in &keyed {
            if !state.entries.contains_key(key) {
                new.insert(key, text.planned);
            }
        }
        let caller = caller.unwrap_or_default();
        let load = state.load(caller, new.len(), self.limits.texts);
        // In the request's order, for "the first so many would fit".
        let mut costs = Vec::with_capacity(new.len());
        for (key, _) in &keyed {
            costs.extend(new.remove(key));
        }
        let joined = match state.load_up_to(caller, &keyed, self.limits.texts) {
            Some(load) if costs.is_empty() => admission.check_joined(&load)?,
            _ => Wait::Short,
        };
        let wait = joined.max(admission.check(&costs, costs.len(), &load)?);
        let tickets = keyed.into_iter().map(|(key, text)| state.join(key, text)).collect();
        drop(state);
        self.changed.notify_one();
        Ok((tickets, wait))
    }

    /// Takes a search into the queue.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn submit_search(&self, job: Job, admission: &Admission<'_>) -> Result<(), Refused> {
        let mut state = self.lock();
        if state.closed {
            return Err(Refused::Stopping);
        }
        state.drop_abandoned();
        let load = state.load(job.caller, 1, self.limits.texts);
        admission.check(&[job.planned], 1, &load)?;
        state.searches.push_back(job);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Marks a search as ended.
    pub fn ended(&self, id: u64) {
        self.lock().running.retain(|(running, ..)| *running != id);
    }

    /// Waits for texts, for at most `idle`, and takes the next pass. Callers take turns for its places. The first place
    /// goes to its caller's oldest text, the others to their callers' texts closest to the first one in length.
    pub fn next(&self, idle: Duration) -> Next {
        let mut state = self.lock();
        let until = Instant::now() + idle;
        let mut gather = None;
        loop {
            if state.closed {
                return Next::Closed;
            }
            state.drop_abandoned();
            let now = Instant::now();
            if let Some((id, job)) = state.take_search(now) {
                return Next::Search(id, job);
            }
            let left = match (state.waiting.len(), gather) {
                (0, _) => until.saturating_duration_since(now),
                (some, Some(gather)) if some < self.limits.texts && now < gather => gather - now,
                _ => Duration::ZERO,
            };
            if left.is_zero() {
                return match state.take(&self.limits) {
                    Some(pass) => {
                        state.running.push((pass.id, pass.planned, now));
                        state.searched = false;
                        if !state.waiting.is_empty() || !state.searches.is_empty() {
                            self.changed.notify_one();
                        }
                        Next::Pass(pass)
                    }
                    None => Next::Idle,
                };
            }
            let idled = state.waiting.is_empty();
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            if idled {
                gather = Some(Instant::now() + GATHER);
            }
        }
    }

    /// Hands out a pass's results.
    pub fn finish(&self, pass: &Pass, given: Result<Vec<Answer>, Failure>) {
        let mut state = self.lock();
        let now = Instant::now();
        state.running.retain(|(id, ..)| *id != pass.id);
        match given {
            Ok(answers) => {
                for (key, answer) in pass.keys.iter().zip(answers) {
                    state.answer(*key, Arc::new(answer), now);
                }
            }
            Err(failure) => {
                let failure = Arc::new(failure);
                for key in &pass.keys {
                    if let Some(Entry::Running(waiters)) = state.entries.remove(key) {
                        tell(waiters, &Err(Arc::clone(&failure)));
                    }
                }
            }
        }
        state.forget(now);
    }

    /// Fails everything that waits, with this failure.
    pub fn fail(&self, failure: &Failure) {
        let mut state = self.lock();
        let failure = Arc::new(failure.clone());
        for key in std::mem::take(&mut state.waiting) {
            if let Some(Entry::Waiting(_, waiters)) = state.entries.remove(&key) {
                tell(waiters, &Err(Arc::clone(&failure)));
            }
        }
        state.fail_searches(&failure);
    }

    /// Wipes answers that have been kept long enough.
    pub fn forget(&self, now: Instant) {
        self.lock().forget(now);
    }

    /// Its current contents.
    pub fn held(&self) -> Held {
        let state = self.lock();
        Held {
            waiting: state.waiting.len() + state.searches.len(),
            running: state.running.len(),
            kept: state.kept.len(),
        }
    }

    /// Closes the queue: what waits fails, and what is kept is wiped.
    pub fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        let failure = Arc::new(Failure::stopping());
        for (_, entry) in state.entries.drain() {
            if let Entry::Waiting(_, waiters) | Entry::Running(waiters) = entry {
                tell(waiters, &Err(Arc::clone(&failure)));
            }
        }
        state.fail_searches(&failure);
        state.waiting.clear();
        state.kept.clear();
        drop(state);
        self.changed.notify_all();
    }

    /// Equal texts differ in their answers only if they are cut at different ends, or divided into two elsewhere.
    fn key(&self, text: &Prepared) -> Key {
        let Reading { text: first, second } = &text.text;
        let left = [u8::from(text.too_long == TooLong::CutLeft), u8::from(second.is_some())];
        let salted = Sha256::new().chain_update(self.salt).chain_update(text.caller.0).chain_update(left);
        let salted = salted.chain_update((first.len() as u64).to_le_bytes()).chain_update(&**first);
        salted.chain_update(second.as_deref().map_or("", String::as_str)).finalize().into()
    }

    /// Another thread's panic leaves entries whole.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn join(&mut self, key: Key, text: Prepared) -> Ticket {
        let (send, receive) = oneshot::channel();
        match self.entries.entry(key) {
            Place::Vacant(place) => {
                place.insert(Entry::Waiting(text, vec![send]));
                self.waiting.push_back(key);
            }
            Place::Occupied(mut place) => match place.get_mut() {
                Entry::Kept(answer, _) => return Ticket::Ready(Arc::clone(answer)),
                Entry::Waiting(_, waiters) | Entry::Running(waiters) => waiters.push(send),
            },
        }
        Ticket::Coming(receive)
    }

    fn take(&mut self, limits: &Limits) -> Option<Pass> {
        let waits = |key: &Key| match self.entries.get(key) {
            Some(Entry::Waiting(text, _)) => Some((text.caller, text.rows, *key)),
            _ => None,
        };
        let mut waiting: Vec<(Caller, usize, Key)> = self.waiting.iter().filter_map(waits).collect();
        let mut chosen: Vec<(Caller, usize, Key)> = Vec::new();
        let mut total = 0;
        while chosen.len() < limits.texts.max(1)
            && let Some(at) = self.turns.choose(waiting.iter().map(|text| text.0))
        {
            let text = waiting.remove(at);
            total += text.1;
            if total > limits.rows && !chosen.is_empty() {
                break;
            }
            self.turns.served(text.0);
            if chosen.is_empty() {
                // Among equals the oldest stays first.
                waiting.sort_by_key(|other| other.1.abs_diff(text.1));
            }
            chosen.push(text);
        }
        // The server sees lengths, but not whose turn it was.
        chosen.sort_by_key(|text| Reverse(text.1));
        chosen.first()?;
        let mut pass =
            Pass { keys: Vec::new(), texts: Vec::new(), seen: Seen::default(), planned: 0.0, id: self.passes };
        self.passes += 1;
        for (_, _, key) in chosen {
            if let Some(Entry::Waiting(text, waiters)) = self.entries.remove(&key) {
                self.entries.insert(key, Entry::Running(waiters));
                pass.keys.push(key);
                pass.texts.push((text.text, text.too_long));
                pass.seen.rows.push(text.rows);
                pass.seen.callers.push(text.caller);
                pass.planned += text.planned;
            }
        }
        self.waiting.retain(|key| !pass.keys.contains(key));
        Some(pass)
    }

    /// The oldest search of the caller whose turn it is, unless it is the turn of texts.
    fn take_search(&mut self, now: Instant) -> Option<(u64, Job)> {
        if self.searched && !self.waiting.is_empty() {
            return None;
        }
        let job = self.turns.take(&mut self.searches, |job| job.caller)?;
        let id = self.passes;
        self.passes += 1;
        self.running.push((id, job.planned, now));
        self.searched = true;
        Some((id, job))
    }

    fn fail_searches(&mut self, failure: &Failure) {
        for job in self.searches.drain(..) {
            // One that has gone needs no answer.
            let _ = job.answer.send(Err(failure.clone()));
        }
    }

    fn answer(&mut self, key: Key, answer: Arc<Answer>, now: Instant) {
        let kept = Entry::Kept(Arc::clone(&answer), now);
        match self.entries.insert(key, kept) {
            Some(Entry::Running(waiters)) => tell(waiters, &Ok(answer)),
            // The queue was closed in the meantime.
            _ => {
                self.entries.remove(&key);
                return;
            }
        }
        self.kept.push_back(key);
        if self.kept.len() > MOST_KEPT
            && let Some(oldest) = self.kept.pop_front()
        {
            self.entries.remove(&oldest);
        }
    }

    /// The time of an answer begins anew while a request waits for others and holds it.
    fn forget(&mut self, now: Instant) {
        while let Some(key) = self.kept.pop_front() {
            match self.entries.get_mut(&key) {
                Some(Entry::Kept(_, since)) if now.saturating_duration_since(*since) < KEPT => {
                    self.kept.push_front(key);
                    return;
                }
                Some(Entry::Kept(answer, since)) if Arc::strong_count(answer) > 1 => {
                    *since = now;
                    self.kept.push_back(key);
                }
                _ => {
                    self.entries.remove(&key);
                }
            }
        }
    }

    /// Removes texts and searches for which nobody waits any more.
    fn drop_abandoned(&mut self) {
        self.searches.retain(|job| !job.answer.is_closed());
        let entries = &mut self.entries;
        self.waiting.retain(|key| {
            let wanted = match entries.get_mut(key) {
                Some(Entry::Waiting(_, waiters)) => {
                    waiters.retain(|waiter| !waiter.is_closed());
                    !waiters.is_empty()
                }
                _ => false,
            };
            if !wanted {
                entries.remove(key);
            }
            wanted
        });
    }

    /// The load besides `new` new texts from a caller, if a pass takes `batch`.
    fn load(&self, caller: Caller, new: usize, batch: usize) -> Load {
        let own = self.waits().filter(|&(of, _)| of == caller).count();
        let (first, planned) = self.before(caller, own, own + new, batch);
        Load { waiting: self.waiting.len() + self.searches.len(), own, first, planned, running: self.under_way() }
    }

    /// The load of what runs, and what waits up to the last of these texts; `None` if none of them waits.
    fn load_up_to(&self, caller: Caller, texts: &[(Key, Prepared)], batch: usize) -> Option<Load> {
        let wanted: HashSet<&Key> = texts.iter().map(|(key, _)| key).collect();
        let last = self.waiting.iter().rposition(|key| wanted.contains(key))?;
        let up_to = self.waits().take(last + 1);
        let own = up_to.filter(|&(of, _)| of == caller).count();
        let (first, planned) = self.before(caller, own, own, batch);
        Some(Load { waiting: first, own, first, planned, running: self.under_way() })
    }

    /// What comes before the last of the caller's first `turns` texts, of which `own` wait. A pass is filled with
    /// others' texts, so for each other caller at least as many are counted as that takes.
    fn before(&self, caller: Caller, own: usize, turns: usize, batch: usize) -> (usize, f64) {
        before(self.waits(), caller, own, turns.max(batch))
    }

    /// The caller and the planned seconds of everything that waits, texts before searches.
    fn waits(&self) -> impl Iterator<Item = (Caller, f64)> {
        let texts = self.waiting.iter().map(|key| match self.entries.get(key) {
            Some(Entry::Waiting(text, _)) => (text.caller, text.planned),
            _ => (Caller::default(), 0.0),
        });
        let searches = self.searches.iter();
        texts.chain(searches.map(|job| (job.caller, job.planned)))
    }

    fn under_way(&self) -> Vec<(f64, Instant)> {
        let running = self.running.iter();
        running.map(|&(_, p, since)| (p, since)).collect()
    }
}

fn tell(waiters: Waiters, outcome: &Outcome) {
    for waiter in waiters {
        // One that has gone needs no answer.
        let _ = waiter.send(outcome.clone());
    }
}

#[cfg(test)]
mod tests;
