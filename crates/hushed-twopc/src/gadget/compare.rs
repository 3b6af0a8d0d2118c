//! The most significant bit of a shared value, and comparison with public thresholds.
//!
//! x = x_c + x_s mod 2^ℓ. The top bit of x is the XOR of the two top bits and the carry out of the lower m = ℓ − 1
//! bits. There are two ways to compute the carry.
//!
//! **A chain** of look-ups ([`super::chain`]) takes the fewest OTs.
//!
//! **A tree** over bits takes the fewest rounds. With g_i = a_i ∧ b_i (a bit of each party: one OT) and p_i = a_i ⊕ b_i
//! (local), the carry is the combination of all (g, p) under (g, p)∘(g′, p′) = (g ⊕ p·g′, p·p′), computed by a tree of
//! depth ⌈log₂ m⌉ that merges neighbours. The two ANDs of a node share the factor p, so a node costs 3 opened bits per
//! party, and 2 where p·p′ is not needed: at the lowest place of each level (Brent–Kung carry look-ahead; GMW on silent
//! triples as in SecONNds).
//!
//! | ℓ = 17 | rounds | bits per element | OTs |
//! |---|---|---|---|
//! | chain | 6 | 95 | 20 |
//! | tree | 5 | 114 | 46 |
//!
//! Trees over leaves of several bits, each leaf compared and tested for equality, are not used: they are the subject of
//! a patent (US 12346830). The session's [`Link`] chooses between the two. All elements go through together, 64 per
//! word.

use super::chain::{self, Places};
use super::planes::{bit_planes, plane_share, planes};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most};
use crate::link::Link;
use crate::ot::triple;
use crate::share::{BitShare, Ring, SecretWords, Share};

/// On a LAN, from this many elements on a comparison is a chain, whatever its rounds.
const MANY: usize = 4096;

/// Whether `n` elements with `places` bits below the highest go through a chain.
fn chained(link: &Link, n: usize, places: usize) -> bool {
    if places < 2 {
        return false;
    }
    if link.is_lan() {
        return n >= MANY || chain::rounds(places) <= tree_rounds(places);
    }
    let words = n.div_ceil(64);
    link.price(&chain::carries_cost(words, Places::carry_out(places))) <= link.price(&tree_cost(words, places))
}

fn tree_rounds(places: usize) -> u64 {
    1 + u64::from(places.next_power_of_two().ilog2())
}

/// Cost of [`msb`] for `n` elements of `bits` bits.
pub fn msb_cost(link: &Link, n: usize, bits: u32) -> Cost {
    let (words, places) = (n.div_ceil(64), bits as usize - 1);
    match chained(link, n, places) {
        true => chain::carries_cost(words, Places::carry_out(places)),
        false => tree_cost(words, places),
    }
}

fn tree_cost(words: usize, mut places: usize) -> Cost {
    let mut cost = triple::and_private_cost(words * places);
    while places > 1 {
        let nodes = places / 2;
        cost = cost + triple::and_words_cost(words * nodes, words * (nodes - 1));
        places = places.div_ceil(2);
    }
    cost
}

/// The most significant bit of x mod 2^ℓ, exact: 1 if x is negative as a signed number.
pub fn msb(ctx: &mut Ctx, x: &Share) -> Result<BitShare, TwopcError> {
    let words = x.len().div_ceil(64);
    let own = bit_planes(x.words(), x.ring().bits());
    let (low, top) = own.split_at(own.len() - words);
    let top = plane_share(top, x.len());
    if low.is_empty() {
        return Ok(top);
    }
    let places = low.len() / words;
    let carry = match chained(&ctx.link(), x.len(), places) {
        true => chain::carries(ctx, low, words, Places::carry_out(places))?.swap_remove(0),
        false => {
            let g = triple::and_private(ctx, low)?;
            carry_out(ctx, g, low.to_vec().into(), words)?
        }
    };
    Ok(top.xor(&BitShare::new(carry.into_words(), x.len())))
}

/// The carry out of planes (g, p), lowest first, `words` words each.
fn carry_out(ctx: &mut Ctx, mut g: SecretWords, mut p: SecretWords, words: usize) -> Result<SecretWords, TwopcError> {
    while g.len() > words {
        let places = g.len() / words;
        let nodes = places / 2;
        // The lowest node, the only one without a second product, comes last.
        let order = || (1..nodes).chain([0]);
        let p_high = planes(&p, words, order().map(|k| 2 * k + 1));
        let g_low = planes(&g, words, order().map(|k| 2 * k));
        let p_low = planes(&p, words, (1..nodes).map(|k| 2 * k));
        let (pg, pp) = triple::and_words(ctx, &p_high, &g_low, &p_low)?;
        let mut next_g = SecretWords::from(vec![0u64; places.div_ceil(2) * words]);
        let mut next_p = next_g.clone();
        for (at, k) in order().enumerate() {
            let high = &g[(2 * k + 1) * words..(2 * k + 2) * words];
            let products = &pg[at * words..(at + 1) * words];
            let out = &mut next_g[k * words..(k + 1) * words];
            for (out, (h, z)) in out.iter_mut().zip(high.iter().zip(products)) {
                *out = h ^ z;
            }
        }
        // Place 0 of p is never read: its node is never the higher one of a pair.
        next_p[words..nodes * words].copy_from_slice(&pp);
        if places % 2 == 1 {
            let (from, to) = ((places - 1) * words, nodes * words);
            next_g[to..].copy_from_slice(&g[from..]);
            next_p[to..].copy_from_slice(&p[from..]);
        }
        (g, p) = (next_g, next_p);
    }
    Ok(g)
}

