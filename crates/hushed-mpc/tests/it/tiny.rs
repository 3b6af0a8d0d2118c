//! A tiny model with random weights, between two parties in two threads, against the same model in the clear.

use std::sync::Arc;

use crate::common::{backend, backend_over, run_pair, tiny_of};
use hushed_model::testing::{TINY_LABELS, pruned, tiny_classifier_folder, tiny_generator, tiny_golden, tiny_model};
use hushed_model::tokens::{TokenIds, TooLong};
use hushed_model::{Declared, FUNCTIONS, Kind, Model, Pool, Step as ProgramStep, Tolerance, check, cosine};
use hushed_mpc::plan::{Exposure, Plan};
use hushed_mpc::{
    Acts, Answers, Clear, Index, Input, Link, Protocol, PublicTable, RunError, StepCost, Terms, Wanted, embeddings,
    labels, logits, opened_bits, out_of_range, search_opened_bits,
};
use hushed_net::{Stats, memory_pair};
use hushed_twopc::cost::FRAME_BYTES;
use hushed_twopc::ot::ideal::IdealPair;
use hushed_twopc::share::Share;
use hushed_twopc::testing::{Watch, reveal_signed, watched_pair};

const TEXTS: [&str; 5] = ["a", "the quick brown fox", "private questions, 123 answers!", "a third of one length", "b"];

/// The tiny model with another activation, and its owner's declaration, read from its folder.
fn tiny_with(hidden_act: &str, tolerance: Option<Tolerance>) -> Model {
    let model = tiny_of(hidden_act, |folder| {
        if let Some(tolerance) = tolerance {
            std::fs::write(folder.join(FUNCTIONS), Declared::from(tolerance).to_json()).unwrap();
        }
        assert!(check(folder).supported(), "{hidden_act}");
    });
    assert_eq!(out_of_range(&model).unwrap(), []);
    model
}

pub fn tokens(model: &Model) -> Vec<TokenIds> {
    let ids = TEXTS.map(|t| model.tokens(t, TooLong::Refuse).unwrap());
    ids.to_vec()
}

/// What a step of a pass took: the client's counters, and both parties' rounds.
pub struct Step {
    pub site: String,
    stats: Stats,
    opened_bits: u64,
    pub rounds: Option<u64>,
}

/// One party's end of one or several passes: its counters before, its steps, its counters after.
pub struct End {
    before: Stats,
    costs: Vec<StepCost>,
    after: Stats,
}

impl End {
    pub fn of(backend: &mut Protocol, before: Stats) -> End {
        let after = backend.ctx().session.stats();
        let costs = backend.costs().to_vec();
        End { before, costs, after }
    }

    /// The frame counters between steps: nothing is sent outside a step.
    fn marks(&self) -> Vec<Stats> {
        let mut at = self.before;
        let mut marks = vec![at];
        for cost in &self.costs {
            at.frames_sent += cost.stats.frames_sent;
            at.frames_received += cost.stats.frames_received;
            marks.push(at);
        }
        let last = self.after.since(&at);
        assert_eq!(last.frames_sent + last.frames_received, 0);
        marks
    }
}

pub fn steps(client: &End, server: &End, watch: &Watch) -> Vec<Step> {
    let (near, far) = (client.marks(), server.marks());
    assert_eq!(near.len(), far.len());
    let sites = client.costs.iter();
    let parts = near.windows(2).zip(far.windows(2));
    let all = sites.zip(parts);
    all.map(|(cost, (near, far))| Step {
        site: cost.step.to_string(),
        stats: cost.stats,
        opened_bits: cost.opened_bits,
        rounds: watch.rounds(&near[0]..&near[1], &far[0]..&far[1]),
    })
    .collect()
}

/// One pass between two threads: the client's answers and the cost of its steps.
pub fn run(model: &Model, texts: &[TokenIds], terms: Terms) -> (Vec<Vec<f64>>, Vec<Step>) {
    pass(model, &Input::Texts(texts.to_vec(), terms), |on, model, input| embeddings(on, model, input, Answers::Label))
}

/// The same for any answer to any client input; `run` gives a party's answers.
pub fn pass<T>(
    model: &Model,
    input: &Input,
    run: impl Fn(&mut Protocol, &Model, &Input) -> Result<Option<Vec<T>>, RunError> + Sync,
) -> (Vec<T>, Vec<Step>) {
    pass_over(Link::LAN, model, input, run)
}

