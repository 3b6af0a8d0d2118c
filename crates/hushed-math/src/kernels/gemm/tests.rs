//! Matrix products on every kernel against wide integers, exact, for shapes around every block.

use super::{GemmScratch, LimbGemm, Method, TERMS, digits_limit};
use crate::machine::cpu::Cpu;
use crate::modulus::Modulus;
use crate::rng::SecretRng;

/// Limits of weights of one to five digits and of one more, of small weights, and of words.
const LIMITS: [u64; 10] = [
    1,
    127,
    128,
    600,
    digits_limit(2),
    digits_limit(3),
    digits_limit(3) + 1,
    digits_limit(4) + 1,
    1 << 41,
    (1 << 63) - 1,
];

/// Values in [0, q), including extremes.
fn residues(length: usize, q: u64, rng: &mut SecretRng) -> Vec<u64> {
    (0..length)
        .map(|_| match rng.next_u64() % 4 {
            0 => q - 1,
            1 => 0,
            _ => rng.next_u64() % q,
        })
        .collect()
}

/// Values in [−limit, limit], including extremes.
fn signed(length: usize, limit: u64, rng: &mut SecretRng) -> Vec<i64> {
    let limit = limit as i64;
    (0..length)
        .map(|_| match rng.next_u64() % 4 {
            0 => -limit,
            1 => limit,
            2 => 0,
            _ => rng.next_u64() as i64 % limit,
        })
        .collect()
}

struct Case {
    q: u64,
    limit: u64,
    factor: u64,
    rows: usize,
    columns: usize,
    length: usize,
}

impl Case {
    fn check(&self, rng: &mut SecretRng) -> Vec<Method> {
        let Case { q, limit, factor, rows, columns, length } = *self;
        let weights = signed(rows * columns, limit, rng);
        let x: Vec<Vec<u64>> = (0..columns).map(|_| residues(length, q, rng)).collect();
        let before: Vec<Vec<u64>> = (0..rows).map(|_| residues(length, q, rng)).collect();
        let wide = i128::from(q);
        let expected: Vec<Vec<u64>> = (0..rows)
            .map(|o| {
                (0..length)
                    .map(|c| {
                        let terms = weights[o * columns..][..columns].iter().zip(&x);
                        let sum: i128 = terms.map(|(&w, x)| i128::from(w) * i128::from(x[c]) % wide).sum();
                        let sum = sum % wide * i128::from(factor);
                        (i128::from(before[o][c]) + sum).rem_euclid(wide) as u64
                    })
                    .collect()
            })
            .collect();
        let modulus = Modulus::new(q).unwrap();
        let mut methods = Vec::new();
        for cpu in Cpu::variants() {
            let gemm = LimbGemm::with_cpu(modulus, cpu);
            let packed = gemm.pack(&weights, rows, columns, limit, factor);
            assert_eq!((packed.rows(), packed.columns()), (rows, columns));
            methods.push(packed.method());
            let mut out = before.clone();
            let x: Vec<&[u64]> = x.iter().map(|x| &x[..]).collect();
            let mut strips: Vec<&mut [u64]> = out.iter_mut().map(|out| &mut out[..]).collect();
            gemm.multiply_add(&packed, &x, &mut strips, &mut GemmScratch::new());
            assert!(
                out == expected,
                "q = {q}, limit {limit}, {rows} by {columns}, {length} words, {}",
                cpu.kernel_name()
            );
        }
        methods
    }
}

#[test]
fn products_equal_wide_integers_for_shapes_around_the_blocks() {
    let mut rng = SecretRng::insecure_from_seed(1);
    let moduli = [3, (1 << 40) - 87, (1 << 40) + 15, (1 << 46) - 21, (1 << 50) - 27];
    for (number, (rows, columns)) in [(1, 1), (5, 3), (6, 8), (7, 64), (13, 65), (17, 129)].into_iter().enumerate() {
        for length in [1, 8, 15, 16, 31, 33, 72] {
            for limit in LIMITS {
                let q = moduli[(number + length + limit.count_ones() as usize) % moduli.len()];
                let factor = rng.next_u64() % q;
                Case { q, limit, factor, rows, columns, length }.check(&mut rng);
            }
        }
    }
}

