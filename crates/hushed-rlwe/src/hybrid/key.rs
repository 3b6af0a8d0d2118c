//! A switching key: the masked halves of its digits, and the seed of the uniform halves.

use std::ops::Range;
use std::sync::Arc;

use hushed_math::cache::prefetch;
use hushed_math::rng::{PublicSeed, PublicStream, SecretRng};
use hushed_math::{Eval, RnsPoly, Room, SecretPoly, sample};
use rayon::prelude::*;

use super::decompose::Decomposed;
use super::gadget::Gadget;
use super::key_use::KeyUse;
use super::specs::KeySpec;
use crate::error::RlweError;
use crate::params::RlweParams;

/// Words of a limb that are multiplied at a time: the uniform words of four digits stay in the L1 cache until they are
/// used.
const STRIP: usize = 1 << 10;

/// A key from one secret to another; see [`super`] for its digits.
pub struct SwitchKey {
    pub(crate) params: Arc<RlweParams>,
    pub(super) key: KeyUse,
    pub(super) gadget: Gadget,
    pub(super) seed: PublicSeed,
    /// Digit by digit, over the gadget's primes, then its special ones; in a part, those of the whole key.
    pub(super) b: Arc<Vec<RnsPoly<Eval>>>,
    /// For a key without some primes, its position in the whole key.
    part: Option<Part>,
}

/// The position of a part's digits and primes in the whole key.
struct Part {
    /// The original number of each digit.
    digits: Vec<usize>,
    /// For each prime of the basis, its number in the whole key's basis, and the limb.
    places: Arc<[(usize, usize)]>,
}

