//! Exact comparisons of the portable kernel with the reference, and of the vector kernels with the portable one.

use super::*;
use crate::error::MathError;
use crate::machine::cpu::Cpu;
use crate::modulus::Modulus;
use crate::primes::ntt_primes;
use crate::reference;
use crate::rng::SecretRng;

/// Inputs that reach the bounds of lazy arithmetic, then random ones.
fn inputs(n: usize, q: u64, rng: &mut SecretRng) -> Vec<Vec<u64>> {
    let mut all = vec![vec![0; n], vec![q - 1; n]];
    all.push((0..n).map(|i| if i % 2 == 0 { 0 } else { q - 1 }).collect());
    all.push((0..n).map(|i| if i < n / 2 { q - 1 } else { 0 }).collect());
    for position in [0, 1, n / 2, n - 1] {
        let mut one = vec![0; n];
        one[position.min(n - 1)] = q - 1;
        all.push(one);
    }
    all.extend((0..3).map(|_| (0..n).map(|_| rng.next_u64() % q).collect()));
    all
}

fn moduli(n: usize) -> Vec<Modulus> {
    [50, 49, 48, 46, 41, 30]
        .iter()
        .flat_map(|&bits| ntt_primes(bits, n, 1))
        // The smallest prime with a transform, and one just above 2^49: the tightest bounds at both ends.
        .chain((0..).map(|i| 2 * n as u64 * i + 1).find(|&q| q > 2 && crate::primes::is_prime(q)))
        .chain((0..).map(|i| (1 << 49) + 2 * n as u64 * i + 1).find(|&q| crate::primes::is_prime(q)))
        .map(|q| Modulus::new(q).unwrap())
        .collect()
}

#[test]
fn transforms_by_definition() {
    let mut rng = SecretRng::insecure_from_seed(1);
    for cpu in Cpu::variants() {
        for log_n in 0..8 {
            let n = 1 << log_n;
            for m in moduli(n) {
                let ntt = NttTables::with_cpu(n, m, cpu).unwrap();
                assert_eq!(m.pow(ntt.psi(), n as u64), m.value() - 1);
                for a in inputs(n, m.value(), &mut rng) {
                    let mut values = a.clone();
                    ntt.forward(&mut values);
                    assert_eq!(values, reference::forward(&a, ntt.psi(), m.value()), "n = {n}, q = {}", m.value());
                    ntt.inverse(&mut values);
                    assert_eq!(values, a, "n = {n}, q = {}", m.value());
                }
            }
        }
    }
}

#[test]
fn zero_tails_need_no_layers() {
    let mut rng = SecretRng::insecure_from_seed(3);
    for cpu in Cpu::variants() {
        for log_n in [0, 1, 4, 5, 6, 7, 8, 9, 13] {
            let n = 1 << log_n;
            for m in moduli(n) {
                let ntt = NttTables::with_cpu(n, m, cpu).unwrap();
                for prefix in [0, 1, 3, 8, 31, 32, 33, 64, 100, 128, 1000, n / 2, n] {
                    let prefix = prefix.min(n);
                    let full: Vec<u64> = (0..n).map(|_| rng.next_u64() % m.value()).collect();
                    let mut padded = full.clone();
                    padded[prefix..].fill(0);
                    ntt.forward(&mut padded);
                    let unit = ntt.strip_unit(prefix);
                    assert!(n.is_multiple_of(unit) && unit >= prefix);
                    for strip in [unit, (3 * unit).min(n), n] {
                        for (i, expected) in padded.chunks(strip).enumerate() {
                            let mut out = vec![u64::MAX; expected.len()];
                            ntt.forward_strip(&full[..prefix], i * strip, &mut out);
                            assert_eq!(out, expected, "n = {n}, prefix = {prefix}, q = {}", m.value());
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn kernels_agree_on_large_degrees() {
    let mut rng = SecretRng::insecure_from_seed(2);
    for log_n in 8..=16 {
        let n = 1 << log_n;
        for m in moduli(n) {
            let slow = NttTables::with_cpu(n, m, Cpu::portable()).unwrap();
            let fast = NttTables::new(n, m).unwrap();
            for a in inputs(n, m.value(), &mut rng) {
                let (mut x, mut y) = (a.clone(), a.clone());
                slow.forward(&mut x);
                fast.forward(&mut y);
                assert!(x == y, "forward, n = {n}, q = {}", m.value());
                slow.inverse(&mut x);
                assert!(x == a, "portable inverse, n = {n}, q = {}", m.value());
                // The inverse on arbitrary values, not only on transforms of edge cases.
                let (mut x, mut y) = (a.clone(), a.clone());
                slow.inverse(&mut x);
                fast.inverse(&mut y);
                assert!(x == y, "inverse, n = {n}, q = {}", m.value());
                for ntt in [&slow, &fast] {
                    let (values, mut out) = (a.clone(), vec![u64::MAX; n]);
                    ntt.inverse_from(&values, &mut out);
                    assert!(out == x && values == a, "n = {n}, q = {}", m.value());
                }
            }
        }
    }
}

#[test]
fn products_of_values_are_negacyclic_products() {
    let mut rng = SecretRng::insecure_from_seed(3);
    for cpu in Cpu::variants() {
        for n in [1, 2, 8, 64, 256] {
            let m = moduli(n)[0];
            let ntt = NttTables::with_cpu(n, m, cpu).unwrap();
            let many = inputs(n, m.value(), &mut rng);
            for (a, b) in many.iter().zip(many.iter().rev()) {
                let (mut x, mut y) = (a.clone(), b.clone());
                ntt.forward(&mut x);
                ntt.forward(&mut y);
                ntt.pointwise().mul_assign(&mut x, &y);
                ntt.inverse(&mut x);
                assert_eq!(x, reference::negacyclic_product(a, b, m.value()));
            }
        }
    }
}

#[test]
fn monomials_are_transformed_directly() {
    let m = moduli(64)[0];
    let ntt = NttTables::new(64, m).unwrap();
    for exponent in [0, 1, 63, 64, 65, 127] {
        let mut expected = vec![0; 64];
        expected[exponent % 64] = if exponent < 64 { 1 } else { m.value() - 1 };
        ntt.forward(&mut expected);
        let mut direct = vec![0; 64];
        ntt.monomial(exponent, &mut direct);
        assert_eq!(direct, expected);
    }
}

#[test]
fn refuses_degrees_and_moduli_without_transform() {
    let m = Modulus::new(ntt_primes(40, 1 << 10, 1)[0]).unwrap();
    for n in [0, 3, 1 << 21] {
        assert_eq!(NttTables::new(n, m).err(), Some(MathError::InvalidDegree { n }));
    }
    let refused = |q: u64, n| NttTables::new(n, Modulus::new(q).unwrap()).err();
    assert_eq!(refused(193 * 257, 32), Some(MathError::NoTransform { value: 193 * 257, n: 32 }));
    assert_eq!(refused(97, 32), Some(MathError::NoTransform { value: 97, n: 32 }));
    assert_eq!(refused(97, 16), None);
}
