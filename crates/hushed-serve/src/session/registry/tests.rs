use std::net::{Ipv4Addr, TcpListener};

use super::*;

fn address(n: usize) -> IpAddr {
    let [.., high, low] = u32::try_from(n).unwrap().to_be_bytes();
    Ipv4Addr::new(192, 0, high, low).into()
}

/// One socket stands for all: these tests do not look at whether it is closed.
fn socket() -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    TcpStream::connect(listener.local_addr().unwrap()).unwrap()
}

fn enter<'a>(registry: &'a Registry, socket: &TcpStream, from: IpAddr) -> Entry<'a> {
    match registry.enter(socket, from, false).unwrap() {
        Entered::In { entry, .. } => entry,
        Entered::Full => panic!("there are not so many"),
    }
}

#[test]
fn f4_an_address_is_a_network_of_64_bits() {
    let origin = |text: &str| Origin::of(text.parse().unwrap());
    assert_eq!(origin("2001:db8:1:2::1"), origin("2001:db8:1:2:ffff:1::9"));
    assert_ne!(origin("2001:db8:1:2::1"), origin("2001:db8:1:3::1"));
    assert_eq!(origin("::ffff:192.0.2.1"), origin("192.0.2.1"));
    assert_ne!(origin("192.0.2.1"), origin("192.0.2.2"));
}

#[test]
fn f4_an_address_has_its_share_and_the_oldest_silent_one_goes_first() {
    let (registry, socket) = (Registry::default(), socket());
    let mut all: Vec<_> = (0..SHARE).map(|_| enter(&registry, &socket, address(1))).collect();
    all[0].spoke();
    let other = enter(&registry, &socket, address(2));
    all.push(enter(&registry, &socket, address(1)));
    let lost = |all: &[Entry<'_>]| -> Vec<usize> {
        let lost = all.iter().enumerate();
        lost.filter(|(_, e)| e.was_evicted()).map(|(i, _)| i).collect()
    };
    // The oldest has sent something: a client at that address still gets through.
    assert_eq!(lost(&all), [1]);
    assert!(!other.was_evicted());
    assert!(all[0].admit(4, None).is_ok() && all[1].admit(4, None).is_err());
    // An admitted connection has left the room.
    all.push(enter(&registry, &socket, address(1)));
    assert_eq!(lost(&all), [1]);
    drop((all, other));
    assert_eq!(registry.len(), 0);
}

#[test]
fn f4_a_full_room_takes_from_the_address_with_the_most() {
    let (registry, socket) = (Registry::default(), socket());
    let alone = enter(&registry, &socket, address(0));
    alone.spoke();
    let mut flood = Vec::new();
    // 63 addresses with two connections each fill the room except for one place. 60 more come from them and evict
    // each other.
    for n in (0..126).chain(0..60) {
        flood.push(enter(&registry, &socket, address(1 + n % 63)));
    }
    assert!(!alone.was_evicted());
    let late = enter(&registry, &socket, address(500));
    assert!(!late.was_evicted());
    // Only if every place belongs to a different address does the oldest go, and silent ones still go first.
    for n in 0..2 * ROOM {
        flood.push(enter(&registry, &socket, address(1000 + n)));
        // Their threads notice.
        flood.retain(|entry| !entry.was_evicted());
    }
    assert!(late.was_evicted() && !alone.was_evicted());
    assert_eq!(flood.len(), ROOM - 1);
}

#[test]
fn f4_strangers_do_not_fill_the_reserve() {
    let (registry, socket) = (Registry::default(), socket());
    let first = enter(&registry, &socket, address(7));
    // There is no room for a session, but the address is known all the same.
    assert!(first.admit(0, Some(&Owner::named("ann"))).is_err());
    let known = enter(&registry, &socket, address(7));
    let mut flood = Vec::new();
    for n in 0..4 * ROOM {
        flood.push(enter(&registry, &socket, address(1000 + n)));
        flood.retain(|entry| !entry.was_evicted());
    }
    assert!(first.was_evicted() && !known.was_evicted());
    assert_eq!(flood.len(), ROOM);
}

#[test]
fn l3_a_client_leaves_the_last_session_to_others() {
    let (registry, socket) = (Registry::default(), socket());
    let (ann, bob) = (Owner::named("ann"), Owner::named("bob"));
    let mut open = Vec::new();
    let mut admitted = |client: Option<&Owner>, limit| {
        let entry = enter(&registry, &socket, address(open.len()));
        let admitted = entry.admit(limit, client);
        open.push(entry);
        admitted
    };
    assert_eq!(admitted(Some(&ann), 3), Ok(()));
    assert_eq!(admitted(Some(&ann), 3), Ok(()));
    // From any address.
    assert_eq!(admitted(Some(&ann), 3), Err(Full { limit: 2, own: true }));
    assert_eq!(admitted(Some(&bob), 3), Ok(()));
    assert_eq!(admitted(Some(&bob), 3), Err(Full { limit: 3, own: false }));
    open.clear();
    // With one session in all, anyone may have it; without authentication, all may be one client's.
    let entry = enter(&registry, &socket, address(0));
    assert_eq!(entry.admit(1, Some(&ann)), Ok(()));
    drop(entry);
    let all = [(); 3].map(|()| enter(&registry, &socket, address(0)));
    assert!(all.iter().all(|entry| entry.admit(3, None).is_ok()));
}

#[test]
fn f4_what_is_remembered_is_bounded() {
    let mut state = State::default();
    for n in 0..2 * MOST_KNOWN {
        state.remember(Origin::of(address(n)));
    }
    assert_eq!(state.known.len(), MOST_KNOWN);
    assert!(state.is_known(Origin::of(address(2 * MOST_KNOWN - 1))));
    assert!(!state.is_known(Origin::of(address(0))));
}

#[test]
fn f4_those_that_end_are_bounded_too() {
    let (registry, socket) = (Registry::default(), socket());
    let mut all = Vec::new();
    let full = (0..4 * ENDING).find(|_| match registry.enter(&socket, address(1), false) {
        Ok(Entered::In { entry, .. }) => {
            all.push(entry);
            false
        }
        _ => true,
    });
    assert_eq!(full, Some(SHARE + ENDING));
    all.clear();
    enter(&registry, &socket, address(1));
}
