//! The digits of a polynomial modulo one tile of primes after the other.
//!
//! Memory decides the order of work. A conversion reads all primes of a digit to write one limb, so a few targets, a
//! tile, are converted together. The transforms of one prime follow each other, because its tables are as large as a
//! limb. The limbs are used at once by a [`super::pass`], or stored by [`super::decompose()`].

use std::ops::Range;
use std::sync::Arc;

use hushed_math::{Coeff, Eval, RnsPoly};
use rayon::prelude::*;

use super::gadget::Gadget;
use super::tables::Lift;
use super::tiles::{lift, tile_length, tiles};
use crate::error::RlweError;
use crate::message::check_limbs;
use crate::params::RlweParams;

/// Limbs of a tile in all digits together: eight megabytes at N = 2^16, which stay in the L3 cache, while the
/// conversion terms are read once for four primes in a typical shape.
const TILE_LIMBS: usize = 16;

/// The most primes of a tile.
const LONGEST_TILE: usize = 8;

/// Words per strip when several threads prepare.
const STRIP: usize = 1 << 13;

/// A polynomial ready for the conversion of its digits.
pub(super) struct Raised<'a> {
    params: &'a RlweParams,
    a: &'a RnsPoly<Eval>,
    ranges: Vec<Range<usize>>,
    lifts: Vec<Arc<Lift>>,
    /// For each digit, the terms of its conversions.
    terms: Vec<RnsPoly<Coeff>>,
    tile: usize,
    tiles: Vec<Vec<usize>>,
    /// The index of the first tile of special primes.
    special: usize,
}

impl<'a> Raised<'a> {
    /// # Errors
    /// [`RlweError::LimbCount`], [`RlweError::Limbs`], [`RlweError::IncompatibleParameters`];
    /// [`RlweError::GadgetMismatch`] for a gadget of raised polynomials.
    pub(super) fn new(params: &'a RlweParams, gadget: &Gadget, a: &'a RnsPoly<Eval>) -> Result<Self, RlweError> {
        let limbs = a.ids().len();
        if limbs > gadget.limbs() {
            return Err(RlweError::LimbCount { given: limbs, available: gadget.limbs() });
        }
        check_limbs(params, a, limbs)?;
        if gadget.is_raised() {
            return Err(RlweError::GadgetMismatch);
        }
        let special = gadget.special();
        let ranges: Vec<_> = gadget.digits_for(limbs).collect();
        let tile = tile_length(limbs, (TILE_LIMBS / ranges.len()).clamp(1, LONGEST_TILE));
        let lifts =
            ranges.iter().map(|range| lift(params, range, [limbs, special, tile])).collect::<Result<Vec<_>, _>>()?;
        let mut terms: Vec<_> = ranges.iter().map(|range| terms(params, range.clone())).collect();
        let limbs_of = terms.iter_mut().zip(&ranges).flat_map(|(terms, range)| terms.limbs_mut().take(range.len()));
        let work: Vec<_> = limbs_of.collect();
        work.into_par_iter().for_each(|(id, limb)| {
            params.basis().ntt(id).inverse_from(a.limb(id), limb);
        });
        let pairs = lifts.iter().zip(&mut terms);
        prepare(pairs.map(|(lift, terms)| (&**lift, terms)));
        Ok(Self {
            params,
            a,
            ranges,
            lifts,
            terms,
            tile,
            tiles: tiles(params, limbs, special, tile),
            special: limbs.div_ceil(tile),
        })
    }

    /// Primes per tile, except the last tiles.
    pub(super) fn tile(&self) -> usize {
        self.tile
    }

    /// The tiles of ciphertext primes, and of special primes.
    pub(super) fn tiles(&self) -> [Range<usize>; 2] {
        [0..self.special, self.special..self.tiles.len()]
    }

    /// The primes of a tile.
    pub(super) fn ids(&self, tile: usize) -> &[usize] {
        &self.tiles[tile]
    }

