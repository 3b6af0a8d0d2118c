//! Ranges measured on the tiny model, and the file that stores them.

use hushed_model::calibrate::{MAX_BYTES, VERSION};
use hushed_model::plain::{self, Moment, Seen, What};
use hushed_model::testing::{mutations, tiny_generator, tiny_model};
use hushed_model::{Calibration, CalibrationError, Ranges, TooLong, calibrate, fuzz};

fn measured(texts: &[&str]) -> Calibration {
    let model = tiny_model();
    // Padding must not count: it is in the batch, but its rows are not measured.
    let ids: Vec<_> = texts.iter().map(|t| model.tokens(t, TooLong::Refuse).unwrap().pad_to(20, 0)).collect();
    calibrate(&model, &ids, "00ff").unwrap()
}

#[test]
fn every_site_has_its_kind() {
    let calibration = measured(&["hello world", "a private world"]);
    assert_eq!((calibration.texts, calibration.tokens), (2, 9));
    let layer = |step| calibration.at(format!("layer.1.{step}")).unwrap();
    let Ranges::Softmax { shifted, denominator } = layer("attention.weigh") else { panic!() };
    assert!(shifted.max == 0.0 && shifted.min < 0.0);
    assert!(denominator.min >= 1.0 && denominator.max <= 5.0);
    let Ranges::Norm { first_variance, variance, centred, mean: Some(mean) } = layer("feed_forward.norm") else {
        panic!()
    };
    assert!(mean.min < mean.max);
    assert!(first_variance.min > 0.0 && variance.min > 0.0 && variance.min < variance.max);
    assert!(centred.magnitude().powi(2) >= variance.max);
    let Ranges::Activation { input } = layer("feed_forward.activation") else { panic!() };
    let Ranges::Values { output } = layer("feed_forward.up") else { panic!() };
    assert_eq!(input, output);
    assert!(matches!(calibration.at("layer.2"), Err(CalibrationError::MissingSite { .. })));
}

/// For a causal softmax only the keys that a row sees are measured; the pooled row's norm is in both ranges.
#[test]
fn a_generator_is_measured_by_what_its_rows_see() {
    let model = tiny_generator();
    let ids = model.tokens("the thing is", TooLong::Refuse).unwrap().pad_to(20, 0);
    let calibration = calibrate(&model, std::slice::from_ref(&ids), "00ff").unwrap();
    let (real, mut least, mut sums) = (ids.rows().real, 0f64, Vec::new());
    plain::run_parts(&model.program(), vec![ids], |id, what, moment, value| {
        let (Seen::Scores(s), What::Weigh(..), Moment::Input) = (value, what, moment) else {
            return;
        };
        if id.to_string() == "layer.0.attention.weigh" {
            for scores in &s.texts[0] {
                for i in 0..real {
                    let seen = &scores.row(i)[..=i];
                    let max = seen.iter().copied().fold(f64::MIN, f64::max);
                    sums.push(seen.iter().map(|v| (v - max).exp()).sum::<f64>());
                    least = seen.iter().fold(least, |least, v| least.min(v - max));
                }
            }
        }
    })
    .unwrap();
    let Ranges::Softmax { shifted, denominator } = calibration.at("layer.0.attention.weigh").unwrap() else { panic!() };
    assert_eq!((shifted.min, shifted.max), (least, 0.0));
    assert_eq!((denominator.min, denominator.max), (1.0, sums.iter().copied().fold(0.0, f64::max)));
    let Ranges::Norm { first_variance, variance, .. } = calibration.at("norm").unwrap() else { panic!() };
    assert_eq!(first_variance, variance);
    assert!(calibration.to_json().is_ok());
}

#[test]
fn more_texts_only_widen() {
    let (few, many) = (measured(&["hello"]), measured(&["hello", "42 worlds, 7 hellos!"]));
    for (site, narrow) in &few.sites {
        if let (Ranges::Values { output: n }, Ranges::Values { output: w }) = (narrow, many.at(site).unwrap()) {
            assert!(w.min <= n.min && n.max <= w.max, "{site}");
        }
    }
}

#[test]
fn the_file() {
    let calibration = measured(&["hello world"]);
    let bytes = calibration.to_json().unwrap();
    assert_eq!(Calibration::parse(&bytes).unwrap(), calibration);

    let text = String::from_utf8(bytes.clone()).unwrap();
    let with = |from: &str, to: &str| Calibration::parse(text.replacen(from, to, 1).as_bytes());
    let newer = with(&format!("\"version\": {VERSION}"), "\"version\": 99");
    assert!(matches!(newer, Err(CalibrationError::Version { found: 99 })));
    assert!(matches!(with("\"min\": ", "\"min\": 1e300, \"old\": "), Err(CalibrationError::NotJson(_))));
    assert!(matches!(with("\"min\": -", "\"min\": 9"), Err(CalibrationError::Range { .. })));
    assert!(matches!(Calibration::parse(b"{}"), Err(CalibrationError::NotJson(_))));
    assert!(matches!(Calibration::parse(&vec![b' '; MAX_BYTES + 1]), Err(CalibrationError::TooLarge { .. })));

    let short = r#"{"version":1,"sample_sha256":"","texts":1,"tokens":1,"sites":{"a.b":{"kind":"values","output":{"min":-1.5,"max":2}}}}"#;
    assert!(Calibration::parse(short.as_bytes()).is_ok());
    mutations(&[short.as_bytes().to_vec(), bytes], 10_000, 5, fuzz::calibration);
}
