//! Tests of the queue without a server.

use std::time::Duration;

use hushed_model::testing::tiny_model;
use hushed_mpc::{Answers, Terms};

use hushed_serve::{TooLong, Wanted};

use super::*;
use crate::sessions::pace::Pace;
use crate::sessions::share::Share;

const LIMITS: Limits = Limits { texts: 3, rows: 20 };

type Found = Result<hushed_serve::Found, Failure>;

struct Queue {
    texts: Texts,
    pace: Pace,
    patience: Duration,
    share: Share,
}

impl Queue {
    fn new() -> Self {
        let model = tiny_model();
        Self {
            texts: Texts::new(LIMITS, [7; 32]),
            pace: Pace::new(&model.public, Terms::default(), Duration::ZERO, (0, Answers::Label), 0).unwrap(),
            patience: Duration::from_secs(100),
            share: Share::new(8, 1),
        }
    }

    /// Texts with their rows, one planned second each.
    fn submit(&self, texts: &[(&str, usize)]) -> Result<Vec<Ticket>, Refused> {
        self.submit_of(Caller::default(), texts)
    }

    fn submit_of(&self, caller: Caller, texts: &[(&str, usize)]) -> Result<Vec<Ticket>, Refused> {
        let prepared = texts.iter().map(|&(text, rows)| Prepared {
            caller,
            text: Zeroizing::new(text.to_owned()).into(),
            too_long: TooLong::Refuse,
            rows,
            planned: 1.0,
        });
        self.texts.submit(prepared.collect(), &self.admission()).map(|(tickets, _)| tickets)
    }

    fn admission(&self) -> Admission<'_> {
        Admission {
            pace: &self.pace,
            patience: self.patience,
            bound: None,
            sessions: 1,
            batch: Some(LIMITS.texts),
            open: true,
            away: None,
            share: self.share,
        }
    }

    /// A search of ten planned seconds.
    fn search(&self) -> Result<oneshot::Receiver<Found>, Refused> {
        let (answer, coming) = oneshot::channel();
        let job = Job {
            caller: Caller::default(),
            query: Zeroizing::new("query".to_owned()),
            too_long: TooLong::Refuse,
            rows: 3,
            wanted: Wanted { top: 1, records: false, scores: false },
            planned: 10.0,
            answer,
        };
        let taken = self.texts.submit_search(job, &self.admission());
        taken.map(|()| coming)
    }

    /// The kind of the next task: `p` a pass, `s` a search.
    fn kind(&self) -> char {
        match self.texts.next(Duration::ZERO) {
            Next::Pass(pass) => {
                self.finish(&pass);
                'p'
            }
            Next::Search(id, _) => {
                self.texts.ended(id);
                's'
            }
            Next::Idle | Next::Closed => '-',
        }
    }

    fn pass(&self) -> Option<Pass> {
        match self.texts.next(Duration::ZERO) {
            Next::Pass(pass) => Some(pass),
            _ => None,
        }
    }

    fn finish(&self, pass: &Pass) {
        let answers = pass.seen.rows.iter().map(|&tokens| Answer {
            values: Zeroizing::new(vec![0.5]),
            labels: Vec::new(),
            tokens,
        });
        self.texts.finish(pass, Ok(answers.collect()));
    }
}

fn words(pass: &Pass) -> Vec<&str> {
    pass.texts.iter().map(|(text, _)| text.text.as_str()).collect()
}

fn outcome(ticket: Ticket) -> Outcome {
    match ticket {
        Ticket::Ready(answer) => Ok(answer),
        Ticket::Coming(mut coming) => coming.try_recv().expect("it has ended"),
    }
}

fn held(queue: &Queue) -> (usize, usize) {
    let held = queue.texts.held();
    (held.waiting, held.kept)
}

#[test]
fn a_pass_takes_the_oldest_and_those_nearest_in_length() {
    let queue = Queue::new();
    let given = [("a", 6), ("b", 12), ("c", 6), ("d", 7), ("e", 6)];
    let _tickets = queue.submit(&given).unwrap();
    let first = queue.pass().unwrap();
    let mut together = words(&first);
    together.sort_unstable();
    assert_eq!(together, ["a", "c", "e"]);
    // 12 and 7 rows fit 20.
    assert_eq!(queue.pass().unwrap().seen.rows.len(), 2);
    assert!(queue.pass().is_none());
}

