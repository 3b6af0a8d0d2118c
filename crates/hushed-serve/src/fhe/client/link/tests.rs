//! Clients that do not follow the protocol, and files that do not match their names.

#[path = "../../../../tests/common/fhe_server.rs"]
mod fhe_server;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use hushed_fhe::files::exchange::{self, RequestReader};
use tempfile::TempDir;

use super::*;
use crate::fhe::offered;
use crate::fhe::offered::{Offered, texts};
use crate::fhe::read_plan;
use crate::fhe::wire::CHUNK;
use fhe_server::{Running, config};

/// A server, and a client's files.
struct Scene {
    server: Running,
    work: TempDir,
    connection: ClientConfig,
    keys: Digest,
    key_bytes: u64,
    request: Digest,
    request_bytes: u64,
}

impl Scene {
    fn new(quota: u64) -> Scene {
        let offered = Offered::get();
        let work = tempfile::tempdir().unwrap();
        let record = offered.keygen(&work.path().join("keys")).unwrap();
        let encrypted = offered.encrypt(work.path(), &texts()).unwrap();
        let mut config = config(offered, work.path());
        config.owner_quota = quota;
        let server = Running::start(&config);
        Scene {
            connection: server.client(),
            server,
            keys: Digest(record.hash()),
            key_bytes: record.bytes,
            request: encrypted.content,
            request_bytes: encrypted.bytes,
            work,
        }
    }

