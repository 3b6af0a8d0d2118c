//! Encrypted runs over a connection, on a tiny model and an insecure ring: sent, interrupted, run, killed, fetched,
//! opened; and what is refused on the way. Clients that do not follow the protocol are tested beside the client's
//! session.

use crate::fhe_server;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::fhe_server::{Running, config};
use crate::offered::{Offered, assert_close, texts};
use crate::private::write_private;
use hushed_fhe::files::exchange;
use hushed_model::testing::tiny_folder;
use hushed_serve::fhe::wire::JobState;
use hushed_serve::fhe::{self, FheServer, FheServerConfig, KeyRecord, Remote, RemoteEvent};
use hushed_serve::{
    Client, ClientAccess, ClientLimits, Digest, Refusal, ServeError, Server, ServerConfig, ServerTrust, Token, TooLong,
};

/// Set in a process that will be killed: the folder that its server works in.
const CHILD: &str = "HUSHED_TEST_REMOTE_CHILD";

fn quiet(_: RemoteEvent) {}

fn name<T>(result: Result<T, ServeError>) -> &'static str {
    result.err().unwrap().name()
}

/// Keeps the request of a job for [`reply_through_files`], as it is gone once its reply is opened.
fn keep_request(work: &Path, keys: &Path, job: &str) {
    let again = work.join("again");
    fs::create_dir(&again).unwrap();
    let request = keys.join(format!("jobs/{job}.request"));
    fs::copy(request, again.join("request")).unwrap();
}

/// The reply to a job as the verbs that work on files make it.
fn reply_through_files(offered: &Offered, work: &Path, keys: &Path) -> Vec<u8> {
    let again = work.join("again");
    let mut options = offered.options(&again);
    options.files.keys = keys.join("evaluation.keys");
    options.context.secret = work.join("state/reply.secret");
    fhe::run(&options, &|_| {}).unwrap();
    fs::read(again.join("reply")).unwrap()
}

#[test]
fn texts_go_out_and_answers_come_back() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    let keys = work.join("keys");
    let mut options = server.remote(keys.clone());
    let made = options.make_keys.take();
    let without = Remote::new(options);
    assert_eq!(name(without.submit(&texts(), &mut quiet)), "no-keys");
    let remote = Remote::new(fhe::RemoteOptions { make_keys: made, ..server.remote(keys.clone()) });
    // Left by a call that ended while making keys.
    fs::write(keys.join("secret.key"), b"half").unwrap();
    fs::write(keys.join("evaluation.keys.0.draft"), b"half").unwrap();
    let mut sent = 0;
    let job = remote.submit(&texts(), &mut |event| {
        if let RemoteEvent::Sending { done, of, .. } = event {
            sent += u64::from(done == of);
        }
    });
    let job = job.unwrap();
    assert_eq!(sent, 2);
    assert!(!keys.join("evaluation.keys.0.draft").exists());
    // The same again from another process is the same job, and nothing is sent.
    let mut events = Vec::new();
    let other = Remote::new(server.remote(keys.clone()));
    let again = other.submit(&texts(), &mut |event| events.push(event));
    assert_eq!(again.unwrap(), job);
    let is_new = |event: &RemoteEvent| {
        matches!(event, RemoteEvent::Sending { .. } | RemoteEvent::Encrypted(_) | RemoteEvent::Plan { first: true, .. })
    };
    assert!(!events.iter().any(is_new));

    let looked = other.status(&job).unwrap();
    assert!(!matches!(looked, JobState::Unknown | JobState::Failed(_)));
    keep_request(work, &keys, &job.to_string());
    let mut states = Vec::new();
    let answer = remote.collect(&job, &mut |event| {
        if let RemoteEvent::Job(state) = event {
            states.push(state);
        }
    });
    let answer = answer.unwrap();
    assert_close(offered, &texts(), &answer);
    assert!(answer.canary.unwrap().is_good());
    assert!(matches!(states.last(), Some(JobState::Done { .. })));
    let layers = states.iter().filter_map(|state| match state {
        JobState::Running { layer, .. } => Some(*layer),
        _ => None,
    });
    assert!(layers.is_sorted());
    let id = job.to_string();
    let reply = fs::read(keys.join(format!("jobs/{id}.reply"))).unwrap();
    assert!(reply == reply_through_files(offered, work, &keys));

    // The server is not asked about a reply that is here: by then it could learn something of what was decrypted.
    let mut nowhere = server.remote(keys.clone());
    nowhere.connection.server = "127.0.0.1:1".to_owned();
    let done = Remote::new(nowhere).status(&job).unwrap();
    assert!(matches!(done, JobState::Done { bytes } if bytes == reply.len() as u64));

    // Found by its first digits, until it is forgotten.
    assert_eq!(remote.find(&id[..8]).unwrap(), job);
    assert_eq!(name(remote.find(&id[..7])), "no-such-job");
    remote.forget(&job).unwrap();
    assert_eq!(name(remote.find(&id)), "no-such-job");
    assert_eq!(fs::read_dir(keys.join("jobs")).unwrap().count(), 1);
    // The request was removed when its run was done.
    let requests = work.join("store/owners/anyone/requests");
    assert_eq!(fs::read_dir(requests).unwrap().count(), 0);
}

