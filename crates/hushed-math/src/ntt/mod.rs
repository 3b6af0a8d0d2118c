//! The negacyclic number-theoretic transform: products modulo X^n + 1 become products of values.
//!
//! With ψ a primitive 2n-th root of unity modulo q, the transform of a = Σ a_i X^i is
//!
//! ```text
//! A[k] = a(ψ^(2·rev(k) + 1)),   rev = reversal of the log2(n) bits of k
//! ```
//!
//! This is the order in which Cooley–Tukey butterflies leave their results (Longa and Naehrig 2016, Alg. 1 and 2), the
//! same for every kernel. ψ is g^((q−1)/2n) for the least g ≥ 2 for which ψ^n = −1.

mod sparse;
mod tables;
mod twiddles;

pub use sparse::EveryCoefficient;
pub use tables::NttTables;
pub(crate) use twiddles::Twiddles;

#[cfg(test)]
mod tests;

/// Reverses the low `log_n` bits of `k`.
pub fn reverse_bits(k: usize, log_n: u32) -> usize {
    if log_n == 0 { 0 } else { k.reverse_bits() >> (usize::BITS - log_n) }
}
