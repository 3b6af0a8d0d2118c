//! The highest bits of a shared value, for many elements.
//!
//! A chain of look-ups ([`super::chain`]) gives the carry into the lowest wanted place and each one above it; a bit is
//! the XOR of the parties' bits and the carry into its place. A prefix tree over bits ([`to_bits`](super::to_bits))
//! takes three times the OTs and, for many bits, fewer rounds.

use super::chain;
use super::planes::{bit_planes, plane_share};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most};
use crate::share::{BitShare, Share};

/// Cost of [`top_bits`] for `n` elements of `bits` bits.
pub fn top_bits_cost(n: usize, bits: u32, count: u32) -> Cost {
    match bits {
        1 => Cost::ZERO,
        _ => chain::carries_cost(n.div_ceil(64), bits as usize - 1, (bits - count) as usize),
    }
}

/// The `count` highest bits of x mod 2^ℓ, least significant first, so that the sign comes last. Exact.
///
/// # Errors
/// [`TwopcError::Misuse`] unless `count` is 1 to ℓ.
pub fn top_bits(ctx: &mut Ctx, x: &Share, count: u32) -> Result<Vec<BitShare>, TwopcError> {
    let bits = x.ring().bits();
    expect_at_least("top_bits", "count", count.into(), 1)?;
    expect_at_most("top_bits", "count", count.into(), bits.into())?;
    let (n, words) = (x.len(), x.len().div_ceil(64));
    let own = bit_planes(x.words(), bits);
    let (places, first) = (bits as usize - 1, (bits - count) as usize);
    let carries = match places {
        0 => Vec::new(),
        _ => chain::carries(ctx, &own[..places * words], words, places, first)?,
    };
    let plane = |i: usize| plane_share(&own[i * words..(i + 1) * words], n);
    // Nothing is carried into place 0.
    let lowest = (first == 0).then(|| plane(0));
    let above = (first.max(1)..).zip(&carries);
    let above = above.map(|(i, carry)| plane(i).xor(&plane_share(carry, n)));
    Ok(lowest.into_iter().chain(above).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Ring;
    use crate::testing::{assert_cost, reveal_bits, run_counted, share};
    use hushed_math::rng::SecretRng;

    #[test]
    fn any_number_of_bits() {
        let mut rng = SecretRng::insecure_from_seed(3);
        for bits in [1, 2, 3, 5, 12, 13, 17, 32, 64] {
            let ring = Ring::new(bits);
            let edges = [0, ring.mask(), ring.mask() >> 1];
            let random = (0..150).map(|_| ring.reduce(rng.next_u64()));
            let x: Vec<u64> = edges.into_iter().chain(random).collect();
            let (x0, x1) = share(ring, &x, 1);
            for count in [1, bits.div_ceil(3), bits - bits / 4, bits] {
                let (t0, t1, stats) =
                    run_counted(|ctx| top_bits(ctx, &x0, count).unwrap(), |ctx| top_bits(ctx, &x1, count).unwrap());
                assert_cost(&stats, top_bits_cost(x.len(), bits, count));
                assert_eq!(t0.len(), count as usize);
                let low = bits - count;
                for (j, (t0, t1)) in t0.iter().zip(&t1).enumerate() {
                    let want: Vec<u64> = x.iter().map(|x| (x >> low >> j) & 1).collect();
                    assert_eq!(reveal_bits(t0, t1), want, "bit {j} of {count} of {bits}");
                }
            }
        }
    }

    #[test]
    fn how_many_bits_is_checked() {
        let x = Share::zero(Ring::new(8), 3);
        run_counted(|ctx| assert!(top_bits(ctx, &x, 0).is_err() && top_bits(ctx, &x, 9).is_err()), |_| ());
    }
}
