//! Encrypted runs on a server over a connection.
//!
//! ```text
//! submit    manifest and public model (once, kept) → keys, if they are to be made → texts, encrypted and kept
//!           → the server gets what it lacks of keys and request, and queues the job
//! collect   waits, fetches the reply, decrypts it; a wrong canary retires the keys, and submit then refuses before it connects
//! ```
//!
//! Everything stays in the key folder until the answers have been read. If a connection breaks or the process ends, at
//! most the part in transit is lost; repeating the call continues. Nothing derived from a decrypted reply is sent.

use std::cell::Cell;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hushed_fhe::FhePlan;
use hushed_fhe::files::{atomic, exchange};
use hushed_fhe::plan::public_plan::{Lengths, MAX_PLAN_BYTES, Params};
use hushed_model::TooLong;
use hushed_net::NetError;

use super::aside::set_aside;
use super::held::{check_retired, forget_request, hold};
use super::keygen::{KeyOrder, KeygenOptions, keygen_held};
use super::link::{Link, not_as_offered};
use super::model::ClientModel;
use super::outbox::{Outbox, PendingRecord, name_of};
use super::score::{Item, Wanted, check_items};
use super::texts::{Answer, EncryptOptions, Encrypted, decrypt, encrypt};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::public::MAX_BYTES;
use crate::fhe::record::{KEYS, KeyRecord, PLAN, PUBLIC, RECORD};
use crate::fhe::wire::{Download, Failure, JobState, Upload, job_id};
use crate::fhe::{FheJobError, PublicModel, read_plan, system};
use crate::files::make_folder;
use crate::session::connect::ClientConfig;
use crate::session::wire::Refusal;

/// The first and the longest wait before retrying after a broken connection.
const AGAIN: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(30)];

/// Bytes of progress that a file must make for the server to count as reachable. A complete file needs fewer.
const LEAST_MOVE: u64 = 1 << 20;

/// How to reach a server, and what a client insists on.
pub struct RemoteOptions {
    /// The server. `bundle` and `cache_dir` have no meaning here.
    pub connection: ClientConfig,
    /// The folder of keys, which also keeps the manifest, the public model, and the batches that wait for an answer.
    pub keys: PathBuf,
    /// The only manifest to accept: a file from the server's operator. Without it, the first session's manifest is
    /// kept, and no other is accepted.
    pub plan: Option<PathBuf>,
    /// Its public model, if it should not be fetched.
    pub public: Option<PathBuf>,
    /// Makes keys if there are none.
    pub make_keys: Option<KeygenOptions>,
    /// Moves aside keys that a wrong canary has retired, so that new ones are made ([`RemoteOptions::make_keys`]). The
    /// server will see this, so a person has to decide it.
    pub replace_retired: bool,
    /// What to do with texts that are too long.
    pub too_long: TooLong,
    /// What the server may learn of lengths (`public`, `bucket`, `private`); a manifest that says otherwise is refused.
    pub lengths: Option<&'static str>,
    /// What is asked of a decoder; a manifest that answers with less is refused.
    pub wanted: Option<Wanted>,
    /// How long a server may be unreachable, once it has been reached.
    pub patience: Duration,
    /// Maximum time between two status queries for a job.
    pub most_wait: Duration,
}

impl RemoteOptions {
    /// The defaults: 10 minutes of patience, at most 15 seconds between two status queries.
    #[must_use]
    pub fn new(connection: ClientConfig, keys: impl Into<PathBuf>) -> RemoteOptions {
        RemoteOptions {
            connection,
            keys: keys.into(),
            plan: None,
            public: None,
            make_keys: None,
            replace_retired: false,
            too_long: TooLong::Refuse,
            lengths: None,
            wanted: None,
            patience: Duration::from_secs(600),
            most_wait: Duration::from_secs(15),
        }
    }
}

