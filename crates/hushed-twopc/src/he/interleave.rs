//! InterLeave in its fast form (BumbleBee, NDSS 2025, Figure 6): 2^r polynomials into one.
//!
//! `c[i] = a_{i mod 2^r}[⌊i/2^r⌋·2^r]`. With the leaves already multiplied by 2^{-r} modulo the (odd) modulus, the tree
//! goes from h = 2^{r−1} down to 1:
//!   a_j ← a_j + X^h·a_{j+h} + Auto(a_j − X^h·a_{j+h}, N/h + 1)      for j < h.
//! Auto(·, N/h + 1) fixes multiples of 2h, negates odd multiples of h; so each step keeps (and doubles) the left
//! operand's even multiples of h and moves the right operand's onto the odd ones, and what it leaves elsewhere is
//! cancelled by a later step (automorphisms commute). 2^r − 1 automorphisms in all.
//!
//! Leaves come in the order in which the tree meets them depth first: leaf i goes to the residue class [`slot`]`(i)`,
//! its bits reversed. Absent leaves count as zero: a node with an absent right child still needs its automorphism, to
//! clean; one with two absent children stays absent. In this order L leaves need Σ_k ⌈L/2^k⌉ automorphisms; in the
//! natural one, 3·2^(r−2) leaves would need a third more.

/// One node of the tree over some kind of polynomial or ciphertext.
pub trait Combine: Sync {
    /// What is interleaved.
    type Item: Send;
    /// What can fail.
    type Error: Send;

    /// even + X^h·odd + Auto(even − X^h·odd, N/h + 1).
    ///
    /// # Errors
    /// Whatever the implementation's automorphism can fail with.
    fn combine(
        &self,
        even: Self::Item,
        odd: Option<Self::Item>,
        h: usize,
    ) -> Result<Self::Item, Self::Error>;
}

/// Where leaf `i` of a tree of `size` slots goes: the coefficients at positions ≡ slot modulo size. Its own inverse.
pub fn slot(i: usize, size: usize) -> usize {
    debug_assert!(size.is_power_of_two() && i < size);
    if size == 1 {
        0
    } else {
        i.reverse_bits() >> (usize::BITS - size.ilog2())
    }
}

/// Automorphisms of the tree over `leaves` leaves in ⌈leaves⌉₂ slots: its inner nodes.
pub fn automorphisms(leaves: usize) -> u64 {
    let levels = leaves.next_power_of_two().ilog2();
    (1..=levels).map(|k| leaves.div_ceil(1 << k) as u64).sum()
}

/// Interleaves what `lift` makes of `leaves`, padded with absent ones to `size`, a power of two: leaf i goes to
/// [`slot`]`(i)`. `None` if there are no leaves. At most log2(size) nodes a thread are alive beside the leaves.
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
    node(combiner, leaves, 1, size, lift)
}

/// The node over `leaves`, which have `size`/`h` slots, `h` apart among all: even children first.
fn node<C: Combine, L: Send>(
    combiner: &C,
    mut even: Vec<L>,
    h: usize,
    size: usize,
    lift: &(impl Fn(L) -> Result<C::Item, C::Error> + Sync),
) -> Result<Option<C::Item>, C::Error> {
    if even.is_empty() || h == size {
        return even.into_iter().next().map(lift).transpose();
    }
    let odd = even.split_off(even.len().min(size / (2 * h)));
    let (even, odd) = rayon::join(
        || node(combiner, even, 2 * h, size, lift),
        || node(combiner, odd, 2 * h, size, lift),
    );
    even?
        .map(|even| combiner.combine(even, odd?, h))
        .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plain polynomials modulo an odd number.
    struct Plain;
    const MODULUS: u64 = (1 << 31) - 1;

    fn shift(a: &[u64], h: usize) -> Vec<u64> {
        let n = a.len();
        (0..n)
            .map(|i| {
                if i >= h {
                    a[i - h]
                } else {
                    (MODULUS - a[i + n - h]) % MODULUS
                }
            })
            .collect()
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

    impl Combine for Plain {
        type Item = Vec<u64>;
        type Error = std::convert::Infallible;

        fn combine(
            &self,
            even: Vec<u64>,
            odd: Option<Vec<u64>>,
            h: usize,
        ) -> Result<Vec<u64>, Self::Error> {
            let n = even.len();
            let odd = odd.map_or(vec![0; n], |o| shift(&o, h));
            let difference: Vec<u64> = even
                .iter()
                .zip(&odd)
                .map(|(a, b)| (a + MODULUS - b) % MODULUS)
                .collect();
            let turned = automorphism(&difference, n / h + 1);
            Ok(even
                .iter()
                .zip(&odd)
                .zip(turned)
                .map(|((a, b), t)| (a + b + t) % MODULUS)
                .collect())
        }
    }

    #[test]
    fn it_interleaves_any_number_of_leaves_into_any_tree() {
        let half = MODULUS.div_ceil(2);
        for degree in [1usize, 2, 4, 16, 32] {
            let mut size = 1;
            while size <= degree {
                for count in 1..=size {
                    let leaves: Vec<Vec<u64>> = (0..count)
                        .map(|j| {
                            (0..degree as u64)
                                .map(|i| (i * 7919 + 104_729 * (j as u64 + 1)).pow(2) % MODULUS)
                                .collect()
                        })
                        .collect();
                    let inverse = (0..size.ilog2()).fold(1, |x, _| x * half % MODULUS);
                    let scaled = leaves
                        .iter()
                        .map(|l| l.iter().map(|c| c * inverse % MODULUS).collect())
                        .collect();
                    let Ok(merged) = interleave(&Plain, scaled, size, &Ok);
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
        struct Count(std::sync::atomic::AtomicU64);
        impl Combine for Count {
            type Item = ();
            type Error = std::convert::Infallible;
            fn combine(&self, (): (), _: Option<()>, _: usize) -> Result<(), Self::Error> {
                self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                Ok(())
            }
        }
        for leaves in 0..70usize {
            let count = Count(0.into());
            let Ok(_) = interleave(&count, vec![(); leaves], leaves.next_power_of_two(), &Ok);
            assert_eq!(count.0.into_inner(), automorphisms(leaves), "{leaves}");
        }
        assert_eq!(automorphisms(192), 96 + 48 + 24 + 12 + 6 + 3 + 2 + 1);
        assert_eq!(automorphisms(64), 63);
    }

    #[test]
    fn nothing_gives_nothing() {
        let Ok(none) = interleave(&Plain, Vec::new(), 8, &Ok);
        assert!(none.is_none());
    }
}
