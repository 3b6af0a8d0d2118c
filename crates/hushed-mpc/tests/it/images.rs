//! A vision transformer between two parties: labels of images, what a pass costs, and what is refused.

use crate::tiny::{assert_planned_for, pass};
use hushed_model::testing::{tiny_golden, tiny_model};
use hushed_model::{Matrix, Model, NetworkConfig, Pixels, TokenIds, calibrate, cosine, largest, vit_shapes};
use hushed_mpc::plan::{Plan, Request};
use hushed_mpc::verify::verify;
use hushed_mpc::{
    Answers, Clear, Input, Protocol, RunError, Terms, choose, embeddings, fits, labels, out_of_range, run, sampled,
};

fn model() -> Model {
    Model::load(&tiny_golden("vit")).unwrap()
}

/// Images of noise, of gradients and of both.
pub fn images(model: &Model, count: u64) -> Vec<Pixels> {
    let preprocess = model.public.images.as_ref().unwrap();
    let mut state = 7u64;
    let mut noise = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 56
    };
    let image = |kind: u64| {
        let point = |place: u64| match kind % 3 {
            0 => noise(),
            1 => (place * (kind + 1) / 13) % 256,
            _ => (noise() / 4 + place / (kind + 3) * 7) % 256,
        };
        let points: Vec<u64> = (0..32 * 32 * 3).map(point).collect();
        points.into_iter().map(|p| p as u8).collect()
    };
    let all: Vec<Vec<u8>> = (0..count).map(image).collect();
    let all = all.into_iter();
    all.map(|points| preprocess.of_points(points).unwrap()).collect()
}

/// Stages up to the head, and logits close to those of the clear model.
#[test]
fn logits_are_compared_three_ways() {
    let model = model();
    let report = verify(&model, &images(&model, 2), &[], |_| ()).unwrap();
    assert!(report.positions.is_empty());
    assert_eq!(report.answers.len(), 2);
    assert_eq!(report.stages.last().unwrap().stage, "head");
    assert!(report.stages.iter().all(|stage| stage.total < 0.02));
    for answer in &report.answers {
        let classes = model.public.config.labels.as_ref().unwrap().len();
        assert_eq!(answer.private.len(), classes);
        assert!(cosine(&answer.clear, &answer.private) > 0.999);
    }
}

/// The class of the clear model, wherever its top logit leads by more than a private run's error; bytes and rounds
/// match the plan, for one image and for many that share a pass.
#[test]
fn labels_are_those_of_the_clear_model_and_cost_what_the_plan_says() {
    let model = model();
    assert_eq!(out_of_range(&model).unwrap(), []);
    assert_eq!(sampled(&model, &[]).unwrap().beyond, []);
    let all = images(&model, 41);
    let mut sure = 0;
    let mut seen = std::collections::BTreeSet::new();
    for some in [&all[..1], &all[1..]] {
        let input = Input::Images(some.to_vec());
        let (found, steps) = pass(&model, &input, |party, model, input| labels(party, model, input, Answers::Label));
        assert_planned_for(&model, &vec![17; some.len()], Terms::default(), &steps);
        let clear = model.embed(some.to_vec()).unwrap();
        assert_eq!(found.len(), some.len());
        for (label, logits) in found.iter().flatten().zip(&clear) {
            let first = largest(logits);
            let others = logits.iter().enumerate();
            let others = others.filter(|(i, _)| *i != first as usize).map(|(_, v)| *v);
            let lead = logits[first as usize] - others.fold(f64::MIN, f64::max);
            sure += usize::from(lead > 0.02);
            seen.insert(*label);
            assert!(*label == first || lead < 0.02, "{label} {logits:?}");
        }
    }
    assert!(sure >= 35 && seen.len() >= 3, "{sure} {seen:?}");
}

/// Models whose answer is a vector: as in the clear, at the planned cost. CLIP has a norm of what another norm gives,
/// and a linear layer after the pooled row.
#[test]
fn vectors_are_those_of_the_clear_model_and_cost_what_the_plan_says() {
    for name in ["vit-rows", "dinov2", "clip-vision", "clip-vision-projection"] {
        let model = Model::load(&tiny_golden(name)).unwrap();
        assert_eq!(out_of_range(&model).unwrap(), [], "{name}");
        let some = images(&model, 3);
        let input = Input::Images(some.clone());
        let run = |party: &mut Protocol, model: &Model, input: &Input| embeddings(party, model, input, Answers::Label);
        let (found, steps) = pass(&model, &input, run);
        assert_planned_for(&model, &[17; 3], Terms::default(), &steps);
        let clear = model.embed(some).unwrap();
        assert_eq!(found.len(), clear.len());
        for (a, b) in found.iter().zip(&clear) {
            assert!(cosine(a, b) > 0.9999, "{name}: {}", cosine(a, b));
        }
    }
}

