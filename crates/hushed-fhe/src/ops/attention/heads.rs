//! Computes the heads group by group: scores, their softmax, and P·V.

use rayon::prelude::*;

use super::layer::Run;
use super::output::Output;
use super::source::Source;
use crate::error::FheError;
use crate::ops::levels::{above, divisor, scale_of};
use crate::ops::softmax::{Softmax, Weights, weights};
use crate::packing::products::{attend, scores_with};
use crate::packing::{Diagonals, Pairs};
use crate::slots::Slots;

impl<S: Slots> Run<'_, S> {
    /// Computes all heads and the output map.
    pub fn all(&self, mut source: Source<'_, S>, mut output: Output<'_, S>) -> Result<Vec<S::Value>, FheError> {
        let together = self.together();
        for heads in self.learned().chunks(together) {
            self.learned_heads(heads, &mut source, &mut output)?;
        }
        for heads in self.fixed().chunks(together) {
            self.fixed_heads(heads, &mut source, &mut output)?;
        }
        output.finish()
    }

    /// Computes a group of heads that have a softmax.
    fn learned_heads(
        &self,
        heads: &[(usize, &Softmax)],
        source: &mut Source<'_, S>,
        output: &mut Output<'_, S>,
    ) -> Result<(), FheError> {
        let mut exponentials = Vec::with_capacity(heads.len());
        for &(h, softmax) in heads {
            exponentials.push((softmax, self.exponentials(h, softmax, source)?));
        }
        self.site("weigh");
        let at = self.layer.at.part("weigh");
        let statistics = self.layer.placement.statistics;
        let weights = weights(self.on, at, exponentials, &self.keys, statistics)?;
        let which: Vec<usize> = heads.iter().map(|&(h, _)| h).collect();
        let target = self.value_scale(heads)?;
        let mut values = source.values(self, &which, self.limbs.values, target)?;
        for (&(h, softmax), w) in heads.iter().zip(weights) {
            let columns = self.attended(softmax, w, values.next(self, h)?)?;
            output.add(h, columns)?;
        }
        Ok(())
    }

    /// p of head `h`, diagonal by diagonal.
    fn exponentials(&self, h: usize, softmax: &Softmax, source: &mut Source<'_, S>) -> Result<Vec<S::Value>, FheError> {
        let (on, keys, offset) = (self.on, &self.keys, softmax.argument().1);
        let [mut q, mut k] = source.query_key(self, h, softmax)?;
        if let (Some(first), Some(key)) = (q.vectors().first(), k.vectors().first())
            && let Some((one, rows)) = keys.columns(on, first, key, offset)?
        {
            q.push(one);
            k.push(rows);
        }
        self.site("scores");
        let baby = self.layer.placement.scores_baby;
        scores_with(on, &q, k, baby, |first, diagonals| {
            self.site("weigh");
            let one = |(i, s)| {
                let t = keys.argument(on, first + i, s, offset)?;
                softmax.exponential(on, first + i, &t)
            };
            let p = diagonals.into_par_iter().enumerate().map(one);
            let p = p.collect::<Result<Vec<_>, FheError>>();
            self.site("scores");
            p
        })
    }

    /// P·V times the last factor of P, in pairs at half the default scale: splitting them into columns doubles it.
    fn attended(
        &self,
        softmax: &Softmax,
        weights: Weights<S::Value>,
        v: Pairs<S::Value>,
    ) -> Result<Pairs<S::Value>, FheError> {
        let (on, width) = (self.on, v.width());
        self.site("weigh");
        let limbs = above(on, self.limbs.heads)?;
        let inverse = weights.inverse(on, softmax, scale_of(0.5 * divisor(on, limbs)?)?)?;
        let inverse = on.drop_to(&inverse, limbs)?;
        self.site("attend");
        let p = Diagonals::from_vectors(self.layout, weights.exponentials)?;
        let o = attend(on, p, v, self.layer.placement.attend_baby)?;
        let o = on.dot_grid(&[o.into_vectors()], &[vec![inverse]])?;
        let o = o.into_iter().flatten().collect();
        Ok(Pairs::from_vectors(self.layout, o, width))
    }

    /// Computes a group of heads in which row i attends to row i − 1, and row 0 to itself.
    fn fixed_heads(
        &self,
        heads: &[usize],
        source: &mut Source<'_, S>,
        output: &mut Output<'_, S>,
    ) -> Result<(), FheError> {
        let (on, layout, scale) = (self.on, self.layout, self.on.default_scale());
        // Splitting pairs into columns doubles the scale.
        let half = scale_of(0.5 * scale.value())?;
        let mut values = source.values(self, heads, above(on, self.limbs.heads)?, scale)?;
        let texts = layout.texts();
        let first = on.plain(|| {
            let mut first = vec![0.0; layout.slots()];
            first[..texts].fill(1.0);
            first
        });
        let later: Vec<f64> = first.iter().map(|f| 1.0 - f).collect();
        let back = layout.rotation(layout.rows() - 1);
        for &h in heads {
            let v = values.next(self, h)?;
            self.site("attend");
            let shift = |v: S::Value| -> Result<S::Value, FheError> {
                let mut sum = on.mul_vector(&v, &first, half)?;
                if back != 0 {
                    let before = on.rotate(&v, back)?;
                    on.add_assign(&mut sum, &on.mul_vector(&before, &later, half)?)?;
                }
                Ok(sum)
            };
            let width = v.width();
            let pairs = v.into_vectors().into_par_iter().map(shift);
            let pairs = pairs.collect::<Result<Vec<_>, FheError>>()?;
            output.add(h, Pairs::from_vectors(layout, pairs, width))?;
        }
        Ok(())
    }
}
