//! EvalMod in the clear, over its whole domain, with and without rescaling errors.

use num_complex::Complex64;

use super::*;
use crate::poly::clear::{Clear, ClearValue};

/// Inputs of a bootstrap at ratio 2^10 as (x, message): I from sums of 33 uniforms in ±1/2, messages uniform in ±1.
fn inputs(count: usize, range: i32, seed: u64) -> Vec<(f64, f64)> {
    let mut state = seed;
    let mut uniform = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count)
        .map(|_| {
            let sum: f64 = (0..33).map(|_| uniform() - 0.5).sum();
            let i = sum.round().clamp(f64::from(1 - range), f64::from(range - 1));
            let message = 2.0 * uniform() - 1.0;
            (i + message / 1024.0, message)
        })
        .collect()
}

fn run(eval_mod: &EvalMod, ar: &Clear, limbs: usize, points: &[(f64, f64)]) -> ClearValue {
    let scaling = eval_mod.input_scaling();
    let slots = points.iter().map(|(x, _)| Complex64::from(x * scaling)).collect();
    let x = ar.input(slots, eval_mod.input_scale(ar, limbs).unwrap());
    eval_mod.evaluate(ar, &x, Scale::from_bits(40)).unwrap()
}

/// Worst and mean of −log2 |error|.
fn bits(values: &ClearValue, points: &[(f64, f64)]) -> (f64, f64) {
    let errors = values.slots.iter().zip(points).map(|(v, (_, m))| (v.re - m).abs().max(1e-15));
    let bits: Vec<f64> = errors.map(|e| -e.log2()).collect();
    let worst = bits.iter().copied().fold(f64::INFINITY, f64::min);
    (worst, bits.iter().sum::<f64>() / bits.len() as f64)
}

/// A chain with the given EvalMod primes above one prime of 50 bits and 17 of 40.
fn chain(eval_mod: &[u32]) -> Vec<u64> {
    let below = std::iter::once(50).chain([40; 17]);
    below
        .chain(eval_mod.iter().copied())
        .enumerate()
        .map(|(i, bits)| (1u64 << bits) - 131_072 * (i as u64 + 1) + 1)
        .collect()
}

#[test]
fn errors_are_what_the_header_says() {
    let eval_mod = EvalMod::new(EvalModLiteral::default()).unwrap();
    let report = eval_mod.report();
    println!("{report:?}");
    assert_eq!(eval_mod.levels(), 8);
    assert_eq!((report.cost.products, report.cost.relinearisations), (12, 11));
    assert!(report.cosine_error.log2() < -24.9, "{}", report.cosine_error.log2());
    assert!((report.sine_error.log2() + 19.28).abs() < 0.05);
    let tangent = EvalMod::new(EvalModLiteral { gain: Gain::Tangent, ..EvalModLiteral::default() });
    assert!((tangent.unwrap().report().sine_error.log2() + 17.28).abs() < 0.05);
    for (degree, levels, bits) in [(3, 10, -28.0), (5, 11, -36.0), (7, 11, -40.0)] {
        let with = EvalMod::new(EvalModLiteral { arcsine: degree, ..EvalModLiteral::default() }).unwrap();
        assert_eq!(with.levels(), levels);
        assert!(with.report().sine_error.log2() < bits, "{degree}: {:?}", with.report());
    }
}

#[test]
fn without_rescaling_errors_only_those_of_the_fit_are_left() {
    let primes = chain(&[50; 8]);
    let limbs = primes.len();
    let ar = Clear::new(primes);
    for (arcsine, levels) in [(1, 8), (3, 10)] {
        let eval_mod = EvalMod::new(EvalModLiteral { arcsine, ..EvalModLiteral::default() }).unwrap();
        let points = inputs(4096, 16, 1);
        let y = run(&eval_mod, &ar, limbs, &points);
        assert!(y.scale.matches(Scale::from_bits(40)));
        assert_eq!(y.limbs, limbs - levels);
        let report = eval_mod.report();
        let allowed = 1.01 * (report.cosine_error + report.sine_error) + 2f64.powi(-36);
        let (worst, _) = bits(&y, &points);
        assert!(worst > -allowed.log2(), "{worst}");
        let tally = ar.take_tally();
        assert_eq!(tally.products, report.cost.products);
        assert_eq!(tally.relinearisations, report.cost.relinearisations);
    }
}

#[test]
fn precision_with_rescaling_errors_of_a_ring_of_2_to_the_16() {
    let points = inputs(65_536, 16, 2);
    let mut found = Vec::new();
    for (name, eval_mod, pairs) in [
        ("48 bits", vec![48; 8], vec![]),
        ("50 bits", vec![50; 8], vec![]),
        ("45, 30 + 30, six of 50", vec![50, 50, 50, 50, 50, 50, 30, 30, 45], vec![26]),
    ] {
        let primes = chain(&eval_mod);
        let limbs = primes.len();
        let ar = Clear::new(primes).with_errors(1 << 16, 3).with_pairs(pairs);
        let eval_mod = EvalMod::new(EvalModLiteral::default()).unwrap();
        let (worst, mean) = bits(&run(&eval_mod, &ar, limbs, &points), &points);
        println!("{name}: worst {worst:.2}, mean {mean:.2}");
        found.push((worst, mean));
    }
    // For one part alone; recombining it with the other part's imaginary errors costs a quarter of a bit.
    assert!(found[1].0 > 16.0 && found[1].1 > 20.0, "{found:?}");
    assert!(found[2].0 > 17.0 && found[2].1 > 20.0, "{found:?}");
    assert!(found[0].0 < found[1].0 && found[1].0 < found[2].0);
}

#[test]
fn refusals() {
    let with = |f: &dyn Fn(&mut EvalModLiteral)| {
        let mut literal = EvalModLiteral::default();
        f(&mut literal);
        EvalMod::new(literal)
    };
    for refused in [
        with(&|l| l.range = 1),
        with(&|l| l.degree = 31),
        with(&|l| l.doublings = 0),
        with(&|l| l.ratio = f64::NAN),
        with(&|l| l.bound = 1024.0),
        with(&|l| l.arcsine = 4),
    ] {
        assert!(matches!(refused, Err(PolyError::Parameter { .. })));
    }
    let eval_mod = EvalMod::new(EvalModLiteral::default()).unwrap();
    let ar = Clear::new(chain(&[])[..8].to_vec());
    let x = ar.real(&[0.0], eval_mod.input_scale(&ar, 8).unwrap());
    assert!(matches!(
        eval_mod.evaluate(&ar, &x, Scale::from_bits(40)),
        Err(PolyError::LevelsTooFew { needed: 8, available: 7, .. })
    ));
}
