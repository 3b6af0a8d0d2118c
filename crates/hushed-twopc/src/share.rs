//! Additive shares modulo 2^ℓ and XOR shares of bits, with the operations that need no message.
//!
//! A value x of Z_{2^ℓ} is held as x = x_client + x_server mod 2^ℓ, a bit as b = b_client ⊕ b_server. Words are always
//! reduced: the bits above ℓ of a word, and the bits above `len` of the last word of a [`BitShare`], are zero. By
//! convention **the client adds public constants**: both parties call the same function with their own [`Party`], and
//! the server's call changes nothing.
//!
//! A share is a secret: it has no `Debug`, and is wiped when dropped. All operations here run in time independent of
//! the values. They panic on shapes or rings that do not match: that is a bug in the calling code, never the effect of
//! a peer's bytes, which reach a share only after their length is checked.

use hushed_math::bits::Mask;
use hushed_net::Party;

/// The ring of integers modulo 2^bits, 1 ≤ bits ≤ 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ring {
    bits: u32,
}

impl Ring {
    /// Integers modulo 2^64, the main ring.
    pub const Z64: Ring = Ring { bits: 64 };

    /// The ring modulo 2^bits.
    ///
    /// # Panics
    /// If `bits` is not in 1..=64.
    pub const fn new(bits: u32) -> Ring {
        assert!(bits >= 1 && bits <= 64, "a ring has 1 to 64 bits");
        Ring { bits }
    }

    /// ℓ, the number of bits.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// 2^ℓ − 1.
    pub const fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// `x` mod 2^ℓ.
    pub const fn reduce(self, x: u64) -> u64 {
        x & self.mask()
    }

    /// A signed integer as an element: `x` mod 2^ℓ.
    pub const fn encode(self, x: i64) -> u64 {
        self.reduce(x as u64)
    }

    /// The representative of `x` in −2^(ℓ−1) .. 2^(ℓ−1).
    pub const fn decode(self, x: u64) -> i64 {
        let up = 64 - self.bits;
        ((x << up) as i64) >> up
    }

    /// The most significant bit of the element `x`, as 0 or 1.
    pub const fn top_bit(self, x: u64) -> u64 {
        (x >> (self.bits - 1)) & 1
    }
}

/// One party's additive share of a vector over a [`Ring`].
#[derive(Clone)]
pub struct Share {
    ring: Ring,
    words: Vec<u64>,
}

impl Share {
    /// A share with the given words, which are reduced.
    pub fn new(ring: Ring, mut words: Vec<u64>) -> Share {
        if ring.bits < 64 {
            let mask = ring.mask();
            words.iter_mut().for_each(|w| *w &= mask);
        }
        Share { ring, words }
    }

    /// `n` zeros: a party's share of values that the other party knows.
    pub fn zero(ring: Ring, n: usize) -> Share {
        Share { ring, words: vec![0; n] }
    }

    /// The client's part of a vector of public values; the server's is zero.
    pub fn public(party: Party, ring: Ring, values: &[i64]) -> Share {
        Share::zero(ring, values.len()).add_public_each(party, values)
    }

