//! Peers that send garbage, break off or fall silent: the other side says so in time, and the server goes on serving.

use std::io::{Read, Write};
#[cfg(target_os = "linux")]
use std::net::Ipv4Addr;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

#[cfg(target_os = "linux")]
use crate::common::flood::Flood;
use crate::common::{Running, assert_serves, deadlines, eventually, refused};
use hushed_net::channel::{tcp, tls};
use hushed_net::{Expect, Kind, Limits, Listener, NetError, Party, Session, TlsClient, TlsServer, Trust};
use hushed_serve::session::wire::{self, Hello, Reply};
use hushed_serve::twopc::wire::BUNDLE;
use hushed_serve::{Category, Client, ClientConfig, Digest, Refusal, ServeError, ServerTrust, TooLong};

/// A session with a server for which only TLS has been set up.
fn raw(server: &Running) -> Session {
    let tls = TlsClient::new(Trust::from_pin(&server.pin).unwrap(), None).unwrap();
    let socket = tcp::connect(&server.address.to_string(), Duration::from_secs(5)).unwrap();
    let channel = tls.connect(socket, "localhost", Limits::session()).unwrap();
    Session::new(Party::Client, Box::new(channel))
}

fn hello() -> Vec<u8> {
    let hello = Hello {
        nonce: [1; 32],
        agreement: hushed_serve::bundle::agreement_hash().unwrap(),
        pinned: None,
        token: None,
        patience: 0,
        looks: false,
        link: [500, 1_000_000],
    };
    hello.encode()
}

#[test]
fn strangers_bytes() {
    let server = Running::start(|_| ());
    for bytes in [
        b"".as_slice(),
        b"GET / HTTP/1.1\r\n\r\n",
        b"HSHD\x01\x00\x00\x01\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff",
        &[0x16, 3, 1, 0xff, 0xff, 1, 0, 0xff],
        &[0; 100_000],
    ] {
        let mut socket = TcpStream::connect(server.address).unwrap();
        // The server may have closed already.
        let _ = socket.write_all(bytes);
        drop(socket);
    }
    assert_serves(&server);
}

#[test]
fn malformed_hello() {
    let server = Running::start(|_| ());
    let answer = |kind: Kind, bytes: &[u8]| {
        let mut session = raw(&server);
        session.send(kind, bytes).unwrap();
        session.recv(wire::REPLY, Expect::AtMost(wire::MAX_GREETING))
    };
    let good = hello();
    let gone = |result| matches!(result, Err(NetError::PeerAborted { .. } | NetError::PeerGone));
    assert!(gone(answer(wire::HELLO, b"")));
    assert!(gone(answer(wire::HELLO, &good[..good.len() - 1])));
    assert!(gone(answer(wire::HELLO, &[good.as_slice(), b"x"].concat())));
    assert!(gone(answer(wire::HELLO, &[0xff; 1024])));
    assert!(gone(answer(wire::HELLO, &[0; 1025])));
    assert!(gone(answer(wire::CONFIRM, &good)));

    // A client of another version is told so, whatever else it says.
    let mut later = good.clone();
    later[4..6].copy_from_slice(&(wire::VERSION + 1).to_le_bytes());
    later.extend_from_slice(b"and something new");
    let reply = Reply::decode(&answer(wire::HELLO, &later).unwrap()).unwrap();
    let version = wire::VERSION;
    assert_eq!(reply, Reply::Refused(Refusal::OtherVersion { server: version }));

    // Another agreement too.
    let mut other = good.clone();
    other[38] ^= 1;
    let reply = Reply::decode(&answer(wire::HELLO, &other).unwrap()).unwrap();
    assert!(matches!(reply, Reply::Refused(Refusal::OtherAgreement { .. })));

    // A link beyond what is accepted; the ends of what is accepted are welcome.
    let over = |figures: [u32; 2]| {
        let mut hello = good.clone();
        hello[73..77].copy_from_slice(&figures[0].to_le_bytes());
        hello[77..81].copy_from_slice(&figures[1].to_le_bytes());
        Reply::decode(&answer(wire::HELLO, &hello).unwrap()).unwrap()
    };
    for nonsense in [[0, 0], [500, 999], [500, u32::MAX], [1_000_001, 50_000], [u32::MAX; 2]] {
        assert_eq!(over(nonsense), Reply::Refused(Refusal::NoLink), "{nonsense:?}");
    }
    for end in [[0, 1_000], [1_000_000, 10_000_000]] {
        assert!(matches!(over(end), Reply::Welcome(_)), "{end:?}");
    }

    // A confirmation of nothing.
    let mut session = raw(&server);
    session.send(wire::HELLO, &good).unwrap();
    let reply = session.recv(wire::REPLY, Expect::AtMost(1024)).unwrap();
    assert!(matches!(Reply::decode(&reply).unwrap(), Reply::Welcome(_)));
    session.send(wire::CONFIRM, &[0; 33]).unwrap();
    assert!(gone(session.recv(wire::READY, Expect::Exactly(32))));
    assert_serves(&server);
}

