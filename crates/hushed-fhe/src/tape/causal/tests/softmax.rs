//! A decoder with softmax attention, compared with the clear model, simulated and encrypted; padding and later tokens
//! change nothing; its operations match the module header.

use hushed_ckks::poly::Arithmetic;
use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::testing::{ternary_config, ternary_network};
use hushed_model::{Block, Matrix, NetworkConfig, PlainActs, Rows, StepId, TokenIds, Weigh, plain};

use super::{ROWS, SLOTS, Subject, attended, spread, sums, test_params};
use crate::choices::ScoresChoice;
use crate::ops::mask::token_rows_to_last;
use crate::packing::Interleave;
use crate::plan::public_plan::AnswerRows;
use crate::run::encrypted::testing::Keys;
use crate::simulate::{Op, Simulator, Vector};
use crate::slots::Slots;
use crate::tape::causal::attention::CausalBlock;
use crate::{Acts, AttentionChoice, FheError, HeadChoice, KeyDemand, Pass};

/// A BitNet decoder, or one with maps that are not ternary.
fn config(heads: usize, keys: usize, ternary: bool) -> NetworkConfig {
    let config = NetworkConfig { weigh: Weigh::Softmax, ..ternary_config(heads, keys) };
    match ternary {
        true => config,
        false => NetworkConfig { ternary: None, ..config },
    }
}

/// For each text the residual stream after every sum, row by row, from columns divided by their gains.
fn clear_sums(subject: &Subject) -> Vec<Vec<Matrix<f64>>> {
    let each = |text: &TokenIds| {
        let mut sums = Vec::new();
        let see = |step: &hushed_model::Step, x: &PlainActs| {
            if matches!(step.block, Block::Add) {
                sums.push(x.values.clone());
            }
        };
        plain::run(&subject.program, vec![text.clone()], see).unwrap();
        sums
    };
    subject.texts.iter().map(each).collect()
}

/// The largest difference from the clear sums over their root mean square, and the largest number in padding rows.
fn compared(subject: &Subject, opened: &[Acts<Vec<f64>>]) -> (f64, f64) {
    let clear = clear_sums(subject);
    let (mut worst, mut padding) = (0.0_f64, 0.0_f64);
    for (number, x) in opened.iter().enumerate() {
        let all = clear.iter().flat_map(|sums| sums[number].data());
        let count = all.clone().count() as f64;
        let size = (all.map(|v| v * v).sum::<f64>() / count).sqrt();
        for (t, sums) in clear.iter().enumerate() {
            let first = ROWS - sums[number].rows();
            for row in 0..ROWS {
                for (j, column) in x.columns.iter().enumerate() {
                    let found = x.gain[j] * column[subject.layout.slot(t, row)];
                    match row.checked_sub(first) {
                        Some(row) => {
                            let apart = found - sums[number].row(row)[j];
                            worst = worst.max(apart.abs() / size);
                        }
                        None => padding = padding.max(found.abs()),
                    }
                }
            }
        }
    }
    (worst, padding)
}

/// A viewer that keeps decrypted sums.
fn kept<V>(
    into: &mut Vec<Acts<Vec<f64>>>,
    open: impl Fn(&V) -> Vec<f64>,
) -> impl FnMut(StepId, &Acts<V>) -> Result<(), FheError> {
    move |_, x| {
        into.push(Acts {
            columns: x.columns.iter().map(&open).collect(),
            gain: x.gain.clone(),
            offset: x.offset.clone(),
        });
        Ok(())
    }
}

fn opened(subject: &Subject, on: &Simulator) -> Vec<Acts<Vec<f64>>> {
    let mut opened = Vec::new();
    let see = kept(&mut opened, |v: &Vector| v.values().to_vec());
    subject.run(on, subject.vectors(on), sums(see)).unwrap();
    opened
}

#[test]
fn every_sum_of_a_simulated_softmax_decoder_is_the_clear_one() {
    let params = test_params();
    for (heads, keys, ternary) in [(2, 2, true), (4, 2, true), (2, 2, false), (4, 1, false)] {
        let subject = Subject::new(&config(heads, keys, ternary), SLOTS, (15, 31));
        assert_eq!(subject.program.linears().any(|w| w.ternary), ternary);
        let on = Simulator::new(&params, SLOTS).unwrap();
        let (worst, padding) = compared(&subject, &opened(&subject, &on));
        let noisy = Simulator::new(&params, SLOTS).unwrap().with_errors(5);
        let (with_errors, padding_with) = compared(&subject, &opened(&subject, &noisy));
        println!(
            "{heads} heads over {keys}, ternary {ternary}: {worst:.1e} and {padding:.1e}, with \
             errors {with_errors:.1e} and {padding_with:.1e}"
        );
        assert!(worst < 2e-3 && padding < 1e-7, "{worst:e} {padding:e}");
        assert!(with_errors < 4e-3, "{with_errors:e}");
    }
}

