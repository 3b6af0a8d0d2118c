//! A whole small decoder in packed rows: simulated, compared with the clear model; and planned, encrypted by its
//! client, run by a server that only has evaluation keys, and opened by the client.

use std::path::Path;
use std::sync::Arc;

use hushed_ckks::keys::PublicKey;
use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::testing::{ternary_config, ternary_network};
use hushed_model::{Matrix, Model, NetworkConfig, Pool, Program, TokenIds, Weigh, cosine};

use super::Encrypted;
use super::testing::{Keys, assert_too_deep, distance, planned, received, seeded};
use crate::FheError;
use crate::calibrate::decoder::{Degrees, measure};
use crate::choices::{Choices, ScoresChoice};
use crate::clear::{all_rows, last_row};
use crate::inputs::bound_of_inputs;
use crate::pass::{Pass, Texts};
use crate::plan::packed::placed;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, FhePlan, Lengths, named};
use crate::plan::{FheOptions, FhePlanReport, dry_run, packed_placement, reference};
use crate::run::client::FheClient;
use crate::run::job::bootstrap;
use crate::simulate::{Batch, Op, Simulator, embedded};
use crate::testing::operations;

/// 256 slots: two texts of 16 rows and 8 places.
const PARAMETERS: &str = "insecure-test/9/14";
const ROWS: usize = 16;

pub(super) struct Subject {
    params: Arc<CkksParams>,
    program: Program,
    texts: Vec<TokenIds>,
    choices: Choices,
}

impl Subject {
    pub(super) fn new(config: &NetworkConfig) -> Subject {
        Subject::seeded(config, 3)
    }

    fn seeded(config: &NetworkConfig, seed: u64) -> Subject {
        let program = ternary_network(config, seed).program_of_all_rows();
        let text = |t: usize, length: usize| {
            let id = |i: usize| ((i * 31 + t * 17 + i * i * (t + 1)) % config.vocabulary) as u32;
            TokenIds::new((0..length).map(id).collect())
        };
        let lengths = [11, 16, 3, 1].iter().enumerate();
        let texts: Vec<TokenIds> = lengths.map(|(t, &length)| text(t, length)).collect();
        let seen = measure(&program, &texts, &[]).unwrap();
        let degrees = Degrees { scores: 15, activation: 15 };
        let mut choices = Choices::unnamed(ROWS, Vec::new(), None);
        choices.decoder = Some(seen.choice(&program, degrees, (ROWS, 14)).unwrap());
        Subject { params: named(PARAMETERS).unwrap(), program, texts, choices }
    }

    fn placement(&self, columns: usize) -> Placement {
        let options = self.options(AnswerRows::Last);
        placed(&self.program, &self.choices, &self.params, &options, columns).unwrap()
    }

    fn embedded(&self) -> Vec<Matrix<f64>> {
        let texts = self.texts.iter();
        texts.map(|t| embedded(&self.program, t).unwrap()).collect()
    }

    fn simulated(
        &self,
        on: &Simulator,
        placement: &Placement,
        answer: AnswerRows,
        texts: &[Matrix<f64>],
    ) -> Result<Vec<Vec<f64>>, FheError> {
        let batch = Batch {
            program: &self.program,
            choices: &self.choices,
            placement,
            lengths: Lengths::Private,
            bound: bound_of_inputs(&self.program, ROWS)?,
        };
        batch.read_at(on, ROWS, texts, answer)
    }

    fn options(&self, answer: AnswerRows) -> FheOptions {
        FheOptions {
            rows: ROWS,
            texts: 1,
            lengths: Lengths::Private,
            answer,
            max_memory: None,
            per_place: 1,
            uplink: 1e7,
            prices: reference(1),
            placement: None,
        }
    }

    fn plan(&self, answer: AnswerRows) -> FhePlan {
        let options = self.options(answer);
        planned(&self.program, &self.choices, PARAMETERS, &options, &self.texts)
    }

    /// The client's part for two texts.
    fn request(&self, plan: &FhePlan) -> Request {
        let key_plan = plan.key_specs(&self.params).unwrap();
        let keys = Keys::new(&self.params, |_| key_plan);
        let mut rng = seeded(7);
        let public = Arc::new(PublicKey::generate(&keys.key, &mut rng));
        let embedding = self.program.embedding().unwrap().clone();
        let client = FheClient::new(plan.clone(), &self.params, embedding, None, Pool::Last);
        let client = client.unwrap();
        let upload = client.pack(&self.texts[..2], None).unwrap();
        assert!(upload.declared().iter().all(|&length| length == 0));
        let sent = upload.encrypt(0, &keys.encryptor, &mut rng).unwrap();
        Request { sent: sent.expand(), lengths: upload.lengths().to_vec(), keys, public, client }
    }

