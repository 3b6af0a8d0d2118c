//! The gadgets over the real source of correlations: what they assume of it holds of Ferret too.

use super::*;
use crate::ctx::Ctx;
use crate::ot::ferret::{FerretOt, FerretParams};
use crate::share::{BitShare, Ring, Share};
use crate::testing::{reveal, reveal_bits, reveal_signed, share_signed};
use hushed_math::rng::SecretRng;
use hushed_net::{Party, Session, memory_pair};

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

    let run = |mut session: Session, x: Share, y: Share, seed: u64| {
        let mut rng = SecretRng::insecure_from_seed(seed);
        let ot = FerretOt::with_params(&mut session, &mut rng, FerretParams::K16).unwrap();
        let mut ctx = Ctx::new(session, rng, Box::new(ot));
        let ctx = &mut ctx;
        let role = match ctx.party() {
            Party::Client => Table::Chooser { index: &index },
            Party::Server => Table::Holder { entries: &entries },
        };
        let negative = msb(ctx, &x).unwrap();
        Results {
            product: mul(ctx, &x, &y).unwrap(),
            shifted: truncate(ctx, &x, 9, Sign::Bounded, Ring::Z64).unwrap(),
            entry: table_16(ctx, role, ring, N).unwrap(),
            selected: mux(ctx, &negative, &x).unwrap(),
            negative,
        }
    };
    let (client, server) = memory_pair();
    let (a, b) = std::thread::scope(|scope| {
        let run = &run;
        let server = scope.spawn(move || run(server, x1, y1, 2));
        (run(client, x0, y0, 1), server.join().unwrap())
    });

    let product = reveal_signed(&a.product, &b.product);
    let negative = reveal_bits(&a.negative, &b.negative);
    let shifted = reveal_signed(&a.shifted, &b.shifted);
    let entry = reveal(&a.entry, &b.entry);
    let selected = reveal_signed(&a.selected, &b.selected);
    for i in 0..N {
        assert_eq!(
            product[i],
            ring.decode(ring.encode(x[i].wrapping_mul(y[i])))
        );
        assert_eq!(negative[i], u64::from(x[i] < 0));
        assert!((0..=1).contains(&(shifted[i] - (x[i] >> 9))), "{}", x[i]);
        assert_eq!(
            entry[i],
            ring.reduce(entries[16 * i + usize::from(index[i])])
        );
        assert_eq!(selected[i], x[i].min(0));
    }
}