/// With a norm inside, a softmax of degree 15 takes all levels. What takes more is refused, naming the step.
#[test]
fn too_few_levels_are_named() {
    let config = NetworkConfig { sub_norms: true, ..config(2, 1, true) };
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let subject = Subject::new(&config, SLOTS, (15, 31));
    let (worst, padding) = compared(&subject, &opened(&subject, &on));
    assert!(worst < 1e-2 && padding < 1e-6, "{worst:e} {padding:e}");
    let subject = Subject::new(&config, SLOTS, (31, 15));
    let refused = subject.simulated(&on).err().unwrap();
    assert!(matches!(refused, FheError::Levels { .. }), "{refused}");
    assert!(refused.to_string().contains("layer.0.attention"), "{refused}");
}

/// Attention alone, with random numbers in all token rows, texts of different lengths and a place without one, compared
/// with the clear model's; its operations match the module header.
#[test]
fn attention_is_causal_softmax_attention_with_these_operations() {
    for (heads, keys, baby, together) in [(2, 2, 4, 2), (4, 2, 2, 4), (1, 1, 16, 2), (2, 1, 1, 1)] {
        let config = config(heads, keys, true);
        let network = ternary_network(&config, 8);
        let block = &network.layers[0].attention;
        let on = Simulator::new(&test_params(), SLOTS).unwrap();
        let layout = Interleave::new(SLOTS, ROWS).unwrap();
        let lengths = [16, 3, 9, 1, 12, 5, 16];
        let number = |i: usize| {
            let x = (i as u64 + 77).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            2.0 * ((x >> 11) as f64 / (1u64 << 53) as f64) - 1.0
        };
        let entry = |t: usize, row: usize, j: usize| match lengths.get(t) {
            Some(length) if row + length >= ROWS => number(1000 * t + 31 * row + j),
            _ => 0.0,
        };
        let column = |j: usize| layout.vector(layout.texts(), |t, row| entry(t, row, j));
        let x = Acts {
            columns: (0..16).map(|j| on.vector(column(j), on.top()).unwrap()).collect(),
            offset: vec![0.0; 16],
            gain: vec![1.0; 16],
        };
        let interval = |low: f64, high: f64| crate::Interval { low, high };
        let head = HeadChoice::Softmax {
            scores: interval(-3.0, 3.0),
            least_maximum: -3.0,
            first: interval(0.03, 16.0),
            second: interval(0.05, 1.1),
        };
        let choice = ScoresChoice::Softmax(AttentionChoice {
            degree: 15,
            first_steps: 7,
            second_steps: 6,
            heads: vec![head; heads],
        });
        let real = on.vector(token_rows_to_last(layout, &lengths), on.top());
        let real = real.unwrap();
        let at = StepId::outside("attention");
        let layer = CausalBlock { at, block, choice: &choice, sub_norm: None, bound: 8.0, together };
        let found = attended(&on, (layout, baby), (x, Some(real)), &layer).unwrap();
        let (mut worst, mut padding) = (0.0_f64, 0.0_f64);
        for t in 0..layout.texts() {
            let length = lengths.get(t).copied().unwrap_or(0);
            let first = ROWS - length;
            if length == 0 {
                let slots = (0..ROWS).map(|row| layout.slot(t, row));
                let mut empty = slots.flat_map(|slot| found.iter().map(move |v| v.values()[slot]));
                assert!(empty.all(|v| v.abs() < 1e-7));
                continue;
            }
            let rows = (first..ROWS).flat_map(|row| (0..16).map(move |j| entry(t, row, j)));
            let x =
                PlainActs { rows: Rows::unpadded(&[length]), values: Matrix::new(length, 16, rows.collect()).unwrap() };
            let want = plain::attention(StepId::outside("attention"), &x, block).unwrap();
            for row in 0..ROWS {
                for (j, column) in found.iter().enumerate() {
                    let found = 8.0 * column.values()[layout.slot(t, row)];
                    match row.checked_sub(first) {
                        Some(row) => worst = worst.max((found - want.values.row(row)[j]).abs()),
                        None => padding = padding.max(found.abs()),
                    }
                }
            }
        }
        println!("{heads} heads over {keys}, {baby} baby steps: {worst:.1e}, padding {padding:.1e}");
        assert!(worst < 1e-3 && padding < 1e-7, "{worst:e} {padding:e}");
        // Map, turn, scores, exponential, two products, P·V, the last factor.
        assert_eq!(on.limbs(&found[0]), on.top() - 3 - 4 - 2 - 1 - 1);

        let counts = on.tally().counts();
        let (p, g, m) = (16 / heads / 2, ROWS / baby, ROWS);
        let rotations = keys * p * (baby - 1) + heads * p * (g - 1) // keys, queries
            + heads * p * (baby - 1) + heads * p * (g - 1) // values, sums
            + heads * 3 * (g - 1) + (baby - 1); // Σp, its inverse, Σe; rows of tokens
        let found: u64 = counts.rotations.iter().map(|r| r.times).sum();
        assert_eq!(found, rotations as u64);
        let conjugations = heads * m + heads * p + 2 * heads;
        assert_eq!(counts.total(Op::Conjugate), conjugations as u64);
        let turns = keys * p * (baby + 1) + heads * p * (g + 1) + (baby + 1);
        assert_eq!(counts.total(Op::MulVector), turns as u64);
        // Two sums per head, two per bootstrap.
        let bootstraps = 2 * heads.div_ceil(together) * together.min(heads).div_ceil(2);
        assert_eq!(counts.total(Op::Bootstrap), bootstraps as u64);
    }
}

