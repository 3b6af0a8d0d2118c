//! Limits the number of texts per client in a time window, over all its sessions. This keeps an honest-looking client
//! from extracting the model by asking for enough answers.
//!
//! A count is on disk before its texts run, so ending a session or the server gives none back. Texts that cannot be
//! recorded are not served, and a server does not start with a file that it cannot read: otherwise every client would
//! get its texts again.
//!
//! The window is divided into [`GRANULES`] parts. Each part counts until a whole window has passed after its *end*, so
//! no time window, wherever it begins, contains more texts of a client than its limit.
//!
//! Time is the machine's clock. Setting the clock back and correcting it loses no counts, and correcting a clock that
//! was ahead locks nobody out for longer than a window. Setting it ahead by a window loses the counts.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod rate;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::files::{self, make_folder, now};
use crate::session::allowance::rate::{ClientTexts, CountsFault, TextRate, VERSION};
use crate::session::owner::Owner;
use crate::session::wire::Refusal;

/// The parts of a window, counted separately: a text counts for at most a twenty-fourth of it longer than necessary.
const GRANULES: u64 = 24;
/// Maximum parts kept per client: those of a window, and as many again from a clock that was ahead.
const MOST_PARTS: usize = 2 * (GRANULES as usize + 1);
/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 128 << 20;
/// Maximum number of clients counted at a time; with all their parts they fit in [`MAX_BYTES`].
const MOST_CLIENTS: usize = 20_000;
/// Texts that ran in the part of the window that ends at `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    /// Never lowered: a clock that is behind now cannot be told from one that was ahead then.
    end: u64,
    texts: u32,
    /// Set while `end` is in the future, that is, after the clock was put back: the end of the part of the window in
    /// which this was noticed. The texts count from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    version: u32,
    clients: BTreeMap<String, Vec<Part>>,
}

/// The counts as in the file. The digest detects disk errors; anyone who can write the file can write any counts.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    sha256: String,
    counts: Counts,
}

/// The clients' counts.
pub(crate) struct TextCounts {
    rate: TextRate,
    path: PathBuf,
    counts: Mutex<Counts>,
    _lock: File,
}

impl TextCounts {
    /// Reads the file, or creates it.
    pub(crate) fn open(limit: &ClientTexts) -> Result<TextCounts, ServeError> {
        let path = limit.file.clone();
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            make_folder(parent)?;
        }
        let lock = lock(&path)?;
        let counts = match path.try_exists() {
            Ok(false) => Counts {
                version: VERSION,
                clients: BTreeMap::new(),
            },
            // If its metadata cannot be read, neither can the file, and reading it says why.
            _ => read(&path)?,
        };
        // An unwritable folder shows now, not at the first client.
        write(&path, &counts)?;
        Ok(TextCounts {
            rate: limit.rate,
            path,
            counts: Mutex::new(counts),
            _lock: lock,
        })
    }

    pub(crate) fn rate(&self) -> TextRate {
        self.rate
    }

    /// Counts texts that are about to run; the count is on disk on return. Otherwise says why they may not run.
    pub(crate) fn count(&self, owner: &Owner, texts: usize) -> Result<(), Refusal> {
        self.count_at(owner, texts, now())
    }

    fn count_at(&self, owner: &Owner, texts: usize, now: u64) -> Result<(), Refusal> {
        let limit = self.rate.texts;
        let above = Refusal::AboveAllowance { limit };
        let texts = u32::try_from(texts).map_err(|_| above)?;
        if texts > limit {
            return Err(above);
        }
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        // Changed as a whole or not at all: texts that could not be recorded were not served.
        let mut next = counts.clone();
        if next.expire(self.rate, now) {
            // Saved even if the texts are refused, or their wait would start over each time; a full disk only makes it
            // longer.
            if let Err(error) = write(&self.path, &next) {
                tracing::error!(%error, "that the clock was put back could not be written down");
            }
            *counts = next.clone();
        }
        let new = !next.clients.contains_key(owner.name());
        if new && next.clients.len() >= MOST_CLIENTS {
            tracing::error!("more clients than can be counted: none that is new is served");
            return Err(Refusal::Uncounted);
        }
        let parts = next.clients.entry(owner.name().to_owned()).or_default();
        if let Some(seconds) = self.rate.wait(parts, texts, now) {
            return Err(Refusal::Allowance { seconds });
        }
        add(parts, self.rate.end(now), texts);
        if let Err(error) = write(&self.path, &next) {
            tracing::error!(%error, "texts could not be counted: none are served");
            return Err(Refusal::Uncounted);
        }
        *counts = next;
        Ok(())
    }
}

