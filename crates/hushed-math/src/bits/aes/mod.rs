//! AES-128 on blocks: the cipher, the fixed-key correlation-robust hash, and one level of the
//! half-tree, each in three kernels that give the same bytes.
//!
//! Hash: `H(i, x) = π(σ(x) ⊕ i) ⊕ σ(x) ⊕ i`, `σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi`, π = AES-128 under a
//! public key. This is the circular correlation robust `MMO(x) = π(σ(x)) ⊕ σ(x)` of Guo, Katz, Wang
//! and Yu (S&P 2020; one permutation, σ a linear orthomorphism) at a relabelled input:
//! `H(i, x) = MMO(x ⊕ σ⁻¹(i))`. The tweak makes equal blocks at different indices hash differently and
//! does no more.
//!
//! It is *not* that paper's tweakable hash `π(π(x) ⊕ i) ⊕ π(x)`, which takes two permutations and stands
//! inputs that an adversary chooses: here `H(i, x) = H(j, x ⊕ σ⁻¹(i ⊕ j))` for everybody to see. What
//! makes one permutation enough is where inputs come from: blocks of correlated OTs and nodes of trees
//! made by semi-honest parties, pseudo-random (up to `delta`) and chosen by nobody, so that two inputs of π
//! meet only by chance, among 2^128. Parties that could choose their blocks would need the other hash.

#[cfg(target_arch = "x86_64")]
mod aesni;
mod portable;
#[cfg(target_arch = "x86_64")]
mod vaes;

use super::Block;
use crate::cpu::Cpu;
use std::sync::LazyLock;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Key of the public permutation: the first 128 fraction bits of π, big-endian as read.
const FIXED_KEY: Block = Block(0x243f_6a88_85a3_08d3_1319_8a2e_0370_7344);

/// An expanded AES-128 key; erased on drop.
pub struct AesKey(Schedule);

enum Schedule {
    Portable(portable::Key),
    #[cfg(target_arch = "x86_64")]
    AesNi(Rounds),
    #[cfg(target_arch = "x86_64")]
    Vaes(Rounds),
}

/// The eleven round keys.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Rounds([Block; 11]);

/// Sums of one half-tree level, see [`AesKey::half_tree_level`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelSums {
    /// XOR of all left children.
    pub left: Block,
    /// XOR of all parents after the fix, which is also the XOR of all children.
    pub all: Block,
}

impl AesKey {
    /// Expands `key`.
    pub fn new(key: Block) -> Self {
        Self::with_cpu(key, Cpu::get())
    }

