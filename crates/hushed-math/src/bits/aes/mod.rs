//! AES-128 on blocks: the cipher, its counter stream and one level of the half-tree, each in three kernels that give
//! the same bytes. The hash of OT pads, which constantly changes its key, is [`super::PadHash`]; the counter stream of
//! public uniform words is [`AesCtr`].

#[cfg(target_arch = "x86_64")]
mod aesni;
#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod ctr;
mod portable;
#[cfg(target_arch = "x86_64")]
mod register;
pub(super) mod shared;
#[cfg(target_arch = "x86_64")]
mod wide;

pub(crate) use ctr::AesCtr;
pub(crate) use shared::{GROUP, LevelSums, Tweaks};

use super::Block;
use crate::machine::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use shared::{Four, Rounds};

/// Keys in a [`Batch`].
pub(crate) const KEYS: usize = 32;

/// An expanded AES-128 key; erased on drop.
pub struct AesKey(Schedule);

enum Schedule {
    Portable(portable::Key),
    #[cfg(target_arch = "x86_64")]
    AesNi(Rounds),
    #[cfg(target_arch = "x86_64")]
    Pairs(Rounds),
    #[cfg(target_arch = "x86_64")]
    Quads(Rounds),
}

/// Up to [`KEYS`] public keys, expanded together, which hides the latency of one key schedule behind the others.
pub(crate) enum Batch {
    Portable(Vec<portable::Key>),
    #[cfg(target_arch = "x86_64")]
    AesNi([Four; KEYS / 4]),
    #[cfg(target_arch = "x86_64")]
    Pairs([Four; KEYS / 4]),
    #[cfg(target_arch = "x86_64")]
    Quads([Four; KEYS / 4]),
}

impl AesKey {
    /// Expands `key`.
    pub fn new(key: Block) -> Self {
        Self::with_cpu(key, Cpu::get())
    }

