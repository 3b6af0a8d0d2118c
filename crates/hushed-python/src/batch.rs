//! Batches under encryption, submitted to a server and fetched later.

use std::path::PathBuf;

use hushed_serve::TooLong;
use hushed_serve::fhe::wire::JobState;
use hushed_serve::fhe::{Answer, Item, KeygenOptions, OnEvent, Remote, RemoteEvent, RemoteOptions, Wanted, Warning};
use hushed_serve::{Digest, ServeError};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::connection::Connection;
use crate::errors;
use crate::work::{self, Reporter};

/// The server of a batch and its keys: `hushed._settings.Batching`.
#[derive(FromPyObject)]
pub struct Batching {
    connection: Connection,
    keys: PathBuf,
    manifest: Option<PathBuf>,
    public: Option<PathBuf>,
    make_keys: bool,
    days: u32,
    max_keys: usize,
    max_key_bytes: u64,
    truncate: bool,
    lengths: Option<String>,
    wanted: Option<String>,
}

/// State, jobs ahead, layers done, total layers, seconds left, reason of a failure.
type Status = (&'static str, u32, f64, u32, u32, Option<String>);

/// The job of a batch, and warnings about its texts.
type Submitted = (String, Vec<String>);

/// The answers as native float32, one after another.
type Numbers<'py> = Bound<'py, PyByteArray>;

/// Whether there was no canary to check.
type Unchecked = bool;

/// The most likely tokens: id, text and log probability.
type Tokens = Vec<(u32, String, f64)>;

/// The log probabilities of a text's tokens, their sum, and the text's perplexity.
type Likelihood = (Vec<f64>, f64, Option<f64>);

/// The log probability of each ending, its token count, the most likely ending, its lead, and whether it is right.
type Choice = (Vec<f64>, Vec<usize>, usize, f64, Option<bool>);

/// Encrypts texts and leaves them with the server. Meanwhile calls `progress(what, done, of)`.
#[pyfunction]
pub fn batch_submit(
    py: Python<'_>,
    batching: Batching,
    texts: Vec<String>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Submitted> {
    submit(py, progress, move |watch| batching.remote()?.submit(&texts, watch))
}

/// The same for items, each a line in the format of `hushed score --choices`.
#[pyfunction]
pub fn batch_submit_items(
    py: Python<'_>,
    batching: Batching,
    items: Vec<String>,
    progress: Option<Bound<'_, PyAny>>,
) -> PyResult<Submitted> {
    submit(py, progress, move |watch| {
        let items = Item::parse(&items)?;
        batching.remote()?.submit_items(&items, watch)
    })
}

fn submit(
    py: Python<'_>,
    progress: Option<Bound<'_, PyAny>>,
    submit: impl FnOnce(OnEvent<'_>) -> Result<Digest, ServeError> + Send + 'static,
) -> PyResult<Submitted> {
    let call = move |reporter: Reporter<_, Step>| -> Result<Submitted, ServeError> {
        let mut warnings = Vec::new();
        let job = submit(&mut |event| {
            if let RemoteEvent::Encrypted(sent) = &event {
                warnings = Warning::lines(&sent.warnings, usize::MAX);
            }
            if let Some(step) = step(&event) {
                reporter.progress(step);
            }
        })?;
        Ok((job.to_string(), warnings))
    };
    let show = |_: Python<'_>, step: Step| match &progress {
        Some(progress) => progress.call1(step).map(|_| ()),
        None => Ok(()),
    };
    // What an interrupted call has begun ends with the process; repeating the call resumes it.
    work::run(py, call, show, || ())?.map_err(|error| errors::serve(py, &error))
}

/// The progress of a job.
#[pyfunction]
pub fn batch_status(py: Python<'_>, batching: Batching, job: String) -> PyResult<Status> {
    let state = act(py, batching, job, |remote, job| remote.status(job))?;
    Ok(match state {
        JobState::Unknown => ("unknown", 0, 0.0, 0, 0, None),
        JobState::Queued { ahead, left } => ("queued", ahead, 0.0, 0, left, None),
        JobState::Running { layer, of, part, left } => {
            let done = f64::from(layer) + f64::from(part) / 1000.0;
            ("running", 0, done, of, left, None)
        }
        JobState::Done { .. } => ("done", 0, 0.0, 0, 0, None),
        JobState::Failed(failure) => ("failed", 0, 0.0, 0, 0, Some(failure.to_string())),
    })
}

/// The answers of a finished job.
#[pyfunction]
pub fn batch_result(py: Python<'_>, batching: Batching, job: String) -> PyResult<((Numbers<'_>, usize), Unchecked)> {
    let (answer, unchecked) = opened(py, batching, job, Ok)?;
    let numbers = answer.embeddings.iter().flatten();
    let bytes: Vec<u8> = numbers.flat_map(|&x| (x as f32).to_ne_bytes()).collect();
    let found = (PyByteArray::new(py, &bytes), answer.embeddings.len());
    Ok((found, unchecked))
}

/// The most likely tokens after each text of a finished job, at most `top`.
#[pyfunction]
pub fn batch_next(py: Python<'_>, batching: Batching, job: String, top: usize) -> PyResult<(Vec<Tokens>, Unchecked)> {
    opened(py, batching, job, move |answer| {
        // Answers that are not a decoder's have been refused.
        let texts = answer.head.iter().flat_map(|head| {
            let texts = 0..answer.embeddings.len();
            texts.map(|text| head.likeliest(answer.last_row(text), top))
        });
        let tokens = texts.map(|found| {
            let found = found?.into_iter();
            Ok(found.map(|t| (t.id, t.text, t.log_probability)).collect())
        });
        tokens.collect()
    })
}

/// The likelihoods of the texts of a finished job; takes the same texts again.
#[pyfunction]
pub fn batch_score(
    py: Python<'_>,
    batching: Batching,
    job: String,
    texts: Vec<String>,
) -> PyResult<(Vec<Likelihood>, Unchecked)> {
    opened(py, batching, job, move |answer| {
        let texts = answer.scored(&texts)?.into_iter();
        let likelihood = texts.map(|text| {
            let (sum, perplexity) = (text.log_likelihood(), text.perplexity());
            (text.log_probabilities, sum, perplexity)
        });
        Ok(likelihood.collect())
    })
}

/// The most likely endings for the items of a finished job; takes the same items again.
#[pyfunction]
pub fn batch_choose(
    py: Python<'_>,
    batching: Batching,
    job: String,
    items: Vec<String>,
) -> PyResult<(Vec<Choice>, Unchecked)> {
    opened(py, batching, job, move |answer| {
        let items = answer.chosen(&Item::parse(&items)?)?.into_iter();
        let choice = items.map(|c| (c.log_likelihoods, c.tokens, c.pick, c.margin, c.right));
        Ok(choice.collect())
    })
}

/// What `made` computes from the answers of a finished job, if the answer to its canary is right,
/// and whether that is unchecked, as there is no canary.
fn opened<T: Send + 'static>(
    py: Python<'_>,
    batching: Batching,
    job: String,
    made: impl FnOnce(Answer) -> Result<T, ServeError> + Send + 'static,
) -> PyResult<(T, Unchecked)> {
    act(py, batching, job, |remote, job| {
        let answer = remote.collect(job, &mut |_| ())?;
        answer.check_canary()?;
        let unchecked = answer.canary.is_none();
        Ok((made(answer)?, unchecked))
    })
}

