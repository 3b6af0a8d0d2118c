//! A shared bit times a shared value, and a shared bit as a number.
//!
//! With b = b_c ⊕ b_s and x = x_c + x_s, a party's part x_own·b = x_own·b_own + b_other·x_own·(1 − 2·b_own): the other
//! party's bit chooses, this party's x_own·(1 − 2·b_own) is the value. Both directions in one exchange.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_len};
use crate::ot::additive::{self, Choice, Offer, Shape, additive};
use crate::share::{BitShare, Ring, Share};
use hushed_net::Party;

/// Cost of [`mux`] of `n` elements of `ring`.
pub fn mux_cost(n: usize, ring: Ring) -> Cost {
    let shape = Some(Shape::of_bits(n, ring.bits()));
    additive::cost(shape, shape)
}

/// b·x: x where the bit is 1, else 0. Exact.
///
/// # Errors
/// [`TwopcError::Misuse`] unless there is one bit an element.
pub fn mux(ctx: &mut Ctx, b: &BitShare, x: &Share) -> Result<Share, TwopcError> {
    expect_len("mux", "bits", b.len(), x.len())?;
    let shape = Shape::of_bits(x.len(), x.ring().bits());
    let own = x.words();
    let values = own.iter().enumerate().map(|(i, w)| {
        let mask = b.bit(i).wrapping_neg();
        (w ^ mask).wrapping_sub(mask)
    });
    // A Share, so that it is wiped.
    let values = Share::new(x.ring(), values.collect());
    let offer = Offer {
        shape,
        values: values.words(),
    };
    let choice = Choice {
        shape,
        planes: b.words(),
    };
    let products = additive(ctx, Some(offer), Some(choice))?;
    let cross = products.offered.iter().zip(&products.chosen);
    let sum = own.iter().zip(cross).enumerate().map(|(i, (w, (m, c)))| {
        (w & b.bit(i).wrapping_neg())
            .wrapping_add(*m)
            .wrapping_add(*c)
    });
    Ok(Share::new(x.ring(), sum.collect()))
}

/// Cost of [`bit_to_arith`] of `n` bits into `ring`.
pub fn bit_to_arith_cost(n: usize, ring: Ring) -> Cost {
    match ring.bits() {
        1 => Cost::ZERO,
        bits => private_product_cost(n, bits - 1),
    }
}

/// The bits as numbers 0 and 1 of `ring`: b_c + b_s − 2·b_c·b_s, with the product modulo 2^(ℓ−1). Exact.
///
/// # Errors
/// If the session fails.
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
    additive::cost(
        Some(Shape::of_bits(first, width)),
        Some(Shape::of_bits(n - first, width)),
    )
}

/// Shares modulo 2^width of the client's bits times the server's; each party passes its own. Either party chooses
/// for half of the elements, so that both directions carry the same.
pub(super) fn private_product(
    ctx: &mut Ctx,
    mine: &BitShare,
    width: u32,
) -> Result<Share, TwopcError> {
    let n = mine.len();
    let first = client_chooses(n);
    let client = ctx.party() == Party::Client;
    let (chosen, offered) = match client {
        true => (mine.slice(0..first), mine.slice(first..n)),
        false => (mine.slice(first..n), mine.slice(0..first)),
    };
    let ring = Ring::new(width);
    let values: Vec<u64> = (0..offered.len()).map(|i| offered.bit(i)).collect();
    let values = Share::new(ring, values);
    let offer = Offer {
        shape: Shape::of_bits(offered.len(), width),
        values: values.words(),
    };
    let choice = Choice {
        shape: Shape::of_bits(chosen.len(), width),
        planes: chosen.words(),
    };
    let products = additive(ctx, Some(offer), Some(choice))?;
    let parts = match client {
        true => [&products.chosen, &products.offered],
        false => [&products.offered, &products.chosen],
    };
    Ok(Share::new(ring, [parts[0].as_slice(), parts[1]].concat()))
}

/// How many of n elements the client chooses for: half, in whole words of bits.
pub(super) fn client_chooses(n: usize) -> usize {
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
            let (y0, y1, stats) = run_counted(
                |ctx| mux(ctx, &b0, &x0).unwrap(),
                |ctx| mux(ctx, &b1, &x1).unwrap(),
            );
            assert_cost(&stats, mux_cost(n, ring));
            assert_eq!(stats.rounds, mux_cost(n, ring).rounds);
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
            let (y0, y1, stats) = run_counted(
                |ctx| bit_to_arith(ctx, &b0, ring).unwrap(),
                |ctx| bit_to_arith(ctx, &b1, ring).unwrap(),
            );
            assert_cost(&stats, bit_to_arith_cost(n, ring));
            assert_eq!(reveal(&y0, &y1), b);
        }
    }
}
