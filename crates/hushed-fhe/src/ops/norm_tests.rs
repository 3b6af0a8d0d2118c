use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;

use super::*;
use crate::packing::Interleave;
use crate::simulate::{Op, Vector};
use crate::{RowMasks, RowsKnown, Simulator, token_rows};

const D: usize = 24;
const ROWS: usize = 8;
const SLOTS: usize = 64;
const LENGTHS: [usize; 5] = [8, 3, 1, 5, 7];

fn simulator() -> Simulator {
    Simulator::new(&CkksParams::insecure_test(10, 14).unwrap(), SLOTS).unwrap()
}

fn layout() -> Interleave {
    Interleave::new(SLOTS, ROWS).unwrap()
}

/// Reproducible numbers in (−1, 1).
fn number(i: usize, j: usize) -> f64 {
    let x = ((i * 7919 + j * 104_729 + 12_345) % 65_521) as f64 / 65_521.0;
    2.0 * x - 1.0
}

fn layer() -> Norm {
    let gain = (0..D).map(|j| 0.8 + 0.5 * number(j, 1) as f32);
    let offset = (0..D).map(|j| 0.3 * number(j, 2) as f32);
    Norm {
        kind: NormKind::LayerNorm,
        width: D,
        epsilon: 1e-6,
        reach: None,
        gain: Some(gain.collect()),
        offset: Some(offset.collect()),
    }
}

fn choice() -> NormChoice {
    NormChoice {
        // Variances up to 3.
        scale: (1.0 / (D as f64 * 3.0)).sqrt(),
        low: 0.05,
        bound: 4.0,
        seed: 15,
        steps: 1,
    }
}

/// The columns of a block and of its residual, with gains and offsets, v within 1, and zeros in padding.
struct Case {
    x: Acts<Vector>,
    block: Vec<Vector>,
    /// x + block, by columns and slots.
    sum: Vec<Vec<f64>>,
}

fn case(on: &Simulator, real: &[f64], limbs: usize, c: &NormChoice) -> Case {
    let wide = centred_scale(on, limbs).unwrap();
    let at = |v: &[f64]| on.vector(v.to_vec(), on.top()).unwrap();
    let vectors: Vec<Vec<f64>> = (0..D).map(|j| (0..SLOTS).map(|s| real[s] * number(s, j + 3)).collect()).collect();
    let gain: Vec<f64> = (0..D).map(|j| 1.0 + number(j, 77)).collect();
    let offset: Vec<f64> = (0..D).map(|j| number(j, 99)).collect();
    // A block's output is not masked in padding.
    let outputs: Vec<Vec<f64>> = (0..D).map(|j| (0..SLOTS).map(|s| 1.5 * number(s + 1000, j)).collect()).collect();
    let mean = |s: usize| outputs.iter().map(|o| o[s]).sum::<f64>() / D as f64;
    let block = outputs.iter().map(|o| {
        let centred = (0..SLOTS).map(|s| c.scale * (o[s] - mean(s))).collect();
        let v = on.vector(centred, above(on, limbs).unwrap()).unwrap();
        on.mul_vector(&v, &[1.0; SLOTS], wide).unwrap()
    });
    let sum = (0..D).map(|j| {
        let one = |s: usize| gain[j] * vectors[j][s] + offset[j] + outputs[j][s];
        (0..SLOTS).map(one).collect()
    });
    Case {
        block: block.collect(),
        sum: sum.collect(),
        x: Acts { columns: vectors.iter().map(|v| at(v)).collect(), gain, offset },
    }
}

/// The oracle: x̂·gain + offset of every slot.
fn exact(sum: &[Vec<f64>], n: &Norm) -> Vec<Vec<f64>> {
    let mut out = vec![vec![0.0; SLOTS]; D];
    let (gain, offset) = (n.gain.as_ref().unwrap(), n.offset.as_ref().unwrap());
    for s in 0..SLOTS {
        let mean = sum.iter().map(|x| x[s]).sum::<f64>() / D as f64;
        let variance = sum.iter().map(|x| (x[s] - mean).powi(2)).sum::<f64>() / D as f64;
        for j in 0..D {
            let unit = (sum[j][s] - mean) / (variance + n.epsilon).sqrt();
            out[j][s] = unit * f64::from(gain[j]) + f64::from(offset[j]);
        }
    }
    out
}

