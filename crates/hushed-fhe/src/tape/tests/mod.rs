//! The tapes of a small encoder: on plain numbers they are the model, and every way to run them is the same.

mod answer;
mod attention;
mod exact;
mod norm;
mod tiles;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::poly::Arithmetic as _;
use hushed_ckks::{Ciphertext, CkksParams, Complex64};
use hushed_model::testing::{TINY_LABELS, tiny_classifier_config, tiny_config};
use hushed_model::{Matrix, Network, NetworkConfig, Pool, Program, StepId, TokenIds, plain, random_network};

use super::assign::assign;
use super::encoder::{Answer, COLUMNS, Encoder, InSlots, choice_of_norm};
use super::layout::Hidden;
use super::levels::{Heights, Limits, Outputs};
use super::run::{Executor, Local};
use super::schedule::Schedule;
use super::values::Held;
use super::{NodeId, Op, Tape, Texts};
use crate::ops::functions::Function;
use crate::ops::mask::{REAL_ROWS, token_rows};
use crate::ops::pool::unpack;
use crate::packing::Interleave;
use crate::plan::keys::KeyDemand;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::run::encrypted::testing::{Keys, distance};
use crate::simulate::{Op as Count, Simulator, Vector, Watch};
use crate::testing::{Structure, largest, measure, packed};
use crate::{Choices, Encrypted, FheError, Slots};
use exact::{Block, Functions, exact};

const ROWS: usize = 16;
const SLOTS: usize = 256;

/// A model, texts for all places but one, and choices measured on them.
struct Subject {
    network: Network,
    program: Program,
    texts: Vec<TokenIds>,
    embedded: Vec<Matrix<f64>>,
    choices: Choices,
    params: Arc<CkksParams>,
    placement: Placement,
    structure: Structure,
}

impl Subject {
    fn new(config: &NetworkConfig, pool: Pool, structure: &Structure) -> Subject {
        let network = random_network(config, pool, 5);
        let program = network.program_of_all_rows();
        let text = |(t, length): (usize, usize)| {
            let id = |i: usize| ((i * 31 + t * 17 + i * i * t) % config.vocabulary) as u32;
            TokenIds::new((0..length).map(id).collect())
        };
        let texts: Vec<TokenIds> = [16, 3, 9, 1, 12, 5, 16].into_iter().enumerate().map(text).collect();
        let start = |text: &TokenIds| plain::start(&program, vec![text.clone()]).unwrap().values;
        let embedded: Vec<Matrix<f64>> = texts.iter().map(start).collect();
        let choices = measure(&network, &embedded, structure, ROWS, (15, 15)).choices;
        let params = CkksParams::insecure_test(9, 14).unwrap();
        let width = network.layers[0].attention.heads.width;
        let placement = Placement::plain(params.fresh_limbs(), ROWS, width);
        Subject { network, program, texts, embedded, choices, params, placement, structure: structure.clone() }
    }

    fn simulator(&self) -> Simulator {
        Simulator::new(&self.params, SLOTS).unwrap()
    }

    fn layout(&self) -> Interleave {
        Interleave::new(SLOTS, ROWS).unwrap()
    }

    fn lengths(&self) -> Vec<usize> {
        self.embedded.iter().map(Matrix::rows).collect()
    }

    fn encoder<'a, S: Slots>(&'a self, on: &'a S, hidden: bool) -> Encoder<'a, S> {
        let lengths = if hidden { Vec::new() } else { self.lengths() };
        Encoder {
            on,
            program: &self.program,
            choices: &self.choices,
            split: &self.placement,
            texts: InSlots::Batch(Arc::new(Texts::alone(self.layout(), lengths).unwrap())),
            hidden,
            answer: AnswerRows::Last,
        }
    }

    fn columns(&self) -> Vec<Vec<f64>> {
        packed(self.layout(), &self.embedded, largest(&self.embedded), |_, _, _| 0.0)
    }

