//! The scores of a decoder's heads, diagonal by diagonal in the frames of their giant steps: queries and keys are
//! rotated, turned by their positions and masked; a softmax adds the token rows.

use hushed_ckks::Scale;
use hushed_model::Rope;
use rayon::prelude::*;

use super::layer::{Keys, Run};
use super::rope::{Turned, turns};
use crate::error::FheError;
use crate::ops::key_mask::zero;
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::packing::PackingError;
use crate::packing::products::{GIANTS, rotations};
use crate::slots::Slots;

impl<S: Slots> Run<'_, S> {
    /// The same with the token rows, if weights are a softmax.
    pub fn with_tokens(mut self) -> Result<Self, FheError> {
        if let Some((real, _)) = self.weighing.tokens(0) {
            self.site("rows");
            let real = self.on.drop_to(real, above(self.on, self.limbs.turned)?)?;
            self.tokens = Some(self.turned_keys(vec![real], None)?);
        }
        Ok(self)
    }

    /// The scale of turned queries and keys: arguments of the polynomial are at twice the divisor of their first
    /// rescale, and taking real parts doubles the scale.
    fn turned_scale(&self) -> Result<Scale, FheError> {
        let (on, turned) = (self.on, self.limbs.turned);
        let wanted = divisor(on, below(on, turned, 1)?)? * divisor(on, turned)?;
        scale_of(wanted.sqrt())
    }

    /// `v`, of pair `i`, times the plaintext of its turn, or of the mask alone without `rope`.
    fn turn(&self, v: &S::Value, (i, rope): (usize, Option<&Rope>), which: Turned) -> Result<S::Value, FheError> {
        let (on, layer, baby) = (self.on, self.layer, self.layer.placement.scores_baby);
        let plain = || turns(layer.layout, &layer.block.heads, rope, i, baby, which);
        on.mul_pairs(v, &on.plain_pairs(plain), self.turned_scale()?)
    }

    /// The conjugate keys of a head, turned and masked, and the token rows.
    pub fn keys(&self, raw: Vec<S::Value>) -> Result<Keys<S::Value>, FheError> {
        self.site("rope");
        let mut keys = self.turned_keys(raw, self.layer.block.rope.as_ref())?;
        if let Some(tokens) = &self.tokens {
            keys.rotated.extend(tokens.rotated.iter().cloned());
            keys.diagonal.extend(tokens.diagonal.iter().cloned());
        }
        Ok(keys)
    }

    fn turned_keys(&self, raw: Vec<S::Value>, rope: Option<&Rope>) -> Result<Keys<S::Value>, FheError> {
        let babies: Vec<usize> = (0..self.layer.placement.scores_baby).map(|r| self.layer.layout.rotation(r)).collect();
        let one = |(i, v): (usize, &S::Value)| Ok(vec![self.turn(v, (i, rope), Turned::DiagonalKey)?]);
        let diagonal = raw.par_iter().enumerate().map(one);
        let diagonal = diagonal.collect::<Result<_, FheError>>()?;
        let turned = |(i, rotated): (usize, Vec<S::Value>)| {
            let all = rotated.iter().enumerate();
            all.map(|(r, v)| self.turn(v, (i, rope), Turned::Key(r))).collect()
        };
        let rotated = rotations(self.on, raw, &babies)?.into_par_iter().enumerate();
        Ok(Keys { rotated: rotated.map(turned).collect::<Result<_, FheError>>()?, diagonal })
    }

    /// The factor of the token rows in the queries of head `h`: a constant where the causal mask is 1.
    fn asking(&self, h: usize, which: Turned) -> Result<Option<S::Value>, FheError> {
        let Some((_, constant)) = self.weighing.tokens(h) else {
            return Ok(None);
        };
        let (on, layer) = (self.on, self.layer);
        let (heads, baby) = (&layer.block.heads, layer.placement.scores_baby);
        let mask = on.plain(|| {
            let mask = turns(layer.layout, heads, None, 0, baby, which);
            mask.iter().map(|z| constant * z.re).collect()
        });
        let nothing = zero(on, self.limbs.turned, self.turned_scale()?)?;
        Ok(Some(on.add_vector(nothing, &mask)?))
    }

    /// Applies the function of head `h` to its scores, diagonal by diagonal, in the frames of the giant steps.
    pub fn scored(&self, h: usize, raw: Vec<S::Value>, keys: &Keys<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let mut done = Vec::with_capacity(self.layer.layout.rows());
        self.scored_with(h, raw, keys, |rows| {
            done.extend(rows.into_iter().flatten());
            Ok(())
        })?;
        Ok(done)
    }

    /// As [`Run::scored`]; `each` takes the diagonals of a few giant steps at a time, by giant and by baby step.
    pub fn scored_with(
        &self,
        h: usize,
        raw: Vec<S::Value>,
        keys: &Keys<S::Value>,
        mut each: impl FnMut(Vec<Vec<S::Value>>) -> Result<(), FheError>,
    ) -> Result<(), FheError> {
        let (on, layer, weighing) = (self.on, self.layer, &self.weighing);
        let (layout, baby) = (layer.layout, layer.placement.scores_baby);
        let (m, rope) = (layout.rows(), layer.block.rope.as_ref());
        let hoisted = raw.par_iter().map(|v| on.hoist(v));
        let hoisted = hoisted.collect::<Result<Vec<_>, FheError>>()?;
        let giants: Vec<usize> = (0..m).step_by(baby).collect();
        for giants in giants.chunks(GIANTS) {
            self.site("rope");
            let back = |(i, query): (usize, &S::Hoisted<'_>)| {
                let turn = |&giant: &usize| {
                    let rotated = on.rotate_hoisted(query, layout.rotation(m - giant))?;
                    self.turn(&rotated, (i, rope), Turned::Query(giant))
                };
                giants.iter().map(turn).collect()
            };
            let queries = hoisted.par_iter().enumerate().map(back);
            let mut queries = queries.collect::<Result<Vec<Vec<S::Value>>, FheError>>()?;
            let asking = giants.iter();
            let asking = asking.filter_map(|&giant| self.asking(h, Turned::Query(giant)).transpose());
            let asking = asking.collect::<Result<Vec<_>, FheError>>()?;
            if !asking.is_empty() {
                queries.push(asking);
            }
            self.site("scores");
            let mut grid = on.dot_grid(&queries, &keys.rotated)?;
            drop(queries);
            if giants.first() == Some(&0) {
                let one = |(i, v): (usize, &S::Value)| Ok(vec![self.turn(v, (i, rope), Turned::DiagonalQuery)?]);
                let query = raw.par_iter().enumerate().map(one);
                let mut query = query.collect::<Result<Vec<_>, FheError>>()?;
                query.extend(self.asking(h, Turned::DiagonalQuery)?.map(|v| vec![v]));
                let first = on.dot_grid(&query, &keys.diagonal)?.into_iter().flatten().next();
                let place = grid.first_mut().and_then(|row| row.first_mut());
                *place.ok_or(PackingError::Mismatch)? = first.ok_or(PackingError::Mismatch)?;
            }
            if self.tokens.is_some() {
                self.site("weigh");
            }
            let mut rows = Vec::with_capacity(giants.len());
            for (row, &giant) in grid.into_iter().zip(giants) {
                let row = row.into_par_iter().enumerate();
                let row = row.map(|(r, s)| weighing.score(on, h, on.real(&s)?, (giant, r)));
                rows.push(row.collect::<Result<Vec<S::Value>, FheError>>()?);
            }
            each(rows)?;
        }
        Ok(())
    }
}
