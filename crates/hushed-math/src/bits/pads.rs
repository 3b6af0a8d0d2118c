//! The hash that turns correlated blocks into pads, re-keyed as it goes: `H(i, x) = π(σ(x) ⊕ i) ⊕ σ(x) ⊕ i`,
//! `σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi`, π = AES-128 under a public key that changes with i.
//!
//! Under one key this is the circular correlation robust `MMO(x) = π(σ(x)) ⊕ σ(x)` of Guo, Katz, Wang and Yu (S&P 2020;
//! one permutation, σ a linear orthomorphism) at an input relabelled by i. The tweak only makes equal blocks at
//! different indices of a key hash differently. It is no hash for chosen inputs: with σ(x) ⊕ σ(y) = i ⊕ j the hashes of
//! x ⊕ Δ at i and of y ⊕ Δ at j are equal. So inputs must be pseudo-random and not chosen by anybody: they are blocks
//! of OT extensions whose code and keys are drawn after the receiver's last message, so that a receiver that cheats has
//! to find such a pair by chance, 2^106 tries for the 2^22 pairs of an extension.
//!
//! **Why keys change.** The receiver of a correlated OT knows b and may know H(i, b ⊕ Δ): a target. Under a single key,
//! computing π(z) ⊕ z for random z hits one of T targets after 2^128/T calls and reveals Δ, which breaks every OT of
//! its direction; an inference has 10^9 (Guo, Katz, Wang, Weng, Yu, CRYPTO 2020, on multi-instance security). With at
//! most T targets per key, a call helps against only T of them, and security is 128 − log2(T) bits. Keys are AES(seed;
//! places ‖ use ‖ number) for a public seed that both parties draw afresh for each session and direction.
//!
//! | use | inputs per key | targets |
//! |---|---|---|
//! | [`PadHash::pads`] | sixteen consecutive indices | [`TARGETS_A_KEY`] = 16 |
//! | [`PadHash::tables`] | sixteen places of one table or of several, all of which may be known | 8 to 15 |
//! | a level of a tree ([`super::HalfTree`]) | the nodes of that level | 1 |
//!
//! In trees the lsb of Δ is known as well, which costs one bit.

use super::Block;
use super::aes::{AesKey, Batch, GROUP, KEYS, Tweaks};
use crate::machine::cpu::Cpu;
use std::sync::Arc;

/// Maximum number of targets per pad key.
pub const TARGETS_A_KEY: usize = GROUP;

/// Maximum number of places per table.
pub const TABLE: usize = GROUP;

/// What a key is used for; part of its derivation.
#[derive(Clone, Copy)]
enum Use {
    Pads = 1,
    Tables = 2,
}

/// The hash under the keys of one public seed.
#[derive(Clone)]
pub struct PadHash {
    seed: Arc<AesKey>,
    cpu: Cpu,
}

impl PadHash {
    /// The hash under a public seed that both parties draw for this session and this use.
    pub fn new(seed: [u8; 16]) -> PadHash {
        PadHash::with_cpu(seed, Cpu::get())
    }

    fn with_cpu(seed: [u8; 16], cpu: Cpu) -> PadHash {
        PadHash { seed: Arc::new(AesKey::with_cpu(Block::from_bytes(seed), cpu)), cpu }
    }

