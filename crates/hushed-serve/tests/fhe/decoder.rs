//! A decoder under encryption through files: the hidden state of the last row of every text, next tokens made from it
//! at the client, a run resumed from a checkpoint, and what is refused on the way.

use std::fs;
use std::path::Path;

use crate::offered::{Offered, sample};
use hushed_fhe::calibrate::embed;
use hushed_fhe::{AnswerRows, Choices, FhePlan, PlanFileError, answer_in_clear};
use hushed_model::{Model, TokenIds, TooLong, cosine, likeliest, likeliest_of};
use hushed_serve::ServeError;
use hushed_serve::fhe::{self, FheJobError, PublicModel};

fn name<T>(result: Result<T, ServeError>) -> &'static str {
    result.err().unwrap().name()
}

/// Texts of several lengths, for all places but the canary's.
pub fn texts() -> Vec<String> {
    let model = Model::load(&Offered::decoder().path("model")).unwrap();
    let fits = |text: &String| model.tokens(text, TooLong::Refuse).unwrap().ids().len() <= 16;
    let mut texts: Vec<String> = sample().into_iter().filter(fits).collect();
    texts.truncate(15);
    assert!(texts.len() > 8);
    texts
}

#[test]
fn next_tokens_are_those_of_the_clear_and_a_resumed_run_has_the_same_bytes() {
    let offered = Offered::decoder();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, params) = fhe::read_plan(&offered.plan()).unwrap();
    assert!(plan.answer.is_some() && !plan.masks());
    assert_eq!(plan.request_ciphertexts(), plan.width / 2);

    offered.keygen(&work.join("keys")).unwrap();
    let sent = offered.encrypt(work, &texts()).unwrap();
    // No lengths are declared, though no ciphertext says which rows are tokens.
    assert!(sent.declared.iter().all(|&length| length == 0));
    offered.run_and_resume(work, &sent.id);

    let answer = offered.decrypt(work).unwrap();
    assert!(answer.canary.unwrap().is_good());
    let head = answer.head.as_ref().unwrap();
    let model = Model::load(&offered.path("model")).unwrap();
    let choices = fs::read(offered.path("calibration-fhe.json")).unwrap();
    let choices = Choices::from_json(&choices).unwrap();
    let tokens = |text: &String| model.tokens(text, TooLong::Refuse).unwrap();
    let ids: Vec<TokenIds> = texts().iter().map(tokens).collect();
    let polynomial = embed(&model, &choices, &ids, &params, None).unwrap();
    let program = model.program_of_all_rows();
    let table = program.vocabulary().unwrap().weights.as_ref().unwrap();
    assert_eq!(answer.embeddings.len(), ids.len());
    let mut squares = 0.0;
    for ((text, found), polynomial) in ids.iter().zip(&answer.embeddings).zip(&polynomial) {
        let clear = answer_in_clear(&model, text, AnswerRows::Last).unwrap();
        assert!(cosine(found, &clear) > 0.999, "{}", cosine(found, &clear));
        let next = head.likeliest(found, 5).unwrap();
        let expected = likeliest(table, &clear, 5).unwrap();
        assert_eq!(next.len(), 5);
        // Tokens nearly as likely as the first may change places.
        let margin = expected[0].1 - expected[1].1;
        let same = next[0].id == expected[0].0;
        assert!(same || margin < 0.01, "{margin}");
        let first = next.iter().find(|token| token.id == expected[0].0).unwrap();
        assert!((first.log_probability - expected[0].1).abs() < 0.05);
        let polynomial = polynomial.as_ref().unwrap();
        let apart = found.iter().zip(polynomial).map(|(a, b)| (a - b).powi(2));
        squares += apart.sum::<f64>() / (found.len() * ids.len()) as f64;
    }
    // On top of the polynomials come the computation's error and noise of the same width, which the plan declares, and
    // the client's rounding.
    let step = (-f64::from(plan.reply_bits(&params))).exp2();
    let declared = (2.0 * plan.reply.deviation.powi(2) + step.powi(2) / 12.0).sqrt();
    let error = squares.sqrt();
    println!("error {error:.2e}, declared {declared:.2e}, of it rounding {step:.2e}/√12");
    assert!(error < 1.5 * declared && error > declared / 4.0);
}

