//! A server with a tiny model and a gateway in front of it, in this process; HTTP as bytes.

#[path = "../../../hushed-serve/tests/common/private.rs"]
mod private;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hushed_gateway::{Gateway, GatewayConfig, GatewayError};
use hushed_model::Model;
use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder, tiny_folder, tiny_generator_folder, tiny_golden};
use hushed_serve::{ClientConfig, Document, IndexFile, ServeError, Server, ServerConfig, ServerTrust};
use serde_json::Value;
use tempfile::TempDir;

pub use private::write_private;

/// A running server, stopped and joined on drop.
pub struct Running {
    pub folder: Arc<TempDir>,
    pub address: SocketAddr,
    metrics: SocketAddr,
    pin: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    /// A server of the tiny encoder.
    pub fn embeds() -> Self {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(&folder.path().join("model")).unwrap();
        Self::start(Arc::new(folder), "127.0.0.1:0")
    }

    /// A server of the tiny encoder, changed, such as in its `config.json`.
    pub fn embeds_with(change: impl FnOnce(&std::path::Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(&folder.path().join("model")).unwrap();
        change(&folder.path().join("model"));
        Self::start(Arc::new(folder), "127.0.0.1:0")
    }

    /// A server of the tiny classifier.
    pub fn classifies(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        tiny_classifier_folder(&folder.path().join("model"), &TINY_LABELS).unwrap();
        Self::with(Arc::new(folder), "127.0.0.1:0", change)
    }

    /// A server of the tiny cross-encoder.
    pub fn scores() -> Self {
        let folder = Arc::new(tempfile::tempdir().unwrap());
        Self::with(folder, "127.0.0.1:0", |config| config.model = tiny_golden("cross-encoder"))
    }

    /// A server of the tiny generator.
    pub fn generates() -> Self {
        let folder = tempfile::tempdir().unwrap();
        tiny_generator_folder(&folder.path().join("model")).unwrap();
        Self::start(Arc::new(folder), "127.0.0.1:0")
    }

    /// A server of the tiny generator that allows more.
    pub fn allows(change: impl FnOnce(&mut ServerConfig)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        tiny_generator_folder(&folder.path().join("model")).unwrap();
        Self::with(Arc::new(folder), "127.0.0.1:0", change)
    }

    /// A server of the tiny generator with this chat template.
    pub fn chats(template: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        tiny_generator_folder(&model).unwrap();
        let config = serde_json::json!({ "chat_template": template });
        std::fs::write(model.join("tokenizer_config.json"), config.to_string()).unwrap();
        Self::start(Arc::new(folder), "127.0.0.1:0")
    }

    /// A server of the tiny encoder with these documents, whose records have `record_bytes` bytes.
    pub fn searches<D: Clone + Into<Document> + Sync>(documents: &[D], record_bytes: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model");
        tiny_folder(&path).unwrap();
        let model = Model::load(&path).unwrap();
        let mut index = IndexFile::empty(&model, record_bytes).unwrap();
        index.add(&model, documents, || ()).unwrap();
        index.write(&folder.path().join("documents.index")).unwrap();
        Self::start(Arc::new(folder), "127.0.0.1:0")
    }

    /// Starts the same server again, after [`Running::end`].
    pub fn again(folder: Arc<TempDir>, address: SocketAddr) -> Self {
        Self::start(folder, &address.to_string())
    }

    fn start(folder: Arc<TempDir>, listen: &str) -> Self {
        Self::with(folder, listen, |_| ())
    }

    fn with(folder: Arc<TempDir>, listen: &str, change: impl FnOnce(&mut ServerConfig)) -> Self {
        let path = folder.path();
        let mut config = ServerConfig::local(path.join("model"), path.join("certificates"));
        config.entrance.listen = listen.to_owned();
        config.entrance.metrics_listen = Some("127.0.0.1:0".to_owned());
        config.entrance.deadlines.drain = Duration::from_millis(100);
        let index = path.join("documents.index");
        config.index = index.exists().then_some(index);
        change(&mut config);
        let server = Server::bind(&config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        Self {
            address: server.listener().local_addr(),
            metrics: server.listener().metrics_addr().unwrap(),
            pin: server.listener().fingerprint().to_string(),
            folder,
            stop,
            thread: Some(thread::spawn(move || server.run(&raised))),
        }
    }

    pub fn client(&self) -> ClientConfig {
        ClientConfig::new(self.address.to_string(), ServerTrust::Pin(self.pin.clone()))
    }

    pub fn model(&self) -> PathBuf {
        self.folder.path().join("model")
    }

    /// A count from the server's own metrics.
    pub fn counted(&self, name: &str) -> u64 {
        let mut socket = TcpStream::connect(self.metrics).unwrap();
        socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        socket.read_to_string(&mut text).unwrap();
        let found = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap().parse().unwrap()
    }

    /// Stops it; returns what is needed to start it again.
    pub fn end(mut self) -> (Arc<TempDir>, SocketAddr) {
        self.join();
        (Arc::clone(&self.folder), self.address)
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.join();
    }
}

/// A running gateway, stopped and joined on drop.
pub struct Door {
    pub address: Option<SocketAddr>,
    pub model: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), GatewayError>>>,
}

impl Door {
    pub fn open(server: &Running, change: impl FnOnce(&mut GatewayConfig)) -> Self {
        let mut config = GatewayConfig::new(server.client());
        config.drain = Duration::from_millis(100);
        change(&mut config);
        let gateway = Gateway::bind(&config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let raised = Arc::clone(&stop);
        Self {
            address: gateway.address(),
            model: gateway.model_name().to_owned(),
            stop,
            thread: Some(thread::spawn(move || gateway.run(&raised))),
        }
    }

    pub fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address.unwrap()).unwrap();
        let patience = Some(Duration::from_secs(120));
        socket.set_read_timeout(patience).unwrap();
        socket
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_with(path, body, "")
    }

