//! Tests of the whole source over an in-memory session.

use super::*;
use crate::ot::assert_cot;
use crate::testing::vanishing_pair;
use hushed_net::{NetError, Party, Stats, memory_pair};

/// Bytes of a frame header.
fn header() -> u64 {
    let (mut a, _b) = memory_pair();
    a.send(HELLO, &[]).unwrap();
    a.stats().bytes_sent
}

/// Runs both ends in two threads; returns results and counters.
fn pair<A: Send, B: Send>(
    params: FerretParams,
    client: impl FnOnce(&mut FerretOt, &mut Session) -> A + Send,
    server: impl FnOnce(&mut FerretOt, &mut Session) -> B + Send,
) -> ((A, Stats), (B, Stats)) {
    let (mut c, mut s) = memory_pair();
    std::thread::scope(|scope| {
        let server = scope.spawn(move || {
            let mut rng = SecretRng::insecure_from_seed(1);
            let mut ot = FerretOt::with_params(&mut s, &mut rng, params).unwrap();
            (server(&mut ot, &mut s), s.stats())
        });
        let mut rng = SecretRng::insecure_from_seed(2);
        let mut ot = FerretOt::with_params(&mut c, &mut rng, params).unwrap();
        let out = client(&mut ot, &mut c);
        ((out, c.stats()), server.join().unwrap())
    })
}

/// Enough to pass the first extension and one later one of the smallest set.
const MANY: [usize; 5] = [1, 0, 100_000, 700_000, 900_000];

#[test]
fn both_directions_correlate_across_extensions() {
    let ((client, _), (server, _)) = pair(
        FerretParams::K16,
        |ot, s| {
            let mut got = Vec::new();
            for n in MANY {
                got.push((ot.send(s, n).unwrap(), ot.recv(s, n / 10).unwrap()));
            }
            got
        },
        |ot, s| {
            let mut got = Vec::new();
            for n in MANY {
                let recv = ot.recv(s, n).unwrap();
                got.push((ot.send(s, n / 10).unwrap(), recv));
            }
            got
        },
    );
    let (mut index, mut ones, mut total) = (0, 0, 0);
    for (((c_send, c_recv), (s_send, s_recv)), n) in client.iter().zip(&server).zip(MANY) {
        assert_eq!((c_send.len(), s_send.len()), (n, n / 10));
        assert_cot(c_send, s_recv);
        assert_cot(s_send, c_recv);
        assert_eq!(c_send.first_index, index);
        index += n as u64;
        ones += s_recv.blocks.iter().filter(|b| b.lsb()).count();
        total += n;
    }
    // Six standard deviations of a fair coin.
    let off = (ones as f64 - total as f64 / 2.0).abs();
    assert!(off < 3.0 * (total as f64).sqrt(), "{ones} of {total}");
    assert!(client[0].0.delta != server[0].0.delta, "each direction has its own delta");

    let mut all: Vec<u128> = client.iter().flat_map(|(s, _)| &s.blocks).map(|b| b.0).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), total, "no block is handed out twice");
}

#[test]
fn traffic_is_the_declared_formula() {
    let params = FerretParams::K16;
    let n = 2 * (params.outputs() - params.inputs());
    let ((_, client), (_, server)) = pair(
        params,
        |ot, s| {
            ot.send(s, n).unwrap();
        },
        |ot, s| {
            ot.recv(s, n).unwrap();
        },
    );
    let extensions = 2;
    let frames = params.trees().div_ceil(32) * extensions;
    let trees = (params.message_bytes() * extensions) as u64;
    assert_eq!(client.frames_sent, 2 + frames as u64);
    assert_eq!(client.bytes_sent, (HELLO_BYTES + start::POINTS_BYTES) as u64 + trees + client.frames_sent * header());
    let columns = start::columns_bytes(FIRST.inputs());
    assert_eq!(server.frames_sent, 3);
    assert_eq!(server.bytes_sent, (HELLO_BYTES + start::FIRST_BYTES + columns) as u64 + 3 * header());
    assert_eq!(columns, 284_416, "0.28 MB a direction and session");
}

#[test]
fn equal_secrets_in_another_session_give_other_blocks() {
    // Both runs use the same test seeds for everything secret; only the transcript differs.
    let run = |marker: u8| {
        let (mut c, mut s) = memory_pair();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || {
                s.send(HELLO, &[marker]).unwrap();
                let mut rng = SecretRng::insecure_from_seed(1);
                let mut ot = FerretOt::new(&mut s, &mut rng).unwrap();
                ot.recv(&mut s, 1000).unwrap()
            });
            c.recv(HELLO, Expect::Exactly(1)).unwrap();
            let mut rng = SecretRng::insecure_from_seed(2);
            let mut ot = FerretOt::new(&mut c, &mut rng).unwrap();
            let send = ot.send(&mut c, 1000).unwrap();
            assert_cot(&send, &server.join().unwrap());
            send
        })
    };
    let (a, b) = (run(1), run(2));
    assert!(a.blocks.iter().all(|x| !b.blocks.contains(x)));
}

