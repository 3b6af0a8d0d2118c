//! A run in a process of its own, killed in its second layer; and runs of a decoder and of a single text that go on
//! after it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use crate::decoder::{assert_last_rows, texts};
use crate::offered::{Offered, assert_close, texts as encoder_texts};
use hushed_serve::fhe::{self, JobEvent, JobReport, RunFiles};

/// Set in a process that will be killed: the folder that it works in, the offered one, and the file of its plan.
const SET: [&str; 3] = ["HUSHED_TEST_FHE_CHILD", "HUSHED_TEST_FHE_OFFERED", "HUSHED_TEST_FHE_PLAN"];

/// In a process that will be killed, runs its request; false in any other.
pub fn is_child() -> bool {
    let [Ok(work), Ok(folder), Ok(file)] = SET.map(std::env::var) else {
        return false;
    };
    let offered = Offered { folder: folder.into(), file: file.leak() };
    let work = Path::new(&work);
    let told = |event| {
        if let JobEvent::Layer { layer: 0, .. } = event {
            fs::write(work.join("first-layer"), b"").unwrap();
        }
    };
    fhe::run(&offered.options(work), &told).unwrap();
    true
}

/// Runs the request in `work` in another process, which runs only `test`, to a SIGKILL in the second layer.
pub fn killed(offered: &Offered, work: &Path, test: &str) {
    let [of_work, of_folder, of_file] = SET;
    let mut running = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact"])
        .env(of_work, work)
        .env(of_folder, &offered.folder)
        .env(of_file, offered.file)
        .spawn()
        .unwrap();
    while !work.join("first-layer").exists() {
        assert!(running.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::sleep(Duration::from_millis(5));
    }
    running.kill().unwrap();
    running.wait().unwrap();
    assert!(!work.join("reply").exists());
}

/// Goes on with the killed run from its second layer, and runs the request once more without interruption, on another
/// number of threads, to the same bytes.
fn go_on(offered: &Offered, work: &Path) -> [JobReport; 2] {
    let (options, resumed) = (offered.options(work), Mutex::new(None));
    let report = fhe::run(&options, &|event| {
        if let JobEvent::Resumed { layer } = event {
            *resumed.lock().unwrap() = Some(layer);
        }
    })
    .unwrap();
    assert_eq!(*resumed.lock().unwrap(), Some(1));
    let mut whole = options.clone();
    whole.context.threads = Some(1);
    whole.files = RunFiles { out: work.join("again"), checkpoint: None, ..whole.files };
    let all = fhe::run(&whole, &|_| {}).unwrap();
    let reply = fs::read(work.join("reply")).unwrap();
    assert!(reply == fs::read(work.join("again")).unwrap());
    [report, all]
}

/// Columns are in pairs, and both halves of a layer spill; what the killed run left on the disk does not hinder the
/// next.
#[test]
fn a_decoders_run_that_was_killed_goes_on_with_the_same_bytes() {
    if is_child() {
        return;
    }
    let offered = Offered::decoder_paired();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    let (plan, _) = fhe::read_plan(&offered.plan()).unwrap();
    assert!(plan.placement.spill_attention && plan.placement.spill_feed_forward);
    offered.keygen(&work.join("keys")).unwrap();
    offered.encrypt(work, &texts()).unwrap();
    let test = "killed::a_decoders_run_that_was_killed_goes_on_with_the_same_bytes";
    killed(offered, work, test);

    let [resumed, whole] = go_on(offered, work);
    let (spilled, all) = (resumed.spilled, whole.spilled);
    assert!(spilled.written > 0 && spilled.written == spilled.read);
    assert!(all.written > spilled.written);
    assert_last_rows(offered, work);
}

/// Rows are packed: one vector goes on from the checkpoint.
#[test]
fn one_texts_run_that_was_killed_goes_on_with_the_same_bytes() {
    if is_child() {
        return;
    }
    let offered = Offered::one();
    let work = tempfile::tempdir().unwrap();
    let work = work.path();
    offered.keygen(&work.join("keys")).unwrap();
    offered.encrypt(work, &encoder_texts()[..1]).unwrap();
    let test = "killed::one_texts_run_that_was_killed_goes_on_with_the_same_bytes";
    killed(offered, work, test);
    go_on(offered, work);
    let answer = offered.decrypt(work).unwrap();
    assert_close(offered, &encoder_texts()[..1], &answer);
}
