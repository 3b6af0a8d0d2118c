//! Peers that lie, stall, babble or vanish.

use crate::common;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use hushed_net::channel::tcp;
use hushed_net::{Expect, Kind, Limits, NetError, Party, PeerFault, Session};

const K: Kind = Kind(7);
const SOON: Duration = Duration::from_millis(300);
/// For tests whose peer must not be late: generous towards a busy machine.
const GENEROUS: Duration = Duration::from_millis(1200);

fn patient(silence: Duration) -> Limits {
    Limits { silence, ..Limits::session() }
}

/// A server session and the bare socket of its client.
fn bare(limits: Limits) -> (TcpStream, Session) {
    let (client, server) = common::sockets();
    (client, Session::new(Party::Server, Box::new(tcp::channel(server, limits).unwrap())))
}

fn header(version: u8, class: u8, kind: u16, step: u32, length: u64) -> Vec<u8> {
    [&b"HSHD"[..], &[version, class], &kind.to_le_bytes(), &step.to_le_bytes(), &length.to_le_bytes()].concat()
}

/// The result of a session that expects up to `max` bytes and gets these.
fn answer_to(bytes: &[u8], max: usize) -> Result<Vec<u8>, NetError> {
    let (mut peer, mut session) = bare(Limits::session());
    peer.write_all(bytes).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let answer = session.recv(K, Expect::AtMost(max));
    drop(peer);
    answer
}

fn fault(fault: PeerFault) -> Result<Vec<u8>, NetError> {
    Err(NetError::PeerMisbehaved(fault))
}

#[test]
fn headers_that_no_peer_of_ours_sends() {
    let bad = |field| fault(PeerFault::BadHeader { field });
    let long = |length, limit| fault(PeerFault::FrameTooLong { length, limit });
    let cases = [
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), fault(PeerFault::BadMagic)),
        (vec![0; 20], fault(PeerFault::BadMagic)),
        (vec![0xff; 4096], fault(PeerFault::BadMagic)),
        (header(0, 0, 7, 0, 0), fault(PeerFault::FrameVersion { got: 0, ours: 1 })),
        (header(2, 0, 7, 0, 0), fault(PeerFault::FrameVersion { got: 2, ours: 1 })),
        (header(1, 3, 7, 0, 0), bad("class")),
        (header(1, 255, 7, 0, 0), bad("class")),
        (header(1, 1, 7, 0, 0), bad("kind")),
        (header(1, 1, 0, 1, 0), bad("step")),
        (header(1, 1, 0, 0, 1), bad("length")),
        (header(1, 2, 0, 1, 0), bad("step")),
        (header(1, 2, 0, 0, u64::MAX), bad("length")),
        (header(1, 0, 7, 0, u64::MAX), long(u64::MAX, 1 << 30)),
        (header(1, 0, 7, 0, (1 << 30) + 1), long((1 << 30) + 1, 1 << 30)),
        (header(1, 0, 7, 0, 1 << 30), long(1 << 30, 64)),
        (header(1, 0, 7, 1, 0), fault(PeerFault::UnexpectedStep { expected: 0, got: 1 })),
        (header(1, 0, 7, u32::MAX, 0), fault(PeerFault::UnexpectedStep { expected: 0, got: u32::MAX })),
        (header(1, 0, 8, 0, 0), fault(PeerFault::UnexpectedKind { step: 0, expected: K, got: Kind(8) })),
        (header(1, 2, 9, 0, 0), Err(NetError::PeerAborted { code: 9 })),
    ];
    for (bytes, expected) in cases {
        // The announced gigabyte is refused by the waiting step, not by the read-ahead.
        let answer = answer_to(&bytes, 64);
        assert_eq!(answer, expected, "{bytes:?}");
    }
}

#[test]
fn a_frame_cut_anywhere_is_a_peer_gone() {
    let whole = [header(1, 1, 0, 0, 0), header(1, 0, 7, 0, 11), b"hello there".to_vec()].concat();
    for cut in 0..whole.len() {
        assert_eq!(answer_to(&whole[..cut], 11), Err(NetError::PeerGone), "cut at {cut}");
    }
    assert_eq!(answer_to(&whole, 11).unwrap(), b"hello there");
}

#[test]
fn a_lying_length_costs_no_memory() {
    // A gigabyte is announced and even allowed; a kilobyte arrives.
    let lie = [header(1, 0, 7, 0, 1 << 30), vec![1; 1024]].concat();
    assert_eq!(answer_to(&lie, 1 << 30), Err(NetError::PeerGone));
    // `fuzz::frame`, which sees the buffer, checks the memory bound itself.
    hushed_net::fuzz::frame(&lie);
}

#[test]
fn bytes_that_trickle_in_make_a_frame() {
    let (mut peer, mut session) = bare(Limits::session());
    peer.set_nodelay(true).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            for byte in [header(1, 0, 7, 0, 5), b"hello".to_vec()].concat() {
                peer.write_all(&[byte]).unwrap();
                thread::sleep(Duration::from_millis(2));
            }
        });
        assert_eq!(session.recv(K, Expect::Exactly(5)).unwrap(), b"hello");
    });
    drop(peer);
}

#[test]
fn a_silent_peer_times_out() {
    let (peer, mut session) = bare(patient(SOON));
    assert_eq!(session.recv(K, Expect::AtMost(9)), Err(NetError::Timeout { seconds: 1 }));
    drop(peer);
}

#[test]
fn a_peer_that_stalls_inside_a_frame_times_out() {
    let (mut peer, mut session) = bare(patient(SOON));
    peer.write_all(&header(1, 0, 7, 0, 100)).unwrap();
    peer.write_all(b"some").unwrap();
    assert_eq!(session.recv(K, Expect::AtMost(100)), Err(NetError::Timeout { seconds: 1 }));
    drop(peer);
}