    /// The ring.
    pub fn ring(&self) -> Ring {
        self.ring
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// This party's words, reduced.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// This party's words, moved out. The caller keeps them secret.
    pub fn into_words(mut self) -> Vec<u64> {
        std::mem::take(&mut self.words)
    }

    /// x + y.
    pub fn add(&self, y: &Share) -> Share {
        self.zip(y, u64::wrapping_add)
    }

    /// x − y.
    pub fn sub(&self, y: &Share) -> Share {
        self.zip(y, u64::wrapping_sub)
    }

    /// x += y.
    pub fn add_assign(&mut self, y: &Share) {
        self.zip_assign(y, u64::wrapping_add);
    }

    /// x −= y.
    pub fn sub_assign(&mut self, y: &Share) {
        self.zip_assign(y, u64::wrapping_sub);
    }

    /// −x.
    pub fn neg(&self) -> Share {
        self.map(u64::wrapping_neg)
    }

    /// x + c for one public constant; the client adds.
    pub fn add_public(&self, party: Party, c: i64) -> Share {
        let c = match party {
            Party::Client => c as u64,
            Party::Server => 0,
        };
        self.map(|w| w.wrapping_add(c))
    }

    /// x_i + c_i for public constants; the client adds.
    pub fn add_public_each(&self, party: Party, c: &[i64]) -> Share {
        assert_eq!(self.len(), c.len(), "one constant an element");
        match party {
            Party::Client => {
                let words = self.words.iter().zip(c);
                let words = words.map(|(w, &c)| w.wrapping_add(c as u64)).collect();
                Share::new(self.ring, words)
            }
            Party::Server => self.clone(),
        }
    }

    /// c·x for one public constant; both parties multiply.
    pub fn mul_public(&self, c: i64) -> Share {
        self.map(|w| w.wrapping_mul(c as u64))
    }

    /// 2^k·x, for k < 64.
    pub fn shift_left(&self, k: u32) -> Share {
        self.map(|w| w << k)
    }

    /// x mod 2^to, which is local because 2^to divides the ring's modulus.
    ///
    /// # Panics
    /// If `to` is larger than the share's ring; [`crate::gadget::truncate`] extends.
    pub fn reduce_to(&self, to: Ring) -> Share {
        assert!(to.bits <= self.ring.bits, "reduce_to goes down only");
        Share::new(to, self.words.clone())
    }

    /// The elements at the given positions, in that order.
    pub fn gather(&self, places: &[usize]) -> Share {
        Share { ring: self.ring, words: places.iter().map(|&i| self.words[i]).collect() }
    }

    /// Elements `range` of the vector.
    pub fn slice(&self, range: std::ops::Range<usize>) -> Share {
        Share { ring: self.ring, words: self.words[range].to_vec() }
    }

    /// The vectors concatenated. All are over `ring`.
    pub fn concat(ring: Ring, parts: &[&Share]) -> Share {
        let mut words = Vec::with_capacity(parts.iter().map(|p| p.len()).sum());
        for part in parts {
            assert_eq!(part.ring, ring, "one ring");
            words.extend_from_slice(&part.words);
        }
        Share { ring, words }
    }

    /// Row sums of a rows × cols matrix stored row by row: `rows` elements.
    pub fn sum_rows(&self, rows: usize, cols: usize) -> Share {
        assert_eq!(self.len(), rows * cols, "rows × cols elements");
        let sum = |r: usize| {
            let row = &self.words[r * cols..(r + 1) * cols];
            row.iter().fold(0u64, |s, &w| s.wrapping_add(w))
        };
        Share::new(self.ring, (0..rows).map(sum).collect())
    }

    /// Each element repeated `times` times in a row: rows → rows × times.
    pub fn repeat_each(&self, times: usize) -> Share {
        let mut words = Vec::with_capacity(self.len() * times);
        for &w in &self.words {
            words.extend(std::iter::repeat_n(w, times));
        }
        Share { ring: self.ring, words }
    }

    fn map(&self, f: impl Fn(u64) -> u64) -> Share {
        Share::new(self.ring, self.words.iter().map(|&w| f(w)).collect())
    }

    fn zip(&self, y: &Share, f: impl Fn(u64, u64) -> u64) -> Share {
        let mut out = self.clone();
        out.zip_assign(y, f);
        out
    }

    fn zip_assign(&mut self, y: &Share, f: impl Fn(u64, u64) -> u64) {
        assert_eq!(self.ring, y.ring, "one ring");
        assert_eq!(self.len(), y.len(), "one length");
        let mask = self.ring.mask();
        for (a, &b) in self.words.iter_mut().zip(&y.words) {
            *a = f(*a, b) & mask;
        }
    }
}

/// One party's XOR share of a vector of bits: bit i is bit i mod 64 of word ⌊i/64⌋.
#[derive(Clone)]
pub struct BitShare {
    words: Vec<u64>,
    len: usize,
}

impl BitShare {
    /// A share of `len` bits from packed words; bits above `len` are cleared.
    pub fn new(mut words: Vec<u64>, len: usize) -> BitShare {
        assert_eq!(words.len(), len.div_ceil(64), "64 bits a word");
        clear_tail(&mut words, len);
        BitShare { words, len }
    }

