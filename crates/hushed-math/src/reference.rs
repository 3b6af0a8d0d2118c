//! Reference implementations of the kernels: from the definitions, by u128 division, in quadratic time.

use crate::ntt::reverse_bits;

/// Σ a_i·x^i mod q.
pub fn evaluate(a: &[u64], x: u64, q: u64) -> u64 {
    let (x, q) = (u128::from(x), u128::from(q));
    a.iter().rev().fold(0_u128, |value, &c| (value * x + u128::from(c)) % q) as u64
}

/// The transform by its definition: value k is a(ψ^(2·rev(k)+1)).
pub fn forward(a: &[u64], psi: u64, q: u64) -> Vec<u64> {
    let log_n = a.len().trailing_zeros();
    (0..a.len())
        .map(|k| {
            let exponent = 2 * reverse_bits(k, log_n) + 1;
            let point = (0..exponent).fold(1_u128, |p, _| p * u128::from(psi) % u128::from(q));
            evaluate(a, point as u64, q)
        })
        .collect()
}

/// a·b modulo X^n + 1 and q, by the schoolbook method.
pub fn negacyclic_product(a: &[u64], b: &[u64], q: u64) -> Vec<u64> {
    let n = a.len();
    let wide_q = u128::from(q);
    let mut out = vec![0_u128; n];
    for (i, &x) in a.iter().enumerate() {
        for (j, &y) in b.iter().enumerate() {
            let term = u128::from(x) * u128::from(y) % wide_q;
            let (k, term) = if i + j < n { (i + j, term) } else { (i + j - n, wide_q - term) };
            out[k] = (out[k] + term) % wide_q;
        }
    }
    out.into_iter().map(|x| x as u64).collect()
}
