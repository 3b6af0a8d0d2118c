//! A tape of a small encoder.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::poly::Arithmetic as _;
use hushed_ckks::{Ciphertext, CkksParams, Complex64};
use hushed_model::testing::tiny_config;
use hushed_model::{Block, Matrix, Network, NetworkConfig, Pool, Program, StepId, TokenIds, plain, random_network};

use super::assign::assign;
use super::encoder::{COLUMNS, Encoder};
use super::exact::{self, Functions, exact};
use super::levels::{Heights, Limits};
use super::run::{Executor, Local};
use super::schedule::Schedule;
use super::values::Held;
use super::{NodeId, Op, Tape};
use crate::ops::functions::Function;
use crate::ops::mask::{REAL_ROWS, token_rows};
use crate::ops::pool::{Factor, unpack};
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::plan::reference;
use crate::run::encrypted::testing::{Keys, distance};
use crate::simulate::{Counts, Op as Count, Simulator, Vector, Watch};
use crate::testing::{Structure, largest, measure, packed};
use crate::{Choices, Encrypted, FheError, ForwardPass as _, KeyDemand, Pass, RowsKnown, Slots};

const ROWS: usize = 16;
const SLOTS: usize = 256;

/// A model, texts for all places but one, and choices measured on them.
pub(super) struct Subject {
    pub network: Network,
    pub program: Program,
    pub texts: Vec<TokenIds>,
    pub embedded: Vec<Matrix<f64>>,
    pub choices: Choices,
    pub layout: Interleave,
    pub params: Arc<CkksParams>,
}

impl Subject {
    pub fn new(config: &NetworkConfig, pool: Pool, structure: &Structure) -> Subject {
        let network = random_network(config, pool, 5);
        let program = network.program();
        let text = |(t, length): (usize, usize)| {
            let id = |i: usize| ((i * 31 + t * 17 + i * i * t) % config.vocabulary) as u32;
            TokenIds::new((0..length).map(id).collect())
        };
        let texts: Vec<TokenIds> = [16, 3, 9, 1, 12, 5, 16].into_iter().enumerate().map(text).collect();
        let start = |text: &TokenIds| plain::start(&program, vec![text.clone()]).unwrap().values;
        let embedded: Vec<Matrix<f64>> = texts.iter().map(start).collect();
        let choices = measure(&network, &embedded, structure, ROWS, (15, 15)).choices;
        let layout = Interleave::new(SLOTS, ROWS).unwrap();
        let params = CkksParams::insecure_test(9, 14).unwrap();
        Subject { network, program, texts, embedded, choices, layout, params }
    }

    pub fn lengths(&self) -> Vec<usize> {
        self.embedded.iter().map(Matrix::rows).collect()
    }

    pub fn placement(&self, top: usize) -> Placement {
        Placement::plain(top, ROWS, self.network.layers[0].attention.heads.width)
    }

    pub fn tape(&self, on: &Simulator, private: bool) -> Tape {
        let encoder = Encoder {
            on,
            program: &self.program,
            choices: &self.choices,
            split: &self.placement(on.top()),
            layout: self.layout,
            lengths: (!private).then(|| self.lengths()),
            bound: largest(&self.embedded),
        };
        encoder.record().unwrap()
    }

    /// What the client sends, by the name of its input.
    pub fn sent(&self, private: bool) -> BTreeMap<&'static str, Vec<Vec<f64>>> {
        let columns = packed(self.layout, &self.embedded, largest(&self.embedded), |_, _, _| 0.0);
        let mut sent = BTreeMap::from([(COLUMNS, columns)]);
        if private {
            sent.insert(REAL_ROWS, vec![token_rows(self.layout, &self.lengths())]);
        }
        sent
    }

    pub fn answers(&self, factor: Factor, vectors: &[Vec<f64>]) -> Vec<Vec<f64>> {
        unpack(self.layout, &self.lengths(), self.program.width(), factor, vectors).unwrap()
    }
}

pub(super) fn outputs(tape: &Tape) -> Vec<usize> {
    (0..tape.nodes.len()).filter(|&i| tape.nodes[i].op == Op::Output).collect()
}

