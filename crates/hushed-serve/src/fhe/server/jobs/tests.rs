//! The queue on disk; and workers in processes of their own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::{Jobs, Runs};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::offered::{Offered, assert_close, texts};
use crate::fhe::server::storage::{Limits, Storage};
use crate::fhe::server::{FheWorker, FheWorkerConfig};
use crate::fhe::wire::{Failure, JobState, Upload, job_id};
use crate::fhe::{self, RunContext, read_plan};
use crate::session::owner::Owner;
use crate::session::token::Token;
use crate::session::wire::Refusal;

fn open(offered: &Offered, work: &Path) -> Result<Jobs, ServeError> {
    let (plan, params) = read_plan(&offered.plan()).unwrap();
    let limits = Limits { quota: 1 << 30, keep: Duration::from_secs(3600) };
    let context = RunContext::load(&offered.options(work).context)?;
    let storage = Storage::open(&work.join("store"), plan, params, limits).unwrap();
    Jobs::open(storage, context, Arc::default(), Runs::default())
}

/// A counter that counts nothing.
fn free() -> Result<(), Refusal> {
    Ok(())
}

fn put(jobs: &Jobs, owner: &Owner, file: Upload, path: &Path) {
    let bytes = fs::read(path).unwrap();
    let length = u32::try_from(bytes.len()).unwrap();
    let mut part = jobs.storage().part(owner, file, 0, length).unwrap();
    part.write(&bytes).unwrap();
    assert_eq!(part.end().unwrap(), u64::from(length));
}

/// Encrypts a batch and uploads it to the server.
fn request(offered: &Offered, jobs: &Jobs, owner: &Owner, work: &Path) -> Digest {
    let path = work.join("request");
    let _ = fs::remove_file(&path);
    let name = offered.encrypt(work, &texts()[..1]).unwrap().content;
    put(jobs, owner, Upload::Request(name), &path);
    name
}

#[test]
fn jobs_wait_in_the_order_in_which_they_came_and_not_too_many_of_an_owner() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let keys = Digest(offered.keygen(&work.join("keys")).unwrap().hash());
    let (anyone, ann) = (Owner::of(None, None), Owner::of(Token::from_bytes(b"the-token-of-ann").as_ref(), None));
    assert!(anyone != ann && !ann.name().contains("ann"));
    // A certificate tells clients apart if there are no tokens.
    let [one, two] = [1, 2].map(|n| Owner::of(None, Some(Digest([n; 32]))));
    assert!(one != two && one != anyone);
    let token = Token::from_bytes(b"the-token-of-ann");
    assert_eq!(Owner::of(token.as_ref(), Some(Digest([1; 32]))), ann);
    let jobs = open(offered, work).unwrap();
    let path = work.join("keys/evaluation.keys");
    put(&jobs, &anyone, Upload::Keys(keys), &path);
    let (plan, _) = read_plan(&offered.plan()).unwrap();
    let id = |request: &Digest| job_id(&Digest(plan.hash()), &keys, request);
    let waits = |ahead| JobState::Queued { ahead, left: 0 };

    let mut requests = Vec::new();
    for place in 0..8 {
        let name = request(offered, &jobs, &anyone, work);
        assert_eq!(jobs.submit(&anyone, keys, name, &free), Ok(waits(place)));
        requests.push(name);
    }
    // Submitted again it keeps its place; one more is too many; to another client it does not exist.
    assert_eq!(jobs.submit(&anyone, keys, requests[2], &free), Ok(waits(2)));
    let more = request(offered, &jobs, &anyone, work);
    let full = Refusal::QueueFull { limit: 8 };
    assert_eq!(jobs.submit(&anyone, keys, more, &free), Err(full));
    assert_eq!(jobs.status(&ann, &id(&requests[0])), JobState::Unknown);
    assert_eq!(jobs.submit(&ann, keys, requests[0], &free), Err(Refusal::NotThere));
    assert_eq!(jobs.reply(&anyone, &id(&requests[0])), Err(Refusal::NoReply));

    // However the server ended, they wait as before.
    drop(jobs);
    let jobs = open(offered, work).unwrap();
    assert_eq!(jobs.under_way(), 8);
    for (place, request) in requests.iter().enumerate() {
        assert_eq!(jobs.status(&anyone, &id(request)), waits(place as u32));
    }
    drop(jobs);
    let folder = work.join("store/owners/anyone/jobs");
    let record = folder.join(id(&requests[0]).to_string()).join("job.json");
    let good = fs::read_to_string(&record).unwrap();
    // Only a job is taken for a job.
    fs::create_dir(folder.join("other")).unwrap();
    fs::write(folder.join("file"), b"").unwrap();
    // The server exited three times during the first job, and the keys of the others are gone.
    fs::write(&record, good.replace("\"attempts\": 0", "\"attempts\": 3")).unwrap();
    let jobs = open(offered, work).unwrap();
    let stored = work.join(format!("store/owners/anyone/keys/{keys}/evaluation.keys"));
    fs::remove_file(&stored).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| jobs.work());
        while jobs.under_way() > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        jobs.stop();
    });
    let failed = |request| jobs.status(&anyone, &id(request));
    assert_eq!(failed(&requests[0]), JobState::Failed(Failure::Crashed));
    for request in &requests[1..] {
        assert_eq!(failed(request), JobState::Failed(Failure::Keys));
    }
    // A failed job may be started again, once what it needs is there.
    put(&jobs, &anyone, Upload::Keys(keys), &path);
    assert!(stored.is_file());
    assert_eq!(jobs.submit(&anyone, keys, requests[1], &free), Ok(waits(0)));
    drop(jobs);
    // A damaged record does not delay other jobs, and is written anew when its job is submitted.
    fs::write(&record, "{}").unwrap();
    let jobs = open(offered, work).unwrap();
    assert_eq!(jobs.under_way(), 1);
    let damaged = jobs.status(&anyone, &id(&requests[0]));
    assert_eq!(damaged, JobState::Unknown);
    assert_eq!(jobs.submit(&anyone, keys, requests[0], &free), Ok(waits(1)));
}

