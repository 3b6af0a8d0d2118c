//! A session in a process forked from its own. Alone in its file, because a child holds copies of the sockets of all
//! tests that run beside it.

mod common;

use hushed_math::process::{Child, in_child};
use hushed_net::{Expect, Kind, Limits, NetError, Session};

const K: Kind = Kind(11);

fn forked<T>(answer: Result<T, NetError>) -> bool {
    matches!(answer, Err(NetError::Forked))
}

/// What a child finds wrong with its parent's session: the number of the first call that was not refused, or 0.
fn first_wrong(session: &mut Option<Session>) -> u8 {
    let Some(s) = session else { return 100 };
    let refused = [
        forked(s.check_process()),
        forked(s.send(K, b"child")),
        forked(s.recv(K, Expect::AtMost(9))),
        forked(s.exchange(K, b"child", Expect::AtMost(9))),
        forked(s.flush()),
        s.exporter(b"label").is_none(),
    ];
    if let Some(wrong) = refused.iter().position(|refused| !refused) {
        return 1 + wrong as u8;
    }
    // None of these may reach the parent's peer, or wait for threads that the child does not have.
    s.set_limits(Limits::session());
    s.shape(None);
    s.abort(77);
    drop(session.take());
    0
}

#[test]
fn fork_leaves_a_session_to_the_parent() {
    for (name, make) in
        [("memory", common::memory as fn() -> (Session, Session)), ("tcp", common::tcp), ("tls", common::tls)]
    {
        let (client, mut server) = make();
        let mut client = Some(client);
        let seen = in_child(|| first_wrong(&mut client));
        assert_eq!(seen, Child::Code(0), "{name}");
        // The child dropped its copy, and the parent's connection is unaffected.
        let mut client = client.expect("the parent's own");
        assert_eq!(client.check_process(), Ok(()), "{name}");
        for round in 0..3_u8 {
            client.send(K, &[round]).unwrap();
            assert_eq!(server.recv(K, Expect::Exactly(1)).unwrap(), [round]);
            server.send(K, &[round, round]).unwrap();
            let back = client.recv(K, Expect::Exactly(2)).unwrap();
            assert_eq!(back, [round, round], "{name}");
        }
    }
}

#[test]
fn fork_lets_a_child_make_sessions_of_its_own() {
    let seen = in_child(|| {
        let (mut client, mut server) = hushed_net::memory_pair();
        let sent = client.send(K, b"own").is_ok();
        u8::from(!sent || server.recv(K, Expect::Exactly(3)).as_deref() != Ok(b"own"))
    });
    assert_eq!(seen, Child::Code(0));
}
