//! A single vector over all slots ([`Places`]).

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::lintrans::{LinTransError, LinearTransform, Options};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Encoder, Evaluator, Plaintext, Scale};
use hushed_fhe::LinearMap;

use super::super::bed::Normal;
use super::shape::{Map, Shape, plain_scale};
use crate::BenchError;
use crate::ckks::Places;

/// A map of one vector, and its bias.
struct SplitMap {
    map: LinearTransform,
    folds: Vec<i64>,
    bias: Plaintext,
}

impl Map for SplitMap {
    fn apply(&self, on: &Evaluator, x: &[Ciphertext]) -> Result<Vec<Ciphertext>, CkksError> {
        let fold = |ct: &Ciphertext| -> Result<Ciphertext, CkksError> {
            let mut sum = self.map.apply(on, ct)?;
            for &by in &self.folds {
                let turned = on.rotate(&sum, by)?;
                on.add_assign(&mut sum, &turned)?;
            }
            on.add_plain_assign(&mut sum, &self.bias)?;
            Ok(sum)
        };
        x.iter().map(fold).collect()
    }

    fn add_keys(&self, params: &CkksParams, specs: &mut KeySpecs) -> Result<(), CkksError> {
        self.map.add_keys(specs);
        let after = self.map.limbs() - 1;
        specs.merge(&params.key_specs(after, false, &self.folds, false)?);
        Ok(())
    }

    fn diagonals(&self) -> (usize, usize) {
        (self.map.products(), self.map.plaintext_bytes())
    }
}

/// One vector of real numbers; without an activation two, the second in the imaginary parts.
pub(super) struct Split {
    pub(super) slots: usize,
    pub(super) vectors: usize,
}

impl Split {
    /// The first map reads what the client packed, a later one the result of the previous map.
    fn places(&self, number: usize, layer: &LinearMap) -> Result<Places, LinTransError> {
        let shape = [layer.rows, layer.columns];
        match number {
            0 => Places::packed(self.slots, shape),
            _ => Places::repeated(self.slots, shape),
        }
    }
}

impl Shape for Split {
    fn name(&self) -> &'static str {
        "one vector over all slots"
    }

    fn vectors(&self) -> usize {
        self.vectors
    }

    fn in_pairs(&self) -> bool {
        false
    }

    fn map(
        &self,
        encoder: &Encoder,
        (number, layer): (usize, &LinearMap),
        limbs: usize,
        [from, to]: [Scale; 2],
    ) -> Result<Box<dyn Map>, BenchError> {
        let params = encoder.params();
        let places = self.places(number, layer).map_err(CkksError::from)?;
        let options = Options { plain_scale: Some(plain_scale(params, limbs, from, to)), ..Options::default() };
        let weight = |row: usize, column: usize| layer.weights[row * layer.columns + column];
        let matrix = places.matrix(weight).map_err(CkksError::from)?;
        let map = LinearTransform::new(params, &matrix, limbs, options);
        let map = map.map_err(CkksError::from)?;
        // Each vector gets the bias; slots without an output get none.
        let one = Complex64::new(1.0, (self.vectors - 1) as f64);
        let bias = |slot: usize| {
            let at = places.row(slot).zip(layer.bias.as_ref());
            at.map_or(Complex64::ZERO, |(row, bias)| one * bias[row])
        };
        // Added after the sums, so every class gets the whole bias, not a share.
        let bias: Vec<Complex64> = (0..self.slots).map(bias).collect();
        Ok(Box::new(SplitMap {
            bias: encoder.encode(&bias, limbs - 1, map.output_scale(from))?,
            map,
            folds: places.folds(),
        }))
    }

    /// Slots without a column hold numbers too, which a map must not see.
    fn pack(&self, layer: &LinearMap, x: &[Vec<f64>], random: &mut Normal) -> Result<Vec<Vec<Complex64>>, BenchError> {
        let places = self.places(0, layer).map_err(CkksError::from)?;
        let mut slots = Vec::with_capacity(self.slots);
        for slot in 0..self.slots {
            let mut part = |vector: usize| match (x.get(vector), places.column(slot)) {
                (Some(x), Some(column)) => x[column],
                (Some(_), None) => random.next(),
                (None, _) => 0.0,
            };
            slots.push(Complex64::new(part(0), part(1)));
        }
        Ok(vec![slots])
    }

    fn unpack(&self, layer: &LinearMap, opened: &[Vec<Complex64>]) -> Result<Vec<Vec<f64>>, BenchError> {
        let first = opened.iter().flatten().take(layer.rows);
        let parts = first.map(|z| [z.re, z.im]).collect::<Vec<_>>();
        let vector = |v: usize| parts.iter().map(|both| both[v]).collect();
        Ok((0..self.vectors).map(vector).collect())
    }
}
