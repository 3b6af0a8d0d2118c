//! Runs under encryption over a connection, on a tiny model and an insecure ring: sent, interrupted, run, killed, fetched, opened; and what
//! is refused on the way.

#[path = "common/offered.rs"]
mod offered;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hushed_serve::fhe::wire::JobState;
use hushed_serve::fhe::{
    self, FheServer, FheServerConfig, KeygenOptions, Remote, RemoteEvent, RemoteOptions,
};
use hushed_serve::{
    ClientAccess, ClientConfig, Deadlines, Entrance, ServeError, ServerIdentity, ServerTrust,
};
use offered::{Offered, assert_close, texts};

/// A server of the offered model, its store in `work`.
fn config(offered: &Offered, work: &Path) -> FheServerConfig {
    FheServerConfig {
        entrance: Entrance {
            listen: "127.0.0.1:0".to_owned(),
            identity: ServerIdentity::Development(work.join("certificate")),
            access: ClientAccess::Anyone,
            max_sessions: 4,
            deadlines: Deadlines {
                silence: Duration::from_secs(20),
                ..Deadlines::default()
            },
            metrics_listen: None,
        },
        model: offered.path("model"),
        plan: offered.plan(),
        calibration: offered.path("calibration-fhe.json"),
        public: offered.path("public"),
        store: work.join("store"),
        owner_quota: 1 << 30,
        keep: Duration::from_secs(3600),
        secret: work.join("state/reply.secret"),
        max_memory: None,
        threads: Some(2),
    }
}

/// A running server, stopped and joined on drop.
struct Running {
    address: SocketAddr,
    pin: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    fn start(config: &FheServerConfig) -> Running {
        let server = FheServer::bind(config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        Running {
            address: server.local_addr(),
            pin: server.fingerprint().to_string(),
            thread: Some(thread::spawn({
                let stop = Arc::clone(&stop);
                move || server.run(&stop)
            })),
            stop,
        }
    }

    fn client(&self) -> ClientConfig {
        let trust = ServerTrust::Pin(self.pin.clone());
        ClientConfig::new(self.address.to_string(), trust)
    }

    fn remote(&self, keys: PathBuf) -> RemoteOptions {
        RemoteOptions {
            make_keys: Some(KeygenOptions { days: 1 }),
            most_wait: Duration::from_millis(20),
            patience: Duration::from_secs(5),
            ..RemoteOptions::new(self.client(), keys)
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

#[test]
fn texts_go_out_and_answers_come_back() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let server = Running::start(&config(offered, work));
    let remote = Remote::new(server.remote(work.join("keys")));
    let mut events = Vec::new();
    let job = remote
        .submit(&texts(), &mut |event| events.push(event))
        .unwrap();
    let mut states = Vec::new();
    let answer = remote
        .collect(&job, &mut |event| {
            if let RemoteEvent::Job(state) = event {
                states.push(state);
            }
        })
        .unwrap();
    assert_close(offered, &answer);
    assert!(answer.canary.unwrap().is_good());
    assert!(matches!(states.last(), Some(JobState::Done { .. })));
    assert!(
        events
            .iter()
            .any(|event| matches!(event, RemoteEvent::Plan { first: true, .. }))
    );
    // The same bytes as through files.
    let again = work.join("again");
    fs::create_dir(&again).unwrap();
    let mut options = offered.options(&again);
    options.keys = work.join("keys/evaluation.keys");
    options.request = work.join(format!("keys/jobs/{job}.request"));
    options.secret = work.join("state/reply.secret");
    fhe::run(&options, &|_| {}).unwrap();
    let reply = fs::read(work.join(format!("keys/jobs/{job}.reply"))).unwrap();
    assert!(reply == fs::read(again.join("reply")).unwrap());
}
