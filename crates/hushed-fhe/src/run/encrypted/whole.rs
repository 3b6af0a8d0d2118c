//! A whole small BERT, encrypted by its client, run by a server that only has evaluation keys, and opened by the
//! client: compared with the same run in the simulator, and with the model in the clear.

mod architectures;

use std::collections::BTreeSet;
use std::sync::Arc;

use hushed_ckks::keys::PublicKey;
use hushed_ckks::{Ciphertext, CkksParams, Scale};
use hushed_model::testing::{TINY_LABELS, tiny_classifier_config, tiny_config};
use hushed_model::{
    Matrix, ModelError, Network, Pool, Program, StepId, TokenIds, length, nearness, plain, random_network,
};
use zeroize::Zeroizing;

use super::testing::{Keys, seeded};
use crate::files::spill::SpillFolder;
use crate::ops::head::magnitude;
use crate::ops::pool::{Pooled, unpack};
use crate::packing::{Interleave, SequencePacking};
use crate::plan::public_plan::{Lengths, insecure_plan};
use crate::plan::{Timetable, reference};
use crate::run::client::FheClient;
use crate::run::clock::Clock;
use crate::run::reply::{ReplySecret, fewest_limbs, seal_reply};
use crate::simulate::{Batch, Counts, Op, Vector};
use crate::testing::{Structure, largest, measure, packed};
use crate::{Choices, FheError, FhePlan, Folded, KeyDemand, Pass, Placement, RowsKnown, Simulator, Slots, token_rows};

const LOG_N: u32 = 9;
const ROWS: usize = 16;
/// Texts of a batch.
const PLACES: usize = 16;

/// Short texts multiply the noise of a reply by rows over length: six in root mean square, for the lengths here.
const MEAN: f64 = 6.0;

/// What a client opens, and what it is opened from.
struct Answered {
    rows: Vec<Vec<f64>>,
    /// Without the client's rounding.
    raw: Vec<Vec<f64>>,
    /// As it left the server.
    reply: Vec<Ciphertext>,
}

/// A model, texts for every place of a batch, and everything agreed on before a run.
pub(super) struct Subject {
    params: Arc<CkksParams>,
    layout: Interleave,
    network: Network,
    program: Program,
    texts: Vec<TokenIds>,
    embedded: Vec<Matrix<f64>>,
    choices: Choices,
    plan: FhePlan,
}

impl Subject {
    fn new(layers: usize, lengths: Lengths) -> Subject {
        let mut config = tiny_config();
        config.layers = layers;
        Subject::of(random_network(&config, Pool::Mean, 5), lengths)
    }

    pub(super) fn of(network: Network, lengths: Lengths) -> Subject {
        let vocabulary = network.embedding.vocabulary;
        let text = |t: usize| {
            let length = [16, 3, 9, 1, 12, 5, 16, 7][t % 8];
            let id = |i: usize| ((i * 31 + t * 17 + i * i * t) % vocabulary) as u32;
            TokenIds::new((0..length).map(id).collect())
        };
        Subject::with(network, (0..PLACES).map(text).collect(), lengths)
    }

    fn with(network: Network, texts: Vec<TokenIds>, lengths: Lengths) -> Subject {
        let (mut plan, params) = insecure_plan(LOG_N, 14, network.embedding.width).unwrap();
        let layout = Interleave::new(params.slots(), ROWS).unwrap();
        assert!(layout.texts() == PLACES && texts.len() >= PLACES);
        let embedded: Vec<Matrix<f64>> = texts
            .iter()
            .map(|text| plain::start(&network.program_of_all_rows(), vec![text.clone()]).unwrap().values)
            .collect();
        let structure = Structure::default();
        let choices = measure(&network, &embedded, &structure, ROWS, (15, 15)).choices;
        plan.rows = ROWS;
        plan.lengths = lengths;
        plan.input_bound = largest(&embedded);
        let width = network.layers[0].attention.heads.width;
        plan.placement = Placement::plain(params.fresh_limbs(), ROWS, width);
        // Eight levels from here to the pooling, and a spare one.
        plan.placement.feed_forward = params.bootstrap_limbs() + 9;
        let classifier = network.classifier.as_ref();
        plan.logits = classifier.map(|c| c.classes.outputs);
        plan.reply.magnitude = classifier.map_or(4.0, |c| magnitude(StepId::outside("head"), c).unwrap());
        // Less noise than a plan may declare, so that the comparison is as sharp as the engine.
        plan.reply.deviation = 3e-7;
        plan.reply.ciphertexts = plan.outputs().div_ceil(ROWS);
        let (scale, magnitude) = (params.default_scale(), plan.reply.magnitude);
        plan.reply.limbs = fewest_limbs(&params, scale, magnitude);
        Subject { params, layout, program: network.program_of_all_rows(), network, texts, embedded, choices, plan }
    }