#[test]
fn another_set_at_the_peer_is_refused() {
    let (mut c, mut s) = memory_pair();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rng = SecretRng::insecure_from_seed(1);
            assert!(FerretOt::with_params(&mut s, &mut rng, FerretParams::K17).is_err());
        });
        let mut rng = SecretRng::insecure_from_seed(2);
        assert!(FerretOt::new(&mut c, &mut rng).is_err());
    });
}

/// A hello of the previous version, whose last byte was only the number of the set.
#[test]
fn f3_an_old_peer_is_refused() {
    let (mut c, mut s) = memory_pair();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut hello = [7; HELLO_BYTES];
            hello[HELLO_BYTES - 1] = FerretParams::K16.id();
            let _ = s.exchange(HELLO, &hello, Expect::Exactly(HELLO_BYTES));
        });
        let mut rng = SecretRng::insecure_from_seed(2);
        let refused = FerretOt::with_params(&mut c, &mut rng, FerretParams::K16);
        assert!(matches!(refused, Err(TwopcError::PeerMisbehaved { .. })));
    });
}

/// Unused OTs are in memory on both sides of a fork: only the process that made them hands them out.
#[cfg(unix)]
#[test]
fn fork_refuses_a_source_of_the_parent() {
    use hushed_math::process::{Child, in_child};
    let ((sent, _), (received, _)) = pair(
        FerretParams::K16,
        |ot, s| {
            ot.send(s, 10).unwrap();
            let seen = in_child(|| u8::from(ot.send(s, 10).is_ok() || ot.recv(s, 10).is_ok()));
            assert_eq!(seen, Child::Code(0));
            ot.send(s, 10).unwrap()
        },
        |ot, s| {
            ot.recv(s, 10).unwrap();
            ot.recv(s, 10).unwrap()
        },
    );
    assert_cot(&sent, &received);
}

#[test]
fn the_default_set_extends_itself() {
    let ((send, _), (recv, _)) = pair(
        FerretParams::DEFAULT,
        |ot, s| (ot.send(s, 1_000_000).unwrap(), ot.send(s, 2_000_000).unwrap()),
        |ot, s| (ot.recv(s, 1_000_000).unwrap(), ot.recv(s, 2_000_000).unwrap()),
    );
    assert_cot(&send.0, &recv.0);
    assert_cot(&send.1, &recv.1);
}

/// Neither direction of a source that has failed gives any more OTs.
fn assert_stays_failed(mut ot: FerretOt, s: &mut Session) {
    for _ in 0..2 {
        assert!(matches!(ot.send(s, 1), Err(TwopcError::SourceFailed)));
        assert!(matches!(ot.recv(s, 1), Err(TwopcError::SourceFailed)));
    }
}

#[test]
fn a_start_that_failed_is_not_repeated() {
    let (mut c, mut s) = memory_pair();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rng = SecretRng::insecure_from_seed(1);
            FerretOt::new(&mut s, &mut rng).unwrap();
            // Not group elements.
            s.send(BASE, &[0xff; start::FIRST_BYTES]).unwrap();
        });
        let mut rng = SecretRng::insecure_from_seed(2);
        let mut ot = FerretOt::new(&mut c, &mut rng).unwrap();
        let first = ot.send(&mut c, 10);
        assert!(matches!(first, Err(TwopcError::PeerMisbehaved { .. })));
        assert_stays_failed(ot, &mut c);
    });
}

#[test]
fn a_failed_extension_ends_the_source() {
    let (mut c, mut s) = memory_pair();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut rng = SecretRng::insecure_from_seed(1);
            let mut ot = FerretOt::new(&mut s, &mut rng).unwrap();
            ot.send(&mut s, 10).unwrap();
            // The second step of the extension, which the peer will need, is missing.
            s.send(HELLO, &[]).unwrap();
        });
        let mut rng = SecretRng::insecure_from_seed(2);
        let mut ot = FerretOt::new(&mut c, &mut rng).unwrap();
        ot.recv(&mut c, 10).unwrap();
        let more = ot.recv(&mut c, 1 << 20);
        assert!(matches!(more, Err(TwopcError::Net(_))));
        assert_stays_failed(ot, &mut c);
    });
}

/// Base OTs, seeds, extensions: whichever frame a killed peer fails to send first, the other ends with an error that
/// says so.
#[test]
fn a_peer_that_vanishes_before_any_frame_is_reported() {
    const COTS: usize = 100_000;
    let work = |mut s: Session| {
        let mut rng = SecretRng::insecure_from_seed(s.party() as u64);
        let mut ot = FerretOt::with_params(&mut s, &mut rng, FerretParams::K16)?;
        match s.party() {
            Party::Client => ot.send(&mut s, COTS).and(ot.recv(&mut s, COTS).map(drop))?,
            Party::Server => ot.recv(&mut s, COTS).and(ot.send(&mut s, COTS).map(drop))?,
        }
        Ok::<_, TwopcError>(s.stats().frames_sent)
    };
    let both = |victim, frames| {
        let (client, server) = vanishing_pair(victim, frames);
        std::thread::scope(|scope| {
            let server = scope.spawn(move || work(server));
            (work(client), server.join().unwrap())
        })
    };
    let (client, server) = both(Party::Client, u64::MAX);
    let frames = (client.unwrap(), server.unwrap());
    assert!(frames.0 > 3 && frames.1 > 3);
    for frame in 0..frames.0 {
        let survivor = both(Party::Client, frame).1;
        assert!(gone(&survivor), "client, {frame}: {survivor:?}");
    }
    for frame in 0..frames.1 {
        let survivor = both(Party::Server, frame).0;
        assert!(gone(&survivor), "server, {frame}: {survivor:?}");
    }
}

