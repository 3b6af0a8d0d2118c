//! The bits of a shared value, prefix-OR, and the position of its highest one.
//!
//! Bits: x_c + x_s by a carry look-ahead adder over (g, p) = (a ∧ b, a ⊕ b) of single bits, with all carries from
//! Sklansky's prefix tree: ⌈log₂ m⌉ levels of at most m/2 nodes for m = ℓ − 1 places. Meant for few elements (one sum
//! per row), where rounds are what counts. Prefix-OR is the same tree over ANDs of complements.

use super::compare::{less_than_public, less_than_public_cost};
use super::planes::{bit_planes, plane_share, planes};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_len};
use crate::link::Link;
use crate::ot::triple;
use crate::share::{BitShare, Ring, SecretWords, Share};

/// One level of a prefix tree. In node (i, j) place i absorbs the span of place j. The `open` nodes, whose own span
/// does not reach place 0 yet, come first.
struct Level {
    nodes: Vec<(usize, usize)>,
    open: usize,
}

/// Sklansky's tree over `places` places, as far as the prefixes of the places from `first` on need it. At span s the
/// places with bit s set absorb the finished block before theirs.
fn sklansky(places: usize, first: usize) -> Vec<Level> {
    let spans = std::iter::successors(Some(1), |s| Some(2 * s)).take_while(|s| *s < places);
    let mut needed: Vec<bool> = (0..places).map(|i| i >= first).collect();
    let mut level = |span: usize| {
        let active = (0..places).filter(|i| i & span != 0 && needed[*i]);
        let nodes: Vec<(usize, usize)> = active.map(|i| (i, i / span * span - 1)).collect();
        nodes.iter().for_each(|(_, j)| needed[*j] = true);
        let (open, closed): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|(i, _)| *i >= 2 * span);
        let count = open.len();
        Level { nodes: [open, closed].concat(), open: count }
    };
    // What a level needs follows from the levels after it.
    let spans: Vec<usize> = spans.collect();
    let mut levels: Vec<Level> = spans.into_iter().rev().map(&mut level).collect();
    levels.reverse();
    levels
}

/// Cost of [`to_bits`] of `n` elements of `bits` bits.
pub fn to_bits_cost(n: usize, bits: u32) -> Cost {
    bits_from_cost(n, bits, 0)
}

/// Cost of [`bits_from`].
pub(super) fn bits_from_cost(n: usize, bits: u32, low: u32) -> Cost {
    let words = n.div_ceil(64);
    let places = bits as usize - 1;
    let tree = sklansky(places, (low as usize).saturating_sub(1));
    let tree = tree.iter().map(|level| triple::and_words_cost(words * level.nodes.len(), words * level.open));
    triple::and_private_cost(words * places) + tree.sum()
}

/// The bits of x mod 2^ℓ, least significant first: ℓ vectors of n bits. Exact.
pub fn to_bits(ctx: &mut Ctx, x: &Share) -> Result<Vec<BitShare>, TwopcError> {
    bits_from(ctx, x, 0)
}

/// The bits of x mod 2^ℓ from place `low` < ℓ on: ℓ − `low` vectors. Exact.
pub(super) fn bits_from(ctx: &mut Ctx, x: &Share, low: u32) -> Result<Vec<BitShare>, TwopcError> {
    let bits = x.ring().bits();
    let (n, words) = (x.len(), x.len().div_ceil(64));
    let own = bit_planes(x.words(), bits);
    let places = bits as usize - 1;
    let below = &own[..places * words];
    let mut g = triple::and_private(ctx, below)?;
    let mut p = SecretWords::from(below.to_vec());
    for Level { nodes, open } in sklansky(places, (low as usize).saturating_sub(1)) {
        let p_high = planes(&p, words, nodes.iter().map(|(i, _)| *i));
        let g_low = planes(&g, words, nodes.iter().map(|(_, j)| *j));
        let p_low = planes(&p, words, nodes[..open].iter().map(|(_, j)| *j));
        let (pg, pp) = triple::and_words(ctx, &p_high, &g_low, &p_low)?;
        for (at, (i, _)) in nodes.iter().enumerate() {
            for k in 0..words {
                g[i * words + k] ^= pg[at * words + k];
                if at < open {
                    p[i * words + k] = pp[at * words + k];
                }
            }
        }
    }
    let bit = |i: usize| {
        let plane = plane_share(&own[i * words..(i + 1) * words], n);
        match i {
            0 => plane,
            _ => plane.xor(&plane_share(&g[(i - 1) * words..i * words], n)),
        }
    };
    Ok((low as usize..=places).map(bit).collect())
}

