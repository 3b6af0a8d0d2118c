//! Compared with 128-bit sums on random ciphertexts: checking residues needs no key.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use hushed_math::cpu::Cpu;
use hushed_math::digits_limit;
use hushed_math::rng::{PublicSeed, PublicStream, SecretRng};
use hushed_math::{Eval, RnsPoly};

use crate::gemm::{GemmError, GemmWeights, MemorySource, ModularGemm, Part, Shape, Sink, Strip};
use crate::{Ciphertext, CkksError, CkksParams, Scale};

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_test(8, 3).unwrap()
}

fn ciphertexts(params: &CkksParams, count: usize, limbs: usize, seed: u8) -> Vec<Ciphertext> {
    let mut stream = PublicStream::new(&PublicSeed([seed; 16]), 0);
    let ids = params.rlwe().ciphertext_ids(limbs);
    let mut uniform = || RnsPoly::<Eval>::uniform(params.rlwe().basis(), &ids, &mut stream);
    (0..count).map(|_| Ciphertext::from_parts(uniform(), uniform(), params.default_scale()).unwrap()).collect()
}

fn weights_f64(count: usize, seed: u64) -> Vec<f64> {
    let mut rng = SecretRng::insecure_from_seed(seed);
    (0..count).map(|_| rng.next_u64() as i64 as f64 / 2f64.powi(63)).collect()
}

/// Σ_i f·v[o][i]·ct_i, plus `before`, in 128-bit integers.
fn check(weights: &GemmWeights, inputs: &[Ciphertext], before: Option<&[Ciphertext]>, outputs: &[Ciphertext]) {
    assert_eq!(outputs.len(), weights.rows());
    for (o, out) in outputs.iter().enumerate() {
        let row = &weights.values()[o * weights.columns()..][..weights.columns()];
        for part in Part::BOTH {
            for limb in 0..out.limbs() {
                let q = i128::from(out.basis().modulus(limb).value());
                for c in 0..out.basis().n() {
                    let terms = row.iter().zip(inputs).map(|(&v, ct)| {
                        let w = i128::from(v) * i128::from(weights.factor()) % q;
                        w * i128::from(part.of(ct).limb(limb)[c]) % q
                    });
                    let first = before.map_or(0, |ct| i128::from(part.of(&ct[o]).limb(limb)[c]));
                    let expected = (first + terms.sum::<i128>()).rem_euclid(q);
                    assert_eq!(i128::from(part.of(out).limb(limb)[c]), expected);
                }
            }
        }
    }
}

fn same(left: &[Ciphertext], right: &[Ciphertext]) -> bool {
    let equal = |(x, y): (&Ciphertext, &Ciphertext)| x.b() == y.b() && x.a() == y.a();
    left.len() == right.len() && left.iter().zip(right).all(equal)
}

#[test]
fn sums_are_exact_for_every_kind_of_weights() {
    let params = params();
    let gemm = ModularGemm::new(&params);
    let scale = gemm.weight_scale(4);
    let (rows, columns) = (19, 67);
    let values = weights_f64(rows * columns, 1);
    let ternary: Vec<i8> = (0..rows * columns).map(|i| (i * i % 3) as i8 - 1).collect();
    let inputs = ciphertexts(&params, columns, 4, 1);
    for weights in [
        GemmWeights::from_f64(&values, rows, columns, 1.0, scale).unwrap(),
        GemmWeights::with_digits(&values, rows, columns, 1.0, scale, 3).unwrap(),
        GemmWeights::with_digits(&values, rows, columns, 1.0, scale, 1).unwrap(),
        GemmWeights::ternary(&ternary, rows, columns).unwrap(),
    ] {
        let outputs = gemm.multiply_all(&weights, &inputs, None).unwrap();
        check(&weights, &inputs, None, &outputs);
        let expected = params.default_scale().times(weights.scale());
        assert!(outputs.iter().all(|ct| ct.scale() == expected));
    }
}

