//! Two sessions of each party side by side over one channel.

use crate::common;
use std::thread;
use std::time::Duration;

use hushed_net::{Expect, Kind, NetError, PeerFault, Session};

const K: Kind = Kind(7);

/// Runs the two parts of a party, each in a thread of its own, and joins them.
fn beside<A: Send, B: Send>(
    s: &mut Session,
    main: impl FnOnce(&mut Session) -> A + Send,
    branch: impl FnOnce(&mut Session) -> B + Send,
) -> Result<(A, B), NetError> {
    let mut side = s.branch()?;
    let (a, (b, side)) = thread::scope(|scope| {
        let side = scope.spawn(move || {
            let b = branch(&mut side);
            side.done();
            (b, side)
        });
        let a = main(s);
        s.done();
        (a, side.join().unwrap())
    });
    s.join(side)?;
    Ok((a, b))
}

/// `count` exchanges, each of which checks what comes; returns the last byte of each.
fn exchanges(s: &mut Session, count: u8, mark: u8, length: usize) -> Vec<u8> {
    let one = |i: u8| {
        let mut payload = vec![mark; length];
        payload.push(i);
        let got = s.exchange(K, &payload, Expect::Exactly(length + 1)).unwrap();
        assert_eq!(got, payload);
        i
    };
    (0..count).map(one).collect()
}

fn sessions() -> [(Session, Session); 4] {
    [common::memory(), common::shaped(common::memory()), common::tcp(), common::tls()]
}

#[test]
fn both_run_with_steps_of_their_own_and_one_transcript() {
    for pair in sessions() {
        let run = |mut s: Session| {
            exchanges(&mut s, 2, 1, 3);
            for _ in 0..2 {
                let before = s.stats();
                // One asks and answers often, the other seldom and at length.
                let parts = beside(&mut s, |s| exchanges(s, 9, 2, 10), |s| exchanges(s, 3, 3, 200_000)).unwrap();
                assert_eq!((parts.0.len(), parts.1.len()), (9, 3));
                let part = s.stats().since(&before);
                assert_eq!((part.frames_sent, part.frames_received, part.rounds), (12, 12, 9));
                assert_eq!(part.bytes_sent, 9 * (20 + 11) + 3 * (20 + 200_001));
            }
            exchanges(&mut s, 2, 4, 3);
            s.transcript_hash()
        };
        let (client, server) = common::both(pair, run, run);
        assert_eq!(client, server);
    }
}

#[test]
fn a_part_may_have_nothing_to_send() {
    for pair in sessions() {
        let run = |mut s: Session| {
            beside(&mut s, |_| (), |s| exchanges(s, 2, 1, 5)).unwrap();
            beside(&mut s, |s| exchanges(s, 2, 1, 5), |_| ()).unwrap();
            s.transcript_hash()
        };
        let (client, server) = common::both(pair, run, run);
        assert_eq!(client, server);
    }
}

/// More than is taken for a session that does not ask: it stays in the channel until that one does.
#[test]
fn a_long_frame_waits_for_its_session() {
    const LONG: usize = 70 << 20;
    let (near, far) = common::tcp();
    let (done, began) = std::sync::mpsc::channel::<()>();
    let client = move |mut s: Session| {
        beside(&mut s, |s| s.send(K, &[1]), |s| s.send_vec(K, vec![5; LONG]))
            .map(|(a, b)| (a.unwrap(), b.unwrap()))
            .unwrap();
    };
    let server = move |mut s: Session| {
        let main = |s: &mut Session| {
            let got = s.recv(K, Expect::Exactly(1)).unwrap();
            done.send(()).unwrap();
            got
        };
        // The long frame is asked for when the short one has come, whichever was first.
        let branch = move |s: &mut Session| {
            began.recv_timeout(Duration::from_millis(300)).ok();
            s.recv(K, Expect::Exactly(LONG)).unwrap().len()
        };
        assert_eq!(beside(&mut s, main, branch).unwrap(), (vec![1], LONG));
    };
    common::both((near, far), client, server);
}

