//! One text of a whole small BERT in packed rows: planned, encrypted by its client, run by a server that only has
//! evaluation keys, opened by the client; compared with the same run in the simulator and with the model in the clear.

use std::sync::Arc;

use hushed_ckks::keys::PublicKey;
use hushed_ckks::{Ciphertext, CkksParams, Complex64};
use hushed_model::testing::{TINY_LABELS, tiny_classifier_config, tiny_config};
use hushed_model::{Matrix, Network, Pool, Program, StepId, TokenIds, cosine, plain, random_network};

use super::testing::{Keys, assert_too_deep, distance, planned, received, seeded};
use crate::ops::packed::pool::unpack;
use crate::ops::packed::rows::PackedRows;
use crate::ops::pool::{self, Pooled};
use crate::packing::{Interleave, PackingError};
use crate::plan::public_plan::{AnswerRows, FhePlan, Lengths, PlanFileError, named};
use crate::plan::{FheOptions, FhePlanReport, dry_run, packed_placement, reference};
use crate::run::client::FheClient;
use crate::run::job::bootstrap;
use crate::simulate::{Batch, Op, Simulator, Vector};
use crate::testing::{Structure, largest, measure, packed};
use crate::{Choices, FheError, KeyDemand, Pass, Placement, RowsKnown, Slots};

/// 256 slots: one text of 16 rows and 16 places.
const PARAMETERS: &str = "insecure-test/9/14";
const ROWS: usize = 16;

pub(super) struct Subject {
    params: Arc<CkksParams>,
    network: Network,
    program: Program,
    texts: Vec<TokenIds>,
    embedded: Vec<Matrix<f64>>,
    /// In the clear.
    answers: Vec<Vec<f64>>,
    choices: Choices,
}

/// A client's keys and request.
struct Request {
    keys: Keys,
    public: Arc<PublicKey>,
    client: FheClient,
    sent: Vec<Ciphertext>,
    declared: Vec<usize>,
    lengths: Vec<usize>,
}

impl Subject {
    pub(super) fn new() -> Subject {
        Subject::of(random_network(&tiny_config(), Pool::Mean, 5))
    }

    fn of(network: Network) -> Subject {
        let text = |t: usize, length: usize| {
            let id = |i: usize| ((i * 31 + t * 17 + i * i * t) % 90) as u32;
            TokenIds::new((0..length).map(id).collect())
        };
        let texts: Vec<TokenIds> = [11, 16, 3, 7].iter().enumerate().map(|(t, &length)| text(t, length)).collect();
        let embedded: Vec<Matrix<f64>> = texts
            .iter()
            .map(|text| {
                let start = plain::start(&network.program_of_all_rows(), vec![text.clone()]);
                start.unwrap().values
            })
            .collect();
        // A head with a fixed pattern, and a first row that is replaced.
        let structure = match network.classifier {
            // Compared with the unchanged model.
            Some(_) => Structure::default(),
            None => Structure { previous: vec![(0, 1)], frozen_layers: 1 },
        };
        let measured = measure(&network, &embedded, &structure, ROWS, (15, 15));
        let logits = |text: &TokenIds| {
            let clear = plain::run(&network.program_of_all_rows(), vec![text.clone()], |_, _| ());
            clear.unwrap().values.row(0).to_vec()
        };
        let answers = match network.classifier {
            Some(_) => texts.iter().map(logits).collect(),
            None => measured.pooled,
        };
        Subject {
            params: named(PARAMETERS).unwrap(),
            program: network.program_of_all_rows(),
            network,
            texts,
            embedded,
            answers,
            choices: measured.choices,
        }
    }

    fn options(&self, lengths: Lengths, texts: usize) -> FheOptions {
        FheOptions {
            rows: ROWS,
            texts,
            lengths,
            answer: AnswerRows::Last,
            max_memory: None,
            per_place: 1,
            uplink: 1e7,
            prices: reference(1),
            placement: None,
        }
    }

    fn plan(&self, lengths: Lengths, texts: usize) -> FhePlan {
        let options = self.options(lengths, texts);
        planned(&self.program, &self.choices, PARAMETERS, &options, &self.texts)
    }

