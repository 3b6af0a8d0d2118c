//! Limb arithmetic on every kernel against wide integers, exact, for every length of the last, partial register.

mod fused;

use super::Pointwise;
use crate::machine::cpu::Cpu;
use crate::modulus::Modulus;
use crate::rng::SecretRng;

fn moduli() -> Vec<Modulus> {
    let values =
        [3, 5, 257, (1 << 30) - 35, (1 << 41) - 21, (1 << 46) - 21, (1 << 49) - 1, (1 << 49) + 1, (1 << 50) - 1];
    values.into_iter().map(|q| Modulus::new(q).unwrap()).collect()
}

fn words(length: usize, q: u64, rng: &mut SecretRng) -> Vec<u64> {
    let edges = [0, q - 1, 1, q / 2, q / 2 + 1, q - 2];
    (0..length)
        .map(|_| {
            let word = rng.next_u64();
            if word.is_multiple_of(3) { edges[(word >> 32) as usize % edges.len()] } else { word % q }
        })
        .collect()
}

#[test]
fn limb_operations_equal_wide_integers_on_every_kernel() {
    let mut rng = SecretRng::insecure_from_seed(1);
    for cpu in Cpu::variants() {
        for m in moduli() {
            let (q, p) = (m.value(), Pointwise::with_cpu(m, cpu));
            let wide = u128::from(q);
            for length in (0..20).chain([31, 32, 33, 64, 71]) {
                let all = [(); 3].map(|()| words(length, q, &mut rng));
                let [a, b, c] = &all;
                let check = |name: &str, op: &dyn Fn(&mut [u64]), expected: &dyn Fn(usize) -> u128| {
                    let mut out = a.clone();
                    op(&mut out);
                    for (i, &x) in out.iter().enumerate() {
                        let wanted = expected(i) % wide;
                        assert_eq!(u128::from(x), wanted, "{name}, q = {q}, word {i} of {length}");
                    }
                };
                let [wa, wb, wc] = [a, b, c].map(|x| move |i: usize| u128::from(x[i]));
                check("add", &|x| p.add_assign(x, b), &|i| wa(i) + wb(i));
                check("sub", &|x| p.sub_assign(x, b), &|i| wa(i) + wide - wb(i));
                check("neg", &|x| p.neg_assign(x), &|i| wide - wa(i));
                check("mul", &|x| p.mul_assign(x, b), &|i| wa(i) * wb(i));
                check("mul_add", &|x| p.mul_add_assign(x, b, c), &|i| wa(i) + wb(i) * wc(i));
                for s in [0, 1, q / 2, q - 1] {
                    check("scalar", &|x| p.mul_scalar_assign(x, s), &|i| wa(i) * u128::from(s));
                }
            }
        }
    }
}

#[test]
fn inner_products_of_greatest_residues_do_not_overflow() {
    for cpu in Cpu::variants() {
        for m in moduli() {
            let (q, p) = (m.value(), Pointwise::with_cpu(m, cpu));
            // One more than is accumulated between reductions, and lengths with and without a wide block.
            for (terms, length) in [(0, 9), (1, 40), (3, 7), (4001, 45), (8000, 3)] {
                let top = vec![q - 1; length];
                let mut acc = top.clone();
                let list = vec![top.as_slice(); terms];
                p.dot_assign(&mut acc, &list, &list);
                // (−1)² = 1 for each term, and −1 to begin with.
                let expected = (u128::from(q) - 1 + terms as u128) % u128::from(q);
                assert!(acc.iter().all(|&x| u128::from(x) == expected), "q = {q}, {terms} terms");
            }
        }
    }
}

#[test]
fn inner_products_equal_repeated_ones() {
    let mut rng = SecretRng::insecure_from_seed(2);
    for cpu in Cpu::variants() {
        for m in moduli() {
            let p = Pointwise::with_cpu(m, cpu);
            let a: Vec<Vec<u64>> = (0..11).map(|_| words(77, m.value(), &mut rng)).collect();
            let mut lazy = a[10].clone();
            let mut slow = a[10].clone();
            let (left, right): (Vec<&[u64]>, Vec<&[u64]>) = (0..5).map(|i| (&a[i][..], &a[i + 5][..])).unzip();
            p.dot_assign(&mut lazy, &left, &right);
            for (x, y) in left.iter().zip(&right) {
                p.mul_add_assign(&mut slow, x, y);
            }
            assert_eq!(lazy, slow);
        }
    }
}

#[test]
fn any_word_is_reduced_and_any_residue_lifted() {
    let mut rng = SecretRng::insecure_from_seed(3);
    for cpu in Cpu::variants() {
        for m in moduli() {
            let (q, p) = (m.value(), Pointwise::with_cpu(m, cpu));
            let mut x = vec![0, 1, q - 1, q, 2 * q, u64::MAX, u64::MAX - q, 1 << 52, (1 << 52) - 1, 1 << 63];
            x.extend((0..23).map(|_| rng.next_u64()));
            let mut out = vec![0; x.len()];
            p.reduce(&mut out, &x);
            assert!(out.iter().zip(&x).all(|(&y, &x)| y == x % q), "q = {q}");
            let signed: Vec<i64> = x.iter().map(|&word| word as i64).chain([-1, i64::MIN, i64::MAX]).collect();
            let mut out = vec![0; signed.len()];
            p.reduce_signed(&mut out, &signed);
            for (&y, &x) in out.iter().zip(&signed) {
                assert_eq!(i128::from(y), i128::from(x).rem_euclid(i128::from(q)), "{x} under {q}");
            }
            if m.bits() > 32 {
                let small: Vec<i32> = signed.iter().map(|&x| x as i32).collect();
                p.lift_small(&mut out, &small);
                for (&y, &x) in out.iter().zip(&small) {
                    let expected = i128::from(x).rem_euclid(i128::from(q));
                    assert_eq!(i128::from(y), expected, "{x} under {q}");
                }
            }
            let below: Vec<i64> = signed.iter().map(|&x| x % q as i64).collect();
            p.lift_signed(&mut out, &below);
            for (&y, &x) in out.iter().zip(&below) {
                assert_eq!(i128::from(y), i128::from(x).rem_euclid(i128::from(q)), "{x} under {q}");
            }
            for from in moduli() {
                let top = from.value();
                let x = words(29, top, &mut rng);
                let mut out = vec![0; x.len()];
                p.lift_centred(&mut out, &x, &from);
                for (&y, &x) in out.iter().zip(&x) {
                    let signed = i128::from(x) - if x > top / 2 { i128::from(top) } else { 0 };
                    assert_eq!(i128::from(y), signed.rem_euclid(i128::from(q)), "{x} of {top} under {q}");
                }
                for s in [0, 1, q / 2, q - 1] {
                    let mut a = words(x.len(), q, &mut rng);
                    let wanted = a
                        .iter()
                        .zip(&out)
                        .map(|(&a, &c)| (u128::from(a) + u128::from(q - c)) * u128::from(s) % u128::from(q));
                    let wanted: Vec<u128> = wanted.collect();
                    p.sub_centred_mul_scalar_assign(&mut a, &x, &from, s);
                    assert!(a.iter().map(|&a| u128::from(a)).eq(wanted), "{top} under {q}");
                }
            }
        }
    }
}