    /// The public permutation π of the hash, expanded once a process.
    pub(crate) fn fixed() -> &'static Self {
        static FIXED: LazyLock<AesKey> = LazyLock::new(|| AesKey::new(FIXED_KEY));
        &FIXED
    }

    /// Expands `key` for the best kernel that `cpu` allows: one block an instruction (AES-NI), four
    /// (VAES), or the `aes` crate.
    pub(crate) fn with_cpu(key: Block, cpu: Cpu) -> Self {
        #[cfg(target_arch = "x86_64")]
        if cpu.aesni().is_some() {
            // SAFETY: the token is proof of AES-NI.
            let rounds = unsafe { aesni::expand(key) };
            return AesKey(match cpu.vaes() {
                Some(_) => Schedule::Vaes(rounds),
                None => Schedule::AesNi(rounds),
            });
        }
        AesKey(Schedule::Portable(portable::Key::new(key)))
    }

    /// Encrypts each block in place.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        match &self.0 {
            Schedule::Portable(key) => key.encrypt(blocks),
            // SAFETY: the variant is built only with the token of its instructions.
            #[cfg(target_arch = "x86_64")]
            Schedule::AesNi(rounds) => unsafe { aesni::encrypt(rounds, blocks) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Schedule::Vaes(rounds) => unsafe { vaes::encrypt(rounds, blocks) },
        }
    }

    /// `out[j] = AES(start + j)` for the 128-bit counter `start + j`.
    pub(crate) fn counter(&self, start: u128, out: &mut [Block]) {
        #[cfg(target_arch = "x86_64")]
        if let Schedule::Vaes(rounds) = &self.0
            && let Ok(low) = u64::try_from(start)
            && low.checked_add(out.len() as u64).is_some()
        {
            // SAFETY: the variant is built only with the token of its instructions.
            return unsafe { vaes::counter(rounds, low, out) };
        }
        for (j, b) in out.iter_mut().enumerate() {
            *b = Block(start.wrapping_add(j as u128));
        }
        self.encrypt(out);
    }

    /// `out[j] = H(tweak + j, input[j])`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub(crate) fn hash(&self, tweak: u64, input: &[Block], out: &mut [Block]) {
        assert_eq!(input.len(), out.len(), "hash input and output lengths");
        match &self.0 {
            Schedule::Portable(key) => key.hash(tweak, input, out),
            // SAFETY: the variant is built only with the token of its instructions; the lengths
            // are equal.
            #[cfg(target_arch = "x86_64")]
            Schedule::AesNi(rounds) => unsafe { aesni::hash(rounds, tweak, input, out) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Schedule::Vaes(rounds) => unsafe { vaes::hash(rounds, tweak, input, out) },
        }
    }

    /// One level of the half-tree in place: `nodes[..w]` are parents, `nodes[..2w]` become children,
    /// `w = nodes.len()/2`. First parent number `fix_at` is XORed with `fix` (a masked pass over all
    /// parents, as the position is secret; `fix_at ≥ w` or a zero `fix` changes nothing); then
    /// `left = π(σ(p)) ⊕ σ(p)` goes to `2j` and `left ⊕ p` to `2j + 1`.
    ///
    /// # Panics
    /// If the number of nodes is odd.
    pub(crate) fn half_tree_level(
        &self,
        nodes: &mut [Block],
        fix_at: u64,
        fix: Block,
    ) -> LevelSums {
        assert!(nodes.len().is_multiple_of(2), "children come in pairs");
        match &self.0 {
            Schedule::Portable(key) => key.half_tree_level(nodes, fix_at, fix),
            // SAFETY: the variant is built only with the token of its instructions; the length is
            // even.
            #[cfg(target_arch = "x86_64")]
            Schedule::AesNi(rounds) => unsafe {
                aesni::half_tree_level(rounds, nodes, fix_at, fix)
            },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Schedule::Vaes(rounds) => unsafe { vaes::half_tree_level(rounds, nodes, fix_at, fix) },
        }
    }
}

/// σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi: linear, and both σ and x ↦ σ(x) ⊕ x are permutations.
#[inline(always)]
pub(crate) fn sigma(x: Block) -> Block {
    let (hi, lo) = (x.high_u64(), x.low_u64());
    Block((u128::from(hi ^ lo) << 64) | u128::from(hi))
}

