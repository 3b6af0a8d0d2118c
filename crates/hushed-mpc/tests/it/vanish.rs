//! A party is killed at any step of a pass: the other ends with an error that says so.

use std::sync::Arc;

use crate::common::backend;
use hushed_model::Model;
use hushed_model::testing::tiny_model;
use hushed_model::tokens::{TokenIds, TooLong};
use hushed_mpc::{Answers, Input, Protocol, RunError, Terms, embeddings};
use hushed_net::{NetError, Party, Session};
use hushed_twopc::TwopcError;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ideal::IdealPair;
use hushed_twopc::testing::vanishing_pair;

/// The number of frames a party has sent by the end of every step of a pass, after the key exchange.
fn marks(backend: &Protocol, before: u64) -> Vec<u64> {
    let steps = backend.costs().iter().map(|step| step.stats.frames_sent);
    let sums = steps.scan(before, |sum, frames| {
        *sum += frames;
        Some(*sum)
    });
    [before].into_iter().chain(sums).collect()
}

struct Ends {
    client: Result<Vec<u64>, RunError>,
    server: Result<Vec<u64>, RunError>,
}

/// A pass in which `victim` vanishes before sending frame `frames`.
fn pass(model: &Model, text: &TokenIds, victim: Party, frames: u64) -> Ends {
    let shapes = Model::shapes_only(&model.public);
    let (client, server) = vanishing_pair(victim, frames);
    let (client_ot, server_ot) = IdealPair::new();
    let end = |session: Session, ot: Box<dyn Correlations>, model: &Model, input| {
        let mut b = backend(session, ot, Arc::default())?;
        let before = b.ctx().session.stats().frames_sent;
        embeddings(&mut b, model, &input, Answers::Label)?;
        Ok(marks(&b, before))
    };
    std::thread::scope(|scope| {
        let lengths = Input::Lengths(vec![text.rows().total], Terms::default());
        let server = scope.spawn(move || end(server, Box::new(server_ot), model, lengths));
        let texts = Input::Texts(vec![text.clone()], Terms::default());
        let client = end(client, Box::new(client_ot), &shapes, texts);
        Ends { client, server: server.join().unwrap() }
    })
}

fn gone<T>(ended: &Result<T, RunError>) -> bool {
    matches!(ended, Err(RunError::Protocol(TwopcError::Net(NetError::PeerGone))))
}

#[test]
fn a_peer_that_vanishes_at_any_step_is_reported() {
    let model = tiny_model();
    let text = model.tokens("a text", TooLong::Refuse).unwrap();
    let whole = pass(&model, &text, Party::Client, u64::MAX);
    for (victim, mut marks) in [(Party::Client, whole.client.unwrap()), (Party::Server, whole.server.unwrap())] {
        // The first frame of every step in which it sends any, and the very first; after the last step nothing is sent.
        marks.insert(0, 0);
        marks.dedup();
        marks.pop();
        assert!(marks.len() > 20, "{victim:?}: {marks:?}");
        for frame in marks {
            let ends = pass(&model, &text, victim, frame);
            let (killed, left) = match victim {
                Party::Client => (ends.client, ends.server),
                Party::Server => (ends.server, ends.client),
            };
            assert!(killed.is_err());
            assert!(gone(&left), "{victim:?}, frame {frame}: {left:?}");
        }
    }
}
