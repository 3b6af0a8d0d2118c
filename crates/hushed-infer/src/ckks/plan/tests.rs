//! Plans of models whose counts can be worked out by hand, and the search under bounds.

use hushed_ckks::CkksParams;
use hushed_ckks::keys::EvalKeyPlan;
use hushed_model::{Bert, BertConfig, Pool, bert_random};

use super::*;
use crate::ckks::simulate::Op;

/// MiniLM's layers, two of them.
fn minilm() -> Bert {
    let config = BertConfig {
        layers: 2,
        width: 384,
        heads: 12,
        hidden: 1536,
        vocabulary: 8,
        positions: 128,
        ..BertConfig::bert_large()
    };
    bert_random(&config, Pool::Mean, 1)
}

fn options(lengths: Lengths) -> FheOptions {
    FheOptions {
        rows: 128,
        texts: usize::MAX,
        lengths,
        max_memory: None,
        uplink: f64::INFINITY,
        prices: reference(1),
        placement: None,
    }
}

fn plan(bert: &Bert, options: &FheOptions) -> Result<FhePlanReport, FheError> {
    let params = CkksParams::n16_boot().map_err(hushed_ckks::CkksError::from)?;
    let choices = assumed_choices(bert, options.rows);
    FhePlanReport::new(bert, &choices, true, &params, &EvalKeyPlan::new(), options)
}

#[test]
fn a_plan_counts_what_the_circuit_does() {
    let bert = minilm();
    let plan = plan(&bert, &options(Lengths::Public)).unwrap();
    assert_eq!((plan.texts, plan.places, plan.layers), (256, 256, 2));
    // Two refreshes of the columns in the first layer and one in the last, two columns a bootstrap.
    assert_eq!(plan.work.bootstraps_wide, 3 * 192);
    // A layer has two sums a head, two heads a bootstrap, and two variances.
    assert_eq!(plan.work.bootstraps_narrow, 2 * (12 + 2));
    // Query, key, value, output, up, down.
    assert_eq!(plan.work.linear_terms, 2 * (4 * 384 * 384 + 2 * 384 * 1536));
    let levels = CkksParams::n16_boot().unwrap().levels();
    for step in &plan.steps {
        let inside = |level: Option<usize>| level.is_none_or(|l| l <= levels);
        assert!(
            inside(step.level_before) && inside(step.level_after),
            "{step:?}"
        );
        assert!(step.refreshed.iter().all(|r| r.1 <= levels), "{step:?}");
    }
    let of_layers: f64 = (0..2)
        .flat_map(|i| plan.ledger(Some(i)))
        .chain(plan.ledger(None))
        .map(|step| step.work.seconds)
        .sum();
    assert!((of_layers - plan.work.seconds).abs() < 1e-6 * plan.work.seconds);
    assert!(plan.failure_log2 < -100.0 && plan.memory.total() > plan.memory.vectors);
    assert!(
        plan.placement.attention <= 18 && plan.placement.feed_forward < plan.placement.attention
    );
    assert!(plan.alternatives.iter().filter(|a| a.chosen).count() <= 1);
    // Nothing of the choices but their counts.
    let text = serde_json::to_string(&plan).unwrap();
    assert!(
        !text.contains("\"scores\"") && !text.contains("\"low\""),
        "{text}"
    );
}

#[test]
fn memory_is_a_limit() {
    let bert = minilm();
    let free = plan(&bert, &options(Lengths::Public)).unwrap();
    let tight = |bytes: u64| {
        let options = FheOptions {
            max_memory: Some(bytes),
            ..options(Lengths::Public)
        };
        plan(&bert, &options)
    };
    let less = free.memory.total() - (free.memory.vectors / 16);
    match tight(less) {
        Ok(plan) => {
            assert!(plan.memory.total() <= less);
            assert!(plan.work.seconds >= free.work.seconds);
        }
        Err(error) => assert!(matches!(error, FheError::Unsupported { .. }), "{error}"),
    }
    assert!(matches!(tight(1 << 30), Err(FheError::Unsupported { .. })));
}

#[test]
fn a_slow_uplink_is_spared() {
    let bert = minilm();
    let with = |uplink: f64| {
        let options = FheOptions {
            uplink,
            ..options(Lengths::Private)
        };
        plan(&bert, &options).unwrap()
    };
    let (fast, slow) = (with(f64::INFINITY), with(1e5));
    assert!(slow.bytes_up < fast.bytes_up);
    assert!(slow.work.bootstraps_wide > fast.work.bootstraps_wide);
    assert!(
        fast.exposures
            .iter()
            .any(|e| e.sees.contains("at most 128"))
    );
}

#[test]
fn prices_are_on_lines_between_what_was_measured() {
    let prices = reference(1);
    let [first, second] = [prices.by_limbs[0], prices.by_limbs[1]];
    let middle = (first.limbs + second.limbs) / 2;
    let found = prices.seconds(Op::Rotate, middle);
    assert!(first.rotate_hoisted < found && found < second.rotate_hoisted);
    assert_eq!(
        prices.seconds(Op::Rotate, first.limbs),
        first.rotate_hoisted
    );
    assert!(prices.seconds(Op::Bootstrap, 18) > prices.seconds(Op::Bootstrap, 6));
    assert!(reference(2).seconds(Op::Bootstrap, 18) < prices.seconds(Op::Bootstrap, 18));
    let text = serde_json::to_string(&prices).unwrap();
    assert_eq!(serde_json::from_str::<Prices>(&text).unwrap(), prices);
}