/// Relays until this many bytes have come from the client, then breaks the connection; the last number holds for all
/// later connections.
fn break_after(server: SocketAddr, limits: &'static [usize]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for (i, client) in listener.incoming().flatten().enumerate() {
            let limit = limits[i.min(limits.len() - 1)];
            let server = TcpStream::connect(server).unwrap();
            let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                let (mut left, mut piece) = (limit, vec![0; 1 << 16]);
                let (mut client, mut server) = (client, server);
                while left > 0 {
                    let most = left.min(piece.len());
                    match client.read(&mut piece[..most]) {
                        Ok(got) if got > 0 && server.write_all(&piece[..got]).is_ok() => left -= got,
                        _ => break,
                    }
                }
                let _ = server.shutdown(Shutdown::Both);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn an_upload_that_breaks_goes_on_where_it_was() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    // The first session agrees on the plan. The keys are two frames of 4 MiB and a little more.
    let address = break_after(server.address, &[usize::MAX, 5 << 20, 4_300_000, usize::MAX]);
    let mut options = server.remote(work.join("keys"));
    options.connection.server = address.to_string();
    let remote = Remote::new(options);
    let (mut lost, mut from) = (0, Vec::new());
    let job = remote.submit(&texts(), &mut |event| match event {
        RemoteEvent::Lost(_) => {
            lost += 1;
            from.push(None);
        }
        RemoteEvent::Sending { what: "keys", done, .. } => from.push(Some(done)),
        _ => {}
    });
    let job = job.unwrap();
    assert_eq!(lost, 2);
    // Where later sessions began.
    let starts: Vec<u64> = from
        .windows(2)
        .filter_map(|pair| match pair {
            [None, Some(done)] => Some(*done),
            _ => None,
        })
        .collect();
    assert_eq!(starts, [4 << 20, 8 << 20]);
    assert_close(offered, &texts(), &remote.collect(&job, &mut quiet).unwrap());
    let uploads = work.join("store/owners/anyone/uploads");
    assert_eq!(fs::read_dir(uploads).unwrap().count(), 0);
}

/// Runs a server in a separate process until it is killed.
fn child(work: &Path) {
    let folder = PathBuf::from(std::env::var_os("HUSHED_TEST_FHE_OFFERED").unwrap());
    let server = FheServer::bind(&config(&Offered::at(folder), work)).unwrap();
    let told = format!("{} {}", server.listener().local_addr(), server.listener().fingerprint());
    fs::write(work.join("draft"), told).unwrap();
    fs::rename(work.join("draft"), work.join("listening")).unwrap();
    server.run(&AtomicBool::new(false)).unwrap();
}