    fn lengths(&self) -> Vec<usize> {
        self.embedded.iter().map(Matrix::rows).collect()
    }

    /// The server's part.
    fn run<S: Slots>(
        &self,
        on: &S,
        rows: RowsKnown<S::Value>,
        columns: Vec<S::Value>,
    ) -> Result<Pooled<S::Value>, FheError> {
        let placement = self.plan.placement.clone();
        let bound = self.plan.input_bound;
        on.at(StepId::outside("input"));
        let mut pass = Pass::new(on, &self.program, &self.choices, placement, rows, bound)?;
        pass.run(columns)
    }

    fn simulated(&self, on: &Simulator) -> Vec<Vec<f64>> {
        if self.plan.placement.per_place > 1 {
            let (program, choices, placement) = (&self.program, &self.choices, &self.plan.placement);
            let (lengths, bound) = (self.plan.lengths, self.plan.input_bound);
            let batch = Batch { program, choices, placement, lengths, bound };
            return batch.run(on, ROWS, &self.embedded, None).unwrap();
        }
        let vector = |v: Vec<f64>| on.vector(v, on.top()).unwrap();
        let lengths = self.lengths();
        let rows = if self.plan.lengths.encrypted() {
            RowsKnown::private(self.layout, vector(token_rows(self.layout, &lengths)))
        } else {
            RowsKnown::public(self.layout, lengths.clone()).unwrap()
        };
        let bound = self.plan.input_bound;
        let columns: Vec<Vector> =
            packed(self.layout, &self.embedded, bound, |_, _, _| 0.0).into_iter().map(vector).collect();
        let pooled = self.run(on, rows, columns).unwrap();
        let vectors: Vec<Vec<f64>> = pooled.vectors.iter().map(|v| v.values().to_vec()).collect();
        unpack(self.layout, &lengths, pooled.width, pooled.factor, &vectors).unwrap()
    }

    /// The keys of a run with these counts.
    fn demand(&self, counts: &Counts) -> KeyDemand {
        let plan = &self.plan;
        let demand = KeyDemand::of(&self.params, counts);
        demand.with_upload(&self.params, plan.placement.upload, plan.width)
    }

    /// The reply as it leaves.
    pub(super) fn reply(&self) -> Vec<Ciphertext> {
        let simulator = Simulator::new(&self.params, self.params.slots()).unwrap();
        self.simulated(&simulator);
        self.encrypted(&self.demand(&simulator.tally().counts())).reply
    }

    /// Client and server.
    fn encrypted(&self, demand: &KeyDemand) -> Answered {
        let keys = Keys::new(&self.params, |b| demand.specs(&self.params, b).unwrap());
        self.encrypted_with(&keys)
    }

