use super::*;
use crate::testing::{assert_cost, reveal, run_counted, share};
use hushed_math::fit::minimax;
use hushed_math::rng::SecretRng;

/// x·Φ(x), the integral of the density by Simpson's rule: off by less than 10^−8 for |x| < 9.
fn gelu(x: f64) -> f64 {
    let steps = 200;
    let h = x.abs().min(9.0) / f64::from(steps);
    let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let weight = |i: i32| match i {
        0 => 1.0,
        i if i == steps => 1.0,
        i => f64::from(2 + i % 2 * 2),
    };
    let sum: f64 = (0..=steps).map(|i| weight(i) * density(h * f64::from(i))).sum();
    x * (0.5 + (sum * h / 3.0).copysign(x))
}

fn gelu_tanh(x: f64) -> f64 {
    let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x.powi(3));
    0.5 * x * (1.0 + inner.tanh())
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn elu(x: f64) -> f64 {
    if x < 0.0 { x.exp_m1() } else { x }
}

type Function = fn(f64) -> f64;

fn sigmoid(x: f64) -> f64 {
    SIGMOID.limit * (1.0 / (1.0 + (-x).exp()) - 0.5)
}

fn all_curves() -> [(Curve, Function); 8] {
    [
        (GELU, gelu),
        (GELU_EIGHT, gelu),
        (GELU_TANH, gelu_tanh),
        (GELU_TANH_EIGHT, gelu_tanh),
        (SILU, silu),
        (TANH, f64::tanh),
        (ELU, elu),
        (SIGMOID, sigmoid),
    ]
}

/// b at z = v·L ≥ 0, continued analytically below zero, in units of L.
fn bump(curve: &Curve, f: Function, v: f64) -> f64 {
    let x = v * curve.limit;
    let b = match curve.kind {
        Kind::Rectified => f(-x),
        Kind::Odd | Kind::Centred => f(x),
        Kind::Negative => (-x).exp_m1(),
    };
    b / curve.limit
}

/// A segment's quadratic at t.
fn value(curve: &Curve, row: &[i32; 3], t: f64) -> f64 {
    let [c, s, q] = row.map(f64::from);
    let unit = |bits: u32| (-f64::from(bits)).exp2();
    c * unit(curve.frac + SLOPE_FRAC) + s * unit(SLOPE_FRAC) * t + q * unit(BEND_FRAC) * t * t
}

#[test]
fn tables_are_minimax_to_their_last_bits() {
    for (curve, f) in all_curves() {
        let width = 1.0 / curve.segments.len() as f64;
        for (k, row) in curve.segments.iter().enumerate() {
            let middle = (k as f64 + 0.5) * width;
            let reach = width * (0.5 + 1.0 / 32.0);
            let (low, high) = (middle - reach, middle + reach);
            let b = |v: f64| bump(&curve, f, v);
            let best = minimax(b, |_| 1.0, 2, low, high).unwrap().max_error;
            let terms = [(curve.frac + SLOPE_FRAC, 1.0), (SLOPE_FRAC, reach), (BEND_FRAC, reach * reach)];
            let rounded: f64 = terms.map(|(bits, t)| (-f64::from(bits) - 1.0).exp2() * t).iter().sum();
            for i in 0..=200 {
                let t = reach * (f64::from(i) / 100.0 - 1.0);
                let error = (value(&curve, row, t) - b(middle + t)).abs();
                let bound = best * 1.01 + rounded;
                assert!(error <= bound, "{} {k}: {error:e} above {bound:e}", curve.name);
            }
        }
    }
}

#[test]
fn errors_are_as_declared() {
    for (curve, f) in all_curves() {
        let mut worst: f64 = 0.0;
        for i in -20_000..=20_000 {
            let x = f64::from(i) * 1.2e-4 * curve.limit / 2.0;
            worst = worst.max((curve.approximation(x) - f(x)).abs());
        }
        let error = curve.error();
        assert!((0.8 * error..=error).contains(&worst), "{}: {worst:e}", curve.name);
    }
}