/// `out[j] = H(tweak_start + j, input[j])`, the correlation-robust hash (module header). Tweaks wrap
/// at 2^64.
///
/// # Panics
/// If the lengths differ.
pub fn hash_blocks(tweak_start: u64, input: &[Block], out: &mut [Block]) {
    AesKey::fixed().hash(tweak_start, input, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(n: usize) -> Vec<Block> {
        // An odd multiplier fills both halves; a weak stream is enough here.
        (0..n as u128)
            .map(|i| Block((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835)))
            .collect()
    }

    fn hex(s: &str) -> Block {
        let mut bytes = [0u8; 16];
        for (i, b) in bytes.iter_mut().enumerate() {
            *b = u8::from_str_radix(&s[2 * i..2 * i + 2], 16).unwrap();
        }
        Block::from_bytes(bytes)
    }

    #[test]
    fn fips_197_vectors() {
        let cases = [
            // Appendix B.
            (
                "2b7e151628aed2a6abf7158809cf4f3c",
                "3243f6a8885a308d313198a2e0370734",
                "3925841d02dc09fbdc118597196a0b32",
            ),
            // Appendix C.1.
            (
                "000102030405060708090a0b0c0d0e0f",
                "00112233445566778899aabbccddeeff",
                "69c4e0d86a7b0430d8cdb78070b4c55a",
            ),
        ];
        for cpu in Cpu::variants() {
            for (key, plain, cipher) in cases {
                let key = AesKey::with_cpu(hex(key), cpu);
                for n in [1, 5, 40] {
                    let mut blocks = vec![hex(plain); n];
                    key.encrypt(&mut blocks);
                    assert!(blocks.iter().all(|b| *b == hex(cipher)), "{cpu:?} {n}");
                }
            }
        }
    }

    #[test]
    fn hash_is_its_formula_in_every_kernel() {
        for cpu in Cpu::variants() {
            let key = AesKey::with_cpu(FIXED_KEY, cpu);
            for n in [0, 1, 3, 4, 7, 8, 9, 31, 32, 33, 64, 101] {
                for tweak in [0, 5, u64::MAX - 6] {
                    let x = sample(n);
                    let mut out = vec![Block::ZERO; n];
                    key.hash(tweak, &x, &mut out);
                    for (j, (&x, &h)) in x.iter().zip(&out).enumerate() {
                        let s = sigma(x) ^ Block(tweak.wrapping_add(j as u64).into());
                        let mut e = [s];
                        AesKey::with_cpu(FIXED_KEY, Cpu::portable()).encrypt(&mut e);
                        assert!(h == e[0] ^ s, "{cpu:?} {n} {tweak} {j}");
                    }
                }
            }
        }
    }

    #[test]
    fn counter_is_its_formula_in_every_kernel() {
        for cpu in Cpu::variants() {
            let key = AesKey::with_cpu(Block(77), cpu);
            for start in [0, 9, u128::from(u64::MAX) - 20, 5 << 64, u128::MAX - 3] {
                for n in [0, 1, 31, 32, 65] {
                    let mut out = vec![Block::ONES; n];
                    key.counter(start, &mut out);
                    for (j, b) in out.iter().enumerate() {
                        let mut e = [Block(start.wrapping_add(j as u128))];
                        AesKey::with_cpu(Block(77), Cpu::portable()).encrypt(&mut e);
                        assert!(*b == e[0], "{cpu:?} {start} {n} {j}");
                    }
                }
            }
        }
    }

    #[test]
    fn hash_known_answers() {
        // Computed with OpenSSL; a change of σ, of the key or of the byte order breaks every peer.
        let mut out = [Block::ZERO; 2];
        hash_blocks(7, &[Block(1), Block(u128::MAX - 1)], &mut out);
        assert!(out[0] == hex("5ff43b3ca7637b9ddc832e092412e42b"));
        assert!(out[1] == hex("0c94fd265ae5eb31660e6273b6ca6ad1"));
    }

    #[test]
    fn half_tree_level_is_its_formula_in_every_kernel() {
        for cpu in Cpu::variants() {
            let key = AesKey::with_cpu(FIXED_KEY, cpu);
            for w in [1usize, 2, 4, 8, 16, 32, 64, 128, 3, 37] {
                for fix_at in [0, w as u64 - 1, w as u64 / 2, w as u64, u64::MAX] {
                    let fix = Block(0xdead_beef << 70 | 3);
                    let mut parents = sample(w);
                    let mut nodes = parents.clone();
                    nodes.resize(2 * w, Block::ZERO);
                    let sums = key.half_tree_level(&mut nodes, fix_at, fix);
                    if fix_at < w as u64 {
                        parents[fix_at as usize] ^= fix;
                    }
                    let mut left = vec![Block::ZERO; w];
                    for (p, l) in parents.iter().zip(&mut left) {
                        let mut e = [sigma(*p)];
                        AesKey::with_cpu(FIXED_KEY, Cpu::portable()).encrypt(&mut e);
                        *l = e[0] ^ sigma(*p);
                    }
                    for j in 0..w {
                        assert!(nodes[2 * j] == left[j], "{cpu:?} {w} {j}");
                        assert!(nodes[2 * j + 1] == left[j] ^ parents[j], "{cpu:?} {w} {j}");
                    }
                    let xor = |v: &[Block]| v.iter().fold(Block::ZERO, |a, b| a ^ *b);
                    assert!(sums.left == xor(&left) && sums.all == xor(&parents));
                    assert!(xor(&nodes) == xor(&parents));
                }
            }
        }
    }

    #[test]
    fn sigma_is_an_orthomorphism_on_units() {
        // Linear, so it is enough that neither map kills a basis vector's span: check both inverses.
        for i in 0..128 {
            let x = Block(1u128 << i);
            let y = sigma(x);
            let (hi, lo) = (y.low_u64(), y.high_u64() ^ y.low_u64());
            assert!(Block((u128::from(hi) << 64) | u128::from(lo)) == x);
            assert!(sigma(x) ^ x != Block::ZERO);
        }
    }
}
