//! Helpers for this module's tests.

/// q0 of 50 bits and `levels` moduli near 2^40, alternately below and above as in parameter sets. Not all are prime,
/// which does not matter here.
pub(super) fn chain(levels: usize) -> Vec<u64> {
    let near = |i: u64| {
        let step = 131_072 * (i / 2 + 1);
        if i.is_multiple_of(2) { (1 << 40) - step + 1 } else { (1 << 40) + step + 1 }
    };
    std::iter::once((1 << 50) - 131_071).chain((0..levels as u64).map(near)).collect()
}

/// `count` evenly spaced values from `low` to `high`, both included.
pub(super) fn spread(low: f64, high: f64, count: u32) -> Vec<f64> {
    let at = |i: u32| low + (high - low) * f64::from(i) / f64::from(count - 1);
    (0..count).map(at).collect()
}
