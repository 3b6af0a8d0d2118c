//! A decoder read at all rows, compared with the clear model: likelihoods of texts and choices between endings, through
//! files and over a connection, and what is refused; and a decoder read at last rows over a connection.

use std::fs;
use std::path::Path;

use crate::fhe_server::{Running, config};
use crate::offered::Offered;
use hushed_fhe::{AnswerRows, answer_in_clear};
use hushed_model::{Model, TooLong, likeliest, log_probabilities};
use hushed_serve::ServeError;
use hushed_serve::fhe::{self, Answer, Item, KeyRecord, Remote, RemoteEvent, RemoteOptions, Wanted};

fn quiet(_: RemoteEvent) {}

fn name<T>(result: Result<T, ServeError>) -> &'static str {
    result.err().unwrap().name()
}

fn item(prompt: &str, endings: &[&str], label: Option<usize>) -> Item {
    Item { prompt: prompt.to_owned(), endings: endings.iter().map(|&ending| ending.to_owned()).collect(), label }
}

fn items() -> Vec<Item> {
    vec![
        item("the sea", &[" is", " a", " red", " dog"], Some(0)),
        item("a dog", &[" in the sea", " on it", ".", " and a"], None),
        item("red", &[" sea", " do", " 7"], Some(2)),
    ]
}

/// Logarithms of the probabilities of a text's tokens from the second on, by the published model.
fn clear(model: &Model, text: &str) -> Vec<f64> {
    let ids = model.tokens(text, TooLong::Refuse).unwrap();
    let program = model.program_of_all_rows();
    let table = program.vocabulary().unwrap().weights.as_ref().unwrap();
    let rows = answer_in_clear(model, &ids, AnswerRows::Rows).unwrap();
    let rows = rows.chunks(program.width());
    assert_eq!(rows.len(), ids.ids().len());
    // Its last row is what a plan for last rows answers.
    let last = answer_in_clear(model, &ids, AnswerRows::Last).unwrap();
    let apart = rows.clone().next_back().unwrap().iter().zip(&last);
    assert!(apart.into_iter().all(|(a, b)| (a - b).abs() < 1e-12));
    let next = rows.zip(ids.ids().iter().skip(1));
    next.map(|(row, &id)| log_probabilities(table, row).unwrap()[id as usize]).collect()
}

/// Compares every likelihood, perplexity and choice with the clear model's.
fn assert_right(model: &Model, answer: &Answer) {
    let texts = Item::texts(&items());
    let scored = answer.scored(&texts).unwrap();
    assert_eq!(scored.len(), texts.len());
    let in_clear = fhe::scored_in_clear(model, &texts, TooLong::Refuse).unwrap();
    let (mut worst, mut sum, mut count) = (0.0_f64, 0.0, 0);
    for ((scored, in_clear), text) in scored.iter().zip(&in_clear).zip(&texts) {
        let expected = clear(model, text);
        assert_eq!(in_clear.log_probabilities.len(), expected.len());
        let apart = in_clear.log_probabilities.iter().zip(&expected);
        assert!(apart.into_iter().all(|(a, b)| (a - b).abs() < 1e-9));
        assert_eq!(scored.log_probabilities.len(), expected.len());
        for (a, b) in scored.log_probabilities.iter().zip(&expected) {
            worst = worst.max((a - b).abs());
        }
        sum += expected.iter().sum::<f64>();
        count += expected.len();
    }
    println!("log p differs by at most {worst:.1e}");
    assert!(worst < 0.05 && worst > 0.0, "{worst}");
    let perplexity = fhe::perplexity(&scored).unwrap();
    let expected = (-sum / f64::from(u32::try_from(count).unwrap())).exp();
    assert!((perplexity / expected - 1.0).abs() < 0.02, "{perplexity} {expected}");

    let chosen = answer.chosen(&items()).unwrap();
    let in_clear = fhe::chosen_in_clear(model, &items()).unwrap();
    assert_eq!(in_clear.len(), chosen.len());
    for ((item, chosen), in_clear) in items().iter().zip(&chosen).zip(&in_clear) {
        let prompt = model.tokens(&item.prompt, TooLong::Refuse).unwrap();
        let from = prompt.ids().len();
        let expected: Vec<f64> = item
            .endings
            .iter()
            .map(|ending| {
                let all = clear(model, &format!("{}{ending}", item.prompt));
                all[from - 1..].iter().sum()
            })
            .collect();
        assert_eq!(chosen.log_likelihoods.len(), item.endings.len());
        assert_eq!(in_clear.log_likelihoods.len(), item.endings.len());
        let same = in_clear.log_likelihoods.iter().zip(&expected);
        assert!(same.into_iter().all(|(a, b)| (a - b).abs() < 1e-9));
        assert_eq!(in_clear.tokens, chosen.tokens);
        let apart = chosen.log_likelihoods.iter().zip(&expected);
        let apart = apart.fold(0.0_f64, |most, (a, b)| most.max((a - b).abs()));
        assert!(apart < 0.2, "{apart}");
        let best = expected.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        // The same pick wherever the margin exceeds what both may be off by.
        assert!(best - expected[chosen.pick] < 2.0 * apart + 1e-9);
        assert!(chosen.margin >= 0.0);
        assert_eq!(chosen.right, item.label.map(|label| label == chosen.pick));
    }
}

