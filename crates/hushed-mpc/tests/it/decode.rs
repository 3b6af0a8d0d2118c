//! A decoder continued token by token, between two parties in two threads, against the same model in the clear.

use std::sync::Arc;

use crate::common::{backend, run_pair};
use crate::tiny::{End, public_table, steps};
use hushed_model::testing::{pruned, published_generator, tiny_generator, tiny_golden, tiny_ternary, variant};
use hushed_model::tokens::TokenIds;
use hushed_model::{Model, NetworkConfig, PlainActs, Pool, Program, Weigh, network_shapes, plain, vit_shapes};
use hushed_mpc::formats::is_long;
use hushed_mpc::plan::Plan;
use hushed_mpc::{
    Adds, Answers, Before, Cache, Clear, Draw, Input, Prefix, Protocol, RunError, Sampler, SessionTerms, Shares,
    StepCost, Terms, TextCache, next_token, next_tokens, run, run_next,
};
use hushed_twopc::cost::FRAME_BYTES;
use hushed_twopc::ot::ideal::IdealPair;
use hushed_twopc::testing::watched_pair;

fn program() -> Program {
    tiny_generator().program()
}

fn shapes() -> Program {
    shapes_of(&tiny_generator())
}

pub fn shapes_of(model: &Model) -> Program {
    Model::shapes_only(&model.public).program()
}

/// One with a table of positions, and two with rotary positions and keys shared between heads; also with a sigmoid in
/// place of softmax, with norms inside the blocks, with a gate of squares.
pub fn models() -> [Model; 6] {
    let golden = |name| Model::load(&tiny_golden(name)).unwrap();
    let [squares, sigmoid, both] = tiny_ternary();
    [tiny_generator(), golden("llama"), golden("llama-tied"), squares, sigmoid, both]
}

pub fn prompt() -> Vec<u32> {
    vec![5, 60, 0, 17, 17, 42, 9]
}

pub fn logits(program: &Program, ids: &[u32]) -> Vec<f64> {
    let last = plain::run(program, vec![TokenIds::new(ids.to_vec())], |_, _: &PlainActs| ());
    last.unwrap().values.data().to_vec()
}

/// The likeliest token, and its lead.
pub fn likeliest(logits: &[f64]) -> (u32, f64) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    (order[0] as u32, logits[order[0]] - logits[order[1]])
}

pub fn texts(ids: &[u32], terms: Terms) -> Input {
    Input::Texts(vec![TokenIds::new(ids.to_vec())], terms)
}

/// Passes over some rows at a time give what a pass over all rows gives, but not word for word where softmax divides
/// before or after the product with V depending on the number of keys.
#[test]
fn a_cached_pass_is_a_full_pass() {
    for model in models() {
        let config = &model.public.config;
        let bound = match (config.weigh, config.sub_norms) {
            (Weigh::Sigmoid { .. }, _) => 0.0,
            (Weigh::Softmax, false) => 2e-3,
            // The norm after it enlarges all of it.
            (Weigh::Softmax, true) => 1e-2,
        };
        cached(&model.program(), bound);
    }
    cached(&pruned(tiny_generator(), &[1]).program(), 2e-3);
}

fn cached(program: &Program, bound: f64) {
    let ids: Vec<u32> = (0..20).map(|i| (i * i * 7 + 3) % 61).collect();
    let full = run(&mut Clear::default(), program, &texts(&ids, Terms::default()), |_, _| ());
    let full = full.unwrap();
    for cuts in [vec![20], vec![7, 13], vec![1; 20], vec![12, 1, 1, 6]] {
        let (mut cache, mut on, mut first) = (Cache::default(), Clear::default(), 0);
        let mut last = None;
        for rows in cuts {
            let input = texts(&ids[first..first + rows], Terms::default());
            last = Some(run_next(&mut on, program, &mut cache, &input, |_, _| ()).unwrap());
            first += rows;
        }
        assert_eq!(cache.rows(), 20);
        let last = last.unwrap().values();
        let worst = last.iter().zip(full.values()).map(|(a, b)| (a - b).abs());
        let worst = worst.fold(0.0, f64::max);
        assert!(worst <= bound, "{worst}");
    }
    // Close to the clear model.
    let clear = logits(program, &ids);
    let values = full.values();
    let worst = values.iter().zip(&clear).map(|(a, b)| (a - b).abs());
    let worst = worst.fold(0.0, f64::max);
    assert!(worst < 0.04, "{worst}");
}

/// A later token changes nothing before it: the mask is causal.
#[test]
fn the_future_is_not_seen() {
    models().iter().for_each(|model| unseen(&model.program()));
}

