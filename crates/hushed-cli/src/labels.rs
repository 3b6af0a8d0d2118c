//! Labelled pairs of texts, and how well cosines rank them.

use hushed_model::cosine;

use crate::error::CliError;

/// Texts in pairs, and their scores.
pub fn pairs(lines: &[String]) -> Result<(Vec<String>, Vec<f64>), CliError> {
    let (mut texts, mut scores) = (Vec::new(), Vec::new());
    for (index, line) in lines.iter().enumerate() {
        let fields: Vec<&str> = line.split('\t').collect();
        let (&[a, b, score], at) = (fields.as_slice(), index + 1) else {
            return Err(CliError::Labels { line: index + 1 });
        };
        let score: f64 = score
            .trim()
            .parse()
            .map_err(|_| CliError::Labels { line: at })?;
        texts.extend([a.to_owned(), b.to_owned()]);
        scores.push(score);
    }
    Ok((texts, scores))
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
    values
        .iter()
        .map(|&v| below(v) + (equal(v) - 1.0) / 2.0)
        .collect()
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
        for bad in ["a\tb", "a\tb\tc", "a\tb\t1\t2", ""] {
            assert!(
                matches!(pairs(&line(bad)), Err(CliError::Labels { line: 1 })),
                "{bad}"
            );
        }
    }
}