#[test]
fn a_pass_keeps_the_servers_limit_and_takes_one_long_text_alone() {
    let queue = Queue::new();
    let _tickets = queue.submit(&[("a", 30), ("b", 11), ("c", 10)]).unwrap();
    let rows = |pass: Option<Pass>| pass.unwrap().seen.rows;
    assert_eq!(rows(queue.pass()), [30]);
    assert_eq!(rows(queue.pass()), [11]);
    assert_eq!(rows(queue.pass()), [10]);
}

#[test]
fn equal_texts_share_one_run_before_during_and_after_it() {
    let queue = Queue::new();
    let mut tickets = queue.submit(&[("a", 4), ("a", 4)]).unwrap();
    let pass = queue.pass().unwrap();
    assert_eq!(words(&pass), ["a"]);
    tickets.extend(queue.submit(&[("a", 4)]).unwrap());
    assert!(queue.pass().is_none());
    queue.finish(&pass);
    for ticket in tickets {
        assert_eq!(outcome(ticket).ok().unwrap().tokens, 4);
    }
    let again = queue.submit(&[("a", 4)]).unwrap().remove(0);
    assert!(matches!(again, Ticket::Ready(_)));
    assert_eq!(held(&queue), (0, 1));
}

#[test]
fn an_answer_is_forgotten_after_its_time() {
    let queue = Queue::new();
    let tickets = queue.submit(&[("a", 4)]).unwrap();
    let pass = queue.pass().unwrap();
    queue.finish(&pass);
    // Its client has it.
    drop(tickets);
    let now = Instant::now();
    queue.texts.forget(now + KEPT / 2);
    assert_eq!(held(&queue), (0, 1));
    queue.texts.forget(now + 2 * KEPT);
    assert_eq!(held(&queue), (0, 0));
    assert!(queue.texts.lock().entries.is_empty());
}

#[test]
fn a_client_that_has_gone_leaves_the_queue() {
    let queue = Queue::new();
    let gone = queue.submit(&[("a", 4), ("b", 4)]).unwrap();
    let _stays = queue.submit(&[("b", 4)]).unwrap();
    drop(gone);
    assert_eq!(words(&queue.pass().unwrap()), ["b"]);
    assert!(queue.pass().is_none());
}

#[test]
fn a_run_under_way_is_kept_for_the_retry_of_a_client_that_has_gone() {
    let queue = Queue::new();
    let tickets = queue.submit(&[("a", 4)]).unwrap();
    let pass = queue.pass().unwrap();
    drop(tickets);
    queue.finish(&pass);
    let again = queue.submit(&[("a", 4)]).unwrap().remove(0);
    assert!(matches!(again, Ticket::Ready(_)));
}

#[test]
fn a_failure_reaches_everyone_and_is_not_kept() {
    let queue = Queue::new();
    let tickets = queue.submit(&[("a", 4), ("b", 4)]).unwrap();
    let pass = queue.pass().unwrap();
    queue.texts.finish(&pass, Err(Failure::defect()));
    for ticket in tickets {
        assert_eq!(outcome(ticket).err().unwrap().name, "internal");
    }
    let _again = queue.submit(&[("a", 4)]).unwrap();
    assert_eq!(words(&queue.pass().unwrap()), ["a"]);
}

#[test]
fn what_outlasts_its_client_is_refused_with_the_size_that_fits() {
    let mut queue = Queue::new();
    queue.patience = Duration::from_millis(2500);
    let refused = queue.submit(&[("a", 4), ("b", 4), ("c", 4)]).err().unwrap();
    let expected = Refused::TooSlow { seconds: 3.0, patience: 2.5, fits: 2, of: 3 };
    assert_eq!(refused, expected);
    assert!(queue.pass().is_none());
    let _two = queue.submit(&[("a", 4), ("b", 4)]).unwrap();
    // Alone it would fit; two seconds come first, of which half of one must have passed.
    let busy = Refused::Busy { after: 1 };
    assert_eq!(queue.submit(&[("c", 4)]).err(), Some(busy));
    // Equal texts cost nothing more.
    assert!(queue.submit(&[("a", 4), ("b", 4)]).is_ok());
    // The server's pace counts: now everything takes twice as long.
    queue.pace.pass_took(1.0, Duration::from_secs(3));
    assert!(matches!(queue.submit(&[("d", 4)]).err(), Some(Refused::TooSlow { fits: 0, of: 1, .. })));
}

