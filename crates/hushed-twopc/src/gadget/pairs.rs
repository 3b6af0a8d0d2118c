//! The largest number of each row, exactly and in few messages. Within a group of numbers all pairs are compared at
//! once, and the group's largest is the one that wins all its comparisons (among equals, the first).
//!
//! Groups of two are a tournament, with ⌈log₂ k⌉ levels and k − 1 comparisons for k numbers; one group of all of them
//! is one level of k(k−1)/2. [`levels`] takes whatever costs least over the session's [`Link`].

use super::boolean::{all, all_cost};
use super::compare::{msb, msb_cost};
use super::select::{bit_to_arith, bit_to_arith_cost, client_chooses, mux, mux_cost};
use super::table::{tables, tables_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::link::Link;
use crate::share::{BitShare, Ring, Share};
use hushed_math::bits::Mask;
use std::collections::BTreeMap;

/// The largest group that is tried, besides the whole row: on a LAN, and elsewhere.
const GROUP: [usize; 2] = [4, 16];

/// The most numbers that are compared in all pairs: 2,016 of them.
const MOST: usize = 64;

/// The largest number of each row of `cols`, and the values carried with it: the first of `given` is compared, the
/// others are carried along.
pub(super) fn largest<const N: usize>(
    ctx: &mut Ctx,
    given: [Share; N],
    rows: usize,
    cols: usize,
) -> Result<[Share; N], TwopcError> {
    let (mut all_of, mut left) = (given, cols);
    let Some(ring) = all_of.first().map(Share::ring) else {
        return Ok(all_of);
    };
    for group in levels(&ctx.link(), rows, cols, ring, N) {
        let (groups, resting) = (left / group, left % group);
        let row = |r: usize, from: usize, to: usize| r * left + from..r * left + to;
        let places = |from: usize, to: usize| (0..rows).flat_map(move |r| row(r, from, to));
        let places: Vec<usize> = places(0, groups * group).collect();
        let grouped = all_of.each_ref().map(|x| x.gather(&places));
        let winners = best(ctx, grouped, rows * groups, group)?;
        // A row's winners, then those that sit this level out.
        let next = (0..rows).flat_map(|r| {
            let winners = r * groups..(r + 1) * groups;
            let rest = row(r, groups * group, left).map(move |at| rows * groups + at);
            winners.chain(rest)
        });
        let next: Vec<usize> = next.collect();
        all_of = std::array::from_fn(|k| Share::concat(all_of[k].ring(), &[&winners[k], &all_of[k]]).gather(&next));
        left = groups + resting;
    }
    Ok(all_of)
}

/// The cost of [`largest`], with `carried` vectors in `given`.
pub(super) fn largest_cost(link: &Link, rows: usize, cols: usize, ring: Ring, carried: usize) -> Cost {
    let (mut left, mut cost) = (cols, Cost::ZERO);
    for group in levels(link, rows, cols, ring, carried) {
        cost = cost + best_cost(link, rows * (left / group), group, ring, carried);
        left = left / group + left % group;
    }
    cost
}

/// The group size of each level, until one number per row is left.
fn levels(link: &Link, rows: usize, cols: usize, ring: Ring, carried: usize) -> Vec<usize> {
    let mut known = BTreeMap::from([(0, (0, 1)), (1, (0, 1))]);
    let [on_lan, elsewhere] = GROUP;
    let most = if link.is_lan() { on_lan } else { elsewhere };
    let price = |groups, group| link.price(&best_cost(link, rows * groups, group, ring, carried));
    cheapest(cols, most, &mut known, &price);
    let (mut left, mut levels) = (cols, Vec::new());
    while let Some(&(_, group)) = known.get(&left).filter(|_| left > 1) {
        levels.push(group);
        left = left / group + left % group;
    }
    levels
}

/// The least price for `left` numbers per row, and the group size to begin with.
fn cheapest(
    left: usize,
    most: usize,
    known: &mut BTreeMap<usize, (u64, usize)>,
    price: &impl Fn(usize, usize) -> u64,
) -> u64 {
    if let Some(&(found, _)) = known.get(&left) {
        return found;
    }
    let whole = Some(left).filter(|&all| all <= MOST);
    let sizes = (2..=most).filter(|&group| group <= left);
    let least = sizes.chain(whole).map(|group| {
        let (groups, resting) = (left / group, left % group);
        let now = price(groups, group);
        (now + cheapest(groups + resting, most, known, price), group)
    });
    let least = least.min().unwrap_or((0, 1));
    known.insert(left, least);
    least.0
}

/// The number of each row that wins all its comparisons, and the values carried with it.
fn best<const N: usize>(ctx: &mut Ctx, all_of: [Share; N], rows: usize, left: usize) -> Result<[Share; N], TwopcError> {
    let (x, ring) = (&all_of[0], all_of[0].ring());
    let of_rows = |k: usize| (0..rows).map(move |row| row * k);
    let places = |second: bool| -> Vec<usize> {
        let pair = (0..left).flat_map(|i| (i + 1..left).map(move |j| if second { j } else { i }));
        let pair: Vec<usize> = pair.collect();
        let row = |start| pair.iter().map(move |at| start + at);
        of_rows(left).flat_map(row).collect()
    };
    let apart = x.gather(&places(false)).sub(&x.gather(&places(true)));
    // Whether the first of a pair loses, then whether it wins.
    let loses = msb(ctx, &apart)?;
    let both = BitShare::concat(&[&loses, &loses.not_by(ctx.party())]);
    let won = |i: usize, j: usize| match i < j {
        true => loses.len() + pair_of(left, i, j),
        false => pair_of(left, j, i),
    };
    let won_all = match counted(&ctx.link(), rows, left) {
        true => most_wins(ctx, &loses, rows, left)?,
        false => {
            // Vector t holds, for every number but the last, its comparison with the t-th of the others.
            let against = |t: usize| {
                let one = |i| won(i, if t < i { t } else { t + 1 });
                let row = |start| (0..left - 1).map(move |i| start + one(i));
                both.gather(&of_rows(pairs(left)).flat_map(row).collect::<Vec<_>>())
            };
            all(ctx, &(0..left - 1).map(against).collect::<Vec<_>>())?
        }
    };
    // The last is the largest unless another wins; then the winner's difference to it is added.
    let last: Vec<usize> = of_rows(left).map(|start| start + left - 1).collect();
    let others: Vec<usize> = of_rows(left).flat_map(|start| start..start + left - 1).collect();
    let more = all_of.each_ref().map(|x| {
        let last = x.gather(&last);
        (x.gather(&others).sub(&last.repeat_each(left - 1)), last)
    });
    let moves = Share::concat(ring, &more.each_ref().map(|(more, _)| more));
    let moves = mux(ctx, &BitShare::concat(&[&won_all; N]), &moves)?;
    let n = rows * (left - 1);
    Ok(std::array::from_fn(|part| {
        let moved = moves.slice(part * n..(part + 1) * n);
        more[part].1.add(&moved.sum_rows(rows, left - 1))
    }))
}

/// Whether each number but the last of a group wins all its comparisons, from whether the first of each pair loses: its
/// wins are counted modulo a power of two, of which each party has a share, and one party looks up its own in the
/// other's table.
fn most_wins(ctx: &mut Ctx, loses: &BitShare, rows: usize, left: usize) -> Result<BitShare, TwopcError> {
    let ring = wins(left);
    let client = u64::from(ctx.is_client());
    let lost = bit_to_arith(ctx, loses, ring)?;
    let wins = |row: usize, i: usize| {
        let lost = |a: usize, b: usize| lost.words()[row * pairs(left) + pair_of(left, a, b)];
        let later = (i + 1..left).map(|j| client.wrapping_sub(lost(i, j)));
        (0..i).map(|j| lost(j, i)).chain(later).fold(0, u64::wrapping_add)
    };
    let wins = (0..rows).flat_map(|row| (0..left - 1).map(move |i| (row, i))).map(|(row, i)| wins(row, i));
    let wins = Share::new(ring, wins.collect());
    let (head, tail) = wins.words().split_at(client_chooses(wins.len()));
    let [chosen, held] = ctx.by_role(head, tail);
    let index: zeroize::Zeroizing<Vec<u8>> = chosen.iter().map(|w| *w as u8).collect::<Vec<_>>().into();
    let table = |i: usize, row: &mut [u64]| {
        let wanted = ring.reduce((left as u64 - 1).wrapping_sub(held[i]));
        row.iter_mut().zip(0..).for_each(|(entry, place)| *entry = 1 & Mask::from_eq(place, wanted));
    };
    let found = tables(ctx, ring.bits(), &index, (held.len(), table), Ring::new(1))?;
    let [chosen, held] = found.each_ref().map(|x| BitShare::from_low_bits(x.words().iter().copied()));
    Ok(BitShare::concat(&ctx.by_role(&chosen, &held)))
}

/// The ring in which the wins among so many numbers are counted.
fn wins(left: usize) -> Ring {
    Ring::new(left.next_power_of_two().ilog2())
}

/// Whether wins are counted: tables have at most sixteen places.
fn counted(link: &Link, rows: usize, left: usize) -> bool {
    let all = all_cost(rows * (left - 1), left - 1);
    !link.is_lan() && (3..=16).contains(&left) && link.price(&most_wins_cost(rows, left)) < link.price(&all)
}

fn most_wins_cost(rows: usize, left: usize) -> Cost {
    let (n, ring) = (rows * (left - 1), wins(left));
    let first = client_chooses(n);
    bit_to_arith_cost(rows * pairs(left), ring) + tables_cost(ring.bits(), first, n - first, Ring::new(1))
}

/// The cost of [`best`], with `carried` vectors.
fn best_cost(link: &Link, rows: usize, left: usize, ring: Ring, carried: usize) -> Cost {
    let won_all = match counted(link, rows, left) {
        true => most_wins_cost(rows, left),
        false => all_cost(rows * (left - 1), left - 1),
    };
    msb_cost(link, rows * pairs(left), ring.bits()) + won_all + mux_cost(carried * rows * (left - 1), ring)
}

fn pairs(k: usize) -> usize {
    k * (k - 1) / 2
}

/// The index of the pair i < j among k numbers.
fn pair_of(k: usize, i: usize, j: usize) -> usize {
    i * (2 * k - i - 1) / 2 + j - i - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_rows_take_few_messages_and_many_take_few_bytes() {
        let ring = Ring::new(17);
        let comparisons = |rows: usize, cols: usize| {
            let mut left = cols;
            let levels = levels(&Link::LAN, rows, cols, ring, 1);
            let level = levels.iter().map(|&group| {
                let groups = left / group;
                left = groups + left % group;
                groups * pairs(group)
            });
            let all: usize = level.sum();
            assert_eq!(left, 1);
            all
        };
        assert_eq!(levels(&Link::LAN, 1, 9, ring, 1), [9]);
        assert_eq!(levels(&Link::LAN, 1, 1, ring, 1), [0; 0]);
        assert!(comparisons(4096, 128) < 150);
        let tournament = best_cost(&Link::LAN, 12 * 64, 2, ring, 1).rounds * 8;
        let now = largest_cost(&Link::LAN, 12, 129, ring, 1);
        assert!(now.rounds * 3 < tournament * 2, "{}", now.rounds);
    }

    #[test]
    fn no_other_sizes_of_groups_cost_less() {
        // All ways down to one number, one by one.
        fn least(left: usize, most: usize, price: &dyn Fn(usize, usize) -> u64) -> u64 {
            if left < 2 {
                return 0;
            }
            let sizes = (2..=most).chain([left]).filter(|&group| group <= left);
            let way = |g: usize| price(left / g, g) + least(left / g + left % g, most, price);
            sizes.map(way).min().unwrap()
        }
        let slow = Link::new(80_000, 200_000).unwrap();
        for (link, most) in [(Link::LAN, 4), (Link::INTERNET, 16), (slow, 16)] {
            for (rows, cols) in [(1, 50), (12, 33), (700, 20)] {
                let ring = Ring::new(24);
                let cost = |groups: usize, group: usize| best_cost(&link, rows * groups, group, ring, 2);
                let price = |groups: usize, group: usize| link.price(&cost(groups, group));
                let mut left = cols;
                let found = levels(&link, rows, cols, ring, 2).into_iter().map(|group| {
                    let now = price(left / group, group);
                    left = left / group + left % group;
                    now
                });
                assert_eq!(found.sum::<u64>(), least(cols, most, &price));
            }
        }
    }

    #[test]
    fn who_wins_all_is_counted_in_fewer_messages() {
        use crate::testing::{assert_cost, reveal_bits, run_counted, share_bits, words};
        for (rows, left) in [(1, 3), (40, 5), (3, 9), (30, 15), (17, 16)] {
            let x: Vec<u64> = words(rows * left, left as u64).iter().map(|x| x % 11).collect();
            let pair = |row: usize, i: usize, j: usize| u64::from(x[row * left + i] < x[row * left + j]);
            let of_row = |row| (0..left).flat_map(move |i| (i + 1..left).map(move |j| (row, i, j)));
            let loses: Vec<u64> = (0..rows).flat_map(of_row).map(|(row, i, j)| pair(row, i, j)).collect();
            let (a, b) = share_bits(&loses, 5);
            let (a, b, stats) = run_counted(
                |ctx| most_wins(ctx, &a, rows, left).unwrap(),
                |ctx| most_wins(ctx, &b, rows, left).unwrap(),
            );
            assert_cost(&stats, most_wins_cost(rows, left));
            // Among equals the first wins.
            let wins = |row: usize, i: usize| {
                let x = &x[row * left..(row + 1) * left];
                u64::from(x[..i].iter().all(|before| *before < x[i]) && x[i..].iter().all(|after| *after <= x[i]))
            };
            let want = (0..rows).flat_map(|row| (0..left - 1).map(move |i| (row, i)));
            assert_eq!(reveal_bits(&a, &b), want.map(|(row, i)| wins(row, i)).collect::<Vec<_>>(), "{rows} {left}");
        }
        assert!(counted(&Link::INTERNET, 192, 16) && !counted(&Link::LAN, 192, 16));
        assert!(!counted(&Link::INTERNET, 192, 17) && !counted(&Link::INTERNET, 192, 4));
    }

    /// The longer a message takes, the larger the groups.
    #[test]
    fn a_slower_link_takes_fewer_levels() {
        let ring = Ring::new(14);
        let levels = |link| levels(&link, 192, 16, ring, 1).len();
        assert!(levels(Link::INTERNET) < levels(Link::LAN));
        let rounds = |link| largest_cost(&link, 1, 50_257, Ring::new(24), 2).rounds;
        assert!(rounds(Link::INTERNET) < rounds(Link::LAN));
    }
}