fn unseen(program: &Program) {
    let mut seen = Vec::new();
    for last in [3, 59] {
        let ids = [prompt(), vec![last]].concat();
        let mut rows = Vec::new();
        run(&mut Clear::default(), program, &texts(&ids, Terms::default()), |step, x| {
            // The last layer ends in the last row only.
            let before = prompt().len() * x.width();
            if step.id.layer().is_some() && x.rows().total() > prompt().len() {
                rows.extend_from_slice(&x.share().0.words()[..before]);
            }
        })
        .unwrap();
        seen.push(rows);
    }
    assert_eq!(seen[0], seen[1]);
}

/// What the client sent and received in the steps of a pass, without headers, and the bits that were opened to it.
pub fn payload(costs: &[StepCost]) -> Vec<(String, [u64; 3])> {
    let headers = |frames: u64| frames * FRAME_BYTES;
    let step = |c: &StepCost| {
        let up = c.stats.bytes_sent - headers(c.stats.frames_sent);
        let down = c.stats.bytes_received - headers(c.stats.frames_received);
        (c.step.to_string(), [up, down, c.opened_bits])
    };
    costs.iter().map(step).collect()
}

pub fn planned(plan: &Plan) -> Vec<(String, [u64; 3])> {
    let steps = plan.steps.iter();
    steps.map(|s| (s.site.clone(), [s.bytes_up, s.bytes_down, s.opened_bits])).collect()
}

/// Four tokens: those of the clear model wherever it is sure, and every pass as planned, in bytes and rounds. With
/// padding, only the client knows the length of the prompt, and so the position of each later token.
#[test]
fn tokens_are_those_of_the_clear_model_and_cost_what_the_plan_says() {
    for model in models() {
        for (prompt, padding) in [(prompt(), 0), (prompt(), 9), (vec![7], 3)] {
            generate(&model, &[], &prompt, padding, Ahead::default());
        }
    }
}

/// The same where the client's ciphertexts of 32 rows are kept: as the text passes that length, and from a prompt that
/// is longer. With 16 rows behind a padded prompt they are those of padding too.
#[test]
fn tokens_after_rows_whose_ciphertexts_are_kept_cost_what_the_plan_says() {
    let long: Vec<u32> = (0..30).map(|i| (i * i * 7 + 3) % 61).collect();
    for model in [&models()[0], &models()[1], &models()[4]] {
        generate(model, &[], &long, 0, Ahead::default());
        generate(model, &[], &long[..20], 16, Ahead::default());
    }
    generate(&tiny_generator(), &[3, 4, 50], &long, 3, Ahead { passes: 2, public_table: false });
}

/// What is made ahead in a test, and whether the table is public.
#[derive(Clone, Copy, Default)]
pub struct Ahead {
    pub passes: usize,
    pub public_table: bool,
}

/// The same if two of the later tokens have their products made ahead and the last one does not; also with a public
/// table, for which nothing is made.
#[test]
fn tokens_whose_products_were_made_ahead_are_the_same_and_cost_what_the_plan_says() {
    for public_table in [false, true] {
        let ahead = Ahead { passes: 2, public_table };
        for model in models() {
            generate(&model, &[], &prompt(), 3, ahead);
        }
        generate(&tiny_generator(), &[3, 4, 50], &prompt(), 0, ahead);
    }
}

/// A pass of one row, with products made ahead or without; checks that an empty stock sends nothing.
fn later(
    on: &mut Protocol,
    mut pass: impl FnMut(&mut Protocol) -> Result<Option<u32>, RunError>,
) -> Result<Option<u32>, RunError> {
    let (left, sent) = (on.passes_ahead(), on.ctx().session.stats().frames_sent);
    match on.spending_ahead(&[1], &mut pass) {
        Err(RunError::NothingAhead) => {
            assert_eq!((left, on.ctx().session.stats().frames_sent), (0, sent));
            pass(on)
        }
        token => {
            assert_eq!(on.passes_ahead(), left - 1);
            token
        }
    }
}

/// A text after a public prefix, at the party that has the weights.
pub fn after(program: &Program, prefix: &[u32]) -> TextCache {
    match prefix.is_empty() {
        true => Cache::default(),
        false => {
            let text = TokenIds::new(prefix.to_vec());
            Cache::after(Arc::new(Prefix::run(program, text).unwrap()))
        }
    }
}