/// A server played by the test; returns the client's error.
fn against(play: impl FnOnce(&mut Session) + Send + 'static) -> ServeError {
    against_with(|_, session| play(session))
}

fn against_with(play: impl FnOnce(&[u8], &mut Session) + Send + 'static) -> ServeError {
    let folder = tempfile::tempdir().unwrap();
    let identity = tls::load_or_create_dev_certificate(folder.path()).unwrap();
    let pin = Digest(identity.fingerprint()).to_string();
    let server = TlsServer::new(identity, None).unwrap();
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let mut config = ClientConfig::new(listener.local_addr().to_string(), ServerTrust::Pin(pin));
    config.deadlines = deadlines();
    let thread = thread::spawn(move || {
        let (socket, _) = listener.accept(|| false).unwrap().unwrap();
        let channel = server.accept(socket, Limits::session()).unwrap();
        let mut session = Session::new(Party::Server, Box::new(channel));
        let hello = session.recv(wire::HELLO, Expect::AtMost(1024)).unwrap();
        play(&hello, &mut session);
    });
    let error = refused(&config);
    thread.join().unwrap();
    error
}

#[test]
fn servers_that_are_none() {
    let welcome = |agreement: Digest, bundle_bytes: u32| {
        Reply::Welcome(wire::Welcome {
            nonce: [2; 32],
            agreement,
            bundle: Digest([3; 32]),
            bundle_bytes,
            max_tokens: 8,
            max_pass_tokens: 256,
            max_texts: 8,
            table: None,
            index: None,
            answers: Default::default(),
            prefix: None,
            max_ahead: 0,
            max_drafts: 0,
        })
        .encode()
    };
    let agreement = hushed_serve::bundle::agreement_hash().unwrap();

    let error = against(|s| s.send(wire::REPLY, b"what?").unwrap());
    assert!(matches!(error, ServeError::Malformed { .. }), "{error}");
    let error = against(|s| s.abort(77));
    assert_eq!(error.category(), Category::Network);
    let error = against(|_| ());
    assert!(matches!(error, ServeError::Net(NetError::PeerGone)), "{error}");
    let mut later = Reply::Refused(Refusal::OtherVersion { server: 10 }).encode();
    later[4] = 10;
    let error = against(move |s| s.send(wire::REPLY, &later).unwrap());
    assert!(matches!(error, ServeError::Refused(Refusal::OtherVersion { server: 10 })));
    assert_eq!(error.category(), Category::Mismatch);
    let other = welcome(Digest([9; 32]), 10);
    let error = against(move |s| s.send(wire::REPLY, &other).unwrap());
    assert!(matches!(error, ServeError::OtherAgreement { .. }));

    // The bundle is longer than allowed, has other bytes, or is confirmed by somebody else.
    let huge = welcome(agreement, u32::MAX);
    let error = against(move |s| {
        s.send(wire::REPLY, &huge).unwrap();
        s.recv(wire::CONFIRM, Expect::Exactly(33)).unwrap();
        let _ = s.send(BUNDLE, &vec![0; 17 << 20]);
    });
    assert_eq!(error.category(), Category::Network, "{error}");
    let small = welcome(agreement, 10);
    let error = against(move |s| {
        s.send(wire::REPLY, &small).unwrap();
        s.recv(wire::CONFIRM, Expect::Exactly(33)).unwrap();
        s.send(BUNDLE, &[0; 10]).unwrap();
        s.send(wire::READY, &[0; 32]).unwrap();
    });
    assert!(matches!(error, ServeError::WrongConfirmation), "{error}");
}

