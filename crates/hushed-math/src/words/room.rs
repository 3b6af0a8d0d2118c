//! Working memory for computations. Fresh memory from the system must first be cleared page by page, which takes longer
//! than most of the work done in it; so dropped memory is kept for the next owner, whatever that is.

use super::Words;
use zeroize::Zeroize;

/// Words of a limb of degree 2^16; such limbs come from slabs ([`super::slab`]).
const PIECE: usize = 1 << 16;

/// Scratch words of a computation, kept from one use to the next. They are not erased.
#[derive(Default)]
pub struct Room {
    words: Option<Words>,
}

impl Room {
    /// An empty room.
    #[must_use]
    pub fn new() -> Room {
        Room::default()
    }

    /// Number of words held.
    pub(crate) fn length(&self) -> usize {
        self.words.as_ref().map_or(0, |words| words.len())
    }

    /// `length` words, of arbitrary content unless the room already held as many.
    pub fn words(&mut self, length: usize) -> &mut [u64] {
        if self.length() < length {
            // The old buffer may serve for the new words.
            self.words = None;
        }
        let words = self.words.get_or_insert_with(|| Words::scratch(length));
        &mut words[..length]
    }
}

impl Zeroize for Room {
    fn zeroize(&mut self) {
        self.words.zeroize();
    }
}

/// Lists of words, all of one length and of arbitrary content at first, side by side in buffers as long as a limb of
/// degree 2^16, which polynomials of that degree use as well. They may be secret and are erased on drop.
pub struct Lists {
    pieces: Vec<Words>,
    /// Lists per piece.
    each: usize,
    length: usize,
    count: usize,
}

impl Lists {
    /// `count` lists of `length` words.
    #[must_use]
    pub fn new(count: usize, length: usize) -> Lists {
        let each = (PIECE / length.max(1)).max(1);
        let piece = if length > PIECE { length } else { PIECE };
        let pieces = (0..count.div_ceil(each)).map(|_| Words::scratch(piece));
        Lists { pieces: pieces.collect(), each, length, count }
    }

    /// A single list.
    pub(crate) fn one(words: Words) -> Lists {
        Lists { each: 1, length: words.len(), count: 1, pieces: vec![words] }
    }

    /// Number of lists.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Words per list.
    #[must_use]
    pub fn length(&self) -> usize {
        self.length
    }

    /// List number `i`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn get(&self, i: usize) -> &[u64] {
        assert!(i < self.count, "list {i} of {}", self.count);
        let first = i % self.each * self.length;
        &self.pieces[i / self.each][first..first + self.length]
    }

    /// All lists, for writing.
    pub fn all_mut(&mut self) -> Vec<&mut [u64]> {
        if self.length == 0 {
            return (0..self.count).map(|_| &mut [][..]).collect();
        }
        let pieces = self.pieces.iter_mut();
        let lists = pieces.flat_map(|piece| piece.chunks_exact_mut(self.length).take(self.each));
        lists.take(self.count).collect()
    }
}

impl Drop for Lists {
    fn drop(&mut self) {
        self.pieces.iter_mut().for_each(Zeroize::zeroize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_apart_and_keep_what_is_written() {
        for (count, length) in [(0, 5), (3, 0), (1, 1), (700, 1000), (3, PIECE), (2, PIECE + 8)] {
            let mut lists = Lists::new(count, length);
            assert_eq!(lists.all_mut().len(), count);
            for (i, list) in lists.all_mut().into_iter().enumerate() {
                assert_eq!(list.len(), length);
                list.fill(i as u64);
            }
            for i in 0..count {
                assert!(lists.get(i).len() == length && lists.get(i).iter().all(|&w| w == i as u64));
            }
        }
    }

    #[test]
    fn a_room_keeps_its_words_until_more_are_asked_for() {
        let mut room = Room::new();
        room.words(5000).fill(7);
        assert!(room.words(4000).iter().all(|&w| w == 7));
        assert_eq!(room.words(1 << 18).len(), 1 << 18);
        assert!(room.words(0).is_empty());
    }
}