#[test]
fn scales_and_roundings_are_what_they_say() {
    let params = params();
    let gemm = ModularGemm::new(&params);
    let scale = gemm.weight_scale(4);
    assert_eq!(scale.over_prime(params.prime(3)), Scale::ONE);
    let values = weights_f64(64, 2);
    for digits in 1..=7 {
        let weights = GemmWeights::with_digits(&values, 8, 8, 1.0, scale, digits).unwrap();
        assert_eq!(weights.scale(), scale);
        assert!(weights.limit() <= digits_limit(digits));
        let digit = 2f64.powi(1 - 8 * digits as i32);
        assert!(weights.rounding() <= digit + 0.5 / scale.value());
        for (&v, &w) in weights.values().iter().zip(&values) {
            let kept = v as f64 * weights.factor() as f64 / scale.value();
            assert!((kept - w).abs() <= 1.0001 * weights.rounding(), "{digits} digits: {w}");
        }
    }
    // The ends of the range, where ⌈⌉ and rounding reach the limit.
    let ends = GemmWeights::with_digits(&[0.7, -0.7], 1, 2, 0.7, scale, 3).unwrap();
    assert!(ends.values().iter().all(|v| v.unsigned_abs() <= ends.limit()));
}

#[test]
fn threads_kernels_and_files_give_the_same_bytes() {
    let params = params();
    let (rows, columns) = (33, 130);
    let values = weights_f64(rows * columns, 3);
    let bias = weights_f64(rows, 4);
    let inputs = ciphertexts(&params, columns, 3, 2);
    let wanted = ModularGemm::with_cpu(&params, Cpu::portable());
    let scale = wanted.weight_scale(3);
    let ternary = vec![-1; rows * columns];
    for weights in [
        GemmWeights::from_f64(&values, rows, columns, 1.0, scale).unwrap(),
        GemmWeights::with_digits(&values, rows, columns, 1.0, scale, 3).unwrap(),
        GemmWeights::ternary(&ternary, rows, columns).unwrap(),
    ] {
        let wanted = wanted.multiply_all(&weights, &inputs, Some(&bias)).unwrap();
        for cpu in [Cpu::portable(), Cpu::get().without_amx(), Cpu::get()] {
            let gemm = ModularGemm::with_cpu(&params, cpu);
            for threads in [1, 3] {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
                let outputs =
                    pool.build().unwrap().install(|| gemm.multiply_all(&weights, &inputs, Some(&bias)).unwrap());
                assert!(same(&outputs, &wanted), "{threads} threads");
            }
            let source = MemorySource::new(&params, &inputs).unwrap();
            let sink = Outputs { params: &params, ciphertexts: Mutex::default() };
            gemm.multiply(&weights, &source, &sink, Some(&bias)).unwrap();
            assert!(same(&sink.ciphertexts.into_inner().unwrap(), &wanted));
        }
    }
}

/// Outputs in memory.
struct Outputs<'a> {
    params: &'a CkksParams,
    ciphertexts: Mutex<Vec<Ciphertext>>,
}

impl Sink for Outputs<'_> {
    fn begin(&self, shape: Shape) -> Result<(), GemmError> {
        let zero = || {
            let zero = Ciphertext::zero(self.params, shape.limbs, shape.scale)?;
            Ok(zero.with_noise(shape.noise))
        };
        let zeros: Result<_, GemmError> = (0..shape.count).map(|_| zero()).collect();
        *self.ciphertexts.lock().unwrap() = zeros?;
        Ok(())
    }

    fn put(&self, strip: &Strip, words: &[&[u64]]) -> Result<(), GemmError> {
        let mut ciphertexts = self.ciphertexts.lock().unwrap();
        for (ct, words) in ciphertexts.iter_mut().zip(words) {
            let (b, a) = (&mut ct.b, &mut ct.a);
            let part = if strip.part == Part::B { b } else { a };
            part.limb_mut(strip.limb)[strip.words.clone()].copy_from_slice(words);
        }
        Ok(())
    }
}

#[test]
fn blocks_add_up_to_the_whole() {
    let params = params();
    let gemm = ModularGemm::new(&params);
    let (rows, columns) = (10, 24);
    let values = weights_f64(rows * columns, 5);
    let weights = GemmWeights::from_f64(&values, rows, columns, 1.0, gemm.weight_scale(2)).unwrap();
    let inputs = ciphertexts(&params, columns, 2, 3);
    let whole = gemm.multiply_all(&weights, &inputs, None).unwrap();
    // The weights of some columns.
    let block = |range: Range<usize>| {
        let parts = values.chunks(columns).map(|row| &row[range.clone()]);
        let values = parts.collect::<Vec<_>>().concat();
        let scale = gemm.weight_scale(2);
        GemmWeights::from_f64(&values, rows, range.len(), 1.0, scale).unwrap()
    };
    let first = block(0..7);
    let mut outputs = gemm.multiply_all(&first, &inputs[..7], None).unwrap();
    let before = outputs.clone();
    let second = block(7..24);
    let others = MemorySource::new(&params, &inputs[7..]).unwrap();
    gemm.add_product(&second, &others, &mut outputs).unwrap();
    check(&second, &inputs[7..], Some(&before), &outputs);
    assert!(same(&outputs, &whole));
    // Of the first prime alone.
    let low = MemorySource::at(&params, &inputs, 1).unwrap();
    let low = gemm.product(&weights, &low, None).unwrap();
    for (low, whole) in low.iter().zip(&whole) {
        assert!(low.limbs() == 1 && low.b().limb(0) == whole.b().limb(0));
        assert!(low.a().limb(0) == whole.a().limb(0));
    }
    assert!(MemorySource::at(&params, &inputs, 3).is_err());
    let top = weights.row_block(0..4).unwrap();
    let rest = weights.row_block(4..10).unwrap();
    let mut rows = gemm.multiply_all(&top, &inputs, None).unwrap();
    rows.extend(gemm.multiply_all(&rest, &inputs, None).unwrap());
    assert!(same(&rows, &whole));
}

