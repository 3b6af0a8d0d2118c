//! Warnings about a client's texts before anything is sent.

use std::collections::HashMap;

/// A repetitive text of at least this many tokens is unlike anything in a calibration.
const REPETITIVE: usize = 16;

/// A warning about a text, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// One token makes up more than half of it, or it has at least four times as many tokens as distinct ones: such a
    /// text may leave the calibrated ranges, and its answer is then meaningless.
    Repetitive {
        /// Which text, from 0.
        text: usize,
    },
    /// It was cut.
    Cut {
        /// Which text, from 0.
        text: usize,
    },
}

impl Warning {
    /// How many texts a printed line names.
    pub const NAMED: usize = 8;

    /// One line per kind of warning, with the number of texts and the indices of at most `most` of them.
    #[must_use]
    pub fn lines(warnings: &[Warning], most: usize) -> Vec<String> {
        let (mut cut, mut repetitive) = (Vec::new(), Vec::new());
        for warning in warnings {
            match warning {
                Warning::Cut { text } => cut.push(*text),
                Warning::Repetitive { text } => repetitive.push(*text),
            }
        }
        let kinds = [
            (cut, "was cut", "were cut"),
            (
                repetitive,
                "says the same over and over: it may leave the calibrated ranges, and its answer would then mean nothing",
                "say the same over and over: they may leave the calibrated ranges, and their answers would then mean nothing",
            ),
        ];
        let line = |(texts, one, many): (Vec<usize>, &str, &str)| match texts.as_slice() {
            [] => None,
            [text] => Some(format!("text {text} {one}")),
            texts => {
                let named: Vec<String> = texts.iter().take(most).map(usize::to_string).collect();
                let more = if texts.len() > most { ", …" } else { "" };
                let (count, named) = (texts.len(), named.join(", "));
                Some(format!("{count} texts {many} ({named}{more})"))
            }
        };
        kinds.into_iter().filter_map(line).collect()
    }
}

pub(super) fn repetitive(ids: &[u32]) -> bool {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    ids.iter().for_each(|id| *counts.entry(*id).or_default() += 1);
    let most = counts.values().copied().max().unwrap_or(0);
    ids.len() >= REPETITIVE && (2 * most > ids.len() || 4 * counts.len() <= ids.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_is_seen() {
        assert!(repetitive(&[7; 16]));
        assert!(!repetitive(&[7; 15]));
        // "a b c a b c …"
        let thrice: Vec<u32> = (0..100).map(|i| i % 3).collect();
        assert!(repetitive(&thrice));
        let halves: Vec<u32> = (0..100).map(|i| i % 50).collect();
        assert!(!repetitive(&halves));
        assert!(!repetitive(&(0..100).collect::<Vec<u32>>()));
    }

    /// A batch of hundreds of long texts used to print one line per text.
    #[test]
    fn warnings_are_a_line_for_each_kind() {
        let mut warnings: Vec<Warning> = (0..300).map(|text| Warning::Cut { text }).collect();
        warnings.insert(7, Warning::Repetitive { text: 6 });
        let lines = Warning::lines(&warnings, Warning::NAMED);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], "300 texts were cut (0, 1, 2, 3, 4, 5, 6, 7, …)");
        assert!(lines[1].starts_with("text 6 says the same"));
        let all = Warning::lines(&warnings, usize::MAX);
        assert!(all[0].ends_with(", 298, 299)"));
        assert!(Warning::lines(&[], usize::MAX).is_empty());
    }
}
