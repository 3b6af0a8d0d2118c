//! A text after a public prefix, which the server has run in the clear.

use std::sync::Arc;

use crate::decode::{Ahead, after, generate, logits, models, texts};
use hushed_model::testing::{published_generator, random_generator, tiny_generator, tiny_generator_config};
use hushed_model::tokens::TokenIds;
use hushed_model::{Body, NetworkConfig};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Before, Cache, Clear, Input, MAX_PREFIX, Prefix, RunError, Terms, run_next};

fn ids(count: usize, of: usize) -> Vec<u32> {
    (0..count).map(|i| ((i * i * of + 3) % 61) as u32).collect()
}

/// The protocols' formulas against the clear model over prefix and text: fewer keys than a head has columns and more,
/// in one pass and in several.
#[test]
fn rows_see_the_prefix() {
    for model in models() {
        let program = model.program();
        for (public, cuts) in [(1, vec![3, 1]), (2, vec![1]), (30, vec![9, 1, 2]), (50, vec![4])] {
            let (prefix, text) = (ids(public, 11), ids(cuts.iter().sum(), 7));
            let (mut cache, mut on) = (after(&program, &prefix), Clear::default());
            let (mut first, mut last) = (0, None);
            for rows in cuts {
                let input = texts(&text[first..first + rows], Terms::default());
                last = Some(run_next(&mut on, &program, &mut cache, &input, |_, _| ()).unwrap());
                first += rows;
            }
            assert_eq!((cache.rows(), cache.public()), (text.len(), public));
            let clear = logits(&program, &[&prefix[..], &text].concat());
            let values = last.unwrap().values();
            let worst = values.iter().zip(&clear).map(|(a, b)| (a - b).abs());
            let worst = worst.fold(0.0, f64::max);
            assert!(worst < 0.04, "{public}: {worst}");
        }
    }
}

/// A padded text after a prefix longer than a text may be: its positions are looked up beyond those of a standalone
/// text.
#[test]
fn padded_texts_have_all_positions() {
    let config = NetworkConfig { positions: 400, ..tiny_generator_config() };
    let program = random_generator(&config);
    let (prefix, text) = (ids(300, 11), ids(5, 7));
    let (mut cache, mut on) = (after(&program, &prefix), Clear::default());
    let terms = Terms { padded: true, ..Terms::default() };
    let mut last = None;
    for (rows, noise) in [(&text[..3], &[4, 9][..]), (&text[3..4], &[]), (&text[4..], &[])] {
        let new = TokenIds::with_padding(rows.to_vec(), noise);
        let input = Input::Texts(vec![new], terms);
        last = Some(run_next(&mut on, &program, &mut cache, &input, |_, _| ()).unwrap());
    }
    let clear = logits(&program, &[&prefix[..], &text].concat());
    let values = last.unwrap().values();
    let worst = values.iter().zip(&clear).map(|(a, b)| (a - b).abs());
    let worst = worst.fold(0.0, f64::max);
    assert!(worst < 0.04, "{worst}");
}

/// Padding in front of a text moves it away from a prefix, short or long, and its keys are turned by as much.
#[test]
fn padding_lies_between_a_prefix_and_its_text() {
    for model in models() {
        let program = model.program();
        for public in [1, 40] {
            let (prefix, text) = (ids(public, 11), ids(6, 7));
            let (mut cache, mut on) = (after(&program, &prefix), Clear::default());
            let terms = Terms { padded: true, ..Terms::default() };
            let mut last = None;
            for (rows, noise) in [(&text[..4], &[4, 9, 9][..]), (&text[4..5], &[]), (&text[5..], &[])] {
                let input = Input::Texts(vec![TokenIds::with_padding(rows.to_vec(), noise)], terms);
                last = Some(run_next(&mut on, &program, &mut cache, &input, |_, _| ()).unwrap());
            }
            assert_eq!((cache.rows(), cache.tokens(), cache.public()), (9, 6, public));
            let mut alone = after(&program, &prefix);
            let input = texts(&text, Terms::default());
            let without = run_next(&mut on, &program, &mut alone, &input, |_, _| ()).unwrap().values();
            let clear = logits(&program, &[&prefix[..], &text].concat());
            let worst = |values: &[f64], of: &[f64]| {
                let pairs = values.iter().zip(of);
                pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
            };
            let values = last.unwrap().values();
            // Some of these models have rows that are small for the usual format of a norm.
            assert!(worst(&without, &clear) < 0.06, "{public}: {}", worst(&without, &clear));
            assert!(worst(&values, &without) < 0.02, "{public}: {}", worst(&values, &without));
        }
    }
}