/// A later token changes nothing before it except through the rounding of coefficients, and a text's answer is the same
/// with little padding as with much.
#[test]
fn later_tokens_and_padding_change_no_row() {
    let mut subject = Subject::new(&config(2, 1, true), SLOTS, (15, 15));
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let before = opened(&subject, &on);
    // Text 4 has 12 tokens in rows 4 to 15; its eighth is in row 11.
    let mut ids = subject.texts[4].ids().to_vec();
    ids[7] = (ids[7] + 1) % 97;
    subject.texts[4] = TokenIds::new(ids);
    let after = opened(&subject, &on);
    let (texts, mut later) = (subject.layout.texts(), 0);
    for (before, after) in before.iter().zip(&after) {
        for (before, after) in before.columns.iter().zip(&after.columns) {
            for (slot, (a, b)) in before.iter().zip(after).enumerate() {
                match slot % texts == 4 && slot / texts >= 11 {
                    true => later += usize::from(a != b),
                    false => assert!((a - b).abs() < 1e-9, "row {}: {a} {b}", slot / texts),
                }
            }
        }
    }
    assert!(later > 200, "{later}");

    // In 16 rows with padding and in 32 with more, a text's answer is the same: only positions differ.
    let short = subject.texts[2].clone();
    let answer = |rows: usize| {
        let layout = Interleave::new(rows, rows).unwrap();
        let alone = Subject {
            program: subject.program.clone(),
            texts: vec![short.clone()],
            choices: subject.choices.clone(),
            bound: subject.bound,
            layout,
        };
        let on = Simulator::new(&test_params(), rows).unwrap();
        alone.last_sum(&on)
    };
    for (a, b) in answer(16).iter().zip(&answer(32)) {
        assert!((a - b).abs() < 1e-6, "{a} {b}");
    }
}

/// Client, server with evaluation keys only, client: every sum compared with the simulation and with the clear model.
#[test]
fn an_encrypted_softmax_decoder_is_the_simulated_and_the_clear_one() {
    for (heads, keys, ternary) in [(2, 2, true), (2, 1, false)] {
        let params = test_params();
        let slots = params.slots();
        let subject = Subject::new(&config(heads, keys, ternary), slots, (15, 15));
        let on = Simulator::new(&params, slots).unwrap();
        let simulated = opened(&subject, &on);
        let demand = KeyDemand::of(&params, &on.tally().counts());
        let mut keys = Keys::new(&params, |b| demand.specs(&params, b).unwrap());
        let (sent, top) = (subject.sent(), params.fresh_limbs());
        let sent: Vec<Ciphertext> = sent.iter().map(|v| keys.encrypt(v, top)).collect();
        let seen = std::cell::RefCell::new(Vec::new());
        let see = |_: StepId, x: &Acts<Ciphertext>| {
            let columns = x.columns.iter().map(|ct| keys.open(ct)).collect();
            seen.borrow_mut().push(Acts { columns, gain: x.gain.clone(), offset: x.offset.clone() });
            Ok(())
        };
        subject.run(&keys.on, sent, sums(see)).unwrap();
        let encrypted = seen.into_inner();
        for (found, expected) in encrypted.iter().zip(&simulated) {
            let apart = spread(&found.columns, &expected.columns);
            println!("{apart:.2e}");
            assert!(apart < 1e-4);
        }
        assert_eq!(encrypted.len(), 4);
        let (worst, padding) = compared(&subject, &encrypted);
        println!("ternary {ternary}: {worst:.1e}, padding {padding:.1e}");
        assert!(worst < 1e-2 && padding < 1e-3, "{worst:e} {padding:e}");
    }
}