/// Cost of [`prefix_or`] of `places` vectors of `n` bits.
pub fn prefix_or_cost(n: usize, places: usize) -> Cost {
    let words = n.div_ceil(64);
    let levels = sklansky(places, 0);
    let nodes = levels.iter().map(|level| level.nodes.len());
    nodes.map(|n| triple::and_words_cost(words * n, 0)).sum()
}

/// y_i = bits_i ∨ bits_{i+1} ∨ … ∨ the last, from the highest place down.
///
/// # Errors
/// [`TwopcError::Misuse`] unless all vectors have the same length.
pub fn prefix_or(ctx: &mut Ctx, bits: &[BitShare]) -> Result<Vec<BitShare>, TwopcError> {
    let me = ctx.party();
    let n = bits.first().map_or(0, BitShare::len);
    for b in bits {
        expect_len("prefix_or", "bits", b.len(), n)?;
    }
    // none[k]: no one bit among the k highest places so far.
    let mut none: Vec<BitShare> = bits.iter().rev().map(|b| b.not_by(me)).collect();
    for Level { nodes, .. } in sklansky(bits.len(), 0) {
        let side = |places: &mut dyn Iterator<Item = usize>| {
            let mut words = SecretWords::with_room(nodes.len() * n.div_ceil(64));
            places.for_each(|k| words.extend_from_slice(none[k].words()));
            words
        };
        let x = side(&mut nodes.iter().map(|(i, _)| *i));
        let y = side(&mut nodes.iter().map(|(_, j)| *j));
        let (z, _) = triple::and_words(ctx, &x, &y, &[])?;
        let planes = z.chunks(n.div_ceil(64).max(1));
        for ((i, _), plane) in nodes.iter().zip(planes) {
            none[*i] = plane_share(plane, n);
        }
    }
    Ok(none.iter().rev().map(|b| b.not_by(me)).collect())
}

/// On a LAN, up to this many elements [`leading_one`] compares with all powers of two at once.
const FEW: usize = 16;

/// Whether [`leading_one`] compares `n` elements of `ring` with all powers of two at once.
fn compared(link: &Link, n: usize, ring: Ring) -> bool {
    match link.is_lan() {
        true => n <= FEW,
        false => link.price(&compared_cost(link, n, ring)) <= link.price(&highest_one_cost(n, ring.bits())),
    }
}

fn compared_cost(link: &Link, n: usize, ring: Ring) -> Cost {
    less_than_public_cost(link, n, ring, ring.bits() as usize - 1, (0, ring.bits()))
}

/// Cost of [`leading_one`] of `n` elements of `ring`.
pub fn leading_one_cost(link: &Link, n: usize, ring: Ring) -> Cost {
    match compared(link, n, ring) {
        true => compared_cost(link, n, ring),
        false => highest_one_cost(n, ring.bits()),
    }
}

/// [`highest_one`] for integers in 0 .. 2^(ℓ−1): ℓ − 1 vectors. Comparing with all powers of two at once takes half the
/// rounds and, for few elements, no more bytes than mostly empty bit planes.
///
/// # Errors
/// [`TwopcError::Misuse`] in a ring of fewer than two bits.
pub fn leading_one(ctx: &mut Ctx, x: &Share) -> Result<Vec<BitShare>, TwopcError> {
    let places = x.ring().bits() as usize - 1;
    expect_at_least("leading_one", "places", places as u64, 1)?;
    if !compared(&ctx.link(), x.len(), x.ring()) {
        let mut hot = highest_one(ctx, x)?;
        hot.truncate(places);
        return Ok(hot);
    }
    let powers: Vec<i64> = (0..places).map(|k| 1 << k).collect();
    let below = less_than_public(ctx, x, &powers, 0, x.ring().bits())?;
    let mut hot = edges(&below);
    if let Some(last) = hot.last_mut() {
        *last = last.not_by(ctx.party());
    }
    Ok(hot)
}

/// Cost of [`highest_one`] of `n` elements of `bits` bits.
pub fn highest_one_cost(n: usize, bits: u32) -> Cost {
    to_bits_cost(n, bits) + prefix_or_cost(n, bits as usize)
}

/// For each x (an integer in 0 .. 2^ℓ) the one-hot vector of its highest one bit: ℓ vectors of n bits, least
/// significant place first; all zero for x = 0. Exact.
pub fn highest_one(ctx: &mut Ctx, x: &Share) -> Result<Vec<BitShare>, TwopcError> {
    let bits = to_bits(ctx, x)?;
    Ok(edges(&prefix_or(ctx, &bits)?))
}

