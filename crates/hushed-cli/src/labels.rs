//! Labelled texts: pairs with the score of their likeness, or texts and images with their classes.

use hushed_model::folder::Public;
use hushed_model::{Item, ProblemType, cosine};

use crate::error::CliError;
use crate::images::Read;
use crate::input::Truncate;

/// Texts in pairs, and their scores.
pub fn pairs(lines: &[String]) -> Result<(Vec<String>, Vec<f64>), CliError> {
    let (mut texts, mut scores) = (Vec::new(), Vec::new());
    for (index, line) in lines.iter().enumerate() {
        let malformed = || CliError::Labels { line: index + 1, expected: "text, text and a number" };
        let fields: Vec<&str> = line.split('\t').collect();
        let &[a, b, score] = fields.as_slice() else {
            return Err(malformed());
        };
        let score = score.trim().parse().ok();
        scores.push(score.filter(|score: &f64| score.is_finite()).ok_or_else(malformed)?);
        texts.extend([a.to_owned(), b.to_owned()]);
    }
    Ok((texts, scores))
}

/// The items of [`pairs`] for a model: one a pair if it gives a pair's score, otherwise one a text.
pub fn paired(texts: Vec<String>, model: &Public, too_long: &Truncate) -> Result<Vec<Item>, CliError> {
    match model.config.scores() {
        true => too_long.pairs(model, texts.as_chunks::<2>().0),
        false => Read::Texts(texts).items(model, too_long),
    }
}

/// What the answers to [`paired`] items say of so many pairs: the score of each, or the cosine of its two texts.
pub fn likeness<'a>(answers: impl Iterator<Item = &'a [f64]>, pairs: usize) -> Vec<f64> {
    let answers: Vec<&[f64]> = answers.collect();
    match answers.len() == pairs {
        true => answers.iter().filter_map(|answer| answer.first().copied()).collect(),
        false => answers.as_chunks().0.iter().map(|[a, b]| cosine(a, b)).collect(),
    }
}

/// Texts, or paths of images, and the places of the classes of each among `names`, in order: one, or any number
/// separated by `|` where several may be right.
pub fn classes(
    lines: &[String],
    names: &[String],
    problem: ProblemType,
) -> Result<(Vec<String>, Vec<Vec<usize>>), CliError> {
    let place = |label: &str| names.iter().position(|name| name == label.trim());
    let places = |labels: &str| -> Option<Vec<usize>> {
        match (place(labels), problem) {
            (Some(one), _) => Some(vec![one]),
            (None, ProblemType::MultiLabel) if labels.trim().is_empty() => Some(Vec::new()),
            (None, ProblemType::MultiLabel) => labels.split('|').map(place).collect(),
            (None, _) => None,
        }
    };
    let (mut items, mut classes) = (Vec::new(), Vec::new());
    for (index, text) in lines.iter().enumerate() {
        let line = index + 1;
        let (labels, item) = text.split_once('\t').ok_or(CliError::Labels { line, expected: "label and text" })?;
        let mut found = places(labels).ok_or_else(|| CliError::NoSuchLabel { line, names: names.join(", ") })?;
        found.sort_unstable();
        found.dedup();
        classes.push(found);
        items.push(item.to_owned());
    }
    Ok((items, classes))
}

/// The places of the classes that a classifier's logits name, in order; `None` of numbers that name none: embeddings,
/// scores, other values.
pub fn named(model: &Public, logits: &[f64]) -> Option<Vec<usize>> {
    let problem = model.config.problem;
    if model.labels().is_none() || model.config.scores() || problem == ProblemType::Regression {
        return None;
    }
    let mut classes = problem.answer(logits, 0.0);
    classes.sort_unstable();
    Some(classes)
}

/// The largest difference between two answers.
pub fn farthest(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Spearman's rank correlation; equal values share a rank.
pub fn rank_correlation(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (ranks(a), ranks(b));
    let mean = (a.len() as f64 - 1.0) / 2.0;
    let centred = |x: &[f64]| x.iter().map(|v| v - mean).collect::<Vec<f64>>();
    cosine(&centred(&a), &centred(&b))
}

fn ranks(values: &[f64]) -> Vec<f64> {
    let below = |v: f64| values.iter().filter(|&&o| o < v).count() as f64;
    let equal = |v: f64| values.iter().filter(|&&o| o == v).count() as f64;
    values.iter().map(|&v| below(v) + (equal(v) - 1.0) / 2.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_correlation_of_known_lists() {
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[10.0, 20.0, 25.0]) - 1.0).abs() < 1e-12);
        assert!((rank_correlation(&[1.0, 2.0, 3.0], &[3.0, 2.0, 1.0]) + 1.0).abs() < 1e-12);
        assert_eq!(ranks(&[5.0, 1.0, 5.0]), [1.5, 0.0, 1.5]);
    }

    #[test]
    fn pairs_are_three_fields() {
        let line = |s: &str| vec![s.to_owned()];
        let (texts, scores) = pairs(&line("a\tb\t 4.5")).unwrap();
        assert_eq!((texts.len(), scores), (2, vec![4.5]));
        for bad in ["a\tb", "a\tb\tc", "a\tb\tnan", "a\tb\t1\t2", ""] {
            assert!(matches!(pairs(&line(bad)), Err(CliError::Labels { line: 1, .. })), "{bad}");
        }
    }

    #[test]
    fn classes_are_names_of_the_model() {
        let names = ["no", "yes"].map(str::to_owned);
        let lines = ["yes\ta\tb", "no\tc"].map(str::to_owned);
        let (one, several) = (ProblemType::SingleLabel, ProblemType::MultiLabel);
        for problem in [one, several] {
            let (texts, found) = classes(&lines, &names, problem).unwrap();
            assert_eq!((texts.as_slice(), found), (&["a\tb", "c"].map(str::to_owned)[..], vec![vec![1], vec![0]]));
        }
        let bad = |line: &str, problem| {
            classes(&[lines[0].clone(), line.to_owned()], &names, problem).map(|_| ()).unwrap_err()
        };
        assert!(matches!(bad("a text alone", several), CliError::Labels { line: 2, .. }));
        for (line, problem) in
            [("maybe\ta", one), ("no|yes\ta", one), ("\ta", one), ("no|maybe\ta", several), ("no|\ta", several)]
        {
            assert!(matches!(bad(line, problem), CliError::NoSuchLabel { line: 2, .. }), "{line}");
        }
        assert!(bad("maybe\ta", one).to_string().contains("no, yes"));
        let lines = ["yes | no|yes\ta", "\tb"].map(str::to_owned);
        assert_eq!(classes(&lines, &names, several).unwrap().1, [vec![0, 1], vec![]]);
    }

    #[test]
    fn pairs_have_a_score_or_a_cosine() {
        let answers: [&[f64]; 4] = [&[1.0, 0.0], &[0.0, 2.0], &[3.0, 0.0], &[3.0, 0.0]];
        assert_eq!(likeness(answers.into_iter(), 2), [0.0, 1.0]);
        assert_eq!(likeness(answers.into_iter(), 4), [1.0, 0.0, 3.0, 3.0]);
    }
}