    fn encrypted_with(&self, keys: &Keys) -> Answered {
        let mut rng = seeded(11);
        let public = Arc::new(PublicKey::generate(&keys.key, &mut rng));
        let client = FheClient::new(
            self.plan.clone(),
            &self.params,
            self.network.embedding.clone(),
            Some(self.network.embedding_norm.clone()),
            self.network.pool,
        )
        .unwrap();
        // The client.
        let upload = client.pack(&self.texts, None).unwrap();
        let mut sent: Vec<Ciphertext> =
            (0..upload.count()).map(|i| upload.encrypt(i, &keys.encryptor, &mut rng).unwrap().expand()).collect();
        // The server.
        let on = &keys.on;
        let rows = if self.plan.lengths.encrypted() {
            RowsKnown::private(self.layout, sent.pop().unwrap())
        } else {
            let packing = SequencePacking::new(ROWS, self.plan.placement.per_place, upload.declared());
            RowsKnown::shared(self.layout, packing.unwrap()).unwrap()
        };
        let columns = sent.iter().flat_map(|z| on.split(z).unwrap());
        let columns = columns.take(self.plan.width).collect();
        let pooled = self.run(on, rows, columns).unwrap();
        let secret = ReplySecret::from_bytes(Zeroizing::new([9; 32]));
        let reply =
            seal_reply(&self.params, &public, &self.plan.reply, &pooled.vectors, 0.0, &secret, &[b"request"]).unwrap();
        // The client again, which knows of errors only what the plan says.
        let noise = self.plan.reply.noise();
        let received: Vec<Ciphertext> = reply.iter().map(|ct| ct.clone().with_noise(noise)).collect();
        let rows = client.open(keys.decryptor(), &received, upload.lengths()).unwrap();
        let raw: Vec<Vec<f64>> = reply.iter().map(|ct| keys.open(ct)).collect();
        let (width, factor, most) = (pooled.width, pooled.factor, self.plan.placement.per_place);
        // The vectors of the first texts of all places come first.
        let of_number = |(number, vectors): (usize, &[Vec<f64>])| {
            let lengths: Vec<usize> = upload.lengths().iter().copied().skip(number).step_by(most).collect();
            unpack(self.layout, &lengths, width, factor, vectors).unwrap()
        };
        let raw: Vec<Vec<Vec<f64>>> = raw.chunks(width.div_ceil(ROWS)).enumerate().map(of_number).collect();
        let texts = &upload.arranged().texts;
        let raw = texts.iter().map(|at| raw[at % most][at / most].clone()).collect();
        Answered { rows: texts.iter().map(|&at| rows[at].clone().unwrap()).collect(), raw, reply }
    }
}

/// One and a half times as many texts as places: the client packs them, and opens the answers in their order.
#[test]
fn an_encrypted_batch_of_texts_that_share_places_is_the_simulated_and_the_clear_one() {
    let mut config = tiny_config();
    config.layers = 1;
    let network = random_network(&config, Pool::Mean, 5);
    let text = |t: usize| {
        let length = [16, 3, 9, 1, 12, 5, 16, 7][t % 8];
        TokenIds::new((0..length).map(|i| ((i * 31 + t * 17 + i * i * t) % config.vocabulary) as u32).collect())
    };
    let mut subject = Subject::with(network, (0..24).map(text).collect(), Lengths::Public);
    subject.plan.placement.per_place = 4;
    subject.plan.reply.ciphertexts *= 4;
    let answered = assert_answered(&subject);
    assert_eq!(answered.reply.len(), subject.plan.reply.ciphertexts);
}

/// Checks that a run has made every visit of its timetable, in order, and no visit that is not there.
fn kept_to(clock: &Clock, table: &Timetable) {
    clock.at(StepId::outside("end"));
    let end = clock.progress().unwrap();
    assert!((end.worked - table.seconds()).abs() < 1e-9 * table.seconds());
    assert_eq!((end.done(), end.left()), (1.0, 0.0));
    let visited: BTreeSet<StepId> = table.visits().map(|visit| visit.0).collect();
    let measured = clock.seconds();
    let found: BTreeSet<StepId> = measured.iter().map(|step| step.0).collect();
    assert_eq!(&found - &visited, BTreeSet::from([StepId::outside("end")]));
    assert_eq!(&visited - &found, BTreeSet::new());
}

/// Root mean square of the differences.
fn spread(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    let (sum, count) = pairs.fold((0.0, 0.0), |(s, n), (a, b)| (s + (a - b) * (a - b), n + 1.0));
    (sum / f64::max(count, 1.0)).sqrt()
}