impl SwitchKey {
    /// Generates the key from the secret `from` to the secret `to`, both over all primes of `params`. The caller must
    /// keep both secret and erase them.
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
            // One error per digit, drawn here, so that the key does not depend on threading.
            let error = sample::centred_binomial(rng, params.n());
            let mut b = RnsPoly::scratch(basis, &ids);
            let limbs: Vec<_> = b.limbs_mut().collect();
            limbs.into_par_iter().for_each(|(id, b)| {
                let ntt = basis.ntt(id);
                ntt.pointwise().reduce_signed(b, &error);
                ntt.forward(b);
                if range.contains(&id) {
                    let weight = params.p_modulo(gadget.special(), id);
                    let mut source = SecretPoly::new(from.keep_limbs(&[id]));
                    let limb = source.expose_mut().limb_mut(0);
                    ntt.pointwise().mul_scalar_assign(limb, weight);
                    ntt.pointwise().add_assign(b, limb);
                }
                // −a·s + …: negates before and after the fused step.
                ntt.pointwise().neg_assign(b);
                let mut stream = uniform(&seed, digit, id);
                let mut a = vec![0; STRIP.min(b.len())];
                for (b, s) in b.chunks_mut(a.len()).zip(to.limb(id).chunks(a.len())) {
                    stream.uniform_mod(ntt.modulus(), &mut a);
                    ntt.pointwise().mul_add_assign(b, &a, s);
                }
                ntt.pointwise().neg_assign(b);
            });
            b
        };
        let b = gadget.digits().iter().enumerate().map(digit).collect();
        Self { params: params.clone(), key, gadget, seed, b: Arc::new(b), part: None }
    }

    /// A key read from bytes, given its masked halves over the gadget's primes.
    pub(super) fn from_parts(
        params: &Arc<RlweParams>,
        key: KeyUse,
        gadget: Gadget,
        seed: PublicSeed,
        b: Vec<RnsPoly<Eval>>,
    ) -> Self {
        Self { params: params.clone(), key, gadget, seed, b: Arc::new(b), part: None }
    }

    /// The key without the primes of `gap`, for the parameters without them; it shares the words.
    ///
    /// # Errors
    /// [`RlweError::PartsOfKeys`] if this is already a part.
    pub(super) fn without(&self, params: &Arc<RlweParams>, gap: &Range<usize>) -> Result<Self, RlweError> {
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
            part: Some(Part { digits, places: kept.iter().map(|&id| (id, self.place(id))).collect() }),
        })
    }

    /// Whether this is a part of another key.
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

    /// The key's descriptor.
    pub fn spec(&self) -> KeySpec {
        KeySpec { key: self.key, limbs: self.gadget.limbs(), special: self.gadget.special() }
    }

    /// Bytes in memory; a part has none of its own.
    pub fn memory_bytes(&self) -> usize {
        if self.is_part() {
            return 0;
        }
        let polys = self.b.iter();
        polys.map(|poly| 8 * poly.ids().len() * poly.n()).sum()
    }

    /// The primes of a digit's masked half, and the first limb of its uniform half.
    pub(crate) fn published_part(&self, digit: usize) -> (Vec<usize>, Vec<u64>) {
        let ids = match (&self.part, self.b.get(digit)) {
            (None, Some(b)) => b.ids().to_vec(),
            // The masked halves of a part are those of the whole key.
            _ => self.params.extended_ids_with(self.gadget.limbs(), self.gadget.special()),
        };
        let mut limb = vec![0; self.params.n()];
        if let Some(&id) = ids.first() {
            let mut stream = self.stream(digit, id);
            stream.uniform_mod(self.params.basis().modulus(id), &mut limb);
        }
        (ids, limb)
    }

    /// Writes both inner products of the key with limb `j` of several polynomials' digits to `sums`.
    ///
    /// It works in strips: the uniform words of a strip are expanded once and used for every polynomial while in the
    /// cache.
    ///
    /// # Panics
    /// If the digits have another gadget or length, or `sums` has fewer pairs of limbs than there are polynomials.
    pub fn multiply_limb(&self, many: &[&Decomposed], j: usize, sums: &mut [[&mut [u64]; 2]]) {
        let Some(first) = many.first() else { return };
        let ids = first.digits.first().map_or(&[][..], |digit| digit.ids());
        let id = ids[j];
        let many: Vec<Vec<&[u64]>> =
            many.iter().map(|digits| digits.digits.iter().map(|digit| digit.limb(j)).collect()).collect();
        self.multiply(id, &many, [None, None], sums);
    }

    /// Both inner products of the key with digits modulo prime `id`: `many[m][i]` is digit i of polynomial m, and its
    /// products go to `sums[m]`. To each of the two, a multiple of `added` is added, while it is in the cache.
    pub(super) fn multiply(
        &self,
        id: usize,
        many: &[Vec<&[u64]>],
        added: [Option<(u64, &[u64])>; 2],
        sums: &mut [[&mut [u64]; 2]],
    ) {
        let ntt = self.params.basis().ntt(id);
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
            // This half is loaded from memory while the other is expanded.
            key_b.iter().for_each(|words| prefetch(words));
            for (stream, words) in streams.iter_mut().zip(expanded.chunks_mut(strip)) {
                stream.uniform_mod(ntt.modulus(), words);
            }
            let key_a: Vec<&[u64]> = expanded.chunks(strip).collect();
            for (digits, [b, a]) in many.iter().zip(&mut *sums) {
                words.clear();
                words.extend(digits.iter().map(|digit| &digit[range.clone()]));
                let [b, a] = [&mut b[range.clone()], &mut a[range.clone()]];
                ntt.pointwise().dot_pair([&mut *b, &mut *a], &words, [&key_b, &key_a]);
                for (sum, added) in [b, a].into_iter().zip(added) {
                    if let Some((weight, limb)) = added {
                        let limb = &limb[range.clone()];
                        ntt.pointwise().mul_scalar_add_assign(sum, limb, weight);
                    }
                }
            }
        }
    }

    /// Both halves of the key's first `count` digits modulo prime `id`, strip by strip from the first value: for a pass
    /// that uses several keys on one strip of digits while it is in the cache.
    pub fn strips(&self, id: usize, count: usize) -> KeyStrips<'_> {
        let count = count.min(self.gadget.digits().len());
        let streams = (0..count).map(|digit| self.stream(digit, id));
        KeyStrips { key: self, id, count, start: 0, streams: streams.collect() }
    }

    /// Limb `id` of a digit's masked half.
    fn limb(&self, digit: usize, id: usize) -> &[u64] {
        let digit = self.part.as_ref().map_or(digit, |part| part.digits[digit]);
        self.b[digit].limb(self.place(id))
    }

    /// The uniform words of a digit modulo prime `id`.
    fn stream(&self, digit: usize, id: usize) -> PublicStream {
        match &self.part {
            None => uniform(&self.seed, digit, id),
            Some(part) => uniform(&self.seed, part.digits[digit], part.places[id].0),
        }
    }

    /// The position of a prime's limb in the key.
    fn place(&self, id: usize) -> usize {
        if let Some(part) = &self.part {
            return part.places[id].1;
        }
        let q_len = self.params.q_len();
        if id < q_len { id } else { self.gadget.limbs() + id - q_len }
    }
}

/// A key modulo one prime, strip by strip; made by [`SwitchKey::strips`].
pub struct KeyStrips<'k> {
    key: &'k SwitchKey,
    id: usize,
    count: usize,
    start: usize,
    streams: Vec<PublicStream>,
}

impl<'k> KeyStrips<'k> {
    /// The masked and uniform halves of the next `length` values: one slice per digit. The uniform ones are expanded
    /// into `rooms`.
    ///
    /// # Panics
    /// If fewer values are left.
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
        // One buffer each; buffers of whole limbs are used by polynomials.
        rooms.resize_with(rooms.len().max(self.count), Room::new);
        let mut a: Vec<&[u64]> = Vec::with_capacity(self.count);
        for ((stream, room), b) in self.streams.iter_mut().zip(rooms).zip(&b) {
            // The masked half is loaded from memory while the uniform one is computed.
            prefetch(b);
            let words = room.words(length);
            stream.uniform_mod(modulus, words);
            a.push(words);
        }
        [b, a]
    }
}

/// The uniform words of one digit modulo one prime: a separate stream, so that limbs can be expanded separately.
fn uniform(seed: &PublicSeed, digit: usize, id: usize) -> PublicStream {
    // There are fewer than 2^8 digits and primes (`MAX_PRIMES`). For the 4 see `StreamDomain`.
    PublicStream::new(seed, 4 << 56 | (digit as u64) << 8 | id as u64)
}
