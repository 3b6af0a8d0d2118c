//! A whole encrypted run in memory, on a tiny model and an insecure ring: the bytes are those of files, and so are the
//! guarantees.

use std::fs;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::offered::{Offered, assert_close, texts};
use hushed_fhe::FhePlan;
use hushed_fhe::files::exchange::ReplyHead;
use hushed_fhe::fuzz::forged_reply;
use hushed_model::TooLong;
use hushed_serve::ServeError;
use hushed_serve::fhe::{
    self, ClientModel, KeygenOptions, MemoryKeys, RunBytes, RunContext, SaveState, StoredParts, Texts,
};

fn name<T>(result: Result<T, ServeError>) -> &'static str {
    result.err().unwrap().name()
}

fn all(texts: &[String]) -> Texts<'_> {
    Texts { texts, too_long: TooLong::Refuse, lengths: Some("public") }
}

/// A client of this manifest, with its evaluation keys.
fn client(model: &ClientModel) -> (MemoryKeys, Vec<u8>) {
    let mut evaluation = Vec::new();
    let options = KeygenOptions::days(1);
    let keys = MemoryKeys::generate(model, options, &mut evaluation, &mut |_, _| {});
    (keys.unwrap(), evaluation)
}

fn encrypt(model: &ClientModel, keys: &mut MemoryKeys) -> Result<Vec<u8>, ServeError> {
    let mut request = Vec::new();
    let sent = keys.encrypt(model, all(&texts()), &mut request, &mut |_, _| {})?;
    assert_eq!(sent.bytes, request.len() as u64);
    Ok(request)
}

#[test]
fn a_run_in_memory_gives_the_bytes_of_files() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let manifest = fs::read(offered.plan()).unwrap();
    let public = fs::read(offered.path("public")).unwrap();
    let model = ClientModel::from_bytes(&manifest, public).unwrap();
    let (mut keys, evaluation) = client(&model);
    let request = encrypt(&model, &mut keys).unwrap();

    // The operator's side, with the same bytes in files.
    let mut options = offered.options(work);
    fs::create_dir(work.join("keys")).unwrap();
    fs::write(&options.files.keys, &evaluation).unwrap();
    fs::write(&options.files.request, &request).unwrap();
    options.files.checkpoint = None;
    let context = RunContext::load(&options.context).unwrap();
    let spill = work.join("spill");
    fs::create_dir(&spill).unwrap();
    let bytes = RunBytes { keys: &evaluation, request: &request, spill: Some(&spill) };
    let run = |bytes: RunBytes<'_>| {
        let mut reply = Vec::new();
        let report = context.run_in_memory(bytes, &mut reply, &|_| {})?;
        assert!(!report.done_before && report.bytes == reply.len() as u64);
        assert_eq!(report.spilled.peak, report.planned_disk);
        Ok::<_, ServeError>(reply)
    };
    let reply = run(bytes).unwrap();
    assert_eq!(fs::read_dir(&spill).unwrap().count(), 0);
    context.run(&options.files, &|_| {}).unwrap();
    assert!(reply == fs::read(&options.files.out).unwrap());

    // Bytes are refused for the same reasons as files.
    let nowhere = RunBytes { spill: None, ..bytes };
    assert_eq!(name(run(nowhere)), "run");
    let (_, others) = client(&model);
    let other = RunBytes { keys: &others, ..bytes };
    assert_eq!(name(run(other)), "other-file");
    let cut = RunBytes { request: &request[..request.len() - 1], ..bytes };
    assert_eq!(name(run(cut)), "file-damaged");
    let mut bad = evaluation.clone();
    let last = bad.len() - 1;
    bad[last] ^= 1;
    assert_eq!(name(run(RunBytes { keys: &bad, ..bytes })), "other-file");

    // A flipped byte of a reply is found before the secret key is used; a good one is counted.
    let mut bad = reply.clone();
    bad[reply.len() / 2] ^= 1;
    assert_eq!(name(keys.decrypt(&model, &bad)), "file-damaged");
    assert_eq!(name(keys.decrypt(&model, &reply[1..])), "file-damaged");
    assert_eq!(keys.record().decryptions, 0);
    let answer = keys.decrypt(&model, &reply).unwrap();
    assert_close(offered, &texts(), &answer);
    assert!(answer.check_canary().is_ok() && answer.decryptions > 0);
    assert_eq!(keys.record().decryptions, answer.decryptions);
    let mut strangers = client(&model).0;
    assert_eq!(name(strangers.decrypt(&model, &reply)), "other-file");

    // The same keys in a folder give the same answers: both share one implementation.
    let StoredParts { secret, state } = keys.into_stored().unwrap();
    let folder = work.join("keys");
    let state: serde_json::Value = serde_json::from_slice(&state).unwrap();
    fs::write(folder.join("secret.key"), &secret).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(folder.join("secret.key"), private).unwrap();
    fs::write(folder.join("key.json"), state["record"].to_string()).unwrap();
    fs::create_dir(folder.join("requests")).unwrap();
    for (id, request) in state["requests"].as_object().unwrap() {
        let path = folder.join(format!("requests/{id}.json"));
        fs::write(path, request.to_string()).unwrap();
    }
    let found = offered.decrypt(work).unwrap();
    assert!(found.embeddings == answer.embeddings);
    assert_eq!(found.decryptions, 2 * answer.decryptions);
}

