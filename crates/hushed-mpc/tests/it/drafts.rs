//! Passes that verify drafts, between two parties in two threads: every row against the clear model, every pass against
//! its plan.

use std::sync::Arc;
use std::sync::mpsc;

use crate::common::backend;
use crate::decode::{after, behind, likeliest, logits, models, payload, planned, prompt, shapes_of, texts};
use crate::tiny::{End, steps};
use hushed_model::testing::{published_generator, tiny_generator};
use hushed_model::tokens::TokenIds;
use hushed_model::{Model, Program};
use hushed_mpc::plan::Plan;
use hushed_mpc::{
    Adds, Before, Cache, Clear, Input, Penalties, Prefix, RunError, Sampler, SessionTerms, Terms, TextCache,
    next_token, next_tokens, tokens_of_rows,
};
use hushed_twopc::ot::ideal::IdealPair;
use hushed_twopc::testing::watched_pair;

/// Which drafts of a pass are wrong.
type Wrong = fn(usize) -> bool;

const RIGHT: Wrong = |_| false;
const WRONG: Wrong = |_| true;
const HALF: Wrong = |draft| draft >= 1;

/// The clear model's next `count` tokens after these ids.
fn continued(program: &Program, ids: &[u32], count: usize) -> Vec<u32> {
    let mut all = ids.to_vec();
    for _ in 0..count {
        all.push(likeliest(&logits(program, &all)).0);
    }
    all.split_off(ids.len())
}

/// What the server learns of a pass: its rows, how many of the last rows are dropped first, whether it has products
/// made ahead.
struct Asked {
    rows: usize,
    dropped: usize,
    ahead: bool,
}

/// A prompt, and then one pass per entry of `passes`: the number of drafts, and which are wrong.
fn verify(model: &Model, prefix: &[u32], padding: usize, ahead: bool, passes: &[(usize, Wrong)]) {
    let (program, shapes) = (model.program(), shapes_of(model));
    let (near, far, watch) = watched_pair();
    let (near_ot, far_ot) = IdealPair::new();
    let (public, prompt) = (prefix.len(), prompt());
    let (first, terms) = (prompt.len() + padding, Terms { padded: padding > 0, ..Terms::default() });
    let made: usize = passes.iter().map(|(drafts, _)| 1 + drafts).sum();
    let (ask, asked) = mpsc::channel::<Asked>();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let asked = asked;
            let mut on = backend(far, Box::new(far_ot), Arc::default()).unwrap();
            let began = on.ctx().session.stats();
            let mut cache = after(&program, prefix);
            if ahead {
                on.make_ahead(&program, made, terms).unwrap();
            }
            let input = Input::Lengths(vec![first], terms);
            next_token(&mut on, &program, &mut cache, &input, None).unwrap();
            for Asked { rows, dropped, ahead } in asked {
                cache.keep(cache.rows() - dropped).unwrap();
                let input = Input::Lengths(vec![rows], terms);
                let adds = Adds::default();
                let mut pass = |on: &mut _| tokens_of_rows(on, &program, &mut cache, &input, adds, 1);
                let said = match ahead {
                    true => on.spending_ahead(&vec![1; rows], pass),
                    false => pass(&mut on),
                };
                assert_eq!(said.unwrap(), None, "the server learns no token");
            }
            End::of(&mut on, began)
        });
        let mut on = backend(near, Box::new(near_ot), Arc::default()).unwrap();
        let (began, mut rounds) = (on.ctx().session.stats(), Vec::new());
        let none = Arc::new(Prefix::of_rows(public).unwrap());
        let (mut cache, mut ids) = (Cache::after(none), [prefix, &prompt].concat());
        if ahead {
            on.make_ahead(&shapes, made, terms).unwrap();
            let plan = Plan::ahead(&shapes, made, terms).unwrap();
            rounds.extend(plan.steps.iter().map(|s| (s.site.clone(), Some(s.rounds))));
        }
        let noise: Vec<u32> = (0..padding).map(|i| (i * 31 % 61) as u32).collect();
        let new = TokenIds::with_padding(prompt.clone(), &noise);
        let (seen, input) = (on.costs().len(), Input::Texts(vec![new], terms));
        let token = next_token(&mut on, &shapes, &mut cache, &input, None);
        ids.push(token.unwrap().unwrap());
        let start = Before { public, ..Before::default() };
        let plan = Plan::next_token(&shapes, start, &[first], terms).unwrap();
        assert_eq!(payload(&on.costs()[seen..]), planned(&plan));
        rounds.extend(plan.steps.iter().map(|s| (s.site.clone(), Some(s.rounds))));

        let mut dropped = 0;
        for &(count, wrong) in passes {
            let drafts = continued(&program, &ids, count).into_iter().enumerate();
            let drafts: Vec<u32> = drafts.map(|(i, id)| if wrong(i) { (id + 1) % 61 } else { id }).collect();
            let new = [&ids[ids.len() - 1..], &drafts].concat();
            let rows = new.len();
            ask.send(Asked { rows, dropped, ahead }).unwrap();
            cache.keep(cache.rows() - dropped).unwrap();
            let (held, seen) = (cache.rows(), on.costs().len());
            let (input, adds) = (texts(&new, terms), Adds::default());
            let mut pass = |on: &mut _| tokens_of_rows(on, &shapes, &mut cache, &input, adds, 1);
            let said = match ahead {
                true => on.spending_ahead(&vec![1; rows], pass),
                false => pass(&mut on),
            };
            let said: Vec<u32> = said.unwrap().unwrap().concat();
            assert_eq!((said.len(), cache.rows()), (rows, held + rows));
            let before = Before { public, held, drafts: true, ..Before::default() };
            let terms = SessionTerms::from(terms).spending(ahead);
            let plan = Plan::next_token(&shapes, before, &[rows], terms).unwrap();
            assert_eq!(payload(&on.costs()[seen..]), planned(&plan));
            rounds.extend(plan.steps.iter().map(|s| (s.site.clone(), Some(s.rounds))));
            // This includes what follows a wrong draft.
            for (row, &token) in said.iter().enumerate() {
                let clear = logits(&program, &[&ids[..], &drafts[..row]].concat());
                let (expected, _) = likeliest(&clear);
                let behind = clear[expected as usize] - clear[token as usize];
                assert!(behind < 0.05, "row {row}: {token} {expected} {behind}");
            }
            let pairs = drafts.iter().zip(&said);
            let right = pairs.take_while(|(draft, said)| draft == said).count();
            ids.extend(&said[..=right]);
            dropped = drafts.len() - right;
        }
        drop(ask);
        let (client, server) = (End::of(&mut on, began), server.join().unwrap());
        let seen = steps(&client, &server, &watch).into_iter();
        assert_eq!(seen.map(|s| (s.site, s.rounds)).collect::<Vec<_>>(), rounds);
    });
}