    /// What is made of hidden lengths.
    fn masks(&self, on: &Simulator) -> BTreeMap<&'static str, Block> {
        let real = vec![token_rows(self.layout(), &self.lengths())];
        let tape = self.encoder(on, true).masks().unwrap();
        let made = outputs(&tape, &BTreeMap::from([(REAL_ROWS, complex(real))]), Functions::Exact);
        Hidden::ALL.iter().zip(made).map(|(which, v)| (which.name(), vec![vec![v]])).collect()
    }

    /// The first layer, and what it reads.
    fn layer<S: Slots>(&self, on: &S, hidden: bool) -> (Tape, BTreeMap<&'static str, Block>) {
        let (gain, offset) = (vec![largest(&self.embedded); self.program.width()], vec![0.0; self.program.width()]);
        let steps = self.program.layers().remove(0);
        let tape = self.encoder(on, hidden).layer(steps, (&gain, &offset)).unwrap().tape;
        let mut sent = if hidden { self.masks(&self.simulator()) } else { BTreeMap::new() };
        sent.insert(COLUMNS, complex(self.columns()));
        (tape, sent)
    }
}

/// The vectors that leave.
fn outputs(tape: &Tape, inputs: &BTreeMap<&'static str, Block>, how: Functions) -> Vec<Vec<Complex64>> {
    let values = exact(tape, inputs, how).unwrap();
    leaving(tape).into_iter().flat_map(|i| values[i].iter().flatten().cloned()).collect()
}

fn leaving(tape: &Tape) -> Vec<usize> {
    (0..tape.nodes.len()).filter(|&i| tape.nodes[i].op == Op::Output).collect()
}

fn complex(block: Vec<Vec<f64>>) -> Block {
    vec![block.into_iter().map(|v| v.into_iter().map(Complex64::from).collect()).collect()]
}

/// Sees nothing.
struct Blind;

impl Watch for Blind {
    fn see(&self, _: StepId, _: &Function, _: &[f64]) {}
}

/// With the functions themselves, what is recorded is the model: in all layers, whoever knows the lengths, with heads
/// of a fixed pattern, merged blocks, replaced rows and the head of a classifier.
#[test]
fn tapes_on_plain_numbers_are_the_model() {
    let replaced = Structure { previous: vec![(0, 1)], frozen_layers: 1 };
    let classifier = NetworkConfig { layers: 1, ..tiny_classifier_config(&TINY_LABELS) };
    let structures = [
        (tiny_config(), Pool::Mean, Structure::default()),
        (tiny_config(), Pool::First, Structure { frozen_layers: 0, ..replaced.clone() }),
        (tiny_config(), Pool::Mean, replaced),
        (NetworkConfig { merged: vec![1], ..tiny_config() }, Pool::Mean, Structure::default()),
        (classifier, Pool::First, Structure::default()),
    ];
    for (config, pool, structure) in structures {
        let subject = Subject::new(&config, pool, &structure);
        let on = subject.simulator().exact(Arc::new(Blind));
        for hidden in [false, true] {
            let found = in_the_clear(&subject, &on, hidden);
            let measured = measure(&subject.network, &subject.embedded, &subject.structure, ROWS, (15, 15)).pooled;
            let model = |text: &TokenIds| plain::run(&subject.program, vec![text.clone()], |_, _| ()).unwrap().values;
            let clear: Vec<Vec<f64>> = subject.texts.iter().map(|text| model(text).row(0).to_vec()).collect();
            let replaced = !subject.structure.previous.is_empty() || subject.structure.frozen_layers > 0;
            let expected = if replaced { &measured } else { &clear };
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((found - expected).abs() < 1e-9, "{found} and {expected}, hidden {hidden}");
            }
        }
    }
}

/// The answers of all tapes of a model, one after the other.
fn in_the_clear(subject: &Subject, on: &Simulator, hidden: bool) -> Vec<Vec<f64>> {
    let encoder = subject.encoder(on, hidden);
    let masks = if hidden { subject.masks(on) } else { BTreeMap::new() };
    let with = |columns: Vec<Vec<Complex64>>| {
        let mut inputs = masks.clone();
        inputs.insert(COLUMNS, vec![columns]);
        inputs
    };
    let (bound, sent) = (largest(&subject.embedded), with(complex(subject.columns()).remove(0)));
    let mut columns = outputs(&encoder.start(bound).unwrap(), &sent, Functions::Exact);
    let width = subject.program.width();
    let (mut gain, mut offset) = (vec![bound; width], vec![0.0; width]);
    for steps in subject.program.layers() {
        let last = steps.end - 1;
        let layer = encoder.layer(steps, (&gain, &offset)).unwrap();
        columns = outputs(&layer.tape, &with(columns), Functions::Exact);
        let step = &subject.program.steps()[last];
        let hushed_model::Block::Norm(norm) = &step.block else { panic!("no norm") };
        let choice = choice_of_norm(encoder.program, encoder.choices, last).unwrap();
        let x = crate::Acts::normed(step.id, columns.clone(), norm, choice).unwrap();
        (gain, offset) = (x.gain, x.offset);
    }
    let Answer { circuit, width, factor } = encoder.answer(&gain, &offset).unwrap();
    let vectors: Vec<Vec<f64>> = outputs(&circuit.tape, &with(columns), Functions::Exact)
        .into_iter()
        .map(|v| v.into_iter().map(|z| z.re).collect())
        .collect();
    unpack(subject.layout(), &subject.lengths(), width, factor, &vectors).unwrap()
}