#[test]
fn a_set_up_comes_first_where_no_session_is_open() {
    let queue = Queue::new();
    queue.pace.setup_took(Duration::from_secs(5));
    let admission = |open, seconds| Admission {
        pace: &queue.pace,
        patience: Duration::from_secs(seconds),
        bound: None,
        sessions: 1,
        batch: Some(3),
        open,
        away: None,
        share: Share::new(8, 1),
    };
    let check = |admission: Admission<'_>| admission.check(&[1.0], 1, &Load::default()).is_ok();
    assert!(check(admission(true, 2)) && !check(admission(false, 2)));
    assert!(check(admission(false, 7)));
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let queue = Queue::new();
    let names: Vec<String> = (0..9).map(|i| i.to_string()).collect();
    let texts: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 4)).collect();
    let many = Refused::TooMany { given: 9, limit: 8 };
    assert_eq!(queue.submit(&texts).err(), Some(many));
    let _eight = queue.submit(&texts[..8]).unwrap();
    let busy = Refused::Busy { after: 8 };
    assert_eq!(queue.submit(&texts[8..]).err(), Some(busy));
}

#[test]
fn one_key_does_not_fill_the_queue_of_several() {
    let mut queue = Queue::new();
    queue.share = Share::new(8, 2);
    let (one, other) = (Caller([1; 32]), Caller([2; 32]));
    let many = Refused::TooMany { given: 5, limit: 4 };
    let texts = ["a", "b", "c", "d", "e"].map(|name| (name, 4));
    assert_eq!(queue.submit_of(one, &texts).err(), Some(many));
    let _four = queue.submit_of(one, &texts[..4]).unwrap();
    let busy = Some(Refused::Busy { after: 4 });
    assert_eq!(queue.submit_of(one, &texts[4..]).err(), busy);
    // Equal texts take no additional place.
    assert!(queue.submit_of(one, &texts[..4]).is_ok());
    let _two = queue.submit_of(other, &texts[..2]).unwrap();
    // A search takes one place, like a text.
    let _search = queue.search().unwrap();
    assert!(queue.submit_of(other, &texts[2..3]).is_err());
}

#[test]
fn keys_take_turns_for_the_places_of_a_pass() {
    let queue = Queue::new();
    let (one, other) = (Caller([1; 32]), Caller([2; 32]));
    let _many = queue.submit_of(one, &[("a", 4), ("b", 4), ("c", 4), ("d", 4), ("e", 4)]).unwrap();
    let _few = queue.submit_of(other, &[("y", 9), ("z", 5)]).unwrap();
    let sorted = || {
        let pass = queue.pass().unwrap();
        let mut texts: Vec<String> = pass.texts.iter().map(|(t, _)| t.text.to_string()).collect();
        texts.sort_unstable();
        // The server does not see whose turn it was.
        assert!(pass.seen.rows.is_sorted_by(|a, b| a >= b), "{:?}", pass.seen.rows);
        texts.concat()
    };
    // z is closer in length than y, which is older.
    assert_eq!(sorted(), "abz");
    // It is the other caller's turn, and then it has no more.
    assert_eq!(sorted(), "cdy");
    assert_eq!(sorted(), "e");
    assert!(queue.pass().is_none());
}

#[test]
fn what_others_have_beyond_their_turns_does_not_count_before_ones_own() {
    let mut queue = Queue::new();
    let (one, other) = (Caller([1; 32]), Caller([2; 32]));
    let names = ["a", "b", "c", "d", "e", "f"].map(|name| (name, 4));
    let _six = queue.submit_of(one, &names).unwrap();
    // A pass of three filled with the first caller's texts, and one's own: four seconds.
    queue.patience = Duration::from_millis(3500);
    let refused = queue.submit_of(other, &[("y", 4)]).err();
    assert_eq!(refused, Some(Refused::Busy { after: 1 }));
    queue.patience = Duration::from_millis(4500);
    let _own = queue.submit_of(other, &[("y", 4)]).unwrap();
    let after = |caller| queue.submit_of(caller, &[("z", 4)]).err();
    // The first caller's seventh comes after six of its own and the other's only one.
    assert_eq!(after(one), Some(Refused::Busy { after: 4 }));
}

#[test]
fn a_closed_queue_tells_who_waits() {
    let queue = Queue::new();
    let tickets = queue.submit(&[("a", 4), ("b", 4), ("c", 4), ("d", 4)]).unwrap();
    let pass = queue.pass().unwrap();
    queue.texts.close();
    for ticket in tickets {
        assert_eq!(outcome(ticket).err().unwrap().name, "stopping");
    }
    queue.finish(&pass);
    assert_eq!(held(&queue), (0, 0));
    assert_eq!(queue.submit(&[("a", 4)]).err(), Some(Refused::Stopping));
    assert!(matches!(queue.texts.next(Duration::ZERO), Next::Closed));
}