/// The place where a test stores a state, and whether it is full.
#[derive(Clone, Default)]
struct Place(Arc<Mutex<(Vec<Vec<u8>>, bool)>>);

impl Place {
    fn save(&self) -> SaveState {
        let place = self.clone();
        Box::new(move |state| {
            let mut place = place.0.lock().unwrap();
            if place.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            place.0.push(state.to_vec());
            Ok(())
        })
    }

    fn last(&self) -> Vec<u8> {
        self.0.lock().unwrap().0.last().unwrap().clone()
    }

    fn fill(&self, full: bool) {
        self.0.lock().unwrap().1 = full;
    }
}

/// A writer that knows when it was completed.
struct Watched(Arc<AtomicBool>);

impl io::Write for Watched {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.store(true, Ordering::Relaxed);
        Ok(())
    }
}

/// A request used to be complete before its record: a kill between left one whose reply nobody could decrypt.
#[test]
fn l4_a_request_is_recorded_before_it_is_complete() {
    let offered = Offered::one();
    let model = ClientModel::read(&offered.plan(), &offered.path("public")).unwrap();
    let StoredParts { secret, state } = client(&model).0.into_stored().unwrap();
    let complete = Arc::new(AtomicBool::new(false));
    let (seen, saved) = (complete.clone(), Arc::new(AtomicBool::new(false)));
    let was_saved = saved.clone();
    let save: SaveState = Box::new(move |_| {
        assert!(!seen.load(Ordering::Relaxed));
        was_saved.store(true, Ordering::Relaxed);
        Ok(())
    });
    let mut keys = MemoryKeys::restore(&model, &secret, &state, save).unwrap();
    let out = &mut Watched(complete.clone());
    keys.encrypt(&model, all(&texts()[..1]), out, &mut |_, _| {}).unwrap();
    assert!(saved.load(Ordering::Relaxed) && complete.load(Ordering::Relaxed));
}

