//! Heap words that begin at a cache line, so that vector loads of a limb never touch two lines.
//!
//! Large buffers are recycled: a fresh megabyte from the system costs a page fault every four kilobytes, which together
//! take longer than a transform of the same words. Limbs come from slabs ([`slab`]); of all other buffers, up to
//! [`IDLE_BYTES`] are kept for reuse after they are dropped. Keys ([`crate::SecretPoly`]), packed weights and the
//! scratch of their products, and encoded messages are erased, the whole buffer, before they are dropped. Other
//! polynomials are not: their owners erase what must not stay there.
//!
//! Large buffers also begin at a page of two megabytes and request such pages where Linux gives them on request: work
//! over many limbs otherwise spends a good part of its time on page lookups. They come from Linux directly ([`map`]):
//! allocators keep freed memory of such sizes in heaps of their own, whose holes fit nothing that comes later, so that
//! a run of a model held the memory of its hungriest step, and that of other steps too, until it ended.

use std::alloc::{alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use zeroize::{Zeroize, optimization_barrier};

use layout::{IDLE_BYTES, LINE, PAGE, layout};

/// Smallest buffer worth keeping, in bytes: the allocator itself keeps smaller ones.
const LEAST_BYTES: usize = 1 << 15;

/// Smallest buffer that [`Words::give_back`] returns, in bytes.
const RARE_BYTES: usize = 16 << 20;

mod layout;
pub(crate) mod room;
pub(crate) mod slab;

#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
mod map;
#[cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]
pub(crate) use map::zero_in_children;

/// On other systems large buffers come from the allocator too.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64", not(miri))))]
mod map {
    use std::alloc::{alloc_zeroed, dealloc};

    pub(super) fn zero(bytes: usize) -> *mut u8 {
        // SAFETY: a large buffer has a size.
        unsafe { alloc_zeroed(super::layout::layout(bytes)) }
    }

    /// # Safety
    /// `start` is from [`zero`] with the same length and is no longer used.
    pub(super) unsafe fn free(start: *mut u8, bytes: usize) {
        // SAFETY: allocated by `zero` with this layout.
        unsafe { dealloc(start, super::layout::layout(bytes)) }
    }
}

/// Owned, initialised memory.
struct Buffer {
    words: NonNull<u64>,
    bytes: usize,
}

// SAFETY: a buffer is memory that it alone owns.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer is only read.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `bytes` zero bytes: a nonzero multiple of a line, and not a length that slabs serve.
    fn zero(bytes: usize) -> Buffer {
        let layout = layout(bytes);
        let start = if bytes >= PAGE {
            map::zero(bytes)
        } else {
            // SAFETY: the layout has a size.
            unsafe { alloc_zeroed(layout) }
        };
        match NonNull::new(start.cast::<u64>()) {
            Some(words) => Buffer { words, bytes },
            None => handle_alloc_error(layout),
        }
    }

    /// A buffer of `bytes` initialised bytes: from a slab, recycled, or new.
    fn any(bytes: usize) -> Buffer {
        if slab::serves(bytes) {
            return match slab::take(bytes) {
                Some(words) => Buffer { words, bytes },
                None => handle_alloc_error(layout(bytes)),
            };
        }
        recycled(bytes).unwrap_or_else(|| Buffer::zero(bytes))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let start = self.words.as_ptr().cast();
        if slab::serves(self.bytes) {
            // SAFETY: taken by `any` with this length, and owned.
            unsafe { slab::give(self.words, self.bytes) };
        } else if self.bytes >= PAGE {
            // SAFETY: mapped by `zero` with this length, and owned.
            unsafe { map::free(start, self.bytes) };
        } else {
            // SAFETY: allocated by `zero` with this layout, and owned.
            unsafe { dealloc(start, layout(self.bytes)) };
        }
    }
}

/// Dropped buffers, oldest first.
struct Idle {
    buffers: VecDeque<Buffer>,
    bytes: usize,
}

static IDLE: Mutex<Idle> = Mutex::new(Idle { buffers: VecDeque::new(), bytes: 0 });