    fn client(&self, plan: &FhePlan) -> FheClient {
        let network = &self.network;
        let (embedding, norm) = (network.embedding.clone(), Some(network.embedding_norm.clone()));
        FheClient::new(plan.clone(), &self.params, embedding, norm, network.pool).unwrap()
    }

    /// The server's part: the vectors after each layer, each as if from a checkpoint, and those of the answer.
    fn served<S: Slots>(
        &self,
        on: &S,
        plan: &FhePlan,
        declared: &[usize],
        mut sent: Vec<S::Value>,
    ) -> Vec<Vec<S::Value>> {
        let layout = plan.layout(&self.params).unwrap();
        let rows = match plan.lengths.encrypted() {
            true => PackedRows::private(layout, sent.pop().unwrap()),
            false => PackedRows::new(layout, declared.to_vec()).unwrap(),
        };
        let (placement, bound) = (plan.placement.clone(), plan.input_bound);
        let pass = Pass::packed(on, &self.program, &self.choices, placement, rows, bound);
        let mut pass = pass.unwrap();
        let mut x = pass.start(sent).unwrap();
        let mut found = Vec::new();
        for layer in 0..pass.layers() {
            x = pass.layer(layer, x).unwrap();
            found.push(x.columns.clone());
            x = pass.resume(layer + 1, x.columns).unwrap();
        }
        found.push(pass.finish(x).unwrap().vectors);
        found
    }

    /// The client's part for the first texts.
    fn request(&self, plan: &FhePlan, count: usize) -> Request {
        let key_plan = plan.key_specs(&self.params).unwrap();
        let keys = Keys::new(&self.params, |_| key_plan);
        let mut rng = seeded(7);
        let public = Arc::new(PublicKey::generate(&keys.key, &mut rng));
        let client = self.client(plan);
        let upload = client.pack(&self.texts[..count], None).unwrap();
        let sent = (0..upload.count()).map(|i| {
            let sent = upload.encrypt(i, &keys.encryptor, &mut rng).unwrap();
            sent.expand()
        });
        Request {
            sent: sent.collect(),
            declared: upload.declared(),
            lengths: upload.lengths().to_vec(),
            keys,
            public,
            client,
        }
    }

    /// Two replies to one text: the second by what the first has kept, without the model's weights.
    pub(super) fn replies(mut self, lengths: Lengths) -> [Vec<Ciphertext>; 2] {
        let plan = self.plan(lengths, 1);
        let mut request = self.request(&plan, 1);
        request.keys.on.keep(Arc::default());
        let reply = |subject: &Subject| {
            let (on, sent) = (&request.keys.on, request.sent.clone());
            let mut served = subject.served(on, &plan, &request.declared, sent);
            let answer = served.pop().unwrap();
            received(&plan, &subject.params, &request.public, &answer)
        };
        let first = reply(&self);
        self.program = self.program.without_weights();
        [first, reply(&self)]
    }

    fn interleave(&self) -> Interleave {
        Interleave::new(self.params.slots(), ROWS).unwrap()
    }

    fn lengths(&self) -> Vec<usize> {
        self.embedded.iter().map(Matrix::rows).collect()
    }

    /// All texts in a batch, one vector per column, divided by `bound`.
    fn batch<S: Slots>(&self, on: &S, columns: Vec<S::Value>, bound: f64) -> Pooled<S::Value> {
        let rows = RowsKnown::public(self.interleave(), self.lengths()).unwrap();
        let width = self.network.layers[0].attention.heads.width;
        let placement = Placement::plain(self.params.fresh_limbs(), ROWS, width);
        let pass = Pass::new(on, &self.program, &self.choices, placement, rows, bound);
        pass.unwrap().run(columns).unwrap()
    }
}

/// With fixed patterns, a replaced row and padding; the same as one text of a batch, under a key too.
#[test]
fn one_text_is_answered_as_the_model_and_a_batch_answer_it() {
    let subject = Subject::new();
    let alone = &answered(&subject, (1, 1), Lengths::Public)[0];
    let batch = &in_a_batch(&subject)[0];
    let (near, apart) = (cosine(alone, batch), distance(alone, batch));
    println!("from the batch {apart:.1e}, cosine {near:.7}");
    assert!(near > 0.9999 && apart < 1e-3, "{near} {apart}");
}

