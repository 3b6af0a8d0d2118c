//! Hybrid key switching, word for word as `hushed_rlwe::hybrid`, whose module explains it.
//!
//! A key switch is twelve launches, however long the ciphertext: inverse transform, conversion of all digits, transform
//! of all digits, inner products, and the division by the special primes: the same again for both parts, then the end.
//! A conversion begins with a product per limb, which the inverse transform before it does.

mod convert;
mod key;

use std::ops::Range;
use std::sync::Arc;

use hushed_math::Eval;
use hushed_rlwe::hybrid::{Gadget, KeyUse};
use hushed_rlwe::{RlweError, RlweParams};

use crate::error::DeviceError;
use crate::machine::{Argument, Machine};
use crate::memory::Words;
use crate::poly::DevicePoly;
use crate::ring::{DeviceRing, Limb, memories};
use crate::text::{Kernel, MOST_DIGITS};
use convert::{Conversion, Conversions, at_most, inverse_of};
pub use key::DeviceKey;

/// Both parts of a ciphertext.
pub type Parts<M> = (DevicePoly<M, Eval>, DevicePoly<M, Eval>);

/// What inner products add, times P: to b, and to a.
type Added<'a, M> = [Option<&'a DevicePoly<M, Eval>>; 2];

/// The digits of one polynomial modulo all primes of the extended modulus, for any number of keys.
pub struct Digits<'a, M: Machine> {
    params: Arc<RlweParams>,
    gadget: Gadget,
    /// The polynomial, which its digits are modulo their own primes.
    own: &'a DevicePoly<M, Eval>,
    /// By digit, all primes; those of the digit itself are not written.
    words: Words<M>,
}

/// Both parts of a ciphertext modulo Q·P, whose phase is P times the message: b, then a.
pub struct Extended<M: Machine> {
    ring: Arc<DeviceRing<M>>,
    params: Arc<RlweParams>,
    limbs: usize,
    special: usize,
    words: Words<M>,
}

/// Decomposes `a`, a polynomial over a prefix of the ciphertext primes that is no longer than the gadget.
///
/// # Errors
/// [`DeviceError::Rlwe`] as on the processor; [`DeviceError::Mismatch`] if the ring is not that of `params`,
/// [`DeviceError::Shape`] for digits of too many primes; [`DeviceError::OutOfMemory`], [`DeviceError::Call`].
pub fn decompose<'a, M: Machine>(
    params: &Arc<RlweParams>,
    gadget: &Gadget,
    a: &'a DevicePoly<M, Eval>,
) -> Result<Digits<'a, M>, DeviceError> {
    let limbs = prefix(params, a)?;
    if limbs > gadget.limbs() {
        return Err(RlweError::LimbCount { given: limbs, available: gadget.limbs() }.into());
    }
    if gadget.is_raised() {
        return Err(RlweError::GadgetMismatch.into());
    }
    let (ring, n) = (a.ring(), params.n());
    let ids = params.extended_ids_with(limbs, gadget.special());
    let ranges: Vec<Range<usize>> = gadget.digits_for(limbs).collect();
    at_most("digits", ranges.len(), MOST_DIGITS)?;
    let mut conversions = Conversions::new();
    let mut factors = vec![1; limbs];
    for (digit, range) in ranges.iter().enumerate() {
        let from: Vec<usize> = range.clone().collect();
        let to = ids.iter().zip(digit * ids.len()..).filter(|(id, _)| !range.contains(id));
        let conversion = Conversion::new(params.basis(), &from, to.map(|(&id, place)| (id, place)))?;
        factors[range.clone()].copy_from_slice(conversion.inverses());
        conversions.add(range.start, &conversion);
    }
    let terms = ring.room(limbs * n)?;
    let words = ring.room(ranges.len() * ids.len() * n)?;
    ring.inverse(a.words(), &terms, &in_place(&ids[..limbs]), &factors)?;
    conversions.run(ring, &terms, &words)?;
    let foreign = ranges.iter().enumerate().flat_map(|(digit, range)| {
        let all = ids.iter().zip(digit * ids.len()..);
        all.filter(|(id, _)| !range.contains(id)).map(|(&id, place)| [id as u32, place as u32, place as u32])
    });
    ring.forward(&words, &words, &foreign.collect::<Vec<Limb>>())?;
    Ok(Digits { params: Arc::clone(params), gadget: gadget.clone(), own: a, words })
}

