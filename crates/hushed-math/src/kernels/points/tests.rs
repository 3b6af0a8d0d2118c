//! Products at points on every kernel against 128-bit sums, exact, for shapes around every panel.

use super::{LEFT, PointGemm, PointMatrix, RIGHT, TERMS};
use crate::machine::cpu::Cpu;
use crate::modulus::Modulus;
use crate::rng::SecretRng;
use std::ops::Range;

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

/// Entry (line, term) of `values` at `points` points.
fn entry(values: &[u64], terms: usize, points: usize, line: usize, term: usize) -> &[u64] {
    &values[(line * terms + term) * points..][..points]
}

/// The entries of a panel; beyond the last line, values that must not matter.
fn lines(values: &[u64], size: usize, panel: usize, put: Range<usize>, terms: usize, points: usize) -> Vec<u64> {
    let all = values.len() / (terms * points);
    let mut out = Vec::new();
    for term in put {
        for line in panel * size..(panel + 1) * size {
            match line < all {
                true => out.extend(entry(values, terms, points, line, term)),
                false => out.extend(vec![1; points]),
            }
        }
    }
    out
}

#[test]
fn products_equal_wide_integers_for_shapes_around_the_panels() {
    let mut rng = SecretRng::insecure_from_seed(1);
    let moduli = [3, (1 << 40) - 87, (1 << 46) - 21, (1 << 50) - 27];
    let shapes = [(1, 1, 1), (3, 2, 4), (4, 3, 5), (5, 4, 17), (9, 7, 64)];
    for (number, (lefts, rights, terms)) in shapes.into_iter().enumerate() {
        for points in [8, 24] {
            let q = moduli[(number + points) % moduli.len()];
            let left = residues(lefts * terms * points, q, &mut rng);
            let right = residues(rights * terms * points, q, &mut rng);
            let expected = |l: usize, r: usize, t: usize| {
                let sum = (0..terms).fold(0_u128, |sum, i| {
                    let x = entry(&left, terms, points, l, i)[t];
                    let y = entry(&right, terms, points, r, i)[t];
                    (sum + u128::from(x) * u128::from(y)) % u128::from(q)
                });
                sum as u64
            };
            for cpu in Cpu::variants() {
                let gemm = PointGemm::with_cpu(Modulus::new(q).unwrap(), cpu);
                let mut l = PointMatrix::left(points, lefts, terms);
                let mut r = PointMatrix::right(points, rights, terms);
                // Left panels term by term, right ones all terms at once.
                for panel in 0..lefts.div_ceil(LEFT) {
                    for term in 0..terms {
                        let values = lines(&left, LEFT, panel, term..term + 1, terms, points);
                        gemm.put(&mut l, panel, term, &values);
                    }
                }
                for panel in 0..rights.div_ceil(RIGHT) {
                    let values = lines(&right, RIGHT, panel, 0..terms, terms, points);
                    gemm.put(&mut r, panel, 0, &values);
                }
                let (panels, right_panels) = (lefts.div_ceil(LEFT), rights.div_ceil(RIGHT));
                for panels in [0..panels, 0..1, panels - 1..panels] {
                    let lines = panels.start * LEFT..lefts.min(panels.end * LEFT);
                    let mut out = vec![7; lines.len() * rights * points];
                    gemm.multiply(&l, panels.clone(), &r, 0..right_panels, 0, &mut out);
                    let mut found = out.iter();
                    for line in lines.clone() {
                        for right in 0..rights {
                            for t in 0..points {
                                assert_eq!(
                                    found.next(),
                                    Some(&expected(line, right, t)),
                                    "q = {q}, {lefts} by {terms} by {rights}, {}",
                                    cpu.kernel_name()
                                );
                            }
                        }
                    }
                    // The last right panel, and sums of the values of each product.
                    let last = right_panels - 1..right_panels;
                    let begin = last.start * RIGHT;
                    let each = points * (rights - begin);
                    let mut out_last = vec![7; lines.len() * each];
                    gemm.multiply(&l, panels.clone(), &r, last.clone(), 0, &mut out_last);
                    let whole = out.chunks_exact(rights * points);
                    let whole = whole.flat_map(|line| &line[begin * points..]);
                    assert!(out_last.iter().eq(whole));
                    for run in [8, points] {
                        let mut sums = vec![7; lines.len() * each / run];
                        gemm.multiply_runs(&l, panels.clone(), &r, last.clone(), (0, run), &mut sums);
                        let expected = out_last.chunks_exact(run).map(|v| v.iter().sum::<u64>() % q);
                        assert!(sums.iter().copied().eq(expected), "{}", cpu.kernel_name());
                    }
                }
            }
        }
    }
}

/// The largest residues, for as many terms as one sum takes, one more, and several sums.
#[test]
fn sums_at_the_bound_do_not_overflow() {
    let q = (1 << 50) - 27;
    for cpu in Cpu::variants() {
        let gemm = PointGemm::with_cpu(Modulus::new(q).unwrap(), cpu);
        for terms in [TERMS, TERMS + 1, 2 * TERMS + 1] {
            let mut l = PointMatrix::left(8, 1, terms);
            let mut r = PointMatrix::right(8, 1, terms);
            gemm.put(&mut l, 0, 0, &vec![q - 1; terms * LEFT * 8]);
            gemm.put(&mut r, 0, 0, &vec![q - 1; terms * RIGHT * 8]);
            let mut out = [0; 8];
            gemm.multiply(&l, 0..1, &r, 0..1, 0, &mut out);
            assert_eq!(out, [terms as u64; 8], "{}", cpu.kernel_name());
            let mut sum = [0];
            gemm.multiply_runs(&l, 0..1, &r, 0..1, (0, 8), &mut sum);
            assert_eq!(sum, [8 * terms as u64], "{}", cpu.kernel_name());
        }
    }
}

#[test]
#[should_panic(expected = "left and right")]
fn operands_have_their_sides() {
    let gemm = PointGemm::with_cpu(Modulus::new(257).unwrap(), Cpu::portable());
    let (l, r) = (PointMatrix::left(8, 1, 1), PointMatrix::left(8, 1, 1));
    gemm.multiply(&l, 0..1, &r, 0..1, 0, &mut [0; 8]);
    const { assert!(LEFT != RIGHT) }
}
