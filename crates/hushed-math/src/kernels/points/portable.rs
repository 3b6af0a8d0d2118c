//! The tile on 64-bit words, for any processor.

use super::panels::{GROUP, LEFT, RIGHT, Sums};
use crate::modulus::Modulus;

/// Sums of 128 bits: below q + 1024·q² < 2^111.
pub(super) fn tile(modulus: &Modulus, left: &[u64], right: &[u64], sums: &mut Sums) {
    let mut wide = [[0_u128; GROUP]; LEFT * RIGHT];
    let terms = left.chunks_exact(LEFT * GROUP);
    for (left, right) in terms.zip(right.chunks_exact(RIGHT * GROUP)) {
        for (left, wide) in left.chunks_exact(GROUP).zip(wide.chunks_exact_mut(RIGHT)) {
            for (right, wide) in right.chunks_exact(GROUP).zip(wide) {
                for ((sum, &l), &r) in wide.iter_mut().zip(left).zip(right) {
                    *sum += u128::from(l) * u128::from(r);
                }
            }
        }
    }
    for (sum, wide) in sums.iter_mut().flatten().zip(wide.iter().flatten()) {
        *sum = modulus.add(*sum, modulus.reduce_u128(*wide));
    }
}