/// Deletes everything kept for a job.
#[pyfunction]
pub fn batch_forget(py: Python<'_>, batching: Batching, job: String) -> PyResult<()> {
    act(py, batching, job, |remote, job| remote.forget(job))
}

/// Applies `act` to a job of these keys.
fn act<T: Send + 'static>(
    py: Python<'_>,
    batching: Batching,
    job: String,
    act: impl FnOnce(&Remote, &Digest) -> Result<T, ServeError> + Send + 'static,
) -> PyResult<T> {
    let call = move || {
        let remote = batching.remote()?;
        let job = remote.find(&job)?;
        act(&remote, &job)
    };
    work::quietly(py, call)?.map_err(|error| errors::serve(py, &error))
}

/// The current activity, the amount done, and the total.
type Step = (&'static str, u64, u64);

fn step(event: &RemoteEvent) -> Option<Step> {
    match *event {
        RemoteEvent::Keys(done, of) => Some(("making keys", done as u64, of as u64)),
        RemoteEvent::Encrypting(done, of) => Some(("encrypting", done as u64, of as u64)),
        RemoteEvent::Sending { what, done, of } => match what {
            "keys" => Some(("sending keys", done, of)),
            _ => Some(("sending texts", done, of)),
        },
        _ => None,
    }
}

impl Batching {
    fn remote(self) -> Result<Remote, ServeError> {
        let make_keys = self.make_keys.then(|| KeygenOptions {
            most_keys: self.max_keys,
            most_bytes: self.max_key_bytes,
            ..KeygenOptions::days(self.days)
        });
        // Python has checked that it is one of these.
        let named = ["public", "bucket", "private"].into_iter();
        let lengths = self.lengths.as_deref();
        let wanted = self.wanted.as_deref().map(|wanted| match wanted {
            "likelihoods" => Wanted::Likelihoods,
            _ => Wanted::Next,
        });
        Ok(Remote::new(RemoteOptions {
            plan: self.manifest,
            public: self.public,
            make_keys,
            too_long: match self.truncate && wanted != Some(Wanted::Likelihoods) {
                true => TooLong::Cut,
                false => TooLong::Refuse,
            },
            wanted,
            lengths: lengths.and_then(|given| named.clone().find(|name| *name == given)),
            ..RemoteOptions::new(self.connection.config()?, self.keys)
        }))
    }
}
