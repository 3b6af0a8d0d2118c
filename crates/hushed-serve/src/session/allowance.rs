//! Limits what a client may have in a time window, over all its sessions: texts, and bits opened to it. This keeps an
//! honest-looking client from extracting the model by asking for enough answers.
//!
//! A count is on disk before its texts run, so ending a session or the server gives none back. Texts that cannot be
//! recorded are not served, and a server does not start with a file that it cannot read: otherwise every client would
//! get its texts again.
//!
//! Passes that come while the file is being written share the next write, so the disk bounds how long a pass waits, not
//! how many passes a second there are.
//!
//! The window is divided into [`GRANULES`] parts. Each part counts until a whole window has passed after its *end*, so
//! no time window, wherever it begins, contains more of a client than its limit.
//!
//! Time is the machine's clock. Setting the clock back and correcting it loses no counts, and correcting a clock that
//! was ahead locks nobody out for longer than a window. Setting it ahead by a window loses the counts.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod batch;
pub(crate) mod left;
pub(crate) mod rate;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::files::{self, make_folder, now};
use crate::session::allowance::batch::{Batches, Disk, Ledger};
use crate::session::allowance::rate::{ClientLimits, CountsFault, Rate, VERSION};
use crate::session::owner::Owner;
use crate::session::wire::Refusal;

/// The parts of a window, counted separately: a text counts for at most a twenty-fourth of it longer than necessary.
const GRANULES: u64 = 24;
/// Maximum parts kept per client: those of a window, and as many again from a clock that was ahead.
const MOST_PARTS: usize = 2 * (GRANULES as usize + 1);
/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 128 << 20;
/// Maximum number of clients counted at a time; with all their parts they fit in [`MAX_BYTES`].
const MOST_CLIENTS: usize = 10_000;

/// What a pass counts as.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charge {
    pub(crate) texts: u64,
    /// Bits that it opens.
    pub(crate) bits: u64,
}

/// What ran in the part of the window that ends at `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    /// Never lowered: a clock that is behind now cannot be told from one that was ahead then.
    end: u64,
    /// Texts, or opened bits.
    #[serde(rename = "texts")]
    amount: u64,
    /// Set while `end` is in the future, that is, after the clock was put back: the end of the part of the window in
    /// which this was noticed. The part counts from there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seen: Option<u64>,
}

/// The parts of each client.
type Clients = BTreeMap<String, Vec<Part>>;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    version: u32,
    /// Texts.
    clients: Clients,
    /// Opened bits.
    #[serde(default, skip_serializing_if = "Clients::is_empty")]
    bits: Clients,
}

/// The counts as in the file. The digest detects disk errors; anyone who can write the file can write any counts.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    sha256: String,
    counts: Counts,
}

/// The clients' counts.
pub(crate) struct ClientCounts {
    limits: Limits,
    batches: Batches<Counts>,
    _lock: File,
}

/// The limits; `None` counts nothing.
#[derive(Clone, Copy)]
struct Limits {
    texts: Option<Rate>,
    bits: Option<Rate>,
}

impl ClientCounts {
    /// Reads the file, or creates it.
    pub(crate) fn open(limits: &ClientLimits) -> Result<ClientCounts, ServeError> {
        ClientCounts::on(limits, Box::new(files::write))
    }

