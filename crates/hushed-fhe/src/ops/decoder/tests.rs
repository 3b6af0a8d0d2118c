use std::sync::Arc;

use hushed_ckks::poly::Arithmetic;
use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::testing::{ternary_config as config, ternary_network as network};
use hushed_model::{
    Body, Matrix, Model, NetworkConfig, PlainActs, Program, Rows, StepId, TokenIds, cosine, plain,
};

use crate::calibrate::decoder::{Degrees, measure};
use crate::calibrate::{Options, Sample, calibrate};
use crate::choices::Choices;
use crate::clear::last_row;
use crate::ops::pool::{Pooled, unpack};
use crate::packing::Interleave;
use crate::pass::{Look, Viewer};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::run::encrypted::testing::Keys;
use crate::simulate::{Op, Simulator, Vector};
use crate::slots::Slots;
use crate::{Acts, DecoderPass, FheError, KeyDemand};

pub(crate) const ROWS: usize = 16;
pub(crate) const SLOTS: usize = 128;

/// Texts for every place of a batch, of different lengths.
pub(crate) fn texts(config: &NetworkConfig, places: usize) -> Vec<TokenIds> {
    let text = |t: usize| {
        let length = [16, 3, 9, 1, 12, 5, 16, 7][t % 8];
        let id = |i: usize| ((i * 31 + t * 17 + i * i * (t + 1)) % config.vocabulary) as u32;
        TokenIds::new((0..length).map(id).collect())
    };
    (0..places).map(text).collect()
}

/// Columns of right-aligned texts over `bound`.
pub(crate) fn columns(
    program: &Program,
    texts: &[TokenIds],
    layout: Interleave,
    bound: f64,
) -> Vec<Vec<f64>> {
    let rows: Vec<Matrix<f64>> = texts
        .iter()
        .map(|text| plain::start(program, vec![text.clone()]).unwrap().values)
        .collect();
    let column = |j: usize| {
        layout.vector(texts.len(), |t, row| {
            let first = layout.rows() - rows[t].rows();
            match row.checked_sub(first) {
                Some(row) => rows[t].row(row)[j] / bound,
                None => 0.0,
            }
        })
    };
    (0..program.width()).map(column).collect()
}

/// A viewer of sums.
pub(crate) fn sums<'a, V>(
    mut see: impl FnMut(StepId, &Acts<V>) -> Result<(), FheError> + 'a,
) -> Viewer<'a, V> {
    Box::new(move |id, look| match look {
        Look::Columns(x) => see(id, x),
        Look::Centred { .. } => panic!("{id}: no sum"),
    })
}

fn hidden(program: &Program, text: &TokenIds) -> Vec<f64> {
    last_row(program, text).unwrap()
}

pub(crate) struct Subject {
    pub program: Program,
    pub texts: Vec<TokenIds>,
    pub choices: Choices,
    pub bound: f64,
    pub layout: Interleave,
}

impl Subject {
    pub fn new(config: &NetworkConfig, slots: usize, degrees: (usize, usize)) -> Subject {
        let program = network(config, 3).program_of_all_rows();
        let layout = Interleave::new(slots, ROWS).unwrap();
        let texts = texts(config, layout.texts());
        let seen = measure(&program, &texts, &[]).unwrap();
        let degrees = Degrees {
            scores: degrees.0,
            activation: degrees.1,
        };
        let mut choices = Choices::unnamed(ROWS, Vec::new(), None);
        choices.decoder = Some(seen.choice(&program, degrees).unwrap());
        let tokens = program.embedding().unwrap().tokens.as_ref().unwrap();
        let bound = tokens.data().iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        Subject {
            program,
            texts,
            choices,
            bound: bound.into(),
            layout,
        }
    }

    pub fn placement(&self, top: usize) -> Placement {
        Placement::plain(top, ROWS, 8)
    }

    /// The server's part, with the columns after every sum.
    pub fn run<S: Slots>(
        &self,
        on: &S,
        columns: Vec<S::Value>,
        seen: Viewer<'_, S::Value>,
    ) -> Result<Pooled<S::Value>, FheError> {
        self.run_at(on, columns, self.placement(on.top()), seen)
    }

