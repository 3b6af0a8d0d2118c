//! Buffers as long as a limb, a power of two, from slabs of sixteen megabytes.
//!
//! Polynomials of a computation get shorter with every level, but their limbs keep their length: a dropped limb fits
//! the next polynomial, whatever its level. The limb reused next is the one used last, which may still be in cache.
//! Neighbouring limbs begin an odd number of lines apart modulo 4096 bytes: work that goes along many limbs at once
//! would otherwise find all of them in the same few cache sets.
//!
//! Slabs with no limb in use go back to the system once they hold more than [`IDLE_BYTES`], unless a [`KeepMemory`] is
//! alive.

use super::layout::{IDLE_BYTES, LINE, PAGE};
use super::map;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// log2 of the shortest buffers served, in bytes, of 4096 words: the allocator itself keeps smaller ones.
const LEAST: u32 = 15;
/// log2 of the longest, of 2^17 words.
const MOST: u32 = 20;
/// Bytes of limbs in a slab.
const SLAB: usize = 8 * PAGE;
/// Bytes of all gaps between them.
const GAPS: usize = 1 << 16;

/// Whether slabs serve buffers of `bytes` bytes.
pub(super) fn serves(bytes: usize) -> bool {
    bytes.is_power_of_two() && (LEAST..=MOST).contains(&bytes.trailing_zeros())
}

/// An initialised buffer of a length that slabs serve; None if the system has no memory.
pub(super) fn take(bytes: usize) -> Option<NonNull<u64>> {
    let mut all = lock();
    let Slabs { classes, whole, .. } = &mut *all;
    let class = &mut classes[number(bytes)];
    if class.waiting.is_empty() {
        class.grow(bytes)?;
        *whole += 1;
    }
    let limb = class.waiting.pop()?;
    let waiting = class.waiting_beside(limb)?;
    if *waiting == SLAB / bytes {
        *whole -= 1;
    }
    *waiting -= 1;
    Some(limb.0)
}

/// Takes a buffer back.
///
/// # Safety
/// `limb` is from [`take`] with the same length and is no longer used.
pub(super) unsafe fn give(limb: NonNull<u64>, bytes: usize) {
    let mut all = lock();
    let class = &mut all.classes[number(bytes)];
    class.waiting.push(Limb(limb));
    let Some(waiting) = class.waiting_beside(Limb(limb)) else {
        return;
    };
    *waiting += 1;
    if *waiting == SLAB / bytes {
        all.whole += 1;
        all.bound();
    }
}

/// While one is alive, no slab goes back to the system: for computations whose memory use rises and falls by gigabytes,
/// in a process whose peak is planned for. Getting a page back from the system costs more than a transform of its
/// words.
#[derive(Debug)]
pub struct KeepMemory(());

impl KeepMemory {
    /// Keeps memory from now on.
    #[must_use]
    pub fn new() -> KeepMemory {
        lock().keepers += 1;
        KeepMemory(())
    }
}

impl Default for KeepMemory {
    fn default() -> KeepMemory {
        KeepMemory::new()
    }
}

impl Drop for KeepMemory {
    fn drop(&mut self) {
        let mut all = lock();
        all.keepers -= 1;
        all.bound();
    }
}

/// Bytes of slabs with no limb in use.
#[cfg(test)]
pub(super) fn idle() -> usize {
    lock().whole * SLAB
}

#[derive(Clone, Copy)]
struct Limb(NonNull<u64>);

// SAFETY: the address of memory that is not in use.
unsafe impl Send for Limb {}

/// The slabs of one length.
struct Class {
    /// Free limbs, the one dropped last at the end.
    waiting: Vec<Limb>,
    /// Number of free limbs in each slab, by the address at which it begins.
    slabs: BTreeMap<usize, usize>,
}

struct Slabs {
    classes: [Class; (MOST - LEAST + 1) as usize],
    /// Number of slabs with no limb in use.
    whole: usize,
    keepers: usize,
}

static SLABS: Mutex<Slabs> = Mutex::new(Slabs {
    classes: [const { Class { waiting: Vec::new(), slabs: BTreeMap::new() } }; (MOST - LEAST + 1) as usize],
    whole: 0,
    keepers: 0,
});

fn lock() -> MutexGuard<'static, Slabs> {
    // No step of a change can panic.
    SLABS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn number(bytes: usize) -> usize {
    (bytes.trailing_zeros() - LEAST) as usize
}

/// Bytes from one limb to the next: a slab has room for `GAPS` bytes between its `SLAB / bytes` limbs, and taking off
/// one line per limb makes the number of lines odd.
fn stride(bytes: usize) -> usize {
    bytes + bytes * GAPS / SLAB - LINE
}

impl Class {
    /// Adds a slab of limbs, to be taken from the first on.
    fn grow(&mut self, bytes: usize) -> Option<()> {
        let start = NonNull::new(map::zero(SLAB + GAPS).cast::<u64>())?;
        let limbs = (0..SLAB / bytes).rev();
        // SAFETY: the limb lies in the slab.
        let limb = |i: usize| Limb(unsafe { start.byte_add(i * stride(bytes)) });
        self.waiting.extend(limbs.map(limb));
        self.slabs.insert(start.addr().get(), SLAB / bytes);
        Some(())
    }

    /// The number of free limbs in this limb's slab.
    fn waiting_beside(&mut self, limb: Limb) -> Option<&mut usize> {
        let until = self.slabs.range_mut(..=limb.0.addr().get());
        until.map(|(_, waiting)| waiting).next_back()
    }
}

impl Slabs {
    /// Returns slabs to the system until half of what may be kept is left, so that this happens rarely.
    fn bound(&mut self) {
        if self.keepers > 0 || self.whole * SLAB <= IDLE_BYTES {
            return;
        }
        for (log, class) in (LEAST..).zip(&mut self.classes) {
            let limbs = SLAB >> log;
            let spare = self.whole - IDLE_BYTES / 2 / SLAB;
            let whole = class.slabs.iter().filter(|(_, waiting)| **waiting == limbs);
            let going: Vec<usize> = whole.map(|(&start, _)| start).take(spare).collect();
            let goes = |limb: &Limb| {
                let at = limb.0.addr().get();
                let before = going.partition_point(|&start| start <= at);
                before > 0 && at - going[before - 1] < SLAB + GAPS
            };
            // The first limb of a slab has the pointer to all of it.
            let firsts: Vec<Limb> = (class.waiting.iter().copied())
                .filter(|limb| going.binary_search(&limb.0.addr().get()).is_ok())
                .collect();
            class.waiting.retain(|limb| !goes(limb));
            class.slabs.retain(|start, _| going.binary_search(start).is_err());
            self.whole -= going.len();
            for first in firsts {
                // SAFETY: mapped by `grow` with this length; its limbs were all free and are no longer listed.
                unsafe { map::free(first.0.as_ptr().cast(), SLAB + GAPS) };
            }
        }
    }
}