fn check(found: &Acts<Vector>, expected: &[Vec<f64>], mask: &[f64], tolerance: f64) {
    for (j, column) in found.columns.iter().enumerate() {
        for (s, v) in column.values().iter().enumerate() {
            let is = found.gain[j] * v + found.offset[j];
            if mask[s] == 0.0 {
                assert!(v.abs() < 1e-6, "{v} in padding");
            } else {
                assert!((is - expected[j][s]).abs() < tolerance, "{is} {}", expected[j][s]);
            }
        }
    }
}

fn run(on: &Simulator, limbs: usize, masks: &RowMasks<Vector>, statistics: Option<usize>) {
    let (n, c) = (layer(), choice());
    let mask = token_rows(layout(), &LENGTHS);
    let at = StepId::outside("layer.0.attention.norm");
    let case = case(on, &mask, limbs, &c);
    on.tally().reset();
    let centred = residual(on, at, &case.x, &case.block, c.scale).unwrap();
    let settings = NormSettings { rows: &masks.tokens, statistics, constant: None };
    let out = norm(on, at, centred, &n, &c, &settings).unwrap();
    check(&out, &exact(&case.sum, &n), &mask, 4e-3);
    let counts = on.tally().counts();
    assert!(counts.rotations.is_empty(), "a norm rotates");
    // Relinearisations: one per column, one for the variance, those of the root, and two for an encrypted mask.
    let root = fits::root(&c).unwrap();
    let private = matches!(masks.tokens, OwnedMask::Private(_));
    let expected = D + 1 + root.report().cost.relinearisations + 2 * usize::from(private);
    assert_eq!(counts.total(Op::Relinearise), expected as u64);
    assert_eq!(counts.total(Op::Refreshed), u64::from(statistics.is_some()));
    let level = match statistics {
        Some(_) => limbs - 1,
        None => limbs - 2 - statistic_levels(&c),
    };
    for column in &out.columns {
        assert_eq!(on.limbs(column), level);
        assert!(on.scale(column).matches(on.default_scale()));
    }
}

fn masks(on: &Simulator, private: bool) -> RowMasks<Vector> {
    let rows = if private {
        let real = on.vector(token_rows(layout(), &LENGTHS), on.top()).unwrap();
        RowsKnown::private(layout(), real)
    } else {
        RowsKnown::public(layout(), LENGTHS.to_vec()).unwrap()
    };
    RowMasks::new(on, &rows).unwrap()
}

#[test]
fn one_statistic_is_refreshed_and_the_columns_lose_one_level() {
    let on = simulator();
    for private in [false, true] {
        let masks = masks(&on, private);
        run(&on, on.floor() + 1, &masks, Some(on.top()));
        run(&on, on.floor() + 3, &masks, Some(on.top() - 1));
    }
}

/// In the paper's form the columns start above the levels of the root: eleven levels instead of one.
#[test]
fn the_papers_form_is_the_same_function() {
    let on = simulator();
    run(&on, on.top() - 1, &masks(&on, false), None);
    assert_eq!(2 + statistic_levels(&choice()), 11);
}

#[test]
fn constant_rows_replace_results() {
    for private in [false, true] {
        constant_rows(private);
    }
}

fn constant_rows(private: bool) {
    let on = simulator();
    let (n, c) = (layer(), choice());
    let at = StepId::outside("layer.0.feed_forward.norm");
    let mask = token_rows(layout(), &LENGTHS);
    let mut case = case(&on, &mask, on.floor() + 1, &c);
    // The first rows are far outside the range.
    for j in 0..D {
        let mut far = vec![0.0; SLOTS];
        far[..layout().texts()].fill(number(j, 3) * 2.0);
        case.block[j] = on.add_vector(case.block[j].clone(), &far).unwrap();
    }
    let centred = residual(&on, at, &case.x, &case.block, c.scale).unwrap();
    let masks = masks(&on, private);
    let numbers: Vec<f64> = (0..D).map(|j| number(j, 5)).collect();
    let mut settings = NormSettings {
        rows: &masks.later,
        statistics: Some(on.top()),
        constant: Some(ConstantRow { numbers: &numbers, rows: &masks.first }),
    };
    let out = norm(&on, at, centred.clone(), &n, &c, &settings).unwrap();
    let expected = exact(&case.sum, &n);
    for (j, column) in out.columns.iter().enumerate() {
        for (s, v) in column.values().iter().enumerate() {
            let is = out.gain[j] * v + out.offset[j];
            match (s < layout().texts(), mask[s] == 1.0) {
                (true, true) => assert!((v - number(j, 5)).abs() < 1e-6),
                (false, true) => assert!((is - expected[j][s]).abs() < 4e-3),
                // So do places without a text.
                (_, false) => assert!(v.abs() < 1e-6),
            }
        }
    }
    // If those rows are used, they are refused.
    settings.rows = &masks.tokens;
    settings.constant = None;
    let refused = norm(&on, at, centred, &n, &c, &settings).err().unwrap();
    assert!(matches!(refused, FheError::Range { .. }), "{refused}");
}

