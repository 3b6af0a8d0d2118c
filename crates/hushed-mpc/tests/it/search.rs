//! A private search between two parties, against the same search in the clear.

use crate::tiny::{Step, assert_is, pass};
use hushed_math::rng::SecretRng;
use hushed_model::testing::tiny_model;
use hushed_model::{Model, TooLong};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Clear, Hit, Index, Input, Terms, Wanted, search};

const DOCUMENTS: usize = 77;
const RECORD: usize = 20;

/// Documents with scores closer than this may change places. The tiny model's private embedding is some 10^−3 off, with
/// 16 columns of a random network. A score is off by as much, and the rounding of shares differs from run to run.
const NEAR: f64 = 5e-3;

/// Random vectors of length one, documents × width.
fn vectors(width: usize) -> Vec<f32> {
    let mut rng = SecretRng::insecure_from_seed(9);
    let mut all = Vec::new();
    for _ in 0..DOCUMENTS {
        let row: Vec<f64> = (0..width).map(|_| rng.next_u64() as i64 as f64).collect();
        let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
        all.extend(row.iter().map(|v| (v / length) as f32));
    }
    all
}

/// Records of every length, with bytes of every kind.
fn record(place: usize) -> String {
    match place % 4 {
        0 => String::new(),
        1 => format!("n° {place} ÿ日"),
        2 => "x".repeat(RECORD),
        _ => format!("document {place}"),
    }
}

fn index(width: usize) -> Index {
    let mut records = Vec::new();
    for place in 0..DOCUMENTS {
        let mut row = record(place).into_bytes();
        assert!(row.len() <= RECORD);
        row.resize(RECORD, 0);
        records.extend(row);
    }
    Index::new(DOCUMENTS, width, &vectors(width), (RECORD, &records)).unwrap()
}

/// The documents by descending cosine.
fn expected(model: &Model, text: &str) -> Vec<(usize, f64)> {
    let ids = model.tokens(text, TooLong::Refuse).unwrap();
    let query = model.embed(vec![ids]).unwrap().remove(0);
    let length = query.iter().map(|v| v * v).sum::<f64>().sqrt();
    let rows = vectors(query.len());
    let cosine = |row: &[f32]| {
        let products = row.iter().zip(&query).map(|(&a, b)| f64::from(a) * b);
        products.sum::<f64>() / length
    };
    let mut all: Vec<_> = rows.chunks_exact(query.len()).map(cosine).enumerate().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all
}

fn agree(hits: &[Hit], clear: &[(usize, f64)]) {
    for (hit, &(place, cosine)) in hits.iter().zip(clear) {
        let found = clear.iter().find(|(p, _)| *p == hit.place as usize).unwrap();
        assert!(
            hit.place as usize == place || (found.1 - cosine).abs() < NEAR,
            "{} of {} for {place} of {cosine}",
            hit.place,
            found.1
        );
        if let Some(score) = hit.score {
            assert!((score - found.1).abs() < NEAR, "{score} for {}", found.1);
            assert_eq!((score * 4096.0).fract(), 0.0);
        }
    }
    let mut places: Vec<u32> = hits.iter().map(|h| h.place).collect();
    places.sort_unstable();
    places.dedup();
    assert_eq!(places.len(), hits.len());
}

/// Both parties over ideal correlations: the hits and the cost of the steps.
fn between_two(model: &Model, text: &str, wanted: Wanted) -> (Vec<Hit>, Vec<Step>) {
    let ids = model.tokens(text, TooLong::Refuse).unwrap();
    let width = model.public.config.width;
    let (server, client) = (index(width), Index::shape(DOCUMENTS, width, RECORD).unwrap());
    let input = Input::Texts(vec![ids], Terms::default());
    pass(model, &input, |party, model, input| {
        let own = match party.ctx().is_client() {
            true => &client,
            false => &server,
        };
        search(party, &model.program(), own, input, wanted)
    })
}

#[test]
fn the_nearest_documents_come_in_order_and_nothing_else_is_sent() {
    let model = tiny_model();
    let wanted = Wanted { top: 5, records: true, scores: true };
    let text = "the weather is lovely";
    let (hits, steps) = between_two(&model, text, wanted);
    assert_eq!(hits.len(), 5);
    assert!(hits.iter().all(|hit| hit.score.is_some()));
    agree(&hits, &expected(&model, text));
    for hit in &hits {
        assert_eq!(hit.record.as_deref(), Some(&*record(hit.place as usize)));
    }
    let rows = model.tokens(text, TooLong::Refuse).unwrap().rows().total;
    let shape = Index::shape(DOCUMENTS, model.public.config.width, RECORD).unwrap();
    let plan = Plan::search(&model.program(), &shape, rows, Terms::default(), wanted).unwrap();
    assert_is(&plan, &steps);
}

