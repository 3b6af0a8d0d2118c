//! Labelled texts: pairs with the score of their likeness, or texts and images with their class.

use hushed_model::cosine;

use crate::error::CliError;

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

/// Texts, or paths of images, and the index of the class of each among `names`.
pub fn classes(lines: &[String], names: &[String]) -> Result<(Vec<String>, Vec<usize>), CliError> {
    let (mut items, mut classes) = (Vec::new(), Vec::new());
    for (index, text) in lines.iter().enumerate() {
        let line = index + 1;
        let (label, item) = text.split_once('\t').ok_or(CliError::Labels { line, expected: "label and text" })?;
        let class = names.iter().position(|name| name == label.trim());
        classes.push(class.ok_or_else(|| CliError::NoSuchLabel { line, names: names.join(", ") })?);
        items.push(item.to_owned());
    }
    Ok((items, classes))
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
        let (texts, found) = classes(&lines, &names).unwrap();
        assert_eq!((texts.as_slice(), found), (&["a\tb", "c"].map(str::to_owned)[..], vec![1, 0]));
        let bad = |line: &str| classes(&[lines[0].clone(), line.to_owned()], &names).unwrap_err();
        assert!(matches!(bad("a text alone"), CliError::Labels { line: 2, .. }));
        assert!(matches!(bad("maybe\ta"), CliError::NoSuchLabel { line: 2, .. }));
        assert!(bad("maybe\ta").to_string().contains("no, yes"));
    }
}
