//! Activations of 3·10^3, planted in tiny decoders as in published ones: at the first token, or at every token. Also
//! rows too small for the usual formats.

use std::sync::atomic::{AtomicUsize, Ordering};

use hushed_model::testing::{beyond_formats, firing_on, small_rows, tiny_generator, tiny_model, wide_decoders};
use hushed_model::{Calibration, Model, NormReach, Ranges, TokenIds, calibrate, calibrate_layers};
use hushed_mpc::verify::verify;
use hushed_mpc::{Bound, CHECKED_LAYERS, Clear, Input, Layers, Terms, choose_norms, fits, run, sampled, vocabulary};
use hushed_twopc::func::norm;

use crate::decode::{Ahead, generate, logits};

fn text() -> Vec<u32> {
    vec![1, 60, 300 % 250, 17, 17, 42, 9]
}

fn measured(model: &Model) -> Calibration {
    let texts = [text(), vec![1, 5, 6], (1..40).collect()].map(TokenIds::new);
    calibrate(model, &texts, "").unwrap()
}

/// The largest difference between the model and a clear run with the protocols' functions and formats.
fn off(model: &Model) -> f64 {
    let clear = logits(&model.program(), &text());
    let input = Input::Texts(vec![TokenIds::new(text())], Terms::default());
    let found = run(&mut Clear::default(), &model.program(), &input, |_, _| ()).unwrap();
    let pairs = found.values().into_iter().zip(clear);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn wide_norms_are_refused_measured_declared_and_then_right() {
    let mut worst = 0.0f64;
    for model in wide_decoders() {
        let calibration = measured(&model);
        let largest = calibration.sites.values().map(|ranges| match ranges {
            Ranges::Values { output } => output.magnitude(),
            _ => 0.0,
        });
        let largest = largest.fold(0.0, f64::max);
        assert!((2.9e3..8e3).contains(&largest), "{largest}");

        // Undeclared: no weight exceeds its format, and yet the model is refused.
        Layers::default().prepare(&model).unwrap();
        let beyond = sampled(&model, &[]).unwrap().beyond;
        assert!(!beyond.is_empty());
        assert!(
            beyond.iter().all(|o| o.site.contains("norm") && (o.limit == 262_144.0 || o.what.starts_with("means")))
        );
        worst = worst.max(off(&model));

        let norms = choose_norms(&model, &calibration);
        assert!(norms.values().any(|reach| reach.squares >= 24));
        let declared = model.reaching(norms);
        assert_eq!(sampled(&declared, &[]).unwrap().beyond, []);
        let all = fits(&calibration, &declared);
        assert!(all.iter().all(|fit| fit.fits()), "{all:?}");
        let right = off(&declared);
        assert!(right < 0.05, "{right}");
        generate(&declared, &[], &text(), 0, Ahead::default());
        generate(&declared, &[], &text(), 2, Ahead::default());
    }
    // If only the first token is large, its row becomes zeros, which later ones may hardly notice.
    assert!(worst > 0.1, "{worst}");
}

/// A model whose first token is massive fits behind it, with the usual formats, where it is public.
#[test]
fn a_massive_first_token_is_public() {
    let [model, every_row] = wide_decoders();
    let head = &text()[..1];
    assert_eq!(model.public.head(), head);
    let found = sampled(&model, head).unwrap();
    assert!(found.needs_head && found.beyond.is_empty(), "{found:?}");
    // A head changes nothing where other rows are massive, and is not needed where none is.
    assert!(!sampled(&every_row, head).unwrap().beyond.is_empty());
    assert!(!sampled(&tiny_generator(), head).unwrap().needs_head);
    let item = [TokenIds::new(text())];
    let calibration = calibrate_layers(&model, &item, "", (head, usize::MAX)).unwrap();
    assert_eq!(calibration.tokens, text().len() - 1);
    let all = fits(&calibration, &model);
    assert!(all.iter().all(|fit| fit.bound == Bound::Least || fit.fits()), "{all:?}");
    assert!(choose_norms(&model, &calibration).values().all(|reach| reach.squares < 24));
    for padding in [0, 3] {
        generate(&model, head, &text()[1..], padding, Ahead::default());
    }
    let report = verify(&model, &item, head, |_| ()).unwrap();
    assert_eq!(report.positions.len(), text().len() - 1);
    assert!(report.positions.iter().all(|at| at.agrees() || at.margin < 0.05), "{:?}", report.positions);
}

/// Rows too small for the usual format are found, declared, and then right.
#[test]
fn small_rows_are_measured_declared_and_then_right() {
    let model = small_rows();
    let found = sampled(&model, &[]).unwrap();
    assert!(found.beyond.is_empty(), "{found:?}");
    assert!(found.inexact.iter().any(|fit| fit.site == "layer.0.attention.norm"), "{found:?}");
    let before = off(&model);
    let calibration = measured(&model);
    let norms = choose_norms(&model, &calibration);
    assert!(norms["layer.0.attention.norm"].finer > 0, "{norms:?}");
    let declared = model.reaching(norms);
    assert!(sampled(&declared, &[]).unwrap().inexact.is_empty());
    assert!(fits(&calibration, &declared).iter().all(hushed_mpc::Fit::fits));
    let after = off(&declared);
    assert!(after < 0.5 * before, "{before} before, {after} after");
}

/// Rows that no format holds get no declaration, and stay refused.
#[test]
fn beyond_every_format() {
    let model = beyond_formats();
    let norms = choose_norms(&model, &measured(&model));
    assert!(!norms.contains_key("norm"), "{norms:?}");
    let declared = model.reaching(norms);
    let beyond = sampled(&declared, &[]).unwrap().beyond;
    assert!(beyond.iter().any(|o| o.site == "norm"), "{beyond:?}");
}

/// Neurons that fire on one token of the vocabulary are found, and the token named; a text without it shows nothing.
#[test]
fn a_token_that_leaves_the_formats_is_found() {
    for model in firing_on(40) {
        let told = AtomicUsize::new(0);
        let found = vocabulary(&model, (&[], CHECKED_LAYERS), &|tokens, _| {
            told.fetch_add(tokens, Ordering::Relaxed);
        })
        .unwrap();
        assert!(found.iter().any(|leaves| leaves.beyond.site.starts_with("layer.0.")), "{found:?}");
        assert!(found.iter().all(|leaves| leaves.tokens.len() == 1 && leaves.tokens[0].0 == 40), "{found:?}");
        assert_eq!(told.into_inner(), model.public.tokenizer().unwrap().ordinary_ids().len());
        assert_eq!(vocabulary(&model, (&[], 0), &|_, _| ()).unwrap(), []);
    }
    for model in [tiny_generator(), tiny_model()] {
        assert_eq!(vocabulary(&model, (&[], usize::MAX), &|_, _| ()).unwrap(), []);
    }
}

/// For models whose rows the usual formats hold, nothing is declared, except for this embedding, whose rows are short
/// and small.
#[test]
fn usual_models_declare_nothing() {
    let encoder = hushed_model::testing::tiny_model();
    let found = sampled(&encoder, &[]).unwrap();
    assert!(found.beyond.is_empty(), "{found:?}");
    assert!(found.inexact.iter().all(|fit| fit.site == "embed.norm"));
    let text = encoder.tokens("a private world", hushed_model::TooLong::Refuse);
    let calibration = calibrate(&encoder, &[text.unwrap()], "").unwrap();
    let mut declared = choose_norms(&encoder, &calibration);
    let small = declared.remove("embed.norm");
    assert!(small.is_none_or(|reach| reach.squares == NormReach::USUAL.squares));
    assert!(declared.is_empty(), "{declared:?}");
}

/// The model crate and the protocol have the same limits.
#[test]
fn one_set_of_limits() {
    assert_eq!(NormReach::MOST, norm::NormReach::MOST);
    assert_eq!(NormReach::MOST_SQUARES, norm::NormReach::MOST_SQUARES);
    for squares in 0..40 {
        for finer in 0..10 {
            let held = (NormReach::USUAL.squares..=NormReach::MOST_SQUARES).contains(&squares)
                && finer <= (NormReach::MOST - squares) / 2;
            assert_eq!(norm::NormReach { squares, finer }.is_held(), held);
        }
    }
}
