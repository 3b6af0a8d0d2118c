//! Who sent and who received, in order, at both ends of an in-memory session: a check for declared rounds.

use hushed_net::channel::memory;
use hushed_net::{Party, Session, Stats};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::PoisonError;

use super::end::{End, Event, Events, Seen};

/// The events of both ends of a session.
pub struct Watch {
    client: Events,
    server: Events,
}

/// Two sessions connected in memory, with a record of them: (client, server, watch).
pub fn watched_pair() -> (Session, Session, Watch) {
    let (near, far) = memory::pair();
    let watch = Watch { client: Events::default(), server: Events::default() };
    let session = |party, channel, events: &Events| Session::new(party, Box::new(End::new(channel, events, u64::MAX)));
    (session(Party::Client, near, &watch.client), session(Party::Server, far, &watch.server), watch)
}

impl Watch {
    /// The rounds of a part of the session, as [`Cost::rounds`](crate::cost::Cost::rounds) defines them, between two
    /// snapshots of each end's counters; `None` if something sent in that part is not received in it, as when a party
    /// has broken off.
    pub fn rounds(&self, client: Range<&Stats>, server: Range<&Stats>) -> Option<u64> {
        rounds(&part(&self.client, client), &part(&self.server, server))
    }
}

fn part(events: &Events, between: Range<&Stats>) -> Vec<Seen> {
    let at = |s: &Stats| (s.frames_sent + s.frames_received) as usize;
    let events = events.lock().unwrap_or_else(PoisonError::into_inner);
    events[at(between.start)..at(between.end)].to_vec()
}

/// Rounds of two records: of two sessions side by side, those of the longer one.
fn rounds(client: &[Seen], server: &[Seen]) -> Option<u64> {
    let mut scripts: BTreeMap<(usize, bool), [Vec<Event>; 2]> = BTreeMap::new();
    for (end, record) in [client, server].into_iter().enumerate() {
        for seen in record {
            let script = scripts.entry((seen.section, seen.branch)).or_default();
            script[end].push(seen.event);
        }
    }
    let mut longest: BTreeMap<usize, u64> = BTreeMap::new();
    for ((section, _), [client, server]) in &scripts {
        let turns = turns(client, server)?;
        let most = longest.entry(*section).or_default();
        *most = turns.max(*most);
    }
    Some(longest.values().sum())
}

/// Rounds of two scripts walked through side by side: a run of messages one way is one round, and so are two runs that
/// cross.
fn turns(mut client: &[Event], mut server: &[Event]) -> Option<u64> {
    let mut turns = 0;
    while !(client.is_empty() && server.is_empty()) {
        match (client.first(), server.first()) {
            (Some(Event::Sent), Some(Event::Sent)) => {
                let up = run(&mut client, Event::Sent, usize::MAX);
                let down = run(&mut server, Event::Sent, usize::MAX);
                let received = (run(&mut client, Event::Received, down), run(&mut server, Event::Received, up));
                if received != (down, up) {
                    return None;
                }
            }
            (Some(Event::Sent), _) => pass(&mut client, &mut server)?,
            (_, Some(Event::Sent)) => pass(&mut server, &mut client)?,
            _ => return None,
        }
        turns += 1;
    }
    Some(turns)
}

/// Takes up to `most` equal events off the front.
fn run(events: &mut &[Event], event: Event, most: usize) -> usize {
    let equal = events.iter().take_while(|e| **e == event);
    let length = equal.count().min(most);
    *events = &events[length..];
    length
}

/// Takes a run of messages in one direction off both scripts; `None` if there is none.
fn pass(from: &mut &[Event], to: &mut &[Event]) -> Option<()> {
    let pairs = from.iter().zip(to.iter());
    let passed = pairs.take_while(|pair| *pair == (&Event::Sent, &Event::Received));
    let length = passed.count();
    (*from, *to) = (&from[length..], &to[length..]);
    (length > 0).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rounds of two scripts, one letter per event: `>` sends, `<` receives.
    fn rounds(client: &str, server: &str) -> Option<u64> {
        let events = |script: &str| -> Vec<Event> {
            let event = |c| match c {
                '>' => Event::Sent,
                _ => Event::Received,
            };
            script.chars().map(event).collect()
        };
        let (client, server) = (events(client), events(server));
        let rounds = turns(&client, &server);
        assert_eq!(rounds, turns(&server, &client));
        rounds
    }

    #[test]
    fn sessions_side_by_side_count_as_the_longer() {
        let seen = |script: &str| -> Vec<Seen> {
            // A digit is the section of what follows, a letter b marks the branch.
            let (mut section, mut branch, mut all) = (0, false, Vec::new());
            for c in script.chars() {
                match c {
                    'b' => branch = true,
                    '>' | '<' => {
                        let event = if c == '>' { Event::Sent } else { Event::Received };
                        all.push(Seen { event, section, branch });
                        branch = false;
                    }
                    digit => section = digit as usize,
                }
            }
            all
        };
        let of = |client: &str, server: &str| super::rounds(&seen(client), &seen(server));
        assert_eq!(of("0><1><><b>b<2><", "0<>1<>b<<>b>2<>"), Some(8));
        assert_eq!(of("1>b><b<", "1><b>b<"), Some(1));
        assert_eq!(of("1>b><b<2b>b<b><b<", "1><b>b<2b>b<b><b<"), None);
        assert_eq!(of("1><b>b<b>b<3><b>b<", "1><b>b<b>b<3><b>b<"), Some(3));
        assert_eq!(of("1>b>", "1<"), None);
    }

    #[test]
    fn rounds_of_small_exchanges() {
        assert_eq!(rounds("", ""), Some(0));
        // A message; its answer; both at once; both twice.
        assert_eq!(rounds(">", "<"), Some(1));
        assert_eq!(rounds("><", "<>"), Some(2));
        assert_eq!(rounds("><", "><"), Some(1));
        assert_eq!(rounds("><><", "><><"), Some(2));
        // Frames in a row travel together, crossing or not.
        assert_eq!(rounds(">>>", "<<<"), Some(1));
        assert_eq!(rounds(">>><<", "<<<>>"), Some(2));
        assert_eq!(rounds(">><", "><<"), Some(1));
        // A question and its answer after messages that cross, and before them.
        assert_eq!(rounds("><><", "><<>"), Some(3));
        assert_eq!(rounds("><><", "<>><"), Some(3));
        // Messages that cross, then one of a party alone.
        assert_eq!(rounds("><>", "><<"), Some(2));
        assert_eq!(rounds("><<", "><>"), Some(2));
        // An answer, and the question of the one who answers.
        assert_eq!(rounds("><<>", "<>><"), Some(3));
    }

    #[test]
    fn parts_of_a_session_that_do_not_match() {
        assert_eq!(rounds("", "<"), None);
        assert_eq!(rounds(">", ""), None);
        assert_eq!(rounds("><", ">"), None);
        assert_eq!(rounds("><<", "><"), None);
        assert_eq!(rounds("<", "<"), None);
    }
}
