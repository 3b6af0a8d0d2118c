//! AES-128 in counter mode: word pairs `AES_key(domain ‖ i)`, i = first, first + 1, …, as little-endian words.
//!
//! Kernels: VAES, four blocks per register; with AVX2, VAES or AES-NI, sixteen blocks in flight; otherwise the `aes`
//! crate, which has a bitsliced, table-free program where the processor lacks AES-NI. All give the same bytes.

#[cfg(target_arch = "x86_64")]
use super::{Rounds, aesni, avx2, avx512};
#[cfg(target_arch = "x86_64")]
use crate::bits::Block;
use crate::machine::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::machine::cpu::{HaveVaes, HaveWideAes};
use ::aes::Aes128;
use ::aes::cipher::{BlockCipherEncrypt, KeyInit};

/// An expanded key and the kernel that uses it.
pub(crate) enum AesCtr {
    /// The `aes` crate.
    Blocks(Box<Aes128>),
    /// Round keys for VAES.
    #[cfg(target_arch = "x86_64")]
    Vaes(HaveVaes, Rounds),
    /// Round keys for 256-bit registers.
    #[cfg(target_arch = "x86_64")]
    Avx2(HaveWideAes, Rounds),
}

impl AesCtr {
    /// Expands `key` for the best kernel of `cpu`.
    pub(crate) fn new(key: &[u8; 16], cpu: Cpu) -> AesCtr {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = cpu.vaes() {
            // SAFETY: the token proves AES-NI and, with it, SSE2.
            let rounds = unsafe { aesni::expand(Block::from_bytes(*key)) };
            return AesCtr::Vaes(token, rounds);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = cpu.wide_aes() {
            // SAFETY: as above.
            let rounds = unsafe { aesni::expand(Block::from_bytes(*key)) };
            return AesCtr::Avx2(token, rounds);
        }
        let _ = cpu;
        AesCtr::Blocks(Box::new(Aes128::new(key.into())))
    }

    /// Fills `out` (an even number of words) from block `first` on.
    pub(crate) fn keystream(&self, domain: u64, first: u64, out: &mut [u64]) {
        assert!(out.len().is_multiple_of(2), "whole blocks only");
        match self {
            AesCtr::Blocks(cipher) => blocks(cipher, domain, first, out),
            // SAFETY: the token proves AVX-512 F and VAES.
            #[cfg(target_arch = "x86_64")]
            AesCtr::Vaes(_, rounds) => unsafe { avx512::counter::<4>(rounds, [domain, first], [0, 1], out) },
            #[cfg(target_arch = "x86_64")]
            AesCtr::Avx2(token, rounds) => avx2::counter(*token, rounds, [domain, first], out),
        }
    }

    /// Masks each word from block `first` on with `mask` and writes those below q, in order, to the front of `out`, as
    /// long as the words of 16 blocks fit. Returns the number of blocks used and of residues written. The rest of `out`
    /// is partly overwritten. Words never reach memory: the `aes` crate cannot do that and uses no block.
    pub(crate) fn residues(&self, domain: u64, first: u64, [q, mask]: [u64; 2], out: &mut [u64]) -> (u64, usize) {
        match self {
            AesCtr::Blocks(_) => (0, 0),
            // SAFETY: as in `keystream`.
            #[cfg(target_arch = "x86_64")]
            AesCtr::Vaes(_, rounds) => unsafe { avx512::residues(rounds, [domain, first], [0, 1], [q, mask], out) },
            #[cfg(target_arch = "x86_64")]
            AesCtr::Avx2(token, rounds) => avx2::residues(*token, rounds, [domain, first], [q, mask], out),
        }
    }
}

fn blocks(cipher: &Aes128, domain: u64, first: u64, out: &mut [u64]) {
    for (part, first) in out.chunks_mut(16).zip((first..).step_by(8)) {
        let mut blocks = [::aes::Block::default(); 8];
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