fn gone<T>(ended: &Result<T, TwopcError>) -> bool {
    matches!(ended, Err(TwopcError::Net(NetError::PeerGone)))
}

/// The attack on delta in a session: a client that flips one bit of its columns and keeps to the protocol otherwise.
/// The server hands out no OT, says the same whatever was bent, and its source stays failed.
#[test]
fn h1_a_client_that_bends_its_columns_gets_no_ots() {
    for bit in [8 * 6000, 8 * 100_000 + 3] {
        let (mut c, mut s) = memory_pair();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut rng = SecretRng::insecure_from_seed(1);
                let ot = FerretOt::new(&mut c, &mut rng).unwrap();
                let id = ot.direction_id(Party::Server, b"base");
                let start = StartReceiver::new(id, &mut rng);
                c.send(BASE, start.message()).unwrap();
                let points = c.recv(POINTS, Expect::Exactly(start::POINTS_BYTES));
                let made = start.finish(&points.unwrap(), FIRST.inputs(), &mut rng);
                let (_, mut columns) = made.unwrap();
                columns[bit / 8] ^= 1 << (bit % 8);
                c.send_vec(COLUMNS, columns).unwrap();
            });
            let mut rng = SecretRng::insecure_from_seed(2);
            let mut ot = FerretOt::new(&mut s, &mut rng).unwrap();
            let error = ot.send(&mut s, 10).err().unwrap();
            assert!(crate::ot::is_cheated(&error), "{error}");
            assert_stays_failed(ot, &mut s);
        });
    }
}

/// Honest parties pass checks in any number, with and without OTs in between.
#[test]
fn checks_pass_between_honest_parties() {
    let run = |ot: &mut FerretOt, s: &mut Session| {
        ot.check(s).unwrap();
        ot.check(s).unwrap();
        match s.party() {
            Party::Client => drop((ot.send(s, 700_000).unwrap(), ot.recv(s, 1000).unwrap())),
            Party::Server => drop((ot.recv(s, 700_000).unwrap(), ot.send(s, 1000).unwrap())),
        }
        ot.check(s).unwrap();
        let [sent, received] = ot.take_unchecked();
        for sums in [sent, received] {
            assert!(sums.leaves == Block::ZERO && sums.noise == Block::ZERO);
        }
    };
    pair(FerretParams::K16, run, run);
}

/// A party whose sums are wrong, for whatever reason, is refused before anything is opened, and the source ends.
#[test]
fn a_sender_with_wrong_sums_is_refused_at_the_check() {
    for cheat in [Party::Client, Party::Server] {
        let run = |ot: &mut FerretOt, s: &mut Session| {
            ot.check(s).unwrap();
            match s.party() {
                Party::Client => drop((ot.send(s, 50_000).unwrap(), ot.recv(s, 10).unwrap())),
                Party::Server => drop((ot.recv(s, 50_000).unwrap(), ot.send(s, 10).unwrap())),
            }
            if s.party() == cheat
                && let Direction::Running(stock) = &mut ot.sending
            {
                stock.unchecked.leaves ^= Block(1 << 90);
            }
            let checked = ot.check(s);
            if s.party() == cheat {
                checked.unwrap();
            } else {
                assert!(checked.is_err_and(|e| crate::ot::is_cheated(&e)));
                assert!(matches!(ot.send(s, 1), Err(TwopcError::SourceFailed)));
            }
        };
        pair(FerretParams::K16, run, run);
    }
}

/// A receiver chooses its inputs by its trees. If it knew codes and keys by then, it could choose inputs for which two
/// of its blocks have the same unknown pad.
#[test]
fn h1_codes_and_keys_are_drawn_after_the_receivers_last_message() {
    let (mut c, mut s) = memory_pair();
    std::thread::scope(|scope| {
        scope.spawn(move || FerretOt::new(&mut c, &mut SecretRng::insecure_from_seed(1)).unwrap());
        let ot = FerretOt::new(&mut s, &mut SecretRng::insecure_from_seed(2)).unwrap();
        let pad = |columns: &[u8]| {
            let mut pad = [Block::ZERO];
            let stock = ot.stock(Party::Client, Vec::new(), columns);
            stock.hash.pads(0, [Block::ZERO], &[Block(5)], [&mut pad]);
            pad[0]
        };
        assert!(pad(&[1, 2]) == pad(&[1, 2]));
        assert!(pad(&[1, 2]) != pad(&[1, 3]));
    });
}
