//! The fast form of InterLeave (BumbleBee, NDSS 2025, Figure 6): combines 2^r polynomials into one.
//!
//! `c[i] = a_{i mod 2^r}[⌊i/2^r⌋·2^r]`. With the leaves already multiplied by 2^{-r} modulo the (odd) modulus, the tree
//! goes from h = 2^{r−1} down to 1:
//!   a_j ← a_j + X^h·a_{j+h} + Auto(a_j − X^h·a_{j+h}, N/h + 1)      for j < h.
//! Auto(·, N/h + 1) fixes multiples of 2h and negates odd multiples of h. So each step keeps (and doubles) the left
//! operand's even multiples of h and moves the right operand's onto the odd ones; what it leaves elsewhere is cancelled
//! by a later step (automorphisms commute). 2^r − 1 automorphisms in all. Nodes take two such levels at once where they
//! can ([`hushed_rlwe::Interleaving`]).
//!
//! Leaves come in the order in which the tree meets them depth first: leaf i goes to the residue class [`slot`]`(i)`,
//! its bits reversed. Absent leaves count as zero. A node with some absent children still needs its automorphisms, for
//! cleaning; one with only absent children stays absent. In this order L leaves in levels of two need Σ_k ⌈L/2^k⌉
//! automorphisms; in the natural order, 3·2^(r−2) leaves would need a third more.

use hushed_rlwe::children;
use rayon::prelude::*;

/// The node operation of the tree, over some kind of polynomial or ciphertext.
pub trait Combine: Sync {
    /// What is interleaved.
    type Item: Send;
    /// The error type.
    type Error: Send;

    /// Number of children of a node at distance `h`, two or four.
    fn children(&self, h: usize) -> usize;

    /// Combines the children, at least one, into the node at distance `h` whose coefficient 0 ends at `slot`. The
    /// children are at distances 0, h or 0, 2h, h, 3h; absent ones are zero.
    ///
    /// # Errors
    /// Whatever the implementation's automorphisms fail with.
    fn combine(&self, children: Vec<Self::Item>, h: usize, slot: usize) -> Result<Self::Item, Self::Error>;
}

/// The slot of leaf `i` in a tree of `size` slots: the coefficients at positions ≡ slot modulo size. Its own inverse.
pub fn slot(i: usize, size: usize) -> usize {
    debug_assert!(size.is_power_of_two() && i < size);
    if size == 1 { 0 } else { i.reverse_bits() >> (usize::BITS - size.ilog2()) }
}

/// Automorphisms of the tree over `leaves` leaves of degree `n` in ⌈leaves⌉₂ slots: for each inner node, one less than
/// the number of children it may have.
pub fn automorphisms(n: usize, leaves: usize) -> u64 {
    let size = leaves.next_power_of_two();
    let (mut h, mut all) = (1, 0);
    while h < size {
        let children = children(n, h, size);
        all += (leaves.div_ceil(size / h) * (children - 1)) as u64;
        h *= children;
    }
    all
}

/// Lifts `leaves` by `lift` and interleaves them, padded with absent ones to `size`, a power of two: leaf i goes to
/// [`slot`]`(i)`. `None` if there are no leaves. Besides the leaves, at most the children of one node per thread are
/// alive at each level.
///
/// # Errors
/// The first error of `lift` or [`Combine::combine`].
pub fn interleave<C: Combine, L: Send>(
    combiner: &C,
    leaves: Vec<L>,
    size: usize,
    lift: &(impl Fn(L) -> Result<C::Item, C::Error> + Sync),
) -> Result<Option<C::Item>, C::Error> {
    debug_assert!(size.is_power_of_two() && leaves.len() <= size);
    if leaves.is_empty() {
        return Ok(None);
    }
    node(combiner, leaves, (1, 0), size, lift).transpose()
}

