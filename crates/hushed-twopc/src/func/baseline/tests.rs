use super::*;
use crate::testing::{assert_cost, reveal, run_after, share};

/// GELU with the tanh of its usual approximation, within 5·10^−4 of x·Φ(x).
fn gelu(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

/// Runs the step on both sides after an exchange of keys, holds it against its declared cost, and gives the values.
fn run(
    f: Format,
    x: &[f64],
    over_ole: bool,
    step: impl Fn(&mut Ctx, Powers<'_>, &Share) -> (Share, Cost) + Sync,
) -> Vec<f64> {
    let words: Vec<u64> = x.iter().map(|x| f.encode(*x)).collect();
    let (x0, x1) = share(f.ring, &words, 3);
    let party = |ctx: &mut Ctx, ole: &OleContext, x: &Share| {
        let how = if over_ole {
            Powers::Ole(ole)
        } else {
            Powers::Ot
        };
        step(ctx, how, x)
    };
    let ((a, cost), (b, _), counted) = run_after(
        |ctx| OleContext::exchange(&mut ctx.session, &mut ctx.rng).unwrap(),
        |ctx, ole| party(ctx, ole, &x0),
        |ctx, ole| party(ctx, ole, &x1),
    );
    assert_cost(&counted, cost);
    reveal(&a, &b).into_iter().map(|y| f.decode(y)).collect()
}

fn worst(x: &[f64], y: &[f64], f: impl Fn(f64) -> f64) -> f64 {
    let errors = x.iter().zip(y).map(|(x, y)| (y - f(*x)).abs());
    errors.fold(0.0, f64::max)
}

#[test]
fn seg4_gelu_errs_no_more_than_the_paper_says() {
    let x: Vec<f64> = (-300..=300).map(|i| f64::from(i) * 0.031).collect();
    for over_ole in [false, true] {
        let y = run(WIDE, &x, over_ole, |ctx, how, x| {
            (
                seg4_gelu(ctx, how, x).unwrap(),
                seg4_gelu_cost(x.len(), how),
            )
        });
        let error = worst(&x, &y, gelu);
        assert!((2e-3..1.5e-2).contains(&error), "{error}");
    }
}

#[test]
fn quartic_gelu_in_both_rings() {
    let x: Vec<f64> = (-300..=300).map(|i| f64::from(i) * 0.031).collect();
    for (f, over_ole) in [(NARROW, false), (WIDE, true)] {
        let y = run(f, &x, over_ole, |ctx, how, x| {
            let y = quartic_gelu(ctx, how, f, x).unwrap();
            (y, quartic_gelu_cost(x.len(), how, f))
        });
        let error = worst(&x, &y, gelu);
        assert!((2e-3..1.3e-2).contains(&error), "{error}");
    }
}

#[test]
fn exponentials_by_squaring() {
    let x: Vec<f64> = (0..=500).map(|i| f64::from(i) * -0.037).collect();
    for (f, over_ole, bound) in [
        (WIDE, false, 4.4e-3),
        (WIDE, true, 4.4e-3),
        (NARROW, false, 3.5e-2),
    ] {
        let y = run(f, &x, over_ole, |ctx, how, x| {
            let y = exp_negative(ctx, how, f, x).unwrap();
            (y, exp_negative_cost(x.len(), how, f))
        });
        let error = worst(&x, &y, f64::exp);
        assert!(error < bound, "{error}");
        // The paper: within 2^−10 on average, of arguments over the whole range.
        let mean: f64 = x
            .iter()
            .zip(&y)
            .map(|(x, y)| (y - x.exp()).abs())
            .sum::<f64>()
            / x.len() as f64;
        assert!(f == NARROW || mean < 2f64.powi(-10), "{mean}");
    }
}
