//! Exact rounding to nearest, before a value is revealed.
//!
//! With y = x + 2^(s−1) and c the carry out of the s lowest bits of y's shares, in a ring of k ≤ ℓ − s bits,
//!
//! > ⌊y/2^s⌋ = ⌊y_c/2^s⌋ + ⌊y_s/2^s⌋ + c mod 2^k.
//!
//! [`truncate`](super::truncate()) and [`narrow`](crate::func::narrow) leave out c. They are off by one where the
//! shares' low bits happen to carry, and a party knows its own low bits. A party that sees the result therefore learns
//! the carry, which compares the low bits of x with a number it knows. One value reveals x to within a unit at a known
//! offset; fresh sharings of the same value, as when a text is sent again, reveal all of x. Within a run this does no
//! harm, because nobody sees the result.
//!
//! Here the result is a function of x alone. The carry comes from a comparison ([`msb`] of the low bits with a zero
//! above them) and becomes a number by [`bit_to_arith`]; both show a party only uniform bits. So an opening
//! ([`open_rounded`]) sends y' − y'_own for the exact y', which its receiver could have computed itself from y' and its
//! own share.
//!
//! Rounds and bits are those of [`msb`] of s + 1 bits, plus one round with k bits; an opening adds the check of the OTs
//! ([`CHECK_COST`]).

use super::compare::{msb, msb_cost};
use super::select::{bit_to_arith, bit_to_arith_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_most};
use crate::link::Link;
use crate::ot::CHECK_COST;
use crate::share::{Ring, Share};
use crate::wire::packed_len;
use hushed_net::Party;

/// Cost of [`round`] of `n` elements.
pub fn round_cost(link: &Link, n: usize, shift: u32, to: Ring) -> Cost {
    match shift {
        0 => Cost::ZERO,
        _ => msb_cost(link, n, shift + 1) + bit_to_arith_cost(n, to),
    }
}

/// ⌊x/2^shift + ½⌋ in the ring `to`, exact; `to` must be at least `shift` bits smaller than the ring of x.
///
/// # Errors
/// [`TwopcError::Misuse`] if `to` is too large.
pub fn round(ctx: &mut Ctx, x: &Share, shift: u32, to: Ring) -> Result<Share, TwopcError> {
    let bits = u64::from(x.ring().bits());
    let used = u64::from(shift) + u64::from(to.bits());
    expect_at_most("round", "bits of shift and result", used, bits)?;
    if shift == 0 {
        return Ok(x.reduce_to(to));
    }
    let y = x.add_public(ctx.party(), 1 << (shift - 1));
    let low = Ring::new(shift);
    let lows = y.words().iter().map(|w| low.reduce(*w));
    let lows = Share::new(Ring::new(shift + 1), lows.collect());
    let carry = msb(ctx, &lows)?;
    let carry = bit_to_arith(ctx, &carry, to)?;
    let floors = Share::new(to, y.words().iter().map(|w| w >> shift).collect());
    Ok(floors.add(&carry))
}

/// Cost of [`open_rounded`] of `n` elements to the client.
pub fn open_rounded_cost(link: &Link, n: usize, shift: u32, to: Ring) -> Cost {
    let opened = Cost::exchange(0, packed_len(n, to.bits()) as u64);
    round_cost(link, n, shift, to) + CHECK_COST + opened
}

/// Opens [`round`] of x to `who` alone, which learns that value and nothing about the bits below its last place.
pub fn open_rounded(
    ctx: &mut Ctx,
    who: Party,
    x: &Share,
    shift: u32,
    to: Ring,
) -> Result<Option<Vec<u64>>, TwopcError> {
    let rounded = round(ctx, x, shift, to)?;
    ctx.open_to(who, &rounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};
    use hushed_math::rng::SecretRng;

    fn nearest(ring: Ring, x: u64, shift: u32, to: Ring) -> u64 {
        let half = (1u128 << shift) >> 1;
        let y = (u128::from(x) + half) as u64;
        to.reduce(ring.reduce(y) >> shift)
    }

    #[test]
    fn exact_at_every_edge_of_shares_and_values() {
        for (bits, shift, to) in [
            (48, 23, 16),
            (48, 20, 28),
            (48, 0, 16),
            (8, 1, 7),
            (8, 7, 1),
            (64, 63, 1),
            (64, 1, 63),
            (64, 24, 40),
            (33, 9, 10),
        ] {
            let (ring, to) = (Ring::new(bits), Ring::new(to));
            let mut rng = SecretRng::insecure_from_seed(u64::from(bits + shift));
            let half = (1u64 << shift) >> 1;
            let unit = 1u64 << shift;
            let mut edges = vec![0, 1, half, half.wrapping_sub(1), half + 1, unit, unit - 1];
            edges.extend([ring.mask(), ring.mask() >> 1, ring.mask() - half]);
            edges.extend((0..20).map(|_| rng.next_u64()));
            // Every edge as a value, and every edge as the client's share of it.
            let pairs = edges.iter().flat_map(|x| edges.iter().map(|m| (*x, *m)));
            let (values, masks): (Vec<u64>, Vec<u64>) = pairs.unzip();
            let values: Vec<u64> = values.iter().map(|v| ring.reduce(*v)).collect();
            let rest = values.iter().zip(&masks).map(|(v, m)| v.wrapping_sub(*m));
            let server = Share::new(ring, rest.collect());
            let client = Share::new(ring, masks);
            let (a, b, stats) = run_counted(
                |ctx| round(ctx, &client, shift, to).unwrap(),
                |ctx| round(ctx, &server, shift, to).unwrap(),
            );
            assert_cost(&stats, round_cost(&Link::LAN, values.len(), shift, to));
            let want: Vec<u64> = values.iter().map(|v| nearest(ring, *v, shift, to)).collect();
            assert_eq!(reveal(&a, &b), want, "{bits} {shift} {to:?}");
        }
    }

    #[test]
    fn openings_cost_what_they_say_and_reach_one_party() {
        let (ring, to) = (Ring::new(48), Ring::new(16));
        let values: Vec<u64> = (0..384).map(|i| i << 17).collect();
        let (x0, x1) = share(ring, &values, 8);
        let open = |ctx: &mut Ctx, x: &Share| open_rounded(ctx, Party::Client, x, 23, to).unwrap();
        let (a, b, stats) = run_counted(|ctx| open(ctx, &x0), |ctx| open(ctx, &x1));
        let cost = open_rounded_cost(&Link::LAN, values.len(), 23, to);
        assert_cost(&stats, cost);
        // Seven for the carry, two for the check of the OTs, one for the words.
        assert_eq!(cost.rounds, 10);
        let want: Vec<u64> = values.iter().map(|v| nearest(ring, *v, 23, to)).collect();
        assert_eq!((a, b), (Some(want), None));
    }

    #[test]
    fn sizes_are_checked() {
        let x = Share::zero(Ring::new(16), 3);
        run_counted(|ctx| assert!(round(ctx, &x, 9, Ring::new(8)).is_err()), |_| ());
    }
}
