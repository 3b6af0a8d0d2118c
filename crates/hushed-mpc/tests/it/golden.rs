//! Transcripts that must not change: the hash of every payload of whole runs with seeded randomness.
//!
//! A change of the protocol, a format or a rounding changes them on purpose; then the table is replaced by what the
//! failure prints. A change in how the program is written does not.

use std::sync::Arc;

use crate::common::tiny_of;
use crate::decode::after;
use crate::tiny::public_table;
use hushed_math::rng::SecretRng;
use hushed_model::testing::tiny_golden;
use hushed_model::tokens::TokenIds;
use hushed_model::{Model, Pool, Program};
use hushed_mpc::{
    Adds, Answers, Cache, Input, Layers, Link, Prefix, Protocol, Terms, TextCache, embeddings, next_token, next_tokens,
    tokens_of_rows,
};
use hushed_net::Session;
use hushed_twopc::Ctx;
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ideal::IdealPair;
use hushed_twopc::testing::{Heard, heard_pair};
use sha2::{Digest, Sha256};

/// Activation, pooling, terms, rows of each text (including padding); the hash of what both parties receive.
type Case = (&'static str, Pool, Terms, &'static [usize], &'static str);

const PLAIN: Terms = Terms { public_table: false, padded: false };

const CASES: [Case; 5] = [
    ("gelu", Pool::Mean, PLAIN, &[3, 7, 3], "e7e6dc7eb8b1d084877125db49c71b7eacd994df30352490fd8a6d20769d9fb8"),
    ("relu", Pool::Max, PLAIN, &[4], "ff4be2add70e82369a31e3cd2884f4015ed980600bbbced9c97603b948b691d2"),
    (
        "silu",
        Pool::First,
        Terms { public_table: true, ..PLAIN },
        &[5, 2],
        "559d03431bb2fd5869053320a6bfe77e80100522fd70f72e3dcc8e98df81cf4c",
    ),
    (
        "quick_gelu",
        Pool::Mean,
        Terms { padded: true, ..PLAIN },
        &[8, 8],
        "bc4da18c3c17e11bf941cecfddeed089452567cbaafa6c4223f8b05035c68b7e",
    ),
    (
        "tanh",
        Pool::Last,
        Terms { padded: true, public_table: true },
        &[18, 6],
        "d65524361c86776091fe4bae3d74e8cf9af4c6c9c5c857172725393eedd3dce1",
    ),
];

/// The same over [`Link::INTERNET`], with plain terms.
const SLOW: [(&str, Pool, &[usize], &str); 2] = [
    ("gelu", Pool::Mean, &[3, 7, 3], "ada72394b95237400e5b51e66fc596605aa9392914b8820ea0350220e616dbce"),
    ("elu", Pool::First, &[18], "12bc6b0d64d174894306db0e6dc0bc8351aac4a1f620d6bc67ba9557d1e66159"),
];

/// Two tokens after a public prefix.
const CONTINUED: &str = "e4d8f33b28193e6c78e50c4addcbcf6add4cc1b54d703f24cba7b033d92b9f82";

/// The same, where the second one has products made ahead.
const AHEAD: &str = "3f4a857bd14726e45183428c90641e4f24a2be9cdceb13573f0f87d7085632e5";

/// Guesses of what follows the first token.
const DRAFTS: [u32; 2] = [9, 22];

/// Three tokens; the second one's pass has drafts that are dropped.
const DRAFTED: &str = "9c93f20eb39dc177516bc627b5a20d96ab314ad735a1bcc9481bf9ec8ebfcb25";

/// The same with products made ahead.
const DRAFTED_AHEAD: &str = "1fb0d093f450aca6f0569088c588d72f02387b7c83d2445508c927977cf73764";

#[test]
fn transcripts_of_whole_runs_do_not_change() {
    let found = CASES.map(|(activation, pool, terms, rows, _)| {
        let mut model = tiny_of(activation, |_| ());
        model.public.pool = pool;
        model.encoder_mut().unwrap().pool = pool;
        transcript(&model, terms, rows, Link::LAN)
    });
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, CASES.map(|case| case.4));
}

/// Over a link where steps go side by side: what the second of them receives counts after what the first does,
/// whatever order it comes in.
#[test]
fn transcripts_over_a_slow_link_do_not_change() {
    let found = SLOW.map(|(activation, pool, rows, _)| {
        let mut model = tiny_of(activation, |_| ());
        model.public.pool = pool;
        model.encoder_mut().unwrap().pool = pool;
        transcript(&model, PLAIN, rows, Link::INTERNET)
    });
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, SLOW.map(|case| case.3));
}

/// Texts after a public prefix; the server holds its weights, or reads them in every pass.
#[test]
fn transcripts_of_continued_texts_do_not_change() {
    let found = [continued(&[], false), continued(&[], true), continued(&DRAFTS, false), continued(&DRAFTS, true)];
    let expected = [CONTINUED, AHEAD, DRAFTED, DRAFTED_AHEAD];
    assert_eq!(found, expected.map(|hash| [hash; 2]));
}