/// A single text has no canary. A reply of 0.5 in every slot, or of 400, used to be shown as an answer.
#[test]
fn m3_a_forged_reply_to_a_single_text_retires_the_keys() {
    let offered = Offered::one();
    let model = ClientModel::read(&offered.plan(), &offered.path("public")).unwrap();
    let seed = fhe::read_plan(&offered.plan()).unwrap();
    for value in [0.5, 400.0] {
        let mut keys = client(&model).0;
        let sent = |keys: &mut MemoryKeys| {
            let sent = keys.encrypt(&model, all(&texts()[..1]), &mut Vec::new(), &mut |_, _| {})?;
            let mut id = [0; 16];
            hex::decode_to_slice(&sent.id, &mut id).unwrap();
            let keys = keys.record().hash();
            let (plan, request) = (seed.0.hash(), sent.content.0);
            let head = ReplyHead { plan, keys, id, request };
            Ok::<_, ServeError>((sent.id, head))
        };
        let (_, head) = sent(&mut keys).unwrap();
        // Of the right shape, though it says nothing: without a canary nobody can tell.
        let nothing = forged_reply(&seed, &head, 0.0).unwrap();
        assert!(keys.decrypt(&model, &nothing).unwrap().canary.is_none());
        assert!(!keys.record().is_retired());
        let (id, head) = sent(&mut keys).unwrap();
        let forged = forged_reply(&seed, &head, value).unwrap();
        let refused = keys.decrypt(&model, &forged);
        let told = refused.as_ref().err().unwrap().to_string();
        assert!(!told.contains(&value.to_string()), "{told}");
        assert_eq!(name(refused), "reply-shape");
        assert!(keys.record().is_retired());
        assert_eq!(name(sent(&mut keys)), "keys-retired");
        // A better reply does not bring the keys back.
        let better = forged_reply(&seed, &head, 0.0).unwrap();
        assert_eq!(name(keys.decrypt(&model, &better)), "keys-retired");
        // L6: what was read is forgotten.
        let size = |keys: MemoryKeys| keys.into_stored().unwrap().state.len();
        keys.forget(&id).unwrap();
        assert_eq!(name(keys.decrypt(&model, &forged)), "unknown-request");
        assert!(size(keys) < 4096);
    }
}

/// Nothing is decrypted before its count is saved, and a canary that is not right retires keys for as long as they are
/// stored.
#[test]
fn stored_keys_keep_count_and_retirement() {
    let offered = Offered::get();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    // A manifest whose canary no server can meet.
    let (mut plan, _): (FhePlan, _) = fhe::read_plan(&offered.plan()).unwrap();
    let canary = plan.canary.as_mut().unwrap();
    canary.embedding.iter_mut().for_each(|x| *x = -*x);
    let manifest = plan.to_json().unwrap();
    let path = work.join("plan.json");
    fhe::write_plan(&path, &plan).unwrap();
    let public = fs::read(offered.path("public")).unwrap();
    let model = ClientModel::from_bytes(&manifest, public).unwrap();
    let (keys, evaluation) = client(&model);
    let id = keys.record().id.clone();
    let StoredParts { secret, state } = keys.into_stored().unwrap();
    let place = Place::default();
    let restore = |state: &[u8]| MemoryKeys::restore(&model, &secret, state, place.save());

    let mut keys = restore(&state).unwrap();
    assert_eq!(keys.record().id, id);
    place.fill(true);
    assert_eq!(name(encrypt(&model, &mut keys)), "file");
    place.fill(false);
    let request = encrypt(&model, &mut keys).unwrap();
    let mut options = offered.options(work);
    options.context.plan = path;
    let context = RunContext::load(&options.context).unwrap();
    let bytes = RunBytes { keys: &evaluation, request: &request, spill: Some(work) };
    let mut reply = Vec::new();
    context.run_in_memory(bytes, &mut reply, &|_| {}).unwrap();

    // No room for the count: nothing is decrypted, and nothing is counted.
    place.fill(true);
    assert_eq!(name(keys.decrypt(&model, &reply)), "file");
    assert_eq!(keys.record().decryptions, 0);
    place.fill(false);
    let before = place.last();
    let answer = keys.decrypt(&model, &reply).unwrap();
    assert_eq!(name(answer.check_canary()), "canary");
    assert!(before != place.last());
    // The state saved before the decryption already says that the keys are retired.
    assert_eq!(place.0.lock().unwrap().0.len(), 2);
    assert_eq!(name(encrypt(&model, &mut keys)), "keys-retired");
    drop(keys);
    let mut again = restore(&place.last()).unwrap();
    assert!(again.record().is_retired());
    assert_eq!(again.record().decryptions, answer.decryptions);
    assert_eq!(name(encrypt(&model, &mut again)), "keys-retired");
    // The same reply can be read again, and is counted.
    let twice = again.decrypt(&model, &reply).unwrap();
    assert_eq!(twice.decryptions, 2 * answer.decryptions);
    assert!(twice.embeddings == answer.embeddings);

    // Bytes that do not belong to these keys.
    assert_eq!(name(restore(b"{}")), "record-damaged");
    let mut later: serde_json::Value = serde_json::from_slice(&state).unwrap();
    later["version"] = 2.into();
    assert_eq!(name(restore(later.to_string().as_bytes())), "record-damaged");
    // A new set's state beside the old secret key would forget that it is retired.
    let fresh = client(&model).0.into_stored().unwrap().state;
    assert_eq!(name(restore(&fresh)), "other-keys");
    let cut = &secret[..secret.len() - 1];
    let found = MemoryKeys::restore(&model, cut, &state, place.save());
    assert_eq!(name(found), "file-damaged");
    let manifest = fs::read(offered.plan()).unwrap();
    let public = fs::read(offered.path("public")).unwrap();
    let other = ClientModel::from_bytes(&manifest, public.clone()).unwrap();
    let found = MemoryKeys::restore(&other, &secret, &state, place.save());
    assert_eq!(name(found), "other-plan");
    assert_eq!(name(again.decrypt(&other, &reply)), "other-plan");
    let mut damaged = public;
    damaged[100] ^= 1;
    assert_eq!(name(ClientModel::from_bytes(&manifest, damaged)), "public-model");
    assert_eq!(name(ClientModel::from_bytes(b"{", Vec::new())), "plan");
    // An order that is too large.
    let options = KeygenOptions { most_keys: 1, ..KeygenOptions::days(1) };
    let made = MemoryKeys::generate(&model, options, &mut Vec::new(), &mut |_, _| {});
    assert_eq!(name(made), "too-many-keys");
}