    fn on(limits: &ClientLimits, disk: Disk) -> Result<ClientCounts, ServeError> {
        let path = limits.file.clone();
        if let Some(parent) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
            make_folder(parent)?;
        }
        let lock = lock(&path)?;
        let counts = match path.try_exists() {
            Ok(false) => Counts { version: VERSION, clients: Clients::new(), bits: Clients::new() },
            // If its metadata cannot be read, neither can the file, and reading it says why.
            _ => read(&path)?,
        };
        // An unwritable folder shows now, not at the first client.
        disk(&path, &counts.sealed(&path)?)?;
        Ok(ClientCounts {
            limits: Limits { texts: limits.texts, bits: limits.bits },
            batches: Batches::new(counts, path, disk),
            _lock: lock,
        })
    }

    /// The limit on texts.
    pub(crate) fn texts(&self) -> Option<Rate> {
        self.limits.texts
    }

    /// Whether bits are counted.
    pub(crate) fn limits_bits(&self) -> bool {
        self.limits.bits.is_some()
    }

    /// Counts what is about to run; the count is on disk on return. Otherwise says why it may not run.
    pub(crate) fn count(&self, owner: &Owner, charge: Charge) -> Result<(), Refusal> {
        self.count_at(owner, charge, now())
    }

    /// Says why this may not run now, and counts nothing.
    pub(crate) fn ask(&self, owner: &Owner, charge: Charge) -> Result<(), Refusal> {
        self.limits.above(charge)?;
        let state = self.batches.lock();
        state.counts.wait(self.limits, owner, charge, now())
    }

    fn count_at(&self, owner: &Owner, charge: Charge, now: u64) -> Result<(), Refusal> {
        let limits = self.limits;
        limits.above(charge)?;
        let mut state = self.batches.lock();
        if state.counts.expire(limits, now) {
            // Saved even if the texts are refused, or their wait would start over each time; a full disk only makes it
            // longer.
            self.batches.save(state, None).unwrap_or_default();
            state = self.batches.lock();
        }
        state.counts.wait(limits, owner, charge, now)?;
        let added = Added::new(limits, owner, charge, now);
        if !state.counts.add(&added) {
            tracing::error!("more clients than can be counted: none that is new is served");
            return Err(Refusal::Uncounted);
        }
        self.batches.save(state, Some(added)).map_err(|_| Refusal::Uncounted)
    }
}

/// What was added for a pass, to take it back if it could not be recorded.
struct Added {
    owner: String,
    /// The end of the part, and how many.
    texts: Option<(u64, u64)>,
    bits: Option<(u64, u64)>,
}

impl Added {
    fn new(limits: Limits, owner: &Owner, charge: Charge, now: u64) -> Added {
        let part = |rate: Option<Rate>, amount| {
            let rate = rate.filter(|_| amount > 0)?;
            Some((rate.end(now), amount))
        };
        Added {
            owner: owner.name().to_owned(),
            texts: part(limits.texts, charge.texts),
            bits: part(limits.bits, charge.bits),
        }
    }
}

impl Limits {
    /// Refuses more at once than a client may ever have.
    fn above(self, charge: Charge) -> Result<(), Refusal> {
        let limit = |rate: Rate| u32::try_from(rate.amount).unwrap_or(u32::MAX);
        match (self.texts, self.bits) {
            (Some(rate), _) if charge.texts > rate.amount => Err(Refusal::AboveAllowance { limit: limit(rate) }),
            (_, Some(rate)) if charge.bits > rate.amount => Err(Refusal::AboveOpenedBits { limit: limit(rate) }),
            _ => Ok(()),
        }
    }
}

impl Rate {
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

    /// The parts that count now: until when, and how many.
    fn counting(self, parts: &[Part], now: u64) -> impl Iterator<Item = (u64, u64)> {
        parts.iter().map(move |part| (self.until(part, now), part.amount)).filter(move |(until, _)| *until > now)
    }

    /// How many count now.
    fn had(self, parts: &[Part], now: u64) -> u64 {
        self.counting(parts, now).fold(0, |sum, (_, amount)| sum.saturating_add(amount))
    }

    /// Seconds until this many more may run; `None` if they may now.
    fn wait(self, parts: &[Part], amount: u64, now: u64) -> Option<u32> {
        let mut counting: Vec<(u64, u64)> = self.counting(parts, now).collect();
        counting.sort_unstable();
        let all = self.had(parts, now).saturating_add(amount);
        let mut over = all.saturating_sub(self.amount);
        let mut wait = None;
        for (until, amount) in counting {
            if over == 0 {
                break;
            }
            over = over.saturating_sub(amount);
            wait = Some(until - now);
        }
        wait.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX).max(1))
    }
}

