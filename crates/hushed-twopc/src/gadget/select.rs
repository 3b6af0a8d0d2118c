//! A shared bit times a shared value, and a shared bit as a number.
//!
//! With b = b_c ⊕ b_s and x = x_c + x_s, a party's part is x_own·b = x_own·b_own + b_other·x_own·(1 − 2·b_own): the
//! other party's bit chooses, and this party offers x_own·(1 − 2·b_own). Both directions take one exchange.
//!
//! [`select`] does the same for more than two values: each party offers its shares of all of them, shifted by its part
//! of the index, and the other's part of the index chooses (1-of-N OT in both directions at once). It sends as many
//! bits as N − 1 multiplexers, but takes two rounds whatever N is, and log₂ N OTs instead of N − 1.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most, expect_len};
use crate::ot::additive::{self, Choice, Offer, Shape, additive};
use crate::ot::one_of_n::{self, Batch};
use crate::share::{BitShare, Ring, Share};
use zeroize::Zeroizing;

/// Cost of [`mux`] of `n` elements of `ring`.
pub fn mux_cost(n: usize, ring: Ring) -> Cost {
    let shape = Some(Shape::of_bits(n, ring.bits()));
    additive::cost(shape, shape)
}

/// b·x: x where the bit is 1, else 0. Exact.
///
/// # Errors
/// [`TwopcError::Misuse`] unless there is one bit per element.
pub fn mux(ctx: &mut Ctx, b: &BitShare, x: &Share) -> Result<Share, TwopcError> {
    expect_len("mux", "bits", b.len(), x.len())?;
    let shape = Shape::of_bits(x.len(), x.ring().bits());
    let values = offered(b, x);
    let offer = Offer { shape, values: values.words() };
    let choice = Choice { shape, planes: b.words() };
    let products = additive(ctx, Some(offer), Some(choice))?;
    let cross = products.offered.iter().zip(&products.chosen);
    let own = own_product(b, x);
    let sum = own.words().iter().zip(cross);
    let sum = sum.map(|(own, (m, c))| own.wrapping_add(*m).wrapping_add(*c));
    Ok(Share::new(x.ring(), sum.collect()))
}

/// x_own·(1 − 2·b_own), as a `Share` so that it is wiped.
pub(crate) fn offered(b: &BitShare, x: &Share) -> Share {
    let values = x.words().iter().zip(b.masks());
    Share::new(x.ring(), values.map(|(w, bit)| bit.negate(*w)).collect())
}

/// x_own·b_own.
pub(crate) fn own_product(b: &BitShare, x: &Share) -> Share {
    let values = x.words().iter().zip(b.masks());
    Share::new(x.ring(), values.map(|(w, bit)| *w & bit).collect())
}

/// Cost of [`select`] for `n` elements of `ring`, each one of 2^bits values.
pub fn select_cost(n: usize, bits: u32, ring: Ring) -> Cost {
    one_of_n::cost(bits, n, n, ring)
}

/// values\[k_i\]\[i\] for the number k_i whose bits are `index`\[j\]\[i\], least significant first. Exact.
///
/// # Errors
/// [`TwopcError::Misuse`] unless there are 1 to 4 vectors of bits and 2^bits of values, all of one length and the
/// values over one ring.
pub fn select(ctx: &mut Ctx, index: &[BitShare], values: &[Share]) -> Result<Share, TwopcError> {
    let bits = index.len() as u64;
    expect_at_least("select", "bits", bits, 1)?;
    expect_at_most("select", "bits", bits, 4)?;
    expect_len("select", "values", values.len(), 1 << bits)?;
    let (n, ring) = (values[0].len(), values[0].ring());
    for plane in index {
        expect_len("select", "index bits", plane.len(), n)?;
    }
    for v in values {
        expect_len("select", "elements", v.len(), n)?;
        expect_len("select", "ring bits", v.ring().bits() as usize, ring.bits() as usize)?;
    }
    if n == 0 {
        return Ok(Share::zero(ring, 0));
    }
    let batch = Batch { n, bits: index.len() as u32, ring };
    let place = |i: usize| (index.iter().rev()).fold(0, |k, plane| 2 * k + plane.bit(i) as u8);
    let own = Zeroizing::new((0..n).map(place).collect::<Vec<u8>>());
    let planes: Vec<&[u64]> = index.iter().map(BitShare::words).collect();
    let table = |i: usize, row: &mut [u64]| {
        let entries = row.iter_mut().zip(values);
        entries.for_each(|(entry, v)| *entry = v.words()[i]);
    };
    let (chosen, held) = one_of_n::both(ctx, (batch, &own), (batch, Some(&planes)), table)?;
    let held = Share::new(ring, held.into_words());
    Ok(held.add(&Share::new(ring, chosen)))
}

/// Cost of [`bit_to_arith`] of `n` bits into `ring`.
pub fn bit_to_arith_cost(n: usize, ring: Ring) -> Cost {
    match ring.bits() {
        1 => Cost::ZERO,
        bits => private_product_cost(n, bits - 1),
    }
}

/// The bits as numbers 0 and 1 of `ring`: b_c + b_s − 2·b_c·b_s, with the product modulo 2^(ℓ−1). Exact.
pub fn bit_to_arith(ctx: &mut Ctx, b: &BitShare, ring: Ring) -> Result<Share, TwopcError> {
    let own = (0..b.len()).map(|i| b.bit(i)).collect();
    let own = Share::new(ring, own);
    if ring.bits() == 1 {
        return Ok(own);
    }
    let product = private_product(ctx, b, ring.bits() - 1)?;
    let product = Share::new(ring, product.into_words());
    Ok(own.sub(&product.shift_left(1)))
}

