//! The inner sums of a linear map under one prime: rotated inputs times diagonals, within the cache.
//!
//! Each baby step is an inner product of digits with a key, plus P·b, permuted; every giant step uses its values.
//! Memory dictates the order of work: keys are read once, and their products are used before they leave the L2 cache.

use std::sync::Arc;

use hushed_math::cache::prefetch;
use hushed_math::{Automorphism, Eval, Pointwise, RnsPoly, Room};
use hushed_rlwe::hybrid::{KeyStrips, SwitchKey};

use crate::lintrans::memory::values_at_a_time;
use crate::lintrans::store::Block;
use crate::lintrans::transform::EncodedGiant;
use crate::lintrans::{LinTransError, LinearTransform};

/// Words of a limb that products with keys process at a time: a strip of the digits stays in the cache while all keys
/// pass over it.
const KEY_STRIP: usize = 1 << 11;

/// A rotation of the input: its key and the permutation of the product.
pub(super) type Baby<'a> = (&'a SwitchKey, Arc<Automorphism>);

/// The inner sums under one prime.
pub(super) struct Pass<'a> {
    pub(super) map: &'a LinearTransform,
    /// `None` for the input itself.
    pub(super) babies: &'a [Option<Baby<'a>>],
    /// b of each input, and a of each if it is needed.
    pub(super) parts: [&'a [&'a RnsPoly<Eval>]; 2],
    /// The digits of each input.
    pub(super) digits: Vec<Vec<&'a [u64]>>,
    /// P modulo the prime.
    pub(super) weight: u64,
    /// Index of the limb.
    pub(super) limb: usize,
    /// Index of the prime.
    pub(super) id: usize,
}