    /// `len` zero bits.
    pub fn zero(len: usize) -> BitShare {
        BitShare { words: vec![0; len.div_ceil(64)], len }
    }

    /// The least significant bit of each value.
    pub fn from_low_bits(values: impl ExactSizeIterator<Item = u64>) -> BitShare {
        let len = values.len();
        let mut words = vec![0u64; len.div_ceil(64)];
        for (i, v) in values.enumerate() {
            words[i / 64] |= (v & 1) << (i % 64);
        }
        BitShare { words, len }
    }

    /// The number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The packed words.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// This party's share of bit `i`, as 0 or 1.
    pub fn bit(&self, i: usize) -> u64 {
        (self.words[i / 64] >> (i % 64)) & 1
    }

    /// This party's share of each bit as a mask, padded with a few more at the end.
    pub(crate) fn masks(&self) -> impl Iterator<Item = Mask> {
        self.words.iter().flat_map(|w| Mask::from_word(*w))
    }

    /// a ⊕ b.
    pub fn xor(&self, b: &BitShare) -> BitShare {
        assert_eq!(self.len, b.len, "one length");
        let words = self.words.iter().zip(&b.words);
        BitShare { words: words.map(|(x, y)| x ^ y).collect(), len: self.len }
    }

    /// ¬a: the client flips its share.
    pub fn not_by(&self, party: Party) -> BitShare {
        let flip = match party {
            Party::Client => u64::MAX,
            Party::Server => 0,
        };
        BitShare::new(self.words.iter().map(|w| w ^ flip).collect(), self.len)
    }

    /// The vectors concatenated.
    pub fn concat(parts: &[&BitShare]) -> BitShare {
        let len = parts.iter().map(|p| p.len).sum::<usize>();
        let mut words = vec![0u64; len.div_ceil(64)];
        let mut at = 0;
        for part in parts {
            for (k, &w) in part.words.iter().enumerate() {
                let (word, shift) = ((at + 64 * k) / 64, at % 64);
                words[word] |= w << shift;
                // The second word gets leftover bits only if it exists in the result.
                if shift > 0 && word + 1 < words.len() {
                    words[word + 1] |= w >> (64 - shift);
                }
            }
            at += part.len;
        }
        BitShare { words, len }
    }

    /// Bits `range` of the vector.
    pub fn slice(&self, range: std::ops::Range<usize>) -> BitShare {
        assert!(range.end <= self.len, "inside the vector");
        let (len, shift) = (range.len(), range.start % 64);
        let first = range.start / 64;
        let word = |k: usize| self.words.get(first + k).copied().unwrap_or(0);
        let pick = |k: usize| match shift {
            0 => word(k),
            s => (word(k) >> s) | (word(k + 1) << (64 - s)),
        };
        BitShare::new((0..len.div_ceil(64)).map(pick).collect(), len)
    }

    /// The bits at the given positions, in that order.
    pub fn gather(&self, places: &[usize]) -> BitShare {
        BitShare::from_low_bits(places.iter().map(|&i| self.bit(i)))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        wipe(&mut self.words);
    }
}

impl Drop for BitShare {
    fn drop(&mut self) {
        wipe(&mut self.words);
    }
}

/// Words that are wiped when dropped: intermediate values of a protocol.
#[derive(Clone, Default)]
pub struct SecretWords(Vec<u64>);

impl SecretWords {
    /// Empty, with capacity for `n` words: growing beyond the capacity would leave copies behind.
    pub(crate) fn with_room(n: usize) -> SecretWords {
        SecretWords(Vec::with_capacity(n))
    }

    /// The words, moved out. The caller keeps them secret.
    pub fn into_words(mut self) -> Vec<u64> {
        std::mem::take(&mut self.0)
    }
}

impl From<Vec<u64>> for SecretWords {
    fn from(words: Vec<u64>) -> SecretWords {
        SecretWords(words)
    }
}

impl FromIterator<u64> for SecretWords {
    fn from_iter<I: IntoIterator<Item = u64>>(words: I) -> SecretWords {
        SecretWords(words.into_iter().collect())
    }
}

impl std::ops::Deref for SecretWords {
    type Target = Vec<u64>;