#[test]
fn a_peer_that_vanishes_ends_both() {
    for (near, far) in sessions() {
        let client = |mut s: Session| {
            // Both wait for what never comes.
            let parts = |s: &mut Session| s.recv(K, Expect::AtMost(9));
            beside(&mut s, parts, parts)
        };
        let (left, ()) = common::both((near, far), client, |mut s| {
            let branch = s.branch().unwrap();
            drop((branch, s));
        });
        assert_eq!(left, Err(NetError::PeerGone));
    }
}

/// One that fails takes the other with it, and the session answers nothing any more.
#[test]
fn the_failure_of_one_ends_the_other() {
    let (near, far) = common::tcp();
    let client = |mut s: Session| {
        let mut side = s.branch().unwrap();
        let failed = thread::scope(|scope| {
            scope
                .spawn(move || {
                    let wrong = s_fault(side.recv(K, Expect::Exactly(2)));
                    drop(side);
                    wrong
                })
                .join()
                .unwrap()
        });
        assert!(failed);
        assert_eq!(s.recv(K, Expect::Exactly(1)), Err(NetError::Closed));
        assert_eq!(s.send(K, &[]), Err(NetError::Closed));
    };
    common::both((near, far), client, |mut s| {
        let mut side = s.branch().unwrap();
        side.send(K, &[1]).unwrap();
        s.flush().unwrap();
        side.recv(K, Expect::AtMost(1)).unwrap_err();
    });

    let (near, _far) = common::memory();
    let mut s = near;
    let mut side = s.branch().unwrap();
    s.abandon_branch();
    assert_eq!(side.recv(K, Expect::Exactly(1)), Err(NetError::Closed));
}

fn s_fault(result: Result<Vec<u8>, NetError>) -> bool {
    matches!(result, Err(NetError::PeerMisbehaved(PeerFault::WrongLength { .. })))
}

#[test]
fn both_waiting_for_ever_is_noticed_in_memory() {
    let run = |mut s: Session| {
        let wait = |s: &mut Session| s.recv(K, Expect::Exactly(1));
        beside(&mut s, wait, wait)
    };
    let (client, server) = common::both(common::memory(), run, run);
    assert!([&client, &server].iter().any(|end| **end == Err(NetError::BothReceiving)), "{client:?} {server:?}");
}

#[test]
fn what_nobody_asked_for_is_a_fault() {
    let client = |mut s: Session| beside(&mut s, |s| s.recv(K, Expect::Exactly(1)), |_| ()).map(drop);
    let server = |mut s: Session| {
        let mut side = s.branch().unwrap();
        side.send(K, &[9]).unwrap();
        s.send(K, &[1]).unwrap();
        s.join(side).unwrap();
    };
    let (left, ()) = common::both(common::memory(), client, server);
    assert_eq!(left, Err(PeerFault::Unasked.into()));
}

/// The reader stands at a frame that nobody will take: the part that waits ends, whether or not the peer goes on.
#[test]
fn a_long_frame_for_a_part_that_is_done_ends_the_other() {
    const LONG: usize = 70 << 20;
    for branch_waits in [false, true] {
        let client = move |mut s: Session| {
            let wait = |s: &mut Session| s.recv(K, Expect::Exactly(1)).map(drop);
            match branch_waits {
                true => beside(&mut s, |_| (), wait).map(drop),
                false => beside(&mut s, wait, |_| ()).map(drop),
            }
        };
        let server = move |mut s: Session| {
            let mut side = s.branch().unwrap();
            let to = if branch_waits { &mut s } else { &mut side };
            to.send_vec(K, vec![5; LONG]).ok();
            // Keeps the connection open.
            side.recv(K, Expect::AtMost(1)).unwrap_err();
        };
        let (left, ()) = common::both(common::tcp(), client, server);
        assert_eq!(left, Err(PeerFault::Unasked.into()), "{branch_waits}");
    }
}

#[test]
fn a_session_has_one_branch_at_a_time() {
    let (mut s, _far) = common::memory();
    let (mut other, _end) = common::memory();
    let mut side = s.branch().unwrap();
    assert_eq!(side.branch().err(), Some(NetError::Divided));
    assert_eq!(s.branch().err(), Some(NetError::Divided));
    assert_eq!(other.join(side), Err(NetError::Divided));
}
