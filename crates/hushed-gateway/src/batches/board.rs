//! Clients' files and batches, and the texts that wait for a run. All of it is in memory, and wiped when it goes.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::lines::{ENDPOINT, Line, Model, parse};
use crate::http::Door;
use crate::http::now;
use crate::http::refusal::Refusal;
use crate::sessions::failure::Failure;
use crate::sessions::share::{Caller, Share, Turns};

/// Most uploaded files over all clients, most batches, and most bytes of files: those that exist and those that batches
/// under way will write.
const MOST_FILES: usize = 1000;
const MOST_BATCHES: usize = 1000;
const MOST_BYTES: usize = 256 << 20;
/// Most bytes of a number in an answer, with its comma, and of the rest around a text's numbers.
const NUMBER: usize = 24;
const AROUND: usize = 2048;
/// The purpose of an uploaded file.
const UPLOAD: &str = "batch";
/// The time within which OpenAI promises an answer; here a run takes as long as it takes.
const WINDOW: u64 = 86_400;

/// What decides when a run begins, and how much may wait.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Texts per run.
    pub places: usize,
    /// How long a run's first text waits for others.
    pub gather: Duration,
    /// The places for waiting texts.
    pub share: Share,
}

/// A text that waits for a run or is in one.
pub struct Item {
    /// Who waits for it.
    pub caller: Caller,
    batch: String,
    line: usize,
    index: usize,
    tokens: usize,
    /// The text.
    pub text: Zeroizing<String>,
    since: Instant,
}

/// Files, batches, and waiting texts.
pub struct Board {
    inner: Mutex<Inner>,
    changed: Condvar,
    limits: Limits,
    model: Model,
}

#[derive(Default)]
struct Inner {
    files: BTreeMap<String, File>,
    batches: BTreeMap<String, Batch>,
    /// Oldest first.
    queue: VecDeque<Item>,
    turns: Turns,
    closed: bool,
}

struct File {
    caller: Caller,
    name: String,
    purpose: &'static str,
    created: u64,
    bytes: Arc<Zeroizing<Vec<u8>>>,
}

struct Batch {
    caller: Caller,
    input: String,
    metadata: Value,
    lines: Vec<Line>,
    /// Number of texts without an answer.
    left: usize,
    /// Bytes that its answers may take, while it is under way.
    reserved: usize,
    counts: [usize; 3],
    state: State,
    created: u64,
    /// When it reached its final state.
    ended: Option<u64>,
    errors: Vec<Value>,
    output: Option<String>,
    error_file: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InProgress,
    Completed,
    Failed,
    Cancelled,
}

/// Total, completed, failed.
type Counts = [usize; 3];

impl Board {
    /// An empty board.
    pub fn new(model: Model, limits: Limits) -> Board {
        Board { inner: Mutex::default(), changed: Condvar::new(), limits, model }
    }

    /// The model that lines are checked against.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Number of waiting texts.
    pub fn waiting(&self) -> usize {
        self.lock().queue.len()
    }

    /// Stores an uploaded file.
    pub fn upload(&self, caller: Caller, name: &str, bytes: &[u8]) -> Result<Value, Refusal> {
        let bytes = Zeroizing::new(bytes.to_vec());
        let mut inner = self.lock();
        let uploads = inner.files.values().filter(|file| file.purpose == UPLOAD);
        if uploads.count() >= MOST_FILES || inner.taken() + bytes.len() > MOST_BYTES {
            return Err(full("files"));
        }
        let id = inner.keep(caller, name.to_owned(), UPLOAD, bytes)?;
        inner.file_object(caller, &id)
    }

    /// A file's object.
    pub fn file(&self, caller: Caller, id: &str) -> Result<Value, Refusal> {
        self.lock().file_object(caller, id)
    }

    /// All files of a caller.
    pub fn files(&self, caller: Caller) -> Value {
        let inner = self.lock();
        let own = inner.files.iter().filter(|(_, file)| file.caller == caller);
        list(own.map(|(id, file)| file.object(id)))
    }

    /// A file's bytes.
    pub fn content(&self, caller: Caller, id: &str) -> Result<Arc<Zeroizing<Vec<u8>>>, Refusal> {
        let inner = self.lock();
        Ok(Arc::clone(&inner.file(caller, id)?.bytes))
    }

    /// Deletes a file.
    pub fn delete(&self, caller: Caller, id: &str) -> Result<Value, Refusal> {
        let mut inner = self.lock();
        inner.file(caller, id)?;
        inner.files.remove(id);
        Ok(json!({ "id": id, "object": "file", "deleted": true }))
    }