    pub fn run_at<S: Slots>(
        &self,
        on: &S,
        columns: Vec<S::Value>,
        placement: Placement,
        seen: Viewer<'_, S::Value>,
    ) -> Result<Pooled<S::Value>, FheError> {
        let mut pass = DecoderPass::new(
            on,
            &self.program,
            &self.choices,
            placement,
            self.layout,
            self.bound,
        )?
        .viewed_by(seen);
        pass.run(columns)
    }

    pub fn simulated(&self, on: &Simulator) -> Result<Vec<Vec<f64>>, FheError> {
        let columns = columns(&self.program, &self.texts, self.layout, self.bound);
        let columns = columns.into_iter().map(|v| on.vector(v, on.top()).unwrap());
        let pooled = self.run(on, columns.collect(), sums(|_, _: &Acts<Vector>| Ok(())))?;
        let vectors: Vec<Vec<f64>> = pooled.vectors.iter().map(|v| v.values().to_vec()).collect();
        let lengths = vec![1; self.texts.len()];
        Ok(unpack(self.layout, &lengths, pooled.width, pooled.factor, &vectors).unwrap())
    }
}

/// The whole decoder, every place taken, beside the clear model's last rows.
#[test]
fn a_simulated_decoder_is_the_clear_one() {
    let (_, params) = crate::plan::public_plan::insecure_plan(9, 14, 16).unwrap();
    for (heads, keys, sub_norms) in [(2, 2, false), (2, 1, false), (2, 2, true), (2, 1, true)] {
        let config = NetworkConfig {
            sub_norms,
            ..config(heads, keys)
        };
        let subject = Subject::new(&config, SLOTS, (31, 31));
        let exact = Simulator::new(&params, SLOTS).unwrap();
        let with_errors = Simulator::new(&params, SLOTS).unwrap().with_errors(5);
        for on in [exact, with_errors] {
            let found = subject.simulated(&on).unwrap();
            let mut worst = 1.0_f64;
            for (text, found) in subject.texts.iter().zip(&found) {
                let expected = hidden(&subject.program, text);
                worst = worst.min(cosine(found, &expected));
            }
            println!("{heads} heads over {keys}: cosine {worst:.9}");
            assert!(worst > 0.999_99, "{worst}");
        }
    }
}

/// A head that is not the table of token vectors, of more tokens than a text has rows.
#[test]
fn simulated_logits_are_those_of_the_clear_model() {
    let config = config(2, 2);
    let mut subject = Subject::new(&config, SLOTS, (31, 31));
    let mut network = network(&config, 3);
    let data = (0..97 * 16).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0);
    network.head.weights = Matrix::new(97, 16, data.collect()).map(Arc::new);
    subject.program = network.program_of_all_rows();
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let columns = columns(
        &subject.program,
        &subject.texts,
        subject.layout,
        subject.bound,
    );
    let columns = columns.into_iter().map(|v| on.vector(v, on.top()).unwrap());
    let (program, choices) = (&subject.program, &subject.choices);
    let placement = subject.placement(on.top());
    let pass = DecoderPass::new(
        &on,
        program,
        choices,
        placement,
        subject.layout,
        subject.bound,
    );
    let mut pass = pass.unwrap().answering(AnswerRows::Logits);
    let answer = pass.run(columns.collect()).unwrap();
    assert_eq!(
        (answer.vectors.len(), answer.width),
        (97_usize.div_ceil(ROWS), 97)
    );
    let vectors: Vec<Vec<f64>> = answer.vectors.iter().map(|v| v.values().to_vec()).collect();
    let lengths = vec![1; subject.texts.len()];
    let found = unpack(subject.layout, &lengths, 97, answer.factor, &vectors).unwrap();
    for (text, found) in subject.texts.iter().zip(&found) {
        let expected = plain::run(program, vec![text.clone()], |_, _| ()).unwrap();
        let near = cosine(found, expected.values.row(0));
        assert!(near > 0.999_99, "{near}");
    }
}

pub(crate) fn test_params() -> Arc<CkksParams> {
    crate::plan::public_plan::insecure_plan(9, 14, 16)
        .unwrap()
        .1
}

