//! A client that keeps many connections open and says nothing.

use std::io::{ErrorKind, Read};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

/// It ends by itself after this time, or after this many connections.
const LONGEST: Duration = Duration::from_secs(60);
const MOST: usize = 50_000;
/// The pause between two connections that replace closed ones: 2,000 per second.
const PAUSE: Duration = Duration::from_micros(500);

/// A flood that lasts until it is dropped.
pub struct Flood {
    opened: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Flood {
    /// Opens `sockets` silent connections from these loopback addresses in turn; a closed one is opened again.
    pub fn start(server: SocketAddr, from: Vec<Ipv4Addr>, sockets: usize) -> Flood {
        let (opened, stop) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let thread = thread::spawn({
            let (opened, stop) = (Arc::clone(&opened), Arc::clone(&stop));
            move || {
                let give_up = Instant::now() + LONGEST;
                let mut all: Vec<Option<TcpStream>> = (0..sockets).map(|_| None).collect();
                while !stop.load(Ordering::SeqCst) && Instant::now() < give_up {
                    for (i, place) in all.iter_mut().enumerate() {
                        if place.as_mut().is_some_and(is_open) {
                            continue;
                        }
                        let number = opened.fetch_add(1, Ordering::SeqCst);
                        if stop.load(Ordering::SeqCst) || number >= MOST {
                            return;
                        }
                        *place = open(server, from[i % from.len()]);
                        if number >= sockets {
                            thread::sleep(PAUSE);
                        }
                    }
                    thread::sleep(PAUSE);
                }
            }
        });
        Flood { opened, stop, thread: Some(thread) }
    }

    /// Connections so far.
    pub fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(ended.is_ok() || thread::panicking());
        }
    }
}

fn open(server: SocketAddr, from: Ipv4Addr) -> Option<TcpStream> {
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).ok()?;
    bind(&fd, &SocketAddrV4::new(from, 0)).ok()?;
    connect(&fd, &server).ok()?;
    let stream = TcpStream::from(fd);
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

fn is_open(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}