/// The node over `leaves`, which have `size`/`h` slots, `h` apart among all; `None` if there are no leaves.
fn node<C: Combine, L: Send>(
    combiner: &C,
    mut leaves: Vec<L>,
    (h, place): (usize, usize),
    size: usize,
    lift: &(impl Fn(L) -> Result<C::Item, C::Error> + Sync),
) -> Option<Result<C::Item, C::Error>> {
    if h == size {
        return leaves.pop().map(lift);
    }
    let count = combiner.children(h);
    let each = size / h / count;
    let mut parts = Vec::with_capacity(count);
    while !leaves.is_empty() {
        let rest = leaves.split_off(each.min(leaves.len()));
        parts.push((place + slot(parts.len(), count) * h, leaves));
        leaves = rest;
    }
    let children =
        parts.into_par_iter().filter_map(|(place, leaves)| node(combiner, leaves, (h * count, place), size, lift));
    let children: Result<Vec<_>, _> = children.collect();
    Some(children.and_then(|children| combiner.combine(children, h, place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain polynomials modulo an odd number.
    struct Plain;
    const MODULUS: u64 = (1 << 31) - 1;

    fn shift(a: &[u64], h: usize) -> Vec<u64> {
        let n = a.len();
        (0..n).map(|i| if i >= h { a[i - h] } else { (MODULUS - a[i + n - h]) % MODULUS }).collect()
    }

    fn automorphism(a: &[u64], g: usize) -> Vec<u64> {
        let n = a.len();
        let mut out = vec![0; n];
        for (i, &c) in a.iter().enumerate() {
            let e = i * g % (2 * n);
            out[e % n] = if e < n { c } else { (MODULUS - c) % MODULUS };
        }
        out
    }

    impl Plain {
        /// Combines two polynomials by definition.
        fn two(even: &[u64], odd: &[u64], h: usize) -> Vec<u64> {
            let n = even.len();
            let odd = shift(odd, h);
            let difference: Vec<u64> = even.iter().zip(&odd).map(|(a, b)| (a + MODULUS - b) % MODULUS).collect();
            let turned = automorphism(&difference, n / h + 1);
            even.iter().zip(&odd).zip(turned).map(|((a, b), t)| (a + b + t) % MODULUS).collect()
        }
    }

    /// The degree, and the size of the tree.
    struct PlainTree(usize, usize);

    impl Combine for PlainTree {
        type Item = Vec<u64>;
        type Error = std::convert::Infallible;

        fn children(&self, h: usize) -> usize {
            children(self.0, h, self.1)
        }

        fn combine(&self, mut items: Vec<Vec<u64>>, h: usize, slot: usize) -> Result<Vec<u64>, Self::Error> {
            assert!(slot < h);
            let count = self.children(h);
            assert!((1..=count).contains(&items.len()));
            items.resize(count, vec![0; self.0]);
            Ok(match &items[..] {
                [even, odd] => Plain::two(even, odd, h),
                [zero, two, one, three] => {
                    let (even, odd) = (Plain::two(zero, two, 2 * h), Plain::two(one, three, 2 * h));
                    Plain::two(&even, &odd, h)
                }
                _ => panic!("two or four"),
            })
        }
    }

    #[test]
    fn it_interleaves_any_number_of_leaves_into_any_tree() {
        let half = MODULUS.div_ceil(2);
        for degree in [1usize, 2, 4, 16, 32, 128] {
            let mut size = 1;
            while size <= degree {
                for count in 1..=size {
                    let leaves: Vec<Vec<u64>> = (0..count)
                        .map(|j| {
                            (0..degree as u64).map(|i| (i * 7919 + 104_729 * (j as u64 + 1)).pow(2) % MODULUS).collect()
                        })
                        .collect();
                    let inverse = (0..size.ilog2()).fold(1, |x, _| x * half % MODULUS);
                    let scaled = leaves.iter().map(|l| l.iter().map(|c| c * inverse % MODULUS).collect()).collect();
                    let tree = PlainTree(degree, size);
                    let Ok(merged) = interleave(&tree, scaled, size, &Ok);
                    let merged = merged.unwrap();
                    for (i, &c) in merged.iter().enumerate() {
                        let leaf = leaves.get(slot(i % size, size));
                        let expected = leaf.map_or(0, |leaf| leaf[i / size * size]);
                        assert_eq!(c, expected, "N={degree} size={size} count={count} i={i}");
                    }
                }
                size *= 2;
            }
        }
    }

    #[test]
    fn automorphisms_are_counted() {
        /// The size of the tree, and the automorphisms so far.
        struct Count(usize, std::sync::atomic::AtomicU64);
        impl Combine for Count {
            type Item = ();
            type Error = std::convert::Infallible;
            fn children(&self, h: usize) -> usize {
                children(8192, h, self.0)
            }
            fn combine(&self, _: Vec<()>, h: usize, _: usize) -> Result<(), Self::Error> {
                let more = self.children(h) as u64 - 1;
                self.1.fetch_add(more, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
        }
        for leaves in (0..70usize).chain([1 << 12]) {
            let size = leaves.next_power_of_two();
            let count = Count(size, 0.into());
            let Ok(_) = interleave(&count, vec![(); leaves], size, &Ok);
            assert_eq!(count.1.into_inner(), automorphisms(8192, leaves), "{leaves}");
        }
        // 48 + 12 + 3 + 1 nodes of four children; only the root of an odd number of levels has two.
        assert_eq!(automorphisms(8192, 192), 3 * (48 + 12 + 3 + 1));
        assert_eq!(automorphisms(8192, 64), 63);
        assert_eq!(automorphisms(8192, 32), 31);
    }

    #[test]
    fn nothing_gives_nothing() {
        let Ok(none) = interleave(&PlainTree(16, 8), Vec::new(), 8, &Ok);
        assert!(none.is_none());
    }
}