/// The functions and formats of a run, in the clear: close to the clear logits, image by image.
#[test]
fn approximations_are_near() {
    let model = model();
    let all = images(&model, 6);
    let clear = model.embed(all.clone()).unwrap();
    let found = run(&mut Clear::default(), &model.program(), &Input::Images(all.clone()), |_, _| ());
    let found = found.unwrap().values();
    let worst = found.iter().zip(clear.iter().flatten());
    let worst = worst.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(worst < 0.01, "{worst}");
    let calibration = calibrate(&model, &all, "").unwrap();
    assert!(fits(&calibration, &model).iter().all(|f| f.fits()));
    let trials = choose(&model, &all, &[], &calibration).unwrap();
    assert!(trials.last().unwrap().keeps());
}

#[test]
fn what_does_not_fit_is_refused() {
    let (model, text_model) = (model(), tiny_model());
    let mut on = Clear::default();
    let mut refused = |model: &Model, input: Input| {
        let error = run(&mut on, &model.program(), &input, |_, _| ()).err();
        error.unwrap()
    };
    let image = images(&model, 1).remove(0);
    let text = Input::Texts(vec![TokenIds::new(vec![1; 17])], Terms::default());
    assert!(matches!(refused(&model, text), RunError::WrongInput));
    let images = Input::Images(vec![image]);
    assert!(matches!(refused(&text_model, images), RunError::WrongInput));
    let smaller = Pixels::new(Matrix::zero(4, 192));
    let error = refused(&model, Input::Images(vec![smaller]));
    assert!(matches!(error, RunError::Unsupported { .. }));
    // A client may ask for any number of rows, and for terms that do not exist for images.
    let program = model.program();
    for (rows, terms) in [
        (16, Terms::default()),
        (18, Terms::default()),
        (17, Terms { padded: true, ..Terms::default() }),
        (17, Terms { public_table: true, ..Terms::default() }),
    ] {
        assert!(Plan::twopc(&program, &[rows], terms, false, Answers::Label).is_err());
    }
    let folder = tiny_golden("vit");
    let plan = |tokens: &[usize], images, bucket| {
        let request = Request {
            tokens: tokens.to_vec(),
            images,
            bucket,
            public_table: false,
            max_tokens: 1,
            ahead: 0,
            draft: 0,
            answers: Default::default(),
            prefix: None,
            pace: Default::default(),
            head: true,
            link: Default::default(),
            network: None,
        };
        Plan::of_folder(&folder, &request)
    };
    assert_eq!(plan(&[], 1, None).unwrap()[0].tokens, [17]);
    assert_eq!(plan(&[], 2, None).unwrap()[0].tokens, [17, 17]);
    assert!(plan(&[17], 0, None).is_err() && plan(&[], 1, Some(8)).is_err());
    let exposures = &plan(&[], 1, None).unwrap()[0].exposures;
    assert!(exposures[0].sees.contains("images"), "{exposures:?}");
}

/// ViT-base/16: an image is planned, and wrong decryptions in its whole pass stay rare.
#[test]
fn the_published_size_is_planned() {
    let program = vit_shapes(&NetworkConfig::vit_base()).program();
    let plan = Plan::twopc(&program, &[197], Terms::default(), false, Answers::Label).unwrap();
    let megabytes = (plan.bytes_up + plan.bytes_down + plan.ot_bytes) as f64 / 1e6;
    println!("ViT-base: {megabytes:.0} MB, {} rounds, {:.0} s, memory {:?}", plan.rounds, plan.seconds, plan.memory);
    for part in ["patches", "norm", "head", "layer.3.attention.scores"] {
        assert!(plan.steps.iter().any(|s| s.site == part), "{part}");
    }
    assert!(plan.failure_log2 < -40.0 && plan.distance_log2 < -40.0);
}
