//! Picks one element from each of several shared vectors, at places that only the client knows.
//!
//! The client selects from its own shares itself. For the server's shares it gets new shares by look-ups in tables of
//! sixteen entries ([`tables`](super::tables)): the low four bits of a place choose one of every sixteen neighbours,
//! the next four one of sixteen of those; in the last stage tables have as many bits as the longest vector still needs.
//! All vectors go through together. Two messages per stage, ⌈log₁₆⌉ of the longest vector stages, and a little over ℓ
//! bits per element in all, whatever is picked.

use super::table::{listed, tables, tables_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_len};
use crate::share::{Ring, SecretWords, Share};
use hushed_math::bits::Mask;
use hushed_net::Party;
use zeroize::Zeroizing;

/// The most entries of a table.
const ENTRIES: usize = 16;

/// Cost of [`pick`].
pub fn pick_cost(lengths: &[usize], ring: Ring) -> Cost {
    let mut lengths = lengths.to_vec();
    let mut cost = Cost::ZERO;
    while let Some(Stage { bits, tables }) = stage(&mut lengths) {
        cost = cost + tables_cost(bits, tables, 0, ring);
    }
    cost
}

/// Of several vectors of these `lengths`, stored one after another in `x`, the element of each at the place that the
/// client passes in `places`, below the vector's length. The server's places are ignored. Exact.
///
/// # Errors
/// [`TwopcError::Misuse`] unless x has Σ `lengths` elements and the client passes a place for each vector.
pub fn pick(ctx: &mut Ctx, x: &Share, lengths: &[usize], places: &[u64]) -> Result<Share, TwopcError> {
    expect_len("pick", "elements", x.len(), lengths.iter().sum())?;
    let client = ctx.party() == Party::Client;
    if client {
        expect_len("pick", "places", places.len(), lengths.len())?;
    }
    let (mut lengths, mut x, ring) = (lengths.to_vec(), x.clone(), x.ring());
    let mut shift = 0;
    loop {
        let before = lengths.clone();
        let Some(Stage { bits, .. }) = stage(&mut lengths) else {
            return Ok(x);
        };
        let places_each = 1 << bits;
        let entries = tables_of(&x, &before, places_each);
        let index = |place: &u64| (place >> shift) as u8 & (places_each - 1) as u8;
        let of_vectors = before.iter().zip(places).filter(|(n, _)| **n > 1);
        let index: Zeroizing<Vec<u8>> = of_vectors
            .flat_map(|(n, place)| std::iter::repeat_n(index(place), n.div_ceil(places_each)))
            .collect::<Vec<_>>()
            .into();
        let (chosen, held): (&[u8], &[u64]) = match client {
            true => (&index, &[]),
            false => (&[], &entries),
        };
        let [chosen, held] = tables(ctx, bits, chosen, listed(bits, held), ring)?;
        // The client's own shares of the same elements.
        let own = entries.chunks_exact(places_each).zip(index.iter());
        let own = own.map(|(entries, index)| {
            let here = Mask::one_hot::<ENTRIES>(u64::from(*index));
            let words = entries.iter().zip(here);
            words.fold(0, |sum: u64, (x, here)| sum.wrapping_add(*x & here))
        });
        let found = match client {
            true => chosen.add(&Share::new(ring, own.collect())),
            false => held,
        };
        x = with_single(&x, &before, &found, places_each);
        shift += bits;
    }
}

/// Look-ups at once.
struct Stage {
    /// Bits of a place in a table.
    bits: u32,
    /// The number of tables.
    tables: usize,
}

/// Updates the lengths for the next stage and returns what it takes; `None` if all vectors have one element.
fn stage(lengths: &mut [usize]) -> Option<Stage> {
    let longest = lengths.iter().copied().max().filter(|n| *n > 1)?;
    let bits = longest.min(ENTRIES).next_power_of_two().ilog2();
    let mut tables = 0;
    for n in lengths.iter_mut().filter(|n| **n > 1) {
        *n = n.div_ceil(1 << bits);
        tables += *n;
    }
    Some(Stage { bits, tables })
}

