//! The queue on disk, without a worker.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::Jobs;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::RunContext;
use crate::fhe::offered::{Offered, texts};
use crate::fhe::read_plan;
use crate::fhe::server::storage::{Limits, Storage};
use crate::fhe::wire::{Failure, JobState, Upload, job_id};
use crate::session::owner::Owner;
use crate::session::token::Token;
use crate::session::wire::Refusal;

fn open(offered: &Offered, work: &Path) -> Result<Jobs, ServeError> {
    let (plan, params) = read_plan(&offered.plan()).unwrap();
    let limits = Limits { quota: 1 << 30, keep: Duration::from_secs(3600) };
    let context = RunContext::load(&offered.options(work).context)?;
    let storage = Storage::open(&work.join("store"), plan, params, limits).unwrap();
    Jobs::open(storage, context, Arc::default())
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