/// Tokens after a public prefix, against the clear model and the plan; products of some later ones are made ahead.
pub fn generate(model: &Model, prefix: &[u32], prompt: &[u32], padding: usize, ahead: Ahead) {
    let (server_program, client_program) = (model.program(), shapes_of(model));
    let (near, far, watch) = watched_pair();
    let (near_ot, far_ot) = IdealPair::new();
    let (tokens, first) = (4, prompt.len() + padding);
    let (public, long) = (prefix.len(), is_long(first + tokens - 1));
    let terms = Terms { padded: padding > 0, public_table: ahead.public_table };
    let ahead = ahead.passes;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut on = backend(far, Box::new(far_ot), Arc::default()).unwrap();
            let began = on.ctx().session.stats();
            let mut cache = after(&server_program, prefix).long(long);
            if ahead > 0 {
                on.make_ahead(&server_program, ahead, terms).unwrap();
            }
            for i in 0..tokens {
                let rows = if i == 0 { first } else { 1 };
                let input = Input::Lengths(vec![rows], terms);
                let mut pass = |on: &mut _| next_token(on, &server_program, &mut cache, &input, None);
                let token = match i {
                    0 => pass(&mut on),
                    _ => later(&mut on, pass),
                };
                assert_eq!(token.unwrap(), None, "the server learns no token");
            }
            End::of(&mut on, began)
        });
        let mut on = backend(near, Box::new(near_ot), Arc::default()).unwrap();
        if terms.public_table {
            on.set_table(public_table(model));
        }
        let (began, mut rounds) = (on.ctx().session.stats(), Vec::new());
        let none = Arc::new(Prefix::of_rows(public).unwrap());
        let (mut cache, mut ids) = (Cache::after(none).long(long), [prefix, prompt].concat());
        let noise: Vec<u32> = (0..padding).map(|i| (i * 31 % 61) as u32).collect();
        let mut new = TokenIds::with_padding(prompt.to_vec(), &noise);
        if ahead > 0 {
            on.make_ahead(&client_program, ahead, terms).unwrap();
            let plan = Plan::ahead(&client_program, ahead, terms).unwrap();
            assert_eq!(payload(on.costs()), planned(&plan));
            rounds.extend(plan.steps.iter().map(|s| (s.site.clone(), Some(s.rounds))));
        }
        for _ in 0..tokens {
            let (held, rows, before) = (cache.rows(), new.rows().total, on.costs().len());
            let input = Input::Texts(vec![new], terms);
            let ahead = held > 0 && on.passes_ahead() > 0;
            let plan = Before { public, held, long, ..Before::default() };
            let mut pass = |on: &mut _| next_token(on, &client_program, &mut cache, &input, None);
            let token = match held {
                0 => pass(&mut on),
                _ => later(&mut on, pass),
            };
            let token = token.unwrap().unwrap();
            let terms = SessionTerms::from(terms).spending(ahead);
            let plan = Plan::next_token(&client_program, plan, &[rows], terms).unwrap();
            assert_eq!(payload(&on.costs()[before..]), planned(&plan));
            rounds.extend(plan.steps.iter().map(|s| (s.site.clone(), Some(s.rounds))));
            let clear = logits(&server_program, &ids);
            let (expected, lead) = likeliest(&clear);
            let behind = clear[expected as usize] - clear[token as usize];
            assert!(token == expected || behind < 0.05, "{token} {expected} {lead} {behind}");
            ids.push(token);
            new = TokenIds::new(vec![token]);
        }
        let (client, server) = (End::of(&mut on, began), server.join().unwrap());
        let seen = steps(&client, &server, &watch).into_iter();
        assert_eq!(seen.map(|s| (s.site, s.rounds)).collect::<Vec<_>>(), rounds);
    });
}

/// A text of more rows than the usual formats hold, and its answer: the first pass and those after it at the bytes and
/// rounds of the plan, with few rows of a public prefix and without.
#[test]
fn a_long_text_is_continued() {
    let model = variant("llama-scaled");
    let prompt: Vec<u32> = (0..262).map(|i| (i * i * 7 + 3 * i) % 300).collect();
    for prefix in [0, 2] {
        generate(&model, &prompt[..prefix], &prompt[prefix..], 0, Ahead { passes: 0, public_table: false });
    }
}