    /// `out[o][j] = H(first + j, input[j] ⊕ offsets[o])`, for one offset or two.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn pads<const N: usize>(&self, first: u64, offsets: [Block; N], input: &[Block], mut out: [&mut [Block]; N]) {
        assert!(out.iter().all(|out| input.len() == out.len()), "hash input and output lengths");
        let mut work = self.work();
        let (mut at, mut done) = (first, 0);
        while done < input.len() {
            let skip = (at % GROUP as u64) as usize;
            let now = (KEYS * GROUP - skip).min(input.len() - done);
            let x = &input[done..][..now];
            let y = out.each_mut().map(|y| &mut y[done..][..now]);
            work.pads_of_keys(at, offsets, x, y);
            at += now as u64;
            done += now;
        }
    }

    /// `out[i][j] = H(first + i, input[i] ⊕ offsets[j])`; places beyond the offsets are not to be used. A key serves
    /// 16/places tables of `places` places.
    ///
    /// # Panics
    /// If `input` and `out` differ in length, or the number of offsets is not a power of two up to [`TABLE`].
    pub fn tables(&self, first: u64, offsets: &[Block], input: &[Block], out: &mut [[Block; TABLE]]) {
        assert_eq!(input.len(), out.len(), "hash input and output lengths");
        let (places, share) = (offsets.len(), tables_a_key(offsets.len()));
        let mut work = self.work();
        let mut inputs = [[Block::ZERO; GROUP]; KEYS];
        let mut hashed = inputs;
        let (mut at, mut done) = (first, 0);
        while done < input.len() {
            let skip = (at % share as u64) as usize;
            let now = (KEYS * share - skip).min(input.len() - done);
            let groups = (skip + now).div_ceil(share);
            work.take_keys(Use::Tables, places, at / share as u64, groups);
            let slots = inputs.as_flattened_mut()[skip * places..].chunks_exact_mut(places);
            for ((slot, x), index) in slots.zip(&input[done..][..now]).zip(at..) {
                let x = *x ^ tweak_before_sigma(index);
                for (place, offset) in slot.iter_mut().zip(offsets) {
                    *place = x ^ *offset;
                }
            }
            let (inputs, hashed) = (&inputs[..groups], &mut hashed[..groups]);
            work.keys.groups(0, NO_TWEAKS, [Block::ZERO], inputs, [hashed]);
            let slots = hashed.as_flattened()[skip * places..].chunks_exact(places);
            for (y, slot) in out[done..][..now].iter_mut().zip(slots) {
                y[..places].copy_from_slice(slot);
            }
            at += now as u64;
            done += now;
        }
        // Two places of a table differ by a multiple of delta.
        Block::wipe(inputs.as_flattened_mut());
        Block::wipe(hashed.as_flattened_mut());
    }

    /// `out[i] = H(first + i, input[i])` under the keys of [`PadHash::tables`] with `places` places: the one place that
    /// a chooser can read.
    ///
    /// # Panics
    /// If the lengths differ, or `places` is not a power of two up to [`TABLE`].
    pub fn places(&self, first: u64, places: usize, input: &[Block], out: &mut [Block]) {
        assert_eq!(input.len(), out.len(), "hash input and output lengths");
        let share = tables_a_key(places);
        let mut work = self.work();
        let (mut at, mut done) = (first, 0);
        while done < input.len() {
            let skip = (at % share as u64) as usize;
            let now = (KEYS * share - skip).min(input.len() - done);
            let groups = (skip + now).div_ceil(share);
            work.take_keys(Use::Tables, places, at / share as u64, groups);
            let (x, y) = (&input[done..][..now], &mut out[done..][..now]);
            work.keys.each(at, share, skip, x, y);
            at += now as u64;
            done += now;
        }
    }

    fn work(&self) -> Work<'_> {
        Work { seed: &self.seed, keys: Batch::new(self.cpu) }
    }
}

/// Tables of `places` places that share a key: together they have fewer than [`TARGETS_A_KEY`] unknown places.
fn tables_a_key(places: usize) -> usize {
    assert!(places.is_power_of_two() && places <= TABLE, "places of a table");
    TABLE / places
}

/// For inputs that already contain their tweaks.
const NO_TWEAKS: Tweaks = Tweaks { first: 0, group: 0, input: 0 };

/// σ⁻¹(index): σ is linear, so an input XORed with it hashes as under this tweak.
#[inline(always)]
fn tweak_before_sigma(index: u64) -> Block {
    Block((u128::from(index) << 64) | u128::from(index))
}

/// The state of a call: its current keys.
struct Work<'a> {
    seed: &'a AesKey,
    keys: Batch,
}

impl Work<'_> {
    /// Derives keys number `first` to `first + count` of a use. Tables of different sizes count their keys separately,
    /// by their `places` (0 for pads): a key that served both would have the targets of both.
    fn take_keys(&mut self, of: Use, places: usize, first: u64, count: usize) {
        let mut keys = [Block::ZERO; KEYS];
        let keys = &mut keys[..count];
        let start = (places as u128) << 96 | (of as u128) << 64 | u128::from(first);
        self.seed.counter(start, keys);
        self.keys.expand(keys);
    }

    /// Computes the pads of the inputs from index `at` on, which fall under at most [`KEYS`] keys: up to a multiple of
    /// sixteen, then whole groups, then the rest.
    fn pads_of_keys<const N: usize>(&mut self, at: u64, offsets: [Block; N], x: &[Block], mut y: [&mut [Block]; N]) {
        let skip = (at % GROUP as u64) as usize;
        let start = at - skip as u64;
        let keys = (skip + x.len()).div_ceil(GROUP);
        self.take_keys(Use::Pads, 0, start / GROUP as u64, keys);
        let tweaks = |key: usize| Tweaks { first: start + (key * GROUP) as u64, group: GROUP as u64, input: 1 };
        let mut done = 0;
        while done < x.len() {
            let (key, place) = ((skip + done) / GROUP, (skip + done) % GROUP);
            let left = x.len() - done;
            if place == 0 && left >= GROUP {
                let now = left / GROUP * GROUP;
                let x = x[done..][..now].as_chunks().0;
                let y = y.each_mut().map(|y| y[done..][..now].as_chunks_mut().0);
                self.keys.groups(key, tweaks(key), offsets, x, y);
                done += now;
                continue;
            }
            let now = (GROUP - place).min(left);
            let mut padded = [Block::ZERO; GROUP];
            let mut hashed = [[Block::ZERO; GROUP]; N];
            padded[place..][..now].copy_from_slice(&x[done..][..now]);
            let into = hashed.each_mut().map(core::slice::from_mut);
            self.keys.groups(key, tweaks(key), offsets, &[padded], into);
            for (y, hashed) in y.iter_mut().zip(&hashed) {
                y[done..][..now].copy_from_slice(&hashed[place..][..now]);
            }
            Block::wipe(&mut padded);
            Block::wipe(hashed.as_flattened_mut());
            done += now;
        }
    }
}

#[cfg(test)]
mod tests;