#[test]
fn ternary_weights_take_one_product_under_every_modulus() {
    let mut rng = SecretRng::insecure_from_seed(2);
    for q in [3, (1 << 41) - 21, (1 << 50) - 27, (1 << 50) - 1] {
        let case = Case { q, limit: 1, factor: 1, rows: 9, columns: 40, length: 40 };
        assert!(
            case.check(&mut rng).iter().all(|method| matches!(method, Method::Narrow | Method::Planes(1))),
            "q = {q}"
        );
    }
}

/// The largest residues and weights, for as many terms as one chunk has, one more, and several chunks.
#[test]
fn sums_at_the_bound_do_not_overflow() {
    for cpu in Cpu::variants() {
        for (q, limit) in [
            ((1 << 50) - 27, (1 << 63) - 1),
            ((1 << 50) - 27, (1 << 50) - 29),
            ((1 << 50) - 27, 127),
            ((1 << 50) - 27, 1),
            ((1 << 40) - 87, 1 << 11),
            ((1 << 40) - 87, digits_limit(3)),
        ] {
            let modulus = Modulus::new(q).unwrap();
            let gemm = LimbGemm::with_cpu(modulus, cpu);
            for columns in [TERMS, TERMS + 1, 3 * TERMS + 1] {
                for weight in [-1, limit as i64, -(limit as i64)] {
                    let packed = gemm.pack(&vec![weight; columns], 1, columns, limit, q - 1);
                    let x = vec![q - 1; 8];
                    let mut out = x.clone();
                    gemm.multiply_add(&packed, &vec![&x[..]; columns], &mut [&mut out], &mut GemmScratch::new());
                    // (−1)·w·(−1) for each term, and −1 to begin with.
                    let expected = (i128::from(weight) * columns as i128 - 1).rem_euclid(i128::from(q));
                    assert_eq!(out, [expected as u64; 8], "q = {q}, {columns} of {weight}");
                }
            }
        }
    }
}

#[test]
fn residues_are_multiplied_by_the_full_method_on_every_processor() {
    let mut rng = SecretRng::insecure_from_seed(3);
    let (rows, columns, length) = (7, 70, 40);
    for cpu in Cpu::variants() {
        for q in [3, (1 << 40) - 87, (1 << 50) - 27] {
            let modulus = Modulus::new(q).unwrap();
            let gemm = LimbGemm::with_cpu(modulus, cpu);
            // The second of two matrices side by side.
            let both = residues(2 * rows * columns, q, &mut rng);
            let (first, weights) = both.split_at(rows * columns);
            let packed = gemm.pack_residues(2, [rows, columns], |i, words| {
                words.copy_from_slice(if i == 0 { first } else { weights });
            });
            let packed = &packed[1];
            assert_eq!(packed.method(), Method::Full);
            let x: Vec<_> = (0..columns).map(|_| residues(length, q, &mut rng)).collect();
            let x: Vec<&[u64]> = x.iter().map(Vec::as_slice).collect();
            let mut out = vec![residues(length, q, &mut rng); rows];
            let before = out.clone();
            let mut parts: Vec<&mut [u64]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            gemm.multiply_add(packed, &x, &mut parts, &mut GemmScratch::new());
            for (r, (out, before)) in out.iter().zip(&before).enumerate() {
                for (c, (&found, &start)) in out.iter().zip(before).enumerate() {
                    let products = (0..columns).map(|i| u128::from(weights[r * columns + i]) * u128::from(x[i][c]));
                    let expected = (products.sum::<u128>() + u128::from(start)) % u128::from(q);
                    assert_eq!(u128::from(found), expected, "q = {q}");
                }
            }
        }
    }
}

#[test]
#[should_panic(expected = "residues")]
fn a_weight_that_is_no_residue_is_refused() {
    LimbGemm::new(Modulus::new(257).unwrap()).pack_residues(1, [1, 2], |_, words| words.copy_from_slice(&[0, 257]));
}

#[test]
#[should_panic(expected = "weights of at most 127")]
fn wider_weights_than_declared_are_refused() {
    LimbGemm::new(Modulus::new(257).unwrap()).pack(&[0, 128], 1, 2, 127, 1);
}