impl TextRate {
    /// Length of a part of the window.
    fn granule(self) -> u64 {
        (self.seconds / GRANULES).max(1)
    }

    /// The end of the part of the window that contains `now`.
    fn end(self, now: u64) -> u64 {
        (now / self.granule() + 1).saturating_mul(self.granule())
    }

    /// The time until which a part counts.
    fn until(self, part: &Part, now: u64) -> u64 {
        let latest = self.end(now);
        let end = match part.end > latest {
            true => part.seen.unwrap_or(latest).min(latest),
            false => part.end,
        };
        end.saturating_add(self.seconds)
    }

    /// Seconds until this many more texts may run; `None` if they may now.
    fn wait(self, parts: &[Part], texts: u32, now: u64) -> Option<u32> {
        let counting = parts
            .iter()
            .map(|part| (self.until(part, now), part.texts))
            .filter(|(until, _)| *until > now);
        let mut counting: Vec<(u64, u32)> = counting.collect();
        counting.sort_unstable();
        let had: u64 = counting.iter().map(|(_, texts)| u64::from(*texts)).sum();
        let mut over = (had + u64::from(texts)).saturating_sub(self.texts.into());
        let mut wait = None;
        for (until, texts) in counting {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(texts.into());
            wait = Some(until - now);
        }
        wait.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX).max(1))
    }
}

/// Adds texts to the part that ends at `end`. Beyond [`MOST_PARTS`], which takes a clock that was wrong more than once,
/// the last two parts are merged: they count as the later one, from when it is next seen.
fn add(parts: &mut Vec<Part>, end: u64, texts: u32) {
    match parts.iter_mut().find(|part| part.end == end) {
        Some(part) => part.texts = part.texts.saturating_add(texts),
        None => parts.push(Part {
            end,
            texts,
            seen: None,
        }),
    }
    parts.sort_by_key(|part| part.end);
    while parts.len() > MOST_PARTS {
        let Some(last) = parts.pop() else { break };
        if let Some(part) = parts.last_mut() {
            *part = Part {
                end: last.end,
                texts: part.texts.saturating_add(last.texts),
                seen: None,
            };
        }
    }
}

impl Counts {
    /// Removes counts that have expired, and notes those in the future. Returns whether the notes changed.
    fn expire(&mut self, rate: TextRate, now: u64) -> bool {
        let latest = rate.end(now);
        let mut changed = false;
        for parts in self.clients.values_mut() {
            parts.retain(|part| part.end.saturating_add(rate.seconds) > now);
            for part in parts.iter_mut() {
                let seen = match part.end > latest {
                    true => Some(part.seen.unwrap_or(latest).min(latest)),
                    false => None,
                };
                changed |= part.seen != seen;
                part.seen = seen;
            }
        }
        self.clients.retain(|_, parts| !parts.is_empty());
        changed
    }

    fn sha256(&self) -> Result<String, serde_json::Error> {
        let hash = Sha256::digest(serde_json::to_vec(self)?);
        Ok(Digest(hash.into()).to_string())
    }
}

fn fault(path: &Path, fault: CountsFault) -> ServeError {
    ServeError::Counts {
        path: path.to_owned(),
        fault,
    }
}

fn lock(path: &Path) -> Result<File, ServeError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let place = path.with_file_name(name);
    let file = File::create(&place).map_err(|source| ServeError::File {
        operation: "lock",
        path: place,
        source,
    })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(fault(path, CountsFault::InUse)),
    }
}