/// Each vector ⊕ the next one, and the last as it is.
fn edges(vectors: &[BitShare]) -> Vec<BitShare> {
    let pairs = vectors.windows(2).map(|pair| pair[0].xor(&pair[1]));
    pairs.chain(vectors.last().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal_bits, run_counted, share, share_bits};
    use hushed_math::rng::SecretRng;

    fn values(ring: Ring) -> Vec<u64> {
        let mut rng = SecretRng::insecure_from_seed(u64::from(ring.bits()));
        let powers = (0..ring.bits()).map(|k| 1u64 << k);
        let random = (0..70).map(|k| ring.reduce(rng.next_u64()) >> (k % ring.bits()));
        let edges = [0, ring.mask(), ring.mask() >> 1];
        edges.into_iter().chain(powers).chain(random).collect()
    }

    #[test]
    fn bits_and_the_highest_one() {
        for bits in [1, 2, 3, 17, 32, 37, 64] {
            let ring = Ring::new(bits);
            let x = values(ring);
            let (x0, x1) = share(ring, &x, 1);
            let (b0, b1, stats) = run_counted(|ctx| to_bits(ctx, &x0).unwrap(), |ctx| to_bits(ctx, &x1).unwrap());
            assert_cost(&stats, to_bits_cost(x.len(), bits));
            assert_eq!(b0.len(), bits as usize);
            for (j, (b0, b1)) in b0.iter().zip(&b1).enumerate() {
                let want: Vec<u64> = x.iter().map(|x| (x >> j) & 1).collect();
                assert_eq!(reveal_bits(b0, b1), want, "bit {j} of {bits}");
            }
            let (h0, h1, stats) =
                run_counted(|ctx| highest_one(ctx, &x0).unwrap(), |ctx| highest_one(ctx, &x1).unwrap());
            assert_cost(&stats, highest_one_cost(x.len(), bits));
            for (j, (h0, h1)) in h0.iter().zip(&h1).enumerate() {
                let at = |x: &u64| u64::from(*x != 0 && 63 - x.leading_zeros() == j as u32);
                assert_eq!(reveal_bits(h0, h1), x.iter().map(at).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn the_leading_one_of_few_and_of_many() {
        for bits in [2, 3, 23, 34, 64] {
            let ring = Ring::new(bits);
            let half = values(ring).into_iter().map(|x| x & (ring.mask() >> 1));
            let x: Vec<u64> = half.collect();
            for x in [&x[..1], &x[..FEW], &x[x.len() - FEW..], &x[..FEW + 1], &x[..]] {
                let (x0, x1) = share(ring, x, 1);
                let (h0, h1, stats) =
                    run_counted(|ctx| leading_one(ctx, &x0).unwrap(), |ctx| leading_one(ctx, &x1).unwrap());
                assert_cost(&stats, leading_one_cost(&Link::LAN, x.len(), ring));
                assert_eq!(h0.len(), bits as usize - 1);
                for (j, (h0, h1)) in h0.iter().zip(&h1).enumerate() {
                    let at = |x: &u64| u64::from(*x != 0 && 63 - x.leading_zeros() == j as u32);
                    assert_eq!(reveal_bits(h0, h1), x.iter().map(at).collect::<Vec<_>>());
                }
            }
        }
        let few = leading_one_cost(&Link::LAN, 1, Ring::new(34));
        let planes = highest_one_cost(1, 34);
        assert!(few.rounds + 6 == planes.rounds && few.bytes() < planes.bytes());
    }

    #[test]
    fn prefix_or_of_any_number_of_places() {
        let mut rng = SecretRng::insecure_from_seed(5);
        for places in [0, 1, 2, 5, 8, 9] {
            let x: Vec<Vec<u64>> =
                (0..places).map(|_| (0..90).map(|_| u64::from(rng.next_u64().is_multiple_of(5))).collect()).collect();
            let shares: Vec<_> = x.iter().zip(1..).map(|(b, seed)| share_bits(b, seed)).collect();
            let (s0, s1): (Vec<_>, Vec<_>) = shares.into_iter().unzip();
            let (y0, y1, stats) = run_counted(|ctx| prefix_or(ctx, &s0).unwrap(), |ctx| prefix_or(ctx, &s1).unwrap());
            assert_cost(&stats, prefix_or_cost(if places == 0 { 0 } else { 90 }, places));
            for i in 0..places {
                let want = (0..90).map(|k| x[i..].iter().map(|b| b[k]).max().unwrap());
                assert_eq!(reveal_bits(&y0[i], &y1[i]), want.collect::<Vec<_>>());
            }
        }
    }
}