/// Progress of a call.
#[derive(Clone, Debug)]
pub enum RemoteEvent {
    /// The manifest in use.
    Plan {
        /// Its hash, which a client compares with the one that the server's operator published.
        hash: Digest,
        /// What the server learns of lengths.
        lengths: Lengths,
        /// Whether it has just been fetched; it is then kept.
        first: bool,
    },
    /// Retired keys, and what was encrypted for them, have been moved to this folder.
    SetAside(PathBuf),
    /// Keys are about to be made, as many as the manifest asks for.
    Ordered(KeyOrder),
    /// Keys made so far, and in all.
    Keys(usize, usize),
    /// Ciphertexts made so far, and in all.
    Encrypting(usize, usize),
    /// The texts are encrypted.
    Encrypted(Encrypted),
    /// The same texts are already waiting for their answer and are not encrypted again.
    Again,
    /// Bytes of a file that the server has, and in all.
    Sending {
        /// `keys` or `request`.
        what: &'static str,
        /// So far.
        done: u64,
        /// In all.
        of: u64,
    },
    /// The state of the job.
    Job(JobState),
    /// Bytes of the reply that are here, and in all.
    Fetching(u64, u64),
    /// The connection broke, for the reason of this name, and is being retried.
    Lost(&'static str),
}

/// The receiver of progress.
pub type OnEvent<'a> = &'a mut dyn FnMut(RemoteEvent);

/// A client of a server for encrypted runs.
pub struct Remote {
    options: RemoteOptions,
    outbox: Outbox,
    /// When an exchange with the server last made progress.
    contact: Cell<Option<Instant>>,
}

impl Remote {
    /// A client; nothing is connected yet.
    #[must_use]
    pub fn new(options: RemoteOptions) -> Remote {
        Remote { outbox: Outbox::of(&options.keys), options, contact: Cell::new(None) }
    }

    /// Fetches the manifest and the public model if they are not here yet, and checks that they are those that the
    /// server offers.
    ///
    /// # Errors
    /// [`FheJobError::PlanChanged`], [`FheJobError::OtherPublic`], [`FheJobError::OtherAnswer`],
    /// [`FheJobError::NotAsOffered`]; [`ServeError::OtherTokenizer`], [`ServeError::OtherTemplate`];
    /// [`ServeError::Net`] and similar.
    pub fn agree(&self, watch: OnEvent<'_>) -> Result<(), ServeError> {
        let mut link = Link::open(&self.options.connection)?;
        // A server that cannot be used leaves no folder behind.
        make_folder(&self.options.keys)?;
        let path = self.plan_path();
        let first = self.options.plan.is_none() && !path.exists();
        if first {
            self.fetch_plan(&mut link, &path)?;
        }
        let (plan, _) = self.plan()?;
        self.check_plan(&plan, &link)?;
        if let Some(wanted) = self.options.wanted {
            wanted.check(&plan)?;
        }
        let public = self.public_path();
        if self.options.public.is_none() && !public.exists() {
            self.fetch_public(&mut link, &plan, &public)?;
        }
        let public = PublicModel::read(&public, &plan.public_sha256)?;
        (self.options.connection.files).check(public.bundle())?;
        link.close()?;
        self.contact.set(Some(Instant::now()));
        watch(RemoteEvent::Plan { hash: Digest(plan.hash()), lengths: plan.lengths, first });
        Ok(())
    }

    /// Gets what a batch needs: manifest, public model, and keys, which are made if the options say so. With retired
    /// keys it does not even connect.
    ///
    /// # Errors
    /// As [`Remote::submit`].
    pub fn ready(&self, watch: OnEvent<'_>) -> Result<(), ServeError> {
        self.prepared(&|| Ok(()), watch).map(drop)
    }

    /// The manifest and public model, once [`Remote::agree`] has been called.
    ///
    /// # Errors
    /// As [`ClientModel::read`].
    pub fn model(&self) -> Result<ClientModel, ServeError> {
        ClientModel::read(&self.plan_path(), &self.public_path())
    }