    fn link(&self) -> Link<'_> {
        Link::open(&self.connection).unwrap()
    }

    fn keys_file(&self) -> PathBuf {
        self.work.path().join("keys/evaluation.keys")
    }

    fn send_keys(&self) -> Result<(), ServeError> {
        let (file, path) = (Upload::Keys(self.keys), self.keys_file());
        self.link().send(file, &path, &mut |_, _| {})
    }

    fn send_request(&self, name: Digest, path: &Path) -> Result<(), ServeError> {
        self.link().send(Upload::Request(name), path, &mut |_, _| {})
    }

    fn offer(&self, file: Upload, bytes: u64) -> Result<u64, ServeError> {
        self.link().have(Request::Offer { file, bytes })
    }

    /// Begins to send a file and breaks off.
    fn begin(&self, file: Upload, bytes: u64) {
        let before = self.begun();
        let mut link = self.link();
        link.begin(Request::Put { file, offset: 0, bytes: u32::try_from(bytes.min(PART)).unwrap() }).unwrap();
        while self.begun() == before {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The number of unfinished files.
    fn begun(&self) -> usize {
        let folder = self.work.path().join("store/owners/anyone/uploads");
        fs::read_dir(folder).map_or(0, Iterator::count)
    }
}

fn refused<T>(result: Result<T, ServeError>) -> Refusal {
    match result.err() {
        Some(ServeError::Refused(refusal)) => refusal,
        Some(error) => panic!("{error}"),
        None => panic!("it must be refused"),
    }
}

#[test]
fn files_that_are_not_what_they_are_called_are_thrown_away() {
    let scene = Scene::new(1 << 30);
    let request = scene.work.path().join("request");
    // Sizes follow from the manifest.
    for bytes in [0, 1, scene.key_bytes - 1, scene.key_bytes + 1, u64::MAX] {
        let offered = scene.offer(Upload::Keys(scene.keys), bytes);
        assert_eq!(refused(offered), Refusal::WrongSize);
    }
    // Before the keys are there, and before the request is.
    let submit = || scene.link().submit(scene.keys, scene.request);
    assert_eq!(refused(submit()), Refusal::NotThere);
    // A request under another name, and one with a changed byte.
    let other = Digest([7; 32]);
    assert_eq!(refused(scene.send_request(other, &request)), Refusal::DamagedUpload);
    let good = fs::read(&request).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(&request, bad).unwrap();
    let sent = scene.send_request(scene.request, &request);
    assert_eq!(refused(sent), Refusal::DamagedUpload);
    fs::write(&request, &good).unwrap();
    assert_eq!(scene.begun(), 0);
    scene.send_request(scene.request, &request).unwrap();
    assert_eq!(refused(submit()), Refusal::NotThere);
    // Keys with a changed byte; then as they are.
    let good = fs::read(scene.keys_file()).unwrap();
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    fs::write(scene.keys_file(), bad).unwrap();
    assert_eq!(refused(scene.send_keys()), Refusal::DamagedUpload);
    fs::write(scene.keys_file(), &good).unwrap();
    scene.send_keys().unwrap();
    let there = scene.offer(Upload::Keys(scene.keys), scene.key_bytes);
    assert_eq!(there.unwrap(), scene.key_bytes);

    // Other keys than the request's.
    let others = scene.work.path().join("others");
    let record = Offered::get().keygen(&others).unwrap();
    let file = Upload::Keys(Digest(record.hash()));
    let path = others.join("evaluation.keys");
    scene.link().send(file, &path, &mut |_, _| {}).unwrap();
    let mixed = scene.link().submit(Digest(record.hash()), scene.request);
    assert_eq!(refused(mixed), Refusal::OtherKeys);
    // Expired keys are deleted at the next clean-up; until then they are refused.
    let folder = scene.work.path().join("store/owners/anyone/keys");
    let folder = folder.join(scene.keys.to_string());
    let mut record = crate::fhe::KeyRecord::read(&folder).unwrap();
    record.expires = 1;
    record.write(&folder).unwrap();
    assert_eq!(refused(submit()), Refusal::ExpiredKeys);
}

#[test]
fn a_client_keeps_within_its_quota() {
    let scene = Scene::new(0);
    let all = scene.offer(Upload::Keys(scene.keys), scene.key_bytes);
    assert_eq!(refused(all), Refusal::Quota { left: 0 });
    drop(scene);
    let scene = Scene::new(1 << 30);
    // Files that are begun and never finished.
    for i in 0..4 {
        scene.begin(Upload::Request(Digest([i; 32])), scene.request_bytes);
    }
    let more = scene.offer(Upload::Request(Digest([4; 32])), scene.request_bytes);
    assert_eq!(refused(more), Refusal::TooManyUploads { limit: 4 });
    assert_eq!(scene.begun(), 4);
    // An unfinished file can be continued.
    let go_on = || scene.offer(Upload::Request(Digest([3; 32])), scene.request_bytes);
    let have = loop {
        match go_on() {
            // Until the server has seen that the first session ended.
            Err(ServeError::Refused(Refusal::Busy)) => {}
            have => break have,
        }
    };
    assert_eq!(have.unwrap(), 0);
    // An unfinished file counts with its full size.
    let all = 4 * scene.request_bytes + scene.key_bytes;
    drop(scene);
    let scene = Scene::new(all - 1);
    for i in 0..3 {
        scene.begin(Upload::Request(Digest([i; 32])), scene.request_bytes);
    }
    scene.begin(Upload::Keys(scene.keys), scene.key_bytes);
    let last = scene.offer(Upload::Request(scene.request), scene.request_bytes);
    assert!(matches!(refused(last), Refusal::TooManyUploads { .. } | Refusal::Quota { .. }));
}

#[test]
fn parts_and_questions_that_cannot_be_are_refused() {
    let scene = Scene::new(1 << 30);
    let file = Upload::Request(scene.request);
    let put = |offset, bytes: u32, frames: &[usize]| {
        let mut link = scene.link();
        link.begin(Request::Put { file, offset, bytes })?;
        for &frame in frames {
            link.session.send_vec(DATA, vec![0; frame])?;
        }
        link.response()
    };
    // Not where the file ends so far, and beyond the end.
    assert_eq!(refused(put(1, 1, &[1])), Refusal::WrongOffset);
    assert_eq!(refused(put(u64::MAX, 1, &[1])), Refusal::WrongOffset);
    // Less than the part must have.
    assert_eq!(refused(put(0, 1, &[1])), Refusal::WrongOffset);
    let over = u32::try_from(scene.request_bytes + 1).unwrap();
    let frames: Vec<usize> = frames(over.into()).collect();
    assert_eq!(refused(put(0, over, &frames)), Refusal::WrongOffset);
    assert_eq!(scene.begun(), 0);
    // Frames of other lengths than the part says: the session ends without an answer.
    for (bytes, frame) in [(10, 9), (10, 11), (10, CHUNK + 1)] {
        let broken = put(0, bytes, &[frame]);
        assert!(matches!(broken, Err(ServeError::Net(_))));
    }
    // Parts that are too long, and bytes that are no request.
    let long = Request::Put { file, offset: 0, bytes: u32::MAX };
    for bytes in [long.encode(), vec![], vec![9], vec![0, 0], vec![0xff; MAX_RESPONSE], vec![0; 4096]] {
        let mut link = scene.link();
        link.session.send_vec(REQUEST, bytes).unwrap();
        assert!(matches!(link.response(), Err(ServeError::Net(_))));
    }
    // An unknown job, a reply that is not there, an offset beyond the end.
    let job = Digest([1; 32]);
    assert_eq!(scene.link().status(job).unwrap(), JobState::Unknown);
    let get = |file, offset| {
        let mut link = scene.link();
        link.begin(Request::Get { file, offset })?;
        link.response()
    };
    assert_eq!(refused(get(Download::Reply(job), 0)), Refusal::NoReply);
    assert_eq!(refused(get(Download::Plan, u64::MAX)), Refusal::WrongOffset);
    let bytes = scene.link().welcome.plan_bytes;
    let end = Response::Part { total: bytes.into(), bytes: 0 };
    assert_eq!(get(Download::Plan, bytes.into()).unwrap(), end);
    // A session that only asks is ended; sending or fetching something in between lets it go on.
    let mut link = scene.link();
    for i in 0..80 {
        if i == 40 {
            link.begin(Request::Get { file: Download::Plan, offset: bytes.into() }).unwrap();
            assert_eq!(link.response().unwrap(), end);
        }
        assert_eq!(link.status(job).unwrap(), JobState::Unknown);
    }
    let mut asked = (0..64).map(|_| link.status(job));
    assert!(asked.any(|state| matches!(state, Err(ServeError::Net(_)))));
    // The server goes on serving.
    assert!(scene.server.address.port() > 0);
    scene.send_keys().unwrap();
}

#[test]
fn one_session_at_a_time_writes_a_file_and_none_holds_it_for_ever() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let mut config = config(offered, work.path());
    config.entrance.deadlines.idle = Duration::from_millis(300);
    config.entrance.deadlines.text = Duration::from_secs(2);
    let server = Running::start(&config);
    let connection = server.client();
    let bytes = {
        let (plan, params) = read_plan(&offered.plan()).unwrap();
        exchange::request_bytes(&plan, &params).unwrap()
    };
    let file = Upload::Request(Digest([1; 32]));
    let mut slow = Link::open(&connection).unwrap();
    let put = Request::Put { file, offset: 0, bytes: u32::try_from(bytes).unwrap() };
    slow.begin(put).unwrap();
    let offer = || {
        let mut link = Link::open(&connection).unwrap();
        link.have(Request::Offer { file, bytes })
    };
    // The second may connect before the first has its file, so ask until it has.
    while let Ok(have) = offer() {
        assert_eq!(have, 0);
    }
    assert_eq!(refused(offer()), Refusal::Busy);
    // The server waits neither for a client that does not send what it announced nor for one that asks for nothing.
    assert!(matches!(slow.response(), Err(ServeError::Net(_))));
    assert_eq!(offer().unwrap(), 0);
    let mut idle = Link::open(&connection).unwrap();
    assert!(matches!(idle.response(), Err(ServeError::Net(_))));
}

/// The name of a request's content is in its last bytes, and nowhere else that this program writes.
#[test]
fn the_name_of_a_request_is_that_of_its_file() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    offered.keygen(&work.path().join("keys")).unwrap();
    let encrypted = offered.encrypt(work.path(), &texts()).unwrap();
    let path = work.path().join("request");
    let (plan, params) = read_plan(&offered.plan()).unwrap();
    let mut reader = RequestReader::open(&path, &plan, &params, None).unwrap();
    while reader.next_ciphertext().unwrap().is_some() {}
    assert_eq!(reader.finish().unwrap(), encrypted.content.0);
    let bytes = fs::read(&path).unwrap();
    assert!(bytes.ends_with(&encrypted.content.0));
}
