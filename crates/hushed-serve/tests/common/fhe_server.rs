//! A server for encrypted runs in this process, and its clients.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hushed_serve::fhe::{FheServer, FheServerConfig, KeygenOptions, RemoteOptions};
use hushed_serve::{ClientConfig, Deadlines, Entrance, ServeError, ServerTrust};

use super::offered::Offered;

/// The configuration of a server of the offered model, with its store in `work`.
pub fn config(offered: &Offered, work: &Path) -> FheServerConfig {
    FheServerConfig {
        entrance: Entrance {
            deadlines: Deadlines { silence: Duration::from_secs(20), ..Deadlines::default() },
            ..Entrance::local(work.join("certificate"))
        },
        context: offered.options(work).context,
        public: offered.path("public"),
        store: work.join("store"),
        owner_quota: 1 << 30,
        keep: Duration::from_secs(3600),
    }
}

/// A running server, stopped and joined on drop.
pub struct Running {
    pub address: SocketAddr,
    pub pin: String,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Running {
    pub fn start(config: &FheServerConfig) -> Running {
        let server = FheServer::bind(config).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        Running {
            address: server.listener().local_addr(),
            pin: server.listener().fingerprint().to_string(),
            thread: Some(thread::spawn({
                let stop = Arc::clone(&stop);
                move || server.run(&stop)
            })),
            stop,
        }
    }

    pub fn client(&self) -> ClientConfig {
        let trust = ServerTrust::Pin(self.pin.clone());
        ClientConfig::new(self.address.to_string(), trust)
    }

    pub fn remote(&self, keys: PathBuf) -> RemoteOptions {
        let trust = ServerTrust::Pin(self.pin.clone());
        options(&self.address.to_string(), trust, keys)
    }
}

/// Options of a client that makes keys and polls often.
pub fn options(address: &str, trust: ServerTrust, keys: PathBuf) -> RemoteOptions {
    RemoteOptions {
        make_keys: Some(KeygenOptions::days(1)),
        most_wait: Duration::from_millis(20),
        patience: Duration::from_secs(20),
        ..RemoteOptions::new(ClientConfig::new(address, trust), keys)
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
