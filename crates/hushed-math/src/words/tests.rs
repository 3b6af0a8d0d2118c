use super::slab::KeepMemory;
use super::*;

#[test]
fn words_are_aligned_and_as_long_as_asked() {
    for length in [0, 1, 7, 8, 9, 1000, 4095, 4096, 5000, 4700, 8192, 65_536, 100_000, 131_072, 262_144, 300_000] {
        for _ in 0..3 {
            let source: Vec<u64> = (0..length as u64).collect();
            let mut words = Words::copy_of(&source);
            assert_eq!(*words, source[..]);
            assert!(length == 0 || (words.as_ptr() as usize).is_multiple_of(LINE));
            assert_eq!(*words.clone(), source[..]);
            words.zeroize();
            assert!(words.iter().all(|&w| w == 0));
        }
        // `zero` gives zeros even from a buffer that held other words.
        assert!(Words::zero(length).iter().all(|&w| w == 0));
        assert_eq!(Words::zero(length).len(), length);
    }
}

#[test]
fn a_buffer_longer_than_its_words_is_erased_to_its_end() {
    let mut words = Words::scratch(5000);
    words.fill(1);
    words.length = 1000;
    words.zeroize();
    words.length = 5000;
    assert!(words.iter().all(|&w| w == 0));
}

#[test]
fn only_long_buffers_are_given_back() {
    for (length, gone) in [(RARE_BYTES / 8, true), (RARE_BYTES / 8 - 8, false)] {
        let mut words = Words::zero(length);
        words.give_back();
        assert_eq!(words.is_empty(), gone, "{length}");
    }
}

/// No two limbs share a word, even across threads.
#[test]
fn limbs_of_slabs_are_their_owners_alone() {
    for length in [4096, 8192, 1 << 16] {
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let mut held: Vec<(u64, Words)> = Vec::new();
                    for i in 0..150 {
                        let value = i << 8 | thread;
                        let mut words = Words::scratch(length);
                        words.fill(value);
                        held.push((value, words));
                        if i % 3 == 2 {
                            let place = (i * 7 + thread) as usize % held.len();
                            let (value, words) = held.swap_remove(place);
                            assert!(words.iter().all(|&w| w == value));
                        }
                    }
                    for (value, words) in held {
                        assert!(words.iter().all(|&w| w == value));
                    }
                });
            }
        });
    }
}

#[test]
fn limbs_side_by_side_begin_in_different_sets() {
    let limbs: Vec<Words> = (0..600).map(|_| Words::scratch(1 << 16)).collect();
    let mut sets = [0; 64];
    for limb in &limbs {
        sets[limb.as_ptr() as usize / LINE % 64] += 1;
    }
    assert!(sets.iter().all(|&limbs| limbs < 600 / 8), "{sets:?}");
}

/// 1.5 GiB of address space, almost none of it touched, in limbs of a length that no other test of this process uses.
#[test]
fn slabs_that_nobody_uses_go_back_unless_they_are_kept() {
    let limbs = (IDLE_BYTES + IDLE_BYTES / 2) >> 20;
    let take = || (0..limbs).map(|_| Words::scratch(1 << 17)).collect::<Vec<_>>();
    let keep = KeepMemory::new();
    drop(take());
    assert!(slab::idle() >= IDLE_BYTES + IDLE_BYTES / 4);
    drop(keep);
    assert!(slab::idle() <= IDLE_BYTES);
    drop(take());
    assert!(slab::idle() <= IDLE_BYTES);
    // What went back can be taken again.
    for mut words in take() {
        words[0] = 1;
        words[(1 << 17) - 1] = 1;
    }
}
