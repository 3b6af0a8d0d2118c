//! A whole encrypted run through files, on a tiny model and an insecure ring: keys, request, a run that is killed and
//! resumed, reply, embeddings compared with the clear model's, and what is refused on the way.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use crate::killed::{is_child, killed};
use crate::offered::{Offered, assert_close, texts};
use hushed_fhe::FhePlan;
use hushed_fhe::files::exchange::{read_reply, write_reply_to};
use hushed_fhe::plan::public_plan::{PlannedKey, PlannedUse};
use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder};
use hushed_model::{Model, TooLong, length, nearness};
use hushed_serve::ServeError;
use hushed_serve::fhe::{
    self, JobEvent, JobReport, KeyOrder, KeyRecord, KeyStore, KeygenOptions, PublicModel, RunFiles, RunOptions, Warning,
};
use sha2::{Digest, Sha256};

fn quiet(_: JobEvent) {}

/// The progress that a run reported.
#[derive(Default)]
struct Told(Mutex<Vec<(f64, f64)>>);

impl Told {
    fn take(&self, event: &JobEvent) {
        if let JobEvent::Step { done, part, left, .. } = event {
            assert!((0.0..=1.0).contains(part) && *left >= 0.0);
            self.0.lock().unwrap().push((*done, *left));
        }
    }

    /// Progress never goes back, and reaches the end.
    fn check(&self) {
        let told = self.0.lock().unwrap();
        assert!(told.is_sorted_by_key(|step| step.0), "{told:?}");
        assert_eq!(told.last(), Some(&(1.0, 0.0)));
    }
}

fn name<T>(result: Result<T, ServeError>) -> &'static str {
    result.err().unwrap().name()
}