/// Each row gives the clear model's token after the text and the drafts before it, with rows of wrong drafts dropped;
/// each pass costs what its plan says.
#[test]
fn rows_are_those_of_the_clear_model_and_cost_what_the_plan_says() {
    let passes = [(3, RIGHT), (3, HALF), (2, WRONG), (0, RIGHT), (4, HALF)];
    for model in models() {
        for padding in [0, 9] {
            verify(&model, &[], padding, false, &passes);
        }
    }
    verify(&tiny_generator(), &[3, 4, 50], 0, false, &passes);
}

/// The same where products of all rows were made ahead.
#[test]
fn rows_take_products_made_ahead() {
    let passes = [(3, HALF), (1, RIGHT), (2, WRONG), (0, RIGHT)];
    for model in models() {
        verify(&model, &[], 3, true, &passes);
    }
    verify(&tiny_generator(), &[3, 4, 50], 0, true, &passes[..2]);
}

/// With what the parties add: a row gets the token that a one-row pass at its position gets, which is the largest of
/// the clear logits with noise and penalties, up to the error of functions and formats.
#[test]
fn noise_and_penalties_are_of_their_rows() {
    let sampler = Sampler::from_os();
    for model in models() {
        let program = model.program();
        for seed in 0..8 {
            draws_alike(&program, &sampler, seed);
        }
    }
}

