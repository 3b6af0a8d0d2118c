//! One suite of promises, kept by every kind of channel.

use std::time::Duration;

use crate::common;
use hushed_net::{Expect, Kind, NetError, PeerFault, Session};

use crate::common::both;

const K: Kind = Kind(7);
const HEADER: u64 = 20;

type Pair = fn() -> (Session, Session);

/// A payload whose bytes depend on its length and on `salt`.
fn bytes(length: usize, salt: usize) -> Vec<u8> {
    (0..length).map(|i| (i.wrapping_mul(131) ^ (i >> 8) ^ length ^ salt) as u8).collect()
}

/// Lengths around every internal boundary: header, hashed payload, chunk, record, first piece.
fn every_length_arrives(pair: Pair) {
    let lengths =
        [0, 1, 20, 4095, 4096, 4097, 16384, 65515, 65516, 65517, 65536, 131_052, (1 << 20) - 1, (1 << 20) + 1, 3 << 20];
    both(
        pair(),
        |mut s| {
            for n in lengths {
                s.send(K, &bytes(n, 0)).unwrap();
                assert_eq!(s.recv(K, Expect::Exactly(n)).unwrap(), bytes(n, 1));
            }
        },
        |mut s| {
            for n in lengths {
                assert_eq!(s.recv(K, Expect::AtMost(n)).unwrap(), bytes(n, 0));
                s.send(K, &bytes(n, 1)).unwrap();
            }
        },
    );
}

fn both_send_64_mib_at_once(pair: Pair) {
    const N: usize = 64 << 20;
    let play = |mut s: Session| {
        // One frame, then 64 frames before anything is received.
        let whole = bytes(N, 2);
        s.send_vec(K, whole.clone()).unwrap();
        assert!(s.recv(K, Expect::Exactly(N)).unwrap() == whole);
        for part in whole.chunks(1 << 20) {
            s.send(K, part).unwrap();
        }
        for part in whole.chunks(1 << 20) {
            assert!(s.recv(K, Expect::Exactly(part.len())).unwrap() == part);
        }
        s.stats().bytes_sent
    };
    let (a, b) = both(pair(), play, play);
    assert_eq!((a, b), ((2 * N) as u64 + 65 * HEADER, (2 * N) as u64 + 65 * HEADER));
}

fn counters_and_transcripts_agree(pair: Pair) {
    let (client, server) = both(
        pair(),
        |mut s| {
            s.send(K, &bytes(100, 0)).unwrap();
            s.send(Kind(8), &bytes(10_000, 0)).unwrap();
            s.recv(K, Expect::Exactly(3)).unwrap();
            let before = s.stats();
            s.exchange(Kind(9), &bytes(5, 3), Expect::Exactly(6)).unwrap();
            let step = s.stats().since(&before);
            assert_eq!((step.bytes_sent, step.bytes_received, step.rounds), (HEADER + 5, HEADER + 6, 1));
            (s.stats(), s.transcript_hash(), s.exporter(b"x"))
        },
        |mut s| {
            s.recv(K, Expect::Exactly(100)).unwrap();
            s.recv(Kind(8), Expect::Exactly(10_000)).unwrap();
            s.send(K, &bytes(3, 0)).unwrap();
            s.exchange(Kind(9), &bytes(6, 3), Expect::Exactly(5)).unwrap();
            (s.stats(), s.transcript_hash(), s.exporter(b"x"))
        },
    );
    assert_eq!((client.0.bytes_sent, client.0.bytes_received), (3 * HEADER + 10_105, 2 * HEADER + 9));
    assert_eq!((server.0.bytes_sent, server.0.bytes_received), (2 * HEADER + 9, 3 * HEADER + 10_105));
    assert_eq!((client.0.frames_sent, client.0.frames_received), (3, 2));
    // The client closes a round at each receive; the server only received before it sent, then exchanged.
    assert_eq!((client.0.rounds, server.0.rounds), (2, 1));
    assert_eq!(client.1, server.1);
    assert_eq!(client.2, server.2);
}

fn transcripts_differ_when_a_payload_does(pair: Pair) {
    let run = |payload: &[u8]| {
        let (sent, received) = both(
            pair(),
            |mut s| {
                s.send(K, payload).unwrap();
                s.flush().unwrap();
                s.transcript_hash()
            },
            |mut s| {
                s.recv(K, Expect::AtMost(9)).unwrap();
                s.transcript_hash()
            },
        );
        assert_eq!(sent, received);
        sent
    };
    assert_eq!(run(b"one"), run(b"one"));
    assert_ne!(run(b"one"), run(b"two"));
}

/// What the client sends, what the server expects, and what error the server gets.
fn a_wrong_step_is_refused(pair: Pair) {
    let fault = |kind: Kind, length: usize, expect: Expect| {
        both(
            pair(),
            |mut s| {
                s.send(K, &[]).unwrap();
                s.send(kind, &bytes(length, 0)).unwrap();
                // The server ends the session without an answer.
                assert_eq!(s.recv(K, Expect::AtMost(0)), Err(NetError::PeerGone));
            },
            |mut s| {
                s.recv(K, Expect::AtMost(0)).unwrap();
                let first = s.recv(K, expect);
                // An error stays the same.
                assert_eq!(s.recv(K, expect), first);
                assert_eq!(s.send(K, &[]), first.clone().map(drop));
                first
            },
        )
        .1
    };
    let misbehaved = |fault: PeerFault| Err(NetError::PeerMisbehaved(fault));
    assert_eq!(
        fault(Kind(8), 4, Expect::Exactly(4)),
        misbehaved(PeerFault::UnexpectedKind { step: 1, expected: K, got: Kind(8) })
    );
    assert_eq!(fault(K, 3, Expect::Exactly(4)), misbehaved(PeerFault::WrongLength { step: 1, expected: 4, got: 3 }));
    for expect in [Expect::Exactly(4), Expect::AtMost(4)] {
        assert_eq!(fault(K, 5, expect), misbehaved(PeerFault::FrameTooLong { length: 5, limit: 4 }));
    }
}

