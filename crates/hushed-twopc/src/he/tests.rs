//! Products between two parties compared with products in the clear: values within their stated error, bytes and rounds
//! as declared.

use super::*;
use crate::ctx::Ctx;
use crate::share::{Ring, Share};
use crate::testing::{Counted, assert_cost, keys, reveal, run_after, share};
use crate::{Cost, TwopcError};

/// Runs the step on both sides after the key exchange and counts the step alone.
fn run<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx, &HeContext) -> A + Send,
    server: impl FnOnce(&mut Ctx, &HeContext) -> B + Send,
) -> (A, B, Counted) {
    run_after(keys, client, server)
}

/// The declared cost of a linear layer.
pub(super) fn linear_cost(he: &HeContext, shape: &LinearShape, ring: Ring) -> Result<Cost, TwopcError> {
    Ok(he.layouts().of_rows(&shape.spec(ring))?.cost().traffic())
}

/// The declared cost of a product of shared matrices.
fn matmul_cost(he: &HeContext, shape: &MatmulShape, ring: Ring) -> Result<Cost, TwopcError> {
    Ok(shape.cost(ring, he.layouts())?.traffic())
}

/// X·W modulo 2^ℓ by definition.
fn clear(x: &[u64], w: &[u64], shape: OltShape, ring: Ring) -> Vec<u64> {
    let OltShape { k, m, n } = shape;
    (0..k * n)
        .map(|e| {
            let term = |j: usize| x[e / n * m + j].wrapping_mul(w[j * n + e % n]);
            ring.reduce((0..m).fold(0u64, |s, j| s.wrapping_add(term(j))))
        })
        .collect()
}

fn assert_close(found: &[u64], expected: &[u64], ring: Ring, most: u64) {
    assert_eq!(found.len(), expected.len());
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let off = ring.decode(ring.reduce(f.wrapping_sub(e)));
        assert!(off.unsigned_abs() <= most, "entry {i}: {f:#x} for {e:#x}, off by {off}");
    }
}

fn weights(count: usize, bits: u32) -> Vec<i32> {
    let mut w: Vec<i32> = words(count, 77).into_iter().map(|x| (x as i32) >> (31 - bits)).collect();
    w[0] = -(1 << bits);
    if let Some(last) = w.last_mut().filter(|_| count > 1) {
        *last = 1 << bits;
    }
    w
}

fn linear(k: usize, m: usize, n: usize, ring: Ring, bits: u32, ready: bool) {
    let shape = OltShape { k, m, n };
    let w = weights(m * n, bits);
    let mut x: Vec<u64> = words(k * m, 3).into_iter().map(|x| ring.reduce(x)).collect();
    x[0] = ring.mask();
    let wide: Vec<u64> = w.iter().map(|&w| i64::from(w) as u64).collect();
    let expected = clear(&x, &wide, shape, ring);
    let (x_client, x_server) = share(ring, &x, 9);
    let mut prepared = PreparedWeights::new(m, n, bits, w).unwrap();
    let public = prepared.shape(k);
    let (a, b, stats) = run(
        |ctx, he| {
            let declared = linear_cost(he, &public, ring).unwrap();
            (linear_client(ctx, he, &x_client, &public).unwrap(), declared)
        },
        |ctx, he| {
            if ready {
                prepared.make_ready(he.params(), k, ring).unwrap();
            }
            linear_server(ctx, he, &x_server, &prepared).unwrap()
        },
    );
    let (a, declared) = a;
    assert_close(&reveal(&a, &b), &expected, ring, 1);
    assert_cost(&stats, declared);
    // There and back, whatever the number of frames; the client waits once.
    assert_eq!((declared.rounds, stats.client.rounds), (2, 1));
}

#[test]
fn shares_times_weights() {
    for (k, m, n) in [(1, 1, 1), (1, 50, 7), (3, 5, 2), (7, 33, 65), (130, 3, 2), (2, 3, 300)] {
        linear(k, m, n, Ring::Z64, 20, false);
    }
}

#[test]
fn shares_times_weights_in_smaller_rings() {
    for bits in [1, 13, 32, 48] {
        linear(3, 70, 5, Ring::new(bits), 18, false);
    }
}

#[test]
fn a_layer_of_the_model_with_weights_held_ready() {
    linear(16, 384, 100, Ring::Z64, 20, true);
}