    /// Encrypts texts or finds them encrypted, sends what the server lacks, has it queue the job, and returns its id.
    /// With retired keys it does not even connect: the server must not learn whether the client comes back.
    ///
    /// # Errors
    /// As [`Remote::agree`] and [`encrypt`]; [`FheJobError::RetiredKeys`], [`FheJobError::NoKeys`],
    /// [`FheJobError::KeysOfOtherPlan`]; [`ServeError::Refused`].
    pub fn submit(&self, texts: &[String], watch: OnEvent<'_>) -> Result<Digest, ServeError> {
        self.submit_after(texts, &|| Ok(()), watch)
    }

    /// [`Remote::submit`] for the texts of items ([`Item::texts`]), which must share their prompts.
    ///
    /// # Errors
    /// As [`Remote::submit`] and [`check_items`].
    pub fn submit_items(&self, items: &[Item], watch: OnEvent<'_>) -> Result<Digest, ServeError> {
        let check = || check_items(&self.plan_path(), &self.public_path(), items);
        self.submit_after(&Item::texts(items), &check, watch)
    }

    fn submit_after(
        &self,
        texts: &[String],
        check: &dyn Fn() -> Result<(), ServeError>,
        watch: OnEvent<'_>,
    ) -> Result<Digest, ServeError> {
        let record = self.prepared(check, watch)?;
        let (plan, _) = self.plan()?;
        let keys = Digest(record.hash());
        let (job, pending) = self.encrypted(&plan, &keys, texts, watch)?;
        let Ok(request) = pending.request.parse::<Digest>() else {
            return Err(FheJobError::NoSuchJob { id: pending.request, path: self.options.keys.clone() }.into());
        };
        let mut furthest = [None; 2];
        let state = self.with_link(&plan, watch, |link, watch| {
            let state = link.status(job)?;
            if !matches!(state, JobState::Unknown | JobState::Failed(_)) {
                return Ok(state);
            }
            let files = [
                ("keys", Upload::Keys(keys), self.options.keys.join(KEYS)),
                ("request", Upload::Request(request), self.outbox.request(&job)),
            ];
            for ((what, file, path), furthest) in files.into_iter().zip(&mut furthest) {
                link.send(file, &path, &mut |done, of| {
                    self.moved(furthest, done, of);
                    watch(RemoteEvent::Sending { what, done, of });
                })?;
            }
            link.submit(keys, request)
        })?;
        watch(RemoteEvent::Job(state));
        Ok(job)
    }

    /// Prepares a batch; `check` is called once manifest and public model are here.
    fn prepared(
        &self,
        check: &dyn Fn() -> Result<(), ServeError>,
        watch: OnEvent<'_>,
    ) -> Result<KeyRecord, ServeError> {
        if self.options.replace_retired
            && let Some(aside) = set_aside(&self.options.keys)?
        {
            watch(RemoteEvent::SetAside(aside));
        }
        check_retired(&self.options.keys)?;
        self.agree(watch)?;
        check()?;
        self.keys(watch)
    }

    /// Finds a job by its id, or by at least the first eight digits.
    ///
    /// # Errors
    /// [`FheJobError::NoSuchJob`] if none was sent with these keys, or its answers have been read.
    pub fn find(&self, id: &str) -> Result<Digest, ServeError> {
        self.outbox.named(id, &self.options.keys)
    }

    /// Queries the state of a job once. If its reply is already here, the server is not asked: the reply may have been
    /// decrypted, and asking then would tell the server something about it.
    ///
    /// # Errors
    /// [`FheJobError::PlanChanged`]; [`ServeError::Net`] and similar.
    pub fn status(&self, job: &Digest) -> Result<JobState, ServeError> {
        let (plan, params) = self.plan()?;
        let bytes = exchange::reply_bytes(&plan, &params);
        match self.has_reply(job, bytes) {
            true => Ok(JobState::Done { bytes }),
            false => self.with_link(&plan, &mut |_| (), |link, _| link.status(*job)),
        }
    }

