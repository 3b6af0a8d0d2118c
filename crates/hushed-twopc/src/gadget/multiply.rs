//! Products of shares by Gilboa's method: the bits of one party's value choose, the other party's value is offered.
//!
//! a·b = Σ_j 2^j·a_j·b mod 2^ℓ: bit j needs a message of ℓ − j bits. (Gilboa, CRYPTO 1999; at ℓ ≤ 32 it sends no more
//! than a product under homomorphic encryption, and takes far less time.) A square needs the single cross product
//! 2·x_c·x_s, modulo 2^(ℓ−1); each party chooses for half of the elements. A product of two shares needs two cross
//! products, one in each direction. In [`mul_rows`] the bits of the row's factor choose, so that one OT serves the
//! whole row.
//!
//! One round each. Nothing is truncated: the caller's scale doubles.

use super::planes::bit_planes;
use super::select::client_chooses;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_len};
use crate::ot::additive::{self, Choice, Offer, Products, Shape, additive};
use crate::share::{Ring, SecretWords, Share};

/// Cost of [`square`] of `n` elements of `ring`.
pub fn square_cost(n: usize, ring: Ring) -> Cost {
    let first = client_chooses(n);
    let side = |n| Some(Shape::of_values(n, ring.bits() - 1, ring.bits() - 1));
    match ring.bits() {
        1 => Cost::ZERO,
        _ => additive::cost(side(first), side(n - first)),
    }
}

/// x² mod 2^ℓ.
pub fn square(ctx: &mut Ctx, x: &Share) -> Result<Share, TwopcError> {
    let (n, ring) = (x.len(), x.ring());
    let own = x.words().iter().map(|w| w.wrapping_mul(*w));
    let own = Share::new(ring, own.collect());
    if ring.bits() == 1 {
        // The cross product is even.
        return Ok(own);
    }
    let width = ring.bits() - 1;
    let (head, tail) = x.words().split_at(client_chooses(n));
    let [chosen, offered] = ctx.by_role(head, tail);
    let shape = |n| Shape::of_values(n, width, width);
    let offer = (shape(offered.len()), offered);
    let products = gilboa(ctx, Some((shape(chosen.len()), chosen)), Some(offer))?;
    let cross = ctx.by_role(products.chosen.as_slice(), products.offered.as_slice());
    let cross = Share::new(ring, cross.concat());
    Ok(own.add(&cross.shift_left(1)))
}

/// Cost of [`mul`] of `n` elements of `ring`.
pub fn mul_cost(n: usize, ring: Ring) -> Cost {
    mul_rows_cost(n, 1, ring)
}

/// x_i·y_i mod 2^ℓ.
///
/// # Errors
/// [`TwopcError::Misuse`] unless the lengths and rings agree.
pub fn mul(ctx: &mut Ctx, x: &Share, y: &Share) -> Result<Share, TwopcError> {
    mul_rows(ctx, y, x.len(), 1, x)
}

/// Cost of [`mul_rows`].
pub fn mul_rows_cost(rows: usize, cols: usize, ring: Ring) -> Cost {
    let side = Some(rows_shape(rows, cols, ring));
    additive::cost(side, side)
}

/// x_ij·r_i mod 2^ℓ for a rows × cols matrix x, row by row, and a vector r of `rows` factors, whose bits choose.
///
/// # Errors
/// [`TwopcError::Misuse`] unless the lengths and rings agree and a row has 1 to 2^17 elements.
pub fn mul_rows(ctx: &mut Ctx, x: &Share, rows: usize, cols: usize, r: &Share) -> Result<Share, TwopcError> {
    let ring = x.ring();
    expect_at_least("mul_rows", "columns", cols as u64, 1)?;
    expect_len("mul_rows", "elements", x.len(), rows * cols)?;
    expect_len("mul_rows", "factors", r.len(), rows)?;
    expect_len("mul_rows", "ring bits of the factors", r.ring().bits() as usize, ring.bits() as usize)?;
    let shape = rows_shape(rows, cols, ring);
    let products = gilboa(ctx, Some((shape, r.words())), Some((shape, x.words())))?;
    let factors = r.words().iter().flat_map(|r| std::iter::repeat_n(*r, cols));
    let cross = products.chosen.iter().zip(&products.offered);
    let terms = x.words().iter().zip(factors).zip(cross);
    let sum = terms.map(|((x, r), (c, o))| x.wrapping_mul(r).wrapping_add(*c).wrapping_add(*o));
    Ok(Share::new(ring, sum.collect()))
}

fn rows_shape(rows: usize, cols: usize, ring: Ring) -> Shape {
    Shape { messages: cols, ..Shape::of_values(rows, ring.bits(), ring.bits()) }
}

/// Cost of [`ole`] with `by_client` products in which the client's values choose and `by_server` in which the server's
/// do.
pub fn ole_cost(by_client: usize, by_server: usize, bits: u32, ring: Ring) -> Cost {
    let shape = |n| Some(Shape::of_values(n, bits, ring.bits()));
    additive::cost(shape(by_client), shape(by_server))
}

/// Shares modulo 2^ℓ (`ring`) of products a_i·b_i where each party knows one factor, in both directions. First those
/// where this party chooses with `chosen` (values below 2^`bits`), then those where it offers `offered`.
///
/// # Errors
/// [`TwopcError::Misuse`] unless `bits` is 1 to 64.
pub fn ole(ctx: &mut Ctx, chosen: &[u64], offered: &[u64], bits: u32, ring: Ring) -> Result<[Share; 2], TwopcError> {
    let shape = |n| Shape::of_values(n, bits, ring.bits());
    let offer = (shape(offered.len()), offered);
    let mut products = gilboa(ctx, Some((shape(chosen.len()), chosen)), Some(offer))?;
    let words = [&mut products.chosen, &mut products.offered].map(std::mem::take);
    Ok(words.map(|words| Share::new(ring, words)))
}

