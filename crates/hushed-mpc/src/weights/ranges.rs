//! Whether a model's numbers fit the formats of a two-party run: checked when a model is checked or loaded, never in a
//! session.

use hushed_model::{Embedding, Matrix, Patches, StepId, here};

use crate::formats::{BIAS_LIMIT, LINEAR, POSITION_LIMIT, TABLE_BITS, WEIGHT_BITS, WEIGHT_FRAC};
use crate::formats::{EMBEDDING, MAIN};
use crate::lookup::Table;
use crate::weights::embed::{integer, of_numbers};
use crate::{OutOfRange, RunError};

/// What is too large in a layer as it will be run, given its largest absolute weight and its biases.
pub(crate) fn layer(id: StepId, largest: u32, bias: &[i64]) -> Vec<OutOfRange> {
    let bias = bias.iter().map(|b| b.unsigned_abs());
    let most_bias = (BIAS_LIMIT * f64::from(LINEAR.frac).exp2()) as u64;
    let found = [
        ("weights", largest > 1 << WEIGHT_BITS, f64::from(1u32 << (WEIGHT_BITS - WEIGHT_FRAC))),
        ("biases", bias.max() > Some(most_bias), BIAS_LIMIT),
    ];
    collect(&id.to_string(), found)
}

/// The same for the token vectors and position vectors.
pub(crate) fn embedding(e: &Embedding) -> Result<Vec<OutOfRange>, RunError> {
    let largest = |parts: [&[f32]; 2]| parts.into_iter().flatten().map(|v| integer(v).unsigned_abs()).max();
    let largest = of_numbers(e, Table::Tokens, largest)?;
    let offsets = e.offsets.as_deref().map(Matrix::data).unwrap_or_default();
    let above = |p: &f32| f64::from(p.abs()) > POSITION_LIMIT;
    let found = [
        ("token vectors", largest > Some(1 << TABLE_BITS), f64::from(1u32 << (TABLE_BITS - EMBEDDING.frac))),
        ("position vectors", offsets.iter().any(above), POSITION_LIMIT),
    ];
    Ok(collect("embed", found))
}

/// The same for a class token and the positions of patches, which are added to a layer's results.
pub(crate) fn patches(id: StepId, p: &Patches) -> Result<Vec<OutOfRange>, RunError> {
    let above = |v: &f32| f64::from(v.abs()) > POSITION_LIMIT;
    let (class, offsets) = (here(id, &p.class)?, here(id, &p.offsets)?);
    let found = [
        ("the class token", class.iter().any(above), POSITION_LIMIT),
        ("position vectors", offsets.data().iter().any(above), POSITION_LIMIT),
    ];
    Ok(collect(&id.to_string(), found))
}

fn collect(site: &str, found: [(&'static str, bool, f64); 2]) -> Vec<OutOfRange> {
    let beyond = found.into_iter().filter(|(_, beyond, _)| *beyond);
    let error = |(what, _, limit)| OutOfRange { site: site.to_owned(), what, limit };
    beyond.map(error).collect()
}

// A bias and a product of the same size stay inside the ring, including the sign.
const _: () = assert!(MAIN.bits() == LINEAR.ring.bits() && LINEAR.ring.bits() - LINEAR.frac > 13);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_model::testing::tiny_model;
    use hushed_model::{Linear, Model};

    use super::*;
    use crate::{Layers, RunError, out_of_range};

    fn bias(layer: &mut Linear, at: usize, value: f32) {
        let mut bias = layer.bias.take().unwrap().to_vec();
        bias[at] = value;
        layer.bias = Some(bias.into());
    }

    fn weight(matrix: &mut Option<Arc<Matrix<f32>>>, value: f32) {
        let mut numbers = Matrix::clone(matrix.as_deref().unwrap());
        numbers.data_mut()[5] = value;
        *matrix = Some(Arc::new(numbers));
    }

    #[test]
    fn a_good_model_has_none_and_shapes_have_no_answer() {
        let model = tiny_model();
        assert_eq!(out_of_range(&model).unwrap(), []);
        let shapes = Model::shapes_only(&model.public);
        assert!(matches!(out_of_range(&shapes), Err(RunError::Model(_))));
    }

    #[test]
    fn every_number_that_does_not_fit_is_found_at_once() {
        let mut model = tiny_model();
        bias(&mut model.encoder_mut().unwrap().layers[0].attention.value, 3, 4097.0);
        let wide = &mut model.encoder_mut().unwrap().layers[1].feed_forward;
        let wide = wide.feed_forward_mut().unwrap();
        bias(&mut wide.down, 0, -1e30);
        weight(&mut wide.up.weights, 500.0);
        weight(&mut model.body.embedding_mut().unwrap().tokens, -17.0);
        weight(&mut model.body.embedding_mut().unwrap().offsets, 16.5);
        let found = out_of_range(&model).unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|o| (o.site.as_str(), o.what)).collect();
        let expected = [
            ("embed", "token vectors"),
            ("embed", "position vectors"),
            ("layer.0.attention.qkv", "biases"),
            ("layer.1.feed_forward.up", "weights"),
            ("layer.1.feed_forward.down", "biases"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn a_server_does_not_start_with_one() {
        let change: [fn(&mut Model); 3] = [
            |m| bias(&mut m.encoder_mut().unwrap().layers[0].attention.output, 1, f32::MAX),
            |m| weight(&mut m.encoder_mut().unwrap().layers[0].attention.query.weights, -300.0),
            |m| weight(&mut m.body.embedding_mut().unwrap().offsets, f32::MIN),
        ];
        for change in change {
            let mut model = tiny_model();
            change(&mut model);
            let error = Layers::default().prepare(&model).err().unwrap();
            assert!(matches!(error, RunError::OutOfRange(_)), "{error}");
            assert!(!error.to_string().contains("300"), "no number is shown");
        }
        let mut model = tiny_model();
        bias(&mut model.encoder_mut().unwrap().layers[0].attention.output, 1, -4096.0);
        Layers::default().prepare(&model).unwrap();
    }
}