/// As many rows as there can be, in the clear with the words of the formats; and no more, nor more than was agreed.
#[test]
fn the_longest_text_is_continued_in_the_clear() {
    let program = variant("llama-scaled").program();
    let ids: Vec<u32> = (0..1025).map(|i| (i * i * 7 + 3 * i) % 300).collect();
    let (mut cache, mut first) = (Cache::default().long(true), 0);
    let mut next = |rows: usize| {
        let input = texts(&ids[first..first + rows], Terms::default());
        let last = run_next(&mut Clear::default(), &program, &mut cache, &input, |_, _| ());
        first += rows;
        last.map(|last| last.values())
    };
    for (rows, all) in [(700, 700), (320, 1020), (1, 1021), (3, 1024)] {
        let clear = logits(&program, &ids[..all]);
        let worst = next(rows).unwrap().iter().zip(&clear).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(worst < 0.04, "{all}: {worst}");
    }
    assert!(matches!(next(1), Err(RunError::Unsupported { .. })));
    let input = texts(&ids[..257], Terms::default());
    let short = run_next(&mut Clear::default(), &program, &mut Cache::default(), &input, |_, _| ());
    assert!(matches!(short.err(), Some(RunError::Unsupported { .. })));
}

/// With the operator's permission: the likeliest tokens in order, as the plan says.
#[test]
fn the_likeliest_tokens_come_in_their_order() {
    const TOP: usize = 5;
    let (program, shapes) = (program(), shapes());
    let next = |on: &mut Protocol, program: &Program, input: &Input| {
        let (mut cache, adds) = (Cache::default(), Adds::default());
        next_tokens(on, program, &mut cache, input, adds, TOP).unwrap()
    };
    let (found, seen) = run_pair(
        |on| {
            let found = next(on, &shapes, &texts(&prompt(), Terms::default()));
            let answers = Answers::Top(TOP as u16);
            let rows = [prompt().len()];
            let plan = Plan::next_tokens(&shapes, 0, &rows, Terms::default(), answers).unwrap();
            assert_eq!(payload(on.costs()), planned(&plan));
            found.unwrap()
        },
        |on| {
            let input = Input::Lengths(vec![prompt().len()], Terms::default());
            next(on, &program, &input)
        },
    );
    assert_eq!(seen, None, "the server learns no token");
    let clear = logits(&program, &prompt());
    let mut order = clear.clone();
    order.sort_by(|a, b| b.total_cmp(a));
    let distinct: std::collections::BTreeSet<&u32> = found.iter().collect();
    assert_eq!((found.len(), distinct.len()), (TOP, TOP));
    for (&token, logit) in found.iter().zip(order) {
        assert!(logit - clear[token as usize] < 0.05, "{found:?}");
    }
    let (mut on, input) = (Clear::default(), texts(&prompt(), Terms::default()));
    for top in [0, clear.len() + 1] {
        let refused = next_tokens(&mut on, &program, &mut Cache::default(), &input, Adds::default(), top);
        assert!(matches!(refused.err(), Some(RunError::Unsupported { .. })));
    }
}

/// Only the server adds noise: the client, which has none, gets what both together give in the clear.
#[test]
fn noise_is_added_by_the_server() {
    let sampler = Sampler::from_os();
    let (program, shapes) = (program(), shapes());
    let draw = |seed| sampler.draw(2.0, seed, prompt().len() - 1);
    let in_clear = |seed| {
        let (mut on, input) = (Clear::default(), texts(&prompt(), Terms::default()));
        let draw = draw(seed);
        let token = next_token(&mut on, &program, &mut Cache::default(), &input, Some(&draw));
        token.unwrap().unwrap()
    };
    let seeds = 0..6u64;
    let expected: Vec<u32> = seeds.clone().map(in_clear).collect();
    let distinct: std::collections::BTreeSet<&u32> = expected.iter().collect();
    assert!(distinct.len() > 1, "{expected:?}");
    let (found, ()) = run_pair(
        |on| {
            let found = seeds.clone().map(|_| {
                let input = texts(&prompt(), Terms::default());
                let token = next_token(on, &shapes, &mut Cache::default(), &input, None);
                token.unwrap().unwrap()
            });
            found.collect::<Vec<u32>>()
        },
        |on| {
            for seed in seeds.clone() {
                let input = Input::Lengths(vec![prompt().len()], Terms::default());
                let (mut cache, draw) = (Cache::default(), draw(seed));
                next_token(on, &program, &mut cache, &input, Some(&draw)).unwrap();
            }
        },
    );
    // The largest of the clear logits with that noise, up to a private run's error.
    for (seed, token) in seeds.zip(found) {
        let behind = behind(&logits(&program, &prompt()), &draw(seed), token);
        assert!(behind < 0.05, "seed {seed}: {token} {behind}");
    }
}

/// How far a token's logit is behind the largest, with the noise of a draw.
pub fn behind(logits: &[f64], draw: &Draw<'_>, token: u32) -> f64 {
    let noise = draw.noise_of_rows(1, logits.len()).into_iter();
    let noisy = logits.iter().zip(noise).map(|(l, n)| l + n as f64 / 4096.0);
    let noisy: Vec<f64> = noisy.collect();
    noisy[likeliest(&noisy).0 as usize] - noisy[token as usize]
}