/// Nine tokens one by one, then again with right drafts and a wrong one.
fn draws_alike(program: &Program, sampler: &Sampler, seed: u64) {
    let penalties = Penalties { presence: 1.5, frequency: 1.0, ..Penalties::default() };
    let mut on = Clear::default();
    let mut pass = |cache: &mut TextCache, new: &[u32], answer: &[u32]| {
        // Only the last row of a prompt.
        let opened = if cache.rows() == 0 { 1 } else { new.len() };
        let draw = sampler.draw(1.0, seed, cache.rows() + new.len() - opened);
        let adds = Adds { draw: Some(&draw), penalties: Some((&penalties, answer)) };
        let (input, on) = (texts(new, Terms::default()), &mut on);
        let said = match opened {
            1 => next_tokens(on, program, cache, &input, adds, 1),
            _ => tokens_of_rows(on, program, cache, &input, adds, 1).map(|rows| rows.map(|r| r.concat())),
        };
        said.unwrap().unwrap()
    };
    // Checks the tokens that follow an answer, one after each of its last tokens.
    let follow = |answer: &[u32], said: &[u32]| {
        for (row, &token) in said.iter().enumerate() {
            let before = &answer[..answer.len() + 1 - said.len() + row];
            let text = [&prompt()[..], before].concat();
            let mut logits = logits(program, &text);
            let times = |id| before.iter().filter(|&&seen| seen == id).count() as f64;
            for (id, logit) in (0..).zip(&mut logits) {
                let times = times(id);
                *logit -= penalties.frequency * times + penalties.presence * times.min(1.0);
            }
            let draw = sampler.draw(1.0, seed, text.len() - 1);
            let behind = behind(&logits, &draw, token);
            assert!(behind < 0.05, "{seed}, {} rows: {behind}", text.len());
        }
    };
    let (mut cache, mut answer) = (TextCache::default(), Vec::new());
    for _ in 0..9 {
        let new = match answer.last() {
            None => prompt(),
            Some(&last) => vec![last],
        };
        let said = pass(&mut cache, &new, &answer);
        follow(&answer, &said);
        answer.extend(said);
    }
    let mut cache = TextCache::default();
    follow(&[], &pass(&mut cache, &prompt(), &[]));
    follow(&answer[..4], &pass(&mut cache, &answer[..4], &answer[..4]));
    let drafts = [answer[4], (answer[5] + 1) % 61, answer[6]];
    let seen = [&answer[..4], &drafts].concat();
    follow(&seen, &pass(&mut cache, &drafts, &seen));
    cache.keep(cache.rows() - 2).unwrap();
    follow(&answer[..8], &pass(&mut cache, &answer[5..8], &answer[..8]));
}

#[test]
fn rows_that_cannot_stay_are_refused() {
    let program = tiny_generator().program();
    let (mut on, mut cache) = (Clear::default(), TextCache::default());
    let padded = Terms { padded: true, ..Terms::default() };
    let refused = |result: Result<(), RunError>| matches!(result, Err(RunError::WrongInput));
    assert!(refused(cache.keep(0)) && refused(cache.keep(1)));
    let text = || Input::Texts(vec![TokenIds::with_padding(vec![1, 2], &[3, 4])], padded);
    // Rows of padding give no token.
    let adds = Adds::default();
    let rows = tokens_of_rows(&mut on, &program, &mut cache, &text(), adds, 1);
    assert!(refused(rows.map(drop)));
    next_token(&mut on, &program, &mut cache, &text(), None).unwrap();
    tokens_of_rows(&mut on, &program, &mut cache, &texts(&[5, 6], padded), adds, 1).unwrap();
    assert_eq!((cache.rows(), cache.tokens()), (6, 4));
    for rows in [0, 3, 7] {
        assert!(refused(cache.keep(rows)), "{rows}");
    }
    for (rows, tokens) in [(6, 4), (5, 3), (4, 2)] {
        cache.keep(rows).unwrap();
        assert_eq!((cache.rows(), cache.tokens()), (rows, tokens));
    }
}

/// Published-size GPT-2: four rows take at most a quarter more rounds than one, and less than four times the bytes.
#[test]
fn passes_of_published_size_wait_little_more() {
    let program = published_generator();
    for ahead in [false, true] {
        let plan = |rows: usize| {
            let before = Before { held: 128, drafts: rows > 1, ..Before::default() };
            let terms = SessionTerms::default().spending(ahead);
            Plan::next_token(&program, before, &[rows], terms).unwrap()
        };
        let (one, four) = (plan(1), plan(4));
        let bytes = |plan: &Plan| plan.bytes_up + plan.bytes_down + plan.ot_bytes;
        println!(
            "ahead {ahead}: {} and {} MB, {} and {} rounds, {:.2} and {:.2} s",
            bytes(&one) / 1_000_000,
            bytes(&four) / 1_000_000,
            one.rounds,
            four.rounds,
            one.seconds,
            four.seconds
        );
        assert!(four.rounds < one.rounds + one.rounds / 4);
        assert!(bytes(&four) < 4 * bytes(&one));
    }
}