    fn has_reply(&self, job: &Digest, bytes: u64) -> bool {
        let there = fs::metadata(self.outbox.reply(job));
        there.is_ok_and(|metadata| metadata.len() == bytes)
    }

    /// Waits for a job, fetches its reply and decrypts it. After that, whatever the outcome, the same texts are another
    /// job; this one can be decrypted again from the local copy until it is deleted.
    ///
    /// # Errors
    /// [`FheJobError::JobFailed`], [`FheJobError::JobGone`], [`FheJobError::NotAsOffered`],
    /// [`FheJobError::OtherAnswer`]; [`ServeError::Net`] once the server has been out of reach for
    /// [`RemoteOptions::patience`]; those of [`decrypt`].
    pub fn collect(&self, job: &Digest, watch: OnEvent<'_>) -> Result<Answer, ServeError> {
        let (plan, params) = self.plan()?;
        // Before the decryption, which is counted.
        if let Some(wanted) = self.options.wanted {
            wanted.check(&plan)?;
        }
        let path = self.outbox.reply(job);
        let bytes = exchange::reply_bytes(&plan, &params);
        if !self.has_reply(job, bytes) {
            self.wait(&plan, job, bytes, watch)?;
            system::check_room(&self.options.keys, bytes)?;
            let mut furthest = None;
            self.with_link(&plan, watch, |link, watch| {
                link.receive(Download::Reply(*job), &path, bytes, &mut |done, of| {
                    self.moved(&mut furthest, done, of);
                    watch(RemoteEvent::Fetching(done, of));
                })
            })?;
        }
        // Before the secret key is used: from here on the same texts are another job, whatever the reply turns out to
        // be, and even if this process ends here. Otherwise asking about the old job again, or not, would tell the
        // server something of the decrypted reply.
        self.outbox.retire(job)?;
        let public = self.public_path();
        let opened = decrypt(&self.plan_path(), &public, &self.options.keys, &path);
        let useless = ["file-damaged", "other-file", "keys-incomplete", "unknown-request"];
        if let Err(ServeError::Fhe(error)) = &opened
            && useless.contains(&error.name())
        {
            // The reply is unusable, which showed before it was decrypted: the next call fetches it again.
            let _ = fs::remove_file(&path);
            self.outbox.restore(job)?;
        } else {
            self.outbox.drop_retired(job)?;
        }
        opened
    }

    /// Forgets a job whose answers have been read, and the record of its request.
    pub fn forget(&self, job: &Digest) -> Result<(), ServeError> {
        if let Some(content) = self.outbox.content(job)? {
            forget_request(&self.options.keys, &content)?;
        }
        self.outbox.forget(job)
    }

    fn plan_path(&self) -> PathBuf {
        let kept = || self.options.keys.join(PLAN);
        self.options.plan.clone().unwrap_or_else(kept)
    }

    fn public_path(&self) -> PathBuf {
        let kept = || self.options.keys.join(PUBLIC);
        self.options.public.clone().unwrap_or_else(kept)
    }

    fn plan(&self) -> Result<(FhePlan, Params), ServeError> {
        read_plan(&self.plan_path())
    }

    fn check_plan(&self, plan: &FhePlan, link: &Link<'_>) -> Result<(), ServeError> {
        let ours = Digest(plan.hash());
        if ours == link.welcome.plan {
            return Ok(());
        }
        Err(FheJobError::PlanChanged { path: self.plan_path(), ours, offered: link.welcome.plan }.into())
    }

