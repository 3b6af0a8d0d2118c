use super::*;

fn choices() -> Choices {
    let norm = NormChoice { scale: 0.05, low: 0.04, bound: 12.0, seed: 15, steps: 1 };
    let between = |low, high| Interval { low, high };
    let head = HeadChoice::Softmax {
        scores: between(-20.0, 8.0),
        least_maximum: 0.5,
        first: between(0.02, 3.0),
        second: between(0.007, 1.1),
    };
    let layer = LayerChoice {
        attention: AttentionChoice {
            degree: 15,
            first_steps: 7,
            second_steps: 6,
            heads: vec![head, HeadChoice::Previous],
        },
        attention_norm: norm.clone(),
        activation: ActivationChoice { degree: 15, columns: vec![between(-4.0, 3.0).into(); 8] },
        feed_forward_norm: norm,
        frozen_row: Some(vec![0.5, -1.0, 0.25, 2.0]),
    };
    Choices {
        version: VERSION,
        sample_sha256: "00".repeat(32),
        model_sha256: "11".repeat(32),
        texts: 3,
        rows: 16,
        layers: vec![layer],
        classifier: None,
        decoder: None,
        norm: None,
        report: Report::default(),
    }
}

#[test]
fn choices_round_trip() {
    let choices = choices();
    let bytes = choices.to_json().unwrap();
    assert_eq!(Choices::from_json(&bytes).unwrap(), choices);
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.contains("\"scores\":[-20.0,8.0]"), "{text}");
    choices.check_model(&"11".repeat(32)).unwrap();
    assert!(choices.check_model("other").is_err());
}

#[test]
fn invalid_numbers_are_refused() {
    type Change = fn(&mut Choices);
    let changes: &[(&str, Change)] = &[
        ("rows", |c| c.rows = 0),
        ("degree of the exponential", |c| c.layers[0].attention.degree = 64),
        ("first inverse", |c| c.layers[0].attention.first_steps = 0),
        ("second inverse", |c| c.layers[0].attention.second_steps = 99),
        ("norm after attention", |c| c.layers[0].attention_norm.low = 1.0),
        ("norm after feed-forward", |c| c.layers[0].feed_forward_norm.seed = 16),
        ("hidden column 3", |c| c.layers[0].activation.columns[3].low = 3.0),
        ("deviation 0", |c| c.layers[0].activation.columns[5].deviation = 0.0),
        ("frozen row", |c| c.layers[0].frozen_row = Some(vec![f64::NAN])),
        ("least row maximum", |c| {
            if let HeadChoice::Softmax { least_maximum, .. } = &mut c.layers[0].attention.heads[0] {
                *least_maximum = 9.0;
            }
        }),
        ("not positive", |c| {
            if let HeadChoice::Softmax { first, .. } = &mut c.layers[0].attention.heads[0] {
                first.low = 0.0;
            }
        }),
    ];
    for (what, change) in changes {
        let mut bad = choices();
        change(&mut bad);
        let error = bad.to_json().unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}

#[test]
fn malformed_bytes_are_refused() {
    let good = String::from_utf8(choices().to_json().unwrap()).unwrap();
    for bad in [
        String::new(),
        "{}".to_owned(),
        good.replace("\"version\":1", "\"version\":2"),
        good.replace("\"rows\"", "\"more\":1,\"rows\""),
        good.replace("[-20.0,8.0]", "[-20.0]"),
        good.replace("[-20.0,8.0]", "[-20.0,1e999]"),
        " ".repeat(MAX_BYTES + 1),
    ] {
        let error = Choices::from_json(bad.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("hushed calibrate"), "{error}");
    }
}