fn an_abort_says_its_code_and_nothing_else(pair: Pair) {
    both(
        pair(),
        |mut s| {
            s.send(K, b"last").unwrap();
            s.abort(42);
            assert_eq!(s.send(K, b"more"), Err(NetError::Closed));
        },
        |mut s| {
            s.recv(K, Expect::Exactly(4)).unwrap();
            assert_eq!(s.recv(K, Expect::AtMost(9)), Err(NetError::PeerAborted { code: 42 }));
            assert_eq!(s.send(K, b"late"), Err(NetError::PeerAborted { code: 42 }));
        },
    );
}

fn a_sender_learns_of_an_abort_too(pair: Pair) {
    both(
        pair(),
        |mut s| s.abort(3),
        |mut s| {
            let failure = (0..1 << 20).find_map(|_| s.send(K, &[0; 4096]).err());
            assert_eq!(failure, Some(NetError::PeerAborted { code: 3 }));
        },
    );
}

/// A look takes nothing, and reports the peer's end.
fn a_look_says_whether_a_frame_has_come(pair: Pair) {
    const LONG: Duration = Duration::from_secs(60);
    both(
        pair(),
        |mut s| {
            s.send(K, b"now").unwrap();
            s.recv(K, Expect::Exactly(4)).unwrap();
            s.abort(5);
        },
        |mut s| {
            assert_eq!((s.arrived(LONG), s.arrived(LONG)), (Ok(true), Ok(true)));
            s.recv(K, Expect::Exactly(3)).unwrap();
            assert_eq!(s.arrived(Duration::ZERO), Ok(false));
            s.send(K, b"then").unwrap();
            assert_eq!(s.arrived(LONG), Err(NetError::PeerAborted { code: 5 }));
        },
    );
}

fn a_clean_end_is_clean_on_both_sides(pair: Pair) {
    let (a, b) = both(
        pair(),
        |mut s| {
            s.exchange(K, b"bye", Expect::Exactly(3)).unwrap();
            s.close()
        },
        |mut s| {
            s.exchange(K, b"bye", Expect::Exactly(3)).unwrap();
            s.close()
        },
    );
    assert_eq!((a, b), (Ok(()), Ok(())));
}

/// The last frame of a party that ends right after it must still arrive.
fn what_was_sent_before_the_end_arrives(pair: Pair) {
    const N: usize = 2 << 20;
    both(
        pair(),
        |mut s| s.send(K, &bytes(N, 5)).unwrap(),
        |mut s| {
            assert!(s.recv(K, Expect::Exactly(N)).unwrap() == bytes(N, 5));
            assert_eq!(s.recv(K, Expect::AtMost(9)), Err(NetError::PeerGone));
        },
    );
}

/// The peer vanishes before each step of a small protocol, on either side.
fn a_peer_that_vanishes_at_any_step_is_noticed(pair: Pair) {
    const STEPS: usize = 5;
    let play = |mut s: Session, steps: usize| {
        (0..steps).try_for_each(|i| s.exchange(K, &bytes(i * 30_000, i), Expect::Exactly(i * 30_000)).map(drop))
    };
    for steps in 0..STEPS {
        let (gone, left) = both(pair(), |s| play(s, steps), |s| play(s, STEPS));
        assert_eq!((gone, left), (Ok(()), Err(NetError::PeerGone)), "after {steps} steps");
        let (left, gone) = both(pair(), |s| play(s, STEPS), |s| play(s, steps));
        assert_eq!((gone, left), (Ok(()), Err(NetError::PeerGone)), "after {steps} steps");
    }
}

macro_rules! suite {
    ($($channel:ident: $pair:expr;)*) => {$(
        mod $channel {
            use super::*;
            const PAIR: Pair = || $pair;
            suite!(@tests every_length_arrives both_send_64_mib_at_once counters_and_transcripts_agree
                transcripts_differ_when_a_payload_does a_wrong_step_is_refused an_abort_says_its_code_and_nothing_else
                a_sender_learns_of_an_abort_too a_look_says_whether_a_frame_has_come a_clean_end_is_clean_on_both_sides what_was_sent_before_the_end_arrives
                a_peer_that_vanishes_at_any_step_is_noticed);
        }
    )*};
    (@tests $($test:ident)*) => {$(
        #[test]
        fn $test() {
            super::$test(PAIR);
        }
    )*};
}

suite! {
    memory: common::memory();
    tcp: common::tcp();
    tls: common::tls();
    shaped_memory: common::shaped(common::memory());
    shaped_tcp: common::shaped(common::tcp());
    shaped_tls: common::shaped(common::tls());
}