    fn fetch_plan(&self, link: &mut Link<'_>, path: &Path) -> Result<(), ServeError> {
        let bytes = u64::from(link.welcome.plan_bytes);
        if bytes > MAX_PLAN_BYTES as u64 {
            return Err(not_as_offered(Download::Plan));
        }
        let part = part_of(path);
        let _ = fs::remove_file(&part);
        link.receive(Download::Plan, &part, bytes, &mut |_, _| {})?;
        let read = read_plan(&part);
        match read {
            Ok((plan, _)) if Digest(plan.hash()) == link.welcome.plan => rename(&part, path),
            read => {
                let _ = fs::remove_file(&part);
                read.and(Err(not_as_offered(Download::Plan)))
            }
        }
    }

    fn fetch_public(&self, link: &mut Link<'_>, plan: &FhePlan, path: &Path) -> Result<(), ServeError> {
        let bytes = link.welcome.public_bytes;
        if bytes > MAX_BYTES || link.welcome.public.to_string() != plan.public_sha256 {
            return Err(not_as_offered(Download::Public));
        }
        system::check_room(&self.options.keys, bytes)?;
        // What an earlier session left should be its beginning; if not, the check of the whole file shows it.
        let part = part_of(path);
        link.receive(Download::Public, &part, bytes, &mut |_, _| {})?;
        match PublicModel::read(&part, &plan.public_sha256) {
            Ok(_) => rename(&part, path),
            Err(_) => {
                let _ = fs::remove_file(&part);
                Err(not_as_offered(Download::Public))
            }
        }
    }

    /// The keys of the folder, made now for its manifest if there are none and the options allow it.
    fn keys(&self, watch: OnEvent<'_>) -> Result<KeyRecord, ServeError> {
        let folder = &self.options.keys;
        if !folder.join(RECORD).is_file() {
            let Some(options) = self.options.make_keys else {
                return Err(FheJobError::NoKeys { path: folder.clone(), plan: self.plan_path() }.into());
            };
            let held = hold(folder)?;
            if !folder.join(RECORD).is_file() {
                watch(RemoteEvent::Ordered(KeyOrder::read(&self.plan_path())?));
                let mut made = |done, of| watch(RemoteEvent::Keys(done, of));
                return keygen_held(&self.plan_path(), folder, options, &held, &mut made);
            }
        }
        let record = KeyRecord::read(folder)?;
        record.check_time()?;
        Ok(record)
    }

    /// The job of these texts: the pending one, or a new one.
    fn encrypted(
        &self,
        plan: &FhePlan,
        keys: &Digest,
        texts: &[String],
        watch: OnEvent<'_>,
    ) -> Result<(Digest, PendingRecord), ServeError> {
        self.outbox.make()?;
        // A second process with the same texts finds what the first has encrypted.
        let held = hold(self.outbox.folder())?;
        let name = name_of(texts, self.options.too_long != TooLong::Refuse);
        if let Some(found) = self.outbox.find(&name, keys)? {
            watch(RemoteEvent::Again);
            return Ok(found);
        }
        let draft = self.outbox.draft();
        let _ = fs::remove_file(&draft);
        atomic::clear_drafts(&draft);
        let encrypted = encrypt(
            &EncryptOptions {
                plan: &self.plan_path(),
                public: &self.public_path(),
                keys: &self.options.keys,
                texts,
                too_long: self.options.too_long,
                lengths: self.options.lengths,
                out: &draft,
            },
            &mut |done, of| watch(RemoteEvent::Encrypting(done, of)),
        )?;
        let request = encrypted.content;
        let job = job_id(&Digest(plan.hash()), keys, &request);
        let record = PendingRecord::new(&job, keys, &request, &name);
        self.outbox.keep(&job, &record)?;
        drop(held);
        watch(RemoteEvent::Encrypted(encrypted));
        Ok((job, record))
    }

