//! Activations of 3·10^3, planted in tiny decoders as published ones have them: at the first token, or at every one.

use hushed_model::testing::{tiny_generator, tiny_golden};
use hushed_model::{
    Body, Calibration, Linear, Matrix, Model, NetworkConfig, NormReach, Ranges, TokenIds,
    calibrate, random_llama as random_decoder,
};
use hushed_mpc::{Clear, Input, Layers, Terms, choose_norms, fits, run, sampled_out_of_range};
use hushed_twopc::func::norm;

use crate::decode::{generate, logits};

fn set(linear: &mut Linear, row: usize, column: usize, value: f32) {
    let mut weights = Matrix::clone(linear.weights.as_deref().unwrap());
    weights.row_mut(row)[column] = value;
    linear.weights = Some(std::sync::Arc::new(weights));
}

/// Token 1 comes before every text. It alone has something in column 7, from which the first hidden column of layer 0
/// makes 3·10^3 in column 5.
fn first_token() -> Model {
    let mut model = Model::load(&tiny_golden("llama")).unwrap();
    let config = NetworkConfig {
        width: 128,
        hidden: 96,
        ..model.public.config.clone()
    };
    let mut decoder = random_decoder(&config, 9);
    let mut tokens = Matrix::clone(decoder.embedding.tokens.as_deref().unwrap());
    for id in 0..config.vocabulary {
        tokens.row_mut(id)[7] = if id == 1 { 14.0 } else { 0.0 };
    }
    decoder.embedding.tokens = Some(std::sync::Arc::new(tokens));
    let f = &mut decoder.layers[0].feed_forward;
    set(&mut f.up, 0, 7, 6.0);
    set(f.gate.as_mut().unwrap(), 0, 7, 3.0);
    set(&mut f.down, 5, 0, 4.0);
    model.public.config = config;
    model.body = Body::Llama(decoder);
    model
}

/// A bias of 3·10^3 behind layer 0, in every row.
fn every_row() -> Model {
    let mut model = tiny_generator();
    let Body::Gpt2(decoder) = &mut model.body else {
        unreachable!()
    };
    let down = &mut decoder.layers[0].feed_forward.down;
    let mut bias = down.bias.take().unwrap().to_vec();
    bias[5] = -3000.0;
    down.bias = Some(bias.into());
    model
}

fn text() -> Vec<u32> {
    vec![1, 60, 300 % 250, 17, 17, 42, 9]
}

fn measured(model: &Model) -> Calibration {
    let texts = [text(), vec![1, 5, 6], (1..40).collect()].map(TokenIds::new);
    calibrate(model, &texts, "").unwrap()
}

/// Largest difference of a run's functions and formats, in the clear, from the model.
fn off(model: &Model) -> f64 {
    let clear = logits(&model.program(), &text());
    let input = Input::Texts(vec![TokenIds::new(text())], Terms::default());
    let found = run(&mut Clear::default(), &model.program(), &input, |_, _| ()).unwrap();
    let pairs = found.values().into_iter().zip(clear);
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn wide_norms_are_refused_measured_declared_and_then_right() {
    for model in [first_token(), every_row()] {
        let calibration = measured(&model);
        let largest = calibration.sites.values().map(|ranges| match ranges {
            Ranges::Values { output } => output.magnitude(),
            _ => 0.0,
        });
        let largest = largest.fold(0.0, f64::max);
        assert!((2.9e3..8e3).contains(&largest), "{largest}");

        // Undeclared: no weight is beyond its format, and yet the model is refused.
        Layers::default().prepare(&model).unwrap();
        let beyond = sampled_out_of_range(&model).unwrap();
        assert!(!beyond.is_empty());
        assert!(
            beyond
                .iter()
                .all(|o| o.limit == 262_144.0 && o.site.contains("norm"))
        );
        let wrong = off(&model);
        assert!(wrong > 0.1, "{wrong}");

        let norms = choose_norms(&model, &calibration);
        assert!(norms.values().any(|reach| reach.squares >= 24));
        let declared = model.reaching(norms);
        assert_eq!(sampled_out_of_range(&declared).unwrap(), []);
        let all = fits(&calibration, &declared.public.config);
        assert!(all.iter().all(|fit| fit.fits()), "{all:?}");
        let right = off(&declared);
        assert!(right < 0.05, "{right}");
        generate(&declared, &text(), 0);
        generate(&declared, &text(), 2);
    }
}

/// Rows that no format holds get none, and stay refused.
#[test]
fn beyond_every_format() {
    let mut model = every_row();
    let Body::Gpt2(decoder) = &mut model.body else {
        unreachable!()
    };
    for layer in &mut decoder.layers {
        let down = &mut layer.feed_forward.down;
        down.bias = Some(
            vec![4000.0; 16]
                .into_iter()
                .chain(vec![-4000.0; 16])
                .collect(),
        );
    }
    let norms = choose_norms(&model, &measured(&model));
    assert!(!norms.contains_key("norm"), "{norms:?}");
    let declared = model.reaching(norms);
    let beyond = sampled_out_of_range(&declared).unwrap();
    assert!(beyond.iter().any(|o| o.site == "norm"), "{beyond:?}");
}

/// The rows of models that the usual formats hold are declared as before: not at all.
#[test]
fn usual_models_declare_nothing() {
    let encoder = hushed_model::testing::tiny_model();
    assert_eq!(sampled_out_of_range(&encoder).unwrap(), []);
    let text = encoder.tokens("a private world", hushed_model::TooLong::Refuse);
    let calibration = calibrate(&encoder, &[text.unwrap()], "").unwrap();
    assert!(choose_norms(&encoder, &calibration).is_empty());
}

/// The crate of models and the protocol know the same limits.
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