#[test]
fn a_server_that_was_killed_goes_on_with_the_same_bytes() {
    if let Some(work) = std::env::var_os(CHILD) {
        return child(Path::new(&work));
    }
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let test = "remote::a_server_that_was_killed_goes_on_with_the_same_bytes";
    let mut killed = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .env(CHILD, work)
        .env("HUSHED_TEST_FHE_OFFERED", &offered.folder)
        .spawn()
        .unwrap();
    let mut until = |what: &dyn Fn() -> bool| {
        while !what() {
            assert!(killed.try_wait().unwrap().is_none(), "it ended by itself");
            thread::sleep(Duration::from_millis(5));
        }
    };
    until(&|| work.join("listening").exists());
    let told = fs::read_to_string(work.join("listening")).unwrap();
    let (address, pin) = told.split_once(' ').unwrap();
    let keys = work.join("keys");
    let options = |address: &str, pin: &str| {
        let trust = ServerTrust::Pin(pin.to_owned());
        let mut options = fhe_server::options(address, trust, keys.clone());
        options.patience = Duration::from_secs(60);
        options
    };
    let remote = Remote::new(options(address, pin));
    let job = remote.submit(&texts(), &mut quiet).unwrap();
    let folder = work.join(format!("store/owners/anyone/jobs/{job}"));
    let has_checkpoint = || {
        let found = fs::read_dir(folder.join("checkpoints")).into_iter().flatten();
        found.flatten().any(|entry| entry.path().extension().is_some_and(|e| e == "checkpoint"))
    };
    until(&has_checkpoint);
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!folder.join("reply").exists());

    // Stopped after another layer, unless it ends earlier, and started again.
    let config = config(offered, work);
    drop(Running::start(&config));
    let server = Running::start(&config);
    let remote = Remote::new(options(&server.address.to_string(), &server.pin));
    keep_request(work, &keys, &job.to_string());
    let answer = remote.collect(&job, &mut quiet).unwrap();
    assert_close(offered, &texts(), &answer);
    let id = job.to_string();
    let reply = fs::read(keys.join(format!("jobs/{id}.reply"))).unwrap();
    assert!(reply == reply_through_files(offered, work, &keys));
    assert!(!folder.join("checkpoints").exists());
}

/// A server of the offered model whose plan states another answer to the canary, so every answer to it is wrong.
fn with_wrong_canary(offered: &Offered, work: &Path) -> FheServerConfig {
    let (mut plan, _) = fhe::read_plan(&offered.plan()).unwrap();
    let canary = plan.canary.as_mut().unwrap();
    canary.embedding.iter_mut().for_each(|n| *n = -*n);
    let mut config = config(offered, work);
    config.context.plan = work.join("wrong.json");
    fhe::write_plan(&config.context.plan, &plan).unwrap();
    config
}

#[test]
fn what_is_asked_later_does_not_depend_on_what_was_opened() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    let keys = work.join("keys");
    let remote = Remote::new(server.remote(keys.clone()));
    let texts = &texts()[..1];
    let job = remote.submit(texts, &mut quiet).unwrap();
    let reply = keys.join(format!("jobs/{job}.reply"));
    let opened = remote.collect(&job, &mut quiet).unwrap();
    assert!(opened.canary.unwrap().is_good() && reply.is_file());
    // The same texts again are another job, and nothing is asked about the first.
    let mut again = false;
    let other = remote.submit(texts, &mut |event| again |= matches!(event, RemoteEvent::Again));
    let other = other.unwrap();
    assert!(other != job && !again);
    // A damaged reply is detected before it is opened, so that job stays what it is.
    let damaged = keys.join(format!("jobs/{other}.reply"));
    fs::write(&damaged, vec![0; fs::metadata(&reply).unwrap().len() as usize]).unwrap();
    assert!(remote.collect(&other, &mut quiet).is_err());
    assert!(!damaged.exists());
    assert_eq!(remote.submit(texts, &mut quiet).unwrap(), other);
    // The first is opened from the local copy, without the server.
    drop(server);
    let found = remote.find(&job.to_string()).unwrap();
    let answer = remote.collect(&found, &mut quiet).unwrap();
    assert_eq!(answer.embeddings.len(), 1);
    // L6: with the job goes the record of its request, and no other.
    let records = || fs::read_dir(keys.join("requests")).unwrap().count();
    let before = records();
    remote.forget(&job).unwrap();
    assert!(!reply.exists());
    assert_eq!(records(), before - 1);
}

