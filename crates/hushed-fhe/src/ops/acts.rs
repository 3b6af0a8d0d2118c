//! The activations between two steps of a model: one vector of slots per column of a batch, with the gain and offset of
//! the preceding norm.

use hushed_model::{Linear, Norm, StepId, here, same};
use rayon::prelude::*;

use crate::choices::NormChoice;
use crate::error::FheError;
use crate::slots::Slots;
use hushed_lower::LinearMap;

/// The columns of a batch of texts between two steps: column j of a text's matrix is `gain[j]`·v + `offset[j]`, where v
/// is vector j. Refreshed vectors are within 1, and 0 in padding rows.
///
/// Gains and offsets come from the preceding norm (MOAI folds them as well). They are weights, so there is no `Debug`.
#[derive(Clone)]
pub struct Acts<V> {
    /// One vector per column, or per two columns if a decoder's placement says so ([`Placement`](crate::Placement)),
    /// all with the same scale and number of primes.
    pub columns: Vec<V>,
    /// The factor of each column.
    pub gain: Vec<f64>,
    /// Added after the factor, in rows of tokens.
    pub offset: Vec<f64>,
}

impl<V> Acts<V> {
    /// A client's upload: embedded and normalised columns, divided by the public `bound`.
    pub fn from_client(columns: Vec<V>, bound: f64) -> Acts<V> {
        let width = columns.len();
        Acts::over(columns, width, bound)
    }

    /// `width` columns in these vectors, each divided by `bound`.
    pub fn over(columns: Vec<V>, width: usize, bound: f64) -> Acts<V> {
        Acts { columns, gain: vec![bound; width], offset: vec![0.0; width] }
    }

    /// The results of a norm ([`crate::ops::norm`]), or a checkpoint of them: columns x̂/bound, with the norm's gain
    /// and offset.
    ///
    /// # Errors
    /// [`hushed_model::ModelError::ShapesOnly`] if the norm has no numbers, [`hushed_model::ModelError::Mismatch`] for
    /// a wrong number of columns.
    pub fn from_norm(at: StepId, columns: Vec<V>, norm: &Norm, choice: &NormChoice) -> Result<Acts<V>, FheError> {
        same(at, "columns", columns.len(), norm.width)?;
        Acts::normed(at, columns, norm, choice)
    }

    /// As [`Acts::from_norm`], whether vectors hold one column or two.
    ///
    /// # Errors
    /// [`hushed_model::ModelError::ShapesOnly`] where the norm has no numbers.
    pub fn normed(at: StepId, columns: Vec<V>, norm: &Norm, choice: &NormChoice) -> Result<Acts<V>, FheError> {
        let (gain, offset) = (here(at, &norm.gain)?, here(at, &norm.offset)?);
        Ok(Acts {
            columns,
            gain: gain.iter().map(|&g| f64::from(g) * choice.bound).collect(),
            offset: offset.iter().map(|&b| f64::from(b)).collect(),
        })
    }

    /// The number of columns.
    pub fn width(&self) -> usize {
        self.gain.len()
    }

    /// Drops vectors to the level at which a layer begins: those from a client may be higher.
    ///
    /// # Errors
    /// Those of [`Slots::drop_to`].
    pub fn cut<S>(mut self, on: &S, limbs: usize) -> Result<Acts<V>, FheError>
    where
        S: Slots<Value = V>,
        V: Send + Sync,
    {
        if self.columns.first().is_some_and(|v| on.limbs(v) > limbs) {
            let columns = self.columns.into_par_iter();
            let cut = columns.map(|v| on.drop_to(&v, limbs));
            self.columns = cut.collect::<Result<_, _>>()?;
        }
        Ok(self)
    }

    /// The layer `w` as a map of the vectors, `outputs × inputs`, by rows: gains and offsets are folded into its
    /// weights and bias.
    ///
    /// # Errors
    /// As [`Acts::from_norm`].
    pub fn folded<S>(&self, on: &S, at: StepId, w: &Linear) -> Result<LinearMap, FheError>
    where
        S: Slots<Value = V>,
    {
        reading(on, at, w, (&self.gain, &self.offset))
    }
}