    /// The server's part, every layer as if from a checkpoint.
    fn served(&self, on: &Encrypted, plan: &FhePlan, sent: Ciphertext) -> Vec<Ciphertext> {
        let layout = plan.layout(&self.params).unwrap();
        let read = Texts::PackedLast(layout, plan.answer.unwrap());
        let (program, choices) = (&self.program, &self.choices);
        let (placement, bound) = (plan.placement.clone(), plan.input_bound);
        let mut pass = Pass::over(on, (program, choices), placement, read, bound).unwrap();
        let mut x = pass.start(vec![sent]).unwrap();
        for layer in 0..pass.layers() {
            x = pass.layer(layer, x).unwrap();
            x = pass.resume(layer + 1, x.columns).unwrap();
        }
        pass.finish(x).unwrap().vectors
    }

    /// Two replies to two texts: the second by what the first has kept, without the model's weights.
    pub(super) fn replies(mut self, answer: AnswerRows) -> [Vec<Ciphertext>; 2] {
        let plan = self.plan(answer);
        let mut request = self.request(&plan);
        request.keys.on.keep(Arc::default());
        let reply = |subject: &Subject| {
            let answer = subject.served(&request.keys.on, &plan, request.sent.clone());
            received(&plan, &subject.params, &request.public, &answer)
        };
        let first = reply(&self);
        self.program = self.program.without_weights();
        [first, reply(&self)]
    }
}

/// A client's keys and request.
struct Request {
    keys: Keys,
    public: Arc<PublicKey>,
    client: FheClient,
    sent: Ciphertext,
    lengths: Vec<usize>,
}

fn clear(program: &Program, text: &TokenIds, answer: AnswerRows) -> Vec<f64> {
    let rows = match answer {
        AnswerRows::Rows => all_rows(program, text),
        _ => last_row(program, text),
    };
    rows.unwrap()
}

/// All texts, at the last row and at all rows; columns in one vector, and in two; keys shared by heads.
#[test]
fn a_simulated_decoder_in_packed_rows_is_the_clear_one() {
    for (heads, keys, columns) in [(2, 2, 8), (4, 2, 8), (2, 1, 4)] {
        let subject = Subject::new(&ternary_config(heads, keys));
        let (texts, placement) = (subject.embedded(), subject.placement(columns));
        for (answer, noisy) in [(AnswerRows::Last, false), (AnswerRows::Rows, true)] {
            let mut on = Simulator::new(&subject.params, 256).unwrap();
            if noisy {
                on = on.with_errors(1);
            }
            let found = subject.simulated(&on, &placement, answer, &texts).unwrap();
            for (text, found) in subject.texts.iter().zip(&found) {
                let clear = clear(&subject.program, text, answer);
                assert_eq!(found.len(), clear.len());
                for (found, clear) in found.chunks(16).zip(clear.chunks(16)) {
                    let near = cosine(found, clear);
                    assert!(near > 0.9995, "{heads} heads over {keys}: {near}");
                }
            }
            // A layer refreshes its columns twice, and a root in each half; the upload is refreshed, the last layer's
            // columns are not, and the last norm's variance is.
            let texts = 256 / (ROWS * columns);
            let runs = subject.texts.len().div_ceil(texts) as u64;
            let vectors = 8 / columns as u64;
            let counts = on.tally().counts();
            assert_eq!(counts.total(Op::Bootstrap), runs * (4 * vectors + 4 + 1));
        }
    }
}

/// Operations depend on shapes, not on weights. Steps of iterations are part of the choices, which may differ.
#[test]
fn two_sets_of_weights_in_packed_rows_take_the_same_operations() {
    for (heads, keys, columns) in [(2, 2, 8), (2, 1, 4)] {
        let counts = |seed: u64| {
            let mut subject = Subject::seeded(&ternary_config(heads, keys), seed);
            subject.texts.truncate(2);
            let decoder = subject.choices.decoder.as_mut().unwrap();
            for layer in &mut decoder.layers {
                (layer.attention_norm.steps, layer.feed_forward_norm.steps) = (1, 1);
            }
            decoder.norm.steps = 1;
            let (texts, placement) = (subject.embedded(), subject.placement(columns));
            let on = Simulator::new(&subject.params, 256).unwrap();
            let found = subject.simulated(&on, &placement, AnswerRows::Last, &texts);
            let counts = on.tally().counts();
            let operations = serde_json::to_string(&counts.operations).unwrap();
            (operations, counts.rotations, found.unwrap())
        };
        let (one, other) = (counts(3), counts(4));
        assert_eq!((&one.0, &one.1), (&other.0, &other.1));
        assert!(one.2 != other.2);
    }
}