    /// The primes of each digit.
    pub(super) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Writes the digits modulo a tile's primes: `limbs[i][k]` is digit i modulo prime k. Modulo its own primes a digit
    /// is the polynomial itself, and nothing is written.
    pub(super) fn write(&self, tile: usize, limbs: &mut [Vec<&mut [u64]>]) {
        let ids = &self.tiles[tile];
        let digits = self.ranges.iter().zip(&self.lifts).zip(&self.terms);
        for (((range, lift), terms), limbs) in digits.zip(&mut *limbs) {
            let Some(converter) = &lift.tiles[tile] else {
                continue;
            };
            let foreign = ids.iter().zip(limbs).filter(|(id, _)| !range.contains(id));
            let mut targets: Vec<&mut [u64]> = foreign.map(|(_, limb)| &mut **limb).collect();
            let terms: Vec<&[u64]> = terms.limbs().map(|(_, row)| row).collect();
            converter.combine(&terms, &mut targets);
        }
        for (k, id) in ids.iter().enumerate() {
            for (range, limbs) in self.ranges.iter().zip(&mut *limbs) {
                if !range.contains(id) {
                    self.params.basis().ntt(*id).forward(limbs[k]);
                }
            }
        }
    }

    /// The digits modulo the primes of a tile.
    pub(super) fn digits(&self, tile: usize) -> TileDigits<'_> {
        let ids = &self.tiles[tile];
        let scratch = |_| RnsPoly::scratch(self.params.basis(), ids);
        let mut written: Vec<RnsPoly<Eval>> = self.ranges.iter().map(scratch).collect();
        let mut limbs: Vec<Vec<&mut [u64]>> =
            written.iter_mut().map(|digit| digit.limbs_mut().map(|(_, limb)| limb).collect()).collect();
        self.write(tile, &mut limbs);
        TileDigits { ids, ranges: &self.ranges, a: self.a, written }
    }
}

/// The digits of a polynomial modulo the primes of one tile.
pub(super) struct TileDigits<'a> {
    ids: &'a [usize],
    ranges: &'a [Range<usize>],
    a: &'a RnsPoly<Eval>,
    written: Vec<RnsPoly<Eval>>,
}

impl TileDigits<'_> {
    /// All digits modulo prime `k` of the tile.
    pub(super) fn under(&self, k: usize) -> Vec<&[u64]> {
        let id = self.ids[k];
        let digits = self.ranges.iter().zip(&self.written);
        digits.map(|(range, written)| if range.contains(&id) { self.a.limb(id) } else { written.limb(k) }).collect()
    }
}

/// Memory for the terms of conversions from the primes `ids`, which are its first limbs; the last limb holds the
/// quotients.
pub(super) fn terms(params: &RlweParams, ids: impl Iterator<Item = usize>) -> RnsPoly<Coeff> {
    let mut ids: Vec<usize> = ids.collect();
    // Labelled with any other prime: quotients are not residues, but small.
    let other = (0..params.basis().len()).find(|id| !ids.contains(id));
    ids.extend(other);
    RnsPoly::scratch(params.basis(), &ids)
}

/// Turns residues into terms, in place, strip by strip.
pub(super) fn prepare<'a>(pairs: impl Iterator<Item = (&'a Lift, &'a mut RnsPoly<Coeff>)>) {
    let mut work = Vec::new();
    for (lift, terms) in pairs {
        let strips = terms.n().div_ceil(STRIP);
        let mut rows: Vec<_> = terms.limbs_mut().map(|(_, row)| row.chunks_mut(STRIP)).collect();
        for _ in 0..strips {
            let strip: Vec<&mut [u64]> = rows.iter_mut().filter_map(Iterator::next).collect();
            work.push((lift, strip));
        }
    }
    work.into_par_iter().for_each(|(lift, mut strip)| lift.prepare(&mut strip));
}