/// Cost of [`less_than_public`] for `n` elements of `ring` and `thresholds` thresholds.
pub fn less_than_public_cost(
    link: &Link,
    n: usize,
    ring: Ring,
    thresholds: usize,
    (drop_bits, keep_bits): (u32, u32),
) -> Cost {
    msb_cost(link, n * thresholds, keep_bits.min(ring.bits() - drop_bits))
}

/// For each threshold t the bits 1{x < t}, with x and t signed; all thresholds go through in the same rounds.
///
/// Each party drops the `drop_bits` lowest bits of its share of x − t and keeps the next `keep_bits` (fewer if the ring
/// has fewer). The caller guarantees that |x − t| + 2^drop_bits < 2^(drop_bits + keep_bits − 1), or that only the
/// lowest bits are dropped. With d = `drop_bits` the answer is right unless |x − t| < 2^(d−1). In that interval it is 1
/// with a probability that falls from 1 to 0, ½ at x = t. With d = 0 it is exact.
///
/// # Errors
/// [`TwopcError::Misuse`] unless `drop_bits` is below ℓ and `keep_bits` at least 1.
pub fn less_than_public(
    ctx: &mut Ctx,
    x: &Share,
    thresholds: &[i64],
    drop_bits: u32,
    keep_bits: u32,
) -> Result<Vec<BitShare>, TwopcError> {
    let (n, me) = (x.len(), ctx.party());
    let differences: Vec<Share> = thresholds
        .iter()
        .map(|t| x.add_public(me, t.wrapping_neg()))
        .map(|d| coarse(ctx, &d, drop_bits, keep_bits))
        .collect::<Result<_, _>>()?;
    let Some(first) = differences.first() else {
        return Ok(Vec::new());
    };
    let all = Share::concat(first.ring(), &differences.iter().collect::<Vec<_>>());
    let less = msb(ctx, &all)?;
    let part = |k: usize| less.slice(k * n..(k + 1) * n);
    Ok((0..thresholds.len()).map(part).collect())
}

