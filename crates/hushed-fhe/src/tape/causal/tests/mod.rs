mod calibration;
mod gated;
pub(crate) mod interpreted;
mod opened;
mod operations;
mod paired;
mod softmax;
mod spill;
mod steps;

use std::sync::Arc;

use hushed_ckks::poly::Arithmetic;
use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::testing::{ternary_config as config, ternary_network as network};
use hushed_model::{
    DecoderNetwork, Matrix, NetworkConfig, PlainActs, Program, Rows, StepId, TokenIds, Weigh, cosine, plain,
};

use crate::calibrate::decoder::{Degrees, measure};
use crate::choices::{Choices, ScoresChoice};
use crate::clear::last_row;
use crate::files::spill::SpillFolder;
use crate::ops::mask::token_rows_to_last;
use crate::ops::pool::{Factor, Pooled, unpack};
use crate::packing::Interleave;
use crate::pass::{Look, Viewer};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::run::encrypted::testing::Keys;
use crate::simulate::{Counts, Op, Simulator, Vector, columns_to_last, embedded};
use crate::slots::Slots;
use crate::tape::causal::Frames;
use crate::tape::causal::attention::{CausalBlock, attention};
use crate::tape::causal::paired::Vectors;
use crate::tape::layout::Hidden;
use crate::tape::levels::{Heights, Outputs};
use crate::tape::record::Recorder;
use crate::tape::run::{Inputs, computed};
use crate::tape::{Mark, Node, NodeId, Op as Operation, Texts};
use crate::{Acts, FheError, KeyDemand, Pass};

pub(crate) const ROWS: usize = 16;
pub(crate) const SLOTS: usize = 128;

/// Texts of different lengths for every place of a batch.
fn texts(vocabulary: usize, places: usize) -> Vec<TokenIds> {
    let text = |t: usize| {
        let length = [16, 3, 9, 1, 12, 5, 16, 7][t % 8];
        let id = |i: usize| ((i * 31 + t * 17 + i * i * (t + 1)) % vocabulary) as u32;
        TokenIds::new((0..length).map(id).collect())
    };
    (0..places).map(text).collect()
}

/// Records a part of a layer and runs it alone, with as many primes as arrive; statistics are refreshed to the top.
pub(crate) fn alone<S: Slots>(
    on: &S,
    (texts, baby): (Interleave, usize),
    inputs: Inputs<S>,
    record: impl FnOnce(&mut Recorder, &Frames) -> Result<NodeId, FheError>,
) -> Result<Vec<S::Value>, FheError> {
    let mut t = Recorder::new();
    let texts = Arc::new(Texts::alone(texts, Vec::new())?);
    let f = Frames::new(&mut t, &texts, (baby, false), inputs.contains_key(Hidden::Tokens.name()));
    let made = record(&mut t, &f)?;
    t.output(made);
    let height = |node: &Node, least: usize| match node.op {
        Operation::Mark { mark: Mark::Statistic { .. } } => on.top(),
        _ if node.step.to_string().ends_with("_sum") => on.top(),
        _ => least,
    };
    let place = (Heights::Given(&height), Outputs::AtLeast(on.floor()), Vec::new());
    computed(on, t.finish(), inputs, place, &mut |_, _| Ok(()))
}

/// Attention alone, of columns with these gains, and the rows of tokens for a softmax.
pub(crate) fn attended<S: Slots>(
    on: &S,
    texts: (Interleave, usize),
    (x, real): (Acts<S::Value>, Option<S::Value>),
    layer: &CausalBlock<'_>,
) -> Result<Vec<S::Value>, FheError> {
    let mut inputs = Inputs::<S>::from([("x", x.columns)]);
    inputs.extend(real.map(|real| (Hidden::Tokens.name(), vec![real])));
    alone(on, texts, inputs, |t, f| {
        let node = t.input("x", x.gain.len());
        attention(t, on, f, (Vectors { node, paired: false }, (&x.gain, &x.offset)), layer)
    })
}

/// A viewer that passes sums to `see`.
pub(crate) fn sums<'a, V: Clone>(mut see: impl FnMut(StepId, &Acts<V>) -> Result<(), FheError> + 'a) -> Viewer<'a, V> {
    Box::new(move |id, look| match look {
        Look::Columns { columns, gain, offset } => {
            see(id, &Acts { columns: columns.to_vec(), gain: gain.to_vec(), offset: offset.to_vec() })
        }
        Look::Centred { .. } => panic!("{id}: no sum"),
    })
}

fn hidden(program: &Program, text: &TokenIds) -> Vec<f64> {
    last_row(program, text).unwrap()
}

