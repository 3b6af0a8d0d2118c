//! A server of the tiny model in this process, and clients of it.
#![allow(dead_code, reason = "each test file uses its own part")]

#[cfg(target_os = "linux")]
pub mod flood;
pub mod private;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hushed_model::testing::tiny_folder;
use hushed_serve::{Client, ClientConfig, Deadlines, ServeError, Server, ServerConfig, ServerTrust, TooLong};
use tempfile::TempDir;

/// Short enough that a test of a deadline is quick, long enough for a busy machine.
pub fn deadlines() -> Deadlines {
    Deadlines { silence: Duration::from_secs(20), ..Deadlines::default() }
}

/// A running server, stopped and joined on drop.
pub struct Running {
    pub folder: TempDir,
    pub address: SocketAddr,
    pub metrics: Option<SocketAddr>,
    pub pin: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    pub fn start(change: impl FnOnce(&mut ServerConfig)) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let model = folder.path().join("model");
        tiny_folder(&model).unwrap();
        let mut config = ServerConfig::local(model, folder.path().join("certificates"));
        config.entrance.deadlines = deadlines();
        change(&mut config);
        let server = Server::bind(&config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let (address, metrics) = (server.listener().local_addr(), server.listener().metrics_addr());
        let pin = server.listener().fingerprint().to_string();
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || server.run(&stop)
        });
        Running { folder, address, metrics, pin, stop, thread: Some(thread) }
    }

    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new(self.address.to_string(), ServerTrust::Pin(self.pin.clone()));
        config.deadlines = deadlines();
        config
    }

    pub fn connect(&self) -> Result<Client, ServeError> {
        Client::connect(&self.client())
    }

    pub fn ask_to_stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    pub fn join(&mut self) -> Result<(), ServeError> {
        self.ask_to_stop();
        self.thread.take().map_or(Ok(()), |t| t.join().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !thread::panicking() {
                ended.unwrap().unwrap();
            }
        }
    }
}

/// The error of a session that must not be established.
pub fn refused(config: &ClientConfig) -> ServeError {
    Client::connect(config).err().expect("the session must be refused")
}

/// Checks that a server still serves.
pub fn assert_serves(server: &Running) {
    let mut client = server.connect().unwrap();
    let answers = client.embed(&["hello"], TooLong::Refuse, None).unwrap();
    assert_eq!(answers.len(), 1);
    client.close().unwrap();
}

/// Waits until another thread has made something true; the limit only ends a test that has failed.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < give_up, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// What a server's port for health and metrics answers to `request`.
pub fn get(address: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    // The responder closes on a request that is too long before reading all of it.
    let _ = socket.read_to_string(&mut answer);
    answer
}

/// Descriptors and threads of this process.
pub fn holdings() -> (usize, usize) {
    let entries = |path| std::fs::read_dir(path).unwrap().count();
    (entries("/proc/self/fd"), entries("/proc/self/task"))
}

/// Resident memory of this process, in MiB.
pub fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    (pages * 4096) >> 20
}
