//! Decoders with a sigmoid in place of softmax, with norms inside their blocks and with a gate of squares: what is
//! refused and declared, what they cost, and a trained one. That they give the clear model's tokens at the planned cost
//! is tested in `decode.rs`, `drafts.rs`, `prefix.rs` and `verify.rs`, over all decoders.

use std::path::Path;
use std::sync::Arc;

use hushed_model::testing::{large_generator_with, ternary_generator, tiny_golden, tiny_ternary, tiny_ternary_with};
use hushed_model::{
    Body, DecoderNetwork, Linear, Matrix, Model, NormReach, Ranges, TokenIds, TooLong, Weigh, calibrate,
};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Answers, Clear, Input, RunError, Terms, choose_norms, fits, out_of_range, run, sampled, supported};
use hushed_twopc::func::sigmoid::RANGE;

use crate::decode::{Ahead, generate, logits, prompt, texts};

fn decoder(model: &mut Model) -> &mut DecoderNetwork {
    match &mut model.body {
        Body::Decoder(decoder) => decoder,
        _ => unreachable!("a decoder"),
    }
}

fn scale(linear: &mut Linear, by: f32) {
    let weights = linear.weights.as_deref().unwrap();
    let larger = weights.data().iter().map(|w| by * w).collect();
    let larger = Matrix::new(weights.rows(), weights.cols(), larger);
    linear.weights = larger.map(Arc::new);
}

#[test]
fn they_are_served_as_they_are() {
    for model in tiny_ternary() {
        supported(&model.program()).unwrap();
        assert_eq!(out_of_range(&model).unwrap(), []);
        assert_eq!(sampled(&model, &[]).unwrap().beyond, []);
    }
}

/// Numbers that no format holds are found when a model is checked, and reported with their step.
#[test]
fn what_no_format_holds_is_refused_by_its_step() {
    let [squares, sigmoid, both] = tiny_ternary();
    let planted = |mut model: Model, change: fn(&mut DecoderNetwork)| {
        change(decoder(&mut model));
        let found = sampled(&model, &[]).unwrap().beyond;
        let found: Vec<(String, f64)> = found.into_iter().map(|o| (o.site, o.limit)).collect();
        found
    };
    let has = |found: &[(String, f64)], site: &str, limit: f64| {
        assert!(found.contains(&(site.to_owned(), limit)), "{found:?}");
    };
    // Scores beyond the curve's domain, in either direction.
    for model in [sigmoid.clone(), both.clone()] {
        let found = planted(model, |d| {
            scale(&mut d.layers[1].attention.query, 40.0);
            scale(&mut d.layers[1].attention.key, 40.0);
        });
        has(&found, "layer.1.attention.weigh", RANGE);
    }
    // Values: below their bound, sums over as many keys as there are positions fit.
    let found = planted(sigmoid, |d| {
        scale(&mut d.layers[0].attention.value, 60.0);
    });
    has(&found, "layer.0.attention.value", 16.0);
    // Squares, and the values they gate.
    let wide = |d: &mut DecoderNetwork| {
        let f = d.layers[0].feed_forward.feed_forward_mut().unwrap();
        scale(f.gate.as_mut().unwrap(), 60.0);
    };
    let found = planted(squares.clone(), wide);
    has(&found, "layer.0.feed_forward.activation", 128.0);
    let found = planted(squares, |d| {
        let f = d.layers[0].feed_forward.feed_forward_mut().unwrap();
        scale(f.gate.as_mut().unwrap(), 20.0);
        scale(&mut f.up, 50.0);
    });
    has(&found, "layer.0.feed_forward.product", 32_768.0);
    let usual = f64::from(NormReach::USUAL.squares).exp2();
    has(&found, "layer.0.feed_forward.sub_norm", usual);
}