/// A text may begin with fewer of its rows.
#[test]
fn the_first_rows_of_a_prefix_are_a_prefix() {
    let [placed, turned, ..] = models();
    for model in [placed, turned] {
        let program = model.program();
        let (all, text) = (ids(40, 11), ids(3, 7));
        for rows in [1, 33] {
            let prefix = Prefix::run(&program, TokenIds::new(all.clone())).unwrap().first(rows);
            assert_eq!(prefix.rows(), rows);
            let mut cache = Cache::after(Arc::new(prefix));
            let input = texts(&text, Terms::default());
            let last = run_next(&mut Clear::default(), &program, &mut cache, &input, |_, _| ()).unwrap();
            let clear = logits(&program, &[&all[..rows], &text].concat());
            let worst = last.values().iter().zip(&clear).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            assert!(worst < 0.04, "{rows}: {worst}");
        }
    }
}

/// A prefix of one row costs about as much as one row that is held, and no products of its own.
#[test]
fn a_single_public_row_is_a_row_of_the_text() {
    let program = published_generator();
    let plan = |public, held| {
        let before = Before { public, held, ..Before::default() };
        Plan::next_token(&program, before, &[1], Terms::default()).unwrap()
    };
    let (behind, held) = (plan(1, 31), plan(0, 32));
    assert_eq!(behind.rounds, held.rounds);
    let sent = |plan: &Plan| (plan.bytes_up + plan.bytes_down + plan.ot_bytes) as f64;
    // Its sums have two bits more.
    assert!(sent(&behind) < 1.05 * sent(&held), "{} {}", sent(&behind), sent(&held));
}

/// Between two parties: tokens, bytes and rounds.
#[test]
fn tokens_behind_a_prefix_are_those_of_the_clear_model() {
    for (model, padding) in models().iter().zip([5, 5, 0, 5, 0, 5]) {
        generate(model, &ids(3, 11), &ids(5, 7), padding, Ahead::default());
        generate(model, &ids(37, 5), &ids(6, 13), padding, Ahead::default());
    }
}

/// Refused before anything is sent.
#[test]
fn prefixes_that_do_not_fit_are_refused() {
    let [placed, ..] = models();
    let unsupported = |error: Option<RunError>| matches!(error, Some(RunError::Unsupported { .. }));
    assert!(unsupported(Prefix::of_rows(MAX_PREFIX + 1).err()));
    let long = TokenIds::new(vec![1; MAX_PREFIX + 1]);
    assert!(unsupported(Prefix::run(&placed.program(), long).err()));
    let beyond = TokenIds::new(vec![1; placed.public.max_tokens + 1]);
    assert!(matches!(Prefix::run(&placed.program(), beyond).err(), Some(RunError::Model(_))));
    let next = |prefix: &[u32], program: &_, input: &Input| {
        let mut cache = after(program, prefix);
        run_next(&mut Clear::default(), program, &mut cache, input, |_, _| ()).err()
    };
    // More rows than positions left after the prefix.
    let positions = placed.public.max_tokens;
    let text = texts(&[1; 4], Terms::default());
    let program = placed.program();
    assert!(next(&vec![1; positions - 4], &program, &text).is_none());
    assert!(unsupported(next(&vec![1; positions - 3], &program, &text)));
    // A party without the prefix's numbers cannot compute.
    let mut empty = Cache::after(Arc::new(Prefix::of_rows(2).unwrap()));
    let refused = run_next(&mut Clear::default(), &program, &mut empty, &text, |_, _| ());
    assert!(matches!(refused.err(), Some(RunError::WrongInput)));
    // Values that the formats cannot hold.
    let mut large = tiny_generator();
    let Body::Decoder(decoder) = &mut large.body else {
        panic!("a decoder");
    };
    let value = &mut decoder.layers[0].attention.value;
    value.bias = Some(Arc::from(vec![20.0f32; value.outputs]));
    let refused = Prefix::run(&large.program(), TokenIds::new(vec![1, 2]));
    assert!(matches!(refused.err(), Some(RunError::OutOfRange(_))));
}

/// GPT-2 at its published size, counted: what a public prefix of 512 tokens adds to a private prompt of 64.
#[test]
fn a_long_prefix_costs_less_than_a_long_prompt() {
    let program = published_generator();
    let plan = |public| {
        let before = Before { public, ..Before::default() };
        Plan::next_token(&program, before, &[64], Terms::default()).unwrap()
    };
    let sent = |plan: &Plan| (plan.bytes_up + plan.bytes_down + plan.ot_bytes) as f64 / 1e6;
    let (alone, behind) = (plan(0), plan(512));
    println!(
        "64 alone {:.0} MB, {} rounds, {:.1} s; behind 512 {:.0} MB, {} rounds, {:.1} s",
        sent(&alone),
        alone.rounds,
        alone.seconds,
        sent(&behind),
        behind.rounds,
        behind.seconds
    );
    assert!(sent(&behind) < 2.2 * sent(&alone));
}