/// Attention alone, all slots random, beside the clear one; and its operations, which are those that its header states.
#[test]
fn attention_is_causal_sigmoid_attention_with_these_operations() {
    for (heads, keys, baby) in [(2, 2, 4), (4, 2, 2), (1, 1, 16), (2, 1, 1)] {
        let config = config(heads, keys);
        let network = network(&config, 8);
        let block = &network.layers[0].attention;
        let on = Simulator::new(&test_params(), SLOTS).unwrap();
        let layout = Interleave::new(SLOTS, ROWS).unwrap();
        let number = |i: usize| {
            let x = (i as u64 + 77).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            2.0 * ((x >> 11) as f64 / (1u64 << 53) as f64) - 1.0
        };
        let gain: Vec<f64> = (0..16).map(|j| 1.0 + 0.3 * number(j)).collect();
        let slots =
            |j: usize| layout.vector(layout.texts(), |t, row| number(1000 * t + 31 * row + j));
        let x = Acts {
            columns: (0..16)
                .map(|j| on.vector(slots(j), on.top()).unwrap())
                .collect(),
            offset: vec![0.0; 16],
            gain: gain.clone(),
        };
        let choice = crate::ScoresChoice {
            degree: 31,
            heads: vec![crate::Interval::from([-3.0, 3.0]); heads],
        };
        let layer = super::attention::SigmoidLayer {
            at: StepId::outside("attention"),
            block,
            choice: &choice,
            sub_norm: None,
            after: crate::ops::after::After::Sum(8.0),
            layout,
            baby,
        };
        let found = super::attention::attention(&on, &x, &layer).unwrap();
        let mut worst = 0.0_f64;
        for t in 0..layout.texts() {
            let rows = (0..ROWS).flat_map(|row| {
                let gain = &gain;
                (0..16).map(move |j| gain[j] * number(1000 * t + 31 * row + j))
            });
            let x = PlainActs {
                rows: Rows::unpadded(&[ROWS]),
                values: Matrix::new(ROWS, 16, rows.collect()).unwrap(),
            };
            let want = plain::attention(StepId::outside("attention"), &x, block).unwrap();
            for row in 0..ROWS {
                for (j, column) in found.iter().enumerate() {
                    let found = 8.0 * column.values()[layout.slot(t, row)];
                    worst = worst.max((found - want.values.row(row)[j]).abs());
                }
            }
        }
        println!("{heads} heads over {keys}, {baby} baby steps: {worst:.1e}");
        assert!(worst < 1e-4, "{worst}");
        assert_eq!(on.limbs(&found[0]), on.top() - 3 - 5 - 1);

        let counts = on.tally().counts();
        let (p, g, m) = (16 / heads / 2, ROWS / baby, ROWS);
        let rotations = keys * p * (baby - 1) + heads * p * (g - 1) // keys, queries
            + heads * p * (baby - 1) + heads * p * (g - 1); // values, sums
        let found: u64 = counts.rotations.iter().map(|r| r.times).sum();
        assert_eq!(found, rotations as u64);
        assert_eq!(counts.total(Op::Conjugate), (heads * m + heads * p) as u64);
        let turns = keys * p * (baby + 1) + heads * p * (g + 1);
        assert_eq!(counts.total(Op::MulVector), turns as u64);
    }
}

/// A later token changes nothing before it but by what coefficients are rounded by (2^−40): masked scores are 0, and
/// the weight of 0 is 0.
#[test]
fn a_later_token_changes_no_earlier_row() {
    let mut subject = Subject::new(&config(2, 2), SLOTS, (15, 15));
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let opened = |subject: &Subject| {
        let mut opened: Vec<Vec<f64>> = Vec::new();
        let columns = columns(
            &subject.program,
            &subject.texts,
            subject.layout,
            subject.bound,
        );
        let columns = columns.into_iter().map(|v| on.vector(v, on.top()).unwrap());
        let see = |_: StepId, x: &Acts<Vector>| {
            opened.extend(x.columns.iter().map(|v| v.values().to_vec()));
            Ok(())
        };
        subject.run(&on, columns.collect(), sums(see)).unwrap();
        opened
    };
    let before = opened(&subject);
    // Text 4 has 12 tokens in rows 4 to 15; its eighth is in row 11.
    let mut ids = subject.texts[4].ids().to_vec();
    ids[7] = (ids[7] + 1) % 97;
    subject.texts[4] = TokenIds::new(ids);
    let after = opened(&subject);
    let (texts, mut later) = (subject.layout.texts(), 0);
    for (before, after) in before.iter().zip(&after) {
        for (slot, (a, b)) in before.iter().zip(after).enumerate() {
            match slot % texts == 4 && slot / texts >= 11 {
                true => later += usize::from(a != b),
                false => assert!((a - b).abs() < 1e-9, "row {}", slot / texts),
            }
        }
    }
    assert!(later > 200, "{later}");
}

