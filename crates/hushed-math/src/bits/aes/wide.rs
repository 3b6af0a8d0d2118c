//! AES on registers of several blocks, eight of them in flight: VAES on 512 bits, or on 256 where there is no AVX-512.
//! One text for both; [`quads`] and [`pairs`] are its two compilations.

use super::register::Register;
use super::shared::{Four, GROUP, LevelSums, Rounds, Tweaks, key};
use crate::bits::Block;

/// Registers in flight.
const REGS: usize = 8;
/// Half of them: in a hash of groups each half may have its own key, offset and tweaks.
const HALF: usize = REGS / 2;
/// The most blocks in flight.
const MOST: usize = 4 * REGS;

/// The text below for one register, with its instruction sets enabled.
macro_rules! compiled {
    ($name:ident, $register:ty, $features:literal) => {
        pub(super) mod $name {
            use crate::bits::Block;
            use crate::bits::aes::shared::{Four, GROUP, LevelSums, Rounds, Tweaks};

            #[target_feature(enable = $features)]
            pub(in crate::bits::aes) fn encrypt(rounds: &Rounds, blocks: &mut [Block]) {
                // SAFETY: the register's instruction sets are enabled here, as in all that follow.
                unsafe { crate::bits::aes::wide::encrypt::<$register>(rounds, blocks) }
            }

            #[target_feature(enable = $features)]
            pub(in crate::bits::aes) fn expand_many(keys: &[Block], out: &mut [Four]) {
                // SAFETY: as above.
                unsafe { crate::bits::aes::wide::expand_many::<$register>(keys, out) }
            }

            #[target_feature(enable = $features)]
            pub(in crate::bits::aes) fn hash_groups<const N: usize>(
                keys: &[Four],
                from: usize,
                tweaks: Tweaks,
                offsets: [Block; N],
                x: &[[Block; GROUP]],
                y: [&mut [[Block; GROUP]]; N],
            ) {
                // SAFETY: as above.
                unsafe { crate::bits::aes::wide::hash_groups::<$register, N>(keys, from, tweaks, offsets, x, y) }
            }

            #[target_feature(enable = $features)]
            pub(in crate::bits::aes) fn hash_each_alone(keys: &[Four], first: u64, x: &[Block], y: &mut [Block]) {
                // SAFETY: as above.
                unsafe { crate::bits::aes::wide::hash_each_alone::<$register>(keys, first, x, y) }
            }

            #[target_feature(enable = $features)]
            pub(in crate::bits::aes) fn half_tree_level(
                keys: &[Four],
                g: usize,
                nodes: &mut [Block],
                fix_at: u64,
                fix: Block,
            ) -> LevelSums {
                // SAFETY: as above.
                unsafe { crate::bits::aes::wide::half_tree_level::<$register>(keys, g, nodes, fix_at, fix) }
            }
        }
    };
}

compiled!(pairs, crate::bits::aes::register::Pair, "avx2,aes,vaes");
compiled!(quads, crate::bits::aes::register::Quad, "avx512f,avx512bw,aes,vaes");

/// `N` registers from the front of `blocks`.
///
/// # Safety
/// The processor has the register's instruction sets, as for all that follows.
#[inline(always)]
unsafe fn load<R: Register, const N: usize>(blocks: &[Block]) -> [R; N] {
    assert!(blocks.len() >= N * R::BLOCKS);
    // SAFETY: guaranteed by the caller; register i covers R::BLOCKS blocks of those that were counted.
    core::array::from_fn(|i| unsafe { R::load(blocks.as_ptr().add(i * R::BLOCKS)) })
}

#[inline(always)]
unsafe fn store<R: Register>(s: &[R], blocks: &mut [Block]) {
    assert!(blocks.len() >= s.len() * R::BLOCKS);
    for (i, s) in s.iter().enumerate() {
        // SAFETY: as in `load`.
        unsafe { s.store(blocks.as_mut_ptr().add(i * R::BLOCKS)) }
    }
}

/// π under round keys that are the same for all blocks.
#[inline(always)]
pub(super) unsafe fn permute<R: Register, const N: usize>(k: &[Block; 11], s: &mut [R; N]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let first = R::every(&k[0]);
        s.iter_mut().for_each(|s| *s = s.xor(first));
        for k in &k[1..10] {
            let k = R::every(k);
            s.iter_mut().for_each(|s| *s = s.round(k));
        }
        let last = R::every(&k[10]);
        s.iter_mut().for_each(|s| *s = s.last(last));
    }
}