/// The layer `w` as a map of vectors v, where column j is `gain[j]`·v + `offset[j]`.
///
/// # Errors
/// As [`Acts::folded`].
pub(crate) fn reading<S: Slots>(
    on: &S,
    at: StepId,
    w: &Linear,
    (gain, offset): (&[f64], &[f64]),
) -> Result<LinearMap, FheError> {
    same(at, "columns", gain.len(), w.inputs)?;
    if on.only_shapes() {
        return Ok(LinearMap::shape(w.outputs, w.inputs));
    }
    Ok(LinearMap::of(at, w)?.reading(gain, offset).bounded())
}

/// The map of a layer that feeds a norm: κ·(y − mean of y) instead of y, which is κ·(I − 11ᵀ/d) times the layer.
///
/// # Errors
/// [`hushed_model::ModelError::ShapesOnly`] if the layer has no numbers.
pub fn centred<S: Slots>(on: &S, at: StepId, w: &Linear, kappa: f64) -> Result<LinearMap, FheError> {
    if on.only_shapes() {
        return Ok(LinearMap::shape(w.outputs, w.inputs));
    }
    Ok(LinearMap::of(at, w)?.centred().times(kappa).bounded())
}

/// As [`centred`], for the output map of an attention by softmax: it takes `value`, the bias of V, into its own, as
/// weights sum to 1.
pub(crate) fn centred_output<S: Slots>(
    on: &S,
    at: StepId,
    w: &Linear,
    kappa: f64,
    value: &[f64],
) -> Result<LinearMap, FheError> {
    let mut map = centred(on, at, w, kappa)?;
    let rows = map.weights.chunks_exact(map.columns.max(1));
    for (bias, row) in map.bias.iter_mut().flatten().zip(rows) {
        *bias += row.iter().zip(value).map(|(w, b)| w * b).sum::<f64>();
    }
    Ok(map)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_ckks::CkksParams;
    use hushed_model::Matrix;

    use super::*;
    use crate::Simulator;

    fn layer() -> Linear {
        let weights = Matrix::new(3, 2, vec![1.0, 2.0, -3.0, 0.5, 4.0, -1.0]);
        Linear {
            inputs: 2,
            outputs: 3,
            weights: weights.map(Arc::new),
            bias: Some(Arc::from([0.5, 0.25, -1.0])),
            stored: None,
            ternary: false,
        }
    }

    fn apply(map: &LinearMap, x: &[f64]) -> Vec<f64> {
        let bias = map.bias.as_deref().unwrap();
        let rows = map.weights.chunks_exact(map.columns);
        rows.zip(bias).map(|(row, b)| b + row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>()).collect()
    }

    #[test]
    fn gains_offsets_and_centring_are_in_the_maps() {
        let (at, w) = (StepId::outside("x"), layer());
        let params = CkksParams::insecure_test(5, 2).unwrap();
        let on = Simulator::new(&params, 1).unwrap();
        let v = on.vector(vec![0.0], 2).unwrap();
        let acts = Acts { columns: vec![v.clone(), v.clone()], gain: vec![2.0, -0.5], offset: vec![0.125, 3.0] };
        let vectors = [0.75, -0.5];
        let x: Vec<f64> = (0..2).map(|j| acts.gain[j] * vectors[j] + acts.offset[j]).collect();
        let plain = [x[0] + 2.0 * x[1] + 0.5, -3.0 * x[0] + 0.5 * x[1] + 0.25, 4.0 * x[0] - x[1] - 1.0];
        let map = acts.folded(&on, at, &w).unwrap();
        let mean = plain.iter().sum::<f64>() / 3.0;
        let centred = centred(&on, at, &w, 0.01).unwrap();
        let found = apply(&map, &vectors).into_iter().zip(apply(&centred, &x));
        for ((folded, centred), y) in found.zip(plain) {
            assert!((folded - y).abs() < 1e-12 && (centred - 0.01 * (y - mean)).abs() < 1e-12);
        }
        assert!(map.weights.iter().all(|w| w.abs() <= map.bound) && map.bound == 8.0);
        let narrow = Acts::from_client(vec![v], 1.0);
        assert!(narrow.folded(&on, at, &w).is_err());
    }
}
