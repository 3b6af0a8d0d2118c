//! A tiny model with random weights between two parties in two threads, against the same model in the clear.

use std::sync::Arc;

use hushed_infer::plan::Plan;
use hushed_infer::twopc::{Input, Layers, TwopcBackend, embeddings};
use hushed_math::rng::SecretRng;
use hushed_model::Model;
use hushed_model::testing::tiny_folder;
use hushed_model::tokens::TooLong;
use hushed_net::{Session, memory_pair};
use hushed_twopc::Ctx;
use hushed_twopc::cost::FRAME_BYTES;
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ideal::IdealPair;

fn backend(mut session: Session, ot: Box<dyn Correlations>, layers: Arc<Layers>) -> TwopcBackend {
    let mut rng = SecretRng::from_os("test");
    let he = HeContext::exchange(&mut session, &mut rng).unwrap();
    TwopcBackend::new(Ctx::new(session, rng, ot), he, layers)
}

fn cosine(a: &[f64], b: &[f64]) -> f64 {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn embeddings_agree_with_the_clear_model() {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let model = Model::load(folder.path()).unwrap();
    let texts = [
        "a",
        "the quick brown fox",
        "private questions, 123 answers!",
        "a third of one length",
        "b",
    ];
    let ids: Vec<Vec<u32>> = texts
        .iter()
        .map(|t| model.tokens(t, TooLong::Refuse).unwrap().ids().to_vec())
        .collect();
    let lengths = ids.iter().map(Vec::len).collect::<Vec<_>>();
    let clear = texts
        .map(|t| model.tokens(t, TooLong::Refuse).unwrap())
        .to_vec();
    let clear = model.embed(clear).unwrap();

    let shapes = Model::shapes_only(&model.public);
    let plan = Plan::twopc(&shapes.bert, &lengths, model.public.normalise).unwrap();
    let (client_session, server_session) = memory_pair();
    let (client_ot, server_ot) = IdealPair::new();
    let mut costs = Vec::new();
    let (answer, nothing) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut b = backend(server_session, Box::new(server_ot), Arc::default());
            embeddings(&mut b, &model, Input::Lengths(lengths.clone())).unwrap()
        });
        let mut b = backend(client_session, Box::new(client_ot), Arc::default());
        let answer = embeddings(&mut b, &shapes, Input::Ids(ids)).unwrap();
        costs = b.costs().to_vec();
        (answer, server.join().unwrap())
    });
    assert!(nothing.is_none());

    // The plan is the run: payload bytes of every step, each way. Its last step, the opening, is not one of the model's.
    assert_eq!(plan.steps.len(), costs.len() + 1);
    for (step, cost) in plan.steps.iter().zip(&costs) {
        let headers = |frames: u64| frames * FRAME_BYTES;
        let sent = cost.stats.bytes_sent - headers(cost.stats.frames_sent);
        let received = cost.stats.bytes_received - headers(cost.stats.frames_received);
        let planned = (step.site.as_str(), step.bytes_up, step.bytes_down);
        assert_eq!(planned, (cost.site.path(), sent, received));
    }
    assert!(plan.failure_log2 < -40.0);

    let answer = answer.unwrap();
    assert_eq!(answer.len(), texts.len());
    for (private, clear) in answer.iter().zip(&clear) {
        let c = cosine(private, clear);
        assert!(c > 0.999, "cosine {c}");
    }
}