#[inline(always)]
unsafe fn encrypt<R: Register>(rounds: &Rounds, blocks: &mut [Block]) {
    for chunk in blocks.chunks_mut(REGS * R::BLOCKS) {
        let mut padded = [Block::ZERO; MOST];
        let whole = chunk.len() == REGS * R::BLOCKS;
        if !whole {
            padded[..chunk.len()].copy_from_slice(chunk);
        }
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut s = load::<R, REGS>(if whole { &*chunk } else { &padded });
            permute(&rounds.0, &mut s);
            store(&s, if whole { &mut *chunk } else { &mut padded });
        }
        if !whole {
            chunk.copy_from_slice(&padded[..chunk.len()]);
            Block::wipe(&mut padded);
        }
    }
}

/// As [`super::aesni::expand_many`], one key per block of a register.
#[inline(always)]
unsafe fn expand_many<R: Register>(keys: &[Block], out: &mut [Four]) {
    let mut padded = [Block::ZERO; MOST];
    let each = REGS * R::BLOCKS;
    for (keys, out) in keys.chunks(each).zip(out.chunks_mut(each / 4)) {
        padded[..keys.len()].copy_from_slice(keys);
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut k = load::<R, REGS>(&padded);
            // A few keys are not worth work on all eight registers.
            let k = &mut k[..keys.len().div_ceil(4) * 4 / R::BLOCKS];
            let mut constant = 1;
            for round in 0..11 {
                if round > 0 {
                    k.iter_mut().for_each(|k| *k = k.next_key(constant));
                    constant = if constant == 0x80 { 0x1b } else { constant << 1 };
                }
                for (k, out) in k.chunks(4 / R::BLOCKS).zip(out.iter_mut()) {
                    store(k, &mut out[round]);
                }
            }
        }
    }
}

/// `σ(x[j] ⊕ offset) ⊕ (first + j·step)`.
#[inline(always)]
unsafe fn relabelled<R: Register, const N: usize>(x: &[Block], offset: R, first: u64, step: u64) -> [R; N] {
    let lane = |j: u64| Block(u128::from(first.wrapping_add(step.wrapping_mul(j))));
    let next = Block(u128::from(step.wrapping_mul(R::BLOCKS as u64)));
    // SAFETY: guaranteed by the caller; four blocks are at least one register.
    unsafe {
        let next = R::every(&next);
        let mut tweak = R::load([lane(0), lane(1), lane(2), lane(3)].as_ptr());
        let mut m = load::<R, N>(x);
        // Loops: a large closure would be compiled without the instruction sets.
        for m in &mut m {
            *m = m.xor(offset).sigma().xor(tweak);
            tweak = tweak.add(next);
        }
        m
    }
}

/// See [`super::Batch::groups`]. A half of the registers takes a whole group, or half of one.
#[inline(always)]
unsafe fn hash_groups<R: Register, const N: usize>(
    keys: &[Four],
    from: usize,
    tweaks: Tweaks,
    offsets: [Block; N],
    x: &[[Block; GROUP]],
    y: [&mut [[Block; GROUP]]; N],
) {
    let each = HALF * R::BLOCKS;
    let parts = GROUP / each;
    let halves = x.len() * N * parts;
    for first in (0..halves).step_by(2) {
        // Of an odd number the last is computed twice.
        let places = [first, (first + 1).min(halves - 1)].map(|half| {
            let (group, rest) = (half / (N * parts), half % (N * parts));
            (group, rest / parts, rest % parts * each)
        });
        let k = places.map(|(group, ..)| (&keys[(from + group) / 4], (from + group) % 4));
        // SAFETY: guaranteed by the caller.
        unsafe {
            let mut m = [[R::zero(); HALF]; 2];
            for (m, (group, offset, at)) in m.iter_mut().zip(places) {
                let tweak = tweaks.first.wrapping_add(tweaks.group.wrapping_mul(group as u64));
                let tweak = tweak.wrapping_add(tweaks.input.wrapping_mul(at as u64));
                *m = relabelled(&x[group][at..], R::every(&offsets[offset]), tweak, tweaks.input);
            }
            let s = feed_forward(k, m);
            for ((group, offset, at), s) in places.into_iter().zip(&s) {
                store(s, &mut y[offset][group][at..]);
            }
        }
    }
}

/// π(m) ⊕ m of two halves, each under its key: one of four.
#[inline(always)]
unsafe fn feed_forward<R: Register>(k: [(&Four, usize); 2], m: [[R; HALF]; 2]) -> [[R; HALF]; 2] {
    let mut s = m;
    // SAFETY: guaranteed by the caller.
    unsafe {
        for round in 0..11 {
            for (s, (four, lane)) in s.iter_mut().zip(k) {
                let k = R::every(&four[round][lane]);
                s.iter_mut().for_each(|s| *s = step(*s, round, k));
            }
        }
        for (s, m) in s.as_flattened_mut().iter_mut().zip(m.as_flattened()) {
            *s = s.xor(*m);
        }
    }
    s
}

