//! Hints to the caches, for work that knows what it reads next.

/// Asks for `words` to be brought to the second-level cache. A hint: it waits for nothing and changes no result.
///
/// The processor detects streams by itself, but anew on every page of memory; work that goes through many limbs in
/// short strips spends most of its time on those first words.
#[inline]
pub fn prefetch(words: &[u64]) {
    #[cfg(target_arch = "x86_64")]
    for line in words.chunks(8) {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: SSE is part of x86-64, and a prefetch of any address is a hint.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = words;
}