/// The same over a link.
pub fn pass_over<T>(
    link: Link,
    model: &Model,
    input: &Input,
    run: impl Fn(&mut Protocol, &Model, &Input) -> Result<Option<Vec<T>>, RunError> + Sync,
) -> (Vec<T>, Vec<Step>) {
    let shapes = Model::shapes_only(&model.public);
    let terms = input.terms();
    let lengths = Input::Lengths(input.lengths(), terms);
    let (client_session, server_session, watch) = watched_pair();
    let (client_ot, server_ot) = IdealPair::new();
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut b = backend_over(link, server_session, Box::new(server_ot), Arc::default()).unwrap();
            let before = b.ctx().session.stats();
            let answer = run(&mut b, model, &lengths).unwrap();
            assert!(answer.is_none());
            End::of(&mut b, before)
        });
        let mut b = backend_over(link, client_session, Box::new(client_ot), Arc::default()).unwrap();
        if terms.public_table {
            b.set_table(public_table(model));
        }
        let before = b.ctx().session.stats();
        let answer = run(&mut b, &shapes, input).unwrap();
        let (client, server) = (End::of(&mut b, before), server.join().unwrap());
        (answer.unwrap(), steps(&client, &server, &watch))
    })
}

/// The plan matches the run: the payload bytes of every step, in each direction, and its rounds.
pub fn assert_planned(model: &Model, texts: &[TokenIds], terms: Terms, steps: &[Step]) {
    let lengths: Vec<usize> = texts.iter().map(|t| t.rows().total).collect();
    assert_planned_for(model, &lengths, terms, steps);
}

/// The same for these numbers of rows.
pub fn assert_planned_for(model: &Model, lengths: &[usize], terms: Terms, steps: &[Step]) {
    let shapes = Model::shapes_only(&model.public);
    let plan = Plan::twopc(&shapes.program(), lengths, terms, model.public.normalise, Answers::Label).unwrap();
    assert_is(&plan, steps);
}

/// The same for any plan.
pub fn assert_is(plan: &Plan, steps: &[Step]) {
    assert_eq!(plan.steps.len(), steps.len());
    for (planned, step) in plan.steps.iter().zip(steps) {
        let headers = |frames: u64| frames * FRAME_BYTES;
        let up = step.stats.bytes_sent - headers(step.stats.frames_sent);
        let down = step.stats.bytes_received - headers(step.stats.frames_received);
        assert_eq!(planned.site, step.site);
        assert_eq!(
            (up, down, step.rounds),
            (planned.bytes_up, planned.bytes_down, Some(planned.rounds)),
            "{}",
            step.site
        );
        // Nothing is opened that is not counted: it bounds what a client that cheats learns.
        assert_eq!(step.opened_bits, planned.opened_bits, "{}", step.site);
    }
    let opened: u64 = steps.iter().map(|step| step.opened_bits).sum();
    assert_eq!(opened, plan.opened_bits);
    assert!(plan.failure_log2 < -40.0 && plan.distance_log2 < -40.0);
    assert_eq!(plan.large_truncation_log2, None);
}

pub fn assert_close(private: &[Vec<f64>], clear: &[Vec<f64>]) {
    assert_eq!(private.len(), clear.len());
    for (private, clear) in private.iter().zip(clear) {
        let c = cosine(private, clear);
        assert!(c > 0.999, "cosine {c}");
    }
}