/// Σ_i d_i·(b_i, a_i) for the digits of one polynomial, over its primes and the gadget's special ones.
///
/// # Errors
/// [`DeviceError::Rlwe`] with [`RlweError::GadgetMismatch`] if the digits have another gadget,
/// [`RlweError::IncompatibleParameters`]; [`DeviceError::Mismatch`] for another ring; [`DeviceError::OutOfMemory`],
/// [`DeviceError::Call`].
pub fn inner_product<M: Machine>(digits: &Digits<'_, M>, key: &DeviceKey<M>) -> Result<Extended<M>, DeviceError> {
    products(digits, key, [None, None])
}

fn products<M: Machine>(
    digits: &Digits<'_, M>,
    key: &DeviceKey<M>,
    added: Added<'_, M>,
) -> Result<Extended<M>, DeviceError> {
    let Digits { params, gadget, own, words } = digits;
    let (ring, n) = (own.ring(), params.n());
    if gadget != key.gadget() {
        return Err(RlweError::GadgetMismatch.into());
    }
    if !Arc::ptr_eq(params, key.params()) {
        return Err(RlweError::IncompatibleParameters.into());
    }
    let (limbs, special) = (own.ids().len(), gadget.special());
    for added in added.into_iter().flatten() {
        same_ring(ring, added)?;
        if added.ids() != own.ids() {
            return Err(RlweError::Limbs { given: added.ids().to_vec(), expected: own.ids().to_vec() }.into());
        }
    }
    if !Arc::ptr_eq(ring, key.ring()) {
        return Err(DeviceError::Mismatch);
    }
    let ids = params.extended_ids_with(limbs, special);
    let ranges: Vec<Range<usize>> = gadget.digits_for(limbs).collect();
    let mut places = Vec::with_capacity(ids.len() * (2 + ranges.len()));
    for (limb, id) in ids.iter().enumerate() {
        let in_key = if limb < limbs { limb } else { gadget.limbs() + limb - limbs };
        places.extend([*id as u32, in_key as u32]);
        let digit = |(digit, range): (usize, &Range<usize>)| match range.contains(id) {
            true => 1 << 31 | limb as u32,
            false => (digit * ids.len() + limb) as u32,
        };
        places.extend(ranges.iter().enumerate().map(digit));
    }
    let places = ring.short(&places)?;
    let weights = (0..limbs).map(|id| (id as u32, params.p_modulo(special, id)));
    let factors = ring.factors(weights)?;
    let which = added.iter().zip([1, 2]).filter(|(added, _)| added.is_some()).map(|(_, bit)| bit).sum();
    let [b, a] = added.map(|added| added.unwrap_or(own).words());
    let sums = ring.room(2 * ids.len() * n)?;
    let numbers = [ranges.len(), gadget.limbs() + special, ids.len(), which, limbs];
    let memory = memories([&sums, words, own.words(), key.words(), b, a, &factors, ring.constants(), &places]);
    let arguments: Vec<_> = memory.into_iter().chain(numbers.map(|number| Argument::Number(number as u32))).collect();
    // SAFETY: places are those of `decompose` and of `DeviceKey`, whose shapes are the gadget's; what is added has the
    // first `limbs` limbs, and `sums` all limbs twice.
    unsafe { ring.launch(Kernel::DotPair, ids.len(), &arguments)? };
    Ok(Extended { ring: Arc::clone(ring), params: Arc::clone(params), limbs, special, words: sums })
}

impl<M: Machine> Extended<M> {
    /// Divides both parts by P with rounding, giving (b, a) modulo Q.
    ///
    /// # Errors
    /// [`DeviceError::Shape`] for too many special primes; [`DeviceError::OutOfMemory`], [`DeviceError::Call`].
    pub fn mod_down(&self) -> Result<Parts<M>, DeviceError> {
        self.divide(0, 1)
    }

    /// Divides both parts by P and by the last ciphertext prime, with rounding.
    ///
    /// # Errors
    /// As [`Extended::mod_down`]; [`DeviceError::Rlwe`] with [`RlweError::LimbCount`] if there is only one prime.
    pub fn mod_down_rescale(&self) -> Result<Parts<M>, DeviceError> {
        self.divide(1, 1)
    }