    /// Waits until a job is done.
    fn wait(&self, plan: &FhePlan, job: &Digest, bytes: u64, watch: OnEvent<'_>) -> Result<(), ServeError> {
        loop {
            // One session per query: a server has few, and a run takes hours.
            let state = self.with_link(plan, watch, |link, _| link.status(*job))?;
            watch(RemoteEvent::Job(state));
            let left = match state {
                JobState::Done { bytes: offered } if offered == bytes => return Ok(()),
                JobState::Done { .. } => return Err(not_as_offered(Download::Reply(*job))),
                JobState::Unknown => return Err(FheJobError::JobGone { id: *job }.into()),
                JobState::Failed(failure) => {
                    if failure == Failure::Request {
                        self.outbox.forget(job)?;
                    }
                    let id = *job;
                    return Err(FheJobError::JobFailed { id, failure }.into());
                }
                JobState::Queued { left, .. } | JobState::Running { left, .. } => left,
            };
            let wait = Duration::from_secs(u64::from(left) / 50).max(Duration::from_secs(1));
            std::thread::sleep(wait.min(self.options.most_wait));
        }
    }

    /// Records progress if a file is further along than ever before in this call.
    fn moved(&self, furthest: &mut Option<u64>, done: u64, of: u64) {
        if is_further(furthest, done, of) {
            self.contact.set(Some(Instant::now()));
        }
    }

    /// Runs `act` in a session with the server of this manifest, and again in a new one while connections break and
    /// patience lasts.
    fn with_link<T>(
        &self,
        plan: &FhePlan,
        watch: OnEvent<'_>,
        mut act: impl FnMut(&mut Link<'_>, OnEvent<'_>) -> Result<T, ServeError>,
    ) -> Result<T, ServeError> {
        let [mut pause, most] = AGAIN;
        loop {
            let before = self.contact.get();
            let done = Link::open(&self.options.connection).and_then(|mut link| {
                self.check_plan(plan, &link)?;
                let done = act(&mut link, watch)?;
                self.contact.set(Some(Instant::now()));
                // The result is here, however the session ends.
                let _ = link.close();
                Ok(done)
            });
            let contact = self.contact.get();
            match done {
                Err(error) if passes(&error) && contact.is_some_and(|then| then.elapsed() < self.options.patience) => {
                    watch(RemoteEvent::Lost(error.name()));
                    if before != contact {
                        pause = AGAIN[0];
                    }
                    std::thread::sleep(pause);
                    pause = (2 * pause).min(most);
                }
                done => return done,
            }
        }
    }
}

/// Whether this is far enough to count as progress: a server that keeps saying that it has nothing, or one byte more,
/// cannot make a client send the same part for ever.
fn is_further(furthest: &mut Option<u64>, done: u64, of: u64) -> bool {
    let further = match *furthest {
        None => true,
        Some(most) => done > most && (done - most >= LEAST_MOVE || done == of),
    };
    if further {
        *furthest = Some(done);
    }
    further
}

/// Whether the same call may succeed a little later.
fn passes(error: &ServeError) -> bool {
    matches!(
        error,
        ServeError::Net(
            NetError::Timeout { .. }
                | NetError::OutOfTime
                | NetError::PeerGone
                | NetError::PeerAborted { .. }
                | NetError::Connect { .. }
                | NetError::Io { .. }
        ) | ServeError::Refused(
            Refusal::TooManySessions { .. } | Refusal::Stopping | Refusal::Busy | Refusal::WrongOffset
        )
    )
}

fn part_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".part");
    PathBuf::from(name)
}

fn rename(from: &Path, to: &Path) -> Result<(), ServeError> {
    fs::rename(from, to).map_err(|source| ServeError::File { operation: "write", path: to.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_further_counts() {
        let mut furthest = None;
        let all = 10 * LEAST_MOVE + 5;
        let told = [0, 0, 1, LEAST_MOVE, LEAST_MOVE, 0, 10 * LEAST_MOVE, all, all];
        let counts = told.map(|done| is_further(&mut furthest, done, all));
        let expected = [true, false, false, true, false, false, true, true, false];
        assert_eq!(counts, expected);
    }
}