/// The private lookup adds a response's error to table and positions: at most one unit, but not zero.
#[test]
fn f7_the_private_lookup_is_a_unit_off_at_most_and_not_exact() {
    let model = tiny_model();
    let texts = tokens(&model);
    let lengths: Vec<usize> = texts.iter().map(|t| t.rows().total).collect();
    let shapes = Model::shapes_only(&model.public);
    let lookup = |party: &mut Protocol, model: &Model, input: &Input| {
        let mut found = None;
        let see = |step: &ProgramStep, x: &Acts<Share>| {
            if step.id.kind() == Kind::Embed {
                found = Some(x.share().0.clone());
            }
        };
        hushed_mpc::run(party, &model.program(), input, see).unwrap();
        found.unwrap()
    };
    let lengths = Input::Lengths(lengths, Terms::default());
    let given = Input::Texts(texts.clone(), Terms::default());
    let (client, server) = run_pair(|party| lookup(party, &shapes, &given), |party| lookup(party, &model, &lengths));
    let e = model.embedding().unwrap();
    let (table, offsets) = (e.tokens.as_deref().unwrap(), e.offsets.as_deref().unwrap());
    let unit = |v: &f32| (f64::from(*v) * f64::from(1u32 << 24)).round() as i64;
    let exact = texts.iter().flat_map(|text| {
        let rows = text.ids().iter().enumerate();
        rows.flat_map(|(i, id)| table.row(*id as usize).iter().zip(offsets.row(i)))
    });
    let exact: Vec<i64> = exact.map(|(t, p)| unit(t) + unit(p)).collect();
    let found = reveal_signed(&client, &server);
    assert_eq!(found.len(), exact.len());
    let errors = || found.iter().zip(&exact).map(|(f, e)| f - e);
    assert!(errors().all(|e| e.abs() <= 1));
    let off = errors().filter(|e| *e != 0).count() as f64 / exact.len() as f64;
    assert!((0.05..0.6).contains(&off), "{off} of the entries are off");
}

fn tiny_classifier() -> Model {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
    Model::load(folder.path()).unwrap()
}

/// The label is the clear model's wherever its top logit leads by more than a private run's error; the plan matches the
/// run; and a model with a head gives no embedding.
#[test]
fn classifiers_give_labels_and_nothing_else() {
    let model = tiny_classifier();
    let shapes = Model::shapes_only(&model.public);
    let texts = tokens(&model);
    let lengths: Vec<usize> = texts.iter().map(|t| t.rows().total).collect();
    let plan = Plan::twopc(&shapes.program(), &lengths, Terms::default(), false, Answers::Label).unwrap();
    let ((found, spent), ()) = run_pair(
        |client| {
            let input = Input::Texts(texts.clone(), Terms::default());
            let before = client.ctx().session.stats();
            let found = labels(client, &shapes, &input, Answers::Label).unwrap().unwrap();
            (found, client.ctx().session.stats().since(&before))
        },
        |server| {
            let input = Input::Lengths(lengths, Terms::default());
            let refused = embeddings(server, &model, &input, Answers::Label).err();
            assert!(matches!(refused, Some(RunError::Unsupported { .. })));
            assert_eq!(labels(server, &model, &input, Answers::Label).unwrap(), None);
        },
    );
    assert_eq!(spent.bytes_sent - FRAME_BYTES * spent.frames_sent, plan.bytes_up);
    assert_eq!(spent.bytes_received - FRAME_BYTES * spent.frames_received, plan.bytes_down);
    let clear = model.embed(texts).unwrap();
    for (label, logits) in found.iter().flatten().zip(&clear) {
        let largest = logits.iter().copied().fold(f64::MIN, f64::max);
        assert!(largest - logits[*label as usize] < 0.02, "{label} {logits:?}");
    }
}

/// Embeddings with fewer bits: those of the clear model, rounded to 2^-7, at half the opened bits of the plan.
#[test]
fn embeddings_are_rounded_to_the_bits_that_the_operator_opens() {
    let model = tiny_model();
    assert!(model.public.normalise);
    let texts = tokens(&model);
    let lengths: Vec<usize> = texts.iter().map(|t| t.rows().total).collect();
    let answers = Answers::Bits(8);
    let input = Input::Texts(texts.clone(), Terms::default());
    let (found, steps) = pass(&model, &input, |on, model, input| embeddings(on, model, input, answers));
    let plan = |answers| {
        let program = Model::shapes_only(&model.public).program();
        Plan::twopc(&program, &lengths, Terms::default(), true, answers).unwrap()
    };
    assert_is(&plan(answers), &steps);
    assert_eq!(2 * plan(answers).opened_bits, plan(Answers::Label).opened_bits);
    for (found, clear) in found.iter().zip(&model.embed(texts).unwrap()) {
        // The client scales what it gets to length one, so the places of 2^-7 are in proportion.
        let length = clear.iter().map(|x| (x * 128.0).round() / 128.0).map(|x| x * x).sum::<f64>().sqrt();
        for (found, clear) in found.iter().zip(clear) {
            let places = found * length * 128.0;
            assert!((places - clear * 128.0).abs() < 1.0, "{found} {clear}");
        }
    }
}

