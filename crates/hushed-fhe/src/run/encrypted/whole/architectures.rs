//! The model folders in the repository under a key, with their own tokens: they name and number their parts
//! differently.

use hushed_model::testing::{data_lines, tiny_golden};
use hushed_model::{Model, TokenIds, TooLong};

use super::{PLACES, ROWS, Subject, assert_answered};
use crate::plan::public_plan::Lengths;

fn assert_folder_answered(name: &str, lengths: Lengths) {
    let model = Model::load(&tiny_golden(name)).unwrap();
    let tokens = |text: String| {
        let ids = model.tokens(&text, TooLong::Cut).unwrap();
        TokenIds::new(ids.ids().iter().copied().take(ROWS).collect())
    };
    let lines = data_lines("sample.txt").unwrap().into_iter().take(PLACES);
    let texts: Vec<TokenIds> = lines.map(tokens).collect();
    let network = model.encoder().unwrap().clone();
    assert_answered(&Subject::with(network, texts, lengths));
}

#[test]
fn positions_after_an_offset_are_answered() {
    assert_folder_answered("roberta", Lengths::Private);
}

#[test]
fn a_head_of_two_maps_is_answered() {
    assert_folder_answered("roberta-classifier", Lengths::Private);
}

#[test]
fn a_unigram_vocabulary_is_answered() {
    assert_folder_answered("xlm-roberta", Lengths::Public);
}

#[test]
fn rows_without_types_are_answered() {
    assert_folder_answered("distilbert", Lengths::Private);
}