    /// Makes a batch from a file's requests and queues their texts.
    pub fn create(&self, caller: Caller, input: &str, metadata: Value, door: &Door) -> Result<Value, Refusal> {
        let bytes = self.content(caller, input)?;
        // Tokenizing takes a while, so not under the lock.
        let parsed = parse(&bytes, &self.model);
        let mut inner = self.lock();
        if inner.closed {
            return Err(Failure::stopping().into());
        }
        inner.forget_an_ended_batch();
        if inner.batches.len() >= MOST_BATCHES {
            return Err(full("batches"));
        }
        let id = fresh("batch_")?;
        let mut batch = Batch {
            caller,
            input: input.to_owned(),
            metadata,
            lines: Vec::new(),
            left: 0,
            reserved: 0,
            counts: Counts::default(),
            state: State::InProgress,
            created: now(),
            ended: None,
            errors: Vec::new(),
            output: None,
            error_file: None,
        };
        match parsed {
            Err(faults) => {
                batch.errors = faults.iter().map(|fault| fault.object()).collect();
                batch.end(State::Failed);
            }
            Ok((lines, texts)) => {
                let refused = lines.iter().filter(|line| line.is_refused()).count();
                batch.counts = [lines.len(), 0, refused];
                batch.left = texts.iter().map(Vec::len).sum();
                let own = inner.queue.iter().filter(|item| item.caller == caller);
                let (own, waiting) = (own.count(), inner.queue.len());
                if !self.limits.share.admits(batch.left, own, waiting) {
                    let message = "too many texts are waiting; send fewer or raise --max-waiting";
                    let status = StatusCode::TOO_MANY_REQUESTS;
                    return Err(Refusal::new(status, "queue-full", message));
                }
                let each = self.model.client.plan().width * NUMBER + AROUND;
                batch.reserved = (batch.left + lines.len()) * each;
                if inner.taken() + batch.reserved > MOST_BYTES {
                    return Err(full("files"));
                }
                door.charged(caller, batch.left, || Ok(()))?;
                let since = Instant::now();
                for (line, (of, texts)) in lines.iter().zip(texts).enumerate() {
                    for (index, (text, &tokens)) in texts.into_iter().zip(&of.tokens).enumerate() {
                        inner.queue.push_back(Item { caller, batch: id.clone(), line, index, tokens, text, since });
                    }
                }
                batch.lines = lines;
            }
        }
        let done = batch.state == State::InProgress && batch.left == 0;
        inner.batches.insert(id.clone(), batch);
        if done {
            inner.complete(&id, &self.model.named.model);
        }
        self.changed.notify_all();
        inner.batch_object(caller, &id)
    }

    /// The state of a batch.
    pub fn batch(&self, caller: Caller, id: &str) -> Result<Value, Refusal> {
        self.lock().batch_object(caller, id)
    }

    /// All batches of a caller.
    pub fn batches(&self, caller: Caller) -> Value {
        let inner = self.lock();
        let own = inner.batches.iter().filter(|(_, b)| b.caller == caller);
        list(own.map(|(id, batch)| batch.object(id)))
    }

    /// Takes a batch's texts out of the queue. Texts already in a run are run to the end, and not kept.
    pub fn cancel(&self, caller: Caller, id: &str) -> Result<Value, Refusal> {
        let mut inner = self.lock();
        inner.batch_object(caller, id)?;
        let inner = &mut *inner;
        if let Some(batch) = inner.batches.get_mut(id)
            && batch.state == State::InProgress
        {
            batch.end(State::Cancelled);
            inner.queue.retain(|item| item.batch != id);
        }
        inner.batch_object(caller, id)
    }

