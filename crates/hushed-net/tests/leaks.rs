//! A thousand failed sessions leave nothing behind. Alone in its file, because it counts what the whole process holds.

mod common;

use std::fs;
use std::io::Write;
use std::thread;
use std::time::Duration;

use hushed_net::channel::tcp;
use hushed_net::{Expect, Kind, Limits, Party, Session, TlsServer};

/// A joined thread stays in the system's list a moment longer.
const PUT_AWAY: Duration = Duration::from_secs(1);

fn descriptors_and_threads() -> (usize, usize) {
    (fs::read_dir("/proc/self/fd").unwrap().count(), fs::read_dir("/proc/self/task").unwrap().count())
}

#[test]
fn a_thousand_failed_sessions_leave_no_descriptor_and_no_thread() {
    let server = TlsServer::new(common::certificate(2020, 4000), None).unwrap();
    let fail = |i: usize| {
        let (mut near, far) = common::sockets();
        match i % 4 {
            // Refused in the handshake.
            0 => {
                near.write_all(b"not a hello").unwrap();
                assert!(server.accept(far, Limits::before_authentication()).is_err());
            }
            // Killed in the handshake.
            1 => {
                drop(near);
                assert!(server.accept(far, Limits::before_authentication()).is_err());
            }
            // Killed in a session, with a frame half sent.
            2 => {
                let mut session = Session::new(Party::Server, Box::new(tcp::channel(far, Limits::session()).unwrap()));
                near.write_all(b"HSHD\x01\x00").unwrap();
                drop(near);
                assert!(session.recv(Kind(1), Expect::AtMost(9)).is_err());
            }
            // Refused in a session.
            _ => {
                let mut session = Session::new(Party::Server, Box::new(tcp::channel(far, Limits::session()).unwrap()));
                session.abort(1);
                drop(near);
            }
        }
    };
    (0..8).for_each(&fail);
    thread::sleep(PUT_AWAY);
    let before = descriptors_and_threads();
    (0..1000).for_each(&fail);
    thread::sleep(PUT_AWAY);
    assert_eq!(descriptors_and_threads(), before);
}