/// Set in a process that works: the folder with the store, the offered one, and the file of its plan.
const WORKER: [&str; 3] = ["HUSHED_TEST_WORKER", "HUSHED_TEST_WORKER_OFFERED", "HUSHED_TEST_WORKER_PLAN"];
const TAKEN_OVER: &str = "fhe::server::jobs::tests::the_job_of_a_killed_worker_is_finished_by_another";

fn worker(offered: &Offered, work: &Path) -> Result<FheWorker, ServeError> {
    let context = offered.options(work).context;
    FheWorker::open(&FheWorkerConfig { context, store: work.join("store"), until_empty: true })
}

/// A worker of the store in `work`, in another process.
fn spawned(offered: &Offered, work: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([TAKEN_OVER, "--exact", "--nocapture"]);
    let values = [work, &offered.folder, Path::new(offered.file)];
    command.envs(WORKER.into_iter().zip(values)).spawn().unwrap()
}

/// The process that has a lease, or had it.
fn holder(lease: &Path) -> Option<u32> {
    let told: serde_json::Value = serde_json::from_slice(&fs::read(lease).ok()?).ok()?;
    told["holder"].as_str()?.rsplit('-').nth(1)?.parse().ok()
}

/// Two processes work on one store; the one that runs the job is killed after its first layer.
#[test]
fn the_job_of_a_killed_worker_is_finished_by_another() {
    if let [Ok(work), Ok(folder), Ok(file)] = WORKER.map(std::env::var) {
        let offered = Offered { folder: folder.into(), file: file.leak() };
        worker(&offered, Path::new(&work)).unwrap().run(&AtomicBool::new(false)).unwrap();
        return;
    }
    let offered = Offered::one();
    let folder = tempfile::tempdir().unwrap();
    let work = folder.path();
    let refused = worker(offered, work).err().unwrap();
    assert!(matches!(refused, ServeError::Fhe(FheJobError::NoStore { .. })), "{refused}");
    let keys = Digest(offered.keygen(&work.join("keys")).unwrap().hash());
    let jobs = open(offered, work).unwrap();
    let anyone = Owner::of(None, None);
    put(&jobs, &anyone, Upload::Keys(keys), &work.join("keys/evaluation.keys"));
    let name = request(offered, &jobs, &anyone, work);
    jobs.submit(&anyone, keys, name, &free).unwrap();
    let (plan, _) = read_plan(&offered.plan()).unwrap();
    let id = job_id(&Digest(plan.hash()), &keys, &name);
    let job: PathBuf = jobs.folder(&anyone, &id);

    let mut workers = [spawned(offered, work), spawned(offered, work)];
    let saved = || {
        fs::read_dir(job.join("checkpoints"))
            .into_iter()
            .flatten()
            .flatten()
            .any(|entry| entry.path().extension().is_some_and(|extension| extension == "checkpoint"))
    };
    while !saved() {
        assert!(workers.iter_mut().all(|worker| worker.try_wait().unwrap().is_none()), "a worker ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    // The server sees that another process runs it, and that process has the job to itself.
    assert!(matches!(jobs.status(&anyone, &id), JobState::Running { .. }));
    let mut queue = jobs.lock();
    assert!(jobs.claim(&mut queue).is_none());
    drop(queue);
    let first = holder(&job.join("lease")).unwrap();
    let [killed, other]: [usize; 2] = if workers[0].id() == first { [0, 1] } else { [1, 0] };
    assert_eq!(workers[killed].id(), first);
    workers[killed].kill().unwrap();
    workers[killed].wait().unwrap();
    assert!(!job.join("reply").exists());
    assert!(workers[other].wait().unwrap().success());
    assert_eq!(holder(&job.join("lease")), Some(workers[other].id()));

    // Once, and as one process that nobody disturbs makes it.
    assert!(matches!(jobs.status(&anyone, &id), JobState::Done { .. }));
    let reply = fs::read(jobs.reply(&anyone, &id).unwrap()).unwrap();
    let options = offered.options(work);
    fhe::run::run(&options, &|_| {}).unwrap();
    assert!(reply == fs::read(work.join("reply")).unwrap());
    assert_close(offered, &texts()[..1], &offered.decrypt(work).unwrap());
    assert_eq!(jobs.under_way(), 1);
    jobs.refresh(&mut jobs.lock());
    assert_eq!(jobs.under_way(), 0);
    // Nothing is left to do.
    worker(offered, work).unwrap().run(&AtomicBool::new(false)).unwrap();
    // Another secret would make another reply.
    let mut context = offered.options(work).context;
    context.secret = work.join("other.secret");
    let config = FheWorkerConfig { context, store: work.join("store"), until_empty: true };
    assert_eq!(FheWorker::open(&config).err().unwrap().name(), "other-secret");
}