/// The encrypted answers to all texts in a batch.
fn in_a_batch(subject: &Subject) -> Vec<Vec<f64>> {
    let (params, limbs) = (&subject.params, subject.params.fresh_limbs());
    let on = Simulator::new(params, params.slots()).unwrap().counting();
    let shapes = (0..subject.network.embedding.width).map(|_| on.vector(Vec::new(), limbs));
    subject.batch(&on, shapes.collect::<Result<_, _>>().unwrap(), 1.0);
    let demand = KeyDemand::of(params, &on.tally().counts());
    let mut keys = Keys::new(params, |b| demand.specs(params, b).unwrap());
    let (layout, bound) = (subject.interleave(), largest(&subject.embedded));
    let columns = packed(layout, &subject.embedded, bound, |_, _, _| 0.0);
    let sent = columns.iter().map(|v| keys.encrypt(v, limbs)).collect();
    let pooled = subject.batch(&keys.on, sent, bound);
    let opened: Vec<Vec<f64>> = pooled.vectors.iter().map(|ct| keys.open(ct)).collect();
    let (width, factor) = (pooled.width, pooled.factor);
    pool::unpack(layout, &subject.lengths(), width, factor, &opened).unwrap()
}

/// With more columns than one vector has places for.
#[test]
fn columns_in_two_vectors_are_answered_too() {
    answered(&Subject::new(), (2, 2), Lengths::Public);
}

/// The server knows neither how many rows are tokens nor whether there is a second text.
#[test]
fn private_lengths_are_answered_too() {
    answered(&Subject::new(), (1, 1), Lengths::Private);
    answered(&Subject::new(), (2, 1), Lengths::Private);
}

/// Three logits, and nothing of the pooled rows.
#[test]
fn a_classifier_answers_one_text() {
    let mut config = tiny_classifier_config(&TINY_LABELS);
    config.layers = 2;
    let subject = Subject::of(random_network(&config, Pool::First, 5));
    answered(&subject, (1, 1), Lengths::Public);
    answered(&subject, (1, 1), Lengths::Private);
}

/// The answers to `count` texts in `places` places, and as many vectors of columns.
fn answered(subject: &Subject, (places, count): (usize, usize), lengths: Lengths) -> Vec<Vec<f64>> {
    let plan = subject.plan(lengths, places);
    let (plan, _) = FhePlan::from_json(&plan.to_json().unwrap()).unwrap();
    let hidden = usize::from(lengths.encrypted());
    assert_eq!((plan.placement.columns, plan.request_ciphertexts()), (16 / places, places + hidden));
    assert_eq!(plan.places(&subject.params).unwrap(), places);
    let batch = Batch {
        program: &subject.program,
        choices: &subject.choices,
        placement: &plan.placement,
        lengths,
        bound: plan.input_bound,
    };
    let on = Simulator::new(&subject.params, subject.params.slots()).unwrap();
    let on = on.with_errors(2);
    let texts = &subject.embedded[..count];
    let simulated = batch.run(&on, ROWS, texts, None).unwrap();

    let Request { mut keys, public, client, sent, declared, lengths: rows } = subject.request(&plan, count);
    let deviation = keys.refresh_deviation();
    if lengths.encrypted() {
        assert_eq!(declared, vec![0; places]);
    }
    let open = |ct: &Ciphertext| keys.decryptor().decrypt_raw(ct).unwrap();
    // Simulations begin with what the ciphertexts hold, as they have no errors of encryption.
    let held: Vec<Vec<Complex64>> = sent.iter().map(open).collect();
    let on = &keys.on;
    on.evaluator().counters().reset();
    let mut served = subject.served(on, &plan, &declared, sent);
    let done = on.evaluator().counters().snapshot();
    let stages = served.iter().map(|v| v.iter().flat_map(open).collect());
    let stages: Vec<Vec<Complex64>> = stages.collect();
    errs_as_predicted(subject, &plan, (&declared, &held), deviation, &stages);
    let answer = served.pop().unwrap();
    let received = received(&plan, &subject.params, &public, &answer);
    let opened = client.open(keys.decryptor(), &received, &rows);
    let opened: Vec<Vec<f64>> = opened.unwrap().into_iter().flatten().collect();
    assert_eq!(opened.len(), count);
    for ((opened, clear), simulated) in opened.iter().zip(&subject.answers).zip(&simulated) {
        let near = cosine(opened, clear);
        assert!(near > 0.9999, "{near}");
        assert_eq!(opened.len(), clear.len());
        let apart = distance(opened, simulated);
        assert!(apart < 2e-3, "{apart}");
    }

    // Everything but the answer is zero before noise is added.
    let layout = plan.layout(&subject.params).unwrap();
    let columns = plan.packed_answers(&subject.params).unwrap().unwrap();
    let mut vectors = Vec::new();
    for ct in &answer {
        let slots = open(ct);
        let first = places * layout.columns();
        for (slot, z) in slots.iter().enumerate() {
            if slot >= first || slot % layout.columns() >= columns.used() {
                assert!(z.norm() < 1e-4, "slot {slot}: {z}");
            }
        }
        vectors.push(slots);
    }
    let found = unpack(layout, &columns, &vec![0..1; count], &vectors).unwrap();
    for (found, opened) in found.iter().zip(&opened) {
        assert!(distance(found, opened) < 1e-3);
    }

    // The run does what was planned.
    let options = subject.options(lengths, places);
    let run = dry_run(&subject.program, &subject.choices, &subject.params, &options, &plan.placement);
    let counts = run.unwrap().counts;
    let total = |ops: &[Op]| ops.iter().map(|&op| counts.total(op)).sum::<u64>();
    assert_eq!(done.bootstrap, total(&[Op::Bootstrap]));
    // The engine's counters include the operations inside bootstraps, which a plan prices as a whole.
    on.evaluator().counters().reset();
    let two = vec![Ciphertext::zero(&subject.params, on.floor(), on.default_scale()).unwrap(); 2];
    on.refresh(StepId::outside("one"), two, on.top()).unwrap();
    let one = on.evaluator().counters().snapshot();
    assert_eq!(one.bootstrap, 1);
    let rotations = total(&[Op::Rotate, Op::Conjugate, Op::MapBaby, Op::MapGiant]);
    let inside = |of_one: u64| done.bootstrap * of_one;
    assert_eq!(done.rotation, rotations + inside(one.rotation));
    opened
}

