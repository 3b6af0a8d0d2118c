//! A whole key switch in one pass over the primes: digits, products, division and sum stay in the cache.
//!
//! The special primes come first, because all others need the products modulo them; then each ciphertext prime is
//! finished before the next. Digits and products modulo Q·P are never stored whole: none of the 60 megabytes they take
//! at N = 2^16 and a thousand bits is written or read. Several keys applied to one polynomial share its digits
//! (hoisting).

use std::sync::Arc;

use hushed_math::{Automorphism, Coeff, Eval, RnsPoly};
use rayon::prelude::*;

use super::key::SwitchKey;
use super::raise::{Raised, TileDigits, prepare, terms};
use super::tables::Down;
use super::tiles;
use crate::error::RlweError;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// Both parts of a ciphertext.
pub(super) type Parts = (RnsPoly<Eval>, RnsPoly<Eval>);

/// The work on the digits of one polynomial.
pub(super) struct Pass<'a> {
    pub(super) params: &'a RlweParams,
    /// The component under the other secret.
    pub(super) switched: &'a RnsPoly<Eval>,
    /// What is added to each result.
    pub(super) added: [Option<&'a RnsPoly<Eval>>; 2],
    /// Whether the results are also divided by the last prime.
    pub(super) rescale: bool,
}

/// One result: its key and its permutation.
pub(super) struct Step<'a> {
    pub(super) key: &'a SwitchKey,
    pub(super) turn: Option<Arc<Automorphism>>,
}

impl Pass<'_> {
    /// One result per step; the keys share one gadget.
    ///
    /// # Errors
    /// [`RlweError::GadgetMismatch`], [`RlweError::LimbCount`], [`RlweError::Limbs`],
    /// [`RlweError::IncompatibleParameters`].
    pub(super) fn run(&self, steps: &[Step<'_>]) -> Result<Vec<Parts>, RlweError> {
        let Some(first) = steps.first() else {
            return Ok(Vec::new());
        };
        let (params, limbs) = (self.params, self.switched.ids().len());
        let gadget = first.key.gadget();
        for step in steps {
            if step.key.gadget() != gadget {
                return Err(RlweError::GadgetMismatch);
            }
            if !std::ptr::eq(step.key.params().as_ref(), params) {
                return Err(RlweError::IncompatibleParameters);
            }
        }
        for added in self.added.into_iter().flatten() {
            check_limbs(params, added, limbs)?;
        }
        let rescaled = usize::from(self.rescale);
        if limbs <= rescaled {
            return Err(RlweError::LimbCount { given: limbs, available: params.q_len() });
        }
        let raised = Raised::new(params, gadget, self.switched)?;
        let stay = limbs - rescaled;
        let special = gadget.special();
        let down = tiles::down(params, [limbs, special, rescaled, raised.tile()])?;
        let work = Work {
            pass: self,
            steps,
            raised: &raised,
            down: &down,
            stay,
            weights: (0..limbs).map(|id| params.p_modulo(special, id)).collect(),
        };
        let dropped = work.dropped(&params.extended_ids_with(limbs, special)[stay..]);
        Ok(work.kept(&dropped))
    }
}

struct Work<'a> {
    pass: &'a Pass<'a>,
    steps: &'a [Step<'a>],
    raised: &'a Raised<'a>,
    down: &'a Down,
    /// The ciphertext primes of the results.
    stay: usize,
    /// P modulo each ciphertext prime.
    weights: Vec<u64>,
}