/// The rows beyond a power of two are a transformation of their own.
#[test]
fn a_layer_for_rows_a_few_above_a_power_of_two() {
    for (k, m, n) in [(17, 1536, 150), (5, 2000, 9), (67, 300, 40)] {
        let spec = PreparedWeights::new(m, n, 20, vec![0; m * n]).unwrap().shape(k).spec(Ring::new(48));
        let layouts = Layouts::new(hushed_rlwe::RlweParams::olt_full().unwrap());
        assert_eq!(layouts.of_rows(&spec).unwrap().terms().len(), 2, "{k} {m} {n}");
        linear(k, m, n, Ring::new(48), 20, k == 17);
    }
}

#[test]
fn a_layer_wider_than_one_response() {
    linear(16, 384, 1152, Ring::Z64, 20, false);
}

/// Multiplies the client's one-hot rows for `ids` by an m×n table; returns whether sums are made on arrival.
fn lookup(ids: &[usize], m: usize, n: usize) -> bool {
    let rows = ids.len();
    let table = weights(m * n, 20);
    let mut one_hot = vec![0u64; rows * m];
    for (row, &id) in ids.iter().enumerate() {
        one_hot[row * m + id] = 1;
    }
    let expected: Vec<u64> =
        ids.iter().flat_map(|&id| &table[id * n..(id + 1) * n]).map(|&w| i64::from(w) as u64).collect();
    let prepared = PreparedWeights::new(m, n, 20, table).unwrap();
    let public = prepared.shape(rows);
    let (a, (b, arriving), _) = run(
        |ctx, he| linear_client(ctx, he, &Share::new(Ring::Z64, one_hot), &public).unwrap(),
        |ctx, he| {
            let layout = he.layout(&public.spec(Ring::Z64)).unwrap();
            let share = linear_server_alone(ctx, he, Ring::Z64, rows, &prepared).unwrap();
            (share, layout.sums_on_arrival())
        },
    );
    assert_close(&reveal(&a, &b), &expected, Ring::Z64, 1);
    arriving
}

#[test]
fn a_lookup_by_one_hot_rows() {
    assert!(!lookup(&[0, 299, 7, 7, 131], 300, 48));
}

/// More ciphertexts than leaves, the last ones multiplied a few at a time.
#[test]
fn a_lookup_in_a_long_table() {
    let m = 25_000;
    let ids: Vec<usize> = (0..128).map(|row| row * 7919 % m).chain([m - 1]).collect();
    assert!(lookup(&ids[1..], m, 64));
}

fn matmul(k: usize, m: usize, n: usize, batch: usize, ring: Ring) {
    let shape = MatmulShape { shape: OltShape { k, m, n }, batch };
    let x: Vec<u64> = words(batch * k * m, 5).into_iter().map(|x| ring.reduce(x)).collect();
    let y: Vec<u64> = words(batch * m * n, 6).into_iter().map(|x| ring.reduce(x)).collect();
    let expected: Vec<u64> =
        x.chunks(k * m).zip(y.chunks(m * n)).flat_map(|(x, y)| clear(x, y, shape.shape, ring)).collect();
    let (xc, xs) = share(ring, &x, 1);
    let (yc, ys) = share(ring, &y, 2);
    let ((a, declared), b, stats) = run(
        |ctx, he| {
            let declared = matmul_cost(he, &shape, ring).unwrap();
            (matmul_shared(ctx, he, &xc, &yc, &shape).unwrap(), declared)
        },
        |ctx, he| matmul_shared(ctx, he, &xs, &ys, &shape).unwrap(),
    );
    assert_close(&reveal(&a, &b), &expected, ring, 2);
    assert_cost(&stats, declared);
}

#[test]
fn shared_matrices() {
    for (k, m, n, batch) in [(1, 1, 1, 1), (3, 5, 2, 1), (1, 50, 7, 2), (9, 4, 9, 12), (16, 32, 16, 12)] {
        matmul(k, m, n, batch, Ring::Z64);
    }
}

#[test]
fn shared_matrices_of_other_shapes_and_rings() {
    matmul(40, 8, 3, 5, Ring::Z64);
    matmul(20, 20, 8, 12, Ring::new(32));
    matmul(5, 6, 7, 2, Ring::new(17));
}

