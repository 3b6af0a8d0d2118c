//! One switching key: the masked halves of its digits, and the seed of the uniform ones.

use std::ops::Range;
use std::sync::Arc;

use hushed_math::cache::prefetch;
use hushed_math::rng::{PublicSeed, PublicStream, SecretRng};
use hushed_math::{Eval, RnsPoly, Room, SecretPoly, sample};
use rayon::prelude::*;

use super::decompose::Decomposed;
use super::gadget::Gadget;
use super::plan::{KeySpec, KeyUse};
use crate::error::RlweError;
use crate::params::RlweParams;

/// Words of a limb that are multiplied at a time: the uniform words of four digits stay in the first-level cache until
/// they are used.
const STRIP: usize = 1 << 10;

/// A key from one secret to another; see [`super`] for its digits.
pub struct SwitchKey {
    pub(crate) params: Arc<RlweParams>,
    pub(super) key: KeyUse,
    pub(super) gadget: Gadget,
    pub(super) seed: PublicSeed,
    /// Digit by digit, over the primes of the gadget, then its special ones; of a part those of the whole key.
    pub(super) b: Arc<Vec<RnsPoly<Eval>>>,
    /// Of a key without some primes, where it lies in the whole one.
    part: Option<Part>,
}

/// Where the digits and primes of a part lie in the whole key.
struct Part {
    /// Of each digit its number.
    digits: Vec<usize>,
    /// Of each prime of the basis its number in that of the whole key, and the limb.
    places: Arc<[(usize, usize)]>,
}

impl SwitchKey {
    /// The key of `spec` from the secret `from` to the secret `to`, both over all primes of `params`. Both must be kept
    /// secret and erased by the caller.
    pub(super) fn generate(
        params: &Arc<RlweParams>,
        key: KeyUse,
        gadget: Gadget,
        [from, to]: [&RnsPoly<Eval>; 2],
        rng: &mut SecretRng,
    ) -> Self {
        let seed = rng.public_seed();
        let basis = params.basis();
        let ids = params.extended_ids_with(gadget.limbs(), gadget.special());
        let digit = |(digit, range): (usize, &Range<usize>)| {
            // One error a digit, drawn here, so that the key does not depend on threads.
            let error = sample::centred_binomial(rng, params.n());
            let mut b = RnsPoly::scratch(basis, &ids);
            let limbs: Vec<_> = b.limbs_mut().collect();
            limbs.into_par_iter().for_each(|(id, b)| {
                let plan = basis.plan(id);
                plan.pointwise().reduce_signed(b, &error);
                plan.forward(b);
                if range.contains(&id) {
                    let p = params.literal().p.iter().take(gadget.special());
                    let q = plan.modulus();
                    let weight = p.fold(1, |product, &p| q.mul(product, q.reduce(p)));
                    let mut source = SecretPoly::new(from.keep_limbs(&[id]));
                    let limb = source.expose_mut().limb_mut(0);
                    plan.pointwise().mul_scalar_assign(limb, weight);
                    plan.pointwise().add_assign(b, limb);
                }
                // −a·s + …: negate twice around the fused step.
                plan.pointwise().neg_assign(b);
                let mut stream = uniform(&seed, digit, id);
                let mut a = vec![0; STRIP.min(b.len())];
                for (b, s) in b.chunks_mut(a.len()).zip(to.limb(id).chunks(a.len())) {
                    stream.uniform_mod(plan.modulus(), &mut a);
                    plan.pointwise().mul_add_assign(b, &a, s);
                }
                plan.pointwise().neg_assign(b);
            });
            b
        };
        let b = gadget.digits().iter().enumerate().map(digit).collect();
        Self {
            params: params.clone(),
            key,
            gadget,
            seed,
            b: Arc::new(b),
            part: None,
        }
    }

    /// A key read from bytes: its masked halves over the primes of the gadget.
    pub(super) fn from_parts(
        params: &Arc<RlweParams>,
        key: KeyUse,
        gadget: Gadget,
        seed: PublicSeed,
        b: Vec<RnsPoly<Eval>>,
    ) -> Self {
        Self {
            params: params.clone(),
            key,
            gadget,
            seed,
            b: Arc::new(b),
            part: None,
        }
    }