    /// Divides by P and by the last `rescaled` primes; X → X^`turn`.
    fn divide(&self, rescaled: usize, turn: usize) -> Result<Parts<M>, DeviceError> {
        if self.limbs <= rescaled {
            return Err(RlweError::LimbCount { given: self.limbs, available: self.params.q_len() }.into());
        }
        let ids = self.params.extended_ids_with(self.limbs, self.special);
        let out = divide(&self.ring, &self.words, 2, &ids, self.limbs - rescaled, turn)?;
        let mut out = out.into_iter();
        out.next().zip(out.next()).ok_or(DeviceError::Mismatch)
    }
}

/// ⌊x / product of the primes after the first `stay`⌉ for each of `parts` polynomials over the primes `ids`, one after
/// the other in `words`; then X → X^`turn`.
fn divide<M: Machine>(
    ring: &Arc<DeviceRing<M>>,
    words: &Words<M>,
    parts: usize,
    ids: &[usize],
    stay: usize,
    turn: usize,
) -> Result<Vec<DevicePoly<M, Eval>>, DeviceError> {
    let (basis, all) = (ring.basis(), ids.len());
    let (n, dropped) = (basis.n(), all - stay);
    let (kept, divisor) = ids.split_at(stay);
    let mut conversions = Conversions::new();
    let (mut inputs, mut factors): (Vec<Limb>, Vec<u64>) = (Vec::new(), Vec::new());
    for part in 0..parts {
        let to = kept.iter().zip(part * stay..).map(|(&id, place)| (id, place));
        let conversion = Conversion::new(basis, divisor, to)?;
        let places = divisor.iter().zip(part * all + stay..).zip(part * dropped..);
        inputs.extend(places.map(|((&id, from), to)| [id as u32, from as u32, to as u32]));
        factors.extend(conversion.inverses());
        conversions.add(part * dropped, &conversion);
    }
    let terms = ring.room(parts * dropped * n)?;
    ring.inverse(words, &terms, &inputs, &factors)?;
    let lifted = ring.room(parts * stay * n)?;
    conversions.run(ring, &terms, &lifted)?;
    let limbs: Vec<usize> = kept.iter().copied().cycle().take(parts * stay).collect();
    ring.forward(&lifted, &lifted, &in_place(&limbs))?;
    let inverses: Vec<(u32, u64)> = kept.iter().map(|&id| (id as u32, inverse_of(basis, divisor, id))).collect();
    let factors = ring.factors(inverses.into_iter())?;
    (0..parts)
        .map(|part| {
            let out = DevicePoly::scratch(ring, kept)?;
            let places = kept.iter().enumerate();
            let places = places.flat_map(|(limb, &id)| [id, part * all + limb, part * stay + limb, limb]);
            let places = ring.short(&places.map(|place| place as u32).collect::<Vec<_>>())?;
            let memory = memories([out.words(), words, &lifted, &factors, ring.constants(), &places]);
            let turn = Argument::Number((turn % (2 * n)) as u32);
            let arguments: Vec<_> = memory.into_iter().chain([turn]).collect();
            // SAFETY: `words` has `all` limbs a part, `lifted` and the result `stay`; the permutation stays within a
            // limb.
            unsafe { ring.launch(Kernel::Finish, stay, &arguments)? };
            Ok(out)
        })
        .collect()
}

/// Switches `a`, a component under the key's source, to its target. Returns what to add to b, and the new a.
///
/// # Errors
/// As [`decompose`] and [`inner_product`].
pub fn switch<M: Machine>(a: &DevicePoly<M, Eval>, key: &DeviceKey<M>) -> Result<Parts<M>, DeviceError> {
    one(a, [None, None], 0, key, 1)
}

/// (b, a) plus the switched `c`, a component under the key's source: relinearisation.
///
/// # Errors
/// As [`switch`].
pub fn switch_add<M: Machine>(
    [b, a]: [&DevicePoly<M, Eval>; 2],
    c: &DevicePoly<M, Eval>,
    key: &DeviceKey<M>,
) -> Result<Parts<M>, DeviceError> {
    one(c, [Some(b), Some(a)], 0, key, 1)
}