/// The steps after the embedding cost at most twice as much for five documents as for one.
#[test]
fn five_documents_cost_at_most_twice_as_much_as_one() {
    let model = tiny_model();
    let (program, width) = (model.program(), model.public.config.width);
    for documents in [1_000, 10_000, 100_000] {
        let index = Index::shape(documents, width, 0).unwrap();
        let cost = |top| {
            let wanted = Wanted { top, records: false, scores: false };
            let plan = Plan::search(&program, &index, 4, Terms::default(), wanted).unwrap();
            let after = |site: &&str| ["unit", "documents", "nearest"].contains(site);
            let steps = plan.steps.iter().filter(|step| after(&step.site.as_str()));
            steps.fold([0; 3], |[bytes, rounds, cots], step| {
                let sent = step.bytes_up + step.bytes_down;
                [bytes + sent, rounds + step.rounds, cots + step.cots]
            })
        };
        let (one, five) = (cost(1), cost(5));
        println!("{documents} documents: {one:?}, five {five:?}");
        assert!(five[0] <= 2 * one[0] && five[1] <= 2 * one[1]);
        // Comparing all pairs of few numbers takes more OTs, which matters if there are few documents.
        assert!(five[2] <= if documents < 10_000 { 3 } else { 2 } * one[2]);
    }
}

#[test]
fn all_documents_can_be_asked_for_and_records_left() {
    let model = tiny_model();
    let wanted = Wanted { top: DOCUMENTS, records: false, scores: false };
    let (hits, _) = between_two(&model, "hello", wanted);
    assert_eq!(hits.len(), DOCUMENTS);
    assert!(hits.iter().all(|hit| hit.record.is_none() && hit.score.is_none()));
    agree(&hits, &expected(&model, "hello"));
}

#[test]
fn the_clear_circuit_finds_the_same() {
    let model = tiny_model();
    let width = model.public.config.width;
    let wanted = Wanted { top: 10, records: true, scores: true };
    for text in ["hello", "the weather is lovely", "a"] {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let input = Input::Texts(vec![ids], Terms::default());
        let mut on = Clear::default();
        let hits = search(&mut on, &model.program(), &index(width), &input, wanted).unwrap();
        let hits = hits.unwrap();
        agree(&hits, &expected(&model, text));
        assert!(hits.iter().all(|h| h.record == Some(record(h.place as usize))));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (rows, records) = (vectors(16), vec![0; DOCUMENTS * RECORD]);
    let make = |n, width, rows: &[f32], bytes, records: &[u8]| Index::new(n, width, rows, (bytes, records)).is_ok();
    assert!(make(DOCUMENTS, 16, &rows, RECORD, &records));
    assert!(make(DOCUMENTS, 16, &rows, 0, &[]));
    assert!(!make(DOCUMENTS, 16, &rows[1..], RECORD, &records));
    assert!(!make(DOCUMENTS, 16, &rows, RECORD, &records[1..]));
    assert!(!make(0, 16, &[], RECORD, &[]));
    for wrong in [f32::NAN, f32::INFINITY, -1.5] {
        let mut rows = rows.clone();
        rows[3] = wrong;
        assert!(!make(DOCUMENTS, 16, &rows, RECORD, &records), "{wrong}");
    }
    let model = tiny_model();
    let shape = Index::shape(DOCUMENTS, model.public.config.width, 0).unwrap();
    let other = Index::shape(DOCUMENTS, 5, 0).unwrap();
    let plan = |index: &Index, top, records| {
        let wanted = Wanted { top, records, scores: false };
        Plan::search(&model.program(), index, 4, Terms::default(), wanted).is_ok()
    };
    assert!(plan(&shape, 1, false) && plan(&shape, DOCUMENTS, false));
    assert!(!plan(&shape, 0, false) && !plan(&shape, DOCUMENTS + 1, false));
    assert!(!plan(&shape, 1, true) && !plan(&other, 1, false));
}