/// Rows before a text are zeros after every sum, but for the rounding of coefficients, and so are places without a
/// text.
#[test]
fn rows_of_padding_stay_zeros() {
    let mut subject = Subject::new(&config(2, 2), SLOTS, (15, 15));
    subject.texts.truncate(6);
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let columns = columns(
        &subject.program,
        &subject.texts,
        subject.layout,
        subject.bound,
    );
    let columns = columns.into_iter().map(|v| on.vector(v, on.top()).unwrap());
    let (texts, lengths) = (subject.layout.texts(), subject.texts.clone());
    let mut count = 0;
    let see = |_: StepId, x: &Acts<Vector>| {
        count += 1;
        for v in &x.columns {
            for (slot, v) in v.values().iter().enumerate() {
                let length = lengths.get(slot % texts).map_or(0, |text| text.ids().len());
                let padding = slot / texts + length < ROWS;
                assert!(!padding || v.abs() < 1e-9, "{v}");
            }
        }
        Ok(())
    };
    let pooled = subject.run(&on, columns.collect(), sums(see)).unwrap();
    assert_eq!(count, 4);
    for v in &pooled.vectors {
        let empty = v
            .values()
            .iter()
            .enumerate()
            .filter(|(slot, _)| slot % texts >= 6);
        assert!(empty.into_iter().all(|(_, v)| v.abs() < 1e-9));
    }
}

/// Operations follow from shapes, not from weights.
#[test]
fn two_sets_of_weights_take_the_same_operations() {
    let counts = |seed: u64| {
        let mut subject = Subject::new(&config(2, 1), SLOTS, (15, 15));
        subject.program = network(&config(2, 1), seed).program_of_all_rows();
        let seen = measure(&subject.program, &subject.texts, &[]).unwrap();
        let degrees = Degrees {
            scores: 15,
            activation: 15,
        };
        let mut decoder = seen.choice(&subject.program, degrees).unwrap();
        // Steps are choices, and those may differ.
        for layer in &mut decoder.layers {
            layer.attention_norm.steps = 1;
            layer.feed_forward_norm.steps = 1;
        }
        decoder.norm.steps = 1;
        subject.choices.decoder = Some(decoder);
        let on = Simulator::new(&test_params(), SLOTS).unwrap();
        subject.simulated(&on).unwrap();
        serde_json::to_string(&on.tally().counts().operations).unwrap()
    };
    assert_eq!(counts(3), counts(4));
}