impl Work<'_> {
    /// The terms of the division: products modulo the primes that are divided out, two polynomials per step.
    fn dropped(&self, ids: &[usize]) -> Vec<RnsPoly<Coeff>> {
        let params = self.pass.params;
        let mut dropped: Vec<RnsPoly<Coeff>> =
            (0..2 * self.steps.len()).map(|_| terms(params, ids.iter().copied())).collect();
        let mut limbs = by_limb(&mut dropped, ids.len());
        let [ciphertext, special] = self.raised.tiles();
        let last = ciphertext.end - 1;
        // With rescaling, the last ciphertext prime, in the last ciphertext tile, is divided out too.
        let tiles = if self.pass.rescale { last } else { special.start }..special.end;
        let mut work = Vec::new();
        for tile in tiles {
            let mine = self.raised.ids(tile).iter().filter(|id| ids.contains(id));
            let count = mine.count();
            work.push((tile, limbs.drain(..count).collect::<Vec<_>>()));
        }
        work.into_par_iter().for_each(|(tile, mut limbs)| {
            let digits = self.raised.digits(tile);
            let places = self.raised.ids(tile).iter().enumerate();
            let places = places.filter(|(_, id)| ids.contains(id));
            for ((k, &id), limbs) in places.zip(&mut limbs) {
                self.products(&digits, k, id, limbs);
                for limb in limbs {
                    params.basis().ntt(id).inverse(limb);
                }
            }
        });
        prepare(dropped.iter_mut().map(|terms| (&self.down.lift, terms)));
        dropped
    }

    /// The results modulo the remaining primes.
    fn kept(&self, dropped: &[RnsPoly<Coeff>]) -> Vec<Parts> {
        let params = self.pass.params;
        let ids: Vec<usize> = (0..self.stay).collect();
        let mut out: Vec<RnsPoly<Eval>> =
            (0..2 * self.steps.len()).map(|_| RnsPoly::scratch(params.basis(), &ids)).collect();
        let mut limbs = by_limb(&mut out, self.stay);
        let [tiles, _] = self.raised.tiles();
        let mut work = Vec::new();
        for tile in tiles {
            let mine = self.raised.ids(tile).iter().filter(|&&id| id < self.stay);
            let count = mine.count();
            work.push((tile, limbs.drain(..count).collect::<Vec<_>>()));
        }
        let rows: Vec<Vec<&[u64]>> = dropped.iter().map(|terms| terms.limbs().map(|(_, row)| row).collect()).collect();
        work.into_par_iter().for_each(|(tile, mut limbs)| {
            if limbs.is_empty() {
                return;
            }
            self.finish(tile, &rows, &mut limbs);
        });
        let mut out = out.into_iter();
        std::iter::from_fn(|| Some((out.next()?, out.next()?))).collect()
    }

    /// The results modulo a tile's remaining primes: `out[k]` has two limbs per step.
    fn finish(&self, tile: usize, rows: &[Vec<&[u64]>], out: &mut [Vec<&mut [u64]>]) {
        let basis = self.pass.params.basis();
        let ids = &self.raised.ids(tile)[..out.len()];
        let digits = self.raised.digits(tile);
        for (k, (&id, out)) in ids.iter().zip(&mut *out).enumerate() {
            self.products(&digits, k, id, out);
        }
        drop(digits);
        let mut lifted = RnsPoly::<Eval>::scratch(basis, ids);
        let mut turned = RnsPoly::<Eval>::scratch(basis, &ids[..1]);
        let turns = self.steps.iter().flat_map(|step| [&step.turn; 2]);
        for (part, (rows, turn)) in rows.iter().zip(turns).enumerate() {
            let mut targets: Vec<&mut [u64]> = lifted.limbs_mut().map(|(_, limb)| limb).collect();
            if let Some(converter) = &self.down.lift.tiles[tile] {
                converter.combine(rows, &mut targets);
            }
            for ((&id, lifted), out) in ids.iter().zip(targets).zip(&mut *out) {
                let (ntt, out) = (basis.ntt(id), &mut *out[part]);
                ntt.forward(lifted);
                let inverse = self.down.inverses[id];
                match turn {
                    None => ntt.pointwise().sub_mul_scalar_assign(out, lifted, inverse),
                    Some(turn) => {
                        let turned = turned.limb_mut(0);
                        let pointwise = ntt.pointwise();
                        pointwise.mod_down_finish(turned, out, lifted, inverse);
                        turn.apply(turned, out);
                    }
                }
            }
        }
    }

    /// Both inner products of each step modulo one prime, plus P times what is added: `limbs` has two per step.
    fn products(&self, digits: &TileDigits<'_>, k: usize, id: usize, limbs: &mut [&mut [u64]]) {
        let digits = [digits.under(k)];
        // P is zero modulo the special primes.
        let weight = self.weights.get(id);
        let added = self.pass.added;
        let added = added.map(|added| Some((*weight?, added?.limb(id))));
        for (step, limbs) in self.steps.iter().zip(limbs.chunks_exact_mut(2)) {
            if let [b, a] = limbs {
                step.key.multiply(id, &digits, added, &mut [[b, a]]);
            }
        }
    }
}

/// Transposes: for each of the first `count` limbs, that limb of all polynomials.
fn by_limb<D: hushed_math::poly::Domain>(polys: &mut [RnsPoly<D>], count: usize) -> Vec<Vec<&mut [u64]>> {
    let mut limbs: Vec<Vec<&mut [u64]>> = (0..count).map(|_| Vec::new()).collect();
    for poly in polys {
        for (limbs, (_, limb)) in limbs.iter_mut().zip(poly.limbs_mut()) {
            limbs.push(limb);
        }
    }
    limbs
}