/// Asserts that the reply in `work` has the clear model's last rows of [`texts`], and a good canary.
pub fn assert_last_rows(offered: &Offered, work: &Path) {
    let answer = offered.decrypt(work).unwrap();
    assert!(answer.canary.unwrap().is_good());
    let model = Model::load(&offered.path("model")).unwrap();
    assert_eq!(answer.embeddings.len(), texts().len());
    for (text, found) in texts().iter().zip(&answer.embeddings) {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let clear = answer_in_clear(&model, &ids, AnswerRows::Last).unwrap();
        assert!(cosine(found, &clear) > 0.999, "{}", cosine(found, &clear));
    }
}

/// A checkpoint of columns in pairs: half as many vectors.
#[test]
fn a_run_with_columns_in_pairs_is_resumed_with_the_same_bytes() {
    let offered = Offered::decoder_paired();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, _) = fhe::read_plan(&offered.plan()).unwrap();
    assert!(plan.placement.pairs);
    offered.keygen(&work.join("keys")).unwrap();
    let sent = offered.encrypt(work, &texts()).unwrap();
    offered.run_and_resume(work, &sent.id);
    assert_last_rows(offered, work);
}

/// A softmax needs the rows of tokens, encrypted: one more ciphertext, and still no lengths.
#[test]
fn next_tokens_by_a_softmax_are_those_of_the_clear() {
    let offered = Offered::softmax();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, _) = fhe::read_plan(&offered.plan()).unwrap();
    assert!(plan.answer.is_some() && plan.masks());
    assert_eq!(plan.request_ciphertexts(), plan.width / 2 + 1);
    offered.keygen(&work.join("keys")).unwrap();
    let sent = offered.encrypt(work, &texts()).unwrap();
    assert!(sent.declared.iter().all(|&length| length == 0));
    offered.run_and_resume(work, &sent.id);
    assert_last_rows(offered, work);
}

/// The answer for a head that is not the table of token vectors.
#[test]
fn logits_are_those_of_the_clear() {
    let offered = Offered::decoder_logits();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, _) = fhe::read_plan(&offered.plan()).unwrap();
    let model = Model::load(&offered.path("model")).unwrap();
    let tokens = model.public.config.vocabulary;
    assert_eq!(plan.logits, Some(tokens));
    assert_eq!(plan.reply.ciphertexts, tokens.div_ceil(plan.rows));
    offered.keygen(&work.join("keys")).unwrap();
    offered.encrypt(work, &texts()).unwrap();
    fhe::run(&offered.options(work), &|_| {}).unwrap();
    let answer = offered.decrypt(work).unwrap();
    assert!(answer.canary.unwrap().is_good());
    let head = answer.head.as_ref().unwrap();
    for (text, found) in texts().iter().zip(&answer.embeddings) {
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let clear = answer_in_clear(&model, &ids, AnswerRows::Logits).unwrap();
        let expected = likeliest_of(&clear, 1)[0];
        let next = head.likeliest(found, tokens).unwrap();
        let first = next.iter().find(|token| token.id == expected.0).unwrap();
        assert!((first.log_probability - expected.1).abs() < 0.05);
        let apart = found.iter().zip(&clear).map(|(a, b)| (a - b).abs());
        let most = clear.iter().fold(0.0_f64, |m, l| m.max(l.abs()));
        assert!(apart.fold(0.0, f64::max) < 0.02 * most.max(1.0));
        assert!(most < plan.reply.magnitude);
    }
    // Likelihoods of a text's own tokens need all rows.
    let refused = answer.scored(&texts()).err().unwrap();
    assert!(refused.to_string().contains("logits"), "{refused}");
}

