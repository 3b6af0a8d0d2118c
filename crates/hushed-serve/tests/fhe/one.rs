//! A single text in packed rows, through files and over a connection: answered as in the clear, a run resumed from a
//! checkpoint, and what is refused on the way.

use std::fs;
use std::path::Path;

use crate::fhe_server::{Running, config};
use crate::offered::{Offered, assert_close, texts};
use hushed_serve::ServeError;
use hushed_serve::fhe::{self, Remote};

fn name<T>(result: Result<T, ServeError>) -> &'static str {
    result.err().unwrap().name()
}

#[test]
fn a_text_is_answered_and_a_resumed_run_has_the_same_bytes() {
    for (offered, hidden) in [(Offered::one(), false), (Offered::one_hidden(), true)] {
        let work = tempfile::tempdir().unwrap();
        let work = work.path();
        let (plan, _) = fhe::read_plan(&offered.plan()).unwrap();
        let sent = plan.request_ciphertexts();
        assert!(plan.canary.is_none() && sent == 1 + usize::from(hidden));
        offered.keygen(&work.join("keys")).unwrap();
        assert_eq!(name(offered.encrypt(work, &texts()[..2])), "too-many-texts");
        let sent = offered.encrypt(work, &texts()[..1]).unwrap();
        let told = if hidden { &[0][..] } else { &sent.tokens };
        assert_eq!(sent.declared, told);
        offered.run_and_resume(work, &sent.id);
        let answer = offered.decrypt(work).unwrap();
        assert!(answer.canary.is_none());
        assert_close(offered, &texts()[..1], &answer);
    }
}

/// Plan and keys must match, whatever the layout.
#[test]
fn keys_of_a_batch_are_refused() {
    let (one, batch) = (Offered::one(), Offered::get());
    let work = tempfile::tempdir().unwrap();
    let (mine, theirs) = (work.path().join("one"), work.path().join("batch"));
    fs::create_dir(&mine).unwrap();
    batch.keygen(&theirs.join("keys")).unwrap();
    assert_eq!(name(one.encrypt(&theirs, &texts()[..1])), "other-plan");
    one.keygen(&mine.join("keys")).unwrap();
    one.encrypt(&mine, &texts()[..1]).unwrap();
    let with = |work: &Path, keys: &Path| {
        let mut options = one.options(work);
        options.files.keys = keys.join("keys/evaluation.keys");
        name(fhe::run(&options, &|_| {}))
    };
    assert_eq!(with(&mine, &theirs), "keys-incomplete");
}

#[test]
fn a_text_goes_out_and_its_answer_comes_back() {
    let offered = Offered::one();
    let work = tempfile::tempdir().unwrap();
    let server = Running::start(&config(offered, work.path()));
    let remote = Remote::new(server.remote(work.path().join("keys")));
    let job = remote.submit(&texts()[..1], &mut |_| ()).unwrap();
    let answer = remote.collect(&job, &mut |_| ()).unwrap();
    assert_close(offered, &texts()[..1], &answer);
    assert_eq!(name(remote.submit(&texts()[..2], &mut |_| ())), "too-many-texts");
}