/// With the operator's permission: the largest classes in order, as the plan says.
#[test]
fn classifiers_give_the_largest_classes_in_order() {
    let model = tiny_classifier();
    let program = Model::shapes_only(&model.public).program();
    let texts = tokens(&model);
    let lengths: Vec<usize> = texts.iter().map(|t| t.rows().total).collect();
    let input = Input::Texts(texts.clone(), Terms::default());
    let answers = Answers::Top(TINY_LABELS.len() as u16);
    let (found, steps) = pass(&model, &input, |party, model, input| labels(party, model, input, answers));
    let plan = Plan::classes(&program, &lengths, Terms::default(), answers).unwrap();
    assert_is(&plan, &steps);
    let opened = |e: &Exposure| e.who == "client" && e.sees.contains("3 largest");
    assert!(plan.exposures.iter().any(opened));
    for (places, logits) in found.iter().zip(&model.embed(texts).unwrap()) {
        let mut all = places.clone();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        let logits = places.iter().map(|&p| logits[p as usize]);
        let logits: Vec<f64> = logits.collect();
        assert!(logits.windows(2).all(|pair| pair[1] - pair[0] < 0.02));
    }
    let more = Plan::classes(&program, &lengths, Terms::default(), Answers::Top(4));
    assert!(matches!(more.err(), Some(RunError::Unsupported { .. })));
}

/// Where several classes or none may be right: those above the threshold, at the bytes and rounds of the plan, one bit
/// each.
#[test]
fn classifiers_give_the_classes_above_a_threshold() {
    let model = Model::load(&tiny_golden("multi-label")).unwrap();
    let program = Model::shapes_only(&model.public).program();
    let texts = tokens(&model);
    let lengths: Vec<usize> = texts.iter().map(|t| t.rows().total).collect();
    let input = Input::Texts(texts.clone(), Terms::default());
    let clear = model.embed(texts).unwrap();
    let usual = Answers::of_model(None, &model.public, 5);
    assert_eq!(usual, Answers::Above(500));
    let mut opened = Vec::new();
    for answers in [usual, Answers::Above(600)] {
        let (found, steps) = pass(&model, &input, |party, model, input| labels(party, model, input, answers));
        let plan = Plan::classes(&program, &lengths, Terms::default(), answers).unwrap();
        assert_is(&plan, &steps);
        assert_eq!(plan.opened_bits, 5 * lengths.len() as u64);
        assert_eq!(opened_bits(&model, answers).unwrap(), 5);
        for (above, logits) in found.iter().zip(&clear) {
            for (class, logit) in (0..).zip(logits) {
                let margin = logit - answers.threshold();
                assert!(above.contains(&class) == (margin > 0.0) || margin.abs() < 0.02, "{above:?} {logits:?}");
            }
        }
        opened.push(found.concat().len());
    }
    assert!(opened[0] > opened[1] && opened[0] < 5 * lengths.len(), "{opened:?}");
    for refused in [Answers::Label, Answers::Top(2), Answers::Above(1000)] {
        assert!(refused.suits(&model.public, 5).is_err(), "{refused}");
        let run = |party: &mut Protocol| labels(party, &model, &input, refused).err();
        let (client, _) = run_pair(run, |_| ());
        assert!(matches!(client, Some(RunError::Unsupported { .. })), "{refused}");
    }
}

/// Bits by kind of answer, from the steps that open them alone, as in the plan, which [`assert_is`] compares with runs.
#[test]
fn what_is_opened_to_a_client_is_counted_in_bits() {
    let classifier = tiny_classifier();
    let (tokens, terms) = (&[4][..], Terms::default());
    let plan = |model: &Model, answers| {
        let program = Model::shapes_only(&model.public).program();
        let plan = match answers {
            Answers::Label | Answers::Bits(_) => Plan::twopc(&program, tokens, terms, model.public.normalise, answers),
            _ => Plan::classes(&program, tokens, terms, answers),
        };
        plan.unwrap().opened_bits
    };
    let embedder = tiny_model();
    let width = embedder.public.config.width as u64;
    let generator = tiny_generator();
    let last = generator.public.config.vocabulary - 1;
    let token = u64::from(last.ilog2() + 1);
    for (model, answers, bits) in [
        (&embedder, Answers::Label, 16 * width),
        (&embedder, Answers::Bits(8), 8 * width),
        // One of three classes.
        (&classifier, Answers::Label, 2),
        (&classifier, Answers::Top(3), 3 * 2),
        (&classifier, Answers::Logits, 3 * 28),
        (&generator, Answers::Label, token),
    ] {
        assert_eq!(opened_bits(model, answers).unwrap(), bits);
        assert_eq!(plan(model, answers), bits);
    }
    let index = Index::shape(100, width as usize, 6).unwrap();
    for (records, scores, bits) in [
        (false, false, 7),
        (false, true, 7 + 16),
        // Records of two numbers of three bytes.
        (true, true, 7 + 16 + 48),
    ] {
        let wanted = Wanted { top: 5, records, scores };
        let found = search_opened_bits(&index, wanted).unwrap();
        let plan = Plan::search(&embedder.program(), &index, 4, terms, wanted).unwrap();
        assert_eq!((found, plan.opened_bits), (5 * bits, 5 * bits));
    }
}

