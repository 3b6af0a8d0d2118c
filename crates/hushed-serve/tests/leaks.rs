//! Sessions that are refused or killed leave nothing behind. Alone in its file: it counts what the whole process holds.

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use common::{Running, assert_serves, eventually, holdings};
use hushed_net::channel::tcp;
use hushed_net::{Expect, Limits, Party, Session, TlsClient, Trust};
use hushed_serve::wire;

const SESSIONS: usize = 1000;

#[test]
fn a_thousand_failed_sessions_leave_no_descriptor_and_no_thread() {
    let server = Running::start(|_| ());
    let tls = TlsClient::new(Trust::from_pin(&server.pin).unwrap(), None).unwrap();
    let address = server.address.to_string();
    let fail = |i: usize| {
        let mut socket = TcpStream::connect(server.address).unwrap();
        match i % 4 {
            // Killed before or in the handshake.
            0 => drop(socket),
            1 => socket.write_all(b"not a handshake").unwrap(),
            // Refused: a hello of another version.
            2 => {
                drop(socket);
                let socket = tcp::connect(&address, Duration::from_secs(5)).unwrap();
                let channel = tls.connect(socket, "localhost", Limits::session()).unwrap();
                let mut session = Session::new(Party::Client, Box::new(channel));
                session.send(wire::HELLO, b"HSHC\xff\xff").unwrap();
                session.recv(wire::REPLY, Expect::AtMost(1024)).unwrap();
            }
            // Killed in the greeting.
            _ => {
                drop(socket);
                let socket = tcp::connect(&address, Duration::from_secs(5)).unwrap();
                let channel = tls.connect(socket, "localhost", Limits::session()).unwrap();
                drop(Session::new(Party::Client, Box::new(channel)));
            }
        }
    };
    // The first sessions start pools and tables that stay.
    assert_serves(&server);
    let mut before = holdings();
    eventually("the first session is gone", || {
        let now = holdings();
        std::mem::replace(&mut before, now) == now
    });
    (0..SESSIONS).for_each(&fail);
    eventually("descriptors and threads are where they were", || {
        let now = holdings();
        now.0 <= before.0 && now.1 <= before.1
    });
    assert_serves(&server);
}