#[test]
fn a_run_that_was_killed_goes_on_with_the_same_bytes() {
    if is_child() {
        return;
    }
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let record = offered.keygen(&work.join("keys")).unwrap();
    assert_eq!(record.id.len(), 64);
    let sent = offered.encrypt(work, &texts()).unwrap();
    assert_eq!(sent.tokens.len(), 9);
    assert!(sent.warnings.is_empty());

    // Spilled vectors need a folder; a wrong one is found before any work.
    let mut nowhere = offered.options(work);
    nowhere.files.spill = Some(work.join("request"));
    assert_eq!(name(fhe::run(&nowhere, &quiet)), "file");

    let test = "fhe::a_run_that_was_killed_goes_on_with_the_same_bytes";
    killed(offered, work, test);
    let checkpoint = work.join(format!("checkpoints/{}.checkpoint", sent.id));
    let good = fs::read(&checkpoint).unwrap();
    let draft = checkpoint.with_file_name(format!("{}.checkpoint.1-0.draft", sent.id));
    fs::write(&draft, b"half").unwrap();

    // A damaged checkpoint is refused; the run does not silently start over.
    let options = offered.options(work);
    let mut bad = good.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    fs::write(&checkpoint, bad).unwrap();
    assert_eq!(name(fhe::run(&options, &quiet)), "file-damaged");
    assert!(!draft.exists());
    fs::write(&checkpoint, &good).unwrap();

    let (resumed, told) = (Mutex::new(None), Told::default());
    let report: JobReport = fhe::run(&options, &|event| {
        told.take(&event);
        if let JobEvent::Resumed { layer } = event {
            *resumed.lock().unwrap() = Some(layer);
        }
    })
    .unwrap();
    assert_eq!(*resumed.lock().unwrap(), Some(1));
    told.check();
    // What the first run did is in the plan, but was not measured.
    for step in &report.steps {
        let before = step.site.layer() == Some(0) || step.site.to_string().starts_with("input.");
        assert_eq!(step.seconds.is_none(), before, "{step:?}");
    }
    assert!(report.steps.iter().any(|s| s.site.to_string() == "checkpoint"));
    assert!(!report.done_before && report.request == sent.id);
    assert!(!checkpoint.exists());

    // The same without interruption, on another number of threads.
    let disk = work.join("disk");
    let mut whole = options.clone();
    whole.context.threads = Some(1);
    whole.files = RunFiles { out: work.join("again"), checkpoint: None, spill: Some(disk.clone()), ..whole.files };
    let told = Told::default();
    let uninterrupted = fhe::run(&whole, &|event| told.take(&event)).unwrap();
    told.check();
    let steps = &uninterrupted.steps;
    let planned: f64 = steps.iter().map(|step| step.planned).sum();
    assert!((planned / uninterrupted.planned_seconds - 1.0).abs() < 1e-9);
    let taken: f64 = steps.iter().map(|step| step.seconds.unwrap()).sum();
    assert!(taken > 0.0 && taken <= uninterrupted.seconds);
    let unplanned = steps.iter().filter(|step| step.planned == 0.0);
    assert!(unplanned.clone().any(|step| step.site.to_string() == "reply"));
    assert!(steps.len() > 30 && unplanned.count() < 8);
    // What was done before the checkpoint is not counted again.
    let counts = [&report, &uninterrupted].map(|report| report.counts);
    assert!(0 < counts[0].bootstrap && counts[0].bootstrap < counts[1].bootstrap);
    assert!(0 < counts[0].key_switch && counts[0].key_switch < counts[1].key_switch);
    // The disk use is what the plan says, and nothing is left there.
    let spilled = uninterrupted.spilled;
    assert_eq!(spilled.peak, uninterrupted.planned_disk);
    assert!(spilled.peak > 0 && spilled.written == spilled.read);
    assert_eq!(fs::read_dir(&disk).unwrap().count(), 0);
    let hidden = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with('.');
    let beside = fs::read_dir(work).unwrap().map(Result::unwrap);
    assert_eq!(beside.filter(hidden).count(), 0);
    let reply = fs::read(work.join("reply")).unwrap();
    assert!(reply == fs::read(work.join("again")).unwrap());
    assert_eq!(reply.len() as u64, report.bytes);
    // Run again, the reply is there, and a left-over checkpoint is removed.
    fs::write(&checkpoint, &good).unwrap();
    assert!(fhe::run(&options, &quiet).unwrap().done_before);
    assert!(!checkpoint.exists());

    let answer = offered.decrypt(work).unwrap();
    assert_close(offered, &texts(), &answer);
    assert!(answer.canary.unwrap().is_good());
    assert!(answer.decryptions > 0);
    let again = offered.decrypt(work).unwrap();
    assert_eq!(again.decryptions, 2 * answer.decryptions);
    let stored = KeyRecord::read(&work.join("keys")).unwrap();
    assert_eq!(stored.decryptions, again.decryptions);
    assert!(again.embeddings == answer.embeddings);

    // A flipped byte in the reply is an error at the client, and another client's keys open nothing.
    let mut bad = reply.clone();
    bad[reply.len() / 2] ^= 1;
    fs::write(work.join("reply"), bad).unwrap();
    assert_eq!(name(offered.decrypt(work)), "file-damaged");
    assert_eq!(name(fhe::run(&options, &quiet)), "file-exists");
    // A reply to another request with the same id.
    fs::write(work.join("reply"), &reply).unwrap();
    let (plan, params) = fhe::read_plan(&offered.plan()).unwrap();
    let keys = stored.hash();
    let (mut head, list) = read_reply(&work.join("reply"), &plan, &params, &keys).unwrap();
    head.request[0] ^= 1;
    let forged = &mut fs::File::create(work.join("reply")).unwrap();
    write_reply_to(forged, &work.join("reply"), &plan, &params, &head, &list).unwrap();
    assert_eq!(name(offered.decrypt(work)), "other-file");
    fs::write(work.join("reply"), &reply).unwrap();
    fs::remove_dir_all(work.join("keys/requests")).unwrap();
    assert_eq!(name(offered.decrypt(work)), "unknown-request");
    fs::remove_dir_all(work.join("keys")).unwrap();
    offered.keygen(&work.join("keys")).unwrap();
    assert_eq!(name(offered.decrypt(work)), "other-file");
}

