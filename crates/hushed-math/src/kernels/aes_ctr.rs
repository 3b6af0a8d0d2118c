//! AES-128 in counter mode: word pairs `AES_key(domain ‖ i)`, i = first, first + 1, …, as little-endian words.
//!
//! Kernels: VAES, four blocks per register; otherwise the `aes` crate, which uses AES-NI where the processor has it and
//! a bitsliced, table-free program elsewhere. All give the same bytes.

use crate::machine::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::machine::cpu::HaveVaes;
use aes::Aes128;
use aes::cipher::{BlockCipherEncrypt, KeyInit};

/// An expanded key and the kernel that uses it.
pub(crate) enum AesCtr {
    /// The `aes` crate.
    Blocks(Box<Aes128>),
    /// Round keys for VAES.
    #[cfg(target_arch = "x86_64")]
    Vaes(HaveVaes, [[u8; 16]; 11]),
}

impl AesCtr {
    /// Expands `key` for the best kernel of `cpu`.
    pub(crate) fn new(key: &[u8; 16], cpu: Cpu) -> AesCtr {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = cpu.vaes() {
            return AesCtr::Vaes(token, vaes::round_keys(token, key));
        }
        let _ = cpu;
        AesCtr::Blocks(Box::new(Aes128::new(key.into())))
    }

    /// Fills `out` (an even number of words) from block `first` on.
    pub(crate) fn keystream(&self, domain: u64, first: u64, out: &mut [u64]) {
        assert!(out.len().is_multiple_of(2), "whole blocks only");
        match self {
            AesCtr::Blocks(cipher) => blocks(cipher, domain, first, out),
            #[cfg(target_arch = "x86_64")]
            AesCtr::Vaes(token, keys) => vaes::keystream(*token, keys, domain, first, out),
        }
    }

    /// Masks each word from block `first` on with `mask` and writes those below q, in order, to the front of `out`, as
    /// long as the words of 16 blocks fit. Returns the number of blocks used and of residues written. The rest of `out`
    /// is partly overwritten. Words never reach memory: only the VAES kernel can do that, the other uses no block.
    pub(crate) fn residues(
        &self,
        domain: u64,
        first: u64,
        [q, mask]: [u64; 2],
        out: &mut [u64],
    ) -> (u64, usize) {
        match self {
            AesCtr::Blocks(_) => (0, 0),
            #[cfg(target_arch = "x86_64")]
            AesCtr::Vaes(token, keys) => {
                vaes::residues(*token, keys, [domain, first], [q, mask], out)
            }
        }
    }
}

