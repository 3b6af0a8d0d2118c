//! Compared with plaintext results, in bits.

use crate::gemm::{GemmWeights, ModularGemm};
use crate::testing::{Fixture, bits, norm_bits};
use crate::{Ciphertext, CkksParams, Complex64};

const ROWS: usize = 12;
const COLUMNS: usize = 40;

struct Case {
    f: Fixture,
    x: Vec<Vec<Complex64>>,
    inputs: Vec<Ciphertext>,
    weights: Vec<f64>,
    bias: Vec<f64>,
}

impl Case {
    fn new() -> Self {
        let params = CkksParams::insecure_test(9, 2).unwrap();
        let specs = params.key_specs(4, true, &[], false).unwrap();
        let mut f = Fixture::new(&params, &specs, 11);
        let x: Vec<_> = (0..COLUMNS).map(|_| f.random()).collect();
        let inputs = x.iter().map(|x| f.encrypt(x, 3)).collect();
        let weights: Vec<f64> = f.random().iter().flat_map(|z| [z.re, z.im]).collect();
        Self {
            bias: f.random().iter().take(ROWS).map(|z| z.re).collect(),
            weights: weights[..ROWS * COLUMNS].to_vec(),
            f,
            x,
            inputs,
        }
    }

    /// The expected output `o` for these weights.
    fn expected(&self, weights: &[f64], o: usize) -> Vec<Complex64> {
        let row = &weights[o * COLUMNS..][..COLUMNS];
        let sum = |slot: usize| -> Complex64 {
            let terms = row.iter().zip(&self.x).map(|(&w, x)| x[slot] * w);
            terms.sum::<Complex64>() + self.bias[o]
        };
        (0..self.f.params.slots()).map(sum).collect()
    }
}

#[test]
fn products_are_those_of_the_clear() {
    let case = Case::new();
    let f = &case.f;
    let gemm = ModularGemm::new(&f.params);
    let scale = gemm.weight_scale(3);
    let weights = GemmWeights::from_f64(&case.weights, ROWS, COLUMNS, 1.0, scale).unwrap();
    let bias = Some(&case.bias[..]);
    let fast = gemm.multiply_all(&weights, &case.inputs, bias).unwrap();
    for (o, fast) in fast.iter().enumerate() {
        let fast = f.evaluator.rescale(fast).unwrap();
        assert_eq!(fast.scale(), f.params.default_scale());
        let (least, mean) = f.bits(&fast, &case.expected(&case.weights, o));
        assert!(least > 20.0, "output {o}: least {least:.1}, mean {mean:.1}");
        let predicted = fast.noise().mean_bits().unwrap();
        assert!(predicted <= mean + 0.5 && predicted >= mean - 6.0, "predicted {predicted:.1}, found {mean:.1}");
        let (norm, bound) = norm_bits(f, &fast, &case.expected(&case.weights, o));
        assert!(bound < norm + 8.0, "norm 2^{norm:.1}, bound 2^{bound:.1}");
    }
}

#[test]
fn weights_of_three_digits_cost_no_precision() {
    let case = Case::new();
    let f = &case.f;
    let gemm = ModularGemm::new(&f.params);
    let scale = gemm.weight_scale(3);
    for (digits, floor) in [(3, 20.0), (2, 12.0)] {
        let weights = GemmWeights::with_digits(&case.weights, ROWS, COLUMNS, 1.0, scale, digits).unwrap();
        let outputs = gemm.multiply_all(&weights, &case.inputs, Some(&case.bias)).unwrap();
        for (o, ct) in outputs.iter().enumerate() {
            let ct = f.evaluator.rescale(ct).unwrap();
            let (least, mean) = f.bits(&ct, &case.expected(&case.weights, o));
            assert!(least > floor, "{digits} digits, output {o}: least {least:.1}, mean {mean:.1}");
        }
    }
}

#[test]
fn ternary_products_cost_no_level_and_add_no_rounding() {
    let case = Case::new();
    let f = &case.f;
    let gemm = ModularGemm::new(&f.params);
    let signs: Vec<i8> = (0..ROWS * COLUMNS).map(|i| (i * 7 % 3) as i8 - 1).collect();
    let weights = GemmWeights::ternary(&signs, ROWS, COLUMNS).unwrap();
    let outputs = gemm.multiply_all(&weights, &case.inputs, Some(&case.bias)).unwrap();
    let signs: Vec<f64> = signs.iter().map(|&s| s.into()).collect();
    for (o, ct) in outputs.iter().enumerate() {
        assert_eq!((ct.limbs(), ct.scale()), (3, f.params.default_scale()));
        let expected = case.expected(&signs, o);
        // Exactly the sum of the decrypted inputs, except for rounding the bias.
        let opened: Vec<_> = case.inputs.iter().map(|ct| f.decryptor.decrypt_raw(ct).unwrap()).collect();
        let sums: Vec<Complex64> = (0..expected.len())
            .map(|slot| {
                let row = &signs[o * COLUMNS..][..COLUMNS];
                let sum: Complex64 = row.iter().zip(&opened).map(|(&s, x)| x[slot] * s).sum();
                sum + case.bias[o]
            })
            .collect();
        let (exact, _) = bits(&f.decryptor.decrypt_raw(ct).unwrap(), &sums);
        assert!(exact > 39.0, "{exact:.1}");
        let (least, _) = f.bits(ct, &expected);
        assert!(least > 22.0, "output {o}: {least:.1}");
    }
}