    /// The texts of the next run, for whose places callers take turns: returns once there are as many as it has places,
    /// or the first has waited long enough. `None` when the board is closed.
    pub fn take(&self) -> Option<Vec<Item>> {
        let mut inner = self.lock();
        loop {
            if inner.closed {
                return None;
            }
            let waited = inner.queue.front().map(|item| item.since.elapsed());
            let left = waited.map(|waited| self.limits.gather.saturating_sub(waited));
            let fits = |items: &mut dyn Iterator<Item = &Item>| {
                let tokens: Vec<usize> = items.take(self.limits.places).map(|item| item.tokens).collect();
                // One at least: a text alone was checked when it came.
                self.model.client.fitting(&tokens).unwrap_or(1).max(1)
            };
            let full = inner.queue.len() >= self.limits.places || inner.queue.len() > fits(&mut inner.queue.iter());
            inner = match left {
                Some(left) if full || left.is_zero() => {
                    return Some(inner.next_run(self.limits.places, &fits));
                }
                Some(left) => {
                    let waited = self.changed.wait_timeout(inner, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(inner).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Hands out a run's answers, in the order of its texts.
    pub fn answered(&self, items: &[Item], answers: Vec<Zeroizing<Vec<f32>>>) {
        let mut inner = self.lock();
        let mut done = Vec::new();
        for (item, values) in items.iter().zip(answers) {
            let Some(batch) = inner.batches.get_mut(&item.batch) else {
                continue;
            };
            if batch.state != State::InProgress {
                continue;
            }
            if let Some(line) = batch.lines.get_mut(item.line) {
                line.answer(item.index, values);
            }
            batch.left = batch.left.saturating_sub(1);
            if batch.left == 0 {
                done.push(item.batch.clone());
            }
        }
        for id in done {
            inner.complete(&id, &self.model.named.model);
        }
    }

    /// Whether somebody still waits for any of these texts.
    pub fn is_wanted(&self, items: &[Item]) -> bool {
        let inner = self.lock();
        items.iter().any(|item| inner.lives(item))
    }

    /// Fails the batches of a run.
    pub fn failed(&self, items: &[Item], failure: &Failure) {
        let mut inner = self.lock();
        let inner = &mut *inner;
        for item in items {
            if let Some(batch) = inner.batches.get_mut(&item.batch)
                && batch.state == State::InProgress
            {
                batch.errors = vec![json!({
                    "code": failure.name, "message": failure.message, "line": null, "param": null,
                })];
                batch.end(State::Failed);
            }
        }
        // Nobody waits any more for their texts in later runs.
        let mut queue = std::mem::take(&mut inner.queue);
        queue.retain(|item| inner.lives(item));
        inner.queue = queue;
    }

    /// Stops accepting anything, and ends the worker's wait.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn next_run(&mut self, places: usize, fits: &dyn Fn(&mut dyn Iterator<Item = &Item>) -> usize) -> Vec<Item> {
        let mut items = Vec::new();
        while items.len() < places
            && let Some(item) = self.turns.take(&mut self.queue, |item| item.caller)
        {
            items.push(item);
        }
        // Those that do not fit come first in the next run.
        let rest = items.split_off(fits(&mut items.iter()).min(items.len()));
        rest.into_iter().rev().for_each(|item| self.queue.push_front(item));
        items
    }

    fn lives(&self, item: &Item) -> bool {
        let batch = self.batches.get(&item.batch);
        batch.is_some_and(|batch| batch.state == State::InProgress)
    }

    /// Bytes of files, including those that batches under way will write.
    fn taken(&self) -> usize {
        let there: usize = self.files.values().map(|file| file.bytes.len()).sum();
        there + self.batches.values().map(|b| b.reserved).sum::<usize>()
    }

    /// Makes room for a batch if there is none: forgets the one that ended first, but not its files.
    fn forget_an_ended_batch(&mut self) {
        if self.batches.len() < MOST_BATCHES {
            return;
        }
        let ended = self.batches.iter().filter_map(|(id, b)| Some((b.ended?, id)));
        if let Some(id) = ended.min().map(|(_, id)| id.clone()) {
            self.batches.remove(&id);
        }
    }

    fn keep(
        &mut self,
        caller: Caller,
        name: String,
        purpose: &'static str,
        bytes: Zeroizing<Vec<u8>>,
    ) -> Result<String, Refusal> {
        let id = fresh("file-")?;
        let file = File { caller, name, purpose, created: now(), bytes: Arc::new(bytes) };
        self.files.insert(id.clone(), file);
        Ok(id)
    }

    fn file(&self, caller: Caller, id: &str) -> Result<&File, Refusal> {
        let file = self.files.get(id).filter(|file| file.caller == caller);
        file.ok_or_else(|| unknown("file"))
    }

    fn file_object(&self, caller: Caller, id: &str) -> Result<Value, Refusal> {
        Ok(self.file(caller, id)?.object(id))
    }

    fn batch_object(&self, caller: Caller, id: &str) -> Result<Value, Refusal> {
        let batch = self.batches.get(id).filter(|b| b.caller == caller);
        Ok(batch.ok_or_else(|| unknown("batch"))?.object(id))
    }

    /// Writes the answers of a batch into files once it has all of them.
    fn complete(&mut self, id: &str, model: &str) {
        let Some(batch) = self.batches.get_mut(id) else {
            return;
        };
        let (mut output, mut errors) = (Zeroizing::new(Vec::new()), Zeroizing::new(Vec::new()));
        for (line, number) in batch.lines.iter().zip(1..) {
            let request = format!("{id}_{number}");
            match line.is_refused() {
                true => line.write(&request, model, &mut errors),
                false => line.write(&request, model, &mut output),
            }
        }
        batch.lines.clear();
        let [total, _, refused] = batch.counts;
        batch.counts = [total, total - refused, refused];
        let caller = batch.caller;
        let mut keep = |name: String, bytes: Zeroizing<Vec<u8>>| match bytes.is_empty() {
            true => Ok(None),
            false => self.keep(caller, name, "batch_output", bytes).map(Some),
        };
        let kept = keep(format!("{id}_output.jsonl"), output)
            .and_then(|output| Ok((output, keep(format!("{id}_error.jsonl"), errors)?)));
        if let Some(batch) = self.batches.get_mut(id) {
            match kept {
                Ok((output, errors)) => {
                    (batch.output, batch.error_file) = (output, errors);
                    batch.end(State::Completed);
                }
                Err(refusal) => {
                    let error =
                        json!({ "code": refusal.name, "message": refusal.message, "line": null, "param": null });
                    batch.errors = vec![error];
                    batch.end(State::Failed);
                }
            }
        }
    }
}

impl File {
    fn object(&self, id: &str) -> Value {
        json!({
            "id": id, "object": "file", "bytes": self.bytes.len(), "created_at": self.created,
            "filename": self.name, "purpose": self.purpose, "status": "processed",
        })
    }
}

impl Batch {
    fn end(&mut self, state: State) {
        self.state = state;
        self.ended = Some(now());
        self.reserved = 0;
        self.lines.clear();
    }

    fn object(&self, id: &str) -> Value {
        let ended = |state| self.ended.filter(|_| self.state == state);
        let state = match self.state {
            State::InProgress => "in_progress",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        };
        let [total, completed, failed] = self.counts;
        let errors = (!self.errors.is_empty()).then(|| json!({ "object": "list", "data": self.errors }));
        json!({
            "id": id, "object": "batch", "endpoint": ENDPOINT, "input_file_id": self.input,
            "completion_window": "24h", "status": state, "errors": errors, "metadata": self.metadata,
            "output_file_id": self.output, "error_file_id": self.error_file,
            "created_at": self.created, "in_progress_at": self.created, "expires_at": self.created + WINDOW,
            "completed_at": ended(State::Completed), "failed_at": ended(State::Failed),
            "cancelled_at": ended(State::Cancelled), "cancelling_at": null, "expired_at": null, "finalizing_at": null,
            "request_counts": { "total": total, "completed": completed, "failed": failed },
        })
    }
}

fn list(data: impl Iterator<Item = Value>) -> Value {
    let data: Vec<Value> = data.collect();
    json!({ "object": "list", "data": data, "has_more": false })
}

fn unknown(what: &str) -> Refusal {
    let message = format!("no such {what}; a restarted gateway does not keep earlier ones");
    Refusal::new(StatusCode::NOT_FOUND, "not_found", message)
}

fn full(what: &str) -> Refusal {
    let message = format!("the gateway cannot store more {what}; delete some");
    Refusal::new(StatusCode::TOO_MANY_REQUESTS, "queue-full", message)
}

/// An id that cannot be guessed.
fn fresh(prefix: &str) -> Result<String, Refusal> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|_| Failure::defect())?;
    let digits = random.iter().map(|byte| format!("{byte:02x}"));
    Ok(prefix.chars().map(String::from).chain(digits).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_take_turns_for_the_places_of_a_run() {
        let mut inner = Inner::default();
        for (caller, line) in [(1, 0), (1, 1), (1, 2), (1, 3), (2, 4), (3, 5)] {
            inner.queue.push_back(item(caller, line));
        }
        let lines = |items: Vec<Item>| items.iter().map(|item| item.line).collect::<Vec<_>>();
        let all = |items: &mut dyn Iterator<Item = &Item>| items.count();
        assert_eq!(lines(inner.next_run(4, &all)), [0, 4, 5, 1]);
        assert_eq!(lines(inner.next_run(4, &all)), [2, 3]);
        assert!(inner.next_run(4, &all).is_empty());
    }

    /// A run whose texts have more tokens than its places leaves the last ones to the next run.
    #[test]
    fn texts_that_do_not_fit_a_run_wait_for_the_next() {
        let mut inner = Inner::default();
        for line in 0..6 {
            inner.queue.push_back(item(1, line));
        }
        let lines = |items: Vec<Item>| items.iter().map(|item| item.line).collect::<Vec<_>>();
        // Twelve tokens a run, for texts of one to six.
        let fits = |items: &mut dyn Iterator<Item = &Item>| {
            let sums = items.scan(0, |sum, item| {
                *sum += item.tokens;
                Some(*sum)
            });
            sums.take_while(|&sum| sum <= 12).count()
        };
        assert_eq!(lines(inner.next_run(6, &fits)), [0, 1, 2, 3]);
        assert_eq!(lines(inner.next_run(6, &fits)), [4, 5]);
    }

    fn item(caller: u8, line: usize) -> Item {
        Item {
            caller: Caller([caller; 32]),
            batch: String::new(),
            line,
            index: 0,
            tokens: 1 + line,
            text: Zeroizing::default(),
            since: Instant::now(),
        }
    }
}