/// Token rows that arrive with few primes are refreshed; without token rows nothing is run.
#[test]
fn rows_of_tokens_are_needed() {
    let subject = Subject::new(&config(2, 2, true), SLOTS, (15, 15));
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let whole = subject.vectors(&on);
    let run = |real: Option<Vector>| -> Result<_, FheError> {
        let (program, choices) = (&subject.program, &subject.choices);
        let placement = subject.placement(on.top());
        let (layout, bound) = (subject.layout, subject.bound);
        let read = (layout, AnswerRows::Last, real);
        Pass::last(&on, (program, choices), placement, read, bound)?.run(whole[..16].to_vec())
    };
    let refused = run(None).err().unwrap();
    assert!(refused.to_string().contains("rows of tokens"), "{refused}");
    let low = on.drop_to(&whole[16], on.floor()).unwrap();
    let [a, b] = [run(Some(low)), run(Some(whole[16].clone()))].map(|found| {
        let found = found.unwrap();
        found.vectors[0].values().to_vec()
    });
    for (a, b) in a.iter().zip(&b) {
        assert!((a - b).abs() < 1e-9, "{a} {b}");
    }
}

/// Attention of 256 columns, 4 heads of 64, texts of 128 rows, N = 2^16, at the lowest levels: the counts in
/// docs/ensi.md.
#[test]
fn what_a_softmax_costs_beside_a_sigmoid() {
    let params = CkksParams::preset("n16-boot-14x40").unwrap();
    let count = |weigh: Weigh| {
        let config = NetworkConfig { width: 256, hidden: 704, positions: 128, weigh, ..ternary_config(4, 4) };
        let program = ternary_network(&config, 1).program_of_all_rows();
        let mut decoder = crate::plan::assumed_choices(&program, 128).decoder.unwrap();
        let choice = &mut decoder.layers[0].scores;
        let softmax = match choice {
            ScoresChoice::Sigmoid(sigmoid) => {
                sigmoid.degree = 15;
                false
            }
            ScoresChoice::Softmax(_) => true,
        };
        let on = Simulator::new(&params, params.slots()).unwrap().counting();
        // Map, turn, scores, polynomial, P·V; for a softmax three more products.
        let levels = 3 + 4 + 1 + if softmax { 3 } else { 0 };
        let vector = |limbs| on.vector(Vec::new(), limbs).unwrap();
        let x = Acts {
            columns: (0..256).map(|_| vector(on.floor() + levels)).collect(),
            offset: vec![0.0; 256],
            gain: vec![1.0; 256],
        };
        let (at, block) = (StepId::outside("attention"), program.attentions().next().unwrap());
        let choice = &decoder.layers[0].scores;
        let layer = CausalBlock { at, block, choice, sub_norm: None, bound: 8.0, together: 2 };
        let (real, layout) = (softmax.then(|| vector(on.top())), Interleave::new(params.slots(), 128).unwrap());
        let found = attended(&on, (layout, 16), (x, real), &layer).unwrap();
        assert_eq!(on.limbs(&found[0]), on.floor());
        let counts = on.tally().counts();
        let rotations: u64 = counts.rotations.iter().map(|r| r.times).sum();
        let prices = crate::plan::reference(1);
        let cost = |c: &crate::simulate::Count| prices.seconds(c.op, c.limbs) * c.times as f64;
        let seconds: f64 = counts.operations.iter().map(cost).sum();
        println!("{levels} levels, {seconds:.0} s, {:.1} GiB", counts.peak() as f64 / 2048.0);
        let [conjugations, products, bootstraps] =
            [Op::Conjugate, Op::Relinearise, Op::Bootstrap].map(|op| counts.total(op));
        (rotations, conjugations, products, bootstraps)
    };
    let sigmoid = count(Weigh::Sigmoid { bias: -4.85 });
    let softmax = count(Weigh::Softmax);
    println!("{sigmoid:?} {softmax:?}");
    // 3·7 rotations per head, and 15 for the token rows; two sums per head, two sums per bootstrap.
    assert_eq!(softmax.0 - sigmoid.0, 4 * 3 * 7 + 15);
    assert_eq!(softmax.1 - sigmoid.1, 4 * 2);
    assert_eq!((sigmoid.3, softmax.3), (0, 4));
    assert_eq!((sigmoid.0, sigmoid.1, sigmoid.2), (5632, 640, 5124));
    assert_eq!(softmax.2, 6364);
}