/// As [`switch_add`], divided by the last prime with rounding; a single division does both.
///
/// # Errors
/// As [`switch`]; [`DeviceError::Rlwe`] with [`RlweError::LimbCount`] if there is only one prime.
pub fn switch_add_rescale<M: Machine>(
    [b, a]: [&DevicePoly<M, Eval>; 2],
    c: &DevicePoly<M, Eval>,
    key: &DeviceKey<M>,
) -> Result<Parts<M>, DeviceError> {
    one(c, [Some(b), Some(a)], 1, key, 1)
}

/// The ciphertext of m(X^g) from the ciphertext (b, a) of m, with the Galois key of g.
///
/// # Errors
/// [`DeviceError::Rlwe`] with [`RlweError::GadgetMismatch`] if the key is not a Galois key; otherwise as [`switch`].
pub fn automorphism<M: Machine>(
    [b, a]: [&DevicePoly<M, Eval>; 2],
    key: &DeviceKey<M>,
) -> Result<Parts<M>, DeviceError> {
    one(a, [Some(b), None], 0, key, element(key)?)
}

/// [`automorphism`] with each of several keys that share one gadget; the digits are made once (hoisting).
///
/// # Errors
/// As [`automorphism`].
pub fn automorphisms<M: Machine>(
    [b, a]: [&DevicePoly<M, Eval>; 2],
    keys: &[&DeviceKey<M>],
) -> Result<Vec<Parts<M>>, DeviceError> {
    let Some(first) = keys.first() else {
        return Ok(Vec::new());
    };
    let digits = decompose(first.params(), first.gadget(), a)?;
    keys.iter().map(|key| products(&digits, key, [Some(b), None])?.divide(0, element(key)?)).collect()
}

fn one<M: Machine>(
    switched: &DevicePoly<M, Eval>,
    added: Added<'_, M>,
    rescaled: usize,
    key: &DeviceKey<M>,
    turn: usize,
) -> Result<Parts<M>, DeviceError> {
    let digits = decompose(key.params(), key.gadget(), switched)?;
    products(&digits, key, added)?.divide(rescaled, turn)
}

impl<M: Machine> DevicePoly<M, Eval> {
    /// round(a / p) for the last modulus p, under the others; as [`hushed_math::RnsPoly::divide_by_last_and_round`].
    ///
    /// # Errors
    /// [`DeviceError::Mismatch`] if there is only one modulus; [`DeviceError::OutOfMemory`], [`DeviceError::Call`].
    pub fn divide_by_last_and_round(&self) -> Result<Self, DeviceError> {
        let stay = self.ids().len() - 1;
        if stay == 0 {
            return Err(DeviceError::Mismatch);
        }
        let out = divide(self.ring(), self.words(), 1, self.ids(), stay, 1)?;
        out.into_iter().next().ok_or(DeviceError::Mismatch)
    }
}

/// The element of a Galois key.
fn element<M: Machine>(key: &DeviceKey<M>) -> Result<usize, DeviceError> {
    match key.key_use() {
        KeyUse::Galois(g) => Ok(g),
        _ => Err(RlweError::GadgetMismatch.into()),
    }
}

/// The number of ciphertext primes of a polynomial, which are a prefix of those of `params`.
fn prefix<M: Machine>(params: &RlweParams, poly: &DevicePoly<M, Eval>) -> Result<usize, DeviceError> {
    if !Arc::ptr_eq(params.basis(), poly.ring().basis()) {
        return Err(RlweError::IncompatibleParameters.into());
    }
    let limbs = poly.ids().len();
    let expected = params.ciphertext_ids(limbs.min(params.q_len()));
    if poly.ids() != expected {
        return Err(RlweError::Limbs { given: poly.ids().to_vec(), expected }.into());
    }
    Ok(limbs)
}

fn same_ring<M: Machine>(ring: &Arc<DeviceRing<M>>, poly: &DevicePoly<M, Eval>) -> Result<(), DeviceError> {
    if Arc::ptr_eq(ring, poly.ring()) { Ok(()) } else { Err(DeviceError::Mismatch) }
}

/// Limbs of these primes, one after the other, each in its own place.
fn in_place(ids: &[usize]) -> Vec<Limb> {
    ids.iter().zip(0..).map(|(&id, place)| [id as u32, place, place]).collect()
}