/// Both directions of Gilboa's product: the shape and the values with which this party chooses, and those it offers.
fn gilboa(
    ctx: &mut Ctx,
    chosen: Option<(Shape, &[u64])>,
    offered: Option<(Shape, &[u64])>,
) -> Result<Products, TwopcError> {
    let planes =
        chosen.map_or(SecretWords::default(), |(shape, values)| bit_planes(values, shape.bits.min(shape.width)));
    let choice = chosen.map(|(shape, _)| Choice { shape, planes: &planes });
    let offer = offered.map(|(shape, values)| Offer { shape, values });
    additive(ctx, offer, choice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share, values};

    #[test]
    fn squares() {
        for (n, bits) in [(0, 8), (1, 64), (3, 1), (5, 2), (65, 24), (200, 32), (130, 64)] {
            let ring = Ring::new(bits);
            let x = values(n, ring, 1);
            let (x0, x1) = share(ring, &x, 2);
            let (y0, y1, stats) = run_counted(|ctx| square(ctx, &x0).unwrap(), |ctx| square(ctx, &x1).unwrap());
            assert_cost(&stats, square_cost(n, ring));
            let want: Vec<u64> = x.iter().map(|x| ring.reduce(x.wrapping_mul(*x))).collect();
            assert_eq!(reveal(&y0, &y1), want, "{n} {bits}");
        }
    }

    #[test]
    fn products() {
        for (n, bits) in [(0, 8), (1, 64), (4, 1), (70, 32), (130, 37), (64, 64)] {
            let ring = Ring::new(bits);
            let (x, mut y) = (values(n, ring, 3), values(n, ring, 4));
            y.reverse();
            let (x0, x1) = share(ring, &x, 5);
            let (y0, y1) = share(ring, &y, 6);
            let (z0, z1, stats) = run_counted(|ctx| mul(ctx, &x0, &y0).unwrap(), |ctx| mul(ctx, &x1, &y1).unwrap());
            assert_cost(&stats, mul_cost(n, ring));
            let pairs = x.iter().zip(&y);
            let want: Vec<u64> = pairs.map(|(x, y)| ring.reduce(x.wrapping_mul(*y))).collect();
            assert_eq!(reveal(&z0, &z1), want, "{n} {bits}");
        }
    }

    #[test]
    fn rows_times_their_factor() {
        for (rows, cols, bits) in [(1, 1, 64), (3, 5, 32), (7, 64, 24), (70, 3, 40), (0, 2, 8)] {
            let ring = Ring::new(bits);
            let (x, r) = (values(rows * cols, ring, 7), values(rows, ring, 8));
            let (x0, x1) = share(ring, &x, 9);
            let (r0, r1) = share(ring, &r, 10);
            let (z0, z1, stats) = run_counted(
                |ctx| mul_rows(ctx, &x0, rows, cols, &r0).unwrap(),
                |ctx| mul_rows(ctx, &x1, rows, cols, &r1).unwrap(),
            );
            assert_cost(&stats, mul_rows_cost(rows, cols, ring));
            let cells = x.iter().enumerate();
            let want: Vec<u64> = cells.map(|(i, x)| ring.reduce(x.wrapping_mul(r[i / cols]))).collect();
            assert_eq!(reveal(&z0, &z1), want, "{rows} {cols} {bits}");
        }
    }

    #[test]
    fn oblivious_products_in_both_roles() {
        for (n, bits, ring_bits) in [(1, 1, 64), (100, 12, 32), (66, 32, 32), (10, 64, 16), (0, 4, 4)] {
            let ring = Ring::new(ring_bits);
            for (by_client, by_server) in [(n, 0), (0, n), (n, n / 2)] {
                let factors = |n, seed| (values(n, Ring::new(bits), seed), values(n, ring, seed + 1));
                let ((a, b), (c, d)) = (factors(by_client, 11), factors(by_server, 13));
                let ([x0, y0], [y1, x1], stats) = run_counted(
                    |ctx| ole(ctx, &a, &d, bits, ring).unwrap(),
                    |ctx| ole(ctx, &c, &b, bits, ring).unwrap(),
                );
                assert_cost(&stats, ole_cost(by_client, by_server, bits, ring));
                let want = |a: &[u64], b: &[u64]| -> Vec<u64> {
                    let pairs = a.iter().zip(b);
                    pairs.map(|(a, b)| ring.reduce(a.wrapping_mul(*b))).collect()
                };
                assert_eq!(reveal(&x0, &x1), want(&a, &b), "{n} {bits} {ring_bits}");
                assert_eq!(reveal(&y0, &y1), want(&c, &d), "{n} {bits} {ring_bits}");
            }
        }
    }

    #[test]
    fn shapes_are_checked() {
        let (a, b) = (Share::zero(Ring::new(8), 4), Share::zero(Ring::new(9), 4));
        run_counted(
            |ctx| {
                assert!(mul(ctx, &a, &b).is_err());
                assert!(mul(ctx, &a, &a.slice(0..3)).is_err());
                assert!(mul_rows(ctx, &a, 2, 2, &a).is_err());
            },
            |_| (),
        );
    }
}
