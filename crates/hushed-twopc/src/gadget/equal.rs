//! Equality of shared values, exact.
//!
//! x = x_c + x_s is zero iff x_c = −x_s: all bits of x_c ⊕ (−x_s) are zero. The bits are local; their complements are ANDed in a
//! tree of depth ⌈log₂ ℓ⌉. Bits an element: 2(ℓ − 1) each way.

use super::planes::{bit_planes, plane_share};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::ot::triple;
use crate::share::{BitShare, SecretWords, Share};
use hushed_net::Party;

/// Cost of [`is_zero`] of `n` elements of `bits` bits.
pub fn is_zero_cost(n: usize, bits: u32) -> Cost {
    let (words, mut places) = (n.div_ceil(64), bits as usize);
    let mut cost = Cost::ZERO;
    while places > 1 {
        cost = cost + triple::and_words_cost(words * (places / 2), 0);
        places = places.div_ceil(2);
    }
    cost
}

/// 1{x = 0} for each element. Subtract first to compare two values.
///
/// # Errors
/// If the session fails.
pub fn is_zero(ctx: &mut Ctx, x: &Share) -> Result<BitShare, TwopcError> {
    let (n, words, bits) = (x.len(), x.len().div_ceil(64), x.ring().bits());
    let mut same = match ctx.party() {
        Party::Client => bit_planes(x.words(), bits),
        Party::Server => bit_planes(x.neg().words(), bits),
    };
    if ctx.party() == Party::Client {
        same.iter_mut().for_each(|w| *w = !*w);
    }
    while same.len() > words {
        let half = same.len() / words / 2 * words;
        let (a, rest) = same.split_at(half);
        let (b, odd) = rest.split_at(half);
        let (both, _) = triple::and_words(ctx, a, b, &[])?;
        same = SecretWords::from([both.as_slice(), odd].concat());
    }
    Ok(plane_share(&same, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Ring;
    use crate::testing::{assert_cost, reveal_bits, run_counted, share};

    #[test]
    fn zero_and_nothing_else() {
        for bits in [1, 2, 7, 16, 37, 64] {
            let ring = Ring::new(bits);
            let mut x: Vec<u64> = (0..bits).map(|j| 1 << j).collect();
            x.extend([0, ring.mask(), 0, ring.mask() >> 1, 0]);
            let (x0, x1) = share(ring, &x, u64::from(bits));
            let (b0, b1, stats) = run_counted(
                |ctx| is_zero(ctx, &x0).unwrap(),
                |ctx| is_zero(ctx, &x1).unwrap(),
            );
            assert_cost(&stats, is_zero_cost(x.len(), bits));
            let want: Vec<u64> = x.iter().map(|x| u64::from(*x == 0)).collect();
            assert_eq!(reveal_bits(&b0, &b1), want, "{bits} bits");
        }
    }
}
