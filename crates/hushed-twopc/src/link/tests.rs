//! Links, and every form that a link can choose: the same results, at the declared cost.

use super::*;
use crate::ctx::Ctx;
use crate::func::Format;
use crate::func::curve::{GELU_EIGHT, curve_scaled, curve_scaled_cost};
use crate::func::inverse::{Positive, reciprocal, reciprocal_cost};
use crate::func::softmax::{SCORES, exponentials, exponentials_cost};
use crate::gadget::{
    largest_of_few, largest_of_few_cost, leading_one, leading_one_cost, max_of_rows, max_of_rows_cost, msb, msb_cost,
    round, round_cost, top_bits, top_bits_cost,
};
use crate::he::{
    HeContext, Layouts, MatmulShape, OltShape, matmul_shared, row_squares, row_squares_cost, scale_rows,
    scale_rows_cost,
};
use crate::share::{Ring, Share};
use crate::testing::{
    Counted, assert_cost, keys, reveal, reveal_bits, reveal_signed, run_after, share, share_signed, values,
};
use hushed_rlwe::RlweParams;

/// Those with names, and the ends of what is accepted.
fn links() -> Vec<Link> {
    let ends = [(0, 1_000), (0, 10_000_000), (1_000_000, 1_000), (1_000_000, 10_000_000), (100_000, 200_000)];
    let ends = ends.map(|(microseconds, kilobits)| Link::new(microseconds, kilobits).unwrap());
    Link::NAMED.into_iter().map(|(_, link)| link).chain(ends).collect()
}

/// A step over a link, on a share of each party.
fn run<T: Send>(link: Link, x: &(Share, Share), step: impl Fn(&mut Ctx, &Share) -> T + Sync) -> (T, T, Counted) {
    let first = |ctx: &mut Ctx| ctx.set_link(link);
    run_after(first, |ctx, ()| step(ctx, &x.0), |ctx, ()| step(ctx, &x.1))
}

/// The rounds of what `step` does over each link; `check` has its results.
fn over_links<T: Send>(
    x: &(Share, Share),
    step: impl Fn(&mut Ctx, &Share) -> T + Sync,
    cost: impl Fn(&Link) -> Cost,
    check: impl Fn(&T, &T),
) -> Vec<u64> {
    let rounds = links().into_iter().map(|link| {
        let (a, b, counted) = run(link, x, &step);
        assert_cost(&counted, cost(&link));
        check(&a, &b);
        cost(&link).rounds
    });
    rounds.collect()
}

/// Whether links have led to more than one form.
fn differ(rounds: &[u64]) -> bool {
    rounds.iter().any(|found| *found != rounds[0])
}

#[test]
fn links_are_read_as_they_are_written() {
    for (name, link) in Link::NAMED {
        assert_eq!((name.parse(), link.to_string().as_str()), (Ok(link), name));
    }
    for (text, microseconds, kilobits) in
        [("40ms/50mbit", 40_000, 50_000), ("12.5ms/1.5gbit", 12_500, 1_500_000), ("700us/1000kbit", 700, 1_000)]
    {
        let link: Link = text.parse().unwrap();
        assert_eq!((link.microseconds(), link.kilobits()), (microseconds, kilobits));
        assert_eq!(link.to_string().parse(), Ok(link));
    }
    for wrong in ["", "LAN", "40ms", "40/50", "ms/mbit", "-1ms/50mbit", "40ms/50mbit/1", "infms/50mbit", "nans/1mbit"] {
        assert_eq!(wrong.parse::<Link>(), Err(NoLink::Text), "{wrong}");
    }
    for wrong in ["1.1s/50mbit", "40ms/999kbit", "40ms/11gbit", "9e9s/50mbit"] {
        assert_eq!(wrong.parse::<Link>(), Err(NoLink::Bounds), "{wrong}");
    }
    assert!(Link::new(0, 1_000).is_ok() && Link::new(1_000_000, 10_000_000).is_ok());
    assert!(Link::new(u32::MAX, 50_000).is_err() && Link::new(1, 0).is_err());
}

#[test]
fn a_link_describes_a_network() {
    assert_eq!((Link::LAN.shape(), Link::WAN.shape()), (Shape::LAN, Shape::WAN));
}

/// A message is worth what the link carries in its time, and never more than the bound.
#[test]
fn a_message_weighs_as_many_bytes_as_fit_its_time() {
    let of = |link: Link, bytes, rounds| link.price(&Cost { bytes_client: bytes, rounds, ..Cost::ZERO });
    assert_eq!(of(Link::LAN, 32_768, 0), of(Link::LAN, 0, 1));
    assert_eq!(of(Link::INTERNET, 125_000, 0), of(Link::INTERNET, 0, 1));
    assert_eq!(of(Link::WAN, 100_000, 0), of(Link::WAN, 0, 1));
    let longest = Link::new(1_000_000, 10_000_000).unwrap();
    assert_eq!(of(longest, MOST_BYTES_A_MESSAGE, 0), of(longest, 0, 1));
}

