//! A shared row times the server's weights, with most of the work done before the row is known (Mishra et al.,
//! *Delphi*, USENIX Security 2020).
//!
//! Ahead of time the client draws a uniform r for each row to come, and one [linear step](super) on these rows, with a
//! zero share at the server, gives both parties shares of r·W. Later, for \[x\] = x_c + x_s, the client sends d = x_c −
//! r and the server takes (d + x_s)·W plus its share of r·W: one message of words instead of two of ciphertexts, and no
//! polynomial products. The result has the error of r·W: at most one unit of the ring, as for the step at once.
//!
//! d is uniform as long as r is used once: two rows masked by the same r would show the server their difference. So an
//! [`Ahead`] moves into the product that uses it, and there is no other way to use it.

use hushed_math::product_small;
use hushed_net::Kind;

use super::{LinearShape, PreparedWeights, linear_client, linear_server_alone};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::he::HeContext;
use crate::he::engine::expect_words;
use crate::share::{Ring, Share};
use crate::wire;

const MASKED: Kind = Kind(0x0410);

/// A party's state for one row, or for rows used in one message, of a product prepared ahead. It can be moved but not
/// copied, has no `Debug`, and is wiped when dropped.
pub struct Ahead {
    rows: usize,
    /// The client's r; empty at the server.
    mask: Share,
    /// This party's share of r·W.
    product: Share,
}

impl Ahead {
    /// Joins rows of one product so that one message serves all of them; `None` if there are no rows.
    pub fn together(rows: Vec<Ahead>) -> Option<Ahead> {
        let ring = rows.first()?.product.ring();
        let all = |part: fn(&Ahead) -> &Share| Share::concat(ring, &rows.iter().map(part).collect::<Vec<_>>());
        let count = rows.iter().map(Ahead::rows).sum();
        Some(Ahead { rows: count, mask: all(|row| &row.mask), product: all(|row| &row.product) })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }
}

/// The client's part of the preparation, for the number of rows in `shape`, `each` of which are used together.
///
/// # Errors
/// As [`linear_client`].
pub fn ahead_client(
    ctx: &mut Ctx,
    he: &HeContext,
    ring: Ring,
    shape: &LinearShape,
    each: usize,
) -> Result<Vec<Ahead>, TwopcError> {
    ctx.check_process()?;
    let (rows, inputs) = (shape.shape.k, shape.shape.m);
    let masks = (0..rows * inputs).map(|_| ctx.rng.next_u64()).collect();
    let masks = Share::new(ring, masks);
    let products = linear_client(ctx, he, &masks, shape)?;
    let masks = cut(&masks, each * inputs);
    let rows = masks.zip(cut(&products, each * shape.shape.n));
    Ok(rows.map(|(mask, product)| Ahead { rows: each, mask, product }).collect())
}

/// The server's part of the preparation, for this many rows, `each` of which are used together.
///
/// # Errors
/// As [`linear_server_alone`].
pub fn ahead_server(
    ctx: &mut Ctx,
    he: &HeContext,
    ring: Ring,
    (rows, each): (usize, usize),
    weights: &PreparedWeights,
) -> Result<Vec<Ahead>, TwopcError> {
    let products = linear_server_alone(ctx, he, ring, rows, weights)?;
    let none = || Share::zero(ring, 0);
    let rows = cut(&products, each * weights.n).map(|product| Ahead { rows: each, mask: none(), product });
    Ok(rows.collect())
}

/// The client's part: takes its share of the rows that `ahead` is for, and returns its share of the rows times W.
///
/// # Errors
/// [`HeError::Operand`](crate::he::HeError::Operand) if the size of the rows does not fit; else those of the session.
pub fn linear_ahead_client(ctx: &mut Ctx, x: &Share, ahead: Ahead) -> Result<Share, TwopcError> {
    let Ahead { mask, product, .. } = ahead;
    expect_words(x.words(), mask.len())?;
    let masked = x.sub(&mask);
    let message = wire::pack(masked.words(), x.ring().bits());
    ctx.session.send_vec(MASKED, message)?;
    Ok(product)
}

