//! A layer's functions over the real source of correlations, compared with the clear: each within the bound that its
//! own test has over ideal correlations.

use super::Format;
use super::curve::{GELU_EIGHT, curve_scaled};
use super::inverse::{Positive, inverse_root, reciprocal};
use super::relu::relu;
use super::sigmoid::{ARGUMENT, KAPPA, sigmoid};
use super::softmax::{SCORES, exponentials};
use crate::ctx::Ctx;
use crate::share::{Ring, Share};
use crate::testing::{reveal, run_pair_over_ferret, share};

/// A party's inputs or outputs.
struct Six {
    weights: Share,
    scores: Share,
    hidden: Share,
    rectified: Share,
    sums: Share,
    variances: Share,
}

#[test]
fn functions_over_ferret() {
    const ROWS: usize = 12;
    const COLUMNS: usize = 33;
    let (weights, from, to) = (Format::new(40, 14), Format::new(48, 32), Format::new(48, 16));
    let spread = |count: usize, step: usize, wide: f64| -> Vec<f64> {
        let at = |i: usize| (i * step % 2003) as f64 / 2003.0 - 0.5;
        (0..count).map(|i| at(i) * wide).collect()
    };
    let scores = spread(ROWS * COLUMNS, 757, 40.0);
    let hidden = spread(500, 311, 16.0);
    let sums: Vec<u64> = (1..300).map(|i| i * i * 23).collect();
    let words = |x: &[f64], f: Format| -> Vec<u64> { x.iter().map(|&x| f.encode(x)).collect() };
    let scaled: Vec<f64> = hidden.iter().map(|x| x * GELU_EIGHT.kappa()).collect();
    let (s0, s1) = share(SCORES.ring, &words(&scores, SCORES), 1);
    let (h0, h1) = share(from.ring, &words(&scaled, from), 2);
    let (r0, r1) = share(from.ring, &words(&hidden, from), 3);
    let (d0, d1) = share(Ring::new(30), &sums, 4);
    let (v0, v1) = share(Ring::new(40), &sums, 5);
    let (small, root) = (Ring::new(36), 4096.0);
    let standing = Format::new(37, 15);
    let of_units: Vec<f64> = scores.iter().map(|x| KAPPA * x).collect();
    let (w0, w1) = share(ARGUMENT.ring, &words(&of_units, ARGUMENT), 6);
    let run = |ctx: &mut Ctx, x: Six| Six {
        weights: sigmoid(ctx, &x.weights, standing).unwrap(),
        scores: exponentials(ctx, &x.scores, &[COLUMNS; ROWS], weights).unwrap(),
        hidden: curve_scaled(ctx, &GELU_EIGHT, &x.hidden, from.frac, to).unwrap(),
        rectified: relu(ctx, &x.rectified, from, to).unwrap(),
        sums: reciprocal(ctx, &x.sums, Positive::below(21), 8192.0, 16, small).unwrap(),
        variances: inverse_root(ctx, &x.variances, Positive::below(33), root, 16, small).unwrap(),
    };
    let six = |weights, scores, hidden, rectified, sums, variances| Six {
        weights,
        scores,
        hidden,
        rectified,
        sums,
        variances,
    };
    let client = six(w0, s0, h0, r0, d0, v0);
    let server = six(w1, s1, h1, r1, d1, v1);
    let (a, b) = run_pair_over_ferret(|ctx| run(ctx, client), |ctx| run(ctx, server));

    let e = reveal(&a.scores, &b.scores);
    let e: Vec<f64> = e.iter().map(|&w| weights.decode(w)).collect();
    for (s, e) in scores.chunks(COLUMNS).zip(e.chunks(COLUMNS)) {
        let most = s.iter().cloned().fold(f64::MIN, f64::max);
        let want: Vec<f64> = s.iter().map(|s| (s - most).exp2()).collect();
        let (all_want, all) = (want.iter().sum::<f64>(), e.iter().sum::<f64>());
        for (w, e) in want.iter().zip(e) {
            assert!((w / all_want - e / all).abs() < 6e-4, "{w} {e}");
        }
    }
    for (x, y) in scores.iter().zip(reveal(&a.weights, &b.weights)) {
        let error = standing.decode(y) - 1.0 / (1.0 + (-x).exp());
        assert!(error.abs() < 3.9e-4, "sigmoid {x}: {error:e}");
    }
    for (x, y) in hidden.iter().zip(reveal(&a.hidden, &b.hidden)) {
        // The approximation itself is compared with the function elsewhere.
        let error = to.decode(y) / GELU_EIGHT.kappa() - GELU_EIGHT.approximation(*x);
        let bound = 2.6 * GELU_EIGHT.unit();
        assert!(error.abs() < bound, "gelu {x}: {error:e} above {bound:e}");
    }
    let unit = (-f64::from(to.frac)).exp2();
    for (x, y) in hidden.iter().zip(reveal(&a.rectified, &b.rectified)) {
        assert!((to.decode(y) - x.max(0.0)).abs() <= 5.5 * unit, "relu {x}");
    }
    for (x, y) in sums.iter().zip(reveal(&a.sums, &b.sums)) {
        let (want, got) = (8192.0 / *x as f64, y as f64 / 65536.0);
        assert!((got - want).abs() < want * 1.4e-4 + 3e-5, "1/{x}: {got}");
    }
    for (x, y) in sums.iter().zip(reveal(&a.variances, &b.variances)) {
        let (want, got) = (root / (*x as f64).sqrt(), y as f64 / 65536.0);
        assert!((got - want).abs() < want * 4e-5 + 3e-5, "1/√{x}: {got}");
    }
}