/// The server is told no length, and the answers are the same.
#[test]
fn lengths_can_be_private() {
    let offered = &Offered::both()[1];
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    offered.keygen(&work.join("keys")).unwrap();
    let public = fhe::encrypt(
        &fhe::EncryptOptions {
            plan: &offered.plan(),
            public: &offered.path("public"),
            keys: &work.join("keys"),
            texts: &texts(),
            too_long: TooLong::Refuse,
            lengths: Some("public"),
            out: &work.join("request"),
        },
        &mut |_, _| {},
    );
    assert_eq!(name(public), "other-lengths");
    let sent = offered.encrypt(work, &texts()).unwrap();
    assert!(sent.declared.iter().all(|&length| length == 0));
    fhe::run(&offered.options(work), &quiet).unwrap();
    let answer = offered.decrypt(work).unwrap();
    assert_close(offered, &texts(), &answer);
    assert!(answer.canary.unwrap().is_good());
}

/// `keygen` used to be refused for ever after a kill, and up to gigabytes of drafts stayed.
#[test]
fn l3_keys_that_a_kill_left_unfinished_are_made_again() {
    let offered = Offered::one();
    let work = tempfile::tempdir().unwrap();
    let keys = work.path().join("keys");
    let made = offered.keygen(&keys).unwrap();
    let draft = keys.join("evaluation.keys.0a1b.draft");
    let record = fs::read(keys.join("key.json")).unwrap();
    // Killed while it wrote keys, and killed before it wrote their record.
    for whole in [false, true] {
        fs::remove_file(keys.join("key.json")).unwrap();
        fs::write(&draft, b"half").unwrap();
        if !whole {
            fs::remove_file(keys.join("evaluation.keys")).unwrap();
        }
        let again = offered.keygen(&keys).unwrap();
        assert!(again.id != made.id && !draft.exists());
    }
    // Keys that were used are no leftovers, even if their record is lost.
    fs::write(keys.join("requests/1.json"), b"{}").unwrap();
    fs::remove_file(keys.join("key.json")).unwrap();
    assert_eq!(name(offered.keygen(&keys)), "file-exists");
    fs::write(keys.join("key.json"), record).unwrap();
    assert_eq!(name(offered.keygen(&keys)), "file-exists");
    assert!(keys.join("secret.key").is_file());
}

