use super::*;

fn plan() -> FhePlan {
    let (mut plan, _) = insecure_plan(5, 1, 3).unwrap();
    plan.canary =
        Some(Canary { text: "hello".to_owned(), embedding: vec![0.1, -1.0 / 3.0, 1e-30], least_cosine: 0.99 });
    plan
}

#[test]
fn a_plan_is_read_as_it_was_written() {
    let plan = plan();
    let bytes = plan.to_json().unwrap();
    let (read, params) = FhePlan::from_json(&bytes).unwrap();
    assert_eq!(read, plan);
    assert_eq!(read.hash(), plan.hash());
    assert_eq!(read.to_json().unwrap(), bytes);
    assert_eq!((plan.places(&params).unwrap(), plan.texts(&params).unwrap()), (4, 3));
    let keys = plan.key_specs(&params).unwrap();
    assert_eq!(keys.len(), plan.keys.len());
}

/// L5: the canary was published to 53 bits, three times as many as those of other answers.
#[test]
fn l5_a_canary_is_rounded_like_other_answers() {
    let canary = plan().canary.unwrap().rounded();
    let unit = 2f64.powi(-1 - 14);
    assert!(canary.embedding.iter().all(|x| (x / unit).fract() == 0.0));
    assert!((canary.embedding[1] + 1.0 / 3.0).abs() <= unit / 2.0);
    let zeros = Canary { embedding: vec![0.0; 3], ..canary };
    assert_eq!(zeros.clone().rounded(), zeros);
}

/// No byte can be changed, except to bytes that mean the same (space, escapes).
#[test]
fn every_flipped_byte_is_refused_or_means_the_same() {
    let plan = plan();
    let good = plan.to_json().unwrap();
    for at in 0..good.len() {
        for flip in [1, 0x20, 0x80] {
            let mut bytes = good.clone();
            bytes[at] ^= flip;
            if let Ok((read, _)) = FhePlan::from_json(&bytes) {
                assert_eq!(read, plan, "{at}");
            }
        }
        assert!(at + 2 > good.len() || FhePlan::from_json(&good[..at]).is_err());
    }
}

/// With a plan that claims an exact reply or small numbers, its client would reveal the error.
#[test]
fn a_reply_that_would_not_be_rounded_is_refused() {
    type Change = fn(&mut ReplyForm);
    let changes: [Change; 12] = [
        |r| r.magnitude = 0.5,
        |r| r.magnitude = 2f64.powi(-40),
        |r| r.magnitude = 0.0,
        |r| r.magnitude = -4.0,
        |r| r.deviation = 1e-30,
        |r| r.deviation = 0.0,
        |r| r.deviation *= 0.999,
        |r| r.deviation = 1.5,
        |r| r.magnitude = 8.0,
        |r| r.scale = 1.0,
        |r| r.scale /= 4096.0,
        |r| r.scale *= 3.0,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let mut other = plan();
        change(&mut other.reply);
        let error = FhePlan::from_json(&other.to_json().unwrap()).err().unwrap();
        assert!(error.to_string().contains("reply"), "{i}: {error}");
    }
    let (mut wide, params) = insecure_plan(5, 1, 3).unwrap();
    let certified = params.certified_bits();
    assert_eq!(wide.reply_bits(&params), certified);
    wide.reply.magnitude = 8.0;
    wide.reply.deviation *= 8.0;
    wide.check(&params).unwrap();
    assert_eq!(wide.reply_bits(&params), certified - 3);
    // A larger declared error leaves fewer bits.
    let exact = wide.reply.deviation;
    let kept = wide.reply.noise().kept_bits(params.slots()).unwrap();
    wide.reply.deviation *= 2f64.powi(kept as i32 - 2);
    assert_eq!(wide.reply_bits(&params), 2);
    wide.reply.deviation = f64::INFINITY;
    assert_eq!(wide.reply_bits(&params), certified - 3);
    wide.reply.deviation = exact;
    for magnitude in [2f64.powi(-40), 0.0, -1.0, f64::NAN] {
        wide.reply.magnitude = magnitude;
        assert!(wide.reply_bits(&params) <= certified);
    }
    wide.reply.magnitude = f64::MAX;
    assert_eq!(wide.reply_bits(&params), 0);
}

#[test]
fn l2_what_makes_no_sense_is_refused_by_name() {
    type Change = fn(&mut FhePlan);
    let changes: [(&str, Change); 15] = [
        ("version", |p| p.version = PLAN_VERSION - 1),
        ("parameter set", |p| p.parameters = "n20".to_owned()),
        ("here it is", |p| p.parameters = "insecure-test/5/2".to_owned()),
        ("rows", |p| p.rows = 3),
        ("width", |p| p.width = 0),
        ("layers", |p| p.layers = 0),
        ("input bound", |p| p.input_bound = -1.0),
        ("bucket", |p| p.lengths = Lengths::Bucket(0)),
        ("upload", |p| p.placement.upload = 99),
        ("reply", |p| p.reply.ciphertexts = 99),
        ("reply", |p| p.placement.per_place = 2),
        ("share a place", |p| p.placement.per_place = 0),
        ("share a place", |p| p.placement.per_place = p.rows + 1),
        ("canary", |p| p.canary.as_mut().unwrap().embedding.clear()),
        ("keys", |p| p.keys.swap(0, 1)),
    ];
    for (named, change) in changes {
        let mut other = plan();
        change(&mut other);
        let error = FhePlan::from_json(&other.to_json().unwrap()).err().unwrap();
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    // A canary that no answer could fail.
    for least in [-1.0, 0.0, 0.899, 1.001, f64::NAN] {
        let mut other = plan();
        other.canary.as_mut().unwrap().least_cosine = least;
        let (_, params) = insecure_plan(5, 1, 3).unwrap();
        let error = other.check(&params).err().unwrap();
        assert!(error.to_string().contains("least cosine"), "{error}");
    }
    let huge = vec![b' '; MAX_PLAN_BYTES + 1];
    assert!(matches!(FhePlan::from_json(&huge), Err(PlanFileError::TooLarge { .. })));
}