impl Pass<'_> {
    /// `out[giant·inputs + c]` ← the sum of a giant for input c.
    ///
    /// Rotations by multiples of 2^j slots permute within runs of n/2^(j+1) values. Such maps are processed run by run
    /// in the cache, and no product is stored before it is rotated. Maps with a stride of few slots store the products
    /// of whole limbs.
    pub(super) fn run(&self, out: &mut [[&mut [u64]; 2]]) -> Result<(), LinTransError> {
        let (n, inputs) = (self.map.common.params.n(), self.inputs());
        let count = self.digits.first().map_or(0, Vec::len);
        let keys = self.babies.iter().map(|baby| {
            let (key, _) = baby.as_ref()?;
            Some(key.strips(self.id, count))
        });
        let mut keys: Vec<_> = keys.collect();
        let orbits = self.babies.iter().flatten().map(|(_, turn)| turn.orbit());
        let orbit = orbits.max().unwrap_or(1);
        let (run, strip) = values_at_a_time(n, orbit);
        let closed = orbit <= n / 8;
        let pairs = self.babies.len() * inputs;
        let (mut work, mut rooms, mut turned) = (Room::new(), Vec::new(), Room::new());
        let work = work.words(2 * pairs * run);
        let mut block = Block::default();
        for first in (0..n).step_by(run) {
            if !closed {
                self.products(first, &mut keys, work, &mut rooms);
                self.sums(strip, work, (&mut turned, &mut block), out)?;
                continue;
            }
            self.turned(first, &mut keys, work, &mut rooms);
            for (giant, out) in out.chunks_exact_mut(inputs).enumerate() {
                let diagonals = self.diagonals(giant, first, run, &mut block)?;
                let giant = &self.map.giants[giant];
                for (c, [b, a]) in out.iter_mut().enumerate() {
                    let out = [&mut b[first..first + run], &mut a[first..first + run]];
                    self.giant(giant, &diagonals, (work, inputs, c), out);
                }
            }
        }
        Ok(())
    }

    /// The stored words of a giant's diagonals for `length` values from `start` on, in memory or read into `block`.
    fn diagonals<'b>(
        &'b self,
        giant: usize,
        start: usize,
        length: usize,
        block: &'b mut Block,
    ) -> Result<Vec<&'b [u64]>, LinTransError> {
        let place = self.map.places[self.limb];
        if let Some(store) = &self.map.store {
            return store.read((giant, place, start / length), block);
        }
        let plains = self.map.giants[giant].plains.iter();
        Ok(plains.map(|plain| plain.strip(place, start, length)).collect())
    }

    fn inputs(&self) -> usize {
        self.parts[0].len()
    }

    fn pointwise(&self) -> &Pointwise {
        let basis = self.map.common.params.rlwe().basis();
        basis.ntt(self.id).pointwise()
    }

    /// P·(b, 0) + Σ digits·key of each baby before its permutation, or P·(b, a) for the input itself, for one run of
    /// values, at pair baby·inputs + c. All keys pass over one strip of digits while it is in the cache.
    fn products(&self, first: usize, keys: &mut [Option<KeyStrips<'_>>], products: &mut [u64], rooms: &mut Vec<Room>) {
        let (inputs, pointwise) = (self.inputs(), self.pointwise());
        let run = products.len() / (2 * keys.len() * inputs);
        let strip = KEY_STRIP.min(run);
        let mut words = Vec::new();
        let mut lifted = Room::new();
        let lifted = lifted.words(2 * inputs * strip);
        for start in (0..run).step_by(strip) {
            let here = first + start..first + start + strip;
            self.lift(here.start, lifted);
            for (key, pairs) in keys.iter_mut().zip(products.chunks_exact_mut(2 * inputs * run)) {
                let pairs = pairs.chunks_exact_mut(2 * run).zip(lifted.chunks_exact(2 * strip));
                let Some(key) = key else {
                    for (pair, lifted) in pairs {
                        for (part, lifted) in pair.chunks_exact_mut(run).zip(lifted.chunks(strip)) {
                            part[start..start + strip].copy_from_slice(lifted);
                        }
                    }
                    continue;
                };
                let [key_b, key_a] = key.next_strip(strip, rooms);
                for ((pair, lifted), digits) in pairs.zip(&self.digits) {
                    words.clear();
                    words.extend(digits.iter().map(|digit| &digit[here.clone()]));
                    let (b, a) = pair.split_at_mut(run);
                    let b = &mut b[start..start + strip];
                    let a = &mut a[start..start + strip];
                    pointwise.dot_pair([&mut *b, a], &words, [&key_b, &key_a]);
                    if self.weight != 0 {
                        pointwise.add_assign(b, &lifted[..strip]);
                    }
                }
            }
        }
    }

    /// Every baby for one closed run of values, at pair baby·inputs + c.
    fn turned(&self, first: usize, keys: &mut [Option<KeyStrips<'_>>], turned: &mut [u64], rooms: &mut Vec<Room>) {
        let inputs = self.inputs();
        let run = turned.len() / (2 * keys.len() * inputs);
        let mut lifted = Room::new();
        let lifted = lifted.words(2 * inputs * run);
        self.lift(first, lifted);
        let place = self.map.places[self.limb];
        let plains = self.map.giants.iter().flat_map(|giant| &giant.plains);
        plains.for_each(|plain| prefetch(plain.strip(place, first, run)));
        let mut words = Vec::new();
        let rows = turned.chunks_exact_mut(2 * inputs * run);
        for ((key, baby), row) in keys.iter_mut().zip(self.babies).zip(rows) {
            let (Some(key), Some((_, turn))) = (key, baby) else {
                row.copy_from_slice(lifted);
                continue;
            };
            let [key_b, key_a] = key.next_strip(run, rooms);
            let pairs = row.chunks_exact_mut(2 * run).zip(lifted.chunks_exact(2 * run));
            for ((pair, lifted), digits) in pairs.zip(&self.digits) {
                words.clear();
                words.extend(digits.iter().map(|digit| &digit[first..first + run]));
                let (b, a) = pair.split_at_mut(run);
                let added = (self.weight != 0).then_some(&lifted[..run]);
                let keys = [&key_b[..], &key_a[..]];
                turn.dot_pair_strip(self.pointwise(), [b, a], &words, keys, added, [first; 2]);
            }
        }
    }

    /// P·b, and P·a where needed, of each input, for the values from `start` on.
    fn lift(&self, start: usize, lifted: &mut [u64]) {
        let strip = lifted.len() / (2 * self.inputs());
        for (index, polys) in self.parts.iter().enumerate() {
            for (poly, pair) in polys.iter().zip(lifted.chunks_exact_mut(2 * strip)) {
                let out = &mut pair[index * strip..(index + 1) * strip];
                // P is zero modulo the special primes, which the inputs lack.
                match self.weight {
                    0 => out.fill(0),
                    weight => {
                        let limb = &poly.limb(self.limb)[start..start + strip];
                        self.pointwise().mul_scalar(out, limb, weight);
                    }
                }
            }
        }
    }

    /// Σ d ⊙ φ(product) for each giant and all values, strip by strip; the rotated strips are computed once and stay in
    /// the cache. Inputs are processed one by one, or all at once if diagonals come from a file, so that they are read
    /// once.
    fn sums(
        &self,
        strip: usize,
        products: &[u64],
        (room, block): (&mut Room, &mut Block),
        out: &mut [[&mut [u64]; 2]],
    ) -> Result<(), LinTransError> {
        let (inputs, babies) = (self.inputs(), self.babies.len());
        let run = products.len() / (2 * babies * inputs);
        let place = self.map.places[self.limb];
        let together = if self.map.store.is_some() { inputs } else { 1 };
        let turned = room.words(2 * babies * together * strip);
        for start in (0..run).step_by(strip) {
            let here = start..start + strip;
            for first in (0..inputs).step_by(together) {
                for plain in self.map.giants.iter().flat_map(|giant| &giant.plains) {
                    prefetch(plain.strip(place, start, strip));
                }
                let rooms = turned.chunks_exact_mut(2 * together * strip);
                let rows = products.chunks_exact(2 * inputs * run);
                for ((baby, row), rooms) in self.babies.iter().zip(rows).zip(rooms) {
                    // Both parts of each of these inputs, one by one.
                    let parts = row.chunks_exact(run).skip(2 * first);
                    for (part, room) in parts.zip(rooms.chunks_exact_mut(strip)) {
                        match baby {
                            Some((_, turn)) => turn.apply_strip(part, 0, start, room),
                            None => room.copy_from_slice(&part[here.clone()]),
                        }
                    }
                }
                for (giant, out) in out.chunks_exact_mut(inputs).enumerate() {
                    let diagonals = self.diagonals(giant, start, strip, block)?;
                    let giant = &self.map.giants[giant];
                    for (c, [b, a]) in out[first..first + together].iter_mut().enumerate() {
                        let out = [&mut b[here.clone()], &mut a[here.clone()]];
                        self.giant(giant, &diagonals, (turned, together, c), out);
                    }
                }
            }
        }
        Ok(())
    }

    /// Σ d ⊙ rotated input over the terms of one giant, for as many values as `out` has. Rotated inputs are taken from
    /// pair baby·inputs + c.
    fn giant(
        &self,
        giant: &EncodedGiant,
        diagonals: &[&[u64]],
        (turned, inputs, c): (&[u64], usize, usize),
        out: [&mut [u64]; 2],
    ) {
        let strip = out[0].len();
        let part = |index: usize| -> Vec<&[u64]> {
            let places = giant.babies.iter();
            let places = places.map(|&baby| 2 * (baby * inputs + c) + index);
            places.map(|place| &turned[place * strip..(place + 1) * strip]).collect()
        };
        let keys = [&part(0)[..], &part(1)[..]];
        match self.map.repeat {
            1 => self.pointwise().dot_pair(out, diagonals, keys),
            repeat => self.pointwise().dot_pair_repeated(out, diagonals, repeat.trailing_zeros(), keys),
        }
    }
}