/// Twice as many texts as places: those that share one are answered as they are alone, in the order of the client.
#[test]
fn texts_share_places_and_are_answered_in_their_order() {
    let offered = Offered::shared();
    let work = tempfile::tempdir().unwrap();
    let manifest = fs::read(offered.plan()).unwrap();
    let model = ClientModel::from_bytes(&manifest, fs::read(offered.path("public")).unwrap()).unwrap();
    let (mut keys, evaluation) = client(&model);
    let many: Vec<String> = texts().into_iter().cycle().take(30).collect();
    let mut request = Vec::new();
    let sent = keys.encrypt(&model, all(&many), &mut request, &mut |_, _| {}).unwrap();
    // Fifteen places of three, and the canary's.
    let (places, declared) = (model.places().unwrap() / 3, &sent.declared);
    assert_eq!((places, declared.len()), (15, 3 * 16));
    let rows = declared.chunks(3).map(|lengths| lengths.iter().sum::<usize>());
    assert!(rows.into_iter().all(|rows| rows <= 16));
    assert!(declared[45] > 0 && declared[46..] == [0, 0]);
    let texts_of = declared[..45].iter().filter(|&&length| length > 0).count();
    assert_eq!((texts_of, declared[..45].iter().sum::<usize>()), (30, sent.tokens.iter().sum::<usize>()));

    let context = RunContext::load(&offered.options(work.path()).context).unwrap();
    let spill = work.path().join("spill");
    fs::create_dir(&spill).unwrap();
    let mut reply = Vec::new();
    let bytes = RunBytes { keys: &evaluation, request: &request, spill: Some(&spill) };
    context.run_in_memory(bytes, &mut reply, &|_| {}).unwrap();
    let answer = keys.decrypt(&model, &reply).unwrap();
    assert!(answer.check_canary().is_ok() && answer.tokens == sent.tokens);
    assert_close(&offered, &many, &answer);

    // What does not fit is refused, and how many would.
    let most: Vec<String> = many.iter().cycle().take(200).cloned().collect();
    let refused = keys.encrypt(&model, all(&most), &mut Vec::new(), &mut |_, _| {});
    assert_eq!(name(refused), "too-many-texts");
    let counts: Vec<usize> = sent.tokens.iter().copied().cycle().take(200).collect();
    let fitting = model.fitting(&counts).unwrap();
    assert!((30..=45).contains(&fitting), "{fitting}");
}