fn olt(spec: OltSpec) {
    let OltShape { k, m, n } = spec.shape;
    let ring = Ring::new(spec.ring_bits);
    let (left, right) = (spec.batch * k * m, spec.batch * m * n);
    let small = |count| -> Vec<i64> {
        let top = words(count, 4).into_iter().map(|x| x as i64 >> (63 - spec.multiplier_bits));
        top.collect()
    };
    let (count, values) = match spec.encrypted {
        Encrypted::Left => (left, small(right)),
        Encrypted::Right => (right, small(left)),
    };
    let secret: Vec<u64> = words(count, 3).into_iter().map(|x| ring.reduce(x)).collect();
    let wide: Vec<u64> = values.iter().map(|&v| v as u64).collect();
    let (x, y) = match spec.encrypted {
        Encrypted::Left => (&secret, &wide),
        Encrypted::Right => (&wide, &secret),
    };
    let products = x.chunks(k * m).zip(y.chunks(m * n));
    let expected: Vec<u64> = products.flat_map(|(x, y)| clear(x, y, spec.shape, ring)).collect();
    let ((a, declared), b, stats) = run(
        |ctx, he| {
            let declared = he.layout(&spec).unwrap().tiling.cost();
            (olt_encrypted(ctx, he, &spec, &secret).unwrap(), declared)
        },
        |ctx, he| olt_multiplying(ctx, he, &spec, &values).unwrap(),
    );
    assert_close(&reveal(&a, &b), &expected, ring, 1);
    assert_cost(&stats, declared.traffic());
}

#[test]
fn every_packing_from_either_side() {
    for packing in [Packing::InterLeave, Packing::Krdy, Packing::PackLwes] {
        for encrypted in [Encrypted::Left, Encrypted::Right] {
            for (k, m, n, batch) in [(3, 40, 5, 1), (5, 6, 7, 3)] {
                let shape = OltShape { k, m, n };
                olt(OltSpec {
                    shape,
                    batch,
                    ring_bits: 64,
                    multiplier_bits: 20,
                    encrypted,
                    packing,
                    window: None,
                    spare_bits: 0,
                });
            }
        }
    }
}

#[test]
fn every_inner_window_of_one_shape() {
    for (mw, kw, nw) in [(1, 3, 4), (4, 2, 3), (8, 1, 4), (32, 3, 4), (1024, 2, 2), (8192, 1, 1)] {
        olt(OltSpec {
            shape: OltShape { k: 3, m: 9, n: 4 },
            batch: 2,
            ring_bits: 64,
            multiplier_bits: 63,
            encrypted: Encrypted::Left,
            packing: Packing::InterLeave,
            window: Some(Window { kw, mw, nw }),
            spare_bits: 0,
        });
    }
}

/// A server that opened responses would put functions of its key into its shares, for the client to see.
#[test]
fn the_server_encrypts_nothing() {
    let shape = OltShape { k: 1, m: 4, n: 1 };
    let spec = PreparedWeights::new(4, 1, 20, vec![1; 4]).unwrap().shape(1).spec(Ring::Z64);
    assert_eq!(spec.shape, shape);
    let (_, error, _) = run(|_, _| (), |ctx, he| olt_encrypted(ctx, he, &spec, &[1; 4]).err());
    assert!(matches!(error, Some(TwopcError::He(HeError::Role))));
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    assert!(PreparedWeights::new(2, 3, 20, vec![0; 5]).is_err());
    assert!(PreparedWeights::new(1, 1, 20, vec![(1 << 20) + 1]).is_err());
    assert!(PreparedWeights::new(1, 1, 31, vec![0]).is_err());
    assert!(PreparedWeights::new(1, 1, 20, vec![-(1 << 20)]).is_ok());
    let prepared = PreparedWeights::new(3, 2, 20, vec![1; 6]).unwrap();
    let public = prepared.shape(2);
    let (a, b, _) = run(
        |ctx, he| linear_client(ctx, he, &Share::zero(Ring::Z64, 5), &public).err(),
        |ctx, he| linear_server(ctx, he, &Share::zero(Ring::Z64, 5), &prepared).err(),
    );
    assert!(matches!(a, Some(crate::TwopcError::He(HeError::Operand { expected: 6, found: 5 }))));
    assert!(matches!(b, Some(crate::TwopcError::He(HeError::Operand { .. }))));
}