fn encrypt(offered: &Offered, work: &Path, items: &[Item]) -> Result<fhe::Encrypted, ServeError> {
    fhe::check_items(&offered.plan(), &offered.path("public"), items)?;
    offered.encrypt(work, &Item::texts(items))
}

#[test]
fn likelihoods_and_choices_are_those_of_the_clear_model() {
    let offered = Offered::decoder_rows();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, params) = fhe::read_plan(&offered.plan()).unwrap();
    assert_eq!(plan.answer, Some(AnswerRows::Rows));
    assert!(plan.placement.spill_attention && plan.placement.spill_feed_forward);
    // Two columns per ciphertext, and every opening counted.
    assert_eq!(plan.reply.ciphertexts, plan.width / 2);
    offered.keygen(&work.join("keys")).unwrap();
    encrypt(offered, work, &items()).unwrap();
    fhe::run(&offered.options(work), &|_| {}).unwrap();
    let answer = offered.decrypt(work).unwrap();
    assert!(answer.canary.unwrap().is_good());
    assert_eq!(answer.decryptions, plan.reply.ciphertexts as u64);
    let record = KeyRecord::read(&work.join("keys")).unwrap();
    assert_eq!(record.decryptions, answer.decryptions);

    let model = Model::load(&offered.path("model")).unwrap();
    assert_right(&model, &answer);
    // Next tokens are read at the last row.
    let head = answer.head.as_ref().unwrap();
    let program = model.program_of_all_rows();
    let table = program.vocabulary().unwrap().weights.as_ref().unwrap();
    for (index, text) in Item::texts(&items()).iter().enumerate() {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let last = answer_in_clear(&model, &ids, AnswerRows::Last).unwrap();
        let (id, expected) = likeliest(table, &last, 1).unwrap()[0];
        let found = head.likeliest(answer.last_row(index), 320).unwrap();
        let found = found.iter().find(|token| token.id == id).unwrap();
        assert!((found.log_probability - expected).abs() < 0.05);
        assert_eq!(answer.rows(index).count(), answer.tokens[index]);
    }

    // Other texts than those that were encrypted, and the same in another order.
    let mut others = Item::texts(&items());
    others.swap(0, 1);
    assert_eq!(name(answer.scored(&others)), "other-texts");
    let mut fewer = items();
    fewer.pop();
    assert_eq!(name(answer.chosen(&fewer)), "other-texts");
    // The plan states the error of the last number, and a canary of another length is refused.
    let mut short = plan.clone();
    short.canary.as_mut().unwrap().embedding.pop();
    assert!(short.check(&params).is_err());
    let mut last = plan.clone();
    last.answer = Some(AnswerRows::Last);
    assert!(last.check(&params).is_err());
}