    /// Expands `key` for the best kernel that `cpu` allows: one block per instruction (AES-NI), two or four (VAES),
    /// or the `aes` crate.
    pub(crate) fn with_cpu(key: Block, cpu: Cpu) -> Self {
        #[cfg(target_arch = "x86_64")]
        if cpu.aesni().is_some() {
            // SAFETY: the token is proof of AES-NI.
            let rounds = unsafe { aesni::expand(key) };
            return AesKey(match (cpu.vaes(), cpu.wide_aes()) {
                (Some(_), _) => Schedule::Quads(rounds),
                (None, Some(have)) if have.vaes() => Schedule::Pairs(rounds),
                _ => Schedule::AesNi(rounds),
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
            Schedule::Pairs(rounds) => unsafe { wide::pairs::encrypt(rounds, blocks) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Schedule::Quads(rounds) => unsafe { wide::quads::encrypt(rounds, blocks) },
        }
    }

    /// `out[j] = AES(start + j)` for the 128-bit counter `start + j`.
    pub(crate) fn counter(&self, start: u128, out: &mut [Block]) {
        #[cfg(target_arch = "x86_64")]
        if let Schedule::Quads(rounds) = &self.0
            && let Ok(low) = u64::try_from(start)
            && low.checked_add(out.len() as u64).is_some()
        {
            let (words, length) = (out.as_mut_ptr().cast(), 2 * out.len());
            // SAFETY: a block is two words, any two words are a block, and the borrow is exclusive.
            let words: &mut [u64] = unsafe { core::slice::from_raw_parts_mut(words, length) };
            // SAFETY: the variant is built only with the token of its instructions.
            return unsafe { avx512::counter::<8>(rounds, [low, 0], [1, 0], words) };
        }
        for (j, b) in out.iter_mut().enumerate() {
            *b = Block(start.wrapping_add(j as u128));
        }
        self.encrypt(out);
    }
}

impl Batch {
    /// An empty batch for the best kernel that `cpu` allows.
    pub(crate) fn new(cpu: Cpu) -> Batch {
        #[cfg(target_arch = "x86_64")]
        if cpu.aesni().is_some() {
            let rounds = [[[Block::ZERO; 4]; 11]; KEYS / 4];
            return match (cpu.vaes(), cpu.wide_aes()) {
                (Some(_), _) => Batch::Quads(rounds),
                (None, Some(have)) if have.vaes() => Batch::Pairs(rounds),
                _ => Batch::AesNi(rounds),
            };
        }
        Batch::Portable(Vec::with_capacity(KEYS))
    }

    /// Replaces the keys; at most [`KEYS`].
    pub(crate) fn expand(&mut self, keys: &[Block]) {
        assert!(keys.len() <= KEYS, "keys of a batch");
        match self {
            Batch::Portable(all) => {
                all.clear();
                all.extend(keys.iter().map(|key| portable::Key::new(*key)));
            }
            // SAFETY: the variant is built only with the token of its instructions.
            #[cfg(target_arch = "x86_64")]
            Batch::AesNi(rounds) => unsafe { aesni::expand_many(keys, rounds) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Batch::Pairs(rounds) => unsafe { wide::pairs::expand_many(keys, rounds) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Batch::Quads(rounds) => unsafe { wide::quads::expand_many(keys, rounds) },
        }
    }

    /// `y[o][g][j] = H(t, x[g][j] ⊕ offsets[o])` under key `from + g` with the tweak t of (g, j), for one offset or
    /// two.
    ///
    /// # Panics
    /// If there are more groups than keys, or `x` and a `y` differ in length.
    pub(crate) fn groups<const N: usize>(
        &self,
        from: usize,
        tweaks: Tweaks,
        offsets: [Block; N],
        x: &[[Block; GROUP]],
        y: [&mut [[Block; GROUP]]; N],
    ) {
        const { assert!(N == 1 || N == 2) };
        assert!(y.iter().all(|y| x.len() == y.len()) && from + x.len() <= KEYS, "groups of a batch of keys");
        match self {
            Batch::Portable(keys) => {
                for (offset, y) in offsets.iter().zip(y) {
                    for (g, ((key, x), y)) in (0..).zip(keys[from..].iter().zip(x).zip(y)) {
                        let first = tweaks.first.wrapping_add(tweaks.group.wrapping_mul(g));
                        key.hash(first, tweaks.input, *offset, x, y);
                    }
                }
            }
            // SAFETY: the variant is built only with the token of its instructions.
            #[cfg(target_arch = "x86_64")]
            Batch::AesNi(keys) => unsafe { aesni::hash_groups(keys, from, tweaks, offsets, x, y) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Batch::Pairs(keys) => unsafe { wide::pairs::hash_groups(keys, from, tweaks, offsets, x, y) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Batch::Quads(keys) => unsafe { wide::quads::hash_groups(keys, from, tweaks, offsets, x, y) },
        }
    }

    /// `y[i] = H(first + i, x[i])` under key `(skip + i)/share`.
    ///
    /// # Panics
    /// If `x` and `y` differ in length, or there are not enough keys.
    pub(crate) fn each(&self, first: u64, share: usize, skip: usize, x: &[Block], y: &mut [Block]) {
        assert!(x.len() == y.len() && skip + x.len() <= KEYS * share, "inputs of a batch of keys");
        match self {
            Batch::Portable(keys) => {
                for (i, (x, y)) in x.iter().zip(y).enumerate() {
                    let (x, y) = (core::slice::from_ref(x), core::slice::from_mut(y));
                    let tweak = first.wrapping_add(i as u64);
                    keys[(skip + i) / share].hash(tweak, 0, Block::ZERO, x, y);
                }
            }
            // SAFETY: the variant is built only with the token of its instructions.
            #[cfg(target_arch = "x86_64")]
            Batch::Pairs(keys) if share == 1 && skip == 0 => unsafe { wide::pairs::hash_each_alone(keys, first, x, y) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Batch::Quads(keys) if share == 1 && skip == 0 => unsafe { wide::quads::hash_each_alone(keys, first, x, y) },
            // SAFETY: the variants are built only with the token of AES-NI.
            #[cfg(target_arch = "x86_64")]
            Batch::AesNi(keys) | Batch::Pairs(keys) | Batch::Quads(keys) => unsafe {
                aesni::hash_each(keys, first, share, skip, x, y)
            },
        }
    }

    /// One level of the half-tree in place under key g: `nodes[..w]` are parents, `nodes[..2w]` become children,
    /// `w = nodes.len()/2`. First, parent number `fix_at` is XORed with `fix` (a masked pass over all parents, as the
    /// position is secret; `fix_at ≥ w` or a zero `fix` changes nothing); then `left = π(σ(p)) ⊕ σ(p)` goes to `2j` and
    /// `left ⊕ p` to `2j + 1`.
    ///
    /// # Panics
    /// If there is no key g, or the number of nodes is odd.
    pub(crate) fn half_tree_level(&self, g: usize, nodes: &mut [Block], fix_at: u64, fix: Block) -> LevelSums {
        assert!(nodes.len().is_multiple_of(2), "children come in pairs");
        match self {
            Batch::Portable(keys) => keys[g].half_tree_level(nodes, fix_at, fix),
            // SAFETY: the variant is built only with the token of its instructions; the length is even.
            #[cfg(target_arch = "x86_64")]
            Batch::AesNi(keys) => unsafe { aesni::half_tree_level(keys, g, nodes, fix_at, fix) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Batch::Pairs(keys) => unsafe { wide::pairs::half_tree_level(keys, g, nodes, fix_at, fix) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Batch::Quads(keys) => unsafe { wide::quads::half_tree_level(keys, g, nodes, fix_at, fix) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::shared::sigma;
    use super::*;

    fn sample(n: usize) -> Vec<Block> {
        // An odd multiplier fills both halves; a weak stream is enough here.
        (0..n as u128).map(|i| Block((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))).collect()
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

    /// H(tweak, x) under a key, by the portable cipher.
    fn hash(key: Block, tweak: u64, x: Block) -> Block {
        let s = sigma(x) ^ Block(tweak.into());
        let mut e = [s];
        AesKey::with_cpu(key, Cpu::portable()).encrypt(&mut e);
        e[0] ^ s
    }

    fn keys(cpu: Cpu, n: usize) -> (Vec<Block>, Batch) {
        let keys = sample(n + 3)[3..].to_vec();
        let mut batch = Batch::new(cpu);
        batch.expand(&keys);
        (keys, batch)
    }

    #[test]
    fn batches_hash_by_the_formula_in_every_kernel() {
        for cpu in Cpu::variants() {
            for n in [0, 1, 2, 3, 7, 8, 9, 31, KEYS] {
                let (keys, batch) = keys(cpu, n);
                let offset = Block(0x1234_5678 << 60 | 1);
                for first in [0, 5, u64::MAX - 6] {
                    let x: Vec<[Block; GROUP]> = sample(n * GROUP).as_chunks().0.to_vec();
                    let (mut y, mut zero, mut one) = (x.clone(), x.clone(), x.clone());
                    for (group, input) in [(GROUP as u64, 1), (1, 0), (3, 7)] {
                        let tweaks = Tweaks { first, group, input };
                        batch.groups(0, tweaks, [offset], &x, [&mut y]);
                        let both = [&mut zero[..], &mut one];
                        batch.groups(0, tweaks, [Block::ZERO, offset], &x, both);
                        assert!(one == y, "{cpu:?} {n}");
                        batch.groups(0, tweaks, [Block::ZERO], &x, [&mut one]);
                        assert!(one == zero, "{cpu:?} {n}");
                        if let Some(last) = n.checked_sub(1) {
                            let tweaks = Tweaks { first: first.wrapping_add(last as u64 * group), ..tweaks };
                            batch.groups(last, tweaks, [offset], &x[last..], [&mut one[..1]]);
                            assert!(one[0] == y[last], "{cpu:?} {n}");
                        }
                        for (g, (x, y)) in x.iter().zip(&y).enumerate() {
                            for (j, (x, y)) in x.iter().zip(y).enumerate() {
                                let tweak = (g as u64 * group).wrapping_add(j as u64 * input);
                                let tweak = first.wrapping_add(tweak);
                                assert!(*y == hash(keys[g], tweak, *x ^ offset), "{cpu:?} {n}");
                            }
                        }
                    }
                    for (share, skip) in [(1, 0), (2, 1), (4, 3), (8, 0)] {
                        let many = (n * share).saturating_sub(skip);
                        let (x, mut y) = (sample(many), vec![Block::ZERO; many]);
                        batch.each(first, share, skip, &x, &mut y);
                        for (i, (x, y)) in x.iter().zip(&y).enumerate() {
                            let tweak = first.wrapping_add(i as u64);
                            let key = keys[(skip + i) / share];
                            assert!(*y == hash(key, tweak, *x), "{cpu:?} {n} {share} {i}");
                        }
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
    fn half_tree_level_is_its_formula_in_every_kernel() {
        for cpu in Cpu::variants() {
            let (keys, batch) = keys(cpu, 3);
            for w in [1usize, 2, 4, 8, 16, 32, 64, 128, 3, 37] {
                for fix_at in [0, w as u64 - 1, w as u64 / 2, w as u64, u64::MAX] {
                    let fix = Block(0xdead_beef << 70 | 3);
                    let mut parents = sample(w);
                    let mut nodes = parents.clone();
                    nodes.resize(2 * w, Block::ZERO);
                    let sums = batch.half_tree_level(2, &mut nodes, fix_at, fix);
                    if fix_at < w as u64 {
                        parents[fix_at as usize] ^= fix;
                    }
                    let mut left = vec![Block::ZERO; w];
                    for (p, l) in parents.iter().zip(&mut left) {
                        let mut e = [sigma(*p)];
                        AesKey::with_cpu(keys[2], Cpu::portable()).encrypt(&mut e);
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