/// Small or large rows of a norm inside a block are declared by the norm's name, and are then right.
#[test]
fn norms_inside_blocks_are_measured_and_declared() {
    for (by, site) in [(1.0 / 64.0, "layer.0.attention.sub_norm"), (30.0, "layer.0.feed_forward.sub_norm")] {
        let mut model = tiny_ternary_with(|config| {
            config["attention_weights"] = "sigmoid".into();
            config["sigmoid_bias"] = (-2.75).into();
        });
        let layer = &mut decoder(&mut model).layers[0];
        match by < 1.0 {
            true => scale(&mut layer.attention.value, by),
            false => scale(&mut layer.feed_forward.feed_forward_mut().unwrap().up, by),
        }
        let sample = [prompt(), vec![1, 5, 6], (1..40).collect()].map(TokenIds::new);
        let calibration = calibrate(&model, &sample, "").unwrap();
        assert!(matches!(calibration.sites.get(site), Some(Ranges::Norm { .. })));
        let norms = choose_norms(&model, &calibration);
        let reach = norms[site];
        assert!(reach.finer > 0 || reach.squares > 18, "{reach:?}");
        let declared = model.reaching(norms);
        let (_, norm) =
            declared.program().norms().find(|(id, _)| id.to_string() == site).map(|(id, n)| (id, n.clone())).unwrap();
        assert_eq!(norm.reach, Some(reach));
        let all = fits(&calibration, &declared);
        assert!(all.iter().all(|fit| fit.fits()), "{all:?}");
        generate(&declared, &[], &prompt(), 2, Ahead::default());
    }
}

/// A norm wider than its formats is named before anything runs, also in plans.
#[test]
fn the_widest_norm() {
    assert!(supported(&ternary_generator(8192)).is_ok());
    let wider = ternary_generator(8193);
    match supported(&wider) {
        Err(RunError::Unsupported { site, .. }) => assert_eq!(site, "layer.0.feed_forward"),
        other => panic!("{other:?}"),
    }
    assert!(Plan::twopc(&wider, &[8], Terms::default(), true, Answers::Label).is_err());
}

/// A sigmoid has no maximum, no sum and no division. (For a prompt it needs slightly more OTs, as a softmax's
/// comparisons are short, and for a single row a thousandth more bytes.)
#[test]
fn a_sigmoid_costs_less_than_a_softmax() {
    let plan = |weigh, held, rows| {
        let program = large_generator_with(weigh).first_layers(1);
        Plan::next_token(&program, held, &[rows], Terms::default()).unwrap()
    };
    let of = |plan: &Plan| {
        let parts = ["scores", "weigh", "attend"].map(|part| format!("layer.0.attention.{part}"));
        let steps = plan.steps.iter().filter(|s| parts.contains(&s.site));
        steps.fold((0, 0, 0), |(bytes, cots, rounds), s| {
            (bytes + s.bytes_up + s.bytes_down, cots + s.cots, rounds + s.rounds)
        })
    };
    for (held, rows) in [(0, 128), (128, 1)] {
        let sigmoid = of(&plan(Weigh::Sigmoid { bias: -4.85 }, held, rows));
        let softmax = of(&plan(Weigh::Softmax, held, rows));
        println!("{held} + {rows}: {sigmoid:?}, softmax {softmax:?}");
        assert!(sigmoid.0 < softmax.0 + softmax.0 / 500 && sigmoid.2 < softmax.2);
    }
}

/// Padding in front of a text has no weight, although nothing divides by a row's sum of weights.
#[test]
fn padding_has_no_weight() {
    let model = Model::load(&tiny_golden("bitnet-sigmoid")).unwrap();
    let program = model.program();
    let clear = logits(&program, &prompt());
    let terms = Terms { padded: true, ..Terms::default() };
    let alone = run(&mut Clear::default(), &program, &texts(&prompt(), terms), |_, _| ());
    let alone = alone.unwrap().values();
    let noise: Vec<u32> = (0..60).collect();
    let padded = Input::Texts(vec![TokenIds::with_padding(prompt(), &noise)], terms);
    let padded = run(&mut Clear::default(), &program, &padded, |_, _| ());
    for ((a, b), c) in padded.unwrap().values().iter().zip(&alone).zip(clear) {
        // Rotations at other positions round differently. Sixty keys of weight σ(−2.75) would be most of a row.
        assert!((a - b).abs() < 0.04 && (a - c).abs() < 0.04, "{a} {b} {c}");
    }
}

/// The small trained decoder: its tokens after a text that it was not trained on.
#[test]
fn a_trained_decoder_says_what_it_says_in_the_clear() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/decoder-small");
    let model = Model::load(&folder).unwrap();
    supported(&model.program()).unwrap();
    assert_eq!(sampled(&model, &[]).unwrap().beyond, []);
    let prompt = model.tokens("And the king said unto", TooLong::Refuse).unwrap();
    generate(&model, &[], prompt.ids(), 0, Ahead::default());
}
