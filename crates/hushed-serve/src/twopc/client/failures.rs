//! How many runs with a server have failed after they began.
//!
//! A server that cheats can make a run fail or not depending on something in the text, so each failure may tell it one
//! bit, and the same text sent again tells it another. No text is sent again unasked, and after [`MOST`] failures in a
//! day a server gets none.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::bundle;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files::{self, now};
use crate::session::connect::{ClientConfig, ServerTrust};

/// The most failures in [`WINDOW`] seconds.
const MOST: usize = 3;
const WINDOW: u64 = 86_400;

/// The failures of clients without a cache, until their process ends, by the server's name.
static IN_MEMORY: Mutex<BTreeMap<[u8; 32], Vec<u64>>> = Mutex::new(BTreeMap::new());

/// The failures of runs with one server.
pub(super) struct Failures {
    server: Digest,
    /// Where their times are kept: beside what else is kept of servers.
    file: Option<PathBuf>,
}

impl Failures {
    /// Those with this server: the one with its pinned certificate, wherever it listens, or else the one at its
    /// address.
    pub(super) fn of(config: &ClientConfig) -> Failures {
        let server = bundle::hash(match &config.trust {
            ServerTrust::Pin(pin) => pin.as_bytes(),
            // By the old one its failures are known.
            ServerTrust::Pins(pins) => pins.first().map_or(config.server.as_bytes(), |pin| pin.as_bytes()),
            ServerTrust::CaFile(_) => config.server.as_bytes(),
        });
        let name = format!("{server}.failures");
        let file = config.cache_dir.as_ref().map(|dir| dir.join(name));
        Failures { server, file }
    }

    /// Refuses if there have been too many.
    pub(super) fn check(&self) -> Result<(), ServeError> {
        let mut times = self.times();
        let failures = times.len();
        if failures < MOST {
            return Ok(());
        }
        // There are few enough again when this one and those before it are past.
        times.sort_unstable();
        let last = times.get(failures - MOST).copied().unwrap_or_default();
        let seconds = last.saturating_add(WINDOW).saturating_sub(now());
        Err(ServeError::TooManyFailures { failures, seconds, file: self.file.clone() })
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.times().len()
    }

    /// The error of a run that has begun: it is counted, and says so.
    pub(super) fn counted(&self, error: ServeError) -> ServeError {
        self.add();
        ServeError::Counted { source: Box::new(error), failures: self.times().len(), most: MOST }
    }

    /// Adds one.
    fn add(&self) {
        let mut times = self.times();
        times.push(now());
        if let Some(path) = &self.file {
            match keep(path, &times) {
                Ok(()) => {
                    in_memory().remove(&self.server.0);
                    return;
                }
                Err(error) => tracing::warn!(%error, "a failure could not be written down"),
            }
        }
        in_memory().entry(self.server.0).or_default().push(now());
    }

    /// The times of those in the last [`WINDOW`] seconds.
    fn times(&self) -> Vec<u64> {
        let mut times = match &self.file {
            Some(path) => read(path),
            None => Vec::new(),
        };
        times.extend(in_memory().get(&self.server.0).into_iter().flatten());
        let since = now().saturating_sub(WINDOW);
        times.retain(|time| *time > since);
        times
    }
}

fn in_memory() -> MutexGuard<'static, BTreeMap<[u8; 32], Vec<u64>>> {
    IN_MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One time a line. What is no file of times has none: anyone who can write it could empty it.
fn read(path: &Path) -> Vec<u64> {
    let bytes = files::read(path, 1 << 16).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

fn keep(path: &Path, times: &[u64]) -> Result<(), ServeError> {
    if let Some(dir) = path.parent() {
        super::cache::make(dir)?;
    }
    let lines: String = times.iter().map(|time| format!("{time}\n")).collect();
    files::write(path, lines.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::Category;

    #[test]
    fn three_failures_in_a_day_are_the_most_for_each_server() {
        let folder = tempfile::tempdir().unwrap();
        for dir in [Some(folder.path().join("cache")), None] {
            let of = |pin: &str| {
                let trust = ServerTrust::Pin(pin.to_owned());
                let mut config = ClientConfig::new("localhost:1", trust);
                config.cache_dir = dir.clone();
                Failures::of(&config)
            };
            let (bad, other) = (of("bad"), of("other"));
            let mut said = Vec::new();
            // In the same second as well.
            for _ in 0..MOST {
                bad.check().unwrap();
                let error = bad.counted(ServeError::NoAnswer);
                said.push(error.to_string());
                assert_eq!((error.name(), error.category()), ("internal", Category::Defect));
            }
            assert!(said[0].contains("failure 1 of 3") && said[1].contains("failure 2 of 3"), "{said:?}");
            assert!(said[1].contains("after 3 nothing") && said[2].contains("a day: nothing"), "{said:?}");
            let error = of("bad").check().err().unwrap();
            assert!(error.to_string().contains("is sent to it for 24 h"), "{error}");
            assert_eq!(error.name(), "too-many-failures");
            other.check().unwrap();
            match &bad.file {
                Some(file) => {
                    assert!(error.to_string().contains(&*file.to_string_lossy()));
                    // A day later they are past; without the file there are none.
                    let past = now() - WINDOW;
                    keep(file, &[past, past, past]).unwrap();
                    of("bad").check().unwrap();
                    keep(file, &[now(), now() - 1, now() - 2]).unwrap();
                    assert!(of("bad").check().is_err());
                    std::fs::remove_file(file).unwrap();
                    of("bad").check().unwrap();
                }
                None => assert!(error.to_string().contains("process")),
            }
        }
    }
}
