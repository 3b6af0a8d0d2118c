//! The three-way comparison on the tiny model: its stages, its errors by size, its answers.

use hushed_model::testing::tiny_model;
use hushed_model::tokens::{TokenIds, TooLong};
use hushed_mpc::verify::verify;

/// Every row of two texts gives the clear model's token, which is also that of a text cut off after the row.
#[test]
fn tokens_of_every_row_of_a_text() {
    for model in crate::decode::models() {
        let texts: Vec<TokenIds> = [vec![5, 60, 0, 17, 17, 42, 9], vec![7, 7, 8]].map(TokenIds::new).into();
        let report = verify(&model, &texts, &[], |_| ()).unwrap();
        assert!(report.answers.is_empty());
        assert_eq!(report.positions.len(), 7 + 3);
        assert_eq!(report.stages.last().unwrap().stage, "head");
        for at in &report.positions {
            let text = TokenIds::new(texts[at.text].ids()[..=at.row].to_vec());
            let logits = model.embed(vec![text]).unwrap().remove(0);
            let behind = |token: u32| logits[at.clear as usize] - logits[token as usize];
            assert_eq!(at.clear, hushed_model::largest(&logits));
            let others = (0..logits.len() as u32).filter(|&t| t != at.clear);
            let margin = others.map(behind).fold(f64::INFINITY, f64::min);
            assert!((at.margin - margin).abs() < 1e-10);
            assert!(at.agrees() == (at.private == at.clear) && behind(at.private) < 0.05);
        }
    }
}

#[test]
fn stages_and_answers_of_the_tiny_model() {
    let model = tiny_model();
    let texts: Vec<_> =
        ["fox", "a lazy dog, 7 times"].iter().map(|t| model.tokens(t, TooLong::Refuse).unwrap()).collect();
    let mut seen = 0;
    let report = verify(&model, &texts, &[], |done| seen = done).unwrap();
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
    // Functions and formats are the larger part of the error, or at least as large: the protocols only round at random.
    for s in &report.stages {
        assert!(s.approximation > 0.0 && s.protocol < 4.0 * s.approximation, "{s:?}");
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