/// Shares of x/2^d − ½ (d = `drop_bits`; x itself for d = 0) in a ring of `keep_bits` bits, with unbiased random
/// rounding: the sign is that of x unless |x| < 2^(d−1). Local.
///
/// The two floors lose (f_c + f_s)/2^d with f_c + f_s in 0 ..= 2^(d+1) − 2; adding 2^d − 1 back makes the sum the floor
/// or the ceiling of the quotient. Subtracting 2^(d−1) first centres the interval in which the sign is random.
pub(super) fn coarse(ctx: &Ctx, x: &Share, drop_bits: u32, keep_bits: u32) -> Result<Share, TwopcError> {
    let bits = x.ring().bits();
    let name = "comparison";
    expect_at_most(name, "drop_bits", drop_bits.into(), u64::from(bits) - 1)?;
    expect_at_least(name, "keep_bits", keep_bits.into(), 1)?;
    // 2^d − 1 − 2^(d−1), and 0 for d = 0.
    let up = ((1u64 << drop_bits) >> 1).saturating_sub(1);
    let x = x.add_public(ctx.party(), up as i64);
    let words = x.words().iter().map(|w| w >> drop_bits).collect();
    let ring = Ring::new(keep_bits.min(bits - drop_bits));
    Ok(Share::new(ring, words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal_bits, run_counted, share, share_signed};
    use hushed_math::rng::SecretRng;

    #[test]
    fn msb_is_exact_in_every_ring() {
        let mut rng = SecretRng::insecure_from_seed(9);
        for bits in 1..=64 {
            let ring = Ring::new(bits);
            let top = 1u64 << (bits - 1);
            let mut values = vec![0, 1, top, top.wrapping_sub(1), top.wrapping_add(1), u64::MAX];
            values.extend((0..70).map(|_| rng.next_u64()));
            let values: Vec<u64> = values.into_iter().map(|v| ring.reduce(v)).collect();
            let (x0, x1) = share(ring, &values, u64::from(bits));
            let (b0, b1, stats) = run_counted(|ctx| msb(ctx, &x0).unwrap(), |ctx| msb(ctx, &x1).unwrap());
            assert_cost(&stats, msb_cost(&Link::LAN, values.len(), bits));
            let want: Vec<u64> = values.iter().map(|v| ring.top_bit(*v)).collect();
            assert_eq!(reveal_bits(&b0, &b1), want, "{bits} bits");
        }
    }

    #[test]
    fn msb_of_many_is_exact() {
        let ring = Ring::new(23);
        let mut rng = SecretRng::insecure_from_seed(10);
        let values: Vec<u64> = (0..MANY + 3).map(|_| ring.reduce(rng.next_u64())).collect();
        let (x0, x1) = share(ring, &values, 6);
        let (b0, b1, stats) = run_counted(|ctx| msb(ctx, &x0).unwrap(), |ctx| msb(ctx, &x1).unwrap());
        assert_cost(&stats, msb_cost(&Link::LAN, values.len(), 23));
        let want: Vec<u64> = values.iter().map(|v| ring.top_bit(*v)).collect();
        assert_eq!(reveal_bits(&b0, &b1), want);
    }

    #[test]
    fn msb_of_lopsided_shares() {
        // Carries that run through all places, and shares that are all zeros or all ones.
        let ring = Ring::new(37);
        let edges = [0, 1, ring.mask(), ring.mask() >> 1, 1 << 36];
        let pairs: Vec<(u64, u64)> = edges.iter().flat_map(|a| edges.iter().map(|b| (*a, *b))).collect();
        let x0 = Share::new(ring, pairs.iter().map(|p| p.0).collect());
        let x1 = Share::new(ring, pairs.iter().map(|p| p.1).collect());
        let (b0, b1, _) = run_counted(|ctx| msb(ctx, &x0).unwrap(), |ctx| msb(ctx, &x1).unwrap());
        let sum = |p: &(u64, u64)| ring.top_bit(ring.reduce(p.0.wrapping_add(p.1)));
        assert_eq!(reveal_bits(&b0, &b1), pairs.iter().map(sum).collect::<Vec<_>>());
    }

    #[test]
    fn formula_of_the_header() {
        for (n, bits, rounds, cots) in [(MANY, 95, 6, 20), (64, 114, 5, 46)] {
            let (cost, words) = (msb_cost(&Link::LAN, n, 17), n.div_ceil(64) as u64);
            assert_eq!((cost.bytes(), cost.rounds), (8 * words * bits, rounds));
            assert_eq!(cost.cots_client + cost.cots_server, 64 * words * cots);
        }
    }

    #[test]
    fn thresholds_exact_when_nothing_is_dropped() {
        let ring = Ring::new(24);
        let thresholds = [-5, 0, 1000];
        let values: Vec<i64> = (-70..70).chain([990, 999, 1000, 1001, -4000, 4000]).collect();
        let (x0, x1) = share_signed(ring, &values, 3);
        let (b0, b1, stats) = run_counted(
            |ctx| less_than_public(ctx, &x0, &thresholds, 0, 16).unwrap(),
            |ctx| less_than_public(ctx, &x1, &thresholds, 0, 16).unwrap(),
        );
        assert_cost(&stats, less_than_public_cost(&Link::LAN, values.len(), ring, 3, (0, 16)));
        for ((b0, b1), t) in b0.iter().zip(&b1).zip(thresholds) {
            let want: Vec<u64> = values.iter().map(|v| u64::from(*v < t)).collect();
            assert_eq!(reveal_bits(b0, b1), want, "threshold {t}");
        }
    }

    #[test]
    fn coarse_thresholds_err_only_close_by_and_to_both_sides() {
        let (ring, drop, keep) = (Ring::new(32), 6, 18);
        let t = 12_345;
        let values: Vec<i64> = (-6000..6000).map(|k| t + k / 50).collect();
        let (x0, x1) = share_signed(ring, &values, 4);
        let (b0, b1, _) = run_counted(
            |ctx| less_than_public(ctx, &x0, &[t], drop, keep).unwrap(),
            |ctx| less_than_public(ctx, &x1, &[t], drop, keep).unwrap(),
        );
        let mut wrong = [0, 0];
        for (v, less) in values.iter().zip(reveal_bits(&b0[0], &b1[0])) {
            if less != u64::from(*v < t) {
                assert!((v - t).abs() < 1 << (drop - 1), "{v}");
                wrong[usize::from(*v < t)] += 1;
            }
        }
        assert!(wrong.iter().all(|w| *w > 50), "{wrong:?}");
    }

    #[test]
    fn domains_are_checked() {
        let x = Share::zero(Ring::new(8), 3);
        run_counted(
            |ctx| {
                assert!(less_than_public(ctx, &x, &[0], 8, 4).is_err());
                assert!(less_than_public(ctx, &x, &[0], 0, 0).is_err());
                assert!(less_than_public(ctx, &x, &[], 0, 8).unwrap().is_empty());
            },
            |_| (),
        );
    }
}