/// With the operator's permission: all logits, close to those of the clear model, as the plan says.
#[test]
fn classifiers_give_logits_where_they_are_to() {
    let model = tiny_classifier();
    let program = Model::shapes_only(&model.public).program();
    let texts = tokens(&model);
    let lengths: Vec<usize> = texts.iter().map(|t| t.rows().total).collect();
    let input = Input::Texts(texts.clone(), Terms::default());
    let (found, steps) = pass(&model, &input, logits);
    let all = Answers::Logits;
    let plan = Plan::classes(&program, &lengths, Terms::default(), all).unwrap();
    assert_is(&plan, &steps);
    assert!(plan.exposures.iter().any(|e| e.who == "client" && e.sees.contains("all logits")));
    let clear = model.embed(texts).unwrap();
    assert_eq!(found.len(), clear.len());
    for (found, clear) in found.iter().zip(&clear) {
        assert_eq!(found.len(), TINY_LABELS.len());
        let worst = found.iter().zip(clear).map(|(a, b)| (a - b).abs());
        // Shares are drawn anew in each run: one in 250 errs by more than 0.01.
        assert!(worst.fold(0.0, f64::max) < 0.02, "{found:?} {clear:?}");
        // There are no bits below the last opened place.
        assert!(found.iter().all(|logit| (logit * 4096.0).fract() == 0.0));
    }
    let encoder = tiny_model().program();
    assert!(Plan::classes(&encoder, &lengths, Terms::default(), all).is_err());
}

#[test]
fn embeddings_agree_with_the_clear_model() {
    let model = tiny_model();
    let texts = tokens(&model);
    let clear = model.embed(texts.clone()).unwrap();
    let (private, steps) = run(&model, &texts, Terms::default());
    assert_planned(&model, &texts, Terms::default(), &steps);
    assert_close(&private, &clear);
}

/// A pruned feed-forward is one product that includes the residual.
#[test]
fn pruned_models_agree_with_the_clear_model() {
    let whole = tiny_model();
    for layers in [vec![0], vec![0, 1]] {
        let model = pruned(whole.clone(), &layers);
        let texts = tokens(&model);
        let clear = model.embed(texts.clone()).unwrap();
        let (private, steps) = run(&model, &texts, Terms::default());
        assert_planned(&model, &texts, Terms::default(), &steps);
        assert_close(&private, &clear);
        let has = |site: &str| steps.iter().any(|step| step.site == site);
        assert!(has("layer.0.feed_forward.map") && !has("layer.0.feed_forward.activation"));
        assert_eq!(has("layer.1.feed_forward.activation"), layers.len() == 1);
    }
}

/// Whatever the padding contains, the answer is that of the text alone.
#[test]
fn padding_leaves_no_trace_in_the_answer() {
    let mut model = tiny_model();
    let terms = Terms { padded: true, ..Terms::default() };
    let ids: Vec<Vec<u32>> = tokens(&model).iter().map(|t| t.ids().to_vec()).collect();
    // The special tokens again, the text itself again, one token forever.
    let hostile: [fn(usize, &[u32]) -> u32; 3] =
        [|i, _| [2, 3, 4][i % 3], |i, text| text[i % text.len()], |_, text| text[1]];
    for pool in [Pool::Mean, Pool::Last, Pool::First, Pool::Max] {
        model.public.pool = pool;
        model.encoder_mut().unwrap().pool = pool;
        let clear = model.embed(tokens(&model)).unwrap();
        for padding in hostile {
            let padded = |text: &Vec<u32>| {
                let total = text.len().next_multiple_of(16);
                let content: Vec<u32> = (0..total - text.len()).map(|i| padding(i, text)).collect();
                TokenIds::with_padding(text.clone(), &content)
            };
            let texts: Vec<TokenIds> = ids.iter().map(padded).collect();
            assert!(texts.iter().all(|t| t.rows().total % 16 == 0));
            let (private, steps) = run(&model, &texts, terms);
            assert_planned(&model, &texts, terms, &steps);
            assert_close(&private, &clear);
        }
    }
}