#[test]
fn what_cannot_be_chosen_from_is_refused_before_it_is_sent() {
    let offered = Offered::decoder_rows();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    offered.keygen(&work.join("keys")).unwrap();
    let refused = |item: Item| name(encrypt(offered, work, &[items().remove(0), item]));
    // "th" and "e" tokenise differently together, and an ending must have tokens.
    assert_eq!(refused(item("th", &["e", "is"], None)), "choices");
    assert_eq!(refused(item("the sea", &[" is", ""], None)), "choices");
    let long = " and a dog is in the sea on it";
    assert_eq!(refused(item("the sea", &[" is", long], None)), "too-long");
    let long = format!("the sea{long}");
    assert_eq!(refused(item(&long, &[" is", " a"], None)), "too-long");
    // A manifest for last rows gives no likelihoods.
    let last = Offered::decoder();
    assert_eq!(name(encrypt(last, work, &items())), "other-answer");
    let encoder = Offered::get();
    assert_eq!(name(encrypt(encoder, work, &items())), "other-answer");
}

#[test]
fn a_decoder_is_asked_over_a_connection() {
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let model = Model::load(&Offered::decoder().path("model")).unwrap();

    // All rows: likelihoods, and the same reply as through files.
    let offered = Offered::decoder_rows();
    let server = Running::start(&config(offered, &work.join("rows")));
    let keys = work.join("keys");
    let asks = |server: &Running, keys: &Path, wanted| {
        Remote::new(RemoteOptions { wanted: Some(wanted), ..server.remote(keys.to_owned()) })
    };
    let remote = asks(&server, &keys, Wanted::Likelihoods);
    let unshared = [item("th", &["e", "is"], None)];
    assert_eq!(name(remote.submit_items(&unshared, &mut quiet)), "choices");
    assert!(!keys.join("evaluation.keys").exists());
    let job = remote.submit_items(&items(), &mut quiet).unwrap();
    let again = work.join("again");
    fs::create_dir(&again).unwrap();
    let request = keys.join(format!("jobs/{job}.request"));
    fs::copy(request, again.join("request")).unwrap();
    let answer = remote.collect(&job, &mut quiet).unwrap();
    assert!(answer.canary.unwrap().is_good());
    assert_right(&model, &answer);
    let mut options = offered.options(&again);
    options.files.keys = keys.join("evaluation.keys");
    options.context.secret = work.join("rows/state/reply.secret");
    fhe::run(&options, &|_| {}).unwrap();
    let reply = fs::read(keys.join(format!("jobs/{job}.reply"))).unwrap();
    assert!(reply == fs::read(again.join("reply")).unwrap());
    remote.forget(&job).unwrap();
    drop(server);

    // Last rows: next tokens, no likelihoods.
    let offered = Offered::decoder();
    let server = Running::start(&config(offered, &work.join("last")));
    let keys = work.join("other-keys");
    let refused = asks(&server, &keys, Wanted::Likelihoods);
    assert_eq!(name(refused.submit_items(&items(), &mut quiet)), "other-answer");
    assert!(!keys.join("evaluation.keys").exists());
    let remote = asks(&server, &keys, Wanted::Next);
    let texts = Item::texts(&items());
    let job = remote.submit(&texts, &mut quiet).unwrap();
    let answer = remote.collect(&job, &mut quiet).unwrap();
    assert!(answer.canary.unwrap().is_good());
    let program = model.program_of_all_rows();
    let table = program.vocabulary().unwrap().weights.as_ref().unwrap();
    let head = answer.head.as_ref().unwrap();
    for (index, text) in texts.iter().enumerate() {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let last = answer_in_clear(&model, &ids, AnswerRows::Last).unwrap();
        let (id, expected) = likeliest(table, &last, 1).unwrap()[0];
        let found = head.likeliest(answer.last_row(index), 320).unwrap();
        let found = found.iter().find(|token| token.id == id).unwrap();
        assert!((found.log_probability - expected).abs() < 0.05);
    }
    assert_eq!(name(answer.scored(&texts)), "other-answer");
    drop(server);

    // An encoder has no next token.
    let server = Running::start(&config(Offered::get(), &work.join("encoder")));
    let remote = asks(&server, &work.join("third-keys"), Wanted::Next);
    assert_eq!(name(remote.submit(&texts, &mut quiet)), "other-answer");
}