/// Adds to the part that ends at `end`. Beyond [`MOST_PARTS`], which takes a clock that was wrong more than once,
/// the last two parts are merged: they count as the later one, from when it is next seen.
fn add(parts: &mut Vec<Part>, end: u64, amount: u64) {
    match parts.iter_mut().find(|part| part.end == end) {
        Some(part) => part.amount = part.amount.saturating_add(amount),
        None => parts.push(Part { end, amount, seen: None }),
    }
    parts.sort_by_key(|part| part.end);
    while parts.len() > MOST_PARTS {
        let Some(last) = parts.pop() else { break };
        if let Some(part) = parts.last_mut() {
            *part = Part { end: last.end, amount: part.amount.saturating_add(last.amount), seen: None };
        }
    }
}

/// Takes back what was added to the part that ends at `end`. A part that was merged with another since keeps it: that
/// is too much, never too little.
fn take_back(clients: &mut Clients, owner: &str, (end, amount): (u64, u64)) {
    if let Some(parts) = clients.get_mut(owner) {
        if let Some(part) = parts.iter_mut().find(|part| part.end == end) {
            part.amount = part.amount.saturating_sub(amount);
        }
        parts.retain(|part| part.amount > 0);
    }
}

/// Removes counts that have expired, and notes those in the future. Returns whether the notes changed.
fn expire(clients: &mut Clients, rate: Rate, now: u64) -> bool {
    let latest = rate.end(now);
    let mut changed = false;
    for parts in clients.values_mut() {
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
    clients.retain(|_, parts| !parts.is_empty());
    changed
}

impl Counts {
    /// Each kind of count with its limit. What has no limit stays as it is.
    fn limited(&mut self, limits: Limits) -> impl Iterator<Item = (Rate, &mut Clients)> {
        let kinds = [(limits.texts, &mut self.clients), (limits.bits, &mut self.bits)];
        kinds.into_iter().filter_map(|(rate, clients)| Some((rate?, clients)))
    }

    fn expire(&mut self, limits: Limits, now: u64) -> bool {
        let kinds = self.limited(limits);
        kinds.fold(false, |changed, (rate, clients)| expire(clients, rate, now) | changed)
    }

    /// Why this may not run now, if it may not: the longer of the waits.
    fn wait(&self, limits: Limits, owner: &Owner, charge: Charge, now: u64) -> Result<(), Refusal> {
        let wait = |rate: Option<Rate>, clients: &Clients, amount| {
            let parts = clients.get(owner.name())?;
            rate?.wait(parts, amount, now)
        };
        let texts = wait(limits.texts, &self.clients, charge.texts);
        let bits = wait(limits.bits, &self.bits, charge.bits);
        match texts.max(bits) {
            Some(seconds) => Err(Refusal::Allowance { seconds }),
            None => Ok(()),
        }
    }

    /// Adds a pass; false if it is of a new client, and there are too many.
    fn add(&mut self, added: &Added) -> bool {
        let kinds = [(added.texts, &mut self.clients), (added.bits, &mut self.bits)];
        let full = |clients: &Clients| clients.len() >= MOST_CLIENTS && !clients.contains_key(&added.owner);
        if kinds.iter().any(|(part, clients)| part.is_some() && full(clients)) {
            return false;
        }
        for (part, clients) in kinds {
            if let Some((end, amount)) = part {
                add(clients.entry(added.owner.clone()).or_default(), end, amount);
            }
        }
        true
    }

    fn sha256(&self) -> Result<String, serde_json::Error> {
        Ok(sha256(&serde_json::to_vec(self)?))
    }
}

impl Ledger for Counts {
    type Added = Added;

    fn sealed(&self, path: &Path) -> Result<Vec<u8>, ServeError> {
        let counts = serde_json::to_vec(self).map_err(|source| ServeError::File {
            operation: "write",
            path: path.to_owned(),
            source: io::Error::from(source),
        })?;
        // As `Sealed` is read, without serialising the counts twice.
        let mut bytes = format!(r#"{{"sha256":"{}","counts":"#, sha256(&counts)).into_bytes();
        bytes.extend_from_slice(&counts);
        bytes.extend_from_slice(b"}\n");
        Ok(bytes)
    }

    fn take_back(&mut self, added: &Added) {
        if let Some(part) = added.texts {
            take_back(&mut self.clients, &added.owner, part);
        }
        if let Some(part) = added.bits {
            take_back(&mut self.bits, &added.owner, part);
        }
    }
}

fn sha256(bytes: &[u8]) -> String {
    Digest(Sha256::digest(bytes).into()).to_string()
}

fn fault(path: &Path, fault: CountsFault) -> ServeError {
    ServeError::Counts { path: path.to_owned(), fault }
}

fn lock(path: &Path) -> Result<File, ServeError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".lock");
    let place = path.with_file_name(name);
    let file = File::create(&place).map_err(|source| ServeError::File { operation: "lock", path: place, source })?;
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
    for clients in [&mut counts.clients, &mut counts.bits] {
        for parts in clients.values_mut() {
            parts.sort_by_key(|part| part.end);
        }
    }
    Ok(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(n: u8) -> Owner {
        Owner::of(None, Some(Digest([n; 32])))
    }

    fn limits(folder: &Path, texts: &str, bits: Option<&str>) -> ClientLimits {
        ClientLimits {
            texts: Some(texts.parse().unwrap()),
            bits: bits.map(|rate| rate.parse().unwrap()),
            file: folder.join("state/texts.json"),
        }
    }

    fn counts(folder: &Path, rate: &str) -> Result<ClientCounts, ServeError> {
        ClientCounts::open(&limits(folder, rate, None))
    }

    fn texts(texts: usize) -> Charge {
        Charge { texts: texts as u64, bits: 0 }
    }

    #[test]
    fn rates_are_numbers_and_windows() {
        for good in ["1000/DAY", "3/MINUTE", "4/HOUR", "5/WEEK"] {
            assert_eq!(good.parse::<Rate>().unwrap().to_string(), good);
        }
        assert_eq!(" 7 / day".parse::<Rate>().unwrap().to_string(), "7/DAY");
        for wrong in ["", "5", "/DAY", "5/", "5/YEAR", "0/DAY", "-1/DAY", "5/DAY/2"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
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
            let some = (step % 9) as usize;
            match counts.count_at(&ann, texts(some), now) {
                Ok(()) => served.push((now, some)),
                Err(Refusal::Allowance { seconds }) => {
                    // The wait that the client was told is enough, and not much too long.
                    let again = now + u64::from(seconds);
                    assert!(seconds <= 86_400 + 3600 && counts.count_at(&ann, texts(some), again - 1).is_err());
                    now = again;
                    counts.count_at(&ann, texts(some), now).unwrap();
                    served.push((now, some));
                }
                Err(other) => panic!("{other}"),
            }
            now += step % 3600;
        }
        for (from, _) in &served {
            let window = served.iter().filter(|(at, _)| (*from..from + 86_400).contains(at));
            let texts: usize = window.map(|(_, texts)| texts).sum();
            assert!(texts <= 100, "{texts}");
        }
        let all: usize = served.iter().map(|(_, texts)| texts).sum();
        assert!(all > 250, "{all}");
        // Another client has its own count, and nobody gets more at once than the limit.
        counts.count_at(&bob, texts(100), now).unwrap();
        let above = Refusal::AboveAllowance { limit: 100 };
        assert_eq!(counts.count_at(&bob, texts(101), now), Err(above));
    }

    #[test]
    fn what_is_left_grows_as_the_window_moves() {
        let folder = tempfile::tempdir().unwrap();
        let counts = counts(folder.path(), "100/DAY").unwrap();
        let (ann, began) = (owner(1), 20_000 * 86_400);
        counts.count_at(&ann, texts(30), began).unwrap();
        counts.count_at(&ann, texts(20), began + 7200).unwrap();
        let left = |now| counts.batches.lock().counts.left(counts.limits, now).texts.get(ann.name()).copied();
        // A part counts for a day from its end.
        assert_eq!((left(began + 7200), left(began + 86_400 + 3599)), (Some(50), Some(50)));
        assert_eq!((left(began + 86_400 + 3600), left(began + 3 * 86_400)), (Some(80), Some(100)));
    }

    #[test]
    fn f8_a_clock_that_is_put_back_does_not_lock_out_for_longer_than_a_window() {
        let folder = tempfile::tempdir().unwrap();
        let counts = counts(folder.path(), "1/HOUR").unwrap();
        counts.count_at(&owner(1), texts(1), 4_000_000_000).unwrap();
        let told = counts.count_at(&owner(1), texts(1), 1_800_000_000);
        assert!(matches!(told, Err(Refusal::Allowance { seconds }) if seconds <= 3600 + 150));
        // The wait holds although nothing was served and recorded meanwhile, and it does not start over.
        let again = 1_800_000_000 + 3600 + 150;
        counts.count_at(&owner(1), texts(1), again).unwrap();
        assert!(counts.count_at(&owner(1), texts(1), again).is_err());
        counts.count_at(&owner(1), texts(1), again + 3600 + 150).unwrap();
    }

    #[test]
    fn f8_a_clock_that_is_put_back_and_corrected_forgets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let first = counts(folder.path(), "100/DAY").unwrap();
        let (ann, bob) = (owner(1), owner(2));
        first.count_at(&ann, texts(100), 1_800_000_000).unwrap();
        // Years back; another client's texts are recorded then.
        first.count_at(&bob, texts(1), 1_700_000_000).unwrap();
        assert!(first.count_at(&ann, texts(1), 1_700_000_000).is_err());
        drop(first);
        let counts = counts(folder.path(), "100/DAY").unwrap();
        let corrected = counts.count_at(&ann, texts(1), 1_800_000_060);
        assert!(matches!(corrected, Err(Refusal::Allowance { seconds }) if seconds > 86_000));
        // Nor does it forget if this happens again, for longer than a window.
        for now in [1_700_000_000, 1_700_000_000 + 2 * 86_400] {
            counts.count_at(&bob, texts(1), now).unwrap();
        }
        assert!(counts.count_at(&ann, texts(1), 1_800_000_120).is_err());
        counts.count_at(&ann, texts(100), 1_800_000_000 + 86_400 + 3600).unwrap();
    }

    #[test]
    fn f8_a_clock_that_goes_astray_often_fills_no_file_and_forgets_nothing() {
        let mut parts = Vec::new();
        (0..1000).for_each(|n| add(&mut parts, 1_000_000 - 7 * n, 1));
        assert_eq!(parts.len(), MOST_PARTS);
        let texts: u64 = parts.iter().map(|part| part.amount).sum();
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
        first.count_at(&owner(1), texts(2), 1_800_000_000).unwrap();
        // One server at a time.
        assert!(damaged(counts(folder, "3/DAY").err().unwrap()).contains("another server"));
        // No room: as if the disk were full.
        std::fs::rename(folder.join("state"), folder.join("away")).unwrap();
        let refused = first.count_at(&owner(1), texts(1), 1_800_000_000);
        assert_eq!(refused, Err(Refusal::Uncounted));
        std::fs::rename(folder.join("away"), folder.join("state")).unwrap();
        // It was not counted, so there is one left.
        first.count_at(&owner(1), texts(1), 1_800_000_000).unwrap();
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
        assert!(again.count_at(&owner(1), texts(1), 1_800_000_000).is_err());
    }

    #[test]
    fn bits_are_counted_beside_texts_each_in_its_own_window() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let open = || ClientCounts::open(&limits(folder, "10/HOUR", Some("100/DAY"))).unwrap();
        let (ann, now) = (owner(1), 20_000 * 86_400);
        let charge = |texts, bits| Charge { texts, bits };
        let first = open();
        first.count_at(&ann, charge(1, 60), now).unwrap();
        // Above one limit: counted against neither.
        let wait = first.count_at(&ann, charge(1, 41), now);
        assert!(matches!(wait, Err(Refusal::Allowance { seconds }) if seconds > 80_000));
        let wait = first.count_at(&ann, charge(10, 1), now);
        assert!(matches!(wait, Err(Refusal::Allowance { seconds }) if seconds < 4_000));
        let above = Refusal::AboveOpenedBits { limit: 100 };
        assert_eq!(first.count_at(&ann, charge(1, 101), now), Err(above));
        first.count_at(&ann, charge(9, 40), now).unwrap();
        drop(first);
        let again = open();
        assert!(again.count_at(&ann, charge(0, 1), now).is_err());
        // The texts are new after an hour, the bits are not.
        let later = now + 2 * 3600;
        again.count_at(&ann, charge(10, 0), later).unwrap();
        assert!(again.count_at(&ann, charge(0, 1), later).is_err());
    }

    /// The texts of all clients in the file.
    fn on_disk(path: &Path) -> u64 {
        let counts = read(path).unwrap();
        let parts = counts.clients.values().flatten();
        parts.map(|part| part.amount).sum()
    }

    #[test]
    fn l4_what_comes_during_a_write_shares_the_next() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::sync::{Arc, mpsc};
        let folder = tempfile::tempdir().unwrap();
        let limits = limits(folder.path(), "100/DAY", None);
        let writes = Arc::new(AtomicUsize::new(0));
        let (begun, began) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let released = std::sync::Mutex::new(released);
        let disk: Disk = Box::new({
            let writes = Arc::clone(&writes);
            move |path, bytes| {
                // The first is that of `open`, the second one is held up.
                if writes.fetch_add(1, Ordering::SeqCst) == 1 {
                    begun.send(()).unwrap();
                    released.lock().unwrap().recv().unwrap();
                }
                files::write(path, bytes)
            }
        });
        let counts = ClientCounts::on(&limits, disk).unwrap();
        std::thread::scope(|scope| {
            let count = |n| counts.count(&owner(n), texts(1)).unwrap();
            scope.spawn(move || count(0));
            began.recv().unwrap();
            (1..8).for_each(|n| drop(scope.spawn(move || count(n))));
            while counts.batches.lock().waiting() < 7 {
                std::thread::yield_now();
            }
            release.send(()).unwrap();
        });
        assert_eq!(writes.load(Ordering::SeqCst), 3);
        assert_eq!(on_disk(&limits.file), 8);
    }

    /// The file is read whenever a crash could leave it behind, among writes that fail: no text that was allowed is
    /// missing, and none that was not has been counted in the end.
    #[test]
    fn l4_a_crash_never_counts_too_few() {
        use std::sync::atomic::{AtomicU64, Ordering};
        let folder = tempfile::tempdir().unwrap();
        let limits = limits(folder.path(), "100000/DAY", None);
        let calls = AtomicU64::new(0);
        let disk: Disk = Box::new(move |path, bytes| match calls.fetch_add(1, Ordering::SeqCst) % 5 {
            4 => files::write(Path::new("/nonexistent/file"), bytes),
            _ => files::write(path, bytes),
        });
        let counts = ClientCounts::on(&limits, disk).unwrap();
        let (allowed, refused) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for n in 0..4 {
                let (counts, allowed, refused) = (&counts, &allowed, &refused);
                let file = &limits.file;
                scope.spawn(move || {
                    for _ in 0..40 {
                        match counts.count(&owner(n), texts(1)) {
                            Ok(()) => {
                                let so_far = allowed.fetch_add(1, Ordering::SeqCst) + 1;
                                assert!(on_disk(file) >= so_far);
                            }
                            Err(Refusal::Uncounted) => _ = refused.fetch_add(1, Ordering::SeqCst),
                            Err(other) => panic!("{other}"),
                        }
                    }
                });
            }
        });
        let (allowed, refused) = (allowed.into_inner(), refused.into_inner());
        assert!(allowed > 0 && refused > 0 && allowed + refused == 160);
        // What was taken back is not in the next write.
        while counts.count(&owner(9), texts(1)).is_err() {}
        assert_eq!(on_disk(&limits.file), allowed + 1);
    }
}
