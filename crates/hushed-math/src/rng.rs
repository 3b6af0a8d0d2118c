//! The only sources of randomness: one for secrets, one for public uniform values, one for simulations.
//!
//! * [`SecretRng`]: keys, noise, masks, shares. ChaCha20 seeded by the operating system, with fast key erasure: every
//!   refill of the buffer starts with the next key, so a captured state reveals nothing about earlier output, and no
//!   block counter can run out.
//! * [`PublicStream`]: the uniform halves of ciphertexts and keys, expanded by AES-128 in counter mode from a seed that
//!   is sent in the clear. Block i is `AES_seed(domain ‖ i)`, both as 8 bytes, little-endian; every kernel gives the
//!   same bytes.
//! * [`splitmix`]: numbers for simulations, orderings and test data, which need not be hard to guess.
//!
//! The first two never share a seed: a [`PublicSeed`] can be drawn from a `SecretRng` but not the other way round.

pub mod splitmix;

use crate::MathError;
use crate::bits::AesCtr;
#[cfg(target_arch = "x86_64")]
use crate::kernels;
use crate::machine::cpu::Cpu;
use crate::machine::process::Origin;
use crate::modulus::Modulus;
use crate::taint;
use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use zeroize::Zeroizing;

/// Bytes generated at a time, 32 of which become the next key.
const BUFFER: usize = 4096;
const KEY: usize = 32;

/// Cryptographic generator for secrets. Neither `Debug` nor `Clone`; erased on drop.
///
/// It works only in the process that made it. In a process forked from that one [`SecretRng::check`] fails. Every
/// operation of this library that can return an error checks before it draws; drawing regardless panics. Going on would
/// give parent and child the same masks, and reseeding would hide that the caller holds copies of other secrets too.
pub struct SecretRng {
    origin: Origin,
    nonce: [u8; 12],
    buffer: Zeroizing<[u8; BUFFER]>,
    /// Position of the next unused byte; the bytes before it are already erased.
    used: usize,
}

impl SecretRng {
    /// A generator seeded by the operating system. `domain` names the use, and also separates two generators should
    /// they ever start from equal seeds.
    ///
    /// # Panics
    /// If the operating system provides no randomness: there is no safe way to continue.
    pub fn from_os(domain: &'static str) -> SecretRng {
        let mut seed = Zeroizing::new([0; KEY]);
        if let Err(error) = getrandom::fill(seed.as_mut_slice()) {
            panic!("the operating system gives no randomness: {error}");
        }
        SecretRng::from_key(&seed, domain)
    }

    /// A generator whose output anyone can reproduce: for tests only.
    #[cfg(any(test, feature = "testing"))]
    pub fn insecure_from_seed(seed: u64) -> SecretRng {
        let mut key = [0; KEY];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        SecretRng::from_key(&key, "insecure test seed")
    }

    /// A new, independent generator for `domain`, seeded by 32 bytes of this one.
    pub fn fork(&mut self, domain: &'static str) -> SecretRng {
        let mut key = Zeroizing::new([0; KEY]);
        self.fill_bytes(key.as_mut_slice());
        SecretRng::from_key(&key, domain)
    }

    /// A generator determined by a secret and a domain: a pseudorandom function, for callers that must draw the same
    /// bytes again. Two uses must never share a secret.
    pub fn from_secret(secret: &Zeroizing<[u8; 32]>, domain: &'static str) -> SecretRng {
        SecretRng::from_key(secret, domain)
    }