#[test]
fn what_does_not_belong_together_is_refused_before_any_work() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    offered.keygen(&work.join("keys")).unwrap();
    assert_eq!(name(offered.keygen(&work.join("keys"))), "file-exists");
    offered.encrypt(work, &texts()).unwrap();
    assert_eq!(name(offered.encrypt(work, &texts())), "file-exists");
    let options = offered.options(work);
    let run = |change: &dyn Fn(&mut RunOptions)| {
        let mut options = options.clone();
        change(&mut options);
        name(fhe::run(&options, &|event| {
            if let JobEvent::Layer { .. } = event {
                panic!("work had begun");
            }
        }))
    };
    // Another client's keys.
    offered.keygen(&work.join("other")).unwrap();
    let keys = work.join("other/evaluation.keys");
    assert_eq!(run(&|o| o.files.keys = keys.clone()), "other-file");
    // Another plan: one bound differs.
    let (mut plan, _) = fhe::read_plan(&offered.path("plan.json")).unwrap();
    plan.input_bound *= 2.0;
    let path = work.join("plan.json");
    fhe::write_plan(&path, &plan).unwrap();
    assert_eq!(run(&|o| o.context.plan = path.clone()), "other-file");
    // A plan with one rotation more than the keys cover.
    let (mut plan, params) = fhe::read_plan(&offered.path("plan.json")).unwrap();
    let mut more = plan.key_specs(&params).unwrap();
    more.galois(params.rotation_element(1), 2, 1);
    plan.set_keys(&more);
    fhe::write_plan(&path, &plan).unwrap();
    assert_eq!(run(&|o| o.context.plan = path.clone()), "keys-incomplete");
    // A calibration of other weights, or another one.
    let text = fs::read_to_string(offered.path("calibration-fhe.json")).unwrap();
    let other = work.join("calibration.json");
    fs::write(&other, text.replacen("\"texts\":", "\"texts\": ", 1)).unwrap();
    assert_eq!(run(&|o| o.context.calibration = other.clone()), "other-model");
    // Plans of another run, with keys and a request made for them: one key more or fewer, another reply.
    type Change = fn(&mut FhePlan);
    let changes: [Change; 4] = [
        |p| p.keys.truncate(p.keys.len() - 1),
        |p| p.reply.limbs += 1,
        |p| {
            p.reply.magnitude *= 2.0;
            p.reply.deviation *= 2.0;
        },
        |p| p.reply.scale *= 1.5,
    ];
    for (i, change) in changes.into_iter().enumerate() {
        let (mut plan, _) = fhe::read_plan(&offered.path("plan.json")).unwrap();
        change(&mut plan);
        let at = work.join(format!("changed-{i}"));
        let found = run(&|o| offered.by_plan(&plan, &texts(), &at, o));
        assert_eq!(found, "other-model", "{i}");
    }
    // No folder for the reply: found before the model is read, and nothing of the attempt is left.
    assert_eq!(
        run(&|o| {
            o.files.out = work.join("none/reply");
            o.context.model = work.join("none");
        }),
        "file"
    );
    let left = fs::read_dir(work).unwrap().flatten();
    let left = left.filter(|entry| entry.path().extension().is_some_and(|e| e == "draft"));
    assert_eq!(left.count(), 0);
    // Too little memory.
    assert_eq!(run(&|o| o.context.max_memory = Some(1 << 20)), "memory");
    // Damaged files.
    for file in ["request", "keys/evaluation.keys"] {
        let path = work.join(file);
        let good = fs::read(&path).unwrap();
        for at in [0, 9, 40, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            fs::write(&path, bad).unwrap();
            let found = run(&|_| {});
            assert!(["file-damaged", "other-file", "keys-incomplete"].contains(&found), "{found}");
        }
        for length in [0, 31, 100, good.len() / 2, good.len() - 1] {
            fs::write(&path, &good[..length]).unwrap();
            assert_eq!(run(&|_| {}), "file-damaged", "{file} {length}");
        }
        fs::write(&path, good).unwrap();
    }
    // A plan with a changed byte.
    let text = fs::read_to_string(offered.path("plan.json")).unwrap();
    fs::write(&path, text.replacen("\"rows\": 16", "\"rows\": 32", 1)).unwrap();
    assert_eq!(run(&|o| o.context.plan = path.clone()), "plan");
    assert!(!work.join("reply").exists());
}

#[test]
fn a_client_is_told_what_it_can_know_before_anything_is_sent() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    offered.keygen(&work.join("keys")).unwrap();
    let encrypt = |texts: &[String]| {
        let _ = fs::remove_file(work.join("request"));
        offered.encrypt(work, texts)
    };
    let one = |text: &str| encrypt(&[text.to_owned()]);
    assert_eq!(name(one("")), "text-refused");
    assert_eq!(name(one(&"a ".repeat(40))), "too-long");
    assert_eq!(name(encrypt(&vec!["a".to_owned(); 16])), "too-many-texts");
    assert_eq!(one(&"a ".repeat(14)).unwrap().warnings, [Warning::Repetitive { text: 0 }]);
    // The name of a special token inside a text is text: here five pieces that the vocabulary has not, then `a`.
    assert_eq!(one("[SEP] a").unwrap().tokens[0], 8);
    // A bound that only some texts keep is refused whatever the text.
    let (mut plan, _): (FhePlan, _) = fhe::read_plan(&offered.path("plan.json")).unwrap();
    let narrow = work.join("narrow.json");
    plan.input_bound *= 0.999;
    fhe::write_plan(&narrow, &plan).unwrap();
    let days = KeygenOptions::days(1);
    fhe::keygen(&narrow, &work.join("narrow"), days, &mut |_, _| {}).unwrap();
    let refused = fhe::encrypt(
        &fhe::EncryptOptions {
            plan: &narrow,
            public: &offered.path("public"),
            keys: &work.join("narrow"),
            texts: &[String::new()],
            too_long: TooLong::Refuse,
            lengths: None,
            out: &work.join("other"),
        },
        &mut |_, _| {},
    );
    assert_eq!(name(refused), "other-model");
    // Keys of another plan, and an expired set.
    let (mut plan, _): (FhePlan, _) = fhe::read_plan(&offered.path("plan.json")).unwrap();
    plan.exposures.clear();
    let other = work.join("plan.json");
    fhe::write_plan(&other, &plan).unwrap();
    let refused = fhe::encrypt(
        &fhe::EncryptOptions {
            plan: &other,
            public: &offered.path("public"),
            keys: &work.join("keys"),
            texts: &texts(),
            too_long: TooLong::Refuse,
            lengths: None,
            out: &work.join("other"),
        },
        &mut |_, _| {},
    );
    assert_eq!(name(refused), "other-plan");
    let mut record = KeyRecord::read(&work.join("keys")).unwrap();
    record.expires = 1;
    record.write(&work.join("keys")).unwrap();
    assert_eq!(name(one("hello")), "keys-expired");
    fs::write(work.join("keys/key.json"), b"{}").unwrap();
    assert_eq!(name(one("hello")), "record-damaged");
    // Another public model.
    let path = work.join("public");
    let mut bytes = fs::read(offered.path("public")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&path, &bytes).unwrap();
    let (plan, _) = fhe::read_plan(&offered.path("plan.json")).unwrap();
    assert_eq!(name(PublicModel::read(&path, &plan.public_sha256)), "public-model");
    for length in [0, 10, 40, bytes.len() / 2] {
        fs::write(&path, &bytes[..length]).unwrap();
        let hash = hushed_fhe::plan::public_plan::hex(&Sha256::digest(&bytes[..length]));
        assert!(PublicModel::read(&path, &hash).is_err());
    }
}