#[test]
fn padding_that_was_not_agreed_on_is_refused() {
    let model = tiny_model();
    let padded = tokens(&model).remove(0).pad_to(16, 0);
    let (near, far) = memory_pair();
    let (ot, far_ot) = IdealPair::new();
    std::thread::scope(|scope| {
        scope.spawn(move || backend(far, Box::new(far_ot), Arc::default()).map(drop).unwrap());
        let mut b = backend(near, Box::new(ot), Arc::default()).unwrap();
        let shapes = Model::shapes_only(&model.public);
        let input = Input::Texts(vec![padded], Terms::default());
        let error = embeddings(&mut b, &shapes, &input, Answers::Label).err().unwrap();
        assert!(matches!(error, RunError::WrongInput), "{error}");
    });
}

pub fn public_table(model: &Model) -> PublicTable {
    let e = model.embedding().unwrap();
    let bytes = PublicTable::chunks(e).unwrap().flatten().collect::<Vec<u8>>();
    let values = bytes.as_chunks::<4>().0.iter();
    let values = values.map(|b| i32::from_le_bytes(*b)).collect();
    PublicTable::new(e.table_rows(), e.width, values).unwrap()
}

#[test]
fn every_pooling_without_padding_and_with_a_public_table() {
    let mut model = tiny_model();
    let texts = tokens(&model);
    let terms = Terms { public_table: true, ..Terms::default() };
    for pool in [Pool::Mean, Pool::Last, Pool::First, Pool::Max] {
        model.public.pool = pool;
        model.encoder_mut().unwrap().pool = pool;
        let clear = model.embed(texts.clone()).unwrap();
        let (private, steps) = run(&model, &texts, terms);
        assert_eq!(steps[0].stats.bytes_sent + steps[0].stats.bytes_received, 0);
        assert_planned(&model, &texts, terms, &steps);
        assert_close(&private, &clear);
    }
}

/// Every activation that a configuration may name, and GELU as calibrated.
#[test]
fn every_activation() {
    let declared = Tolerance { reach: 12.0, error: 2e-4 };
    let names = ["gelu_new", "quick_gelu", "relu", "silu", "tanh", "elu"].map(|name| (name, None));
    for (name, tolerance) in names.into_iter().chain([("gelu", Some(declared))]) {
        let model = tiny_with(name, tolerance);
        let texts = tokens(&model)[1..3].to_vec();
        let clear = model.embed(texts.clone()).unwrap();
        let (private, steps) = run(&model, &texts, Terms::default());
        assert_planned(&model, &texts, Terms::default(), &steps);
        // The errors of the function and of the formats through two layers, in vectors of length one; the largest seen
        // is 4.1e-3.
        for (private, clear) in private.iter().zip(&clear) {
            let error = private.iter().zip(clear).map(|(p, c)| (p - c).abs());
            let error = error.fold(0.0, f64::max);
            assert!(error < 8e-3, "{name}: {error}");
        }
        assert_close(&private, &clear);
        let approximated = approximated(&model, &texts);
        assert_close(&private, &approximated);
    }
}

/// The answers in the clear, with the run's functions and formats.
fn approximated(model: &Model, texts: &[TokenIds]) -> Vec<Vec<f64>> {
    let input = Input::Texts(texts.to_vec(), Terms::default());
    let pooled = hushed_mpc::run(&mut Clear::default(), &model.program(), &input, |_, _| ());
    let pooled = pooled.unwrap();
    let values = pooled.values();
    let rows = values.chunks_exact(pooled.width());
    rows.map(|row| model.public.finish(row.to_vec())).collect()
}

#[test]
fn tables_of_another_size_or_range_are_refused() {
    let refused = |values: Vec<i32>| PublicTable::new(2, 3, values).is_err();
    assert!(refused(vec![0; 5]) && refused(vec![0; 7]));
    assert!(refused(vec![0, 0, 0, 0, 0, (1 << 28) + 1]) && refused(vec![i32::MIN; 6]));
    assert!(!refused(vec![1 << 28; 6]));
}
