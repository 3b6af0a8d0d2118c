//! Cross-encoders between two parties: pairs of texts whose segments only the client knows, and scores.

use hushed_model::testing::{tiny_folder, tiny_golden};
use hushed_model::{Model, ModelError, TokenIds, TooLong};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Answers, Clear, Input, RunError, Terms, embeddings, labels, logits, opened_bits};

use crate::common::run_pair;
use crate::tiny::{assert_is, pass};

const PAIRS: [[&str; 2]; 4] = [
    ["How long is the notice period?", "The weather"],
    ["Hello world", "a"],
    ["a", "Hello world, it's 3.14!"],
    ["notice period", "three months"],
];

fn pairs(model: &Model) -> Vec<TokenIds> {
    PAIRS.iter().map(|pair| model.public.pair(*pair, TooLong::Refuse).unwrap()).collect()
}

/// With token types and without, padded and with a public table: the score of the clear model, in the bytes and rounds
/// of the plan, which are those of single texts as long.
#[test]
fn pairs_give_their_scores() {
    for name in ["cross-encoder", "cross-encoder-roberta"] {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let typed = model.embedding().unwrap().typed;
        assert_eq!(typed, name == "cross-encoder");
        let shapes = Model::shapes_only(&model.public).program();
        let clear = model.embed(pairs(&model)).unwrap();
        for (padded, public_table) in [(false, false), (true, false), (false, true)] {
            let terms = Terms { padded, public_table };
            let padding = model.public.tokenizer().unwrap().padding_id();
            let texts = pairs(&model).into_iter();
            let texts: Vec<TokenIds> = match padded {
                true => texts.map(|text| text.pad_to(48, padding)).collect(),
                false => texts.collect(),
            };
            let lengths: Vec<usize> = texts.iter().map(|text| text.rows().total).collect();
            let (found, steps) = pass(&model, &Input::Texts(texts, terms), logits);
            let plan = Plan::twopc(&shapes, &lengths, terms, false, Answers::Label).unwrap();
            assert_is(&plan, &steps);
            let sees = "the score of each text, the one number of the model's head";
            assert!(
                plan.exposures.iter().any(|e| e.who == "client" && e.sees.starts_with(sees)),
                "{:?}",
                plan.exposures
            );
            for (found, clear) in found.iter().zip(&clear) {
                assert!(found.len() == 1 && (found[0] - clear[0]).abs() < 0.01, "{name} {terms:?} {found:?} {clear:?}");
            }
        }
    }
}

/// The words of the circuit in the clear add the second type in the rows that have it, and nowhere else.
#[test]
fn types_are_in_the_first_step() {
    let model = Model::load(&tiny_golden("cross-encoder")).unwrap();
    let width = model.embedding().unwrap().width;
    let text = pairs(&model).remove(0);
    let first = |text: TokenIds| {
        let mut values = Vec::new();
        let input = Input::Texts(vec![text], Terms::default());
        hushed_mpc::run(&mut Clear::default(), &model.program(), &input, |_, acts| {
            if values.is_empty() {
                values = acts.values();
            }
        })
        .unwrap();
        values
    };
    let untyped = first(TokenIds::new(text.ids().to_vec()));
    let added = model.embedding().unwrap().second.clone().unwrap();
    let rows = first(text.clone());
    let rows = rows.chunks_exact(width).zip(untyped.chunks_exact(width)).zip(text.second());
    for ((typed, untyped), second) in rows {
        for ((typed, untyped), added) in typed.iter().zip(untyped).zip(added.iter()) {
            let expected = if second { f64::from(*added) } else { 0.0 };
            assert!((typed - untyped - expected).abs() < 1e-4, "{typed} {untyped} {added}");
        }
    }
    assert!(added.iter().any(|added| added.abs() > 0.05));
}

/// The row of the second type is no token's.
#[test]
fn the_last_row_of_a_typed_table_is_no_token() {
    let model = Model::load(&tiny_golden("cross-encoder")).unwrap();
    let vocabulary = model.public.config.vocabulary;
    assert_eq!(model.embedding().unwrap().table_rows(), vocabulary + 1);
    let input = Input::Texts(vec![TokenIds::new(vec![vocabulary as u32])], Terms::default());
    let beyond = hushed_mpc::run(&mut Clear::default(), &model.program(), &input, |_, _| ()).err().unwrap();
    let is = |error: &RunError| matches!(error, RunError::Model(ModelError::TokenOutOfRange { vocabulary: v }) if *v == vocabulary);
    assert!(is(&beyond), "{beyond}");
    // Only classifiers read pairs, so a sentence encoder's table has no such row.
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    assert!(!Model::load(folder.path()).unwrap().embedding().unwrap().typed);
}

/// One number has no largest: the score is what is usual, and nothing else is opened of it.
#[test]
fn one_number_is_a_score() {
    let model = Model::load(&tiny_golden("cross-encoder-roberta")).unwrap();
    assert_eq!(Answers::of_model(None, &model.public, 1), Answers::Logits);
    assert_eq!(Answers::of_model(Some(Answers::Label), &model.public, 1), Answers::Label);
    for (answers, suits) in [
        (Answers::Logits, true),
        (Answers::Label, false),
        (Answers::Top(1), false),
        (Answers::Above(500), false),
        (Answers::Bits(8), false),
    ] {
        assert_eq!(answers.suits(&model.public, 1).is_ok(), suits, "{answers}");
    }
    assert_eq!(opened_bits(&model, Answers::Logits).unwrap(), 28);
    let shapes = Model::shapes_only(&model.public);
    let lengths: Vec<usize> = pairs(&model).iter().map(|text| text.rows().total).collect();
    run_pair(
        |client| {
            let input = Input::Texts(pairs(&model), Terms::default());
            assert!(matches!(labels(client, &shapes, &input, Answers::Label), Err(RunError::Unsupported { .. })));
        },
        |server| {
            let input = Input::Lengths(lengths.clone(), Terms::default());
            assert!(matches!(labels(server, &model, &input, Answers::Label), Err(RunError::Unsupported { .. })));
            assert!(matches!(embeddings(server, &model, &input, Answers::Label), Err(RunError::Unsupported { .. })));
        },
    );
}