    /// The key without the primes of `gap`, under the parameters without them; its words are shared.
    ///
    /// # Errors
    /// [`RlweError::PartsOfKeys`] for a part.
    pub(super) fn without(
        &self,
        params: &Arc<RlweParams>,
        gap: &Range<usize>,
    ) -> Result<Self, RlweError> {
        if self.part.is_some() {
            return Err(RlweError::PartsOfKeys);
        }
        let (gadget, digits) = self.gadget.without(gap);
        let kept = self.params.ids_without(gap);
        Ok(Self {
            params: params.clone(),
            key: self.key,
            gadget,
            seed: self.seed,
            b: Arc::clone(&self.b),
            part: Some(Part {
                digits,
                places: kept.iter().map(|&id| (id, self.place(id))).collect(),
            }),
        })
    }

    /// Whether it is a part of another key.
    pub(super) fn is_part(&self) -> bool {
        self.part.is_some()
    }

    /// The parameters of this key.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    /// What the key is for.
    pub fn key_use(&self) -> KeyUse {
        self.key
    }

    /// The shape of the key.
    pub fn gadget(&self) -> &Gadget {
        &self.gadget
    }

    /// Its descriptor.
    pub fn spec(&self) -> KeySpec {
        KeySpec {
            key: self.key,
            limbs: self.gadget.limbs(),
            special: self.gadget.special(),
        }
    }

    /// Bytes in memory; a part has none of its own.
    pub fn memory_bytes(&self) -> usize {
        if self.is_part() {
            return 0;
        }
        let polys = self.b.iter();
        polys.map(|poly| 8 * poly.ids().len() * poly.n()).sum()
    }

    /// Of a digit the primes under which its masked half lies, and the first limb of the uniform one.
    pub(crate) fn published_part(&self, digit: usize) -> (Vec<usize>, Vec<u64>) {
        let ids = match (&self.part, self.b.get(digit)) {
            (None, Some(b)) => b.ids().to_vec(),
            // The masked halves of a part are those of the whole key.
            _ => self
                .params
                .extended_ids_with(self.gadget.limbs(), self.gadget.special()),
        };
        let mut limb = vec![0; self.params.n()];
        if let Some(&id) = ids.first() {
            let mut stream = self.stream(digit, id);
            stream.uniform_mod(self.params.basis().modulus(id), &mut limb);
        }
        (ids, limb)
    }

    /// For limb `j` of the digits of several polynomials: both inner products with the key, written to `sums`.
    ///
    /// The limb goes strip by strip: the uniform words of a strip are expanded once and used for every polynomial while
    /// they are in the cache.
    ///
    /// # Panics
    /// If the digits are of another gadget or length, or `sums` has fewer pairs of limbs than there are polynomials.
    pub fn multiply_limb(&self, many: &[&Decomposed], j: usize, sums: &mut [[&mut [u64]; 2]]) {
        let Some(first) = many.first() else { return };
        let ids = first.digits.first().map_or(&[][..], |digit| digit.ids());
        let id = ids[j];
        let many: Vec<Vec<&[u64]>> = many
            .iter()
            .map(|digits| digits.digits.iter().map(|digit| digit.limb(j)).collect())
            .collect();
        self.multiply(id, &many, sums);
    }

