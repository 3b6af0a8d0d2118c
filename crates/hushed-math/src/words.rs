//! Words on the heap that begin at a cache line: vector loads of a limb then never touch two lines.
//!
//! Large buffers are recycled: a megabyte fresh from the system costs a page fault every four kilobytes, which together
//! take longer than a transform of the same words. Up to [`IDLE_BYTES`] of dropped buffers wait for their next owner.
//! Secrets are erased before they are dropped ([`crate::SecretPoly`]), so nothing secret waits there.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroize;

/// One cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// Most bytes that wait for reuse.
const IDLE_BYTES: usize = 1 << 30;

/// Least lines of a buffer worth keeping: the allocator itself keeps smaller ones.
const LEAST_LINES: usize = 1 << 9;

/// Dropped buffers, oldest first.
struct Idle {
    buffers: VecDeque<Vec<Line>>,
    bytes: usize,
}

static IDLE: Mutex<Idle> = Mutex::new(Idle {
    buffers: VecDeque::new(),
    bytes: 0,
});

/// A fixed number of words, aligned to 64 bytes.
pub(crate) struct Words {
    lines: Vec<Line>,
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
        let count = length.div_ceil(8);
        let lines = recycled(count).unwrap_or_else(|| vec![Line::default(); count]);
        Words { lines, length }
    }

    /// A copy of `words`.
    pub(crate) fn copy_of(words: &[u64]) -> Words {
        let mut copy = Words::scratch(words.len());
        copy.copy_from_slice(words);
        copy
    }

    /// Forgets the words from `length` on, if there are any.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.length = self.length.min(length);
    }
}

/// A waiting buffer of `count` lines, or not much larger: the one dropped last, which may still be in the cache.
fn recycled(count: usize) -> Option<Vec<Line>> {
    if count < LEAST_LINES {
        return None;
    }
    // No step of a change to the list can panic.
    let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
    let fits = |lines: &Vec<Line>| (count..=count + count / 8).contains(&lines.capacity());
    let place = idle.buffers.iter().rposition(fits)?;
    let mut lines = idle.buffers.remove(place)?;
    idle.bytes -= bytes(&lines);
    drop(idle);
    lines.resize(count, Line::default());
    Some(lines)
}

fn bytes(lines: &Vec<Line>) -> usize {
    lines.capacity() * size_of::<Line>()
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.lines.capacity() < LEAST_LINES {
            return;
        }
        let lines = std::mem::take(&mut self.lines);
        let mut idle = IDLE.lock().unwrap_or_else(PoisonError::into_inner);
        idle.bytes += bytes(&lines);
        idle.buffers.push_back(lines);
        let mut surplus = Vec::new();
        while idle.bytes > IDLE_BYTES
            && let Some(oldest) = idle.buffers.pop_front()
        {
            idle.bytes -= bytes(&oldest);
            surplus.push(oldest);
        }
        // Given back to the system only now that others can get at the list.
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
        // SAFETY: `lines` owns at least `length` consecutive initialised words (`repr(C)`, no padding: 64 bytes of
        // words at an alignment of 64).
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.length) }
    }
}

impl DerefMut for Words {
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `deref`, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.length) }
    }
}

impl Zeroize for Words {
    fn zeroize(&mut self) {
        (**self).zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_aligned_and_as_long_as_asked() {
        for length in [0, 1, 7, 8, 9, 1000, 4095, 4096, 5000, 4700, 100_000] {
            for _ in 0..3 {
                let source: Vec<u64> = (0..length as u64).collect();
                let mut words = Words::copy_of(&source);
                assert_eq!(*words, source[..]);
                assert!(length == 0 || (words.as_ptr() as usize).is_multiple_of(64));
                assert_eq!(*words.clone(), source[..]);
                words.truncate(length / 2);
                assert_eq!(*words, source[..length / 2]);
                words.zeroize();
                assert!(words.iter().all(|&w| w == 0));
            }
            // A buffer that held other words before is zero where zeros are asked for.
            assert!(Words::zero(length).iter().all(|&w| w == 0));
            assert_eq!(Words::zero(length).len(), length);
        }
    }
}