    /// Posts with additional header lines, each with its line end.
    pub fn post_with(&self, path: &str, body: &Value, headers: &str) -> Reply {
        self.send(&posted(path, &body.to_string(), headers))
    }

    /// Sends arbitrary bytes.
    pub fn send(&self, request: &str) -> Reply {
        let mut socket = self.connect();
        // A refusal may come before the whole body is read.
        let _ = socket.write_all(request.as_bytes());
        read_reply(&mut socket)
    }

    /// A sum from the ledger.
    pub fn total(&self, name: &str) -> u64 {
        self.get("/ledger").json()["total"][name].as_u64().unwrap()
    }
}

impl Drop for Door {
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

/// A POST of JSON.
pub fn posted(path: &str, body: &str, headers: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n{headers}\r\n{body}",
        body.len()
    )
}

/// A gateway's answer.
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("not JSON: {}", self.body))
    }

    /// `code` of an OpenAI error.
    pub fn code(&self) -> String {
        let code = &self.json()["error"]["code"];
        code.as_str().unwrap_or_default().to_owned()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(": ")?;
            key.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// Reads everything up to the end of the connection.
pub fn read_reply(socket: &mut impl Read) -> Reply {
    let mut bytes = Vec::new();
    // TLS without a closing alert, or a connection reset after a refusal.
    let _ = socket.read_to_end(&mut bytes);
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    Reply {
        status,
        head: head.to_owned(),
        body: match chunked {
            true => dechunked(body),
            false => body.to_owned(),
        },
    }
}

fn dechunked(mut text: &str) -> String {
    let mut out = String::new();
    while let Some((length, rest)) = text.split_once("\r\n") {
        let length = usize::from_str_radix(length, 16).unwrap();
        out.push_str(&rest[..length]);
        text = rest[length..].trim_start_matches("\r\n");
    }
    out
}

/// Waits until another thread has made something true; the limit only ends a test that has failed.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < give_up, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}
