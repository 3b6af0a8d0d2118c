//! Tiny decoders with activations of 3·10^3, as in published ones (Sun et al., arXiv 2402.17762): at the first token of
//! a text, or at every token.

use std::sync::Arc;

use super::{tiny_generator, tiny_golden, tiny_model};
use crate::arch::config::NetworkConfig;
use crate::blocks::Linear;
use crate::body::Body;
use crate::matrix::Matrix;
use crate::model::{Model, random_llama};

/// A decoder with a single such activation, at its first token, and one with such activations in all rows.
///
/// # Panics
/// Panics if the disk is full or the committed folder is gone.
pub fn wide_decoders() -> [Model; 2] {
    [first_token(), every_row()]
}

/// The second of these, with rows that no norm format holds.
///
/// # Panics
/// Those of [`wide_decoders`].
pub fn beyond_formats() -> Model {
    let mut model = every_row();
    let Body::Decoder(decoder) = &mut model.body else { unreachable!("a tiny GPT-2") };
    for layer in &mut decoder.layers {
        let signs = (0..32).map(|i| if i < 16 { 4000.0 } else { -4000.0 });
        let wide = layer.feed_forward.feed_forward_mut().expect("two layers");
        wide.down.bias = Some(signs.collect());
    }
    model
}

/// A tiny decoder whose token vectors are too small for the usual format of its first norm.
///
/// # Panics
/// Those of [`wide_decoders`].
pub fn small_rows() -> Model {
    let mut model = Model::load(&tiny_golden("llama")).expect("a committed folder");
    let Body::Decoder(decoder) = &mut model.body else { unreachable!("a tiny LLaMA") };
    let mut tokens = Matrix::clone(decoder.embedding.tokens.as_deref().expect("numbers"));
    for id in 0..tokens.rows() {
        for v in tokens.row_mut(id) {
            *v *= 0.1;
        }
    }
    decoder.embedding.tokens = Some(Arc::new(tokens));
    model
}

/// A tiny decoder and a tiny encoder in which six neurons of layer 0 fire on this token alone, and make 10^4 in column
/// 5.
///
/// # Panics
/// Those of [`wide_decoders`].
pub fn firing_on(id: u32) -> [Model; 2] {
    let [mut decoder, mut encoder] = [tiny_generator(), tiny_model()];
    let Body::Decoder(body) = &mut decoder.body else { unreachable!("a tiny GPT-2") };
    let layers = [
        body.layers[0].feed_forward.feed_forward_mut(),
        encoder.encoder_mut().expect("a tiny BERT").layers[0].feed_forward.feed_forward_mut(),
    ];
    for layer in layers {
        let layer = layer.expect("two layers");
        let mut bias = layer.up.bias.take().expect("numbers").to_vec();
        for (neuron, bias) in bias.iter_mut().enumerate().take(6) {
            // After a norm, column 7 of a row of 32 is at most 5.6, and seldom above 3.
            set(&mut layer.up, neuron, 7, 14.0);
            *bias = -50.0;
            set(&mut layer.down, 5, neuron, 60.0);
        }
        layer.up.bias = Some(bias.into());
    }
    for model in [&mut decoder, &mut encoder] {
        let embedding = model.body.embedding_mut().expect("texts");
        let mut tokens = Matrix::clone(embedding.tokens.as_deref().expect("numbers"));
        tokens.row_mut(id as usize)[7] = 15.0;
        embedding.tokens = Some(Arc::new(tokens));
    }
    [decoder, encoder]
}

fn set(linear: &mut Linear, row: usize, column: usize, value: f32) {
    let mut weights = Matrix::clone(linear.weights.as_deref().expect("numbers"));
    weights.row_mut(row)[column] = value;
    linear.weights = Some(Arc::new(weights));
}

/// Token 1 comes before every text. Its vector alone is nonzero in column 7, from which the first hidden column of
/// layer 0 makes 3·10^3 in column 5.
fn first_token() -> Model {
    let mut model = Model::load(&tiny_golden("llama")).expect("a committed folder");
    let config = NetworkConfig { width: 128, hidden: 96, ..model.public.config.clone() };
    let mut decoder = random_llama(&config, 9);
    let mut tokens = Matrix::clone(decoder.embedding.tokens.as_deref().expect("numbers"));
    for id in 0..config.vocabulary {
        tokens.row_mut(id)[7] = if id == 1 { 14.0 } else { 0.0 };
    }
    decoder.embedding.tokens = Some(Arc::new(tokens));
    let f = decoder.layers[0].feed_forward.feed_forward_mut();
    let f = f.expect("two layers");
    set(&mut f.up, 0, 7, 6.0);
    set(f.gate.as_mut().expect("a gate"), 0, 7, 3.0);
    set(&mut f.down, 5, 0, 4.0);
    model.public.config = config;
    model.body = Body::Decoder(decoder);
    model
}

/// A bias of 3·10^3 after layer 0, in every row.
fn every_row() -> Model {
    let mut model = tiny_generator();
    let Body::Decoder(decoder) = &mut model.body else { unreachable!("a tiny GPT-2") };
    let wide = decoder.layers[0].feed_forward.feed_forward_mut();
    let down = &mut wide.expect("two layers").down;
    let mut bias = down.bias.take().expect("numbers").to_vec();
    bias[5] = -3000.0;
    down.bias = Some(bias.into());
    model
}