/// A prompt in packed rows, with the canary in the second place.
#[test]
fn one_prompt_alone_is_answered_and_a_resumed_run_has_the_same_bytes() {
    let offered = Offered::decoder_alone();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, params) = fhe::read_plan(&offered.plan()).unwrap();
    assert!(plan.placement.columns > 1 && plan.places(&params).unwrap() == 2);
    assert_eq!((plan.request_ciphertexts(), plan.reply.ciphertexts), (1, 1));
    offered.keygen(&work.join("keys")).unwrap();
    let texts = texts();
    assert_eq!(name(offered.encrypt(work, &texts[..2])), "too-many-texts");
    let sent = offered.encrypt(work, &texts[..1]).unwrap();
    assert!(sent.declared.iter().all(|&length| length == 0));
    offered.run_and_resume(work, &sent.id);
    let answer = offered.decrypt(work).unwrap();
    assert!(answer.canary.unwrap().is_good());
    let model = Model::load(&offered.path("model")).unwrap();
    let tokens = model.tokens(&texts[0], TooLong::Refuse).unwrap();
    let clear = answer_in_clear(&model, &tokens, AnswerRows::Last).unwrap();
    let near = cosine(&answer.embeddings[0], &clear);
    assert!(answer.embeddings.len() == 1 && near > 0.999, "{near}");
}

#[test]
fn what_is_refused_of_encoders_is_refused_of_decoders() {
    let offered = Offered::decoder();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    offered.keygen(&work.join("keys")).unwrap();
    let long = ["a private world is the hello and the sea is red ".repeat(8)];
    assert_eq!(name(offered.encrypt(work, &long)), "too-long");
    let many = vec!["a".to_owned(); 16];
    assert_eq!(name(offered.encrypt(work, &many)), "too-many-texts");
    // An encoder's keys, calibration and public model.
    let encoder = Offered::get();
    encoder.keygen(&work.join("theirs/keys")).unwrap();
    let other = offered.encrypt(&work.join("theirs"), &texts());
    assert_eq!(name(other), "other-plan");
    offered.encrypt(work, &texts()).unwrap();
    let mut options = offered.options(work);
    options.context.calibration = encoder.path("calibration-fhe.json");
    assert_eq!(name(fhe::run(&options, &|_| {})), "other-model");
    let (plan, _) = fhe::read_plan(&offered.plan()).unwrap();
    // A plan whose requests contain the rows of tokens, which a sigmoid does not need, with keys and a request for it.
    let mut softmax = plan.clone();
    softmax.real_rows = true;
    let mut options = offered.options(work);
    offered.by_plan(&softmax, &texts(), &work.join("softmax"), &mut options);
    let refused = fhe::run(&options, &|_| {}).err().unwrap();
    assert!(refused.to_string().contains("real rows"), "{refused}");
    let public = PublicModel::read(&encoder.path("public"), &plan.public_sha256);
    assert_eq!(name(public), "public-model");
    // A plan of another release, and one that no decoder has.
    let refused = |change: fn(&mut FhePlan)| {
        let mut other = plan.clone();
        change(&mut other);
        FhePlan::from_json(&other.to_json().unwrap()).err().unwrap()
    };
    let version = refused(|plan| plan.version += 1);
    assert!(matches!(version, PlanFileError::Version { .. }));
    let logits = refused(|plan| plan.logits = Some(2));
    assert!(logits.to_string().contains("answer"), "{logits}");
    // A plan without an answer is an encoder's, and its public model is another.
    let mut encoders = plan.clone();
    encoders.answer = None;
    let path = work.join("encoders.json");
    fhe::write_plan(&path, &encoders).unwrap();
    let options = fhe::KeygenOptions::days(1);
    fhe::keygen(&path, &work.join("mine"), options, &mut |_, _| {}).unwrap();
    let texts = texts();
    let sent = fhe::encrypt(
        &fhe::EncryptOptions {
            plan: &path,
            public: &offered.path("public"),
            keys: &work.join("mine"),
            texts: &texts,
            too_long: TooLong::Refuse,
            lengths: None,
            out: &work.join("no"),
        },
        &mut |_, _| {},
    );
    let error = sent.err().unwrap();
    assert!(matches!(error, ServeError::Fhe(FheJobError::BadPublic { .. })), "{error}");
}
