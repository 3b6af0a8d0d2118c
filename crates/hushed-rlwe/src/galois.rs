//! Keys of automorphisms X → X^g: their shape, and which ones interleaving needs.
//!
//! A key switches s(X^g) to s. For ciphertexts of at most L primes it lives modulo those, Q, and special primes with
//! product P: the parameters' first special prime, and as many ciphertext primes beyond L as make a digit longer, up to
//! all of Q in one digit. With N = 2^13 and 50-bit primes, L = 2 of three: one digit of 100 bits and P of 100 bits, all
//! below the table's limit at this degree.
//!
//! # Nodes of interleaving
//! InterLeave (BumbleBee, NDSS 2025, Figure 6) combines two polynomials per level with one automorphism τ_h of element
//! N/h + 1, for a distance h:
//!   R = e + X^h·o + τ_h(e − X^h·o) = (1 + τ_h)·e + X^h·(1 + τ_h)·o.
//! Two levels are R = Σ_{j<4} X^{jh}·(1 + τ_h)(1 + τ_2h)·c_j, a sum over the four automorphisms σ of the product. Each
//! acts on X^h as a power of I = X^{N/2} (`automorphisms`), so that
//!   R = Σ_σ σ(u_σ),  u_σ = Σ_j I^{−kj}·X^{jh}·c_j  where σ(X^h) = I^k·X^h:
//! a transform of length four, and three key switches whose results are added before the division by P. Nodes of two
//! would divide three times.

use std::ops::Range;
use std::sync::Arc;

use hushed_math::{Automorphism, Eval, RnsPoly};

use crate::params::RlweParams;

/// One digit of a Galois key, over [`KeyShape::ids`].
pub(crate) struct KeyDigit {
    pub(crate) b: RnsPoly<Eval>,
    pub(crate) a: RnsPoly<Eval>,
}

/// The key of one automorphism.
pub(crate) struct GaloisKey {
    /// m(X) → m(X^g) on values.
    pub(crate) permutation: Arc<Automorphism>,
    pub(crate) digits: Vec<KeyDigit>,
}

/// The primes of a Galois key, and which of them share a digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyShape {
    /// The most primes of a ciphertext.
    limbs: usize,
    /// The number of primes per digit, and of special primes.
    digit: usize,
    /// Indices of the special primes in the basis; empty if the parameters have none.
    special: Vec<usize>,
}

impl KeyShape {
    /// The shape for ciphertexts of at most `limbs` primes, and at least one.
    pub(crate) fn new(params: &RlweParams, limbs: usize) -> Self {
        let q_len = params.q_len();
        let digit = limbs.min(1 + q_len.saturating_sub(limbs)).max(1);
        let spare = limbs..limbs + digit - 1;
        let special = match params.special_prime() {
            Some(_) => spare.chain([q_len]).collect(),
            None => Vec::new(),
        };
        Self { limbs, digit, special }
    }

    /// The most primes of a ciphertext.
    pub(crate) fn limbs(&self) -> usize {
        self.limbs
    }

    /// Indices of the special primes in the basis.
    pub(crate) fn special(&self) -> &[usize] {
        &self.special
    }

    /// The primes of a key's product with a ciphertext of `limbs` primes: those, then the special ones.
    pub(crate) fn ids(&self, limbs: usize) -> Vec<usize> {
        (0..limbs).chain(self.special.iter().copied()).collect()
    }

    /// The position of prime `id`, one of [`KeyShape::ids`], in a polynomial of a key.
    pub(crate) fn place(&self, id: usize) -> usize {
        let special = self.special.iter().position(|&special| special == id);
        special.map_or(id, |place| self.limbs + place)
    }

    /// The primes of each digit of a ciphertext with `limbs` primes.
    pub(crate) fn digits(&self, limbs: usize) -> Vec<Range<usize>> {
        let starts = (0..limbs).step_by(self.digit);
        starts.map(|first| first..limbs.min(first + self.digit)).collect()
    }
}