/// For a server that makes answers wrong on purpose, whether a client comes back after a wrong one is a bit of the
/// secret key.
#[test]
fn c5_after_a_wrong_canary_nothing_is_sent_until_a_person_decides() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&with_wrong_canary(offered, work));
    let keys = work.join("keys");
    let remote = Remote::new(server.remote(keys.clone()));
    let both = texts();
    let (texts, others) = (&both[..1], &both[1..2]);
    let job = remote.submit(texts, &mut quiet).unwrap();
    let waiting = remote.submit(others, &mut quiet).unwrap();
    let opened = remote.collect(&job, &mut quiet).unwrap();
    assert!(!opened.canary.unwrap().is_good());

    // Whatever is asked for, in another process too, nobody even connects. What waits is not sent again either.
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    nobody.set_nonblocking(true).unwrap();
    let mut elsewhere = server.remote(keys.clone());
    elsewhere.connection.server = nobody.local_addr().unwrap().to_string();
    let again = Remote::new(elsewhere);
    for texts in [texts, others, &both[2..3]] {
        let refused = again.submit(texts, &mut quiet);
        let told = refused.as_ref().unwrap_err().to_string();
        assert!(told.contains("--new-keys") && told.contains("Nothing was sent"));
        assert_eq!(name(refused), "keys-retired");
    }
    assert!(nobody.accept().is_err());
    let before = KeyRecord::read(&keys).unwrap();
    assert!(before.is_retired());
    // Nor is anything encrypted for them through files.
    let encrypted = fhe::encrypt(
        &fhe::EncryptOptions {
            plan: &keys.join("manifest.json"),
            public: &keys.join("model.public"),
            keys: &keys,
            texts,
            too_long: TooLong::Refuse,
            lengths: None,
            out: &work.join("request"),
        },
        &mut |_, _| {},
    );
    assert_eq!(name(encrypted), "keys-retired");
    // Opening the local reply again gives the same result, and what was sent before can still be fetched.
    assert!(!remote.collect(&job, &mut quiet).unwrap().canary.unwrap().is_good());
    remote.collect(&waiting, &mut quiet).unwrap();
    assert_eq!(KeyRecord::read(&keys).unwrap().not_right.len(), 2);

    // A person decides: new keys, and the old ones still open what was sent under them.
    let mut options = server.remote(keys.clone());
    options.replace_retired = true;
    let decided = Remote::new(options);
    let mut aside = None;
    let new = decided.submit(texts, &mut |event| {
        if let RemoteEvent::SetAside(folder) = event {
            aside = Some(folder);
        }
    });
    assert!(new.unwrap() != job);
    let after = KeyRecord::read(&keys).unwrap();
    assert!(after.id != before.id && !after.is_retired());
    let old = Remote::new(server.remote(aside.unwrap()));
    let job = old.find(&job.to_string()).unwrap();
    assert_eq!(old.collect(&job, &mut quiet).unwrap().embeddings.len(), 1);
    assert_eq!(name(old.submit(texts, &mut quiet)), "keys-retired");
    // Without a reason it is refused, so that a script cannot leave it in.
    assert_eq!(name(decided.submit(texts, &mut quiet)), "keys-retired");
}

/// An opening that was interrupted is settled by the next one.
#[test]
fn c5_an_opening_that_was_interrupted_is_settled_by_the_next() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    let keys = work.join("keys");
    let remote = Remote::new(server.remote(keys.clone()));
    let texts = &texts()[..1];
    let job = remote.submit(texts, &mut quiet).unwrap();
    // The secret key cannot be read at this moment, which shows after the record was written.
    let (secret, away) = (keys.join("secret.key"), keys.join("away"));
    fs::rename(&secret, &away).unwrap();
    assert_eq!(name(remote.collect(&job, &mut quiet)), "file");
    assert_eq!(name(remote.submit(texts, &mut quiet)), "keys-retired");
    fs::rename(&away, &secret).unwrap();
    let opened = remote.collect(&job, &mut quiet).unwrap();
    assert!(opened.canary.unwrap().is_good());
    remote.submit(texts, &mut quiet).unwrap();
}