/// The module's statements about variances outside the range, and about levels.
#[test]
fn outside_its_range_the_root_is_as_documented() {
    for (low, seed, steps) in [(0.05, 15, 1), (0.01, 15, 2), (0.1, 7, 1), (0.004, 15, 1), (0.3, 1, 2)] {
        let choice = NormChoice { low, seed, steps, ..choice() };
        let root = fits::root(&choice).unwrap();
        let at = |i: u32| root.eval(low * f64::from(i) / 1000.0);
        let most = (0..=1000).map(|i| at(i).abs()).fold(0.0, f64::max);
        assert!(most < 3.5 / low.sqrt(), "{low} {seed} {steps}: {most}");
        assert_eq!(statistic_levels(&choice), root.levels() + 2);
        // The wider range costs nothing: up to 1 the error is no more than a calibration asks for, or than without it.
        let alone = hushed_ckks::poly::InverseSqrt::with_steps(low, 1.0, seed, steps).unwrap();
        let most = alone.report().error.max(fits::ROOT_ERROR);
        for i in 0..=1000 {
            let v = low + (1.0 - low) * f64::from(i) / 1000.0;
            assert!((root.eval(v) * v.sqrt() - 1.0).abs() < 1.01 * most);
        }
    }
    let root = fits::root(&choice()).unwrap();
    for v in [1.05, 1.5, 3.0f64] {
        assert!((root.eval(v) * v.sqrt() - 1.0).abs() < 1e-4, "{v}");
    }
    assert!((1e3..1e6).contains(&root.eval(3.3).abs()), "{}", root.eval(3.3));
    assert!(root.eval(4.5).abs() > 1e12, "{}", root.eval(4.5));
}

/// Columns above the level of the statistic are dropped to it.
#[test]
fn columns_above_the_statistic_are_dropped_to_it() {
    let on = simulator();
    let (n, c) = (layer(), choice());
    let mask = token_rows(layout(), &LENGTHS);
    let at = StepId::outside("layer.0.attention.norm");
    let case = case(&on, &mask, on.top() - 2, &c);
    let centred = residual(&on, at, &case.x, &case.block, c.scale).unwrap();
    let masks = masks(&on, false);
    let settings = NormSettings { rows: &masks.tokens, statistics: Some(on.top()), constant: None };
    let out = norm(&on, at, centred, &n, &c, &settings).unwrap();
    check(&out, &exact(&case.sum, &n), &mask, 4e-3);
    let arrives = on.top() - statistic_levels(&c);
    assert!(out.columns.iter().all(|v| on.limbs(v) == arrives - 1));
}

#[test]
fn refusals() {
    let on = simulator();
    let at = StepId::outside("layer.0.attention.norm");
    let masks = masks(&on, false);
    let settings = NormSettings { rows: &masks.tokens, statistics: Some(on.top()), constant: None };
    let rms = Norm { kind: NormKind::RmsNorm, ..layer() };
    let case = case(&on, &[1.0; SLOTS], on.floor() + 1, &choice());
    let refused = norm(&on, at, case.block.clone(), &rms, &choice(), &settings);
    assert!(matches!(refused.err(), Some(FheError::Unsupported { .. })));
    let narrow = case.block[1..].to_vec();
    assert!(residual(&on, at, &case.x, &narrow, 1.0).is_err());
    assert!(norm(&on, at, narrow, &layer(), &choice(), &settings).is_err());
    // No level for the statistic: the floor itself.
    let short = NormSettings { statistics: Some(on.floor() + 5), ..settings };
    assert!(norm(&on, at, case.block, &layer(), &choice(), &short).is_err());
}