/// Client, server with evaluation keys only, client: beside the simulation, and beside the clear model.
#[test]
fn an_encrypted_decoder_is_the_simulated_and_the_clear_one() {
    let params = test_params();
    let slots = params.slots();
    let subject = Subject::new(&config(2, 2), slots, (15, 15));
    let exact = Simulator::new(&params, slots).unwrap();
    let expected = subject.simulated(&exact).unwrap();
    let counts = exact.tally().counts();
    let errors = Simulator::new(&params, slots).unwrap().with_errors(3);
    let predicted = spread(&subject.simulated(&errors).unwrap(), &expected);

    let demand = KeyDemand::of(&params, &counts);
    let mut keys = Keys::new(&params, |b| demand.plan(&params, b).unwrap());
    let top = params.fresh_limbs();
    let sent: Vec<Ciphertext> = columns(
        &subject.program,
        &subject.texts,
        subject.layout,
        subject.bound,
    )
    .iter()
    .map(|column| keys.encrypt(column, top))
    .collect();
    // Every sum is opened.
    let seen = std::cell::RefCell::new(Vec::new());
    let see = |id: StepId, x: &Acts<Ciphertext>| {
        let opened: Vec<Vec<f64>> = x.columns.iter().map(|ct| keys.open(ct)).collect();
        seen.borrow_mut().push((id, opened));
        Ok(())
    };
    let pooled = subject.run(&keys.on, sent, sums(see)).unwrap();
    let raw: Vec<Vec<f64>> = pooled.vectors.iter().map(|ct| keys.open(ct)).collect();
    let lengths = vec![1; subject.texts.len()];
    let found = unpack(subject.layout, &lengths, pooled.width, pooled.factor, &raw).unwrap();
    let error = spread(&found, &expected);
    println!("error {error:.2e}, predicted {predicted:.2e}");
    // Refreshes are predicted as those of N = 2^16, which err by more than those of this ring.
    assert!(error < 2.0 * predicted && error > 0.125 * predicted);

    let mut simulated = Vec::new();
    let see = |id: StepId, x: &Acts<Vector>| {
        let opened: Vec<Vec<f64>> = x.columns.iter().map(|v| v.values().to_vec()).collect();
        simulated.push((id, opened));
        Ok(())
    };
    let clear = columns(
        &subject.program,
        &subject.texts,
        subject.layout,
        subject.bound,
    );
    let clear = clear
        .into_iter()
        .map(|v| exact.vector(v, exact.top()).unwrap());
    subject.run(&exact, clear.collect(), sums(see)).unwrap();
    for ((id, found), (other, expected)) in seen.into_inner().iter().zip(&simulated) {
        assert_eq!(id, other);
        println!("{id}: {:.2e}", spread(found, expected));
        assert!(spread(found, expected) < 1e-4);
    }
    for (text, found) in subject.texts.iter().zip(&found) {
        let expected = hidden(&subject.program, text);
        let cosine = cosine(found, &expected);
        assert!(cosine > 0.9995, "{cosine}");
    }
}

/// Root of the mean square of differences.
fn spread(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let (sum, count) = pairs.fold((0.0, 0.0), |(s, n), (a, b)| {
        (s + (a - b) * (a - b), n + 1.0)
    });
    (sum / f64::max(count, 1.0)).sqrt()
}

/// From a folder and texts to choices, written and read again: a committed golden folder, all by the library.
#[test]
fn a_folder_is_calibrated() {
    let model = Model::load(&hushed_model::testing::tiny_golden("bitnet-sigmoid")).unwrap();
    assert!(matches!(model.body, Body::Decoder(_)));
    let text = |t: usize| {
        let id = |i: usize| ((i * 37 + t * 11 + i * t) % 300) as u32;
        TokenIds::new((0..3 + t % 13).map(id).collect())
    };
    let texts: Vec<TokenIds> = (0..24).map(text).collect();
    let sample = Sample {
        texts: &texts,
        hostile: &[],
        broad: &[],
        sha256: "",
        model_sha256: "",
    };
    let options = Options {
        rows: ROWS,
        wanted: 0.999,
        ..Options::default()
    };
    let mut told = Vec::new();
    let choices = calibrate(&model, &sample, &options, &mut |line| {
        told.push(line.to_owned())
    })
    .unwrap();
    println!("{}", told.join("\n"));
    let chosen = choices.report.candidates.last().unwrap();
    assert!(chosen.chosen && chosen.cosine_min_with_errors.unwrap() >= 0.999);
    let decoder = choices.decoder.as_ref().unwrap();
    assert_eq!((decoder.layers.len(), choices.layers.len()), (2, 0));
    let read = Choices::from_json(&choices.to_json().unwrap()).unwrap();
    assert_eq!(read, choices);
    let mut broken = choices.clone();
    broken.decoder.as_mut().unwrap().layers[1].attention_bound = 0.0;
    assert!(broken.to_json().is_err());
    // A decoder that the circuit does not have is refused by name.
    let other = Model::load(&hushed_model::testing::tiny_golden("bitnet")).unwrap();
    let refused = calibrate(&other, &sample, &options, &mut |_| ())
        .err()
        .unwrap();
    assert!(matches!(refused, FheError::Unsupported { .. }), "{refused}");
}