#[derive(Clone)]
pub(crate) struct Subject {
    pub program: Program,
    pub texts: Vec<TokenIds>,
    pub choices: Choices,
    pub bound: f64,
    pub layout: Interleave,
}

impl Subject {
    pub fn new(config: &NetworkConfig, slots: usize, degrees: (usize, usize)) -> Subject {
        Subject::of(&network(config, 3), slots, degrees)
    }

    pub fn of(network: &DecoderNetwork, slots: usize, degrees: (usize, usize)) -> Subject {
        let program = network.program_of_all_rows();
        let layout = Interleave::new(slots, ROWS).unwrap();
        let embedding = program.embedding().unwrap();
        let tokens = embedding.tokens.as_ref().unwrap().data().iter();
        let bound = tokens.fold(0.0_f32, |m, v| m.max(v.abs()));
        let texts = texts(embedding.vocabulary, layout.texts());
        let mut subject = Subject {
            program,
            texts: Vec::new(),
            choices: Choices::unnamed(ROWS, Vec::new(), None),
            bound: bound.into(),
            layout,
        };
        subject.measure(texts, degrees);
        subject
    }

    /// Takes these texts, and choices of these degrees made from them.
    fn measure(&mut self, texts: Vec<TokenIds>, (scores, activation): (usize, usize)) {
        let (program, degrees) = (&self.program, Degrees { scores, activation });
        let seen = measure(program, &texts, &[]).unwrap();
        self.choices.decoder = Some(seen.choice(program, degrees, (ROWS, 14)).unwrap());
        self.texts = texts;
    }

    pub fn placement(&self, top: usize) -> Placement {
        Placement::plain(top, self.layout.rows(), 8)
    }

    fn softmax(&self) -> bool {
        self.program.attentions().any(|a| a.weigh == Weigh::Softmax)
    }

    /// A client's upload: columns of right-aligned texts divided by the bound, and for a softmax the token rows.
    pub fn sent(&self) -> Vec<Vec<f64>> {
        let embedded = self.texts.iter().map(|t| embedded(&self.program, t).unwrap());
        let embedded: Vec<Matrix<f64>> = embedded.collect();
        let lengths: Vec<usize> = embedded.iter().map(Matrix::rows).collect();
        let width = self.program.width();
        let mut sent = columns_to_last(self.layout, &embedded, width, self.bound);
        if self.softmax() {
            sent.push(token_rows_to_last(self.layout, &lengths));
        }
        sent
    }

    /// The same for a simulation.
    pub fn vectors(&self, on: &Simulator) -> Vec<Vector> {
        let sent = self.sent().into_iter();
        sent.map(|v| on.vector(v, on.top()).unwrap()).collect()
    }

    /// The server's part, with the columns after every sum.
    pub fn run<S: Slots>(
        &self,
        on: &S,
        sent: Vec<S::Value>,
        seen: Viewer<'_, S::Value>,
    ) -> Result<Pooled<S::Value>, FheError> {
        self.run_at(on, sent, (self.placement(on.top()), AnswerRows::Last), seen)
    }

    pub fn run_at<S: Slots>(
        &self,
        on: &S,
        mut sent: Vec<S::Value>,
        (placement, answer): (Placement, AnswerRows),
        seen: Viewer<'_, S::Value>,
    ) -> Result<Pooled<S::Value>, FheError> {
        let real = self.softmax().then(|| sent.pop()).flatten();
        let mut pass =
            Pass::last(on, (&self.program, &self.choices), placement, (self.layout, answer, real), self.bound)?;
        pass.view(seen);
        pass.run(sent)
    }

    pub fn simulated(&self, on: &Simulator) -> Result<Vec<Vec<f64>>, FheError> {
        self.simulated_at(on, AnswerRows::Last)
    }

    /// One row of numbers per text.
    fn simulated_at(&self, on: &Simulator, answer: AnswerRows) -> Result<Vec<Vec<f64>>, FheError> {
        let how = (self.placement(on.top()), answer);
        let nothing = sums(|_, _: &Acts<Vector>| Ok(()));
        let pooled = self.run_at(on, self.vectors(on), how, nothing)?;
        assert_eq!(pooled.vectors.len(), pooled.width.div_ceil(ROWS));
        let vectors: Vec<Vec<f64>> = pooled.vectors.iter().map(|v| v.values().to_vec()).collect();
        let lengths = vec![1; self.texts.len()];
        Ok(unpack(self.layout, &lengths, pooled.width, pooled.factor, &vectors).unwrap())
    }

