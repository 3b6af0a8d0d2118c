//! Encoders whose layers begin with norms: a vision transformer, and an encoder of texts made of such layers.

use hushed_model::testing::{tiny_config, tiny_golden, tiny_model};
use hushed_model::{
    Body, EmbedderNetwork, Item, Model, NetworkConfig, Pixels, Pool, TokenIds, cosine, plain, random_network,
    random_vit,
};

use super::clear::Clear;
use super::*;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{Lengths, named};
use crate::simulate::{Batch, embedded};
use crate::testing::images;
use crate::{Simulator, Slots};

/// The model in the clear, and its circuit with exact functions: the same logits, in groups of any size, and every norm
/// is measured, that after the layers in first rows alone.
#[test]
fn the_circuit_of_images_with_exact_functions_is_the_model() {
    let model = Model::load(&tiny_golden("vit")).unwrap();
    let images: Vec<Item> = images(&model, 5).into_iter().map(Item::from).collect();
    let exact = model.embed(images.clone()).unwrap();
    let program = model.program_of_all_rows();
    let params = named("insecure-test/9/14").unwrap();
    let clear = Clear { model: &model, params: &params, rows: 32 };
    let none = Structure::none(&program);
    let (seen, answers) = clear.measured(&none, &images, Seen::nothing(&program), true).unwrap();
    assert_eq!(answers.len(), exact.len());
    for (found, expected) in answers.iter().flatten().zip(exact.iter().flatten()) {
        assert!((found - expected).abs() < 1e-8, "{found} and {expected}");
    }
    let norms = seen.layers.iter().flat_map(|layer| &layer.norms).chain([&seen.norm]);
    for (place, norm) in norms.enumerate() {
        assert!(norm.first.least > 0.0 && norm.first.greatest < f64::INFINITY && norm.largest > 1.0);
        // Of padding a client sends zeros.
        assert!(place == 0 || norm.masked.least.is_finite());
    }
    assert!(seen.layers.iter().all(|layer| layer.norms.iter().all(|norm| norm.later.least > 0.0)));
    assert!(seen.norm.later.least.is_infinite());
}

/// An encoder of texts with norms before its blocks: whoever knows the lengths, its circuit is the model, up
/// to its polynomials.
#[test]
fn texts_through_layers_that_begin_with_norms_are_pooled() {
    const ROWS: usize = 16;
    let config = NetworkConfig { layers: 2, ..tiny_config() };
    let vision = random_vit(
        &NetworkConfig { positions: 17, patch_side: 8, labels: Some(vec![String::new(); 2]), ..config.clone() },
        3,
    );
    let (embedding, norm) = (random_network(&config, Pool::Mean, 5).embedding, vision.norm);
    let params = named("insecure-test/9/14").unwrap();
    let network = EmbedderNetwork { embedding, layers: vision.layers, norm, pool: Pool::Mean, projection: None };
    let program = network.program();
    can_run(&program).unwrap();
    let read_first = EmbedderNetwork { pool: Pool::First, ..network.clone() };
    // In its last layer only the first row: another circuit.
    assert!(can_run(&read_first.program()).is_err());
    let mut model = tiny_model();
    model.body = Body::Embedder(network);
    let text = |length: usize| TokenIds::new((0..length).map(|i| (i * 31 + length * 17) as u32 % 90).collect());
    let texts: Vec<TokenIds> = [16, 3, 1, 9, 5, 12, 16, 2].map(text).to_vec();
    let sample = Sample { texts: &texts, hostile: &[], broad: &[], sha256: "", model_sha256: "" };
    let choices = intervals(&model, &sample, &Options { rows: ROWS, ..Options::default() }, 31, 31).unwrap();
    let rows: Vec<_> = texts.iter().map(|text| embedded(&program, text).unwrap()).collect();
    for lengths in [Lengths::Public, Lengths::Private] {
        let on = Simulator::new(&params, texts.len() * ROWS).unwrap();
        let placement = Placement::plain(on.top(), ROWS, 8);
        let batch = Batch { program: &program, choices: &choices, placement: &placement, lengths, bound: 8.0 };
        let found = batch.run(&on, ROWS, &rows, None).unwrap();
        for (text, found) in texts.iter().zip(&found) {
            let expected = plain::run(&program, vec![text.clone()], |_, _| ()).unwrap().values;
            let near = cosine(found, expected.row(0));
            assert!(near > 0.999, "{lengths:?} {} tokens: {near}", text.ids().len());
        }
    }
}

/// A search over images finds degrees, and the file that it writes is read for this model alone.
#[test]
fn a_calibration_of_images_has_a_norm_after_the_layers() {
    let model = Model::load(&tiny_golden("vit")).unwrap();
    let images = images(&model, 16);
    let sample = Sample::<Pixels> { texts: &images, hostile: &[], broad: &[], sha256: "", model_sha256: "" };
    let options =
        Options { rows: 32, wanted: 0.999, parameters: "insecure-test/13/14".to_owned(), ..Options::default() };
    let choices = calibrate(&model, &sample, &options, &mut |_| ()).unwrap();
    assert!(choices.norm.is_some() && choices.layers.iter().all(|layer| layer.frozen_row.is_none()));
    let read = Choices::from_json(&choices.to_json().unwrap()).unwrap();
    assert_eq!(read, choices);
    read.check(&model.program_of_all_rows()).unwrap();
    let without = Choices { norm: None, ..choices.clone() };
    let refused = without.check(&model.program_of_all_rows()).err().unwrap().to_string();
    assert!(refused.contains("norms after the layers"), "{refused}");
    let inside = reaches(&model, &choices, &images, &options.params().unwrap()).unwrap();
    assert!(inside.iter().flatten().all(|reach| reach.reach < 1.0));
    let mut narrow = choices;
    narrow.norm.as_mut().unwrap().scale *= 8.0;
    let outside = reaches(&model, &narrow, &images[..1], &options.params().unwrap()).unwrap();
    let variance = outside[0].iter().find(|reach| reach.quantity == Quantity::Variance).unwrap();
    assert!(variance.reach > 1.0 && (variance.layer, variance.index) == (2, 0), "{variance:?}");
}