/// Step number `round` of eleven of the cipher.
#[inline(always)]
unsafe fn step<R: Register>(s: R, round: usize, k: R) -> R {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match round {
            0 => s.xor(k),
            10 => s.last(k),
            _ => s.round(k),
        }
    }
}

/// See [`super::Batch::each`], for one key per input: a register of keys is applied to one of inputs.
#[inline(always)]
unsafe fn hash_each_alone<R: Register>(keys: &[Four], first: u64, x: &[Block], y: &mut [Block]) {
    let each = REGS * R::BLOCKS;
    let (mut padded, mut hashed) = ([Block::ZERO; MOST], [Block::ZERO; MOST]);
    for (chunk, (x, y)) in x.chunks(each).zip(y.chunks_mut(each)).enumerate() {
        let whole = x.len() == each;
        if !whole {
            padded[..x.len()].copy_from_slice(x);
        }
        let keys = &keys[chunk * each / 4..];
        let mut fours = [&keys[0]; REGS];
        for (i, four) in fours.iter_mut().enumerate() {
            *four = &keys[(i * R::BLOCKS / 4).min(keys.len() - 1)];
        }
        let tweak = first.wrapping_add((chunk * each) as u64);
        // SAFETY: guaranteed by the caller; the last keys of a batch are repeated, and a register of keys is a part of
        // four.
        unsafe {
            let m = relabelled::<R, REGS>(if whole { x } else { &padded }, R::zero(), tweak, 1);
            let mut s = m;
            for round in 0..11 {
                for (i, (s, four)) in s.iter_mut().zip(fours).enumerate() {
                    *s = step(*s, round, R::load(four[round].as_ptr().add(i * R::BLOCKS % 4)));
                }
            }
            for (s, m) in s.iter_mut().zip(&m) {
                *s = s.xor(*m);
            }
            store(&s, if whole { &mut *y } else { &mut hashed });
        }
        if !whole {
            y.copy_from_slice(&hashed[..y.len()]);
            Block::wipe(&mut padded);
            Block::wipe(&mut hashed);
        }
    }
}

#[inline(always)]
unsafe fn half_tree_level<R: Register>(
    keys: &[Four],
    g: usize,
    nodes: &mut [Block],
    fix_at: u64,
    fix: Block,
) -> LevelSums {
    let each = REGS * R::BLOCKS;
    if !(nodes.len() / 2).is_multiple_of(each) {
        // The top of a tree.
        // SAFETY: guaranteed by the caller.
        return unsafe { super::aesni::half_tree_level(keys, g, nodes, fix_at, fix) };
    }
    let k = key(keys, g);
    // SAFETY: guaranteed by the caller.
    unsafe {
        // A place is compared in both words of a block.
        let both = |word: u64| Block(u128::from(word) << 64 | u128::from(word));
        let (fix, fix_at) = (R::every(&fix), R::every(&both(fix_at)));
        let next = R::every(&both(R::BLOCKS as u64));
        let (mut left_sum, mut all_sum) = (R::zero(), R::zero());
        // From the top down, so that no parent is overwritten before it was read.
        let mut end = nodes.len() / 2;
        while end > 0 {
            let begin = end - each;
            let lane = |r: usize| both((begin + r) as u64);
            let mut at = R::load([lane(0), lane(1), lane(2), lane(3)].as_ptr());
            let mut p = load::<R, REGS>(&nodes[begin..end]);
            let mut m = p;
            for (p, m) in p.iter_mut().zip(&mut m) {
                *p = p.xor(at.where_equal(fix_at, fix));
                at = at.add(next);
                *m = p.sigma();
            }
            let mut s = m;
            permute(&k, &mut s);
            let children = nodes[2 * begin..2 * end].chunks_exact_mut(2 * R::BLOCKS);
            for (children, (s, (m, p))) in children.zip(s.iter().zip(m.iter().zip(&p))) {
                let left = s.xor(*m);
                left_sum = left_sum.xor(left);
                all_sum = all_sum.xor(*p);
                store(&R::in_turn(left, left.xor(*p)), children);
            }
            end = begin;
        }
        LevelSums { left: fold(left_sum), all: fold(all_sum) }
    }
}

/// XOR of a register's blocks.
#[inline(always)]
unsafe fn fold<R: Register>(v: R) -> Block {
    let mut four = [Block::ZERO; 4];
    // SAFETY: guaranteed by the caller; a register has at most four blocks.
    unsafe { v.store(four.as_mut_ptr()) };
    four[0] ^ four[1] ^ four[2] ^ four[3]
}