#[test]
fn equal_texts_of_different_keys_share_nothing() {
    let queue = Queue::new();
    let (one, other) = (Caller([1; 32]), Caller([2; 32]));
    let _tickets = queue.submit_of(one, &[("a", 4)]).unwrap();
    let pass = queue.pass().unwrap();
    queue.finish(&pass);
    let again = |caller| queue.submit_of(caller, &[("a", 4)]).unwrap().remove(0);
    assert!(matches!(again(one), Ticket::Ready(_)));
    assert!(matches!(again(other), Ticket::Coming(_)));
    assert!(matches!(again(Caller::default()), Ticket::Coming(_)));
}

#[test]
fn who_joins_what_waits_must_have_the_time_for_it() {
    let mut queue = Queue::new();
    let _three = queue.submit(&[("a", 4), ("b", 4), ("c", 4)]).unwrap();
    queue.patience = Duration::from_millis(1500);
    assert!(queue.submit(&[("a", 4)]).is_ok());
    // Two seconds up to the second text, three up to the third.
    let busy = |after| Some(Refused::Busy { after });
    assert_eq!(queue.submit(&[("b", 4)]).err(), busy(1));
    assert_eq!(queue.submit(&[("c", 4), ("a", 4)]).err(), busy(2));
}

#[test]
fn sessions_share_passes_and_not_a_pass_or_an_answer() {
    let queue = Queue::new();
    let fits = |batch, seconds, planned: &[f64]| {
        let admission = Admission {
            pace: &queue.pace,
            patience: Duration::from_secs(seconds),
            bound: None,
            sessions: 4,
            batch,
            open: true,
            away: None,
            share: Share::new(8, 1),
        };
        admission.check(planned, planned.len(), &Load::default()).is_ok()
    };
    // The tokens of an answer come one after the other.
    assert!(!fits(None, 7, &[1.0; 8]) && fits(None, 8, &[1.0; 8]));
    // Eight texts are one pass of eight, two of four or (at most) four at once of two.
    assert!(!fits(Some(8), 7, &[1.0; 8]) && fits(Some(8), 8, &[1.0; 8]));
    assert!(!fits(Some(4), 3, &[1.0; 8]) && fits(Some(4), 4, &[1.0; 8]));
    assert!(!fits(Some(1), 1, &[1.0; 8]) && fits(Some(1), 2, &[1.0; 8]));
    // The work before it is shared among the sessions.
    let load = Load { waiting: 4, own: 0, first: 4, planned: 8.0, running: Vec::new() };
    let admission = Admission {
        pace: &queue.pace,
        patience: Duration::from_secs(1),
        bound: None,
        sessions: 4,
        batch: None,
        open: true,
        away: None,
        share: Share::new(8, 1),
    };
    assert_eq!(admission.before(&load), 2.0);
}

#[test]
fn who_asks_while_the_server_is_avoided_is_told_at_once() {
    let queue = Queue::new();
    let tickets = queue.submit(&[("a", 4), ("b", 4)]).unwrap();
    let failure = Failure { retry_after: Some(Duration::from_secs(9)), ..Failure::stopping() };
    queue.texts.fail(&failure);
    for ticket in tickets {
        assert_eq!(outcome(ticket).err().as_deref(), Some(&failure));
    }
    assert!(queue.pass().is_none() && queue.texts.lock().entries.is_empty());
    let admission = Admission {
        pace: &queue.pace,
        patience: Duration::from_secs(100),
        bound: None,
        sessions: 1,
        batch: Some(3),
        open: false,
        away: Some(failure.clone()),
        share: Share::new(8, 1),
    };
    let check = |planned: &[f64]| admission.check(planned, planned.len(), &Load::default());
    assert_eq!(check(&[1.0]), Err(Refused::Away(failure)));
    // Available answers need no session.
    assert_eq!(check(&[]), Ok(Wait::Short));
}

#[test]
fn searches_and_passes_take_turns() {
    let queue = Queue::new();
    let _texts = queue.submit(&[("a", 20), ("b", 20), ("c", 20)]).unwrap();
    let _searches = [queue.search().unwrap(), queue.search().unwrap()];
    assert_eq!(held(&queue).0, 5);
    let order: String = (0..6).map(|_| queue.kind()).collect();
    assert_eq!(order, "spspp-");
}