#[test]
fn counters_do_not_see_the_weights() {
    let params = params();
    let (rows, columns) = (6, 16);
    let inputs = ciphertexts(&params, columns, 2, 5);
    let random = weights_f64(rows * columns, 7);
    let zero = vec![0.0; rows * columns];
    let sparse: Vec<f64> = (0..).zip(&random).map(|(i, &w)| if i % 9 == 0 { w } else { 0.0 }).collect();
    let counts = [random, zero, sparse].map(|values| {
        let gemm = ModularGemm::new(&params);
        let weights = GemmWeights::from_f64(&values, rows, columns, 1.0, gemm.weight_scale(2)).unwrap();
        gemm.multiply_all(&weights, &inputs, None).unwrap();
        gemm.counters().snapshot()
    });
    assert_eq!(counts[0].scalar_mul, (rows * columns) as u64);
    assert!(counts.iter().all(|c| *c == counts[0]));
}

#[test]
fn refusals_name_what_is_wrong() {
    let params = params();
    let gemm = ModularGemm::new(&params);
    let scale = gemm.weight_scale(2);
    let refused = |result: Result<GemmWeights, GemmError>| result.err().unwrap();
    assert!(matches!(
        refused(GemmWeights::from_f64(&[0.0; 5], 2, 3, 1.0, scale)),
        GemmError::Shape { rows: 2, columns: 3, found: 5 }
    ));
    for (weight, bound) in [(1.1, 1.0), (f64::NAN, 1.0), (0.0, 0.0), (0.0, f64::NAN), (0.0, 1e30)] {
        assert!(matches!(refused(GemmWeights::from_f64(&[weight], 1, 1, bound, scale)), GemmError::Bound { .. }));
    }
    assert!(matches!(refused(GemmWeights::ternary(&[2], 1, 1)), GemmError::Bound { .. }));
    assert!(matches!(refused(GemmWeights::with_digits(&[0.5], 1, 1, 1.0, scale, 8)), GemmError::Digits { digits: 8 }));
    let weights = GemmWeights::ternary(&[1, -1], 1, 2).unwrap();
    assert!(matches!(refused(weights.row_block(1..3)), GemmError::Block { .. }));
    let inputs = ciphertexts(&params, 3, 2, 6);
    let product = |inputs: &[Ciphertext]| gemm.multiply_all(&weights, inputs, None).err().unwrap();
    assert!(matches!(product(&inputs), GemmError::Count { expected: 2, found: 3, .. }));
    assert!(matches!(product(&[]), GemmError::Count { .. }));
    let mut mixed = vec![inputs[0].clone()];
    mixed.extend(ciphertexts(&params, 1, 3, 7));
    assert!(matches!(product(&mixed), GemmError::Lengths { expected: 2, found: 3 }));
    let other = params_of_another_ring();
    let foreign = ciphertexts(&other, 2, 2, 8);
    assert!(matches!(product(&foreign), GemmError::Ckks(CkksError::OtherParameters { .. })));
    let (b, a) = inputs[1].clone().into_parts();
    let mixed = [inputs[0].clone(), Ciphertext::from_parts(b, a, Scale::ONE).unwrap()];
    assert!(matches!(product(&mixed), GemmError::Ckks(CkksError::ScaleMismatch { .. })));
    let bias = gemm.multiply_all(&weights, &inputs[..2], Some(&[0.0, 0.0]));
    assert!(matches!(bias, Err(GemmError::Count { what: "biases", .. })));
}

fn params_of_another_ring() -> Arc<CkksParams> {
    CkksParams::insecure_test(8, 3).unwrap()
}