/// The server's part: takes its share of the rows, and the weights that the product was prepared with.
///
/// # Errors
/// [`HeError::Operand`](crate::he::HeError::Operand) if the size of rows or weights does not fit; else those of the
/// session and of the peer's bytes.
pub fn linear_ahead_server(
    ctx: &mut Ctx,
    x: &Share,
    weights: &PreparedWeights,
    ahead: Ahead,
) -> Result<Share, TwopcError> {
    let (ring, inputs) = (x.ring(), weights.m);
    let rows = ahead.rows;
    expect_words(x.words(), rows * inputs)?;
    expect_words(ahead.product.words(), rows * weights.n)?;
    let length = wire::packed_len(rows * inputs, ring.bits());
    let message = wire::recv_exactly(&mut ctx.session, MASKED, length)?;
    let masked = Share::new(ring, wire::unpack(&message, ring.bits(), rows * inputs)?);
    let all = masked.add(x);
    let own = product_small(all.words(), &weights.weights, rows, inputs, weights.n);
    Ok(ahead.product.add(&Share::new(ring, own)))
}

/// Cost of a product prepared ahead, for rows of `numbers` numbers in all. Preparing it costs as much as the step at
/// once.
pub fn linear_ahead_cost(numbers: usize, ring: Ring) -> Cost {
    Cost::exchange(wire::packed_len(numbers, ring.bits()) as u64, 0)
}