#[test]
fn searches_are_counted_refused_and_abandoned() {
    let mut queue = Queue::new();
    let gone = queue.search().unwrap();
    drop(gone);
    let stays = queue.search().unwrap();
    assert_eq!(held(&queue).0, 1, "one whose client has gone leaves");
    // Ten seconds of work wait: a text or a search that must be ready in five is not accepted.
    queue.patience = Duration::from_secs(5);
    let busy = queue.submit(&[("a", 3)]).err();
    assert!(matches!(busy, Some(Refused::Busy { .. })), "{busy:?}");
    let slow = queue.search().err();
    assert!(matches!(slow, Some(Refused::TooSlow { .. })), "{slow:?}");
    queue.texts.close();
    assert_eq!(queue.search().err(), Some(Refused::Stopping));
    let mut stays = stays;
    let told = stays.try_recv().unwrap();
    assert_eq!(told.err().unwrap().name, "stopping");
}

/// What its client would not wait for is taken if the client can be kept waiting, up to the bound; so is a retry, and
/// what is slow only because of others is not.
#[test]
fn a_long_list_is_taken_if_its_client_can_be_kept_waiting() {
    let mut queue = Queue::new();
    queue.patience = Duration::from_secs(3);
    let prepared = |texts: &[&str]| -> Vec<Prepared> {
        let one = |&text: &&str| Prepared {
            caller: Caller::default(),
            text: Zeroizing::new(text.to_owned()).into(),
            too_long: TooLong::Refuse,
            rows: 4,
            planned: 1.0,
        };
        texts.iter().map(one).collect()
    };
    let submit = |texts: &[&str], bound: f64| {
        let admission = Admission { bound: Some(bound), ..queue.admission() };
        queue.texts.submit(prepared(texts), &admission)
    };
    let five = ["a", "b", "c", "d", "e"];
    assert!(matches!(submit(&five, 4.0).err(), Some(Refused::TooSlow { fits: 4, of: 5, .. })));
    let (first, wait) = submit(&five, 5.0).unwrap();
    assert_eq!((first.len(), wait), (5, Wait::Long));
    let (_again, wait) = submit(&five, 5.0).unwrap();
    assert_eq!(wait, Wait::Long);
    assert!(matches!(submit(&["f"], 50.0).err(), Some(Refused::Busy { .. })));
    assert_eq!(queue.texts.held().waiting, 5);
}

/// What is done of a long list is kept while its client waits for the rest, and for a while after it has gone.
#[test]
fn what_is_done_is_kept_as_long_as_somebody_waits_for_the_rest() {
    let queue = Queue::new();
    let tickets = queue.submit(&[("a", 4), ("b", 4)]).unwrap();
    queue.finish(&queue.pass().unwrap());
    let now = Instant::now();
    queue.texts.forget(now + 2 * KEPT);
    assert_eq!(queue.texts.held().kept, 2, "a client holds them");
    drop(tickets);
    queue.texts.forget(now + 2 * KEPT + KEPT / 2);
    assert_eq!(queue.texts.held().kept, 2, "ten minutes begin when it goes");
    queue.texts.forget(now + 4 * KEPT);
    assert_eq!(queue.texts.held().kept, 0);
}

/// A pair is no text of the same letters, and two pairs are the same only if they are divided at the same place.
#[test]
fn pairs_are_told_apart() {
    let queue = Queue::new();
    let prepared = |parts: [&str; 2]| Prepared {
        caller: Caller::default(),
        text: match parts {
            [text, ""] => Zeroizing::new(text.to_owned()).into(),
            [text, second] => {
                Reading { text: Zeroizing::new(text.to_owned()), second: Some(Zeroizing::new(second.to_owned())) }
            }
        },
        too_long: TooLong::Refuse,
        rows: 4,
        planned: 1.0,
    };
    let all = [["ab", ""], ["a", "b"], ["ab", "c"], ["a", "bc"], ["a", "b"]].map(prepared);
    let _tickets = queue.texts.submit(all.into(), &queue.admission()).unwrap();
    let mut texts = 0;
    while let Some(pass) = queue.pass() {
        texts += pass.texts.len();
    }
    assert_eq!(texts, 4);
}

/// The end of a text and its beginning are two answers.
#[test]
fn texts_cut_at_different_ends_are_two() {
    let queue = Queue::new();
    let prepared = |too_long| Prepared {
        caller: Caller::default(),
        text: Zeroizing::new("a".to_owned()).into(),
        too_long,
        rows: 4,
        planned: 1.0,
    };
    let all = [TooLong::Cut, TooLong::CutLeft, TooLong::Refuse].map(prepared);
    let _tickets = queue.texts.submit(all.into(), &queue.admission()).unwrap();
    let pass = queue.pass().unwrap();
    assert_eq!(pass.texts.len(), 2);
}