/// A prompt and the pass after it, with these drafts. If there are any, they are dropped again, and a pass without
/// drafts follows. Once with weights that are held, once with weights that are read.
fn continued(drafts: &[u32], ahead: bool) -> [String; 2] {
    let folder = tiny_golden("llama");
    let (held, stored) = (Model::load(&folder).unwrap(), Model::open(&folder).unwrap());
    let streaming = Layers::streaming(&stored.program()).unwrap();
    // The rows of each later pass, all of which give a token.
    let later = match drafts.len() {
        0 => vec![1],
        drafts => vec![1 + drafts, 1],
    };
    [(held, Layers::default()), (stored, streaming)].map(|(model, layers)| {
        let [server, client] = [model.program(), Model::shapes_only(&model.public).program()];
        let cache = after(&server, &[7, 3, 11, 3, 30]);
        let known = Cache::after(Arc::new(Prefix::of_rows(5).unwrap()));
        let make = |on: &mut Protocol, program| {
            if ahead {
                on.make_ahead(program, later.iter().sum::<usize>(), PLAIN).unwrap();
            }
        };
        hashed(
            (Arc::new(layers), Link::LAN),
            |on| {
                make(on, &client);
                let (mut cache, mut ids) = (known, vec![5, 40, 17]);
                let text = |ids: &[u32]| Input::Texts(vec![TokenIds::new(ids.to_vec())], PLAIN);
                let first = next_token(on, &client, &mut cache, &text(&ids), None);
                ids.push(first.unwrap().unwrap());
                for &rows in &later {
                    let new = [&ids[ids.len() - 1..], &drafts[..rows - 1]].concat();
                    let said = pass(on, &client, &mut cache, &text(&new), rows, ahead);
                    cache.keep(cache.rows() - (rows - 1)).unwrap();
                    // What follows the last row is in the transcript; the text continues after the first.
                    let said = said.unwrap();
                    ids.extend(said.iter().rev().map(|top| top[0]));
                }
                ids.iter().flat_map(|id| id.to_le_bytes()).collect()
            },
            |on| {
                make(on, &server);
                let mut cache = cache;
                let lengths = |rows| Input::Lengths(vec![rows], PLAIN);
                next_token(on, &server, &mut cache, &lengths(3), None).unwrap();
                for &rows in &later {
                    pass(on, &server, &mut cache, &lengths(rows), rows, ahead);
                    cache.keep(cache.rows() - (rows - 1)).unwrap();
                }
            },
        )
    })
}

/// A pass of this many rows, each of which gives a token.
fn pass(
    on: &mut Protocol,
    program: &Program,
    text: &mut TextCache,
    input: &Input,
    rows: usize,
    ahead: bool,
) -> Option<Vec<Vec<u32>>> {
    let adds = Adds::default();
    let mut run = |on: &mut Protocol| match rows {
        1 => Ok(next_tokens(on, program, text, input, adds, 1)?.map(|one| vec![one])),
        _ => tokens_of_rows(on, program, text, input, adds, 1),
    };
    let said = match ahead {
        true => on.spending_ahead(&vec![1; rows], run),
        false => run(on),
    };
    said.unwrap()
}

/// The hash of a pass over texts with these numbers of rows.
fn transcript(model: &Model, terms: Terms, rows: &[usize], link: Link) -> String {
    let texts: Vec<TokenIds> = rows.iter().map(|&rows| text(model, terms, rows)).collect();
    let shapes = Model::shapes_only(&model.public);
    hashed(
        (Arc::default(), link),
        |client| {
            if terms.public_table {
                client.set_table(public_table(model));
            }
            let input = Input::Texts(texts, terms);
            let answers = embeddings(client, &shapes, &input, Answers::Label).unwrap().unwrap();
            let values = answers.iter().flatten();
            values.flat_map(|value| value.to_le_bytes()).collect()
        },
        |server| {
            let lengths = Input::Lengths(rows.to_vec(), terms);
            embeddings(server, model, &lengths, Answers::Label).unwrap();
        },
    )
}

/// The hash of all payloads of a run, including keys, and of the client's answer.
fn hashed(
    (layers, link): (Arc<Layers>, Link),
    client: impl FnOnce(&mut Protocol) -> Vec<u8>,
    server: impl FnOnce(&mut Protocol) + Send,
) -> String {
    let ([near, far], heard) = heard_pair();
    let (near_ot, far_ot) = IdealPair::from_seed(7);
    let answer = std::thread::scope(|scope| {
        scope.spawn(move || server(&mut party((far, link), Box::new(far_ot), 2, layers)));
        client(&mut party((near, link), Box::new(near_ot), 1, Arc::default()))
    });
    let mut hash = Sha256::new();
    for payloads in heard.each_ref().map(Heard::take) {
        hash.update(payloads.len().to_le_bytes());
        hash.update(payloads);
    }
    hash.update(answer);
    let hash = hash.finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn party((session, link): (Session, Link), ot: Box<dyn Correlations>, seed: u64, layers: Arc<Layers>) -> Protocol {
    let mut ctx = Ctx::new(session, SecretRng::insecure_from_seed(seed), ot).on(link);
    let he = HeContext::exchange(&mut ctx).unwrap();
    Protocol::new(ctx, he, layers)
}

/// A text of this many rows; with padded terms, one of them is padding.
fn text(model: &Model, terms: Terms, rows: usize) -> TokenIds {
    let real = if terms.padded { rows - 1 } else { rows };
    let id = |i: usize| ((i * 31 + rows) % model.public.config.vocabulary) as u32;
    TokenIds::new((0..real).map(id).collect()).pad_to(rows, 0)
}