/// The parts of this length.
fn cut(x: &Share, length: usize) -> impl Iterator<Item = Share> {
    let parts = x.words().chunks_exact(length.max(1));
    parts.map(|part| Share::new(x.ring(), part.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::he::tests::linear_cost;
    use crate::he::{HeError, OltShape};
    use crate::share::Ring;
    use crate::testing::{assert_cost, keys, reveal, run_after, share};
    use hushed_math::rng::SecretRng;

    /// Weights that include both ends of their range, and rows of full-size words.
    fn numbers(rows: usize, m: usize, n: usize, bits: u32, ring: Ring) -> (Vec<i32>, Vec<u64>) {
        let mut rng = SecretRng::insecure_from_seed(5);
        let mut weights: Vec<i32> = (0..m * n).map(|_| (rng.next_u64() as i32) >> (31 - bits)).collect();
        (weights[0], weights[m * n - 1]) = (-(1 << bits), 1 << bits);
        let mut x: Vec<u64> = (0..rows * m).map(|_| ring.reduce(rng.next_u64())).collect();
        x[0] = ring.mask();
        (weights, x)
    }

    /// Rows prepared together, `each` of them as one, and used one after the other, `of_message` per message: checks
    /// the product against its definition, and the declared cost of both parts.
    fn rows_made_ahead((rows, each): (usize, usize), of_message: usize, m: usize, n: usize, bits: u32) {
        let ring = Ring::new(48);
        let (w, x) = numbers(rows, m, n, bits, ring);
        let weights = PreparedWeights::new(m, n, bits, w.clone()).unwrap();
        let shape = weights.shape(rows);
        let messages = x.chunks(m * of_message);
        let shares: Vec<_> = messages.map(|rows| share(ring, rows, rows[0])).collect();
        let making = |ctx: &mut Ctx| {
            let he = keys(ctx);
            let before = ctx.session.stats();
            let made = match ctx.is_client() {
                true => ahead_client(ctx, &he, ring, &shape, each).unwrap(),
                false => ahead_server(ctx, &he, ring, (rows, each), &weights).unwrap(),
            };
            let cost = linear_cost(&he, &shape, ring).unwrap();
            let spent = ctx.session.stats().since(&before);
            let bytes = cost.wire_bytes();
            assert_eq!(spent.bytes_sent + spent.bytes_received, bytes);
            assert!(made.len() * each == rows && made.iter().all(|made| made.rows() == each));
            std::sync::Mutex::new(made)
        };
        let take = |made: &std::sync::Mutex<Vec<Ahead>>| {
            let mut made = std::mem::take(&mut *made.lock().unwrap());
            let next = || {
                let rows = made.drain(..(of_message / each).min(made.len())).collect();
                Ahead::together(rows)
            };
            std::iter::from_fn(next).collect::<Vec<_>>()
        };
        let (a, b, stats) = run_after(
            making,
            |ctx, made| {
                let rows = take(made).into_iter().zip(&shares);
                rows.map(|(row, (x, _))| linear_ahead_client(ctx, x, row).unwrap()).collect::<Vec<_>>()
            },
            |ctx, made| {
                let rows = take(made).into_iter().zip(&shares);
                rows.map(|(row, (_, x))| linear_ahead_server(ctx, x, &weights, row).unwrap()).collect::<Vec<_>>()
            },
        );
        let found = a.iter().zip(&b).flat_map(|(a, b)| reveal(a, b));
        let found: Vec<u64> = found.collect();
        assert_eq!(found.len(), rows * n);
        for (found, x) in found.chunks(n).zip(x.chunks(m)) {
            for (column, &found) in found.iter().enumerate() {
                let term = |i: usize| x[i].wrapping_mul(i64::from(w[i * n + column]) as u64);
                let exact = (0..m).map(term).fold(0, u64::wrapping_add);
                let off = ring.decode(ring.reduce(found.wrapping_sub(exact)));
                assert!(off.abs() <= 1, "column {column}: off by {off}");
            }
        }
        let messages = (rows / of_message) as u64;
        let mut expected = linear_ahead_cost(of_message * m, ring).repeated(messages);
        // The client sends all rows without waiting.
        expected.rounds = 1;
        assert_cost(&stats, expected);
    }

    #[test]
    fn rows_made_ahead_give_the_product() {
        rows_made_ahead((1, 1), 1, 1, 1, 20);
        rows_made_ahead((3, 1), 1, 50, 7, 22);
        rows_made_ahead((5, 1), 1, 384, 33, 22);
        rows_made_ahead((9, 1), 1, 768, 70, 22);
        rows_made_ahead((130, 1), 1, 5, 3, 22);
        // A lookup table: where the row is not one-hot, every entry adds to the noise.
        rows_made_ahead((2, 1), 1, 50_257, 5, 28);
    }

    #[test]
    fn rows_made_ahead_are_used_together() {
        rows_made_ahead((6, 1), 3, 50, 7, 22);
        rows_made_ahead((5, 1), 5, 33, 1, 22);
        // Those of two texts, one message each and one for both.
        rows_made_ahead((14, 7), 7, 50, 7, 22);
        rows_made_ahead((14, 7), 14, 50, 7, 22);
        assert!(Ahead::together(Vec::new()).is_none());
    }

    /// What is sent to the server depends on r: the same row sent twice looks new.
    #[test]
    fn a_row_sent_twice_does_not_repeat() {
        let ring = Ring::new(48);
        let shape = LinearShape { shape: OltShape { k: 2, m: 40, n: 2 }, weight_bits: 20 };
        let weights = PreparedWeights::new(40, 2, 20, vec![1; 80]).unwrap();
        let ((), seen, _) = run_after(
            keys,
            |ctx, he| {
                let row = Share::new(ring, vec![7; 40]);
                for ahead in ahead_client(ctx, he, ring, &shape, 1).unwrap() {
                    linear_ahead_client(ctx, &row, ahead).unwrap();
                }
            },
            |ctx, he| {
                ahead_server(ctx, he, ring, (2, 1), &weights).unwrap();
                let length = wire::packed_len(40, 48);
                [0, 1].map(|_| wire::recv_exactly(&mut ctx.session, MASKED, length).unwrap())
            },
        );
        let words = seen.map(|message| wire::unpack(&message, 48, 40).unwrap());
        assert!(words[0].iter().zip(&words[1]).all(|(a, b)| a != b && *a != 7));
    }

    #[test]
    fn operands_and_foreign_bytes_that_do_not_fit_are_refused() {
        let ring = Ring::new(47);
        let weights = PreparedWeights::new(3, 2, 20, vec![1; 6]).unwrap();
        let shape = weights.shape(1);
        let operand = |error: Option<TwopcError>| matches!(error, Some(TwopcError::He(HeError::Operand { .. })));
        // 3 words of 47 bits take 18 bytes; the last three bits belong to no word.
        for bytes in [17, 19, 0, 18] {
            let ((), error, _) = run_after(
                keys,
                |ctx, he| {
                    let mut made = ahead_client(ctx, he, ring, &shape, 1).unwrap();
                    let wrong = Share::zero(ring, 4);
                    let error = linear_ahead_client(ctx, &wrong, made.remove(0)).err();
                    assert!(operand(error));
                    ctx.session.send(MASKED, &vec![0xff; bytes]).unwrap();
                },
                |ctx, he| {
                    let mut made = ahead_server(ctx, he, ring, (1, 1), &weights).unwrap();
                    let x = Share::zero(ring, 3);
                    linear_ahead_server(ctx, &x, &weights, made.remove(0)).err()
                },
            );
            match bytes {
                18 => assert!(matches!(error, Some(TwopcError::PeerMisbehaved { .. }))),
                _ => assert!(matches!(error, Some(TwopcError::Net(_))), "{bytes}"),
            }
        }
        let ((), (), _) = run_after(
            keys,
            |ctx, he| drop(ahead_client(ctx, he, ring, &shape, 1).unwrap()),
            |ctx, he| {
                let mut made = ahead_server(ctx, he, ring, (1, 1), &weights).unwrap();
                let x = Share::zero(ring, 2);
                let error = linear_ahead_server(ctx, &x, &weights, made.remove(0)).err();
                assert!(operand(error));
            },
        );
    }
}
