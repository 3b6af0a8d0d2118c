//! The three-way comparison on the tiny model: its stages, its order of errors, its answers.

use hushed_model::testing::tiny_model;
use hushed_model::tokens::TooLong;
use hushed_mpc::verify::verify;

#[test]
fn stages_and_answers_of_the_tiny_model() {
    let model = tiny_model();
    let texts: Vec<_> = ["fox", "a lazy dog, 7 times"]
        .iter()
        .map(|t| model.tokens(t, TooLong::Refuse).unwrap())
        .collect();
    let mut seen = 0;
    let report = verify(&model, &texts, |done| seen = done).unwrap();
    assert_eq!((seen, report.answers.len()), (2, 2));

    let names: Vec<&str> = report.stages.iter().map(|s| s.stage.as_str()).collect();
    let expected = [
        "embed.norm",
        "layer.0.attention.norm",
        "layer.0.feed_forward.norm",
        "layer.1.attention.norm",
        "layer.1.feed_forward.norm",
        "pool",
    ];
    assert_eq!(names, expected);
    for s in &report.stages {
        assert!(s.total < 0.02, "{s:?}");
        assert!(s.total <= s.approximation + s.protocol + 1e-12, "{s:?}");
    }
    // Functions and formats are the larger part of the error or at least of the same size: the protocols only round at
    // random.
    for s in &report.stages {
        assert!(
            s.approximation > 0.0 && s.protocol < 4.0 * s.approximation,
            "{s:?}"
        );
    }
    assert!(report.worst_stage().is_some());
    for a in &report.answers {
        let length = |v: &[f64]| v.iter().map(|x| x * x).sum::<f64>().sqrt();
        for v in [&a.clear, &a.approximated, &a.private] {
            assert!((length(v) - 1.0).abs() < 1e-9);
        }
        let dot: f64 = a.clear.iter().zip(&a.private).map(|(x, y)| x * y).sum();
        assert!(dot > 0.999, "{dot}");
    }
}