/// Lengths are private, every place of the batch has a text, and no two are alike.
#[test]
fn an_encrypted_model_is_the_simulated_and_the_clear_one() {
    let subject = Subject::new(2, Lengths::Private);
    let (plan, answered) = (&subject.plan, assert_answered(&subject));
    for ct in &answered.reply {
        assert_eq!(ct.limbs(), plan.reply.limbs);
        assert!(ct.scale().matches(Scale::new(plan.reply.scale).unwrap()));
    }
    // A client rounds to the certified bits: half a unit at most, multiplied as the noise of the reply is.
    let unit = f64::exp2(-f64::from(plan.reply_bits(&subject.params)));
    let rounding = spread(&answered.rows, &answered.raw);
    println!("rounding {rounding:e}, a unit is {unit:e}");
    assert!(rounding < MEAN * 0.5 * unit && rounding > 0.1 * unit);
}

/// A classifier of three classes: its logits, and nothing of the pooled rows. A text's classes do not depend on whether
/// lengths are public.
#[test]
fn an_encrypted_classifier_is_the_simulated_and_the_clear_one() {
    let mut config = tiny_classifier_config(&TINY_LABELS);
    config.layers = 1;
    for lengths in [Lengths::Public, Lengths::Private] {
        let network = random_network(&config, Pool::First, 5);
        let subject = Subject::of(network, lengths);
        let answered = assert_answered(&subject);
        assert_eq!((answered.reply.len(), answered.rows[0].len()), (1, 3));
    }
}

/// Runs a batch under a key: its error is the predicted one, and its answers are the clear model's.
fn assert_answered(subject: &Subject) -> Answered {
    let slots = subject.params.slots();
    let exact = Simulator::new(&subject.params, slots).unwrap();
    let expected = subject.simulated(&exact);
    let counts = exact.tally().counts();
    let simulator = Simulator::new(&subject.params, slots).unwrap();
    let predicted = spread(&subject.simulated(&simulator.with_errors(3)), &expected);
    let answered = subject.encrypted(&subject.demand(&counts));
    assert_eq!(answered.rows.len(), subject.texts.len());
    let error = spread(&answered.raw, &expected);
    let pooled = match subject.network.pool {
        Pool::Mean => MEAN,
        _ => 1.0,
    };
    let noise = pooled * 10.0 * subject.plan.reply.deviation;
    println!("error {error:e}, predicted {predicted:e} and {noise:e}");
    assert!(error < 3.0 * predicted + noise);
    for (text, found) in subject.texts.iter().zip(&answered.rows) {
        let clear = plain::run(&subject.program, vec![text.clone()], |_, _| ());
        let clear = clear.unwrap().values.row(0).to_vec();
        assert_eq!(found.len(), clear.len());
        let near = nearness(found, &clear, length(&clear));
        println!("nearness {near:.6}");
        assert!(near > 0.9999, "{near}");
    }
    answered
}

/// A simulation folds all that a run reads: weights are not needed again, and replies have the same bytes.
#[test]
fn a_prepared_model_is_run_without_its_weights() {
    let mut subject = Subject::new(2, Lengths::Private);
    let before = subject.reply();
    let folded: Arc<Folded> = Arc::default();
    let on = || Simulator::new(&subject.params, subject.params.slots()).unwrap();
    let on = (on(), on().keeping(Arc::clone(&folded)));
    subject.simulated(&on.1);
    let demand = subject.demand(&on.1.tally().counts());
    subject.program = subject.program.without_weights();
    let mut keys = Keys::new(&subject.params, |b| demand.specs(&subject.params, b).unwrap());
    keys.on.keep(folded);
    for _ in 0..2 {
        let after = subject.encrypted_with(&keys).reply;
        assert_eq!(before.len(), after.len());
        for (one, two) in before.iter().zip(&after) {
            assert!(one.a() == two.a() && one.b() == two.b());
        }
    }
    // Without what was folded there is nothing to run.
    let on = on.0;
    let rows = RowsKnown::public(subject.layout, subject.lengths()).unwrap();
    let zeros = |_| on.vector(vec![0.0; on.slots()], on.top()).unwrap();
    let columns = (0..subject.plan.width).map(zeros).collect();
    let refused = subject.run(&on, rows, columns).err().unwrap();
    let absent = matches!(refused, FheError::Model(ModelError::ShapesOnly { .. }));
    assert!(absent, "{refused}");
}

