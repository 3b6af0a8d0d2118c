//! The gadgets over the real source of correlations: what they assume of it holds for Ferret too.

use super::*;
use crate::ctx::Ctx;
use crate::share::{BitShare, Ring, Share};
use crate::testing::{reveal, reveal_bits, reveal_signed, run_pair_over_ferret, share, share_signed};

struct Results {
    product: Share,
    negative: BitShare,
    shifted: Share,
    entry: Share,
    selected: Share,
}

#[test]
fn gadgets_over_ferret() {
    const N: usize = 1000;
    let ring = Ring::new(32);
    let x: Vec<i64> = (0..N as i64).map(|i| (i - 500) * 1_000_003).collect();
    let y: Vec<i64> = (0..N as i64).map(|i| 77 - 3 * i).collect();
    let index: Vec<u8> = (0..N).map(|i| (i * 7 % 16) as u8).collect();
    let entries: Vec<u64> = (0..16 * N as u64).map(|i| i * i).collect();
    let (x0, x1) = share_signed(ring, &x, 1);
    let (y0, y1) = share_signed(ring, &y, 2);

    let run = |ctx: &mut Ctx, x: &Share, y: &Share| {
        let client = ctx.is_client();
        let (index, entries): (&[u8], &[u64]) = match client {
            true => (&index, &[]),
            false => (&[], &entries),
        };
        let negative = msb(ctx, x).unwrap();
        Results {
            product: mul(ctx, x, y).unwrap(),
            shifted: truncate(ctx, x, 9, Sign::Bounded, Ring::Z64).unwrap(),
            entry: {
                let [chosen, held] = tables(ctx, 4, index, listed(4, entries), ring).unwrap();
                if client { chosen } else { held }
            },
            selected: mux(ctx, &negative, x).unwrap(),
            negative,
        }
    };
    let (a, b) = run_pair_over_ferret(|ctx| run(ctx, &x0, &y0), |ctx| run(ctx, &x1, &y1));

    let product = reveal_signed(&a.product, &b.product);
    let negative = reveal_bits(&a.negative, &b.negative);
    let shifted = reveal_signed(&a.shifted, &b.shifted);
    let entry = reveal(&a.entry, &b.entry);
    let selected = reveal_signed(&a.selected, &b.selected);
    for i in 0..N {
        assert_eq!(product[i], ring.decode(ring.encode(x[i].wrapping_mul(y[i]))));
        assert_eq!(negative[i], u64::from(x[i] < 0));
        assert!((0..=1).contains(&(shifted[i] - (x[i] >> 9))), "{}", x[i]);
        assert_eq!(entry[i], ring.reduce(entries[16 * i + usize::from(index[i])]));
        assert_eq!(selected[i], x[i].min(0));
    }
}

/// Gadgets of many rounds, which draw correlations from several extensions.
#[test]
fn rows_over_ferret() {
    const ROWS: usize = 40;
    const COLUMNS: usize = 19;
    let ring = Ring::new(24);
    let x: Vec<i64> = (0..(ROWS * COLUMNS) as i64).map(|i| i * 7919 % 100_003 - 50_000).collect();
    let ids: Vec<u64> = (0..ROWS as u64).map(|i| i * 5 % 32).collect();
    let (x0, x1) = share_signed(ring, &x, 1);
    let (i0, i1) = share(Ring::new(5), &ids, 2);
    let run = |ctx: &mut Ctx, x: &Share, ids: &Share| {
        let mut levels = argmax_levels(ctx, x, ROWS, COLUMNS).unwrap();
        let [most, at] = levels.pop().unwrap();
        (most, at, one_hot(ctx, ids, COLUMNS).unwrap())
    };
    let (a, b) = run_pair_over_ferret(|ctx| run(ctx, &x0, &i0), |ctx| run(ctx, &x1, &i1));
    let (most, at) = (reveal_signed(&a.0, &b.0), reveal_signed(&a.1, &b.1));
    let hot = reveal_bits(&a.2, &b.2);
    for (r, row) in x.chunks(COLUMNS).enumerate() {
        assert_eq!(Some(&most[r]), row.iter().max());
        assert_eq!(row[at[r] as usize], most[r]);
        for (c, &bit) in hot[r * COLUMNS..][..COLUMNS].iter().enumerate() {
            assert_eq!(bit, u64::from(ids[r] == c as u64), "row {r}, column {c}");
        }
    }
}
