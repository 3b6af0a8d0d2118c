//! One vector alone: its outputs are computed in pieces all over the slots, so that few diagonals are left.
//!
//! The slots are cut into `classes` runs of `step`, each with a place for every output. A class adds up its share of an
//! output's products, `offsets` of them, and the shares are summed by rotations by `step`, 2·`step`, ….
//!
//! ```text
//! u[s] = Σ_{j < offsets} W[row(s), column(s + j)] · x[column(s + j)]         offsets diagonals, baby and giant steps
//! y[row(s)] = Σ_c u[s + c·step]                                              log2(classes) rotations
//! ```
//!
//! Classes have different shares because their columns are shifted against each other: by the input itself where a
//! client packs it ([`Places::packed`]), or by a `step` that is an odd number of shares ([`Places::repeated`]).

use hushed_ckks::keys::EvalKeyPlan;
use hushed_ckks::lintrans::{Diagonals, LinTransError, LinearTransform, Options};
use hushed_ckks::{
    Ciphertext, CkksError, CkksParams, Complex64, Encoder, Evaluator, Plaintext, Scale,
};
use hushed_fhe::LinearMap;

use super::super::Normal;
use super::{Map, Shape, plain_scale};
use crate::BenchError;

/// Which output and which input is in each slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    slots: usize,
    rows: usize,
    columns: usize,
    /// Slots after which columns repeat within a class.
    period: usize,
    /// By how many columns a class is ahead of the one before.
    shift: usize,
    step: usize,
    classes: usize,
    offsets: usize,
}

impl Places {
    /// For an input that the client packs: class by class as many columns further as a class takes. The results repeat
    /// through all slots, with the next power of two above their number for a period.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] if a class has not even one column.
    pub(super) fn packed(slots: usize, [rows, columns]: [usize; 2]) -> Result<Self, LinTransError> {
        let (step, period) = (rows.next_power_of_two(), columns.next_power_of_two());
        let classes = slots / step;
        if classes == 0 || classes > period {
            return Err(LinTransError::Dimension {
                given: rows,
                limit: slots,
            });
        }
        let offsets = period / classes;
        Ok(Self {
            slots,
            rows,
            columns,
            period,
            shift: offsets,
            step,
            classes,
            offsets,
        })
    }

    /// For an input that repeats, as the results of [`Places::packed`] do. The results are in the first slots, and in
    /// others are parts of them.
    ///
    /// # Errors
    /// As [`Places::packed`], and if there are too many rows for the classes to be shifted.
    pub(super) fn repeated(slots: usize, shape: [usize; 2]) -> Result<Self, LinTransError> {
        let packed = Self::packed(slots, shape)?;
        // An odd number of shares: then the first columns of the classes are all multiples of a share modulo the
        // period, each once.
        let shares = (packed.step / packed.offsets).saturating_sub(1) | 1;
        let step = shares * packed.offsets;
        if step < packed.rows || step * packed.classes > slots {
            return Err(LinTransError::Dimension {
                given: packed.rows,
                limit: step,
            });
        }
        Ok(Self {
            shift: 0,
            step,
            ..packed
        })
    }

    /// The column of x that a slot of the input holds.
    pub(super) fn column(&self, slot: usize) -> Option<usize> {
        let column = (slot + slot / self.step * self.shift) % self.period;
        (column < self.columns).then_some(column)
    }

    /// The output that a slot has a share of.
    pub(super) fn row(&self, slot: usize) -> Option<usize> {
        let (class, row) = (slot / self.step, slot % self.step);
        (class < self.classes && row < self.rows).then_some(row)
    }

    /// The shares of the outputs as a matrix on the slots.
    pub(super) fn matrix(&self, layer: &LinearMap) -> Result<Diagonals, LinTransError> {
        let mut matrix = Diagonals::new(self.slots)?;
        for j in 0..self.offsets {
            let entry = |slot: usize| {
                let at = self.row(slot).zip(self.column((slot + j) % self.slots));
                at.map_or(0.0, |(row, column)| {
                    layer.weights[row * self.columns + column]
                })
            };
            let diagonal = (0..self.slots).map(|slot| entry(slot).into());
            matrix.set(j as i64, diagonal.collect())?;
        }
        Ok(matrix)
    }

    /// Rotations that sum the shares.
    pub(super) fn folds(&self) -> Vec<i64> {
        let folds = (0..self.classes.trailing_zeros()).map(|i| (self.step << i) as i64);
        folds.collect()
    }
}

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

    fn add_keys(&self, params: &CkksParams, plan: &mut EvalKeyPlan) -> Result<(), CkksError> {
        self.map.add_keys(plan);
        let after = self.map.limbs() - 1;
        plan.merge(&params.key_plan(after, false, &self.folds, false)?);
        Ok(())
    }

    fn diagonals(&self) -> (usize, usize) {
        (self.map.products(), self.map.plaintext_bytes())
    }
}

/// One vector of real numbers, or two where there is no activation: the second in the imaginary parts.
pub(super) struct Split {
    pub(super) slots: usize,
    pub(super) vectors: usize,
}

impl Split {
    /// The first map reads what the client packed, a later one what the one before left.
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
        let options = Options {
            plain_scale: Some(plain_scale(params, limbs, from, to)),
            ..Options::default()
        };
        let matrix = places.matrix(layer).map_err(CkksError::from)?;
        let map = LinearTransform::new(params, &matrix, limbs, options);
        let map = map.map_err(CkksError::from)?;
        // Each vector has the bias; slots without an output have none.
        let one = Complex64::new(1.0, (self.vectors - 1) as f64);
        let bias = |slot: usize| {
            let at = places.row(slot).zip(layer.bias.as_ref());
            at.map_or(Complex64::ZERO, |(row, bias)| one * bias[row])
        };
        // After the sums every class has the whole bias, not a share.
        let bias: Vec<Complex64> = (0..self.slots).map(bias).collect();
        Ok(Box::new(SplitMap {
            bias: encoder.encode(&bias, limbs - 1, map.output_scale(from))?,
            map,
            folds: places.folds(),
        }))
    }

    /// Slots without a column have numbers too: a map must not see them.
    fn pack(
        &self,
        layer: &LinearMap,
        x: &[Vec<f64>],
        random: &mut Normal,
    ) -> Result<Vec<Vec<Complex64>>, BenchError> {
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

    fn unpack(
        &self,
        layer: &LinearMap,
        opened: &[Vec<Complex64>],
    ) -> Result<Vec<Vec<f64>>, BenchError> {
        let first = opened.iter().flatten().take(layer.rows);
        let parts = first.map(|z| [z.re, z.im]).collect::<Vec<_>>();
        let vector = |v: usize| parts.iter().map(|both| both[v]).collect();
        Ok((0..self.vectors).map(vector).collect())
    }
}