#[test]
fn values_fit_their_rings() {
    for (curve, _) in all_curves() {
        let width = 1.0 / curve.segments.len() as f64;
        let unit = f64::from(1u32 << curve.frac);
        let mut ends = vec![f64::from(curve.tail)];
        for row in curve.segments {
            let t = (-34..=34).map(|i| f64::from(i) / 64.0 * width);
            ends.extend(t.map(|t| value(&curve, row, t) * unit));
        }
        let low = ends.iter().copied().fold(f64::MAX, f64::min);
        let high = ends.iter().copied().fold(f64::MIN, f64::max);
        let (lift, half) = (curve.lift() as f64, f64::from(1u32 << (curve.small - 1)));
        if matches!(curve.kind, Kind::Odd | Kind::Centred) {
            assert!(2.0 * high.max(-low) + 4.0 < half, "{}", curve.name);
        } else {
            assert!(low + lift > 2.0 && high + lift + 2.0 < half, "{}: {low} {high}", curve.name);
        }
        let t = 0.5 + 1.0 / 32.0;
        let squares = f64::from(curve.squares().bits() - 1).exp2();
        assert!((t * width * unit).powi(2) < squares);
    }
}

#[test]
fn curves_over_their_range() {
    let from = Format::new(48, 32);
    let to = Format::new(48, 16);
    let mut rng = SecretRng::insecure_from_seed(21);
    let narrow = (NARROWEST..WIDEST).map(|integer| Curve { integer, ..GELU_EIGHT });
    let narrow = narrow.map(|curve| (curve, gelu as Function));
    for (curve, f) in all_curves().into_iter().chain(narrow) {
        let limit = curve.limit;
        let fine = (-800..=800).map(|i| f64::from(i) * limit / 810.0);
        let edges = (0..=curve.segments.len()).flat_map(|k| {
            let edge = k as f64 / curve.segments.len() as f64 * limit;
            [edge, -edge, edge + 1e-4, 1e-4 - edge]
        });
        let far = [0.99, 0.5, -0.5, -0.99].map(|r| r * curve.range());
        let beyond = [1.01, 1.3, -1.3].map(|r| (r * limit).clamp(-curve.range(), curve.range()));
        let random = (0..2000).map(|_| (rng.next_u64() % 100_000) as f64 / 45_000.0 - 1.1);
        let random = random.map(|v| (v * limit).clamp(-curve.range(), curve.range()));
        let x: Vec<f64> = fine.chain(edges).chain(far).chain(beyond).chain(random).collect();
        let words: Vec<u64> = x.iter().map(|x| from.encode(x * curve.kappa())).collect();
        let (client, server) = share(from.ring, &words, 9);
        let (a, b, stats) = run_counted(
            |ctx| curve_scaled(ctx, &curve, &client, from.frac, to).unwrap(),
            |ctx| curve_scaled(ctx, &curve, &server, from.frac, to).unwrap(),
        );
        let cost = curve_scaled_cost(&Link::LAN, x.len(), &curve, to);
        assert_cost(&stats, cost);
        let (mut worst, mut sum) = (0.0f64, 0.0);
        for (x, y) in x.iter().zip(reveal(&a, &b)) {
            let error = to.decode(y) * limit - f(*x);
            // The argument's rounding at a slope of at most 1.13, the quadratic's, and that of its terms.
            let bound = curve.error() * 1.05 + 2.6 * curve.unit();
            assert!(error.abs() < bound, "{} {x}: {error:e} above {bound:e}", curve.name);
            worst = worst.max(error.abs());
            sum += error;
        }
        // Unbiased.
        assert!((sum / x.len() as f64).abs() < 0.15 * curve.unit() + 0.3 * curve.error());
        assert!(worst > curve.error() / 2.0);
    }
}

#[test]
fn a_narrower_domain_is_cheaper_and_still_holds_what_it_must() {
    let to = Format::new(48, 16);
    let cost = |reach: f64| {
        let curve = GELU_EIGHT.reaching(reach);
        assert!(curve.range() >= reach.min(GELU_EIGHT.range()));
        curve_scaled_cost(&Link::LAN, 1000, &curve, to)
    };
    let reaches = [3.0, 3.8, 12.0, 26.0, 55.0, 114.0, f64::INFINITY];
    let bytes: Vec<u64> = reaches.map(|r| cost(r).bytes_client + cost(r).bytes_server).into();
    assert!(bytes.is_sorted(), "{bytes:?}");
    assert!(bytes[0] < bytes[5] && bytes[5] == bytes[6], "{bytes:?}");
    assert_eq!(GELU_EIGHT.reaching(f64::NAN).range(), GELU_EIGHT.range());
}
