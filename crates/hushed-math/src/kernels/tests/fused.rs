//! Fused kernels against wide integers, for every length of the last register and for bounds at their tightest.

use super::{moduli, words};
use crate::kernels::Pointwise;
use crate::machine::cpu::Cpu;
use crate::rng::SecretRng;

fn lengths() -> impl Iterator<Item = usize> {
    (0..20).chain([31, 32, 33, 64, 71])
}

#[test]
fn one_pass_operations_equal_wide_integers() {
    let mut rng = SecretRng::insecure_from_seed(11);
    for cpu in Cpu::variants() {
        for m in moduli() {
            let (q, p) = (m.value(), Pointwise::with_cpu(m, cpu));
            let wide = u128::from(q);
            for length in lengths() {
                let [a, b, c] = [(); 3].map(|()| words(length, q, &mut rng));
                let check = |name: &str, op: &dyn Fn(&mut [u64]), expected: &dyn Fn(u128, u128, u128) -> u128| {
                    let mut out = c.clone();
                    op(&mut out);
                    for (i, &x) in out.iter().enumerate() {
                        let [a, b, c] = [a[i], b[i], c[i]].map(u128::from);
                        let wanted = expected(a, b, c) % wide;
                        assert_eq!(u128::from(x), wanted, "{name}, q = {q}, {i} of {length}");
                    }
                };
                check("add", &|x| p.add(x, &a, &b), &|a, b, _| a + b);
                check("sub", &|x| p.sub(x, &a, &b), &|a, b, _| a + wide - b);
                check("mul", &|x| p.mul(x, &a, &b), &|a, b, _| a * b);
                for s in [0, 1, q / 2, q - 1] {
                    let w = u128::from(s);
                    check("scalar", &|x| p.mul_scalar(x, &a, s), &|a, _, _| a * w);
                    check("+ scalar", &|x| p.add_scalar_assign(x, s), &|_, _, c| c + w);
                    check("scalar add", &|x| p.mul_scalar_add_assign(x, &a, s), &|a, _, c| c + a * w);
                    check("difference", &|x| p.sub_mul_scalar_assign(x, &a, s), &|a, _, c| (c + wide - a) * w);
                    check("finish", &|x| p.mod_down_finish(x, &a, &b, s), &|a, b, _| (a + wide - b) * w);
                    check("finish add", &|x| p.mod_down_finish_add_assign(x, &a, &b, s), &|a, b, c| {
                        c + (a + wide - b) * w
                    });
                }
            }
        }
    }
}