/// After each layer and in the answer, errors are as large as simulations predict, in root mean square over all slots.
/// So is their noise alone: most of an error is the bend of bootstraps, which every run has. Simulations begin with
/// what the ciphertexts `held`.
fn errs_as_predicted(
    subject: &Subject,
    plan: &FhePlan,
    (declared, held): (&[usize], &[Vec<Complex64>]),
    deviation: f64,
    found: &[Vec<Complex64>],
) {
    let run = |seed: Option<u64>| {
        let mut on = Simulator::new(&subject.params, subject.params.slots()).unwrap();
        if let Some(seed) = seed {
            on = on.with_errors(seed).with_refresh_deviation(deviation);
        }
        let limbs = plan.placement.upload;
        let pair = |slots: &Vec<Complex64>| {
            let part = |f: fn(&Complex64) -> f64| on.vector(slots.iter().map(f).collect(), limbs);
            on.pair(part(|z| z.re).unwrap(), part(|z| z.im).unwrap()).unwrap()
        };
        let served = subject.served(&on, plan, declared, held.iter().map(pair).collect());
        let stages = served.iter().map(|v| v.iter().flat_map(Vector::pairs).collect());
        stages.collect::<Vec<Vec<Complex64>>>()
    };
    let exact = run(None);
    let noisy: Vec<_> = (1..9).map(|seed| run(Some(seed))).collect();
    let count = noisy.len() as f64;
    assert_eq!(found.len(), exact.len());
    for (stage, found) in found.iter().enumerate() {
        let square = |a: &[Complex64], b: &[Complex64]| -> f64 {
            assert_eq!(a.len(), b.len());
            a.iter().zip(b).map(|(a, b)| (a - b).norm_sqr()).sum()
        };
        let noisy: Vec<&Vec<Complex64>> = noisy.iter().map(|run| &run[stage]).collect();
        let mean = |slot: usize| noisy.iter().map(|run| run[slot]).sum::<Complex64>() / count;
        let mean: Vec<Complex64> = (0..found.len()).map(mean).collect();
        let from = |of: &[Complex64]| noisy.iter().map(|run| square(run, of)).sum::<f64>();
        let all = square(found, &exact[stage]) / (from(&exact[stage]) / count);
        // The mean has an error of its own.
        let noise = square(found, &mean) / (1.0 + 1.0 / count) / (from(&mean) / (count - 1.0));
        let [all, noise] = [all, noise].map(f64::sqrt);
        println!("stage {stage}: {all:.2} of the predicted error, {noise:.2} of its noise");
        for ratio in [all, noise] {
            assert!((0.4..2.5).contains(&ratio), "stage {stage}: {all} {noise}");
        }
    }
}

