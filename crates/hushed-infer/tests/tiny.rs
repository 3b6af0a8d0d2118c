//! A tiny model with random weights between two parties in two threads, against the same model in the clear.

use std::sync::Arc;

use hushed_infer::twopc::{Input, Layers, TwopcBackend, embeddings};
use hushed_math::rng::SecretRng;
use hushed_model::Model;
use hushed_model::testing::tiny_folder;
use hushed_model::tokens::TooLong;
use hushed_net::{Session, memory_pair};
use hushed_twopc::Ctx;
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
    let (client_session, server_session) = memory_pair();
    let (client_ot, server_ot) = IdealPair::new();
    let (answer, nothing) = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut b = backend(server_session, Box::new(server_ot), Arc::default());
            embeddings(&mut b, &model, Input::Lengths(lengths)).unwrap()
        });
        let mut b = backend(client_session, Box::new(client_ot), Arc::default());
        let answer = embeddings(&mut b, &shapes, Input::Ids(ids)).unwrap();
        for cost in b.costs() {
            println!(
                "{:40} {:8.3} s {:>9} up {:>9} down {:>4} rounds",
                cost.site.path(),
                cost.time.as_secs_f64(),
                cost.stats.bytes_sent,
                cost.stats.bytes_received,
                cost.stats.rounds
            );
        }
        (answer, server.join().unwrap())
    });
    assert!(nothing.is_none());
    let answer = answer.unwrap();
    assert_eq!(answer.len(), texts.len());
    for (private, clear) in answer.iter().zip(&clear) {
        let c = cosine(private, clear);
        assert!(c > 0.999, "cosine {c}");
    }
}