/// The greatest distance of a node of four: 2^9, enough for whole trees of 2^11 leaves. More distant nodes of larger
/// trees combine two at a time.
const FURTHEST_OF_FOUR: usize = 1 << 9;

/// The number of children of a node at distance `h` in a tree of `size` leaves, at degree `n`: four wherever the levels
/// below can be taken two at a time. The root, of which there is only one, takes the odd level.
pub fn children(n: usize, h: usize, size: usize) -> usize {
    let levels = (size / h).ilog2();
    if levels % 2 == 1 || !has_nodes_of_four(n, h) { 2 } else { 4 }
}

/// Only if N/(8h) is an integer do the automorphisms act on X^h as described in the header.
fn has_nodes_of_four(n: usize, h: usize) -> bool {
    h <= FURTHEST_OF_FOUR && 8 * h <= n
}

/// The elements of a node's automorphisms at distance `h`, except the identity: σ(X^h) = I^k·X^h for k = 2 in a node of
/// two, k = 1, 2, 3 in one of four.
pub(crate) fn automorphisms(n: usize, h: usize, children: usize) -> Vec<usize> {
    let tau = |h: usize| n / h + 1;
    if children == 2 {
        return vec![tau(h)];
    }
    vec![tau(2 * h), tau(h), tau(h) * tau(2 * h) % (2 * n)]
}

impl RlweParams {
    /// The elements of all automorphisms for trees of up to 2^`levels` leaves, each once: N/h + 1 for h = 1, 2, …,
    /// 2^(`levels`−1), and those of nodes of four.
    pub fn interleave_elements(&self, levels: u32) -> Vec<usize> {
        elements(self.n(), levels.min(self.log_n()))
    }
}

fn elements(n: usize, levels: u32) -> Vec<usize> {
    let distances = || (0..levels).map(|level| 1 << level);
    let products = distances().filter(|h| 2 * h < 1 << levels && has_nodes_of_four(n, *h));
    let products = products.flat_map(|h| automorphisms(n, h, 4).pop());
    distances().map(|h| n / h + 1).chain(products).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiplies out the products of two levels.
    #[test]
    fn automorphisms_of_four_are_those_of_two_levels() {
        for n in [16, 256, 8192] {
            for h in (0..12).map(|log| 1 << log) {
                if !has_nodes_of_four(n, h) {
                    continue;
                }
                let all = automorphisms(n, h, 4);
                for (k, &g) in (1..).zip(&all) {
                    // X^h → I^k·X^h, and I is fixed.
                    assert_eq!(h * g % (2 * n), (h + k * n / 2) % (2 * n), "{n} {h} {k}");
                    assert_eq!(n / 2 * g % (2 * n), n / 2, "{n} {h} {k}");
                }
                assert_eq!(automorphisms(n, h, 2), all[1..2]);
            }
        }
    }

    #[test]
    fn elements_are_odd_and_counted() {
        assert_eq!(elements(8192, 3), [8193, 4097, 2049, 12289, 6145]);
        let all = elements(8192, 13);
        assert_eq!(all.len(), 13 + 10);
        assert!(all.iter().all(|g| g % 2 == 1 && *g < 2 * 8192));
    }

    #[test]
    fn elements_serve_every_tree() {
        for (n, levels) in [(8192, 13), (8192, 3), (256, 8), (16, 4)] {
            let elements = elements(n, levels);
            let mut sorted = elements.clone();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!(sorted.len(), elements.len());
            let mut used = Vec::new();
            for size in (1..=levels).map(|level| 1 << level) {
                let mut h = 1;
                while h < size {
                    let children = children(n, h, size);
                    used.extend(automorphisms(n, h, children));
                    h *= children;
                }
                assert_eq!(h, size);
            }
            used.sort_unstable();
            used.dedup();
            assert_eq!(used, sorted);
        }
    }
}
