//! What the tests of this module share.

/// q0 of 50 bits and `levels` primes near 2^40, above and below in turn as parameter sets have them. Not all are prime:
/// nobody here asks.
pub(super) fn chain(levels: usize) -> Vec<u64> {
    let near = |i: u64| {
        let step = 131_072 * (i / 2 + 1);
        if i.is_multiple_of(2) {
            (1 << 40) - step + 1
        } else {
            (1 << 40) + step + 1
        }
    };
    std::iter::once((1 << 50) - 131_071)
        .chain((0..levels as u64).map(near))
        .collect()
}

/// `count` values from `low` to `high`, both included.
pub(super) fn spread(low: f64, high: f64, count: u32) -> Vec<f64> {
    let at = |i: u32| low + (high - low) * f64::from(i) / f64::from(count - 1);
    (0..count).map(at).collect()
}