    /// Both inner products of the key with digits under prime `id`: `many[m][i]` is digit i of polynomial m, `sums[m]`
    /// where its products go.
    pub(super) fn multiply(&self, id: usize, many: &[Vec<&[u64]>], sums: &mut [[&mut [u64]; 2]]) {
        let plan = self.params.basis().plan(id);
        let count = many.first().map_or(0, Vec::len);
        let strip = STRIP.min(self.params.n());
        let streams = (0..count).map(|digit| self.stream(digit, id));
        let mut streams: Vec<PublicStream> = streams.collect();
        let mut room = Room::new();
        let expanded = room.words(count * strip);
        let (mut key_b, mut words) = (Vec::with_capacity(count), Vec::with_capacity(count));
        for start in (0..self.params.n()).step_by(strip) {
            let range = start..start + strip;
            key_b.clear();
            key_b.extend((0..count).map(|digit| &self.limb(digit, id)[range.clone()]));
            // This half comes from memory while the other is expanded.
            key_b.iter().for_each(|words| prefetch(words));
            for (stream, words) in streams.iter_mut().zip(expanded.chunks_mut(strip)) {
                stream.uniform_mod(plan.modulus(), words);
            }
            let key_a: Vec<&[u64]> = expanded.chunks(strip).collect();
            for (digits, [b, a]) in many.iter().zip(&mut *sums) {
                words.clear();
                words.extend(digits.iter().map(|digit| &digit[range.clone()]));
                let out = [&mut b[range.clone()], &mut a[range.clone()]];
                plan.pointwise().dot_pair(out, &words, [&key_b, &key_a]);
            }
        }
    }

    /// Both halves of the first `count` digits of the key under prime `id`, strip by strip from the first value on: for
    /// a pass that uses several keys on one strip of digits while that is in the cache.
    pub fn strips(&self, id: usize, count: usize) -> KeyStrips<'_> {
        let count = count.min(self.gadget.digits().len());
        let streams = (0..count).map(|digit| self.stream(digit, id));
        KeyStrips {
            key: self,
            id,
            count,
            start: 0,
            streams: streams.collect(),
        }
    }

    /// Limb `id` of a digit of the masked half.
    fn limb(&self, digit: usize, id: usize) -> &[u64] {
        let digit = self.part.as_ref().map_or(digit, |part| part.digits[digit]);
        self.b[digit].limb(self.place(id))
    }

    /// The uniform words of a digit under prime `id`.
    fn stream(&self, digit: usize, id: usize) -> PublicStream {
        match &self.part {
            None => uniform(&self.seed, digit, id),
            Some(part) => uniform(&self.seed, part.digits[digit], part.places[id].0),
        }
    }

    /// Where the key has its limb of a prime.
    fn place(&self, id: usize) -> usize {
        if let Some(part) = &self.part {
            return part.places[id].1;
        }
        let q_len = self.params.q_len();
        if id < q_len {
            id
        } else {
            self.gadget.limbs() + id - q_len
        }
    }
}

/// A key under one prime, strip by strip; made by [`SwitchKey::strips`].
pub struct KeyStrips<'k> {
    key: &'k SwitchKey,
    id: usize,
    count: usize,
    start: usize,
    streams: Vec<PublicStream>,
}

impl<'k> KeyStrips<'k> {
    /// The masked and the uniform halves of the next `length` values: of each digit a slice. The uniform ones are
    /// expanded into `rooms`.
    ///
    /// # Panics
    /// If there are not as many values left.
    pub fn next_strip<'r>(&mut self, length: usize, rooms: &'r mut Vec<Room>) -> [Vec<&'r [u64]>; 2]
    where
        'k: 'r,
    {
        let (key, id) = (self.key, self.id);
        let range = self.start..self.start + length;
        self.start += length;
        let limbs = (0..self.count).map(|digit| key.limb(digit, id));
        let b: Vec<&[u64]> = limbs.map(|limb| &limb[range.clone()]).collect();
        let modulus = key.params.basis().modulus(id);
        // A buffer each: those of whole limbs are what polynomials have.
        rooms.resize_with(rooms.len().max(self.count), Room::new);
        let mut a: Vec<&[u64]> = Vec::with_capacity(self.count);
        for ((stream, room), b) in self.streams.iter_mut().zip(rooms).zip(&b) {
            // The masked half comes from memory while the uniform one is computed.
            prefetch(b);
            let words = room.words(length);
            stream.uniform_mod(modulus, words);
            a.push(words);
        }
        [b, a]
    }
}

/// The uniform words of one digit under one prime: a stream of its own, so that limbs can be expanded apart.
fn uniform(seed: &PublicSeed, digit: usize, id: usize) -> PublicStream {
    // Digits and primes are fewer than 2^8 (`MAX_PRIMES`); 4: see `StreamDomain`.
    PublicStream::new(seed, 4 << 56 | (digit as u64) << 8 | id as u64)
}