#[test]
fn comparisons_and_bits_are_exact_in_every_form() {
    let ring = Ring::new(33);
    for n in [5, 300] {
        let x = values(n, ring, 1);
        let shares = share(ring, &x, 2);
        let top: Vec<u64> = x.iter().map(|x| ring.top_bit(*x)).collect();
        over_links(
            &shares,
            |ctx, x| msb(ctx, x).unwrap(),
            |link| msb_cost(link, n, 33),
            |a, b| {
                assert_eq!(reveal_bits(a, b), top);
            },
        );
        let high = |ctx: &mut Ctx, x: &Share| top_bits(ctx, x, 9).unwrap();
        over_links(
            &shares,
            high,
            |link| top_bits_cost(link, n, 33, 9),
            |a, b| {
                for (j, (a, b)) in a.iter().zip(b).enumerate() {
                    let want: Vec<u64> = x.iter().map(|x| (x >> (24 + j)) & 1).collect();
                    assert_eq!(reveal_bits(a, b), want);
                }
            },
        );
        let to = Ring::new(20);
        let rounded = |ctx: &mut Ctx, x: &Share| round(ctx, x, 13, to).unwrap();
        over_links(
            &shares,
            rounded,
            |link| round_cost(link, n, 13, to),
            |a, b| {
                let want: Vec<u64> = x.iter().map(|x| to.reduce((x + (1 << 12)) >> 13)).collect();
                assert_eq!(reveal(a, b), want);
            },
        );
    }
}

#[test]
fn the_leading_one_is_exact_in_every_form() {
    let (n, ring) = (40, Ring::new(22));
    let x: Vec<u64> = (0..n as u64).map(|i| (i * i * 977) >> (i % 7)).collect();
    let step = |ctx: &mut Ctx, x: &Share| leading_one(ctx, x).unwrap();
    let rounds = over_links(
        &share(ring, &x, 3),
        step,
        |link| leading_one_cost(link, n, ring),
        |a, b| {
            for (k, (a, b)) in a.iter().zip(b).enumerate() {
                let want: Vec<u64> = x.iter().map(|x| u64::from(*x > 0 && x.ilog2() as usize == k)).collect();
                assert_eq!(reveal_bits(a, b), want);
            }
        },
    );
    assert!(differ(&rounds));
}

#[test]
fn maxima_are_exact_in_every_form() {
    let ring = Ring::new(14);
    let (rows, cols) = (30, 16);
    let x: Vec<i64> = (0..(rows * cols) as i64).map(|i| i * 7919 % 4001 - 2000).collect();
    let most = |rows: usize, cols: usize| -> Vec<i64> {
        let all = x[..rows * cols].chunks(cols);
        all.map(|row| *row.iter().max().unwrap()).collect()
    };
    let shares = share_signed(ring, &x, 4);
    let widths = vec![cols; rows];
    let step = |ctx: &mut Ctx, x: &Share| max_of_rows(ctx, x, &widths, 0, 14).unwrap();
    let rounds = over_links(
        &shares,
        step,
        |link| max_of_rows_cost(link, &widths, ring, (0, 14)),
        |a, b| {
            assert_eq!(reveal_signed(a, b), most(rows, cols));
        },
    );
    assert!(differ(&rounds));

    // One long row, with what goes along.
    let step = |ctx: &mut Ctx, x: &Share| largest_of_few(ctx, x, &x.mul_public(3), 1, rows * cols).unwrap();
    let rounds = over_links(
        &shares,
        step,
        |link| largest_of_few_cost(link, 1, rows * cols, ring),
        |a, b| {
            let [found, with] = [0, 1].map(|k| reveal_signed(&a[k], &b[k]));
            assert_eq!((&found, &with), (&most(1, rows * cols), &found.iter().map(|x| 3 * x).collect()));
        },
    );
    assert!(differ(&rounds));
}