/// A server that sends a good reply after one whose opening failed would learn the result from whether the client goes
/// on.
#[test]
fn c5_another_reply_does_not_bring_keys_back() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    let keys = work.join("keys");
    let remote = Remote::new(server.remote(keys.clone()));
    let both = texts();
    let job = remote.submit(&both[..1], &mut quiet).unwrap();
    let other = remote.submit(&both[1..2], &mut quiet).unwrap();
    assert!(remote.collect(&other, &mut quiet).unwrap().canary.unwrap().is_good());
    let (secret, away) = (keys.join("secret.key"), keys.join("away"));
    fs::rename(&secret, &away).unwrap();
    assert_eq!(name(remote.collect(&job, &mut quiet)), "file");
    fs::rename(&away, &secret).unwrap();
    // The other answer, whose canary is right, in a reply to this request.
    let (plan, params) = fhe::read_plan(&offered.plan()).unwrap();
    let before = KeyRecord::read(&keys).unwrap();
    let reply = |job| keys.join(format!("jobs/{job}.reply"));
    let read = |job| exchange::read_reply(&reply(job), &plan, &params, &before.hash()).unwrap();
    let ((head, _), (_, list)) = (read(job), read(other));
    let better = work.join("better");
    let out = &mut fs::File::create(&better).unwrap();
    exchange::write_reply_to(out, &better, &plan, &params, &head, &list).unwrap();
    let public = keys.join("model.public");
    let open = |path: &Path| fhe::decrypt(&offered.plan(), &public, &keys, path);
    assert_eq!(name(open(&better)), "keys-retired");
    assert_eq!(KeyRecord::read(&keys).unwrap(), before);
    // Only the reply itself settles it.
    open(&reply(other)).unwrap();
    assert!(KeyRecord::read(&keys).unwrap().is_retired());
    assert!(open(&reply(job)).unwrap().canary.unwrap().is_good());
    assert!(!KeyRecord::read(&keys).unwrap().is_retired());
}

#[test]
fn what_does_not_fit_is_refused() {
    let both = Offered::both();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(&both[0], work));
    // A store is used by one server at a time.
    assert_eq!(name(FheServer::bind(&config(&both[0], work))), "file");
    let keys = work.join("keys");
    let remote = Remote::new(server.remote(keys.clone()));
    remote.agree(&mut quiet).unwrap();
    // The client can refuse what the server may learn.
    let mut options = server.remote(keys.clone());
    options.lengths = Some("private");
    let refused = Remote::new(options).submit(&texts(), &mut quiet);
    assert_eq!(name(refused), "other-lengths");
    // A given plan that is not the server's.
    let mut options = server.remote(work.join("others"));
    options.plan = Some(both[1].plan());
    assert_eq!(name(Remote::new(options).agree(&mut quiet)), "other-plan");
    // Another tokenizer than the pinned one, kept or fetched now.
    for keys in [keys.clone(), work.join("pinned")] {
        let mut options = server.remote(keys);
        options.connection.files.tokenizer = Some(Digest([7; 32]));
        assert_eq!(name(Remote::new(options).agree(&mut quiet)), "other-tokenizer");
    }
    // The server has another plan than the one that was kept.
    let other = Running::start(&config(&both[1], &work.join("other")));
    let changed = Remote::new(other.remote(keys.clone()));
    assert_eq!(name(changed.agree(&mut quiet)), "other-plan");
    // A public model that does not belong to the plan.
    let path = work.join("public");
    let mut bytes = fs::read(both[0].path("public")).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let mut options = server.remote(keys.clone());
    options.public = Some(path.clone());
    assert_eq!(name(Remote::new(options).agree(&mut quiet)), "public-model");
    let mut bad = config(&both[0], &work.join("bad"));
    bad.public = path;
    assert_eq!(name(FheServer::bind(&bad)), "public-model");
    let mut bad = config(&both[0], &work.join("bad"));
    bad.context.plan = both[1].plan();
    bad.context.calibration = both[0].path("plan.json");
    assert_eq!(name(FheServer::bind(&bad)), "other-model");

    // The other protocol, both ways.
    let two_party = Client::connect(&server.client());
    assert_eq!(name(two_party), "other-protocol");
    let model = work.join("model");
    tiny_folder(&model).unwrap();
    let two = Server::bind(&ServerConfig::local(model, work.join("certificates"))).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| two.run(&stop).unwrap());
        let trust = ServerTrust::Pin(two.listener().fingerprint().to_string());
        let address = two.listener().local_addr().to_string();
        let remote = Remote::new(fhe_server::options(&address, trust, keys.clone()));
        assert_eq!(name(remote.agree(&mut quiet)), "other-protocol");
        stop.store(true, Ordering::SeqCst);
    });
    // Nobody there.
    drop(other);
    assert_eq!(name(changed.agree(&mut quiet)), "unreachable");
}