    fn from_key(key: &[u8; KEY], domain: &'static str) -> SecretRng {
        // FNV-1a: domains are constants of this code, so no resistance to chosen names is needed.
        let name = domain
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |h, byte| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&name.to_le_bytes());
        nonce[8..].copy_from_slice(&(domain.len() as u32).to_le_bytes());
        let mut rng = SecretRng { origin: Origin::here(), nonce, buffer: Zeroizing::new([0; BUFFER]), used: BUFFER };
        rng.refill_with(key);
        rng
    }

    fn refill_with(&mut self, key: &[u8; KEY]) {
        self.buffer.fill(0);
        ChaCha20::new(key.into(), &self.nonce.into()).apply_keystream(self.buffer.as_mut_slice());
        self.used = KEY;
    }

    fn refill(&mut self) {
        let mut key = Zeroizing::new([0; KEY]);
        key.copy_from_slice(&self.buffer[..KEY]);
        self.refill_with(&key);
    }

    /// Checks that this process made the stream.
    ///
    /// # Errors
    /// [`MathError::Forked`] if it did not.
    pub fn check(&self) -> Result<(), MathError> {
        self.origin.check()
    }

    /// Fills `out` with uniform bytes.
    ///
    /// # Panics
    /// If this process did not make the stream, as for everything that draws.
    pub fn fill_bytes(&mut self, out: &mut [u8]) {
        self.origin.insist("random stream");
        self.copy_bytes(out);
        taint::secret(out);
    }

    fn copy_bytes(&mut self, out: &mut [u8]) {
        let mut out = out;
        while !out.is_empty() {
            if self.used == BUFFER {
                self.refill();
            }
            let take = out.len().min(BUFFER - self.used);
            let (now, later) = out.split_at_mut(take);
            let source = &mut self.buffer[self.used..self.used + take];
            now.copy_from_slice(source);
            // Plain stores: the buffer outlives the call, and is erased for good when it is dropped.
            source.fill(0);
            self.used += take;
            out = later;
        }
    }

    /// A uniform word.
    pub fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Fills `out` with uniform words.
    pub fn fill_words(&mut self, out: &mut [u64]) {
        // SAFETY: every word is eight initialised bytes, any eight bytes are a word, and the borrow is exclusive.
        let bytes = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<u8>(), size_of_val(out)) };
        self.fill_bytes(bytes);
        for word in out {
            *word = u64::from_le(*word);
        }
    }

    /// A seed to be sent in the clear.
    pub fn public_seed(&mut self) -> PublicSeed {
        let mut seed = [0; 16];
        self.fill_bytes(&mut seed);
        taint::public(&seed);
        PublicSeed(seed)
    }
}

impl Drop for SecretRng {
    fn drop(&mut self) {
        self.used = BUFFER; // the buffer erases itself
    }
}

/// A seed that both parties know, from which public uniform values are expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicSeed(pub [u8; 16]);

/// The stream of public uniform words under one seed and domain. Consumed word by word, so the output does not depend
/// on how it is split into calls.
pub struct PublicStream {
    #[cfg(target_arch = "x86_64")]
    ifma: Option<crate::machine::cpu::HaveIfma>,
    cipher: AesCtr,
    domain: u64,
    /// Index of the next AES block.
    next_block: u64,
    words: Box<[u64; STREAM_WORDS]>,
    used: usize,
}

/// Words expanded into the buffer at a time. If the cipher makes residues itself, only those at the ends of a request
/// come from the buffer.
const STREAM_WORDS: usize = 32;

impl PublicStream {
    /// The stream of `seed` for `domain`; streams of different domains are independent.
    pub fn new(seed: &PublicSeed, domain: u64) -> PublicStream {
        PublicStream::with_cpu(seed, domain, Cpu::get())
    }

    fn with_cpu(seed: &PublicSeed, domain: u64, cpu: Cpu) -> PublicStream {
        PublicStream {
            #[cfg(target_arch = "x86_64")]
            ifma: cpu.ifma(),
            cipher: AesCtr::new(&seed.0, cpu),
            domain,
            next_block: 0,
            words: Box::new([0; STREAM_WORDS]),
            used: STREAM_WORDS,
        }
    }

    /// The next uniform word.
    pub fn next_u64(&mut self) -> u64 {
        if self.used == STREAM_WORDS {
            self.refill();
        }
        let word = self.words[self.used];
        self.used += 1;
        word
    }

    /// Fills `out` with uniform residues in [0, q): the low bits of each word, as many as q has, rejected unless below
    /// q. Branch-free in the words; the number of rejections is public, like everything here.
    pub fn uniform_mod(&mut self, modulus: &Modulus, out: &mut [u64]) {
        let (q, mask) = (modulus.value(), (1 << modulus.bits()) - 1);
        let mut done = 0;
        while done < out.len() {
            if self.used == STREAM_WORDS {
                let rest = &mut out[done..];
                let first = self.next_block;
                let (blocks, kept) = self.cipher.residues(self.domain, first, [q, mask], rest);
                self.next_block += blocks;
                done += kept;
                self.refill();
            }
            #[cfg(target_arch = "x86_64")]
            if let Some(token) = self.ifma {
                let (words, rest) = (&self.words[self.used..], &mut out[done..]);
                let (read, kept) = kernels::ifma::accept(token, q, mask, words, rest);
                self.used += read;
                done += kept;
            }
            let rest = &mut out[done..];
            // At most `rest.len()` words, so that every store has room and no accepted word is lost.
            let words = &self.words[self.used..];
            let words = &words[..words.len().min(rest.len())];
            let mut kept = 0;
            for &word in words {
                let candidate = word & mask;
                rest[kept] = candidate;
                kept += usize::from(candidate < q);
            }
            self.used += words.len();
            done += kept;
        }
    }