/// The vectors of more than one element, cut into tables of so many places and padded with zeros.
fn tables_of(x: &Share, lengths: &[usize], places: usize) -> SecretWords {
    let tables = lengths.iter().filter(|n| **n > 1);
    let all = tables.map(|n| n.next_multiple_of(places)).sum();
    let mut entries = SecretWords::with_room(all);
    let mut rest = x.words();
    for &n in lengths {
        let (vector, later) = rest.split_at(n);
        rest = later;
        if n > 1 {
            let end = entries.len() + n.next_multiple_of(places);
            entries.extend_from_slice(vector);
            entries.resize(end, 0);
        }
    }
    entries
}

/// The elements found, with the vectors of one element put back in their places.
fn with_single(x: &Share, lengths: &[usize], found: &Share, places_each: usize) -> Share {
    let (mut at, mut next) = (0, x.len());
    let mut places = Vec::with_capacity(lengths.len());
    for &n in lengths {
        let of_this = match n {
            1 => at..at + 1,
            _ => next..next + n.div_ceil(places_each),
        };
        next += if n > 1 { of_this.len() } else { 0 };
        at += n;
        places.extend(of_this);
    }
    Share::concat(x.ring(), &[x, found]).gather(&places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};
    use hushed_math::rng::SecretRng;

    #[test]
    fn elements_are_picked_by_places_of_the_client() {
        for lengths in [vec![1], vec![2], vec![16, 17], vec![1, 300, 1, 256, 5], vec![4097, 2049, 2]] {
            let ring = Ring::new(20);
            let mut rng = SecretRng::insecure_from_seed(lengths.len() as u64);
            let n = lengths.iter().sum::<usize>();
            let x: Vec<u64> = (0..n).map(|_| ring.reduce(rng.next_u64())).collect();
            let (x0, x1) = share(ring, &x, 6);
            let mut any = |&n: &usize| rng.next_u64() % n as u64;
            let random: Vec<u64> = lengths.iter().map(&mut any).collect();
            let first = vec![0; lengths.len()];
            let last: Vec<u64> = lengths.iter().map(|n| *n as u64 - 1).collect();
            for places in [random, first, last] {
                let (y0, y1, stats) = run_counted(
                    |ctx| pick(ctx, &x0, &lengths, &places).unwrap(),
                    |ctx| pick(ctx, &x1, &lengths, &[]).unwrap(),
                );
                assert_cost(&stats, pick_cost(&lengths, ring));
                let mut start = 0;
                let want = lengths.iter().zip(&places).map(|(n, place)| {
                    start += n;
                    x[start - n + *place as usize]
                });
                assert_eq!(reveal(&y0, &y1), want.collect::<Vec<_>>());
            }
        }
    }

    /// What is left after tables of sixteen is looked up in tables no larger than it needs.
    #[test]
    fn the_last_tables_are_small() {
        let ring = Ring::new(40);
        for (length, stages) in [(64, [(4, 4), (2, 1)].as_slice()), (32, &[(4, 2), (1, 1)]), (8, &[(3, 1)])] {
            let cost: Cost = stages.iter().map(|(bits, count)| tables_cost(*bits, 10 * count, 0, ring)).sum();
            assert_eq!(pick_cost(&[length; 10], ring), cost, "{length}");
        }
    }

    #[test]
    fn lengths_and_places_are_checked() {
        let x = Share::zero(Ring::new(8), 5);
        run_counted(
            |ctx| {
                assert!(pick(ctx, &x, &[4], &[0]).is_err());
                assert!(pick(ctx, &x, &[5], &[]).is_err());
            },
            |ctx| assert!(pick(ctx, &x, &[6], &[]).is_err()),
        );
    }
}
