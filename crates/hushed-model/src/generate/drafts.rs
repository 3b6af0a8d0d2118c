//! Drafts: guesses of the next tokens, all verified by one pass (Leviathan et al., *Fast Inference from Transformers
//! via Speculative Decoding*, ICML 2023).
//!
//! The rows of a pass are the last known token and m drafts. The model's answer after the first row is the next token;
//! if the first draft equals it, the answer after the second row is the token after that, and so on. So a pass gives
//! the tokens that one-row passes would give, from 1 to m + 1 of them, whatever the drafts are.

/// The shortest match. A single token occurs often, and is seldom followed by the same one.
const LEAST: usize = 2;

/// What may follow these tokens, at most `most` tokens: takes the last earlier occurrence of the longest suffix that
/// has one, and returns what followed it (*prompt lookup*; Yang et al., arXiv 2304.04487). Empty if the last two tokens
/// do not occur earlier. If what followed reaches the end of the text, it repeats in a cycle.
#[must_use]
pub fn prompt_lookup(ids: &[u32], most: usize) -> Vec<u32> {
    let common = |end: usize| {
        let before = ids[..end].iter().rev().zip(ids.iter().rev());
        before.take_while(|(a, b)| a == b).count()
    };
    // Of equally long matches the last.
    let longest =
        (1..ids.len()).map(|end| (common(end), end)).max_by_key(|found| *found).filter(|(length, _)| *length >= LEAST);
    let Some((_, end)) = longest else {
        return Vec::new();
    };
    ids[end..].iter().cycle().take(most).copied().collect()
}

/// The number of right drafts, where `said` is the model's answer after the last known token and after each draft. All
/// right drafts give one token each, and the answer after them one more.
#[must_use]
pub fn right(drafts: &[u32], said: &[u32]) -> usize {
    let pairs = drafts.iter().zip(said);
    pairs.take_while(|(draft, said)| draft == said).count()
}

/// The drafts that can be run: at most `most`, all from a vocabulary of `tokens`.
#[must_use]
pub fn runnable(mut drafts: Vec<u32>, most: usize, tokens: usize) -> Vec<u32> {
    let known = drafts.iter().take_while(|id| (**id as usize) < tokens);
    let known = known.count();
    drafts.truncate(known.min(most));
    drafts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_the_longest_end_follows() {
        //         0  1  2  3  4  5  6  7  8
        let ids = [1, 2, 3, 7, 2, 3, 8, 2, 3];
        // 2 3 occurs at 1 and at 4: the later one counts.
        assert_eq!(prompt_lookup(&ids, 2), [8, 2]);
        assert_eq!(prompt_lookup(&ids, 9), [8, 2, 3, 8, 2, 3, 8, 2, 3]);
        // 1 2 3 is longer.
        let ids = [1, 2, 3, 7, 2, 3, 8, 1, 2, 3];
        assert_eq!(prompt_lookup(&ids, 1), [7]);
        // A repetition continues.
        assert_eq!(prompt_lookup(&[5, 5, 5], 4), [5; 4]);
        for nothing in [&[][..], &[1], &[1, 1], &[1, 2, 1], &[1, 2, 3, 4]] {
            assert!(prompt_lookup(nothing, 4).is_empty(), "{nothing:?}");
        }
        assert!(prompt_lookup(&[1, 2, 1, 2], 0).is_empty());
    }

    #[test]
    fn drafts_are_right_up_to_the_first_that_is_not() {
        assert_eq!(right(&[4, 5, 6], &[4, 5, 6, 7]), 3);
        assert_eq!(right(&[4, 9, 6], &[4, 5, 6, 7]), 1);
        assert_eq!(right(&[9, 5], &[4, 5, 6]), 0);
        assert_eq!(right(&[], &[4]), 0);
        assert_eq!(runnable(vec![1, 2, 9, 3], 4, 9), [1, 2]);
        assert_eq!(runnable(vec![1, 2, 3], 2, 9), [1, 2]);
    }
}