fn blocks(cipher: &Aes128, domain: u64, first: u64, out: &mut [u64]) {
    for (part, first) in out.chunks_mut(16).zip((first..).step_by(8)) {
        let mut blocks = [aes::Block::default(); 8];
        for (block, i) in blocks.iter_mut().zip(first..) {
            let input = u128::from(i) << 64 | u128::from(domain);
            *block = input.to_le_bytes().into();
        }
        cipher.encrypt_blocks(&mut blocks);
        for (pair, block) in part.chunks_exact_mut(2).zip(&blocks) {
            let value = u128::from_le_bytes((*block).into());
            pair[0] = value as u64;
            pair[1] = (value >> 64) as u64;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod vaes {
    use crate::machine::cpu::HaveVaes;
    use std::arch::x86_64::*;

    /// FIPS 197 key expansion by the processor's own instruction.
    pub(super) fn round_keys(_: HaveVaes, key: &[u8; 16]) -> [[u8; 16]; 11] {
        // SAFETY: the token proves AES-NI and, with it, SSE2.
        unsafe { expand(key) }
    }

    /// Fills `out` four blocks at a time; a shorter end goes through a buffer.
    pub(super) fn keystream(
        _: HaveVaes,
        keys: &[[u8; 16]; 11],
        domain: u64,
        first: u64,
        out: &mut [u64],
    ) {
        // SAFETY: the token proves AVX-512 F, BW and VAES.
        unsafe { fill(keys, domain, first, out) }
    }

    #[target_feature(enable = "aes,sse2")]
    fn expand(key: &[u8; 16]) -> [[u8; 16]; 11] {
        let mut keys = [[0; 16]; 11];
        // SAFETY: unaligned load of the 16 bytes of `key`.
        let mut state = unsafe { _mm_loadu_si128(key.as_ptr().cast()) };
        keys[0] = *key;
        macro_rules! round {
            ($index:literal, $constant:literal) => {
                let assist =
                    _mm_shuffle_epi32::<0xff>(_mm_aeskeygenassist_si128::<$constant>(state));
                state = _mm_xor_si128(state, _mm_slli_si128::<4>(state));
                state = _mm_xor_si128(state, _mm_slli_si128::<8>(state));
                state = _mm_xor_si128(state, assist);
                // SAFETY: unaligned store to the 16 bytes of one round key.
                unsafe { _mm_storeu_si128(keys[$index].as_mut_ptr().cast(), state) };
            };
        }
        round!(1, 0x01);
        round!(2, 0x02);
        round!(3, 0x04);
        round!(4, 0x08);
        round!(5, 0x10);
        round!(6, 0x20);
        round!(7, 0x40);
        round!(8, 0x80);
        round!(9, 0x1b);
        round!(10, 0x36);
        keys
    }

    /// Residues below q from whole groups of 16 blocks.
    pub(super) fn residues(
        _: HaveVaes,
        keys: &[[u8; 16]; 11],
        counter: [u64; 2],
        [q, mask]: [u64; 2],
        out: &mut [u64],
    ) -> (u64, usize) {
        // SAFETY: the token proves AVX-512 F, BW and VAES.
        unsafe { accept(keys, counter, [q, mask], out) }
    }

    #[target_feature(enable = "avx512f,avx512bw,vaes,aes")]
    fn wide(keys: &[[u8; 16]; 11]) -> [__m512i; 11] {
        let mut round = [_mm512_setzero_si512(); 11];
        for (wide, key) in round.iter_mut().zip(keys) {
            // SAFETY: unaligned load of one 16-byte round key.
            *wide = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(key.as_ptr().cast()) });
        }
        round
    }

    /// Blocks `first` to `first` + 3 of a domain.
    #[target_feature(enable = "avx512f")]
    fn counters(domain: u64, first: u64) -> __m512i {
        let d = domain as i64;
        let at = |i: u64| first.wrapping_add(i) as i64;
        _mm512_set_epi64(at(3), d, at(2), d, at(1), d, at(0), d)
    }

    #[target_feature(enable = "avx512f,avx512bw,vaes,aes")]
    fn accept(
        keys: &[[u8; 16]; 11],
        [domain, first]: [u64; 2],
        [q, mask]: [u64; 2],
        out: &mut [u64],
    ) -> (u64, usize) {
        let round = wide(keys);
        let step = _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0);
        let mut counter = counters(domain, first);
        let (q, mask) = (_mm512_set1_epi64(q as i64), _mm512_set1_epi64(mask as i64));
        let (mut used, mut kept) = (0, 0);
        while kept + 32 <= out.len() {
            let mut state = [counter; 4];
            for s in state.iter_mut() {
                *s = _mm512_xor_si512(counter, round[0]);
                counter = _mm512_add_epi64(counter, step);
            }
            for key in &round[1..10] {
                for s in state.iter_mut() {
                    *s = _mm512_aesenc_epi128(*s, *key);
                }
            }
            for s in state {
                let candidates = _mm512_and_si512(_mm512_aesenclast_epi128(s, round[10]), mask);
                let below = _mm512_cmplt_epu64_mask(candidates, q);
                let accepted = _mm512_maskz_compress_epi64(below, candidates);
                // SAFETY: eight words: of the 32 there is room for, at least eight are left for each of the four
                // registers. A whole store costs less than a compressing one.
                unsafe { _mm512_storeu_si512(out.as_mut_ptr().add(kept).cast(), accepted) };
                kept += below.count_ones() as usize;
            }
            used += 16;
        }
        (used, kept)
    }

    #[target_feature(enable = "avx512f,avx512bw,vaes,aes")]
    fn fill(keys: &[[u8; 16]; 11], domain: u64, first: u64, out: &mut [u64]) {
        let round = wide(keys);
        let step = _mm512_set_epi64(4, 0, 4, 0, 4, 0, 4, 0);
        let mut counter = counters(domain, first);
        let mut chunks = out.chunks_exact_mut(32);
        for chunk in &mut chunks {
            // Four registers in flight hide the latency of the rounds.
            let mut state = [counter; 4];
            for s in state.iter_mut() {
                *s = _mm512_xor_si512(counter, round[0]);
                counter = _mm512_add_epi64(counter, step);
            }
            for key in &round[1..10] {
                for s in state.iter_mut() {
                    *s = _mm512_aesenc_epi128(*s, *key);
                }
            }
            for (s, slot) in state.iter().zip(chunk.chunks_exact_mut(8)) {
                let block = _mm512_aesenclast_epi128(*s, round[10]);
                // SAFETY: unaligned store to the eight words of `slot`.
                unsafe { _mm512_storeu_si512(slot.as_mut_ptr().cast(), block) };
            }
        }
        for slot in chunks.into_remainder().chunks_mut(8) {
            let mut s = _mm512_xor_si512(counter, round[0]);
            counter = _mm512_add_epi64(counter, step);
            for key in &round[1..10] {
                s = _mm512_aesenc_epi128(s, *key);
            }
            let mut words = [0_u64; 8];
            // SAFETY: unaligned store to eight words.
            unsafe {
                _mm512_storeu_si512(
                    words.as_mut_ptr().cast(),
                    _mm512_aesenclast_epi128(s, round[10]),
                );
            }
            slot.copy_from_slice(&words[..slot.len()]);
        }
    }
}