    /// Keys for a run at this placement, the client's vectors under them, what the run counts, and its spill folder.
    pub fn under_a_key(
        &self,
        params: &Arc<CkksParams>,
        placement: &Placement,
    ) -> (Keys, Vec<Ciphertext>, Counts, tempfile::TempDir) {
        let sent = self.sent();
        let on = Simulator::new(params, params.slots()).unwrap().counting();
        let shapes = (0..sent.len()).map(|_| on.vector(Vec::new(), on.top()).unwrap());
        let how = (placement.clone(), AnswerRows::Last);
        let nothing = sums(|_, _: &Acts<Vector>| Ok(()));
        self.run_at(&on, shapes.collect(), how, nothing).unwrap();
        let counts = on.tally().counts();
        let demand = KeyDemand::of(params, &counts);
        let mut keys = Keys::new(params, |b| demand.specs(params, b).unwrap());
        let top = params.fresh_limbs();
        let sent = sent.iter().map(|v| keys.encrypt(v, top)).collect();
        let folder = tempfile::tempdir().unwrap();
        keys.on.spill_to(SpillFolder::open(folder.path()).unwrap());
        (keys, sent, counts, folder)
    }

    /// Asserts that an encrypted answer is the clear model's.
    pub fn assert_answers(&self, keys: &Keys, answer: &[Ciphertext]) {
        let opened: Vec<Vec<f64>> = answer.iter().map(|ct| keys.open(ct)).collect();
        self.assert_opened(&opened, 0.999);
    }

    /// The same for the numbers of an answer, within a cosine of `least`.
    fn assert_opened(&self, opened: &[Vec<f64>], least: f64) {
        let lengths = vec![1; self.texts.len()];
        let width = self.program.width();
        let found = unpack(self.layout, &lengths, width, Factor::One, opened).unwrap();
        for (text, found) in self.texts.iter().zip(&found) {
            let cosine = cosine(found, &last_row(&self.program, text).unwrap());
            assert!(cosine > least, "{cosine}");
        }
    }

    /// The last row of each text after the last sum, column by column.
    pub fn last_sum(&self, on: &Simulator) -> Vec<f64> {
        let opened = self.opened(on);
        let (_, columns) = opened.last().unwrap();
        let row = self.layout.rows() - 1;
        let of = |column: &Vec<f64>| {
            let texts = 0..self.texts.len();
            let slots = texts.map(|t| column[self.layout.slot(t, row)]);
            slots.collect::<Vec<f64>>()
        };
        columns.iter().flat_map(of).collect()
    }

    /// The columns after every sum.
    fn opened(&self, on: &Simulator) -> Vec<(StepId, Vec<Vec<f64>>)> {
        let mut opened = Vec::new();
        let see = |id: StepId, x: &Acts<Vector>| {
            opened.push((id, x.columns.iter().map(|v| v.values().to_vec()).collect()));
            Ok(())
        };
        self.run(on, self.vectors(on), sums(see)).unwrap();
        opened
    }
}