/// The build test of the server-only binary looks for this marker; here, with the client's code, it is there.
#[test]
fn a_program_with_the_clients_code_can_be_told_by_its_marker() {
    let program = fs::read(std::env::current_exe().unwrap()).unwrap();
    // In parts, so that this test does not put it there itself.
    let marker = ["hushed-serve", "fhe", "owner", "here"].join(" ");
    assert!(program.windows(marker.len()).any(|w| w == marker.as_bytes()));
}

#[test]
fn keys_are_listed_taken_in_within_a_quota_and_deleted() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let made = offered.keygen(&work.join("keys")).unwrap();
    let plan = offered.path("plan.json");
    let own = KeyStore::new(&work.join("keys"));
    let listed = own.list().unwrap();
    assert_eq!((listed.len(), &listed[0].record, listed[0].secret), (1, &made, true));
    let keys = listed[0].keys();
    assert_eq!(fs::metadata(&keys).unwrap().len(), made.bytes);

    let store = KeyStore::new(&work.join("store"));
    assert_eq!(name(store.add(&plan, &keys, "ann", made.bytes - 1)), "quota");
    let taken = store.add(&plan, &keys, "ann", made.bytes).unwrap();
    assert_eq!(taken.record.id, made.id);
    assert_eq!(taken.record.owner.as_deref(), Some("ann"));
    assert!(!taken.secret);
    assert!(fs::read(taken.keys()).unwrap() == fs::read(&keys).unwrap());
    // Adding them once is enough; more exceeds the quota.
    assert_eq!(store.add(&plan, &keys, "ann", made.bytes).unwrap().record, taken.record);
    offered.keygen(&work.join("more")).unwrap();
    let more = work.join("more/evaluation.keys");
    assert_eq!(name(store.add(&plan, &more, "ann", made.bytes)), "quota");
    store.add(&plan, &more, "bob", made.bytes).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
    for id in ["", "0", &made.id[..7], &"f".repeat(64)] {
        assert_eq!(name(store.delete(id)), "no-such-keys");
    }
    store.delete(&made.id[..8]).unwrap();
    assert_eq!(store.list().unwrap().len(), 1);
    own.delete(&made.id).unwrap();
    assert!(!work.join("keys").exists());
}

