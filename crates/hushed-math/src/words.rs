//! Words on the heap that begin at a cache line: vector loads of a limb then never touch two lines.

use std::ops::{Deref, DerefMut};
use zeroize::Zeroize;

/// One cache line.
#[derive(Clone, Copy, Default)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// A fixed number of words, aligned to 64 bytes.
#[derive(Clone)]
pub(crate) struct Words {
    lines: Vec<Line>,
    length: usize,
}

impl Words {
    /// `length` zeros.
    pub(crate) fn zero(length: usize) -> Words {
        Words {
            lines: vec![Line::default(); length.div_ceil(8)],
            length,
        }
    }

    /// A copy of `words`.
    pub(crate) fn copy_of(words: &[u64]) -> Words {
        let mut copy = Words::zero(words.len());
        copy.copy_from_slice(words);
        copy
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
        for length in [0, 1, 7, 8, 9, 1000] {
            let source: Vec<u64> = (0..length as u64).collect();
            let mut words = Words::copy_of(&source);
            assert_eq!(*words, source[..]);
            assert!(length == 0 || (words.as_ptr() as usize).is_multiple_of(64));
            words.zeroize();
            assert!(words.iter().all(|&w| w == 0));
        }
    }
}