#[test]
fn owners_are_told_apart_by_their_tokens_and_replies_expire() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let tokens = work.join("tokens");
    write_private(&tokens, "the token of ann\nthe-token-of-ann\nthe-token-of-bob\n");
    let mut config = config(offered, work);
    config.entrance.access = ClientAccess::Tokens(tokens.clone());
    assert_eq!(name(FheServer::bind(&config)), "token-file");
    write_private(&tokens, "the-token-of-ann\nthe-token-of-bob\n");
    let server = Running::start(&config);
    let remote = |token: Option<&str>| {
        let mut options = server.remote(work.join("keys"));
        options.connection.token = token.and_then(|token| Token::from_bytes(token.as_bytes()));
        Remote::new(options)
    };
    assert_eq!(name(remote(None).agree(&mut quiet)), "no-token");
    assert_eq!(name(remote(Some("somebody-elses-token")).agree(&mut quiet)), "bad-token");
    let ann = remote(Some("the-token-of-ann"));
    let job = ann.submit(&texts()[..2], &mut quiet).unwrap();
    // Even knowing all that ann knows, bob does not see her job.
    let bob = remote(Some("the-token-of-bob"));
    assert_eq!(name(bob.collect(&job, &mut quiet)), "job-gone");
    assert_eq!(ann.collect(&job, &mut quiet).unwrap().embeddings.len(), 2);
    let owners: Vec<PathBuf> =
        fs::read_dir(work.join("store/owners")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(owners.len(), 1);
    assert!(!owners[0].to_string_lossy().contains("ann"));

    // The server's operator no longer keeps anything.
    drop(server);
    config.keep = Duration::ZERO;
    let server = Running::start(&config);
    let id = job.to_string();
    let reply = owners[0].join(format!("jobs/{id}/reply"));
    while reply.exists() {
        thread::sleep(Duration::from_millis(5));
    }
    fs::remove_file(work.join(format!("keys/jobs/{id}.reply"))).unwrap();
    let mut options = server.remote(work.join("keys"));
    options.connection.token = Token::from_bytes(b"the-token-of-ann");
    let ann = Remote::new(options);
    assert_eq!(name(ann.collect(&job, &mut quiet)), "job-gone");
}

/// Model, calibration and plan are read when the server starts, and not by any job.
#[test]
fn a_second_job_does_not_read_the_model_folder_again() {
    let operator = tempfile::tempdir().unwrap();
    let offered = Offered { folder: operator.path().to_owned(), file: "plan.json" };
    offered.make(tiny_folder);
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(&offered, work));
    let remote = Remote::new(server.remote(work.join("keys")));
    for job in 0..2 {
        let submitted = remote.submit(&texts()[job..=job], &mut quiet).unwrap();
        let answer = remote.collect(&submitted, &mut quiet).unwrap();
        assert!(answer.canary.unwrap().is_good());
        if job == 0 {
            fs::remove_dir_all(operator.path()).unwrap();
        }
    }
}

#[test]
fn f8_batches_count_as_their_places_over_restarts() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, params) = fhe::read_plan(&offered.plan()).unwrap();
    let places = plan.places(&params).unwrap();
    let mut config = config(offered, work);
    let limit = |texts: usize| ClientLimits {
        texts: Some(format!("{texts}/DAY").parse().unwrap()),
        bits: None,
        file: work.join("store/texts.json"),
    };
    config.entrance.per_client = Some(limit(places - 1));
    assert_eq!(name(FheServer::bind(&config)), "limit");
    config.entrance.per_client = Some(limit(2 * places - 1));
    let server = Running::start(&config);
    let remote = Remote::new(server.remote(work.join("keys")));
    let job = remote.submit(&texts()[..1], &mut quiet).unwrap();
    // The same job again does not count as more texts.
    assert_eq!(remote.submit(&texts()[..1], &mut quiet).unwrap(), job);
    assert_eq!(remote.collect(&job, &mut quiet).unwrap().embeddings.len(), 1);
    let refused = |remote: &Remote| match remote.submit(&texts()[1..2], &mut quiet) {
        Err(ServeError::Refused(Refusal::Allowance { seconds })) => seconds > 80_000,
        _ => false,
    };
    assert!(refused(&remote));
    drop(server);
    let server = Running::start(&config);
    assert!(refused(&Remote::new(server.remote(work.join("keys")))));
    drop(server);
    config.entrance.per_client = Some(limit(2 * places));
    let server = Running::start(&config);
    let remote = Remote::new(server.remote(work.join("keys")));
    remote.submit(&texts()[1..2], &mut quiet).unwrap();
}