/// A classifier through the same files, a batch and a single text: its logits compared with the clear ones, with the
/// names of its classes, and nothing of the width of rows.
#[test]
fn a_classifier_is_answered_with_logits() {
    let folder = tempfile::tempdir().unwrap();
    let offered = Offered { folder: folder.path().to_owned(), file: "private.json" };
    offered.make(|dir| tiny_classifier_folder(dir, &TINY_LABELS));
    let (plan, _) = FhePlan::from_json(&fs::read(offered.plan()).unwrap()).unwrap();
    assert_eq!((plan.logits, plan.reply.ciphertexts), (Some(3), 1));
    let work = tempfile::tempdir().unwrap();
    offered.keygen(&work.path().join("keys")).unwrap();
    offered.encrypt(work.path(), &texts()).unwrap();
    fhe::run(&offered.options(work.path()), &quiet).unwrap();
    let answer = offered.decrypt(work.path()).unwrap();
    assert!(answer.canary.unwrap().is_good());
    assert_eq!(answer.labels.unwrap(), TINY_LABELS);
    let model = Model::load(&offered.path("model")).unwrap();
    for (text, found) in texts().iter().zip(&answer.embeddings) {
        let tokens = model.tokens(text, TooLong::Refuse).unwrap();
        let clear = &model.embed(vec![tokens]).unwrap()[0];
        let near = nearness(found, clear, length(clear));
        assert!(found.len() == 3 && near > 0.99, "{near}");
    }

    let one = Offered { file: "one.json", ..offered };
    let work = tempfile::tempdir().unwrap();
    one.keygen(&work.path().join("keys")).unwrap();
    one.encrypt(work.path(), &texts()[..1]).unwrap();
    fhe::run(&one.options(work.path()), &quiet).unwrap();
    let alone = one.decrypt(work.path()).unwrap();
    assert_eq!(alone.labels.unwrap(), TINY_LABELS);
    let (found, batch) = (&alone.embeddings[0], &answer.embeddings[0]);
    let near = nearness(found, batch, length(batch));
    assert!(found.len() == 3 && near > 0.99, "{near}");
}

/// 4,096 keys of the largest ring are 240 GB: the author of a plan decides what its clients make, and nobody has to
/// trust that author with it.
#[test]
fn c7_a_plan_that_orders_too_much_is_refused_before_a_key_is_made() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let keys = work.join("keys");
    let make = |plan: &Path, options| {
        let made = fhe::keygen(plan, &keys, options, &mut |_, _| {});
        assert!(made.is_ok() || !keys.exists());
        made
    };
    let (mut plan, _): (FhePlan, _) = fhe::read_plan(&offered.plan()).unwrap();
    let at = plan.keys.iter().position(|k| k.key == PlannedUse::Galois);
    let (at, mut rest) = (at.unwrap(), plan.keys.clone());
    rest.retain(|k| k.key != PlannedUse::Galois);
    let rotations = (3..1024).step_by(2).flat_map(|element| {
        (2..5).map(move |limbs| PlannedKey { key: PlannedUse::Galois, element, limbs, special: 1 })
    });
    rest.splice(at..at, rotations);
    plan.keys = rest;
    let hostile = work.join("hostile.json");
    fhe::write_plan(&hostile, &plan).unwrap();
    let order = KeyOrder::read(&hostile).unwrap();
    assert!(order.keys > KeygenOptions::MOST_KEYS && order.keys == plan.keys.len());
    let usual = KeygenOptions::days(1);
    let told = make(&hostile, usual).unwrap_err();
    assert_eq!(told.name(), "too-many-keys");
    let number = order.keys.to_string();
    assert!(told.to_string().contains(&number), "{told}");
    let narrow = KeygenOptions { most_keys: order.keys, most_bytes: order.bytes - 1, ..usual };
    assert_eq!(name(make(&hostile, narrow)), "too-many-keys");

    // What is announced before keys are made is what there is afterwards.
    let order = KeyOrder::read(&offered.plan()).unwrap();
    let exact = KeygenOptions { most_keys: order.keys, most_bytes: order.bytes, ..usual };
    let record = make(&offered.plan(), exact).unwrap();
    let file = fs::metadata(keys.join("evaluation.keys")).unwrap();
    assert_eq!((record.bytes, file.len()), (order.bytes, order.bytes));
}
