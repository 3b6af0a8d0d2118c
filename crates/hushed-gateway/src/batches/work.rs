//! The one worker: takes what was gathered, has it run by the server as one encrypted batch, and hands out the answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hushed_serve::ServeError;
use hushed_serve::fhe::wire::JobState;
use hushed_serve::fhe::{Remote, RemoteEvent, Warning};
use zeroize::{Zeroize, Zeroizing};

use super::board::Board;
use crate::sessions::failure::Failure;

/// How often the worker looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// After a server that is out of reach for longer than [`Remote`] is patient.
const AGAIN: Duration = Duration::from_secs(30);
/// Least and longest time between two looks at a job.
const WAIT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];

/// Why there are no answers.
enum Ended {
    /// The gateway is being stopped; a job that was sent stays in the key folder.
    Stopping,
    /// For good.
    Failed(ServeError),
}

/// Works until the board is closed.
pub fn work(board: &Board, remote: &Remote, stop: &Arc<AtomicBool>) {
    while let Some(items) = board.take() {
        let mut texts = Zeroizing::new(Vec::with_capacity(items.len()));
        texts.extend(items.iter().map(|item| item.text.to_string()));
        match run(remote, &texts, stop) {
            Ok(answers) => board.answered(&items, answers),
            Err(Ended::Stopping) => {
                texts.zeroize();
                return;
            }
            Err(Ended::Failed(error)) => {
                tracing::warn!(name = error.name(), "an encrypted batch failed");
                board.failed(&items, &Failure::from(&error));
            }
        }
    }
}

fn run(
    remote: &Remote,
    texts: &[String],
    stop: &AtomicBool,
) -> Result<Vec<Zeroizing<Vec<f32>>>, Ended> {
    loop {
        match attempt(remote, texts, stop) {
            Err(Ended::Failed(ServeError::Net(error))) => {
                tracing::warn!(%error, "the server is out of reach; trying again");
                pause(AGAIN, stop)?;
            }
            done => return done,
        }
    }
}

/// The same texts again are the same job, so an attempt that broke is continued by the next.
fn attempt(
    remote: &Remote,
    texts: &[String],
    stop: &AtomicBool,
) -> Result<Vec<Zeroizing<Vec<f32>>>, Ended> {
    let job = remote.submit(texts, &mut |event| {
        if let RemoteEvent::Encrypted(sent) = event {
            for line in Warning::lines(&sent.warnings, 0) {
                tracing::warn!("{line}");
            }
        }
    });
    let job = job.map_err(Ended::Failed)?;
    tracing::info!(job = %job, texts = texts.len(), "an encrypted batch was sent");
    while let JobState::Queued { left, .. } | JobState::Running { left, .. } =
        remote.status(&job).map_err(Ended::Failed)?
    {
        let wait = Duration::from_secs(u64::from(left) / 50);
        pause(wait.clamp(WAIT[0], WAIT[1]), stop)?;
    }
    let answer = remote.collect(&job, &mut |_| ()).map_err(Ended::Failed)?;
    answer.check_canary().map_err(Ended::Failed)?;
    let narrowed = |row: &Vec<f64>| Zeroizing::new(row.iter().map(|&x| x as f32).collect());
    let answers = answer.embeddings.iter().map(narrowed).collect();
    remote.forget(&job).map_err(Ended::Failed)?;
    Ok(answers)
}

fn pause(wait: Duration, stop: &AtomicBool) -> Result<(), Ended> {
    let until = Instant::now() + wait;
    while Instant::now() < until {
        if stop.load(Ordering::SeqCst) {
            return Err(Ended::Stopping);
        }
        thread::sleep(LOOK);
    }
    Ok(())
}