/// The same bytes leave with any number of threads: a retry looks like the first answer.
#[test]
fn threads_do_not_show_in_a_reply() {
    let subject = Subject::new(1, Lengths::Public);
    let replies: Vec<Vec<Ciphertext>> = [1, 2]
        .into_iter()
        .map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            pool.install(|| subject.reply())
        })
        .collect();
    for (one, two) in replies[0].iter().zip(&replies[1]) {
        assert!(one.a() == two.a() && one.b() == two.b());
    }
}

/// Spilling changes only memory: the same operations, the same bytes of a reply, and fewer live vectors. The disk use
/// that a simulation predicts is the actual one.
#[test]
fn what_is_put_on_disk_changes_no_byte_of_a_reply() {
    let mut subject = Subject::new(2, Lengths::Private);
    let count = |subject: &Subject| {
        let slots = subject.params.slots();
        let on = Simulator::new(&subject.params, slots).unwrap();
        let answer = subject.simulated(&on);
        (answer, on.tally().counts())
    };
    let (answer, plain) = count(&subject);
    let demand = subject.demand(&plain);
    let mut keys = Keys::new(&subject.params, |b| demand.specs(&subject.params, b).unwrap());
    let counters = |keys: &Keys| keys.on.evaluator().counters().snapshot();
    let start = counters(&keys);
    let params = Arc::clone(&subject.params);
    let table = |counts: &Counts| Arc::new(Timetable::new(counts, &params, &reference(1)));
    let clock = |keys: &Keys, table: &Arc<Timetable>| keys.on.clock().begin(Arc::clone(table));
    let planned = table(&plain);
    clock(&keys, &planned);
    let before = subject.encrypted_with(&keys).reply;
    kept_to(keys.on.clock(), &planned);
    let done = counters(&keys).since(&start);

    subject.plan.placement.spill_attention = true;
    let attention = count(&subject);
    subject.plan.placement.spill_feed_forward = true;
    let both = count(&subject);
    let moved = |op: Op| matches!(op, Op::Store | Op::Load);
    for (found, counts) in [&attention, &both] {
        assert_eq!(*found, answer);
        let mut operations = counts.operations.clone();
        operations.retain(|count| !moved(count.op));
        assert_eq!(operations, plain.operations);
        assert_eq!(counts.total(Op::Store), counts.total(Op::Load));
        assert!(counts.disk > 0 && counts.total(Op::Store) > 0);
    }
    assert_eq!((plain.disk, plain.total(Op::Store)), (0, 0));
    let peak = |counts: &Counts, site: &str| {
        let found = counts.peaks.iter().find(|peak| peak.site.to_string() == site);
        found.unwrap().residues
    };
    let [scores, down] = ["layer.0.attention.scores", "layer.0.feed_forward.down"];
    assert!(peak(&attention.1, scores) < peak(&plain, scores));
    assert!(peak(&both.1, down) < peak(&attention.1, down));
    assert!(both.1.peak() < plain.peak());

    // There is no folder for it yet.
    let refused = keys.on.store(Vec::new()).err().unwrap();
    assert!(matches!(refused, FheError::Unsupported { .. }), "{refused}");
    let folder = tempfile::tempdir().unwrap();
    keys.on.spill_to(SpillFolder::open(folder.path()).unwrap());
    let start = counters(&keys);
    let planned = table(&both.1);
    clock(&keys, &planned);
    let after = subject.encrypted_with(&keys).reply;
    kept_to(keys.on.clock(), &planned);
    assert_eq!(counters(&keys).since(&start), done);
    assert_eq!(before.len(), after.len());
    for (one, two) in before.iter().zip(&after) {
        assert!(one.a() == two.a() && one.b() == two.b());
    }
    let bytes = |op: Op| -> u64 {
        let those = both.1.operations.iter().filter(|c| c.op == op);
        those.map(|c| c.times * Ciphertext::list_bytes(&subject.params, c.limbs, 1) as u64).sum()
    };
    let used = keys.on.spilled();
    assert_eq!((used.written, used.read, used.peak), (bytes(Op::Store), bytes(Op::Load), both.1.disk));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
