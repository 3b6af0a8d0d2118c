//! Passes over whole texts and images whose products with weights and tables were made ahead.

use std::collections::BTreeMap;

use crate::common::run_pair;
use crate::images::images;
use crate::tiny::{assert_close, assert_is, pass_over, tokens};
use hushed_model::testing::{tiny_golden, tiny_model};
use hushed_model::{Model, TokenIds};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Answers, Input, Later, Link, Memory, Protocol, RunError, Terms, embeddings, logits};

/// Texts of each of these lengths.
fn sets(lengths: &[usize]) -> Vec<Later> {
    let mut all = BTreeMap::new();
    lengths.iter().for_each(|rows| *all.entry(*rows).or_insert(0) += 1);
    all.into_iter().map(|(rows, passes)| Later { passes, rows }).collect()
}

/// A pass with products made ahead, all of which are used: its answers, and what was made and run, as planned.
fn run(link: Link, model: &Model, input: &Input) -> (Vec<Vec<f64>>, u64, u64) {
    let (terms, lengths) = (input.terms(), input.lengths());
    let classifies = model.public.labels().is_some();
    let party = |on: &mut Protocol, model: &Model, input: &Input| {
        for later in sets(&lengths) {
            on.make_ahead(&model.program(), later, terms)?;
        }
        assert!(on.holds_ahead(&lengths) && !on.holds_ahead(&[lengths[0]; 9]));
        let answers = on.spending_ahead(&lengths, |on| match classifies {
            true => logits(on, model, input),
            false => embeddings(on, model, input, Answers::Label),
        });
        assert_eq!(on.passes_ahead(), 0);
        answers
    };
    let (answers, steps) = pass_over(link, model, input, party);
    let program = Model::shapes_only(&model.public).program();
    let all = sets(&lengths);
    let made = all.iter().map(|later| Plan::ahead(&program, *later, terms.over(link)).unwrap());
    let made: Vec<_> = made.flat_map(|plan| plan.steps).collect();
    let with = |ahead| {
        let terms = terms.over(link).spending(ahead);
        match classifies {
            true => Plan::classes(&program, &lengths, terms, Answers::Logits).unwrap(),
            false => Plan::twopc(&program, &lengths, terms, model.public.normalise, Answers::Label).unwrap(),
        }
    };
    let (plan, whole) = (with(true), with(false));
    assert_is(&Plan { steps: [made, plan.steps.clone()].concat(), ..plan.clone() }, &steps);
    assert!(plan.rounds < whole.rounds);
    (answers, plan.bytes_up + plan.bytes_down, whole.bytes_up + whole.bytes_down)
}

/// Several texts in a pass, some as long as others: the answers of the clear model, over two links, padded, and with
/// the public table; online fewer bytes.
#[test]
fn texts_with_products_made_ahead_are_the_same_and_cost_what_the_plan_says() {
    let (model, links) = (tiny_model(), [Link::LAN, Link::INTERNET]);
    let texts = tokens(&model);
    let padded: Vec<TokenIds> = texts.iter().map(|text| text.clone().pad_to(40, 0)).collect();
    let clear = model.embed(texts.clone()).unwrap();
    for link in links {
        for (texts, terms) in [
            (&texts, Terms::default()),
            (&padded, Terms { padded: true, public_table: false }),
            (&texts, Terms { padded: false, public_table: true }),
        ] {
            let (answers, online, whole) = run(link, &model, &Input::Texts(texts.clone(), terms));
            assert_close(&answers, &clear);
            assert!(online < whole, "{online} {whole}");
        }
    }
}

/// A classifier of pairs with token types, and images.
#[test]
fn pairs_and_images_have_their_products_made_ahead() {
    let model = Model::load(&tiny_golden("cross-encoder")).unwrap();
    let pair = model.public.pair(["How long is the notice period?", "The weather"], Default::default()).unwrap();
    let clear = model.embed(vec![pair.clone()]).unwrap();
    let (answers, ..) = run(Link::LAN, &model, &Input::Texts(vec![pair], Terms::default()));
    assert!((answers[0][0] - clear[0][0]).abs() < 0.01);
    let model = Model::load(&tiny_golden("vit-rows")).unwrap();
    let some = images(&model, 2);
    let clear = model.embed(some.clone()).unwrap();
    let (answers, ..) = run(Link::LAN, &model, &Input::Images(some));
    assert_close(&answers, &clear);
}

/// Texts of other lengths take nothing, before anything is sent; the oldest sets of a length are used first, once.
#[test]
fn a_set_is_for_one_text_of_its_length() {
    let model = tiny_model();
    let go = |on: &mut Protocol, model: &Model| {
        let program = model.program();
        for (passes, rows) in [(2, 5), (1, 7)] {
            on.make_ahead(&program, Later { passes, rows }, Terms::default()).unwrap();
        }
        let sent = on.ctx().session.stats().frames_sent;
        for lengths in [&[6][..], &[5, 5, 5], &[7, 7], &[5, 1]] {
            let refused = on.spending_ahead(lengths, |_| Ok(()));
            assert!(matches!(refused, Err(RunError::NothingAhead)) && on.passes_ahead() == 3);
        }
        assert_eq!(on.ctx().session.stats().frames_sent, sent);
        for (lengths, left) in [(&[7, 5][..], 1), (&[5], 0)] {
            on.spending_ahead(lengths, |_| Ok(())).unwrap();
            assert_eq!(on.passes_ahead(), left);
        }
    };
    run_pair(|on| go(on, &Model::shapes_only(&model.public)), |on| go(on, &model));
}

/// What a server's sessions hold is counted: of the longest texts, made as many together as a pass has.
#[test]
fn sets_for_texts_take_memory() {
    let program = Model::shapes_only(&tiny_model().public).program();
    let with = |rows: usize, ahead| {
        let memory = Memory::largest(&program, (0, rows), 64).unwrap();
        memory.with_later(&program, (0, rows), 64, (ahead, 0)).unwrap()
    };
    assert_eq!(with(16, 0).stock, 0);
    let [one, eight] = [with(16, 1), with(16, 8)];
    assert_eq!(eight.stock, 8 * one.stock);
    assert!(eight.session >= with(16, 0).session + eight.stock);
    // All but the pooled row are twice as many.
    assert_eq!(2 * eight.stock - with(32, 8).stock, 8 * 8 * program.width() as u64);
}
