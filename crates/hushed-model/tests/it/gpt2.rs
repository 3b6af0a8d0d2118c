//! GPT-2: its program, and the contents of its folder.

use hushed_model::testing::{tiny_generator, tiny_generator_config};
use hushed_model::{
    Block, Mask, Model, ModelError, NetworkConfig, StepId, Task, TokenIds, TooLong, gpt2_shapes, plain, random_gpt2,
};

/// The steps by name.
fn names(model: &Model) -> Vec<String> {
    let program = model.program();
    program.steps().iter().map(|s| s.id.to_string()).collect()
}

#[test]
fn the_program_is_pre_norm_and_ends_with_the_last_row() {
    let model = tiny_generator();
    let names = names(&model);
    let layer =
        ["attention.norm", "attention", "attention.add", "feed_forward.norm", "feed_forward", "feed_forward.add"];
    assert_eq!(names.len(), 1 + 2 * layer.len() + 1 + 2);
    assert_eq!(names[0], "embed");
    for (i, name) in layer.iter().enumerate() {
        assert_eq!(names[1 + i], format!("layer.0.{name}"));
    }
    assert_eq!(names[9], "layer.1.attention.row");
    assert_eq!(names[13..], ["layer.1.feed_forward.add", "norm", "head"]);
    let program = model.program();
    let masks = program.steps().iter().filter_map(|s| match &s.block {
        Block::Attention(a) => Some(a.mask),
        _ => None,
    });
    assert_eq!(masks.collect::<Vec<_>>(), [Mask::Causal; 2]);
    assert_eq!(program.linears().count(), 2 * 6 + 1);
    assert_eq!(model.embedding().unwrap().vocabulary, tiny_generator_config().vocabulary);
    assert!(matches!(model.encoder(), Err(ModelError::NotAnEncoder { .. })));
}

#[test]
fn a_tied_head_is_the_token_table() {
    let gpt2 = random_gpt2(&tiny_generator_config(), 1);
    let (table, head) = (&gpt2.embedding.tokens, &gpt2.head.weights);
    let (table, head) = (table.as_ref().unwrap(), head.as_ref().unwrap());
    assert!(std::sync::Arc::ptr_eq(table, head));
    let untied = NetworkConfig { tied: false, ..tiny_generator_config() };
    let gpt2 = random_gpt2(&untied, 1);
    assert!(gpt2.embedding.tokens != gpt2.head.weights);
    assert!(gpt2_shapes(&untied).head.weights.is_none());
}

/// Published: 124439808, with a tied head.
#[test]
fn the_published_count_of_parameters() {
    assert_eq!(NetworkConfig::gpt2().parameters(), 124_439_808);
}

#[test]
fn a_text_is_continued_without_special_tokens() {
    let model = tiny_generator();
    assert_eq!(model.public.task(), Task::Generate);
    assert_eq!(model.public.end_tokens, [262]);
    let ids = model.tokens("the thing!", TooLong::Refuse).ok().unwrap();
    // "the", " the" and "ing" are merged, "!" is byte 0x21.
    assert_eq!(ids.ids(), [257, 32, 116, 104, 261, 33]);
    // The end token is not recognised inside a text.
    let ids = model.tokens("<|endoftext|>", TooLong::Refuse).ok().unwrap();
    assert!(ids.ids().iter().all(|&id| id < 256));
}

/// In every step before the last attention, row i does not depend on the tokens after i; the answer is that of the last
/// row.
#[test]
fn no_row_sees_later_ones() {
    let program = tiny_generator().program();
    let rows = |ids: &[u32]| {
        let mut seen: Vec<(StepId, Vec<f64>)> = Vec::new();
        let answer = plain::run(&program, vec![TokenIds::new(ids.to_vec())], |step, x| {
            seen.push((step.id, x.values.data().to_vec()));
        });
        (seen, answer.unwrap().values.data().to_vec())
    };
    let (short, answer) = rows(&[5, 80, 7]);
    let (long, other) = rows(&[5, 80, 7, 200]);
    for ((id, short), (_, long)) in short.iter().zip(&long).take(8) {
        assert_eq!(short[..], long[..short.len()], "{id}");
    }
    assert_eq!(answer.len(), 263);
    assert_ne!(answer, other);
    // Padding changes nothing.
    let padded = TokenIds::with_padding(vec![5, 80, 7], &[9, 9]);
    let padded = plain::run(&program, vec![padded], |_, _| ()).unwrap();
    assert_eq!(padded.values.data(), &answer[..]);
}