/// Where a layer is placed: with as few primes as suffice, or with as many as arrive.
fn limits(on: &Simulator, hidden: bool, spilled: bool) -> Limits<'static> {
    let place = (on.top(), on.default_scale());
    let masks = Hidden::ALL.iter().filter(|_| hidden).map(|which| (which.name(), place));
    Limits {
        heights: Heights::Least,
        inputs: masks.chain([(COLUMNS, place)]).collect(),
        outputs: Outputs::Exactly(on.floor() + 1),
        spilled: vec![spilled; 2],
    }
}

/// The values of a tape's inputs: `make` makes a vector of these numbers.
fn values<S: Slots>(
    tape: &Tape,
    sent: &BTreeMap<&'static str, Block>,
    make: &mut dyn FnMut(Vec<f64>) -> S::Value,
) -> BTreeMap<NodeId, Held<S>> {
    let mut values = BTreeMap::new();
    for (i, node) in tape.nodes.iter().enumerate() {
        if let Op::Input(name) = node.op {
            let vectors = sent[name].iter().flatten().map(|v| make(v.iter().map(|z| z.re).collect()));
            values.insert(NodeId(i), Held::row(vectors.collect()));
        }
    }
    values
}

/// Runs a tape in the clear, and returns how far any node is from itself on plain numbers. Every node has the scale and
/// no more than the primes of its placement.
fn run(tape: &Tape, schedule: &Schedule, on: &Simulator, sent: &BTreeMap<&'static str, Block>) -> (Vec<Vector>, f64) {
    let plain = exact(tape, sent, Functions::Approximate).unwrap();
    let mut held = values::<Simulator>(tape, sent, &mut |v| on.vector(v, on.top()).unwrap());
    let mut worst = 0.0_f64;
    let watch = &mut |id: NodeId, held: &Held<Simulator>| {
        let placed = &schedule.nodes[id.0];
        for (v, z) in held.vectors().into_iter().zip(plain[id.0].iter().flatten()) {
            // Vectors that are cut from an input have its primes.
            if !matches!(tape.nodes[id.0].op, Op::Input(_) | Op::Cut { .. }) {
                assert!(on.limbs(v) <= placed.limbs, "{} {:?}", tape.nodes[id.0].step, tape.nodes[id.0].op);
            }
            let scale = placed.scale.unwrap();
            assert!(on.scale(v).matches(scale), "{} {:?}", tape.nodes[id.0].step, tape.nodes[id.0].op);
            // In the first places; the others have no text.
            let slots = v.values().iter().zip(z).enumerate().filter(|(slot, _)| slot % (SLOTS / ROWS) < 7);
            let far = slots.map(|(_, (v, z))| (v - z.re).abs());
            worst = far.fold(worst, f64::max);
        }
        Ok(())
    };
    Local(on).run(tape, schedule, 0..tape.nodes.len(), &mut held, watch).unwrap();
    let made = leaving(tape).into_iter().flat_map(|i| held[&NodeId(i)].vectors().into_iter().cloned());
    (made.collect(), worst)
}

/// Every node on numbers with levels is the node on plain numbers, with columns in memory and on disk.
#[test]
fn every_node_is_the_one_on_plain_numbers() {
    let subject = Subject::new(&tiny_config(), Pool::Mean, &Structure::default());
    let on = subject.simulator();
    for hidden in [false, true] {
        let mut answers = Vec::new();
        for spilled in [false, true] {
            let (mut tape, sent) = subject.layer(&on, hidden);
            let schedule = assign(&mut tape, &on, &limits(&on, hidden, spilled)).unwrap();
            assert_eq!(schedule.spills.is_empty(), !spilled);
            let (found, worst) = run(&tape, &schedule, &on, &sent);
            // Shares of padding that are computed at a small scale have fewer bits.
            assert!(worst < if hidden { 1e-2 } else { 1e-6 }, "{hidden} {worst:e}");
            assert!(found.iter().all(|v| on.limbs(v) == on.floor() + 1));
            let (_, noisy) = run(&tape, &schedule, &subject.simulator().with_errors(1), &sent);
            assert!(hidden || noisy > 10.0 * worst, "{noisy:e} and {worst:e}");
            answers.push(found.iter().map(|v| v.values().to_vec()).collect::<Vec<_>>());
        }
        assert_eq!(answers[0], answers[1]);
    }
}

