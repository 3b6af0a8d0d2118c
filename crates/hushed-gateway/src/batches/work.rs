//! The single worker: takes gathered texts, has the server run them as one encrypted batch, and hands out the answers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hushed_serve::ServeError;
use hushed_serve::fhe::wire::JobState;
use hushed_serve::fhe::{Remote, RemoteEvent, Warning};
use zeroize::Zeroizing;

use super::board::{Board, Item};
use crate::sessions::failure::Failure;
use crate::sessions::share::Caller;

/// How often the worker checks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);
/// Pause after the server has been out of reach for longer than [`Remote`] is patient.
const AGAIN: Duration = Duration::from_secs(30);
/// Shortest and longest time between two looks at a job.
const WAIT: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];

/// Why there are no answers.
enum Ended {
    /// The gateway is being stopped; a job that was sent stays in the key folder.
    Stopping,
    /// A permanent failure.
    Failed(ServeError),
}

/// Works until the board is closed.
pub fn work(board: &Board, remote: &Remote, stop: &Arc<AtomicBool>) {
    let attempt = |items: &[Item]| {
        let mut texts = Zeroizing::new(Vec::with_capacity(items.len()));
        texts.extend(items.iter().map(|item| item.text.to_string()));
        let answers = run(remote, &texts, stop)?;
        board.answered(items, answers);
        Ok(())
    };
    let give_up = |items: &[Item], error: &ServeError| {
        board.failed(items, &Failure::from(error));
    };
    while let Some(items) = board.take() {
        let ended = apart(items, |i| i.caller, |i| board.is_wanted(i), attempt, give_up);
        if ended.is_err() {
            return;
        }
    }
}

/// The gateway is being stopped.
struct Stopping;

/// Tries all items at once and, if that fails, each caller's items alone, so that nobody loses answers because of
/// someone else's texts. After a wrong canary nothing is tried again, because the server would see that it was.
fn apart<I>(
    items: Vec<I>,
    caller: impl Fn(&I) -> Caller,
    wanted: impl Fn(&[I]) -> bool,
    attempt: impl Fn(&[I]) -> Result<(), Ended>,
    mut give_up: impl FnMut(&[I], &ServeError),
) -> Result<(), Stopping> {
    let mut runs = vec![items];
    while let Some(items) = runs.pop() {
        if !wanted(&items) {
            continue;
        }
        let error = match attempt(&items) {
            Ok(()) => continue,
            Err(Ended::Stopping) => return Err(Stopping),
            Err(Ended::Failed(error)) => error,
        };
        tracing::warn!(name = error.name(), "an encrypted batch failed");
        let whose: BTreeSet<[u8; 32]> = items.iter().map(|item| caller(item).0).collect();
        if whose.len() < 2 || matches!(error.name(), "canary" | "reply-shape" | "keys-retired") {
            give_up(&items, &error);
            continue;
        }
        let mut rest = items;
        for who in whose {
            let own;
            (own, rest) = rest.into_iter().partition(|item| caller(item).0 == who);
            runs.push(own);
        }
    }
    Ok(())
}

fn run(remote: &Remote, texts: &[String], stop: &AtomicBool) -> Result<Vec<Zeroizing<Vec<f32>>>, Ended> {
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

/// The same texts make the same job, so the next attempt continues one that broke off.
fn attempt(remote: &Remote, texts: &[String], stop: &AtomicBool) -> Result<Vec<Zeroizing<Vec<f32>>>, Ended> {
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

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use hushed_serve::fhe::FheJobError;

    use super::*;

    /// Runs of texts from two callers, where `error` hits every run that has a 9: what was tried, and what failed.
    fn tried(error: impl Fn() -> ServeError, cancelled: &[u32]) -> [Vec<Vec<u32>>; 2] {
        let (runs, failed) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
        let items = vec![(1, 1), (2, 9), (1, 2), (2, 3)];
        let ended = apart(
            items,
            |item| Caller([item.0; 32]),
            |items| items.iter().any(|item| !cancelled.contains(&item.1)),
            |items| {
                let texts: Vec<u32> = items.iter().map(|item| item.1).collect();
                let fails = texts.contains(&9);
                runs.borrow_mut().push(texts);
                if fails { Err(Ended::Failed(error())) } else { Ok(()) }
            },
            |items, _| failed.borrow_mut().push(items.iter().map(|item| item.1).collect()),
        );
        assert!(ended.is_ok());
        [runs.into_inner(), failed.into_inner()]
    }

    #[test]
    fn a_run_that_fails_is_tried_again_for_each_caller_alone() {
        let [runs, failed] = tried(|| ServeError::NoRandomness, &[]);
        assert_eq!(runs, [vec![1, 9, 2, 3], vec![9, 3], vec![1, 2]]);
        assert_eq!(failed, [vec![9, 3]]);
        // Nobody waits for one caller's texts any more.
        let [runs, failed] = tried(|| ServeError::NoRandomness, &[1, 2]);
        assert_eq!((runs.len(), failed.len()), (2, 1));
    }

    #[test]
    fn nothing_follows_a_wrong_answer() {
        let canary = || FheJobError::WrongCanary { found: 0.0, least: 1.0 };
        let shape = || {
            let (vector, used) = (0, false);
            FheJobError::Run(hushed_fhe::FheError::ReplyShape { vector, used })
        };
        for error in [canary as fn() -> FheJobError, shape] {
            let [runs, failed] = tried(|| error().into(), &[]);
            assert_eq!((runs.len(), failed.as_slice()), (1, [vec![1, 9, 2, 3]].as_slice()));
        }
    }

    #[test]
    fn a_gateway_that_stops_tries_nothing_more() {
        let stop = |_: &[u8]| Err(Ended::Stopping);
        let ended = apart(vec![1, 2], |i| Caller([*i; 32]), |_| true, stop, |_, _| panic!("given up"));
        assert!(ended.is_err());
    }
}