#[test]
fn heartbeats_keep_a_slow_peer_alive_and_are_counted_apart() {
    common::both(
        common::tcp_with(patient(GENEROUS)),
        |mut s| {
            thread::sleep(2 * GENEROUS);
            s.send(K, b"at last").unwrap();
            s.recv(K, Expect::AtMost(0)).unwrap();
        },
        |mut s| {
            assert_eq!(s.recv(K, Expect::AtMost(7)).unwrap(), b"at last");
            let stats = s.stats();
            assert_eq!((stats.bytes_received, stats.frames_received), (27, 1));
            assert!(stats.heartbeat_bytes_received >= 20, "{stats:?}");
            assert_eq!(stats.wire_bytes_received, stats.bytes_received + stats.heartbeat_bytes_received);
            s.send(K, b"").unwrap();
            s.flush().unwrap();
        },
    );
}

#[test]
fn heartbeats_do_not_stretch_an_absolute_deadline() {
    let until = Instant::now().checked_add(SOON);
    let (mut peer, mut session) = bare(Limits { until, ..Limits::before_authentication() });
    thread::scope(|scope| {
        scope.spawn(|| while peer.write_all(&header(1, 1, 0, 0, 0)).is_ok() {});
        assert_eq!(session.recv(K, Expect::AtMost(9)), Err(NetError::OutOfTime));
        drop(session);
    });
}

#[test]
fn a_peer_that_never_reads_stops_the_sender_in_time() {
    let (peer, mut session) = bare(Limits { send_queue: 1 << 16, ..patient(SOON) });
    // Without a receiver only the system's buffers and the queue fill up.
    let failure = (0..4096).find_map(|_| session.send(K, &[0; 1 << 18]).err());
    assert_eq!(failure, Some(NetError::Timeout { seconds: 1 }));
    drop(peer);
}

/// The session is busy for longer than its own patience, while more arrives than it reads ahead.
#[test]
fn read_ahead_is_bounded_and_a_pause_of_our_own_is_not_silence() {
    let limits = Limits { read_ahead: 1 << 16, ..patient(GENEROUS) };
    let (mut peer, mut session) = bare(limits);
    thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..24 {
                peer.write_all(&header(1, 0, 7, step, 1 << 20)).unwrap();
                peer.write_all(&vec![step as u8; 1 << 20]).unwrap();
            }
        });
        for step in 0..24_u8 {
            if step % 12 == 0 {
                thread::sleep(GENEROUS + SOON);
                // Nothing was asked for, so no frame is here, only what the reader and the system buffer.
                assert!(session.stats().wire_bytes_received < (u64::from(step) << 20) + (1 << 18));
            }
            assert!(session.recv(K, Expect::Exactly(1 << 20)).unwrap().iter().all(|byte| *byte == step));
        }
    });
    drop(peer);
}

/// A frame takes memory even without a payload.
#[test]
fn empty_frames_fill_the_read_ahead_by_what_they_cost() {
    const FRAMES: u32 = 60_000;
    let limits = Limits { read_ahead: 1 << 20, ..patient(GENEROUS) };
    let (mut peer, mut session) = bare(limits);
    thread::scope(|scope| {
        scope.spawn(|| {
            for step in 0..FRAMES {
                peer.write_all(&header(1, 0, 7, step, 0)).unwrap();
            }
        });
        thread::sleep(SOON);
        // 2^20 / 128 frames of 20 bytes, and the reader's buffer of 64 KiB.
        let most = (1 << 20) / 128 * 20 + (1 << 16);
        assert!(session.stats().wire_bytes_received <= most);
        for _ in 0..FRAMES {
            session.recv(K, Expect::Exactly(0)).unwrap();
        }
    });
    drop(peer);
}

#[test]
fn both_parties_waiting_in_memory_is_noticed_at_once() {
    let wait = |mut s: Session| s.recv(K, Expect::AtMost(1));
    let (a, b) = common::both(hushed_net::memory_pair(), wait, wait);
    // One of them notices; the other sees that one leave, or notices too.
    assert!(a == Err(NetError::BothReceiving) || b == Err(NetError::BothReceiving), "{a:?} {b:?}");
    for end in [a, b] {
        assert!(matches!(end, Err(NetError::BothReceiving | NetError::PeerGone)));
    }
}

#[test]
fn frames_after_the_last_step_are_a_fault() {
    let (mut peer, session) = bare(Limits::session());
    peer.write_all(&header(1, 0, 7, 0, 0)).unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    let closed = session.close();
    assert_eq!(closed, Err(NetError::PeerMisbehaved(PeerFault::Unasked)));
}

/// A party that says its last word and leaves while the other is still sending must be heard.
#[test]
fn a_last_word_survives_unread_bytes() {
    for _ in 0..20 {
        let (mut peer, mut session) = bare(Limits::session());
        thread::scope(|scope| {
            scope.spawn(|| {
                session.send(K, &vec![5; 3 << 20]).unwrap();
                session.abort(1);
                drop(session);
            });
            // Unasked bytes, before and after the session ends; they need not be accepted.
            let _ = peer.write_all(&header(1, 0, 7, 0, 0).repeat(1000));
            let mut heard = Vec::new();
            let mut piece = vec![0; 1 << 16];
            while let Ok(got @ 1..) = peer.read(&mut piece) {
                heard.extend_from_slice(&piece[..got]);
                let _ = peer.write_all(&header(1, 1, 0, 0, 0));
                if heard.len() == 40 + (3 << 20) {
                    break;
                }
            }
            assert!(heard.ends_with(&header(1, 2, 1, 0, 0)), "{} bytes", heard.len());
            drop(peer);
        });
    }
}