/// Cost of [`private_product`].
pub(super) fn private_product_cost(n: usize, width: u32) -> Cost {
    let first = client_chooses(n);
    additive::cost(Some(Shape::of_bits(first, width)), Some(Shape::of_bits(n - first, width)))
}

/// Shares modulo 2^width of the client's bits times the server's; each party passes its own. Each party chooses for
/// half of the elements, so that both directions carry the same load.
pub(super) fn private_product(ctx: &mut Ctx, mine: &BitShare, width: u32) -> Result<Share, TwopcError> {
    let n = mine.len();
    let first = client_chooses(n);
    let [chosen, offered] = ctx.by_role(mine.slice(0..first), mine.slice(first..n));
    let ring = Ring::new(width);
    let values: Vec<u64> = (0..offered.len()).map(|i| offered.bit(i)).collect();
    let values = Share::new(ring, values);
    let offer = Offer { shape: Shape::of_bits(offered.len(), width), values: values.words() };
    let choice = Choice { shape: Shape::of_bits(chosen.len(), width), planes: chosen.words() };
    let products = additive(ctx, Some(offer), Some(choice))?;
    let parts = ctx.by_role(products.chosen.as_slice(), products.offered.as_slice());
    Ok(Share::new(ring, parts.concat()))
}

/// For how many of n elements the client chooses: half, in whole words of bits.
pub(crate) fn client_chooses(n: usize) -> usize {
    n.min(64 * n.div_ceil(128))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share, share_bits};
    use hushed_math::rng::SecretRng;

    fn case(n: usize, ring: Ring) -> (Vec<u64>, Vec<u64>) {
        let mut rng = SecretRng::insecure_from_seed(n as u64);
        let bits = (0..n).map(|_| rng.next_u64() & 1).collect();
        let mut values: Vec<u64> = (0..n).map(|_| ring.reduce(rng.next_u64())).collect();
        let edges = [0, ring.mask(), ring.mask() >> 1];
        values.iter_mut().zip(edges).for_each(|(v, e)| *v = e);
        (bits, values)
    }

    #[test]
    fn mux_selects() {
        for (n, bits) in [(1, 64), (5, 1), (64, 32), (300, 37), (0, 12)] {
            let ring = Ring::new(bits);
            let (b, x) = case(n, ring);
            let (b0, b1) = share_bits(&b, 1);
            let (x0, x1) = share(ring, &x, 2);
            let (y0, y1, stats) = run_counted(|ctx| mux(ctx, &b0, &x0).unwrap(), |ctx| mux(ctx, &b1, &x1).unwrap());
            assert_cost(&stats, mux_cost(n, ring));
            let want: Vec<u64> = b.iter().zip(&x).map(|(b, x)| b * x).collect();
            assert_eq!(reveal(&y0, &y1), want);
        }
    }

    #[test]
    fn bits_become_numbers() {
        for (n, bits) in [(1, 1), (3, 2), (64, 32), (129, 64), (400, 13), (0, 8)] {
            let ring = Ring::new(bits);
            let (b, _) = case(n, ring);
            let (b0, b1) = share_bits(&b, 3);
            let (y0, y1, stats) =
                run_counted(|ctx| bit_to_arith(ctx, &b0, ring).unwrap(), |ctx| bit_to_arith(ctx, &b1, ring).unwrap());
            assert_cost(&stats, bit_to_arith_cost(n, ring));
            assert_eq!(reveal(&y0, &y1), b);
        }
    }

    #[test]
    fn one_of_many_is_selected() {
        for (n, index_bits, bits) in [(1, 1, 64), (70, 2, 5), (300, 3, 10), (129, 4, 33), (0, 3, 8)] {
            let ring = Ring::new(bits);
            let mut rng = SecretRng::insecure_from_seed(n as u64 + 1);
            let places = 1usize << index_bits;
            let values: Vec<Vec<u64>> =
                (0..places).map(|_| (0..n).map(|_| ring.reduce(rng.next_u64())).collect()).collect();
            let at: Vec<usize> = (0..n).map(|i| (i * 7 + i / 16) % places).collect();
            let shares = values.iter().zip(1..).map(|(v, seed)| share(ring, v, seed));
            let (v0, v1): (Vec<_>, Vec<_>) = shares.unzip();
            let planes = (0..index_bits).map(|k| {
                let plane: Vec<u64> = at.iter().map(|a| (*a as u64 >> k) & 1).collect();
                share_bits(&plane, 50 + k)
            });
            let (k0, k1): (Vec<_>, Vec<_>) = planes.unzip();
            let (y0, y1, stats) =
                run_counted(|ctx| select(ctx, &k0, &v0).unwrap(), |ctx| select(ctx, &k1, &v1).unwrap());
            let cost = select_cost(n, index_bits as u32, ring);
            assert_cost(&stats, cost);
            let want: Vec<u64> = at.iter().enumerate().map(|(i, a)| values[*a][i]).collect();
            assert_eq!(reveal(&y0, &y1), want, "{n} {index_bits} {bits}");
        }
    }

    #[test]
    fn what_is_selected_from_is_checked() {
        let (x, y) = (Share::zero(Ring::new(8), 4), Share::zero(Ring::new(9), 4));
        run_counted(
            |ctx| {
                assert!(select(ctx, &[], &[]).is_err());
                let (bit, few) = ([BitShare::zero(4)], [x.clone(), x.slice(0..3)]);
                assert!(select(ctx, &bit, &few[..1]).is_err());
                assert!(select(ctx, &bit, &[x.clone(), y.clone()]).is_err());
                assert!(select(ctx, &bit, &few).is_err());
            },
            |_| (),
        );
    }
}
