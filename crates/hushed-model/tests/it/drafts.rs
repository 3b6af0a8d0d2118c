//! Drafts in the clear: the text is the same as from one-row passes.

use hushed_model::testing::{tiny_generator, tiny_golden};
use hushed_model::{Continued, Ending, Model, TokenIds, drafted, prompt_lookup};

const PROMPT: [u32; 7] = [5, 60, 0, 17, 17, 42, 9];

/// Tokens, each with its logits.
type Said = Vec<(u32, Vec<f64>)>;

fn said(model: &Model, most: usize, how: (usize, impl FnMut(&[u32], usize) -> Vec<u32>)) -> (Continued, Said) {
    let text = TokenIds::new(PROMPT.to_vec());
    let mut all = Said::new();
    let done = drafted(model, &text, most, how, |token, logits| {
        all.push((token, logits.to_vec()));
    });
    (done.unwrap(), all)
}

/// The text equals that of one-row passes, to 10^−10 in every logit.
fn assert_same(found: &(Continued, Said), one_by_one: &(Continued, Said)) {
    assert_eq!(found.0.ending, one_by_one.0.ending);
    assert_eq!(found.1.len(), one_by_one.1.len());
    for ((token, logits), (expected, reference)) in found.1.iter().zip(&one_by_one.1) {
        assert_eq!(token, expected);
        let off = logits.iter().zip(reference).map(|(a, b)| (a - b).abs());
        assert!(off.fold(0.0, f64::max) < 1e-10);
    }
}

#[test]
fn right_wrong_and_half_right_drafts_give_the_text_one_by_one() {
    let golden = |name| Model::load(&tiny_golden(name)).unwrap();
    for model in [tiny_generator(), golden("llama"), golden("gpt2")] {
        let most = 17;
        let one_by_one = said(&model, most, (0, |_: &[u32], _| unreachable!()));
        let known: Vec<u32> = one_by_one.1.iter().map(|(token, _)| *token).collect();
        assert!(known.len() > 6, "{known:?}");
        assert_eq!((one_by_one.0.drafts, one_by_one.0.right), (0, 0));
        let oracle = |wrong: fn(usize) -> bool| {
            let known = known.clone();
            move |ids: &[u32], most: usize| {
                let after = ids.len() - PROMPT.len();
                let next = known.iter().enumerate().skip(after).take(most);
                next.map(|(place, &token)| if wrong(place) { (token + 1) % 61 } else { token }).collect::<Vec<u32>>()
            }
        };
        for n in [1, 3, 4] {
            let right = said(&model, most, (n, oracle(|_| false)));
            assert_same(&right, &one_by_one);
            assert_eq!(right.0.right, right.0.drafts);
            assert!(right.0.passes <= 2 + (known.len()).div_ceil(n + 1), "{:?}", right.0);

            let wrong = said(&model, most, (n, oracle(|_| true)));
            assert_same(&wrong, &one_by_one);
            assert_eq!((wrong.0.right, wrong.0.passes), (0, one_by_one.0.passes));
            assert!(wrong.0.drafts > 0);

            let half = said(&model, most, (n, oracle(|place| place % 3 == 2)));
            assert_same(&half, &one_by_one);
            assert!(0 < half.0.right && half.0.right < half.0.drafts, "{:?}", half.0);

            assert_same(&said(&model, most, (n, prompt_lookup)), &one_by_one);
        }
        // Ids without a token end the drafts, and drafts beyond those needed are dropped.
        let beyond = |ids: &[u32], most: usize| {
            let mut drafts = oracle(|_| false)(ids, most);
            drafts.insert(drafts.len().min(1), u32::MAX);
            drafts
        };
        assert_same(&said(&model, most, (4, beyond)), &one_by_one);
        let many = |_: &[u32], _| vec![3; 500];
        assert_same(&said(&model, most, (4, many)), &one_by_one);
    }
}

/// Up to the model's last position, and never beyond.
#[test]
fn drafts_end_where_positions_do() {
    let model = tiny_generator();
    let limit = model.public.max_tokens;
    let one_by_one = said(&model, usize::MAX, (0, |_: &[u32], _| Vec::new()));
    let found = said(&model, usize::MAX, (7, |_: &[u32], _| vec![1; 7]));
    assert_same(&found, &one_by_one);
    assert_eq!(found.0.ending, Ending::Positions);
    assert_eq!(PROMPT.len() + found.1.len(), limit);
}
