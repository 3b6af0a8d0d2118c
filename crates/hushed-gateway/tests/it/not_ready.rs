//! A server that cannot be used at present: `/ready` says why, and the gateway lives on.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use hushed_gateway::{Gateway, GatewayConfig, GatewayError, Listen};
use hushed_serve::{Digest, ServerTrust};
use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::common::{Door, Reply, Running, eventually, posted, read_reply};

/// A gateway that is started before its server; it ends when this is dropped.
struct Early {
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), GatewayError>>>,
}

impl Early {
    fn open(server: &Running, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let mut config = GatewayConfig::new(server.client());
        let socket = server.folder.path().join("gateway");
        config.listen = Listen::Unix(socket.clone());
        change(&mut config);
        Self::start(socket, config)
    }

    fn start(socket: PathBuf, mut config: GatewayConfig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        config.client.stop = Some(Arc::clone(&stop));
        let raised = Arc::clone(&stop);
        let thread = thread::spawn(move || Gateway::bind(&config)?.run(&raised));
        Self { socket, stop, thread: Some(thread) }
    }

    /// The answer, once it listens.
    fn send(&self, request: &str) -> Reply {
        eventually("it listens", || UnixStream::connect(&self.socket).is_ok());
        let mut socket = UnixStream::connect(&self.socket).unwrap();
        socket.write_all(request.as_bytes()).unwrap();
        read_reply(&mut socket)
    }

    fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    fn embed(&self, path: &str, field: &str) -> Reply {
        self.send(&posted(path, &json!({ field: "a" }).to_string(), ""))
    }

    fn end(&mut self) -> Result<(), GatewayError> {
        self.stop.store(true, Ordering::SeqCst);
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap())
    }
}

impl Drop for Early {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

/// A gateway whose server comes later answers in the meantime, and then as one that found its server there.
#[test]
fn a_gateway_may_be_started_before_its_server() {
    let server = Running::embeds();
    let mut early = Early::open(&server, |config| config.client.server = "127.0.0.1:1".to_owned());
    assert_eq!((early.get("/health").status, early.get("/ready").status), (200, 503));
    let refused = early.get("/ready");
    assert!(refused.body.contains("could not connect"), "{}", refused.body);
    for (path, field) in [("/v1/embeddings", "input"), ("/embed", "inputs")] {
        let refused = early.embed(path, field);
        assert_eq!(refused.status, 503, "{}", refused.body);
        assert!(refused.header("retry-after").is_some());
    }
    assert_eq!(early.embed("/v1/embeddings", "input").code(), "unreachable");
    // One that is stopped before that ends at once, and by that name.
    assert_eq!(early.end().unwrap_err().name(), "stopped");
    assert!(!early.socket.exists());

    let client = server.client();
    let (folder, address) = server.end();
    let (mut config, socket) = (GatewayConfig::new(client), folder.path().join("later"));
    config.listen = Listen::Unix(socket.clone());
    let mut early = Early::start(socket, config);
    assert_eq!(early.get("/ready").status, 503);
    let server = Running::again(folder, address);
    eventually("the server is seen", || early.get("/ready").status == 200);
    let answered = early.embed("/embed", "inputs");
    assert_eq!(answered.status, 200, "{}", answered.body);
    assert_eq!(server.counted("hushed_texts_total"), 1);
    early.end().unwrap();
}

/// What no other attempt mends ends the gateway at once, as it did.
#[test]
fn a_wrong_setting_ends_a_gateway() {
    let server = Running::embeds();
    let refused = |change: fn(&mut GatewayConfig)| Early::open(&server, change).thread.take().unwrap().join().unwrap();
    let pin = |config: &mut GatewayConfig| config.client.trust = ServerTrust::Pin("0".repeat(64));
    assert_eq!(refused(pin).unwrap_err().name(), "wrong-pin");
    assert_eq!(refused(|config| config.client.server = "localhost".to_owned()).unwrap_err().name(), "address");
    let listen = |config: &mut GatewayConfig| config.listen = Listen::Tcp(":80000".to_owned());
    assert_eq!(refused(listen).unwrap_err().name(), "address");
}

/// Three failed runs, as they are written down.
fn fail_three_times(cache: &Path, pin: &str) -> PathBuf {
    let file = cache.join(format!("{}.failures", Digest(Sha256::digest(pin).into())));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    std::fs::create_dir_all(cache).unwrap();
    std::fs::write(&file, format!("{now}\n{now}\n{now}\n")).unwrap();
    file
}

/// After three failures nothing is sent to a server: not ready, with the reason and what lifts it, from the start or
/// later, until the file is removed.
#[test]
fn a_server_that_failed_three_times_is_not_ready() {
    let server = Running::embeds();
    let cache = server.folder.path().join("cache");
    let ServerTrust::Pin(pin) = server.client().trust else { panic!("a pin") };
    let door = Door::open(&server, |config| config.client.cache_dir = Some(cache.clone()));
    assert_eq!(door.get("/ready").status, 200);
    let file = fail_three_times(&cache, &pin);
    let named = |reply: &Reply| {
        assert!(reply.body.contains("failures") && reply.body.contains("remove"), "{}", reply.body);
    };
    eventually("it is locked out", || door.get("/ready").status == 503);
    named(&door.get("/ready"));
    assert_eq!(door.get("/health").status, 200);
    let refused = door.post("/v1/embeddings", &json!({ "input": "a" }));
    assert_eq!((refused.status, refused.code().as_str()), (503, "too-many-failures"), "{}", refused.body);
    named(&refused);

    let early = Early::open(&server, |config| config.client.cache_dir = Some(cache.clone()));
    let refused = early.get("/ready");
    assert_eq!(refused.status, 503);
    named(&refused);

    std::fs::remove_file(file).unwrap();
    eventually("both are ready", || door.get("/ready").status == 200 && early.get("/ready").status == 200);
    assert_eq!(door.post("/v1/embeddings", &json!({ "input": "a" })).status, 200);
    assert_eq!(server.counted("hushed_texts_total"), 1);
}