/// Somebody whom the client trusts relays its frames to the server over another TLS connection.
#[test]
fn a_relay_between_two_tls_connections_is_noticed() {
    let server = Running::start(|_| ());
    let mut far = raw(&server);
    let (told, hear) = mpsc::channel();
    let error = against_with(move |hello, near| {
        far.send(wire::HELLO, hello).unwrap();
        let reply = far.recv(wire::REPLY, Expect::AtMost(1024)).unwrap();
        near.send(wire::REPLY, &reply).unwrap();
        let confirm = near.recv(wire::CONFIRM, Expect::Exactly(33)).unwrap();
        far.send(wire::CONFIRM, &confirm).unwrap();
        told.send(far.recv(BUNDLE, Expect::AtMost(16 << 20))).unwrap();
    });
    assert_eq!(error.category(), Category::Network);
    assert!(matches!(hear.recv().unwrap(), Err(NetError::PeerAborted { .. })));
}

/// Relays one connection to the server, but only this many bytes each way; then it breaks off or falls silent.
struct Cut {
    address: SocketAddr,
    up: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
    silent: Arc<AtomicBool>,
}

impl Cut {
    fn before(server: SocketAddr, up: u64, down: u64, falls_silent: bool) -> Cut {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let cut = Cut { address, up: Arc::default(), down: Arc::default(), silent: Arc::default() };
        let (up_count, down_count) = (Arc::clone(&cut.up), Arc::clone(&cut.down));
        let hush = Arc::clone(&cut.silent);
        thread::spawn(move || {
            let (near, _) = listener.accept().unwrap();
            let far = TcpStream::connect(server).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| relay(&far, &near, down, falls_silent, &down_count, &hush));
                relay(&near, &far, up, falls_silent, &up_count, &hush);
            });
        });
        cut
    }
}

