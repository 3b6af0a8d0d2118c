//! Transcripts that must not change: every payload of whole runs whose randomness is seeded, by its hash.
//!
//! A change of the protocol, of a format or of a rounding changes them on purpose, and then the table is replaced by
//! what the failure prints; a change of how the program is written does not.

use std::sync::Arc;

use crate::common::tiny_of;
use hushed_math::rng::SecretRng;
use hushed_model::tokens::TokenIds;
use hushed_model::{Embedding, Model, Pool};
use hushed_mpc::{Input, Protocol, PublicTable, Terms, embeddings};
use hushed_net::Session;
use hushed_twopc::Ctx;
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ideal::IdealPair;
use hushed_twopc::testing::{Heard, heard_pair};
use sha2::{Digest, Sha256};

/// Activation, pooling, terms, rows of each text (padding included); the hash of what both parties receive.
type Case = (&'static str, Pool, Terms, &'static [usize], &'static str);

const PLAIN: Terms = Terms {
    public_table: false,
    padded: false,
};

const CASES: [Case; 5] = [
    (
        "gelu",
        Pool::Mean,
        PLAIN,
        &[3, 7, 3],
        "aa18e10710b1c986489ba4e6e8e8d4c00c15bd3471eaf22eaf30867d244ed327",
    ),
    (
        "relu",
        Pool::Max,
        PLAIN,
        &[4],
        "16ce14040edbd2c81f4dcd39d2841f0eb5a7b9b5466af4d7e64d533a2f9b25a1",
    ),
    (
        "silu",
        Pool::First,
        Terms {
            public_table: true,
            ..PLAIN
        },
        &[5, 2],
        "6688aa4f7b32615b86c5a13ebe4839a9d4c3b892b2d37c5285442b83b64128ba",
    ),
    (
        "quick_gelu",
        Pool::Mean,
        Terms {
            padded: true,
            ..PLAIN
        },
        &[8, 8],
        "10d2b66c3721d18351cac8cf7e389bba11ac54d5377cc85dc8d067b9f125e9fc",
    ),
    (
        "tanh",
        Pool::Last,
        Terms {
            padded: true,
            public_table: true,
        },
        &[18, 6],
        "1bf60ade6aab93e6cf46fb159fda2a57aaa7b8f0c1075029836853ae22f8f5ad",
    ),
];

#[test]
fn transcripts_of_whole_runs_do_not_change() {
    let found = CASES.map(|(activation, pool, terms, rows, _)| {
        let mut model = tiny_of(activation, |_| ());
        model.public.pool = pool;
        model.encoder_mut().unwrap().pool = pool;
        transcript(&model, terms, rows)
    });
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    assert_eq!(found, CASES.map(|case| case.4));
}

/// The hash of all payloads of a pass, keys included, and of the answers.
fn transcript(model: &Model, terms: Terms, rows: &[usize]) -> String {
    let texts: Vec<TokenIds> = rows.iter().map(|&rows| text(model, terms, rows)).collect();
    let ([near, far], heard) = heard_pair();
    let (near_ot, far_ot) = IdealPair::from_seed(7);
    let shapes = Model::shapes_only(&model.public);
    let answers = std::thread::scope(|scope| {
        let lengths = Input::Lengths(rows.to_vec(), terms);
        scope.spawn(move || {
            let mut server = party(far, Box::new(far_ot), 2);
            embeddings(&mut server, model, &lengths).unwrap();
        });
        let mut client = party(near, Box::new(near_ot), 1);
        if terms.public_table {
            client.set_table(table(model.embedding().unwrap()));
        }
        let input = Input::Texts(texts, terms);
        embeddings(&mut client, &shapes, &input).unwrap().unwrap()
    });
    let mut hash = Sha256::new();
    for payloads in heard.each_ref().map(Heard::take) {
        hash.update(payloads.len().to_le_bytes());
        hash.update(payloads);
    }
    for value in answers.iter().flatten() {
        hash.update(value.to_le_bytes());
    }
    let hash = hash.finalize();
    hash.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn party(mut session: Session, ot: Box<dyn Correlations>, seed: u64) -> Protocol {
    let mut rng = SecretRng::insecure_from_seed(seed);
    let he = HeContext::exchange(&mut session, &mut rng).unwrap();
    Protocol::new(Ctx::new(session, rng, ot), he, Arc::default())
}

/// A text of so many rows; where rows are padded, one of them is padding.
fn text(model: &Model, terms: Terms, rows: usize) -> TokenIds {
    let real = if terms.padded { rows - 1 } else { rows };
    let id = |i: usize| ((i * 31 + rows) % model.public.config.vocabulary) as u32;
    TokenIds::new((0..real).map(id).collect()).pad_to(rows, 0)
}

fn table(e: &Embedding) -> PublicTable {
    let bytes: Vec<u8> = PublicTable::chunks(e).unwrap().flatten().collect();
    let words = bytes.as_chunks::<4>().0.iter();
    let values = words.map(|b| i32::from_le_bytes(*b)).collect();
    PublicTable::new(e.vocabulary, e.width, values).unwrap()
}