pub(super) fn complex(sent: BTreeMap<&'static str, Vec<Vec<f64>>>) -> BTreeMap<&'static str, exact::Block> {
    let vector = |v: Vec<f64>| v.into_iter().map(Complex64::from).collect();
    sent.into_iter().map(|(name, block)| (name, vec![block.into_iter().map(vector).collect()])).collect()
}

pub(super) fn real(block: &exact::Block) -> Vec<Vec<f64>> {
    block.iter().flatten().map(|v| v.iter().map(|z| z.re).collect()).collect()
}

/// Sees nothing.
struct Blind;

impl Watch for Blind {
    fn see(&self, _: StepId, _: &Function, _: &[f64]) {}
}

/// With the functions themselves, what is recorded is the model: in all layers, whoever knows the lengths, with heads
/// of a fixed pattern, merged blocks and replaced rows.
#[test]
fn a_tape_on_plain_numbers_is_the_model() {
    let structures = [
        (tiny_config(), Pool::Mean, Structure::default()),
        (tiny_config(), Pool::First, Structure { previous: vec![(0, 1)], ..Structure::default() }),
        (NetworkConfig { merged: vec![1], ..tiny_config() }, Pool::Mean, Structure::default()),
    ];
    for (config, pool, structure) in structures {
        let subject = Subject::new(&config, pool, &structure);
        let on = Simulator::new(&subject.params, SLOTS).unwrap().exact(Arc::new(Blind));
        for private in [false, true] {
            let tape = subject.tape(&on, private);
            let values = exact(&tape, &complex(subject.sent(private)), Functions::Exact).unwrap();
            let vectors: Vec<Vec<f64>> = outputs(&tape).into_iter().flat_map(|i| real(&values[i])).collect();
            let factor = if private && pool == Pool::Mean { Factor::Rows } else { Factor::One };
            let found = subject.answers(factor, &vectors);
            let expected = measure(&subject.network, &subject.embedded, &structure, ROWS, (15, 15)).pooled;
            for (found, expected) in found.iter().flatten().zip(expected.iter().flatten()) {
                assert!((found - expected).abs() < 1e-9, "{found} and {expected}, private {private}");
            }
        }
        if structure.previous.is_empty() {
            let first = vec![subject.texts[0].clone()];
            let clear = plain::run(&subject.program, first, |_, _| ()).unwrap();
            let measured = measure(&subject.network, &subject.embedded, &structure, ROWS, (15, 15)).pooled;
            assert!(clear.values.row(0).iter().zip(&measured[0]).all(|(a, b)| (a - b).abs() < 1e-9));
        }
    }
}

/// Levels as in a placement of a pass.
pub(super) fn given(subject: &Subject, placement: &Placement, inputs: usize, floor: usize) -> Limits {
    let mut marks = BTreeMap::from([
        (StepId::outside("input.refresh"), placement.attention),
        (StepId::outside(REAL_ROWS), placement.attention.max(placement.statistics + 1).min(inputs)),
    ]);
    for step in subject.program.steps() {
        let id = step.id;
        match (&step.block, subject.program.steps().get(id_number(subject, id) + 1).map(|next| &next.block)) {
            (Block::Attention(_), _) => {
                marks.insert(id.part("weigh").part("first_sum"), placement.statistics);
                marks.insert(id.part("weigh").part("second_sum"), placement.statistics);
            }
            (Block::Norm(_), next) => {
                marks.insert(id, placement.statistics);
                let limbs = match next {
                    Some(Block::FeedForward(_)) => placement.feed_forward,
                    _ => placement.attention,
                };
                marks.insert(id.part("refresh"), limbs);
            }
            _ => {}
        }
    }
    Limits {
        heights: Heights::Given { marks, high: BTreeSet::from([StepId::outside(REAL_ROWS)]) },
        inputs: BTreeMap::from([(COLUMNS, inputs), (REAL_ROWS, inputs)]),
        outputs: floor,
    }
}

fn id_number(subject: &Subject, id: StepId) -> usize {
    subject.program.steps().iter().position(|step| step.id == id).unwrap()
}

/// The inputs of a tape: `make` makes a vector of these numbers.
pub(super) fn inputs<S: Slots>(
    tape: &Tape,
    sent: &BTreeMap<&'static str, Vec<Vec<f64>>>,
    make: &mut dyn FnMut(&[f64]) -> S::Value,
) -> BTreeMap<NodeId, Held<S>> {
    let mut values = BTreeMap::new();
    for (i, node) in tape.nodes.iter().enumerate() {
        if let Op::Input(name) = node.op {
            values.insert(NodeId(i), Held::row(sent[name].iter().map(|v| make(v)).collect()));
        }
    }
    values
}

/// Times of each operation at each number of primes.
pub(super) fn times(counts: &Counts) -> BTreeMap<(Count, usize), u64> {
    let mut all = BTreeMap::new();
    for count in &counts.operations {
        *all.entry((count.op, count.limbs)).or_default() += count.times;
    }
    all
}

/// A pass and a tape on the same numbers.
struct Both {
    subject: Subject,
    tape: Tape,
    schedule: Schedule,
    limits: Limits,
    placement: Placement,
    private: bool,
}

impl Both {
    fn new(private: bool) -> Both {
        let subject = Subject::new(&tiny_config(), Pool::Mean, &Structure::default());
        let on = Simulator::new(&subject.params, SLOTS).unwrap();
        let (top, floor) = (on.top(), on.floor());
        let placement = Placement { feed_forward: floor + 8, ..subject.placement(top) };
        let tape = subject.tape(&on, private);
        let limits = given(&subject, &placement, top, floor);
        let shapes = || Ok(Simulator::new(&subject.params, SLOTS)?.counting());
        let schedule = assign(&tape, &shapes, &limits).unwrap();
        Both { subject, tape, schedule, limits, placement, private }
    }

    /// Simulators without numbers.
    fn shapes(&self) -> impl Fn() -> Result<Simulator, FheError> + use<> {
        let params = Arc::clone(&self.subject.params);
        move || Ok(Simulator::new(&params, SLOTS)?.counting())
    }

    fn pass<S: Slots>(&self, on: &S, make: &mut dyn FnMut(&[f64]) -> S::Value) -> Vec<S::Value> {
        let (subject, sent) = (&self.subject, self.subject.sent(self.private));
        let columns = sent[COLUMNS].iter().map(|v| make(v)).collect();
        let rows = match self.private {
            true => RowsKnown::private(subject.layout, make(&sent[REAL_ROWS][0])),
            false => RowsKnown::public(subject.layout, subject.lengths()).unwrap(),
        };
        let (bound, placement) = (largest(&subject.embedded), self.placement.clone());
        on.at(StepId::outside("input"));
        let mut pass = Pass::new(on, &subject.program, &subject.choices, placement, rows, bound).unwrap();
        pass.run(columns).unwrap().vectors
    }

    /// The outputs, and how far any node is from itself on plain numbers.
    fn tape_on_numbers(&self, on: &Simulator, schedule: &Schedule) -> (Vec<Vector>, f64) {
        let sent = self.subject.sent(self.private);
        let plain = exact(&self.tape, &complex(sent.clone()), Functions::Approximate).unwrap();
        let make = &mut |v: &[f64]| on.vector(v.to_vec(), self.limits.inputs[COLUMNS]).unwrap();
        let mut values = inputs::<Simulator>(&self.tape, &sent, make);
        let mut worst = 0.0_f64;
        let watch = &mut |id: NodeId, held: &Held<Simulator>| {
            for (v, z) in held.vectors().into_iter().zip(plain[id.0].iter().flatten()) {
                let far = v.values().iter().zip(z).map(|(v, z)| (v - z.re).abs());
                worst = far.fold(worst, f64::max);
            }
        };
        Local(on).run(&self.tape, schedule, 0..self.tape.nodes.len(), &mut values, watch).unwrap();
        let answer = outputs(&self.tape).into_iter().map(|i| values[&NodeId(i)].vectors()[0].clone());
        (answer.collect(), worst)
    }
}

/// The schedule is the pass: the same operations at the same primes, so the same keys; and run on numbers it has the
/// same levels, scales and numbers.
#[test]
fn a_tape_placed_as_the_pass_is_the_pass() {
    let both = Both::new(false);
    let params = &both.subject.params;
    let on = Simulator::new(params, SLOTS).unwrap();
    let make = &mut |v: &[f64]| on.vector(v.to_vec(), on.top()).unwrap();
    let answer = both.pass(&on, make);
    let counts = on.tally().counts();
    assert_eq!(times(&counts), times(&both.schedule.counts));
    assert!(KeyDemand::of(params, &counts) == both.schedule.keys(params));
    // Nodes alone, without what they need while they run.
    let (alive, peak) = (both.schedule.alive, both.schedule.counts.peak());
    assert!(alive <= peak && peak < 2 * alive, "{alive} of {peak}");
    let (found, _) = both.tape_on_numbers(&on, &both.schedule);
    assert_eq!(found.len(), answer.len());
    for (found, expected) in found.iter().zip(&answer) {
        assert_eq!((on.limbs(found), on.scale(found)), (on.limbs(expected), on.scale(expected)));
        assert_eq!(found.values(), expected.values());
    }
}

/// With private lengths, the sums of the mask are computed once and not in every layer.
#[test]
fn a_tape_takes_no_more_than_the_pass() {
    let both = Both::new(true);
    let on = Simulator::new(&both.subject.params, SLOTS).unwrap();
    let make = &mut |v: &[f64]| on.vector(v.to_vec(), on.top()).unwrap();
    let answer = both.pass(&on, make);
    let (pass, tape) = (times(&on.tally().counts()), times(&both.schedule.counts));
    for (key @ (op, _), times) in &tape {
        assert!(!COSTLY.contains(op) || Some(times) <= pass.get(key), "{key:?}");
    }
    let (found, _) = both.tape_on_numbers(&on, &both.schedule);
    for (found, expected) in found.iter().zip(&answer) {
        assert_eq!(found.values(), expected.values());
    }
}

/// What takes a key.
const COSTLY: [Count; 5] = [Count::Bootstrap, Count::Rotate, Count::Conjugate, Count::Relinearise, Count::Hoist];

/// Every node on numbers with levels is the node on plain numbers.
#[test]
fn every_node_is_the_one_on_plain_numbers() {
    let both = Both::new(false);
    let on = Simulator::new(&both.subject.params, SLOTS).unwrap();
    let (_, worst) = both.tape_on_numbers(&on, &both.schedule);
    assert!(worst < 1e-6, "{worst:e}");
    let (_, noisy) = both.tape_on_numbers(&on.with_errors(1), &both.schedule);
    assert!(noisy > 10.0 * worst, "{noisy:e} and {worst:e}");
}

/// With the levels left to the placement: as many bootstraps and key switches, with fewer primes, and the same answer.
#[test]
fn the_least_levels_suffice() {
    for private in [false, true] {
        let both = Both::new(private);
        let params = &both.subject.params;
        let limits = Limits { heights: Heights::Least, ..both.limits.clone() };
        let least = assign(&both.tape, &both.shapes(), &limits).unwrap();
        let on = Simulator::new(params, SLOTS).unwrap().with_errors(1);
        let (found, _) = both.tape_on_numbers(&on, &least);
        let plain = exact(&both.tape, &complex(both.subject.sent(private)), Functions::Approximate).unwrap();
        for (found, i) in found.iter().zip(outputs(&both.tape)) {
            assert!(distance(found.values(), &real(&plain[i])[0]) < 1e-4);
            assert_eq!(on.limbs(found), on.floor());
        }
        let primes = |schedule: &Schedule, op: Count| -> u64 {
            let those = schedule.counts.operations.iter().filter(|count| count.op == op);
            those.map(|count| count.times * count.limbs as u64).sum()
        };
        for op in COSTLY {
            assert_eq!(least.counts.total(op), both.schedule.counts.total(op));
            assert!(primes(&least, op) < primes(&both.schedule, op));
        }
        let prices = reference(1);
        assert!(least.seconds(params, &prices) < 0.95 * both.schedule.seconds(params, &prices));
        assert_ne!(least.hash, both.schedule.hash);
        // Too few levels are refused, and the step is named.
        let low = BTreeMap::from([(StepId::outside("input.refresh"), on.floor() + 3)]);
        let heights = Heights::Given { marks: low, high: BTreeSet::new() };
        let short = BTreeMap::from([(COLUMNS, on.floor()), (REAL_ROWS, on.top())]);
        let refused = assign(&both.tape, &both.shapes(), &Limits { heights, inputs: short, ..limits }).err().unwrap();
        assert!(matches!(refused, FheError::Levels { .. }), "{refused}");
    }
}

/// Under a key: the residues that the pass leaves, also if nodes are run in two parts, each from the values that it
/// reads alone and from a tape of its own.
#[test]
fn ciphertexts_are_those_of_the_pass() {
    let both = Both::new(false);
    let (params, schedule) = (&both.subject.params, &both.schedule);
    let demand = schedule.keys(params);
    let mut keys = Keys::new(params, |bootstrap| demand.specs(params, bootstrap).unwrap());
    let (top, sent) = (both.limits.inputs[COLUMNS], both.subject.sent(false));
    let columns: Vec<Ciphertext> = sent[COLUMNS].iter().map(|v| keys.encrypt(v, top)).collect();
    let (on, mut next) = (&keys.on, columns.iter().cycle());
    let make = &mut |_: &[f64]| next.next().unwrap().clone();
    let answer = both.pass(on, make);
    let mut values = inputs::<Encrypted>(&both.tape, &sent, make);
    // Between two layers.
    let cut = both.tape.nodes.iter().position(|node| node.step.layer() == Some(1)).unwrap();
    let (local, nodes) = (Local(on), both.tape.nodes.len());
    let mut run = |both: &Both, hash: &str, range: Range<usize>| {
        local.run_named(&both.tape, &both.schedule, (hash, range), &mut values, &mut |_, _| ())?;
        // What is alive afterwards.
        Ok::<_, FheError>(values.iter().map(|(id, value)| (id.0, value.vectors().len())).collect::<BTreeMap<_, _>>())
    };
    assert!(matches!(run(&both, "other", 0..cut), Err(FheError::Unsupported { .. })));
    let left = run(&both, &schedule.hash, 0..cut).unwrap();
    assert_eq!(left.values().collect::<Vec<_>>(), [&both.subject.program.width()]);
    let other = Both::new(false);
    let left = run(&other, &schedule.hash, cut..nodes).unwrap();
    assert_eq!(left.keys().copied().collect::<Vec<_>>(), outputs(&both.tape));
    // Its operands are gone.
    assert!(run(&both, &schedule.hash, cut..nodes).is_err());
    for (i, expected) in outputs(&both.tape).into_iter().zip(&answer) {
        let found = values[&NodeId(i)].vectors()[0];
        assert!(found.a() == expected.a() && found.b() == expected.b());
    }
}

/// The same with private lengths.
#[test]
fn ciphertexts_with_private_lengths_are_those_of_the_pass() {
    let both = Both::new(true);
    let demand = both.schedule.keys(&both.subject.params);
    let mut keys = Keys::new(&both.subject.params, |bootstrap| demand.specs(&both.subject.params, bootstrap).unwrap());
    let (top, sent) = (both.limits.inputs[COLUMNS], both.subject.sent(true));
    let mut encrypted = BTreeMap::new();
    let bits = |v: &[f64]| v.iter().map(|v| v.to_bits()).collect::<Vec<u64>>();
    for v in sent.values().flatten() {
        encrypted.insert(bits(v), keys.encrypt(v, top));
    }
    let make = &mut |v: &[f64]| encrypted[&bits(v)].clone();
    let answer = both.pass(&keys.on, make);
    let mut values = inputs::<Encrypted>(&both.tape, &sent, make);
    Local(&keys.on).run(&both.tape, &both.schedule, 0..both.tape.nodes.len(), &mut values, &mut |_, _| ()).unwrap();
    for (i, expected) in outputs(&both.tape).into_iter().zip(&answer) {
        let found = values[&NodeId(i)].vectors()[0];
        assert!(found.a() == expected.a() && found.b() == expected.b());
    }
}