fn read(path: &Path) -> Result<Counts, ServeError> {
    let bytes = files::read(path, MAX_BYTES)?;
    let damaged = || fault(path, CountsFault::Damaged);
    let Sealed { sha256, mut counts } = serde_json::from_slice(&bytes).map_err(|_| damaged())?;
    if counts.version != VERSION {
        return Err(fault(path, CountsFault::Version(counts.version)));
    }
    if !counts.sha256().is_ok_and(|found| found == sha256) {
        return Err(damaged());
    }
    for parts in counts.clients.values_mut() {
        parts.sort_by_key(|part| part.end);
    }
    Ok(counts)
}

fn write(path: &Path, counts: &Counts) -> Result<(), ServeError> {
    let failed = |source: serde_json::Error| ServeError::File {
        operation: "write",
        path: path.to_owned(),
        source: io::Error::from(source),
    };
    let sealed = Sealed {
        sha256: counts.sha256().map_err(failed)?,
        counts: counts.clone(),
    };
    let mut bytes = serde_json::to_vec(&sealed).map_err(failed)?;
    bytes.push(b'\n');
    files::write(path, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u8) -> Owner {
        Owner::of(None, Some(Digest([n; 32])))
    }

    fn counts(folder: &Path, rate: &str) -> Result<TextCounts, ServeError> {
        TextCounts::open(&ClientTexts {
            rate: rate.parse().unwrap(),
            file: folder.join("state/texts.json"),
        })
    }

    #[test]
    fn rates_are_numbers_and_windows() {
        for good in ["1000/DAY", "3/MINUTE", "4/HOUR", "5/WEEK"] {
            assert_eq!(good.parse::<TextRate>().unwrap().to_string(), good);
        }
        assert_eq!(" 7 / day".parse::<TextRate>().unwrap().to_string(), "7/DAY");
        for wrong in [
            "", "5", "/DAY", "5/", "5/YEAR", "0/DAY", "-1/DAY", "5/DAY/2",
        ] {
            assert!(wrong.parse::<TextRate>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn f8_no_window_has_more_than_its_number_wherever_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let counts = counts(folder.path(), "100/DAY").unwrap();
        let (ann, bob) = (owner(1), owner(2));
        let began = 20_000 * 86_400;
        let (mut now, mut served, mut step) = (began, Vec::new(), 1u64);
        while now < began + 4 * 86_400 {
            step = step * 48_271 % 2_147_483_647;
            let texts = (step % 9) as usize;
            match counts.count_at(&ann, texts, now) {
                Ok(()) => served.push((now, texts)),
                Err(Refusal::Allowance { seconds }) => {
                    // The wait that the client was told is enough, and not much too long.
                    let again = now + u64::from(seconds);
                    assert!(
                        seconds <= 86_400 + 3600
                            && counts.count_at(&ann, texts, again - 1).is_err()
                    );
                    now = again;
                    counts.count_at(&ann, texts, now).unwrap();
                    served.push((now, texts));
                }
                Err(other) => panic!("{other}"),
            }
            now += step % 3600;
        }
        for (from, _) in &served {
            let window = served
                .iter()
                .filter(|(at, _)| (*from..from + 86_400).contains(at));
            let texts: usize = window.map(|(_, texts)| texts).sum();
            assert!(texts <= 100, "{texts}");
        }
        let all: usize = served.iter().map(|(_, texts)| texts).sum();
        assert!(all > 250, "{all}");
        // Another client has its own count, and nobody gets more at once than the limit.
        counts.count_at(&bob, 100, now).unwrap();
        let above = Refusal::AboveAllowance { limit: 100 };
        assert_eq!(counts.count_at(&bob, 101, now), Err(above));
    }

    #[test]
    fn f8_a_clock_that_is_put_back_does_not_lock_out_for_longer_than_a_window() {
        let folder = tempfile::tempdir().unwrap();
        let counts = counts(folder.path(), "1/HOUR").unwrap();
        counts.count_at(&owner(1), 1, 4_000_000_000).unwrap();
        let told = counts.count_at(&owner(1), 1, 1_800_000_000);
        assert!(matches!(told, Err(Refusal::Allowance { seconds }) if seconds <= 3600 + 150));
        // The wait holds although nothing was served and recorded meanwhile, and it does not start over.
        let again = 1_800_000_000 + 3600 + 150;
        counts.count_at(&owner(1), 1, again).unwrap();
        assert!(counts.count_at(&owner(1), 1, again).is_err());
        counts.count_at(&owner(1), 1, again + 3600 + 150).unwrap();
    }

    #[test]
    fn f8_a_clock_that_is_put_back_and_corrected_forgets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let first = counts(folder.path(), "100/DAY").unwrap();
        let (ann, bob) = (owner(1), owner(2));
        first.count_at(&ann, 100, 1_800_000_000).unwrap();
        // Years back; another client's texts are recorded then.
        first.count_at(&bob, 1, 1_700_000_000).unwrap();
        assert!(first.count_at(&ann, 1, 1_700_000_000).is_err());
        drop(first);
        let counts = counts(folder.path(), "100/DAY").unwrap();
        let corrected = counts.count_at(&ann, 1, 1_800_000_060);
        assert!(matches!(corrected, Err(Refusal::Allowance { seconds }) if seconds > 86_000));
        // Nor does it forget if this happens again, for longer than a window.
        for now in [1_700_000_000, 1_700_000_000 + 2 * 86_400] {
            counts.count_at(&bob, 1, now).unwrap();
        }
        assert!(counts.count_at(&ann, 1, 1_800_000_120).is_err());
        counts
            .count_at(&ann, 100, 1_800_000_000 + 86_400 + 3600)
            .unwrap();
    }

    #[test]
    fn f8_a_clock_that_goes_astray_often_fills_no_file_and_forgets_nothing() {
        let mut parts = Vec::new();
        (0..1000).for_each(|n| add(&mut parts, 1_000_000 - 7 * n, 1));
        assert_eq!(parts.len(), MOST_PARTS);
        let texts: u32 = parts.iter().map(|part| part.texts).sum();
        assert_eq!(texts, 1000);
    }

    #[test]
    fn f8_what_cannot_be_read_or_written_is_not_served() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let path = folder.join("state/texts.json");
        let damaged = |error: ServeError| {
            assert_eq!(error.name(), "counts", "{error}");
            error.to_string()
        };
        let first = counts(folder, "3/DAY").unwrap();
        first.count_at(&owner(1), 2, 1_800_000_000).unwrap();
        // One server at a time.
        assert!(damaged(counts(folder, "3/DAY").err().unwrap()).contains("another server"));
        // No room: as if the disk were full.
        std::fs::rename(folder.join("state"), folder.join("away")).unwrap();
        let refused = first.count_at(&owner(1), 1, 1_800_000_000);
        assert_eq!(refused, Err(Refusal::Uncounted));
        std::fs::rename(folder.join("away"), folder.join("state")).unwrap();
        // It was not counted, so there is one left.
        first.count_at(&owner(1), 1, 1_800_000_000).unwrap();
        drop(first);
        let good = std::fs::read(&path).unwrap();
        for cut in 0..good.len() - 1 {
            std::fs::write(&path, &good[..cut]).unwrap();
            damaged(counts(folder, "3/DAY").err().unwrap());
        }
        let changed = String::from_utf8(good.clone()).unwrap();
        std::fs::write(&path, changed.replace("\"texts\":3", "\"texts\":0")).unwrap();
        damaged(counts(folder, "3/DAY").err().unwrap());
        let later = changed.replace("\"version\":1", "\"version\":2");
        std::fs::write(&path, later).unwrap();
        assert!(damaged(counts(folder, "3/DAY").err().unwrap()).contains("version 2"));
        std::fs::write(&path, good).unwrap();
        let again = counts(folder, "3/DAY").unwrap();
        assert!(again.count_at(&owner(1), 1, 1_800_000_000).is_err());
    }
}
