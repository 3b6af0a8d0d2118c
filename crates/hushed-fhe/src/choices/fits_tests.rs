use super::*;
use crate::Interval;

const HEAD: HeadChoice = HeadChoice::Softmax {
    scores: Interval { low: -25.0, high: 9.0 },
    least_maximum: 0.5,
    first: Interval { low: 0.02, high: 3.0 },
    second: Interval { low: 0.008, high: 1.0 },
};

#[test]
fn exponentials_are_relative_to_the_largest_of_a_row() {
    for (degree, most) in [(15, 2e-2), (31, 2e-5)] {
        let p = exponential(&HEAD, degree).unwrap();
        assert_eq!((p.degree(), p.interval_map()), (degree, None));
        for i in 0..=1000 {
            let t = f64::from(i) / 500.0 - 1.0;
            let s = -8.0 + 17.0 * t;
            let error = (3.0 * p.eval(t) - ((s - 9.0) / 2.0).exp()).abs();
            let largest = ((s.max(0.5) - 9.0) / 2.0).exp();
            assert!(error < most * largest, "{degree} {s} {error:e}");
        }
    }
    assert!(matches!(exponential(&HeadChoice::Previous, 15), Err(FheError::Choices(_))));
}

#[test]
fn activations_are_accurate_where_arguments_are() {
    let column = Interval { low: -6.0, high: 3.0 };
    let p = activation(Activation::Gelu, column, 15).unwrap();
    let error = |x: f64| (p.eval((x + 1.5) / (4.5 * BEYOND)) - exact(Activation::Gelu, x)).abs();
    let most = |from: i32, to: i32| {
        let all = (from..=to).map(|i| error(f64::from(i) / 100.0));
        all.fold(0.0, f64::max)
    };
    assert!(most(-300, 100) < 3e-3, "{}", most(-300, 100));
    assert!(most(-600, 300) < 2e-2, "{}", most(-600, 300));
    let empty = Interval { low: 1.0, high: 1.0 };
    assert!(activation(Activation::Gelu, empty, 15).is_err());
}

/// An interval is wider than the part in which arguments are expected: fits of all degrees stay bounded in the rest.
#[test]
fn activations_stay_bounded_in_the_margin() {
    for degree in [15, 31, 63, 127] {
        let bell = Column { low: -18.0, high: 9.0, mean: -1.5, deviation: 1.0 };
        let p = activation(Activation::Gelu, bell, degree).unwrap();
        for i in 0..=1000 {
            let t = f64::from(i) / 500.0 - 1.0;
            let x = 13.5 * t - 4.5;
            let off = (p.eval(t / BEYOND) - exact(Activation::Gelu, x)).abs();
            assert!(off < 2.0, "degree {degree}: {off} at {x}");
            if (x - bell.mean).abs() < 3.0 {
                assert!(off < 0.15, "degree {degree}: {off} at {x}");
            }
        }
    }
}

/// As accurate as the unmasked ones, and 0 at masked scores, whatever the interval.
#[test]
fn masked_exponentials_vanish_at_their_end() {
    let narrow = HeadChoice::Softmax {
        scores: Interval { low: -3.0, high: 3.0 },
        least_maximum: -2.0,
        first: Interval { low: 0.1, high: 16.0 },
        second: Interval { low: 0.05, high: 1.0 },
    };
    for (head, degree, most) in [(&HEAD, 15, 4e-2), (&HEAD, 31, 2e-4), (&narrow, 15, 1e-4)] {
        let HeadChoice::Softmax { scores, least_maximum, first, .. } = *head else {
            panic!("a softmax");
        };
        let p = masked_exponential(head, degree).unwrap();
        assert_eq!((p.degree(), p.interval_map()), (degree, None));
        assert!(p.eval(-1.0).abs() < 1e-12, "{:e}", p.eval(-1.0));
        let wide = masked(scores);
        let mut worst = 0.0_f64;
        for i in 0..=1000 {
            let s = scores.low + (scores.high - scores.low) * f64::from(i) / 1000.0;
            let t = (s - wide.middle()) / wide.half();
            let exact = ((s - scores.high) / 2.0).exp();
            let largest = ((s.max(least_maximum) - scores.high) / 2.0).exp();
            worst = worst.max((first.high * p.eval(t) - exact).abs() / largest);
        }
        println!("degree {degree}: {worst:.1e}");
        assert!(worst < most, "{degree} {worst:e}");
        // Nothing grows between masked scores and calibrated ones.
        for i in 0..=100 {
            let t = -1.0 + 0.22 * f64::from(i) / 100.0;
            assert!(p.eval(t).abs() < 0.1, "{t} {}", p.eval(t));
        }
    }
}

/// Texts that share places have masked exponentials in place of the calibrated ones: their largest error in the heads
/// of the shipped calibration is at most three times as large.
#[test]
fn masked_exponentials_of_the_shipped_calibration() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../data/calibration-fhe-minilm.json");
    let choices = crate::Choices::from_json(&std::fs::read(path).unwrap()).unwrap();
    let mut worst = [0.0_f64; 2];
    for layer in &choices.layers {
        let degree = layer.attention.degree;
        for head in &layer.attention.heads {
            let HeadChoice::Softmax { scores, least_maximum, first, .. } = *head else {
                continue;
            };
            let fits = [(exponential(head, degree), scores), (masked_exponential(head, degree), masked(scores))];
            for (worst, (fit, from)) in worst.iter_mut().zip(fits) {
                let fit = fit.unwrap();
                for i in 0..=400 {
                    let s = scores.low + (scores.high - scores.low) * f64::from(i) / 400.0;
                    let found = first.high * fit.eval((s - from.middle()) / from.half());
                    let largest = ((s.max(least_maximum) - scores.high) / 2.0).exp();
                    *worst = worst.max((found - ((s - scores.high) / 2.0).exp()).abs() / largest);
                }
            }
        }
    }
    println!("largest errors over a row's largest: {:.1e}, masked {:.1e}", worst[0], worst[1]);
    assert!(worst[1] < 3.0 * worst[0], "{worst:?}");
}
