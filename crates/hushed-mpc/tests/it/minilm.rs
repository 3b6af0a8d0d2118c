//! The real model, run privately with everything that a session uses: five sentences against their embeddings in the
//! clear.

use std::sync::Arc;

use hushed_model::testing::{data_lines, model_folder};
use hushed_model::{Model, TokenIds, TooLong, cosine};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Answers, Input, Layers, Link, Protocol, Terms, embeddings};
use hushed_net::memory_pair;

/// Lines of data/sample.txt, from 0: three tokens, numbers, a command, German, and an ordinary question.
const LINES: [usize; 5] = [0, 30, 61, 66, 98];

#[test]
fn five_sentences_of_the_real_model() {
    let model = Model::load(&model_folder()).unwrap();
    let sample = data_lines("sample.txt").unwrap();
    let texts = LINES.map(|i| model.tokens(&sample[i], TooLong::Refuse).unwrap());
    let clear = model.embed(texts.to_vec()).unwrap();
    let shapes = Model::shapes_only(&model.public);

    let (near, far) = memory_pair();
    let lengths = texts.each_ref().map(|t| t.ids().len());
    let private: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut server = Protocol::establish(far, Arc::<Layers>::default(), Link::LAN).unwrap();
            for m in lengths {
                let seen = embeddings(&mut server, &model, &Input::Lengths(vec![m], Terms::default()), Answers::Label)
                    .unwrap();
                assert!(seen.is_none(), "the server gets no answer");
            }
        });
        let mut client = Protocol::establish(near, Arc::<Layers>::default(), Link::LAN).unwrap();
        let mut run = |text: &TokenIds| {
            let input = Input::Texts(vec![text.clone()], Terms::default());
            embeddings(&mut client, &shapes, &input, Answers::Label).unwrap().unwrap()
        };
        let answers = texts.iter().flat_map(&mut run).collect();
        server.join().unwrap();
        answers
    });
    for ((line, private), clear) in LINES.iter().zip(&private).zip(&clear) {
        let found = cosine(private, clear);
        assert!(found > 0.999, "line {line}: {found}");
    }
}

/// What SECURITY.md says that a client that cheats learns from a text, at most.
#[test]
fn an_embedding_opens_6144_bits_whatever_the_text() {
    let model = Model::load(&model_folder()).unwrap();
    for tokens in [3, 16, 128] {
        let normalise = model.public.normalise;
        let plan = Plan::twopc(&model.program(), &[tokens], Terms::default(), normalise, Answers::Label).unwrap();
        assert_eq!(plan.opened_bits, 384 * 16);
    }
}
