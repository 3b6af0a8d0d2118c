use super::*;

fn choice() -> NormChoice {
    NormChoice { scale: 0.1, low: 0.05, bound: 4.0, seed: 15, steps: 1 }
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