#[test]
fn what_packed_rows_do_not_take_is_refused_by_name() {
    let subject = Subject::new();
    let program = &subject.program;
    let (choices, params) = (&subject.choices, &subject.params);
    let place = |options: &FheOptions| packed_placement(program, choices, params, options);
    // More texts than fit are a batch.
    let many = subject.options(Lengths::Public, 5);
    assert_eq!(place(&many).unwrap(), None);
    // Of 128 rows there are two places, and a head takes four. A single text is not planned as a batch unasked.
    let long = |texts| FheOptions { rows: 128, ..subject.options(Lengths::Public, texts) };
    assert_eq!(place(&long(2)).unwrap(), None);
    let refused = place(&long(1)).err().unwrap();
    assert!(matches!(refused, FheError::Unsupported { .. }), "{refused}");
    let told = "one text of 128 rows alone, as a head takes 4 places of a row and there are 2, \
                cannot run under encryption: use fewer rows, or omit --texts to plan a batch";
    assert_eq!(refused.to_string(), told);
    // A head has four pairs of columns.
    let few = FheOptions { rows: 2, ..subject.options(Lengths::Public, 1) };
    let refused = place(&few).err().unwrap();
    assert!(matches!(refused, FheError::Unsupported { .. }), "{refused}");
    let told = "layer.0.attention: 4 heads of 8 columns on 2 rows of 16 pairs";
    assert!(refused.to_string().contains(told), "{refused}");
    // A softmax that is too deep for a chain of 14 levels.
    let mut deep = choices.clone();
    deep.layers[0].attention.first_steps = 14;
    let options = subject.options(Lengths::Public, 1);
    let refused = packed_placement(program, &deep, params, &options).err().unwrap();
    assert_too_deep(refused, "layer.0.attention.weigh");
    // Less memory than its keys take.
    let (_, keys) = bootstrap(params).unwrap();
    let small = FheOptions { max_memory: Some(1 << 20), placement: place(&options).unwrap(), ..options };
    let refused = FhePlanReport::new(program, choices, false, params, &keys, &small);
    let refused = refused.err().unwrap();
    assert!(matches!(refused, FheError::Unsupported { .. }), "{refused}");
    let told = refused.to_string();
    assert!(told.contains("in 1 MiB") && told.contains("allow more memory"), "{told}");

    let plan = subject.plan(Lengths::Public, 1);
    let client = subject.client(&plan);
    let long = TokenIds::new(vec![1; ROWS + 1]);
    let refused = client.pack(&[long], None).err().unwrap();
    let rows = PackingError::RowCount { text: 0, found: ROWS + 1, rows: ROWS };
    assert!(matches!(refused, FheError::Packing(e) if e == rows));
    let two = [subject.texts[0].clone(), subject.texts[1].clone()];
    assert!(matches!(client.pack(&two, None).err().unwrap(), FheError::Packing(PackingError::TooMany { room: 1, .. })));
    // A plan with fewer places than columns of its reply.
    for change in [
        |p: &mut FhePlan| p.placement.columns = 8,
        |p: &mut FhePlan| p.placement.columns = 3,
        |p: &mut FhePlan| p.reply.ciphertexts = 2,
    ] {
        let mut other = plan.clone();
        change(&mut other);
        let refused = FhePlan::from_json(&other.to_json().unwrap()).err().unwrap();
        assert!(matches!(refused, PlanFileError::Unusable { .. }), "{refused}");
    }
    // The plans of one text and of a batch have different hashes, and so different keys.
    let mut batch = plan.clone();
    batch.placement.columns = 1;
    assert_ne!(batch.hash(), plan.hash());
}