/// Too few levels are refused, and the step is named.
#[test]
fn a_tape_without_levels_is_refused() {
    let subject = Subject::new(&tiny_config(), Pool::Mean, &Structure::default());
    let on = subject.simulator();
    let (mut tape, _) = subject.layer(&on, false);
    let few = BTreeMap::from([(COLUMNS, (on.floor() + 3, on.default_scale()))]);
    let refused = assign(&mut tape, &on, &Limits { inputs: few, ..limits(&on, false, false) }).err().unwrap();
    assert!(
        matches!(&refused, FheError::Levels { step, .. } if step.to_string().starts_with("layer.0.attention")),
        "{refused}"
    );
    // More primes than can arrive at the end.
    let many = Limits { outputs: Outputs::Exactly(on.top() + 1), ..limits(&on, false, false) };
    assert!(matches!(assign(&mut tape, &on, &many).err(), Some(FheError::Levels { .. })));
}

/// Under a key: nodes may be run in two parts, each from the values that it reads alone and from a tape of its own.
#[test]
fn a_range_of_nodes_runs_by_itself() {
    let subject = Subject::new(&tiny_config(), Pool::Mean, &Structure::default());
    let simulator = subject.simulator();
    let made = || {
        let (mut tape, sent) = subject.layer(&simulator, false);
        let schedule = assign(&mut tape, &simulator, &limits(&simulator, false, false)).unwrap();
        (tape, schedule, sent)
    };
    let (tape, schedule, sent) = made();
    run(&tape, &schedule, &simulator, &sent);
    let demand = KeyDemand::of(&subject.params, &simulator.tally().counts());
    let mut keys = Keys::new(&subject.params, |bootstrap| demand.specs(&subject.params, bootstrap).unwrap());
    let columns: Vec<Ciphertext> = subject.columns().iter().map(|v| keys.encrypt(v, simulator.top())).collect();
    let mut next = columns.iter().cycle();
    let mut held = || values::<Encrypted>(&tape, &sent, &mut |_| next.next().unwrap().clone());
    let (local, nodes) = (Local(&keys.on), tape.nodes.len());
    let mut whole = held();
    local.run(&tape, &schedule, 0..nodes, &mut whole, &mut |_, _| Ok(())).unwrap();
    // Where the columns between the halves of the layer are all that is alive.
    let cut = 1 + tape.nodes.iter().position(|node| node.step.to_string() == "layer.0.attention.norm.refresh").unwrap();
    let mut parts = held();
    let mut part = |(tape, schedule): (&Tape, &Schedule), range: Range<usize>| {
        local.run(tape, schedule, range, &mut parts, &mut |_, _| Ok(()))?;
        // What is alive afterwards.
        Ok::<_, FheError>(parts.iter().map(|(id, value)| (id.0, value.vectors().len())).collect::<BTreeMap<_, _>>())
    };
    let left = part((&tape, &schedule), 0..cut).unwrap();
    assert_eq!(left, BTreeMap::from([(cut - 1, subject.program.width())]));
    let (other, placed, _) = made();
    let left = part((&other, &placed), cut..nodes).unwrap();
    assert_eq!(left.keys().copied().collect::<Vec<_>>(), leaving(&tape));
    // Its operands are gone.
    assert!(part((&tape, &schedule), cut..nodes).is_err());
    for i in leaving(&tape) {
        let [one, two] = [&whole, &parts].map(|values| values[&NodeId(i)].vectors());
        assert_eq!(one.len(), two.len());
        for (one, two) in one.iter().zip(&two) {
            assert!(one.a() == two.a() && one.b() == two.b());
        }
    }
    // They are those in the clear.
    let clear = outputs(&tape, &sent, Functions::Approximate);
    for (found, expected) in whole[&NodeId(leaving(&tape)[0])].vectors().into_iter().zip(&clear) {
        let expected: Vec<f64> = expected.iter().map(|z| z.re).collect();
        assert!(distance(&keys.open(found), &expected) < 1e-2);
    }
    assert!(simulator.tally().counts().total(Count::Bootstrap) > 0);
}