    fn refill(&mut self) {
        self.cipher.keystream(self.domain, self.next_block, self.words.as_mut_slice());
        self.next_block += STREAM_WORDS as u64 / 2;
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::{BlockCipherEncrypt, KeyInit};

    fn word_of(bytes: &[u8]) -> u64 {
        bytes.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte))
    }

    #[test]
    fn secret_output_does_not_depend_on_how_it_is_cut_and_forks_differ() {
        let mut whole = [0; 10_000];
        SecretRng::insecure_from_seed(1).fill_bytes(&mut whole);
        let mut rng = SecretRng::insecure_from_seed(1);
        let mut cut = Vec::new();
        for length in [1, 7, 4063, 4064, 0, 1865] {
            let mut piece = vec![0; length];
            rng.fill_bytes(&mut piece);
            cut.extend(piece);
        }
        assert_eq!(cut, whole);
        let mut words = [0; 100];
        SecretRng::insecure_from_seed(1).fill_words(&mut words);
        assert_eq!(words[99].to_le_bytes(), whole[792..800]);
        let again = |byte, domain| SecretRng::from_secret(&Zeroizing::new([byte; 32]), domain).next_u64();
        assert_eq!(again(1, "x"), again(1, "x"));
        assert!(again(1, "x") != again(2, "x") && again(1, "x") != again(1, "y"));
        let (mut a, mut b) = (rng.fork("a"), rng.fork("a"));
        assert_ne!(a.next_u64(), b.next_u64());
        assert_ne!(SecretRng::from_os("x").next_u64(), SecretRng::from_os("x").next_u64());
    }

    #[test]
    fn key_erasure_begins_each_block_with_the_next_key() {
        // First buffer: key = seed; its first 32 bytes are the key of the second, by the cipher itself.
        let mut rng = SecretRng::insecure_from_seed(5);
        let nonce = rng.nonce;
        let mut key = [0; 32];
        key[0] = 5;
        let mut first = [0; BUFFER];
        ChaCha20::new(&key.into(), &nonce.into()).apply_keystream(&mut first);
        let mut second = [0; BUFFER];
        let next: [u8; 32] = first[..32].try_into().unwrap();
        ChaCha20::new(&next.into(), &nonce.into()).apply_keystream(&mut second);
        let mut out = vec![0; 2 * (BUFFER - 32)];
        rng.fill_bytes(&mut out);
        assert_eq!(out, [&first[32..], &second[32..]].concat());
    }

    #[test]
    fn public_stream_is_aes_in_counter_mode_on_every_kernel() {
        let seed = PublicSeed(*b"0123456789abcdef");
        let cipher = aes::Aes128::new(&seed.0.into());
        for cpu in Cpu::variants() {
            let mut stream = PublicStream::with_cpu(&seed, 7, cpu);
            for block in 0..2000_u64 {
                let mut bytes = [0; 16];
                bytes[..8].copy_from_slice(&7_u64.to_le_bytes());
                bytes[8..].copy_from_slice(&block.to_le_bytes());
                let mut bytes = bytes.into();
                cipher.encrypt_block(&mut bytes);
                assert_eq!(stream.next_u64(), word_of(&bytes[..8]));
                assert_eq!(stream.next_u64(), word_of(&bytes[8..]));
            }
        }
    }

    #[test]
    fn uniform_residues_are_the_accepted_words_in_order_and_look_uniform() {
        // 3·2^40 + 1 rejects a quarter: both outcomes are frequent.
        let modulus = Modulus::new(3 << 40 | 1).unwrap();
        let seed = PublicSeed([9; 16]);
        let mut out = vec![0; 100_003];
        for cpu in Cpu::variants() {
            let mut expected = PublicStream::new(&seed, 0);
            let mut stream = PublicStream::with_cpu(&seed, 0, cpu);
            let (head, tail) = out.split_at_mut(777);
            stream.uniform_mod(&modulus, head);
            stream.uniform_mod(&modulus, &mut []);
            stream.uniform_mod(&modulus, tail);
            for &residue in &out {
                let accepted = std::iter::repeat_with(|| expected.next_u64() & ((1 << 42) - 1))
                    .find(|&word| word < modulus.value());
                assert_eq!(Some(residue), accepted);
            }
            assert_eq!(stream.next_u64(), expected.next_u64());
        }
        // Chi-square over 32 equal cells, 31 degrees of freedom: 80 is beyond the 1 - 10^-5 quantile.
        let mut cells = [0_f64; 32];
        for &residue in &out {
            cells[(residue as u128 * 32 / modulus.value() as u128) as usize] += 1.0;
        }
        let mean = out.len() as f64 / 32.0;
        let chi: f64 = cells.iter().map(|c| (c - mean).powi(2) / mean).sum();
        assert!(chi < 80.0, "{chi}");
    }
}
