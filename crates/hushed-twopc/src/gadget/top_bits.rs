//! The highest bits of a shared value, for many elements.
//!
//! A chain of look-ups ([`super::chain`]) gives the carry into the lowest wanted place and each one above it; a bit is
//! the XOR of the parties' bits and the carry into its place. A prefix tree over bits ([`to_bits`](super::to_bits()))
//! takes three times the OTs and, for many bits, fewer rounds. Digits of three bits take a round less for every six
//! wanted bits than digits of two, and half as many bytes again. The session's [`Link`] chooses.

use super::bits::{bits_from, bits_from_cost};
use super::chain::{self, Places, WANTED};
use super::planes::{bit_planes, plane_share};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most};
use crate::link::Link;
use crate::share::{BitShare, Share};

/// How the bits are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// By a chain with digits of as many bits.
    Chain(usize),
    /// By a prefix tree.
    Tree,
}

impl Form {
    const ALL: [Form; 3] = [Form::Chain(WANTED[0]), Form::Chain(WANTED[1]), Form::Tree];

    /// The form for `n` elements over a link.
    fn over(link: &Link, n: usize, bits: u32, count: u32) -> Form {
        let [usual, ..] = Form::ALL;
        let cheapest = || Form::ALL.into_iter().min_by_key(|form| link.price(&form.cost(n, bits, count)));
        match link.is_lan() || bits == 1 {
            true => usual,
            false => cheapest().unwrap_or(usual),
        }
    }

    fn cost(self, n: usize, bits: u32, count: u32) -> Cost {
        match self {
            _ if bits == 1 => Cost::ZERO,
            Form::Chain(width) => chain::carries_cost(n.div_ceil(64), places(bits, count, width)),
            Form::Tree => bits_from_cost(n, bits, bits - count),
        }
    }

    fn run(self, ctx: &mut Ctx, x: &Share, count: u32) -> Result<Vec<BitShare>, TwopcError> {
        let (bits, n, words) = (x.ring().bits(), x.len(), x.len().div_ceil(64));
        let Form::Chain(width) = self else {
            return bits_from(ctx, x, bits - count);
        };
        let own = bit_planes(x.words(), bits);
        let places = places(bits, count, width);
        let carries = match places.all {
            0 => Vec::new(),
            all => chain::carries(ctx, &own[..all * words], words, places)?,
        };
        let plane = |i: usize| plane_share(&own[i * words..(i + 1) * words], n);
        // Nothing is carried into place 0.
        let first = places.wanted;
        let lowest = (first == 0).then(|| plane(0));
        let above = (first.max(1)..).zip(&carries);
        let above = above.map(|(i, carry)| plane(i).xor(&plane_share(carry, n)));
        Ok(lowest.into_iter().chain(above).collect())
    }
}

fn places(bits: u32, count: u32, width: usize) -> Places {
    Places { all: bits as usize - 1, wanted: (bits - count) as usize, width }
}

/// Cost of [`top_bits`] for `n` elements of `bits` bits.
pub fn top_bits_cost(link: &Link, n: usize, bits: u32, count: u32) -> Cost {
    Form::over(link, n, bits, count).cost(n, bits, count)
}

/// The `count` highest bits of x mod 2^ℓ, least significant first, so that the sign comes last. Exact.
///
/// # Errors
/// [`TwopcError::Misuse`] unless `count` is 1 to ℓ.
pub fn top_bits(ctx: &mut Ctx, x: &Share, count: u32) -> Result<Vec<BitShare>, TwopcError> {
    let bits = x.ring().bits();
    expect_at_least("top_bits", "count", count.into(), 1)?;
    expect_at_most("top_bits", "count", count.into(), bits.into())?;
    Form::over(&ctx.link(), x.len(), bits, count).run(ctx, x, count)
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
                for form in Form::ALL {
                    let (t0, t1, stats) =
                        run_counted(|ctx| form.run(ctx, &x0, count).unwrap(), |ctx| form.run(ctx, &x1, count).unwrap());
                    assert_cost(&stats, form.cost(x.len(), bits, count));
                    assert_eq!(t0.len(), count as usize);
                    let low = bits - count;
                    for (j, (t0, t1)) in t0.iter().zip(&t1).enumerate() {
                        let want: Vec<u64> = x.iter().map(|x| (x >> low >> j) & 1).collect();
                        assert_eq!(reveal_bits(t0, t1), want, "bit {j} of {count} of {bits}, {form:?}");
                    }
                }
            }
        }
    }

    /// A LAN takes few bytes, a long round trip few messages.
    #[test]
    fn the_form_follows_the_link() {
        let of = |link: &Link| Form::over(link, 1 << 14, 13, 9);
        let far = Link::new(100_000, 1_000_000).unwrap();
        assert_eq!(of(&Link::LAN), Form::Chain(2));
        assert_ne!(of(&far), Form::Chain(2));
        assert!(top_bits_cost(&far, 1 << 14, 13, 9).rounds < top_bits_cost(&Link::LAN, 1 << 14, 13, 9).rounds);
    }

    #[test]
    fn how_many_bits_is_checked() {
        let x = Share::zero(Ring::new(8), 3);
        run_counted(|ctx| assert!(top_bits(ctx, &x, 0).is_err() && top_bits(ctx, &x, 9).is_err()), |_| ());
    }
}
