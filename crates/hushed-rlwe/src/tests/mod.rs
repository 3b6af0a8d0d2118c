//! Tests against clear polynomial arithmetic, and their shared helpers.

mod arithmetic;
mod bytes;
mod eval_keys;
mod flooded;
mod forked;
mod hybrid;
mod interleaving;
mod message;
mod mutations;
mod parts;
mod response;
mod stored;
mod top_bits;

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, Eval, RnsPoly};

use crate::params::{RlweLiteral, RlweParams};

/// N = 2^8, Q of three 50-bit primes, one special prime. Insecure.
fn tiny() -> Arc<RlweParams> {
    let literal = RlweParams::olt_full().unwrap().literal().clone();
    RlweParams::insecure_for_tests(RlweLiteral { log_n: 8, ..literal }).unwrap()
}

/// N = 2^4: small enough to try every length and every byte. Insecure.
fn minute() -> Arc<RlweParams> {
    let literal = RlweParams::olt_small().unwrap().literal().clone();
    RlweParams::insecure_for_tests(RlweLiteral { log_n: 4, ..literal }).unwrap()
}

fn rng(seed: u64) -> SecretRng {
    SecretRng::insecure_from_seed(seed)
}

fn shares(rng: &mut SecretRng, n: usize, ell: u32) -> Vec<u64> {
    (0..n).map(|_| rng.next_u64() >> (64 - ell)).collect()
}

/// Small signed integers of at most `bits` bits.
fn small(rng: &mut SecretRng, n: usize, bits: u32) -> Vec<i64> {
    (0..n).map(|_| (rng.next_u64() as i64) >> (64 - bits)).collect()
}

/// Integers as an unscaled polynomial over the first `limbs` primes, to multiply a ciphertext by.
fn plain_signed(params: &RlweParams, limbs: usize, values: &[i64]) -> RnsPoly<Eval> {
    RnsPoly::from_signed(params.basis(), &params.ciphertext_ids(limbs), values).into_eval()
}

/// x·w modulo X^N + 1 and 2^ell, schoolbook.
fn clear_product(x: &[u64], w: &[i64], ell: u32) -> Vec<u64> {
    let n = x.len();
    let mut out = vec![0u64; n];
    for (i, &x) in x.iter().enumerate() {
        for (j, &w) in w.iter().enumerate() {
            let term = x.wrapping_mul(w as u64);
            let k = (i + j) % n;
            out[k] = if i + j < n { out[k].wrapping_add(term) } else { out[k].wrapping_sub(term) };
        }
    }
    out.into_iter().map(|v| reduce(v, ell)).collect()
}

fn reduce(v: u64, ell: u32) -> u64 {
    v & (u64::MAX >> (64 - ell))
}

/// The largest |coefficient| of a polynomial; asserts that its coefficients are small integers.
fn largest(poly: &RnsPoly<Coeff>) -> f64 {
    let centred = |j: usize, i: usize| poly.basis().modulus(poly.ids()[j]).centre(poly.limb(j)[i]);
    let mut largest = 0;
    for i in 0..poly.n() {
        let value = centred(0, i);
        for j in 1..poly.ids().len() {
            assert_eq!(centred(j, i), value, "not a small integer");
        }
        largest = largest.max(value.unsigned_abs());
    }
    largest as f64
}
