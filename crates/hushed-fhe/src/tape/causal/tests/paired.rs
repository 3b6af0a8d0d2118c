//! Pairs of columns change answers by rounding only.

use hushed_model::testing::ternary_config as config;
use hushed_model::{NetworkConfig, Weigh};

use super::{SLOTS, Subject, sums, test_params};
use crate::Acts;
use crate::pass::Viewer;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::simulate::{Op, Simulator, Vector};

fn nothing<V: Clone + 'static>() -> Viewer<'static, V> {
    sums(|_, _: &Acts<V>| Ok(()))
}

/// Columns in pairs, with spills or without.
fn paired(of: &Placement, spills: bool) -> Placement {
    Placement { pairs: true, hidden_block: 16, spill_attention: spills, spill_feed_forward: spills, ..of.clone() }
}

/// Decoders whose blocks read columns differently: heads that share keys, norms inside blocks, a softmax.
fn configs() -> [NetworkConfig; 3] {
    let with = |keys, sub_norms, weigh| NetworkConfig { sub_norms, weigh, ..config(2, keys) };
    let sigmoid = config(2, 2).weigh;
    [with(1, false, sigmoid), with(2, true, sigmoid), with(2, false, Weigh::Softmax)]
}

#[test]
fn pairs_of_columns_give_the_same_answer() {
    for config in configs() {
        let subject = Subject::new(&config, SLOTS, (15, 15));
        let run = |placement: Placement| {
            let on = Simulator::new(&test_params(), SLOTS).unwrap();
            let mut seen = Vec::new();
            let see = |_, x: &Acts<Vector>| {
                seen.extend(x.columns.iter().map(|v| v.values().to_vec()));
                Ok(())
            };
            let how = (placement, AnswerRows::Last);
            let sent = subject.vectors(&on);
            let found = subject.run_at(&on, sent, how, sums(see)).unwrap();
            seen.extend(found.vectors.iter().map(|v| v.values().to_vec()));
            (seen, on.tally().counts())
        };
        let plain = subject.placement(test_params().fresh_limbs());
        let (expected, before) = run(plain.clone());
        for spills in [false, true] {
            let (found, after) = run(paired(&plain, spills));
            assert_eq!(found.len(), expected.len());
            let both = found.iter().flatten().zip(expected.iter().flatten());
            let worst = both.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
            println!("{spills}: {worst:e}");
            // Constants and weights are rounded at other scales.
            assert!(worst < 1e-6, "{worst:e}");
            assert_eq!(after.total(Op::Bootstrap), before.total(Op::Bootstrap));
            assert_eq!(after.total(Op::LinearTerm), before.total(Op::LinearTerm));
            assert!(after.total(Op::Conjugate) > before.total(Op::Conjugate));
        }
    }
}

/// Spilled or not, the bytes are the same; operations are as planned, and the answer is the clear model's.
#[test]
fn pairs_of_columns_under_a_key() {
    let params = test_params();
    let slots = params.slots();
    let subject = Subject::new(&config(2, 1), slots, (15, 15));
    let placement = subject.placement(params.fresh_limbs());
    let (keys, sent, counts, _folder) = subject.under_a_key(&params, &paired(&placement, true));
    let run = |spills: bool| {
        let how = (paired(&placement, spills), AnswerRows::Last);
        let found = subject.run_at(&keys.on, sent.clone(), how, nothing());
        found.unwrap().vectors
    };
    let start = keys.on.evaluator().counters().snapshot();
    let found = run(true);
    let done = keys.on.evaluator().counters().snapshot().since(&start);
    assert_eq!(done.bootstrap, counts.total(Op::Bootstrap));
    for (one, two) in found.iter().zip(&run(false)) {
        assert!(one.b() == two.b() && one.a() == two.a());
    }
    subject.assert_answers(&keys, &found);
}