/// A later token changes no row before it.
#[test]
fn packed_rows_are_causal() {
    let mut subject = Subject::new(&ternary_config(2, 2));
    subject.texts.truncate(2);
    let placement = subject.placement(8);
    let on = Simulator::new(&subject.params, 256).unwrap();
    let run = |subject: &Subject| {
        let texts = subject.embedded();
        let found = subject.simulated(&on, &placement, AnswerRows::Rows, &texts);
        found.unwrap().remove(0)
    };
    let before = run(&subject);
    let mut ids = subject.texts[0].ids().to_vec();
    ids[7] = (ids[7] + 1) % 97;
    subject.texts[0] = TokenIds::new(ids);
    let after = run(&subject);
    let apart = |row: usize| distance(&before[16 * row..][..16], &after[16 * row..][..16]);
    assert!((0..7).all(|row| apart(row) < 1e-9));
    assert!((7..11).all(|row| apart(row) > 1e-3));
}

/// Two prompts, at all rows, through the files' types; every layer as if from a checkpoint.
#[test]
fn encrypted_prompts_are_answered_as_the_model_answers_them() {
    let subject = Subject::new(&ternary_config(2, 2));
    let answer = AnswerRows::Rows;
    let plan = subject.plan(answer);
    let (plan, _) = FhePlan::from_json(&plan.to_json().unwrap()).unwrap();
    let params = &subject.params;
    assert_eq!((plan.placement.columns, plan.request_ciphertexts()), (8, 1));
    assert_eq!((plan.places(params).unwrap(), plan.reply.ciphertexts), (2, 1));
    let texts = &subject.embedded()[..2];
    let on = Simulator::new(params, params.slots()).unwrap();
    let on = on.with_errors(2);
    let simulated = subject.simulated(&on, &plan.placement, answer, texts);
    let simulated = simulated.unwrap();

    let request = subject.request(&plan);
    let counters = request.keys.on.evaluator().counters();
    counters.reset();
    let found = subject.served(&request.keys.on, &plan, request.sent);
    let done = counters.snapshot();
    let received = received(&plan, params, &request.public, &found);
    let opened = request.client.open(request.keys.decryptor(), &received, &request.lengths);
    for ((text, opened), simulated) in subject.texts.iter().zip(opened.unwrap()).zip(&simulated) {
        let (opened, clear) = (opened.unwrap(), clear(&subject.program, text, answer));
        assert_eq!(opened.len(), clear.len());
        let near = cosine(&opened, &clear);
        assert!(near > 0.9995, "{near}");
        let apart = distance(&opened, simulated);
        println!("cosine {near:.7}, from the simulation {apart:.1e}");
        assert!(apart < 2e-3, "{apart}");
    }
    // The run does what was planned.
    let options = subject.options(answer);
    let (program, choices) = (&subject.program, &subject.choices);
    let run = dry_run(program, choices, params, &options, &plan.placement);
    assert_eq!(done.bootstrap, run.unwrap().counts.total(Op::Bootstrap));
}

#[test]
fn decoders_that_packed_rows_do_not_take_are_refused_by_name() {
    let config = NetworkConfig { sub_norms: true, ..ternary_config(2, 2) };
    let subject = Subject::new(&config);
    let place = |subject: &Subject| {
        let options = subject.options(AnswerRows::Last);
        packed_placement(&subject.program, &subject.choices, &subject.params, &options)
    };
    let refused = place(&subject).err().unwrap();
    assert!(refused.to_string().contains("norm inside"), "{refused}");
    let softmax = Subject::new(&NetworkConfig { weigh: Weigh::Softmax, ..ternary_config(2, 2) });
    let refused = place(&softmax).err().unwrap();
    assert!(refused.to_string().contains("softmax attention"), "{refused}");
    // Attention has fourteen levels with degree 15, and no more.
    let mut deep = Subject::new(&ternary_config(2, 2));
    assert!(place(&deep).unwrap().is_some());
    let decoder = deep.choices.decoder.as_mut().unwrap();
    let ScoresChoice::Sigmoid(scores) = &mut decoder.layers[1].scores else {
        panic!("another function");
    };
    scores.degree = 31;
    let refused = place(&deep).err().unwrap();
    assert_too_deep(refused, "layer.1.attention.norm");
}

/// The decoder of `data/decoder-small` and its calibration: the operations of one prompt, and so its seconds and keys.
#[test]
fn one_prompt_of_the_small_decoder_is_planned() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/decoder-small");
    let program = Model::load(&folder).unwrap().program_of_all_rows();
    let choices = Choices::from_json(&std::fs::read(folder.join("calibration-fhe.json")).unwrap()).unwrap();
    let params = CkksParams::preset("n16-boot-14x40").unwrap();
    let mut options = FheOptions { rows: 128, ..Subject::new(&ternary_config(2, 2)).options(AnswerRows::Last) };
    options.placement = packed_placement(&program, &choices, &params, &options).unwrap();
    let (_, keys) = bootstrap(&params).unwrap();
    let plan = FhePlanReport::new(&program, &choices, true, &params, &keys, &options).unwrap();
    assert_eq!(operations(&plan), [17, 3437, 619, 1500, 1186, 98]);
}