/// Beyond its shares, the opener could learn of the answerer's plaintexts only from the a parts. If two responses
/// shared an encryption of zero (as they do in public code), the difference of their a parts would be a function of the
/// inputs and the weights alone, and so repeat when the same inputs are answered again.
#[test]
fn every_response_carries_a_zero_of_its_own() {
    let (k, m, n) = (16, 8, 700);
    let weights = PreparedWeights::new(m, n, 20, weights(m * n, 20)).unwrap();
    let spec = weights.shape(k).spec(Ring::Z64);
    let x = Share::new(Ring::Z64, words(k * m, 8));
    let (seen, (), _) = run(
        |ctx, he| {
            let layout = he.layout(&spec).unwrap();
            engine::send_inputs(ctx, he, &layout, x.words()).unwrap();
            let mut frames = Vec::new();
            for _ in 0..2 * layout.tiling.responses() {
                let most = hushed_net::Expect::AtMost(1 << 20);
                frames.push(ctx.session.recv(engine::RESPONSE, most).unwrap());
            }
            let width = layout.format.coefficient_bits().0;
            assert!(width > 64 && layout.tiling.responses() >= 2);
            // The low 64 bits of all coefficients of a come first.
            let low = |f: &Vec<u8>| -> Vec<u64> {
                let words = f.as_chunks::<8>().0.iter().take(layout.tiling.degree());
                words.map(|w| u64::from_le_bytes(*w)).collect()
            };
            let a: Vec<Vec<u64>> = frames.iter().map(low).collect();
            (a, layout.tiling.responses())
        },
        |ctx, he| {
            // The same ciphertexts answered twice.
            let layout = he.layout(&spec).unwrap();
            let answer = Answer::alone(layout.clone());
            let inputs = engine::receive_inputs(&mut ctx.session, he, &answer).unwrap();
            let source = [weights.block_source(&layout)];
            for _ in 0..2 {
                engine::respond(ctx, he, &answer, &inputs, &source).unwrap();
            }
        },
    );
    let (a, responses) = seen;
    let difference = |x: &[u64], y: &[u64]| -> Vec<u64> { x.iter().zip(y).map(|(x, y)| x.wrapping_sub(*y)).collect() };
    let distinct = |v: Vec<u64>| v.into_iter().collect::<std::collections::HashSet<_>>().len();
    for i in 0..responses {
        // The same response twice: with equal zeros, all equal.
        let again = difference(&a[i], &a[responses + i]);
        assert!(distinct(again) > 8000);
        for j in 0..i {
            // With one zero per run, this would take only a handful of values: rounding and wrapping.
            let first = difference(&a[i], &a[j]);
            let second = difference(&a[responses + i], &a[responses + j]);
            assert!(distinct(difference(&first, &second)) > 8000);
        }
    }
}

#[test]
fn foreign_bytes_are_refused() {
    let weights = PreparedWeights::new(3, 2, 20, vec![1; 6]).unwrap();
    let spec = weights.shape(2).spec(Ring::Z64);
    for bytes in [0usize, 1, 100] {
        let (_, error, _) = run(
            |ctx, _| ctx.session.send(engine::INPUT, &vec![0xff; bytes]).unwrap(),
            |ctx, he| linear_server(ctx, he, &Share::zero(Ring::Z64, 6), &weights).err(),
        );
        assert!(matches!(error, Some(crate::TwopcError::Net(_))));
    }
    let (_, error, _) = run(
        |ctx, he| {
            let bytes = he.layout(&spec).unwrap().tiling.cost().bytes_in as usize;
            ctx.session.send_vec(engine::INPUT, vec![0xff; bytes]).unwrap();
        },
        |ctx, he| linear_server(ctx, he, &Share::zero(Ring::Z64, 6), &weights).err(),
    );
    assert!(matches!(error, Some(crate::TwopcError::Rlwe(hushed_rlwe::RlweError::Codec(_)))));
    let (error, ..) = run(
        |ctx, he| {
            let x = Share::zero(Ring::Z64, 6);
            linear_client(ctx, he, &x, &weights.shape(2)).err()
        },
        |ctx, he| {
            let layout = he.layout(&spec).unwrap();
            engine::receive_inputs(&mut ctx.session, he, &Answer::alone(layout.clone())).unwrap();
            let bytes = layout.tiling.cost().bytes_out as usize;
            ctx.session.send_vec(engine::RESPONSE, vec![0xff; bytes]).unwrap();
        },
    );
    assert!(matches!(error, Some(crate::TwopcError::Rlwe(hushed_rlwe::RlweError::Codec(_)))));
}

/// Fixed pseudo-random words.
fn words(count: usize, seed: u64) -> Vec<u64> {
    let mix = |i: u64| {
        let z = (i.wrapping_add(seed << 32)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z ^ (z >> 27)
    };
    (0..count as u64).map(mix).collect()
}
