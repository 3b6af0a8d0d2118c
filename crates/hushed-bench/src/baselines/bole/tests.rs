//! Vectors of two parties compared with the clear, and declared costs compared with the counters.

use super::shares::{exchange_encrypted, product_with_sent};
use super::*;
use hushed_twopc::Cost;
use hushed_twopc::testing::{Counted, assert_cost, reveal, run_after, share};

fn run<A: Send, B: Send>(
    client: impl FnOnce(&mut Ctx, &OleContext) -> A + Send,
    server: impl FnOnce(&mut Ctx, &OleContext) -> B + Send,
) -> (A, B, Counted) {
    let keys = |ctx: &mut Ctx| OleContext::exchange(&mut ctx.session, &mut ctx.rng).unwrap();
    run_after(keys, client, server)
}

fn words(count: usize, seed: u64, ring: Ring) -> Vec<u64> {
    let mut out: Vec<u64> = (0..count as u64)
        .map(|i| ring.reduce((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(seed | 1)))
        .collect();
    // Zero and both signs at the ends of the range.
    for (slot, edge) in out.iter_mut().zip([0, 1, ring.mask(), ring.mask() / 2, ring.mask() / 2 + 1]) {
        *slot = edge;
    }
    out
}

fn assert_close(found: &[u64], expected: impl Iterator<Item = u64>, ring: Ring, most: u64) {
    for (i, (&f, e)) in found.iter().zip(expected).enumerate() {
        let off = ring.decode(ring.reduce(f.wrapping_sub(e)));
        assert!(off.unsigned_abs() <= most, "element {i} off by {off}");
    }
}

#[test]
fn the_primes_are_what_they_are_said_to_be() {
    assert_eq!(hushed_math::primes::ntt_primes(43, 8192, 3), T);
    let log_t: f64 = T.iter().map(|&t| (t as f64).log2()).sum();
    assert!(log_t > 128.9 && (T[0] as f64).log2() > 42.99);
}

#[test]
fn vectors_of_two_parties() {
    for (bits, n) in [(64, 8192 + 5), (64, 3), (32, 100), (17, 64), (42, 9), (43, 9)] {
        let ring = Ring::new(bits);
        let (x, y) = (words(n, 3, ring), words(n, 11, ring));
        let y: Vec<u64> = y.into_iter().rev().collect();
        let (a, b, _) = run(
            |ctx, ole| {
                send_encrypted(ctx, ole, ring, &x).unwrap();
                open_products(ctx, ole, ring, n).unwrap()
            },
            |ctx, ole| {
                let sent = receive_encrypted(ctx, ole, ring, n).unwrap();
                answer_products(ctx, ole, &sent, &y).unwrap()
            },
        );
        let expected = x.iter().zip(&y).map(|(x, y)| x.wrapping_mul(*y));
        assert_close(&reveal(&a, &b), expected, ring, 1);
    }
}

/// The declared cost of a crossing exchange of `each` bytes a block.
fn crossing(ole: &OleContext, n: usize, each: usize) -> Cost {
    let blocks = ole.blocks(n) as u64;
    let bytes = blocks * each as u64;
    Cost { frames_client: blocks, frames_server: blocks, ..Cost::exchange(bytes, bytes) }
}

#[test]
fn products_of_shares_and_an_odd_power() {
    for (ring, n) in [(Ring::Z64, 9000), (Ring::new(32), 50)] {
        let (x, y) = (words(n, 5, ring), words(n, 7, ring));
        let (xc, xs) = share(ring, &x, 1);
        let (yc, ys) = share(ring, &y, 2);
        let step = |x: &Share, y: &Share, ctx: &mut Ctx, ole: &OleContext| {
            let sent = exchange_encrypted(ctx, ole, x).unwrap();
            let xy = product_with_sent(ctx, ole, x, &sent, y).unwrap();
            let xxy = product_with_sent(ctx, ole, x, &sent, &xy).unwrap();
            let inputs = crossing(ole, n, ole.input_bytes(primes(ring)));
            let responses = crossing(ole, n, ole.response_bytes(primes(ring)));
            (xy, xxy, inputs + responses + responses)
        };
        let (a, b, stats) = run(|ctx, ole| step(&xc, &yc, ctx, ole), |ctx, ole| step(&xs, &ys, ctx, ole));
        let xy = reveal(&a.0, &b.0);
        assert_close(&xy, x.iter().zip(&y).map(|(x, y)| x.wrapping_mul(*y)), ring, 2);
        let xxy = x.iter().zip(&xy).map(|(x, xy)| x.wrapping_mul(*xy));
        assert_close(&reveal(&a.1, &b.1), xxy, ring, 2);
        assert_cost(&stats, a.2);
    }
}

/// Bytes per million products of two parties' vectors; the paper has 105.93 MB.
#[test]
fn the_bytes_of_the_papers_table() {
    let (bytes, (), _) = run(
        |_, ole| {
            let blocks = ole.blocks(1 << 20);
            blocks * (ole.input_bytes(3) + ole.response_bytes(3))
        },
        |_, _| (),
    );
    assert!(bytes <= 105_930_000, "{bytes}");
}

#[test]
fn signed_representatives() {
    assert_eq!(signed_share(u64::MAX, 64), -1);
    assert_eq!(signed_share(1 << 63, 64), i64::MIN);
    assert_eq!(signed_share(0b100, 3), -4);
    assert_eq!(signed_share(0b011, 3), 3);
    assert_eq!(signed_share(1, 1), -1);
}