    fn deref(&self) -> &Vec<u64> {
        &self.0
    }
}

impl std::ops::DerefMut for SecretWords {
    fn deref_mut(&mut self) -> &mut Vec<u64> {
        &mut self.0
    }
}

impl Drop for SecretWords {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// Clears the bits above the first `len` in the last of ⌈len/64⌉ words.
pub(crate) fn clear_tail(words: &mut [u64], len: usize) {
    if let (Some(last), used @ 1..) = (words.last_mut(), len % 64) {
        *last &= (1u64 << used) - 1;
    }
}

/// Overwrites secret words: a plain fill behind an optimisation barrier. `zeroize` on a `Vec` writes byte by byte,
/// which would cost more than most operations above.
pub(crate) fn wipe<T: Copy + Default>(words: &mut [T]) {
    words.fill(T::default());
    std::hint::black_box(words.as_mut_ptr());
    std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_edges() {
        for bits in [1, 2, 31, 32, 63, 64] {
            let ring = Ring::new(bits);
            assert_eq!(ring.encode(-1), ring.mask());
            assert_eq!(ring.decode(ring.mask()), -1);
            assert_eq!(ring.top_bit(ring.mask()), 1);
            assert_eq!(ring.top_bit(ring.mask() >> 1), 0);
        }
        assert_eq!(Ring::new(1).decode(0), 0);
        assert_eq!(Ring::Z64.decode(i64::MIN as u64), i64::MIN);
    }

    #[test]
    fn words_stay_reduced() {
        let ring = Ring::new(5);
        let a = Share::new(ring, vec![31, 64, 7]);
        let b = Share::new(ring, vec![1, 2, 3]);
        assert_eq!(a.words(), [31, 0, 7]);
        assert_eq!(a.add(&b).words(), [0, 2, 10]);
        assert_eq!(a.sub(&b).words(), [30, 30, 4]);
        assert_eq!(a.neg().words(), [1, 0, 25]);
        assert_eq!(a.mul_public(-1).words(), a.neg().words());
        assert_eq!(a.add_public(Party::Client, -8).words(), [23, 24, 31]);
        assert_eq!(a.add_public(Party::Server, -8).words(), a.words());
        assert_eq!(a.shift_left(3).words(), [24, 0, 24]);
        assert_eq!(a.reduce_to(Ring::new(3)).words(), [7, 0, 7]);
    }

    #[test]
    fn shapes() {
        let ring = Ring::new(8);
        let a = Share::new(ring, (0..6).collect());
        assert_eq!(a.sum_rows(2, 3).words(), [3, 12]);
        assert_eq!(a.gather(&[5, 0]).words(), [5, 0]);
        assert_eq!(a.slice(1..3).words(), [1, 2]);
        assert_eq!(a.slice(1..2).repeat_each(3).words(), [1, 1, 1]);
        assert_eq!(Share::concat(ring, &[&a.slice(4..6), &a.slice(0..1)]).words(), [4, 5, 0]);
    }

    #[test]
    fn bits_concat_and_slice_at_every_offset() {
        let bits =
            |n: usize, seed: u64| BitShare::from_low_bits((0..n).map(|i| (seed.wrapping_mul(i as u64 + 1)) >> 17));
        for n in [0, 1, 63, 64, 65, 130] {
            for m in [0, 1, 62, 64, 129] {
                let (a, b) = (bits(n, 0x9e37_79b9_7f4a_7c15), bits(m, 0xd134_2543_de82_ef95));
                let ab = BitShare::concat(&[&a, &b]);
                assert_eq!(ab.len(), n + m);
                assert_eq!(ab.slice(0..n).words(), a.words());
                assert_eq!(ab.slice(n..n + m).words(), b.words());
            }
        }
        let a = bits(70, 3);
        assert_eq!(a.not_by(Party::Client).xor(&a).words(), [u64::MAX, 63]);
        assert_eq!(a.not_by(Party::Server).words(), a.words());
    }
}