fn relay(
    mut from: &TcpStream,
    mut to: &TcpStream,
    limit: u64,
    falls_silent: bool,
    count: &AtomicU64,
    silent: &AtomicBool,
) {
    let mut buffer = vec![0; 16 << 10];
    let mut left = limit;
    loop {
        let most = buffer.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        if most == 0 || silent.load(Ordering::SeqCst) {
            break;
        }
        let Ok(got @ 1..) = from.read(&mut buffer[..most]) else {
            break;
        };
        if to.write_all(&buffer[..got]).is_err() {
            break;
        }
        left -= got as u64;
        count.fetch_add(got as u64, Ordering::SeqCst);
    }
    if falls_silent && left == 0 {
        // Neither end hears anything more, though both connections stay open until the peers give up.
        silent.store(true, Ordering::SeqCst);
        while matches!(from.read(&mut buffer), Ok(1..)) {}
        return;
    }
    if !silent.load(Ordering::SeqCst) {
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}

fn through(config: &ClientConfig, cut: &Cut) -> Result<(), ServeError> {
    let mut config = config.clone();
    config.server = cut.address.to_string();
    let mut client = Client::connect(&config)?;
    client.embed(&["hello private world"], TooLong::Refuse, None)?;
    client.close().map(drop)
}

/// Bytes of a whole session of one text: those that the client sends and those that it receives.
fn whole(server: &Running) -> (u64, u64) {
    let cut = Cut::before(server.address, u64::MAX, u64::MAX, false);
    through(&server.client(), &cut).unwrap();
    let read = |count: &AtomicU64| count.load(Ordering::SeqCst);
    (read(&cut.up), read(&cut.down))
}

/// Tries until the server's only place is free; the session that had it has just ended.
fn once_admitted<T>(mut attempt: impl FnMut() -> Result<T, ServeError>) -> Result<T, ServeError> {
    let mut result = attempt();
    eventually("the place is free", || match result {
        Err(ServeError::Refused(Refusal::TooManySessions { .. })) => {
            result = attempt();
            false
        }
        _ => true,
    });
    result
}

#[test]
fn a_peer_that_breaks_off_anywhere_is_noticed_by_the_other() {
    let server = Running::start(|c| c.entrance.max_sessions = 1);
    let (all_up, all_down) = whole(&server);
    // In the TLS handshake, in the greeting, in keys, in correlations, in the text.
    let early = [0, 1, 700, 1500, 2000, 2200, 2400, 10_000, 500_000];
    let late = |all: u64| [8, 9, 12, 14, 15].map(|part| all / 16 * part);
    let up = early.into_iter().chain(late(all_up));
    let down = early.into_iter().chain(late(all_down));
    let cuts = up.map(|up| (up, u64::MAX)).chain(down.map(|down| (u64::MAX, down)));
    for (up, down) in cuts {
        // A client of its own each time: one alone is refused after three failures.
        let cache = tempfile::tempdir().unwrap();
        let mut config = server.client();
        config.cache_dir = Some(cache.path().to_owned());
        let ended = once_admitted(|| {
            let cut = Cut::before(server.address, up, down, false);
            through(&config, &cut)
        });
        let error = ended.expect_err("a session that was cut off");
        assert_eq!(error.category(), Category::Network, "{up} {down}: {error}");
    }
    once_admitted(|| server.connect()).map(drop).unwrap();
}

#[test]
fn a_peer_that_falls_silent_is_given_up() {
    let server = Running::start(|c| {
        c.entrance.max_sessions = 1;
        c.entrance.deadlines.silence = Duration::from_secs(2);
        c.entrance.deadlines.handshake = Duration::from_secs(2);
    });
    let mut config = server.client();
    config.deadlines.silence = Duration::from_secs(2);
    config.deadlines.handshake = Duration::from_secs(2);
    let (all, _) = whole(&server);
    // In the handshake, in the keys, in the text.
    for up in [1000, all / 4, all / 10 * 9] {
        let ended = once_admitted(|| {
            let cut = Cut::before(server.address, up, u64::MAX, true);
            let ended = through(&config, &cut);
            assert_eq!(cut.silent.load(Ordering::SeqCst), !matches!(ended, Err(ServeError::Refused(_))),);
            ended
        });
        let error = ended.expect_err("a session that fell silent");
        assert_eq!(error.category(), Category::Network, "{up}: {error}");
    }
    once_admitted(|| server.connect()).map(drop).unwrap();
}

#[test]
fn an_idle_client_loses_its_place() {
    let server = Running::start(|c| {
        c.entrance.max_sessions = 1;
        c.entrance.deadlines.idle = Duration::from_secs(1);
    });
    let mut idle = server.connect().unwrap();
    eventually("its place is free again", || server.connect().is_ok());
    assert!(idle.embed(&["hello"], TooLong::Refuse, None).is_err());
}

/// 500 sockets from one address or from 200 say nothing and are reopened when they are closed; a client that says hello
/// gets in all the same.
#[cfg(target_os = "linux")]
#[test]
fn f4_silent_connections_do_not_keep_a_client_out() {
    let one = vec![Ipv4Addr::new(127, 0, 1, 1)];
    let many: Vec<Ipv4Addr> = (0..200).map(|n| Ipv4Addr::new(127, 0, 2, n)).collect();
    for from in [one, many] {
        let server = Running::start(|_| ());
        let addresses = from.len();
        let flood = Flood::start(server.address, from, 500);
        eventually("they are there", || flood.opened() >= 1000);
        for n in 0..4 {
            let client = server.connect();
            let error = client.as_ref().err().map(ToString::to_string);
            assert!(error.is_none(), "{addresses} addresses, {n}: {error:?}");
            client.unwrap().close().unwrap();
        }
        // The flood went on all the while.
        let before = flood.opened();
        assert_serves(&server);
        eventually("they are renewed", || flood.opened() > before);
    }
}

#[test]
fn the_client_carries_its_marker() {
    // In two halves, or the search would find this constant.
    let marker = ["hushed-serve client", " is here"].concat();
    let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert!(bytes.windows(marker.len()).any(|w| w == marker.as_bytes()));
}