#[test]
fn functions_err_as_declared_in_every_form() {
    let widths = [9usize; 12];
    let n: usize = widths.iter().sum();
    let scores: Vec<f64> = (0..n).map(|i| (i * 757 % 401) as f64 / 10.0 - 20.0).collect();
    let to = Format::new(40, 14);
    let words: Vec<u64> = scores.iter().map(|s| SCORES.encode(*s)).collect();
    let step = |ctx: &mut Ctx, x: &Share| exponentials(ctx, x, &widths, to).unwrap();
    let rounds = over_links(
        &share(SCORES.ring, &words, 5),
        step,
        |link| exponentials_cost(link, &widths, to),
        |a, b| {
            let e: Vec<f64> = reveal(a, b).iter().map(|w| to.decode(*w)).collect();
            for (s, e) in scores.chunks(9).zip(e.chunks(9)) {
                let most = s.iter().copied().fold(f64::MIN, f64::max);
                let want: Vec<f64> = s.iter().map(|s| (s - most).exp2()).collect();
                let (whole, all) = (want.iter().sum::<f64>(), e.iter().sum::<f64>());
                let errors = want.iter().zip(e).map(|(w, e)| (w / whole - e / all).abs());
                assert!(errors.fold(0.0, f64::max) < 6e-4);
            }
        },
    );
    assert!(differ(&rounds));

    let (from, to) = (Format::new(48, 32), Format::new(48, 16));
    let hidden: Vec<f64> = (0..300).map(|i| f64::from(i) / 25.0 - 6.0).collect();
    let words: Vec<u64> = hidden.iter().map(|x| from.encode(x * GELU_EIGHT.kappa())).collect();
    let step = |ctx: &mut Ctx, x: &Share| curve_scaled(ctx, &GELU_EIGHT, x, from.frac, to).unwrap();
    over_links(
        &share(from.ring, &words, 6),
        step,
        |link| curve_scaled_cost(link, 300, &GELU_EIGHT, to),
        |a, b| {
            for (x, y) in hidden.iter().zip(reveal(a, b)) {
                let error = to.decode(y) / GELU_EIGHT.kappa() - GELU_EIGHT.approximation(*x);
                assert!(error.abs() < 2.6 * GELU_EIGHT.unit(), "{x}: {error:e}");
            }
        },
    );

    let (sums, to) = ((1..60).map(|i| i * i * 501).collect::<Vec<u64>>(), Ring::new(36));
    let of = Positive::below(21).within(501, 59 * 59 * 501);
    let step = |ctx: &mut Ctx, x: &Share| reciprocal(ctx, x, of, 8192.0, 16, to).unwrap();
    over_links(
        &share(Ring::new(30), &sums, 7),
        step,
        |link| reciprocal_cost(link, sums.len(), of, to),
        |a, b| {
            for (x, y) in sums.iter().zip(reveal(a, b)) {
                let (want, got) = (8192.0 / *x as f64, y as f64 / 65536.0);
                assert!((got - want).abs() < want * 1.4e-4 + 3e-5, "1/{x}: {got}");
            }
        },
    );
}

/// Rows over OT and over RLWE, and products whose windows follow the link.
#[test]
fn products_err_as_declared_in_every_form() {
    let params = RlweParams::olt_full().unwrap();
    let (ring, shape) = (Ring::new(33), MatmulShape { shape: OltShape { k: 5, m: 60, n: 5 }, batch: 5 });
    let (rows, width) = (5, 300);
    let x = values(rows * width, ring, 8);
    let shares = share(ring, &x, 9);
    let off = |found: u64, want: u64| ring.decode(ring.reduce(found.wrapping_sub(want))).unsigned_abs();
    let mut bytes = Vec::new();
    for link in links() {
        let layouts = Layouts::over(link, std::sync::Arc::clone(&params));
        let step = |ctx: &mut Ctx, he: &HeContext, x: &Share| {
            let squares = row_squares(ctx, he, x, rows, width).unwrap();
            let scaled = scale_rows(ctx, he, x, rows, width, &squares).unwrap();
            (squares, scaled, matmul_shared(ctx, he, x, x, &shape))
        };
        let (squares, scaled) = (
            row_squares_cost(rows, width, ring, &layouts).unwrap(),
            scale_rows_cost(rows, width, ring, &layouts).unwrap(),
        );
        let first = |ctx: &mut Ctx| {
            ctx.set_link(link);
            keys(ctx)
        };
        let (a, b, counted) = run_after(first, |ctx, he| step(ctx, he, &shares.0), |ctx, he| step(ctx, he, &shares.1));
        let (left, right) = (a.2.unwrap(), b.2.unwrap());
        let product = shape.cost(ring, &layouts).unwrap();
        assert_cost(&counted, squares.cost + scaled.cost + product.traffic());
        bytes.push((squares.cost, scaled.cost, product.bytes_in + product.bytes_out));
        let found = reveal(&a.0, &b.0);
        for (row, found) in x.chunks(width).zip(&found) {
            let want = row.iter().fold(0u64, |sum, x| sum.wrapping_add(x.wrapping_mul(*x)));
            assert!(off(*found, want) <= 2, "{link}");
        }
        for ((i, x), y) in x.iter().enumerate().zip(reveal(&a.1, &b.1)) {
            assert!(off(y, x.wrapping_mul(found[i / width])) <= 2, "{link}");
        }
        let want = x.chunks(5 * 60).zip(x.chunks(60 * 5));
        let want = want.flat_map(|(x, y)| hushed_math::product(x, y, 5, 60, 5));
        for (found, want) in reveal(&left, &right).iter().zip(want) {
            assert!(off(*found, want) <= 2, "{link}");
        }
    }
    assert!(bytes.iter().any(|found| found != &bytes[0]));
}