/// Refused before anything is sent: too many rows for the position table, several texts, late padding, an encoder.
#[test]
fn what_does_not_fit_is_refused() {
    let (program, mut cache) = (program(), Cache::default());
    let mut on = Clear::default();
    let mut next =
        |ids: &[u32], cache: &mut _| next_token(&mut on, &program, cache, &texts(ids, Terms::default()), None);
    next(&[1; 60], &mut cache).unwrap();
    assert!(matches!(next(&[1; 9], &mut cache).err(), Some(RunError::Unsupported { .. })));
    assert!(matches!(next(&[], &mut cache).err(), Some(RunError::Unsupported { .. })));
    let both = Input::Texts(vec![TokenIds::new(vec![1]), TokenIds::new(vec![2])], Terms::default());
    let mut on = Clear::default();
    let refused = run_next(&mut on, &program, &mut Cache::default(), &both, |_, _| ());
    assert!(matches!(refused.err(), Some(RunError::WrongInput)));
    let terms = Terms { padded: true, ..Terms::default() };
    let padded = Input::Texts(vec![TokenIds::with_padding(vec![1], &[2])], terms);
    let refused = run_next(&mut on, &program, &mut cache, &padded, |_, _| ());
    assert!(matches!(refused.err(), Some(RunError::WrongInput)));
    let encoder = hushed_model::testing::tiny_model().program();
    let input = texts(&[1, 2, 3], Terms::default());
    let refused = next_token(&mut on, &encoder, &mut Cache::default(), &input, None);
    assert!(matches!(refused.err(), Some(RunError::Unsupported { .. })));
    assert!(on.takes(&input));
}

/// In the last layer a prompt's rows only give keys and values, in a model of published size.
#[test]
fn the_last_layer_of_a_prompt_is_one_row() {
    let program = published_generator();
    let layer = |plan: &Plan, layer: usize| {
        let steps = plan.steps.iter();
        let prefix = format!("layer.{layer}.");
        let steps = steps.filter(|s| s.site.starts_with(&prefix));
        steps.map(|s| s.bytes_up + s.bytes_down).sum::<u64>()
    };
    for padded in [false, true] {
        let terms = Terms { padded, ..Terms::default() };
        let plan = |held, rows| Plan::next_token(&program, held, &[rows], terms).unwrap();
        let (prompt, token) = (plan(0, 64), plan(128, 1));
        let (last, other) = (layer(&prompt, 11), layer(&prompt, 10));
        println!(
            "64 rows, padded {padded}: {} MB with OTs, {} rounds, {:.1} s; last layer {last}, others {other}; a token after 128 {} bytes, {} rounds",
            (prompt.bytes_up + prompt.bytes_down + prompt.ot_bytes) as f64 / 1e6,
            prompt.rounds,
            prompt.seconds,
            token.bytes_up + token.bytes_down,
            token.rounds
        );
        assert!(4 * last < other, "{last} {other}");
    }
}

/// What passes of published sizes send, including OTs, must not grow. BumbleBee sends 2,970 and 7,100 MB for GPT-2, and
/// 12,400 MB for ViT (its Table VI).
#[test]
fn passes_of_published_sizes_send_no_more() {
    let program = published_generator();
    let vit = vit_shapes(&NetworkConfig::vit_base()).program();
    let terms = Terms::default();
    let generator = |rows| Plan::next_token(&program, 0, &[rows], terms).unwrap();
    let later = Plan::next_token(&program, 128, &[1], terms).unwrap();
    // MiniLM's size, for a row more than a power of two.
    let minilm = NetworkConfig { layers: 6, width: 384, heads: 12, hidden: 1536, ..NetworkConfig::large() };
    let minilm = network_shapes(&minilm, Pool::Mean).program();
    let encoder = |rows| Plan::twopc(&minilm, &[rows], terms, true, Answers::Label).unwrap();
    let vit = Plan::twopc(&vit, &[197], terms, false, Answers::Label).unwrap();
    let plans = [generator(64), generator(128), vit, later, encoder(17), encoder(65)];
    let sent = plans.map(|plan| (plan.bytes_up + plan.bytes_down + plan.ot_bytes) / 1_000_000);
    println!("{sent:?} MB");
    for (sent, megabytes) in sent.into_iter().zip([560, 1_170, 2_310, 44, 64, 260]) {
        assert!((megabytes - 20..=megabytes).contains(&sent), "{sent}");
    }
}