/// A fixed number of words, aligned to 64 bytes.
pub(crate) struct Words {
    /// None if there are no words.
    buffer: Option<Buffer>,
    length: usize,
}

impl Words {
    /// `length` zeros.
    pub(crate) fn zero(length: usize) -> Words {
        let mut words = Words::scratch(length);
        words.fill(0);
        words
    }

    /// `length` words of any content, to be overwritten.
    pub(crate) fn scratch(length: usize) -> Words {
        let Some(bytes) = length.checked_mul(8) else { panic!("{length} words are more than memory has") };
        let bytes = bytes.next_multiple_of(LINE);
        Words { buffer: (bytes > 0).then(|| Buffer::any(bytes)), length }
    }

    /// Returns a large buffer to the system instead of keeping it for reuse: for buffers that are large and rare.
    pub(crate) fn give_back(&mut self) {
        if self.buffer.as_ref().is_some_and(|b| b.bytes >= RARE_BYTES) {
            self.buffer = None;
            self.length = 0;
        }
    }

    /// A copy of `words`.
    pub(crate) fn copy_of(words: &[u64]) -> Words {
        let mut copy = Words::scratch(words.len());
        copy.copy_from_slice(words);
        copy
    }
}

/// The smallest kept buffer of at least `bytes` bytes, as scratch of every length comes and goes; among equals the one
/// dropped last, which may still be in cache.
fn recycled(bytes: usize) -> Option<Buffer> {
    if bytes < LEAST_BYTES {
        return None;
    }
    // No step of a change to the list can panic.
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let sizes = idle.buffers.iter().map(|buffer| buffer.bytes);
    let fit = sizes.enumerate().filter(|(_, size)| (bytes..=most(bytes)).contains(size));
    let (place, size) = fit.rev().min_by_key(|&(_, size)| size)?;
    let buffer = idle.buffers.remove(place)?;
    idle.bytes -= size;
    Some(buffer)
}

/// The longest buffer that may serve `bytes` bytes. Thousands of large ones live as long as a layer of a model, and
/// whatever they have beyond their words is memory that no plan counts.
fn most(bytes: usize) -> usize {
    bytes + if bytes < PAGE { bytes } else { bytes / 8 }
}

impl Drop for Words {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else {
            return;
        };
        if buffer.bytes < LEAST_BYTES || slab::serves(buffer.bytes) {
            return;
        }
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        idle.bytes += buffer.bytes;
        idle.buffers.push_back(buffer);
        let mut surplus = Vec::new();
        while idle.bytes > IDLE_BYTES
            && let Some(oldest) = idle.buffers.pop_front()
        {
            idle.bytes -= oldest.bytes;
            surplus.push(oldest);
        }
        // The surplus goes back to the system only now, with the list unlocked.
        drop(idle);
    }
}

impl Clone for Words {
    fn clone(&self) -> Words {
        Words::copy_of(self)
    }
}

impl Deref for Words {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        let Some(buffer) = &self.buffer else {
            return &[];
        };
        // SAFETY: the buffer owns at least `length` consecutive initialised words, aligned to a line.
        unsafe { std::slice::from_raw_parts(buffer.words.as_ptr(), self.length) }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        let Some(buffer) = &mut self.buffer else {
            return &mut [];
        };
        // SAFETY: as in `deref`, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(buffer.words.as_ptr(), self.length) }
    }
}

impl Zeroize for Words {
    /// Erases the whole buffer, which may be longer than the words. Not word by word as `zeroize` does, which takes a
    /// good part of the time of a transform.
    fn zeroize(&mut self) {
        if let Some(buffer) = &mut self.buffer {
            // SAFETY: the buffer owns `bytes` initialised bytes, a multiple of a line, aligned to one; the borrow is
            // exclusive.
            let all = unsafe { std::slice::from_raw_parts_mut(buffer.words.as_ptr(), buffer.bytes / 8) };
            all.fill(0);
            optimization_barrier(all);
        }
    }
}

#[cfg(test)]
mod tests;