#[test]
fn tensors_equal_wide_integers() {
    let mut rng = SecretRng::insecure_from_seed(12);
    for cpu in Cpu::variants() {
        for m in moduli() {
            let (q, p) = (m.value(), Pointwise::with_cpu(m, cpu));
            let wide = u128::from(q);
            for length in lengths() {
                let top = vec![q - 1; length];
                for all in [(); 2].map(|()| [(); 7].map(|()| words(length, q, &mut rng))) {
                    // Products of the largest residues, beside others.
                    let [x0, x1, y0, y1, c0, c1, c2] = all;
                    for (x, y) in [([&x0, &x1], [&y0, &y1]), ([&top, &top], [&top, &top])] {
                        let (x, y) = (x.map(Vec::as_slice), y.map(Vec::as_slice));
                        let [mut o0, mut o1, mut o2] = [(); 3].map(|()| vec![u64::MAX; length]);
                        let [mut s0, mut s1, mut s2] = [c0.clone(), c1.clone(), c2.clone()];
                        p.tensor([&mut o0, &mut o1, &mut o2], x, y);
                        p.tensor_add_assign([&mut s0, &mut s1, &mut s2], x, y);
                        for i in 0..length {
                            let [x0, x1] = x.map(|x| u128::from(x[i]));
                            let [y0, y1] = y.map(|y| u128::from(y[i]));
                            let wanted = [x0 * y0, x0 * y1 + x1 * y0, x1 * y1];
                            let found = [o0[i], o1[i], o2[i]].map(u128::from);
                            assert_eq!(found, wanted.map(|z| z % wide), "q = {q}");
                            let sums = [s0[i], s1[i], s2[i]].map(u128::from);
                            let old = [c0[i], c1[i], c2[i]].map(u128::from);
                            let wanted = [0, 1, 2].map(|k| (wanted[k] + old[k]) % wide);
                            assert_eq!(sums, wanted, "q = {q}");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn two_inner_products_at_once_equal_two() {
    let mut rng = SecretRng::insecure_from_seed(13);
    for cpu in Cpu::variants() {
        for m in moduli() {
            let (q, p) = (m.value(), Pointwise::with_cpu(m, cpu));
            // Below, at and beyond the short reduction, beyond one reduction, and beyond one block.
            for (terms, length) in [(0, 9), (1, 40), (3, 7), (15, 35), (16, 33), (40, 17), (4001, 5), (9, 1100)] {
                for top in [false, true] {
                    let mut list = || -> Vec<Vec<u64>> {
                        let one = |_| {
                            if top { vec![q - 1; length] } else { words(length, q, &mut rng) }
                        };
                        (0..terms).map(one).collect()
                    };
                    let [d, kb, ka] = [list(), list(), list()];
                    let [d, kb, ka] = [&d, &kb, &ka].map(|x| x.iter().map(Vec::as_slice).collect::<Vec<&[u64]>>());
                    let start = [words(length, q, &mut rng), words(length, q, &mut rng)];
                    let wanted = |old: &[u64], key: &[&[u64]]| -> Vec<u64> {
                        (0..length)
                            .map(|i| {
                                let product =
                                    |(d, k): (&&[u64], &&[u64])| u128::from(d[i]) * u128::from(k[i]) % u128::from(q);
                                let sum: u128 = d.iter().zip(key).map(product).sum();
                                ((sum + u128::from(old[i])) % u128::from(q)) as u64
                            })
                            .collect()
                    };
                    let zeros = vec![0; length];
                    let [mut b, mut a] = start.clone();
                    p.dot_pair([&mut b, &mut a], &d, [&kb, &ka]);
                    assert_eq!(b, wanted(&zeros, &kb), "q = {q}, {terms} terms");
                    assert_eq!(a, wanted(&zeros, &ka), "q = {q}, {terms} terms");
                    let [mut b, mut a] = start.clone();
                    p.dot_pair_assign([&mut b, &mut a], &d, [&kb, &ka]);
                    assert_eq!(b, wanted(&start[0], &kb), "q = {q}, {terms} terms");
                    assert_eq!(a, wanted(&start[1], &ka), "q = {q}, {terms} terms");
                    // One residue per slice instead of a slice.
                    let scalars = words(terms, q, &mut rng);
                    let slices: Vec<Vec<u64>> = scalars.iter().map(|&s| vec![s; length]).collect();
                    let slices: Vec<&[u64]> = slices.iter().map(Vec::as_slice).collect();
                    let [mut acc, _] = start.clone();
                    p.dot_scalars_assign(&mut acc, &d, &scalars);
                    assert_eq!(acc, wanted(&start[0], &slices), "q = {q}, {terms} terms");
                }
            }
        }
    }
}

#[test]
fn repeated_words_are_as_if_they_were_written_out() {
    let mut rng = SecretRng::insecure_from_seed(14);
    for cpu in Cpu::variants() {
        for m in moduli() {
            let (q, p) = (m.value(), Pointwise::with_cpu(m, cpu));
            for (log_repeat, length, terms) in [(3, 64_usize, 5), (5, 256, 16), (10, 64, 3), (3, 8, 0), (4, 1096, 9)] {
                let short: Vec<_> = (0..terms).map(|_| words(length.div_ceil(1 << log_repeat), q, &mut rng)).collect();
                let expand = |d: &Vec<u64>| -> Vec<u64> {
                    let whole = d.iter().flat_map(|&w| std::iter::repeat_n(w, 1 << log_repeat));
                    whole.take(length).collect()
                };
                let long: Vec<_> = short.iter().map(expand).collect();
                let keys: Vec<_> = (0..2 * terms).map(|_| words(length, q, &mut rng)).collect();
                let short: Vec<&[u64]> = short.iter().map(Vec::as_slice).collect();
                let long: Vec<&[u64]> = long.iter().map(Vec::as_slice).collect();
                let keys: Vec<&[u64]> = keys.iter().map(Vec::as_slice).collect();
                let (kb, ka) = keys.split_at(terms);
                let mut found = [vec![1; length], vec![2; length]];
                let mut expected = found.clone();
                let [b, a] = &mut found;
                p.dot_pair_repeated([b, a], &short, log_repeat, [kb, ka]);
                let [b, a] = &mut expected;
                p.dot_pair([b, a], &long, [kb, ka]);
                assert_eq!(found, expected, "q = {q}, {terms} terms of {length}");
            }
        }
    }
}