/// The whole decoder with every place taken, compared with the clear model's last rows.
#[test]
fn a_simulated_decoder_is_the_clear_one() {
    let (_, params) = crate::plan::public_plan::insecure_plan(9, 14, 16).unwrap();
    for (heads, keys, sub_norms) in [(2, 2, false), (2, 1, false), (2, 2, true), (2, 1, true)] {
        let config = NetworkConfig { sub_norms, ..config(heads, keys) };
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

/// A head that is not the token table, with more tokens than a text has rows.
#[test]
fn simulated_logits_are_those_of_the_clear_model() {
    let config = config(2, 2);
    let mut subject = Subject::new(&config, SLOTS, (31, 31));
    let mut network = network(&config, 3);
    let data = (0..97 * 16).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0);
    network.head.weights = Matrix::new(97, 16, data.collect()).map(Arc::new);
    subject.program = network.program_of_all_rows();
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let found = subject.simulated_at(&on, AnswerRows::Logits).unwrap();
    for (text, found) in subject.texts.iter().zip(&found) {
        let text = vec![text.clone()];
        let expected = plain::run(&subject.program, text, |_, _| ()).unwrap();
        assert_eq!(found.len(), 97);
        let near = cosine(found, expected.values.row(0));
        assert!(near > 0.999_99, "{near}");
    }
}

pub(crate) fn test_params() -> Arc<CkksParams> {
    crate::plan::public_plan::insecure_plan(9, 14, 16).unwrap().1
}

/// Attention alone with random slots, compared with the clear model's; its operations match the module header.
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
        let slots = |j: usize| layout.vector(layout.texts(), |t, row| number(1000 * t + 31 * row + j));
        let x = Acts {
            columns: (0..16).map(|j| on.vector(slots(j), on.top()).unwrap()).collect(),
            offset: vec![0.0; 16],
            gain: gain.clone(),
        };
        let choice = ScoresChoice::Sigmoid(crate::SigmoidChoice {
            degree: 31,
            heads: vec![crate::Interval::from([-3.0, 3.0]); heads],
        });
        let at = StepId::outside("attention");
        let layer = CausalBlock { at, block, choice: &choice, sub_norm: None, bound: 8.0, together: 1 };
        let found = attended(&on, (layout, baby), (x, None), &layer).unwrap();
        let mut worst = 0.0_f64;
        for t in 0..layout.texts() {
            let rows = (0..ROWS).flat_map(|row| {
                let gain = &gain;
                (0..16).map(move |j| gain[j] * number(1000 * t + 31 * row + j))
            });
            let x = PlainActs { rows: Rows::unpadded(&[ROWS]), values: Matrix::new(ROWS, 16, rows.collect()).unwrap() };
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

/// A later token changes nothing before it except through the rounding of coefficients (2^−40): masked scores are 0,
/// and the weight of 0 is 0.
#[test]
fn a_later_token_changes_no_earlier_row() {
    let mut subject = Subject::new(&config(2, 2), SLOTS, (15, 15));
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
    let opened = |subject: &Subject| -> Vec<Vec<f64>> {
        let opened = subject.opened(&on).into_iter();
        opened.flat_map(|(_, columns)| columns).collect()
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

/// Rows before a text are zeros after every sum, up to the rounding of coefficients, and so are places without a text.
#[test]
fn rows_of_padding_stay_zeros() {
    let mut subject = Subject::new(&config(2, 2), SLOTS, (15, 15));
    subject.texts.truncate(6);
    let on = Simulator::new(&test_params(), SLOTS).unwrap();
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
    let pooled = subject.run(&on, subject.vectors(&on), sums(see));
    let pooled = pooled.unwrap();
    assert_eq!(count, 4);
    for v in &pooled.vectors {
        let empty = v.values().iter().enumerate().filter(|(slot, _)| slot % texts >= 6);
        assert!(empty.into_iter().all(|(_, v)| v.abs() < 1e-9));
    }
}

/// Operations depend on shapes, not on weights: for a sigmoid, a softmax and norms inside blocks, on single columns and
/// in pairs. Steps of iterations are part of the choices, which may differ.
#[test]
fn two_sets_of_weights_take_the_same_operations() {
    let softmax = NetworkConfig { weigh: Weigh::Softmax, ..config(2, 1) };
    let inside = NetworkConfig { sub_norms: true, ..config(2, 2) };
    for (config, pairs) in
        [(&config(2, 1), false), (&config(2, 1), true), (&softmax, false), (&softmax, true), (&inside, true)]
    {
        let counts = |seed: u64| {
            let mut subject = Subject::of(&network(config, seed), SLOTS, (15, 15));
            let decoder = subject.choices.decoder.as_mut().unwrap();
            for layer in &mut decoder.layers {
                let inside = [&mut layer.attention_sub_norm, &mut layer.feed_forward_sub_norm];
                let before = [&mut layer.attention_norm, &mut layer.feed_forward_norm];
                let norms = before.into_iter().chain(inside.into_iter().flatten());
                norms.for_each(|norm| norm.steps = 1);
                if let ScoresChoice::Softmax(softmax) = &mut layer.scores {
                    (softmax.first_steps, softmax.second_steps) = (7, 6);
                }
            }
            decoder.norm.steps = 1;
            let on = Simulator::new(&test_params(), SLOTS).unwrap();
            let placement = Placement { pairs, ..subject.placement(on.top()) };
            let how = (placement, AnswerRows::Last);
            let nothing = sums(|_, _: &Acts<Vector>| Ok(()));
            let sent = subject.vectors(&on);
            let found = subject.run_at(&on, sent, how, nothing).unwrap();
            let counts = on.tally().counts();
            let operations = serde_json::to_string(&counts.operations).unwrap();
            (operations, counts.rotations, found.vectors[0].values().to_vec())
        };
        let (one, other) = (counts(3), counts(4));
        assert_eq!((&one.0, &one.1), (&other.0, &other.1));
        assert!(one.2 != other.2);
    }
}

/// The root mean square of the differences.
pub(crate) fn spread(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let (sum, count) = pairs.fold((0.0, 0.0), |(s, n), (a, b)| (s + (a - b) * (a - b), n + 1.0));
    (sum / f64::max(count, 1.0)).sqrt()
}
