//! One run on two machines: values as bytes between them, and the reply of a run in one process, byte for byte.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use hushed_fhe::Division;
use hushed_fhe::run::worker::WorkList;
use hushed_serve::fhe::{self, MachinesDriver, MachinesWorker, RunOptions, Values};

use crate::decoder::texts as decoder_texts;
use crate::offered::{Offered, texts};

/// Bytes a second between machines.
const RATE: f64 = 1.25e9;

/// Set in a process that is a machine: the folder that it works in, the offered one, the file of its plan, its number.
const SET: [&str; 4] =
    ["HUSHED_TEST_MACHINE_WORK", "HUSHED_TEST_MACHINE_OFFERED", "HUSHED_TEST_MACHINE_PLAN", "HUSHED_TEST_MACHINE"];

/// Keys, a request, and the reply of one process, which is moved away.
fn prepared(offered: &Offered, work: &Path, texts: &[String]) -> (RunOptions, Vec<u8>) {
    offered.keygen(&work.join("keys")).unwrap();
    offered.encrypt(work, texts).unwrap();
    let mut options = offered.options(work);
    options.files.checkpoint = None;
    options.context.threads = Some(1);
    fhe::run(&options, &|_| {}).unwrap();
    let reply = fs::read(&options.files.out).unwrap();
    fs::remove_file(&options.files.out).unwrap();
    (options, reply)
}

fn of<'v>(all: &'v BTreeMap<usize, Vec<u8>>, names: impl Iterator<Item = usize>) -> Values<'v> {
    names.map(|name| (name, all[&name].as_slice())).collect()
}

fn answers(list: &WorkList) -> impl Iterator<Item = usize> {
    let written = list.ranges.iter().flat_map(|range| &range.writes);
    written.filter(|of| of.answers).map(|of| of.value)
}

/// Of encoders with lengths public and private, with texts that share places, one text alone in packed rows, and
/// decoders with sigmoid and with softmax, their rows, their logits, their columns in pairs, one prompt in packed rows.
#[test]
fn two_machines_have_the_reply_of_one() {
    let encoders = [
        (&Offered::both()[0], &texts()[..]),
        (&Offered::both()[1], &texts()[..]),
        (&Offered::shared(), &texts()[..]),
        (Offered::one(), &texts()[..1]),
        (Offered::one_hidden(), &texts()[..1]),
    ];
    let decoders = [
        Offered::decoder(),
        Offered::softmax(),
        Offered::decoder_rows(),
        Offered::decoder_logits(),
        Offered::decoder_paired(),
    ];
    let prompts = decoder_texts();
    let decoders = decoders.map(|offered| (offered, &prompts[..]));
    let alone = (Offered::decoder_alone(), &prompts[..1]);
    for (offered, texts) in encoders.into_iter().chain(decoders).chain([alone]) {
        let work = tempfile::tempdir().unwrap();
        let (options, expected) = prepared(offered, work.path(), texts);
        let driver = MachinesDriver::open(&options).unwrap();
        let division = driver.divide(2, RATE).unwrap();
        let machines = [0, 1].map(|_| MachinesWorker::open(&options, &division).unwrap());
        let list = machines[0].list();
        assert_eq!((list, &driver.run()), (machines[1].list(), &list.run));
        let used: BTreeSet<usize> = list.ranges.iter().map(|range| range.machine).collect();
        assert!(list.ranges.len() > 4, "{} ranges on {used:?}", list.ranges.len());
        let mut values: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
        for (number, range) in list.ranges.iter().enumerate() {
            // Each range on the other machine than the one before.
            let made = machines[number % 2].run(number, &of(&values, range.reads.iter().copied())).unwrap();
            assert_eq!(made.len(), range.writes.len());
            for (made, written) in made.into_iter().zip(&range.writes) {
                assert_eq!(made.len() as u64, written.bytes);
                values.insert(written.value, made);
            }
        }
        let answers: Vec<usize> = answers(list).collect();
        driver.seal(list, &of(&values, answers.iter().copied())).unwrap();
        assert!(fs::read(&options.files.out).unwrap() == expected, "{}", offered.file);
        if offered.file == "plan.json" {
            refused(&machines, list, &values, &division, &options);
        }
    }
}

/// Values that are missing, damaged or others, ranges that there are not, divisions of other runs.
fn refused(
    machines: &[MachinesWorker; 2],
    list: &WorkList,
    values: &BTreeMap<usize, Vec<u8>>,
    division: &Division,
    options: &RunOptions,
) {
    let reads_two = |range: &&fhe_work::WorkItem| range.reads.len() > 1;
    let number = list.ranges.iter().position(|range| reads_two(&range)).unwrap();
    let range = &list.ranges[number];
    let given = of(values, range.reads.iter().copied());
    let run = |given: &Values<'_>| machines[1].run(number, given).err().map(|error| error.name());
    assert_eq!(run(&given), None);
    let name = range.reads[0];
    let whole = &values[&name];
    let with = |bytes: &[u8]| {
        let mut given = given.clone();
        given.insert(name, bytes);
        run(&given)
    };
    for at in [0, 5, 9, 26, 34, 70, 80, 90, whole.len() / 2, whole.len() - 1] {
        let mut other = whole.clone();
        other[at] ^= 1;
        assert!(with(&other).is_some(), "byte {at} of {}", whole.len());
    }
    for length in [0, 1, 31, 200, whole.len() - 1] {
        assert!(with(&whole[..length]).is_some());
    }
    assert!(with(&[whole.as_slice(), &[0]].concat()).is_some());
    // Another value of the same run.
    let other = values.keys().find(|other| **other != name).unwrap();
    assert!(with(&values[other]).is_some());
    let mut fewer = given.clone();
    fewer.remove(&name);
    assert!(run(&fewer).is_some());
    assert!(machines[1].run(list.ranges.len(), &given).is_err());
    let mut shorter = division.clone();
    shorter.ranges.pop();
    let mut unordered = division.clone();
    unordered.ranges.swap(0, 1);
    for division in [shorter, unordered, Division { ranges: Vec::new(), ..division.clone() }] {
        assert!(MachinesWorker::open(options, &division).is_err());
    }
    // Another request is another run, whose values are refused.
    let mut text = serde_json::to_value(list).unwrap();
    text["run"] = "0".repeat(64).into();
    let other: WorkList = serde_json::from_value(text).unwrap();
    let driver = MachinesDriver::open(options);
    // The reply is there already: nobody is asked to seal another.
    assert!(driver.as_ref().unwrap().answered().unwrap());
    assert!(driver.unwrap().seal(&other, &given).is_err());
}

use hushed_fhe::run::worker as fhe_work;

/// In a process that is a machine, runs what it is given until it is killed; false in any other.
fn is_machine() -> bool {
    let [Ok(work), Ok(folder), Ok(file), Ok(number)] = SET.map(std::env::var) else {
        return false;
    };
    let offered = Offered { folder: folder.into(), file: file.leak() };
    let work = Path::new(&work);
    let mut options = offered.options(work);
    options.context.threads = Some(1);
    let division = serde_json::from_slice(&fs::read(work.join("division")).unwrap()).unwrap();
    let machine = MachinesWorker::open(&options, &division).unwrap();
    let own = work.join(&number);
    put(&own.join("list"), &serde_json::to_vec(machine.list()).unwrap());
    loop {
        let task = own.join("task");
        if !task.exists() {
            std::thread::sleep(Duration::from_millis(2));
            continue;
        }
        let range: usize = fs::read_to_string(&task).unwrap().parse().unwrap();
        fs::remove_file(&task).unwrap();
        let item = &machine.list().ranges[range];
        let read = |&value: &usize| (value, fs::read(work.join(format!("value-{value}"))).unwrap());
        let values: BTreeMap<usize, Vec<u8>> = item.reads.iter().map(read).collect();
        let made = machine.run(range, &of(&values, item.reads.iter().copied())).unwrap();
        for (made, written) in made.iter().zip(&item.writes) {
            put(&work.join(format!("value-{}", written.value)), made);
        }
        put(&own.join(format!("done-{range}")), b"");
    }
}

/// Writes a file that others see whole or not at all.
fn put(path: &Path, bytes: &[u8]) {
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    fs::write(&draft, bytes).unwrap();
    fs::rename(&draft, path).unwrap();
}

struct Machine(Child);

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two processes, one of which is killed within a layer: what it was given goes to the other.
#[test]
fn a_machine_that_is_killed_within_a_layer_costs_its_range() {
    if is_machine() {
        return;
    }
    let (offered, work) = (Offered::get(), tempfile::tempdir().unwrap());
    let work = work.path();
    let (options, expected) = prepared(offered, work, &texts());
    let driver = MachinesDriver::open(&options).unwrap();
    put(&work.join("division"), &serde_json::to_vec(&driver.divide(2, RATE).unwrap()).unwrap());
    let start = |number: usize| {
        fs::create_dir(work.join(number.to_string())).unwrap();
        let values = [work.to_str().unwrap(), offered.folder.to_str().unwrap(), offered.file, &number.to_string()];
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["machines::a_machine_that_is_killed_within_a_layer_costs_its_range", "--exact"])
            .envs(SET.into_iter().zip(values))
            .spawn();
        Machine(child.unwrap())
    };
    let mut machines = [start(0), start(1)];
    let wait = |machine: &mut Machine, path: &Path| {
        while !path.exists() {
            assert!(machine.0.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let mut list = None;
    for (number, machine) in machines.iter_mut().enumerate() {
        let path = work.join(number.to_string()).join("list");
        wait(machine, &path);
        let found: WorkList = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert!(found == *list.get_or_insert_with(|| found.clone()) && found.run == driver.run());
    }
    let list = list.unwrap();
    // In the middle between the ends of the first layer and the second.
    let ends: Vec<usize> = (0..list.ranges.len()).filter(|&r| list.ranges[r].ends_layer).collect();
    let fatal = ends[ends.len() / 2] + 1;
    assert!(!list.ranges[fatal].ends_layer);
    let mut lost = false;
    for range in 0..list.ranges.len() {
        let mut number = if lost { 0 } else { range % 2 };
        if range == fatal {
            put(&work.join("1/task"), range.to_string().as_bytes());
            machines[1].0.kill().unwrap();
            machines[1].0.wait().unwrap();
            (lost, number) = (true, 0);
        }
        let own = work.join(number.to_string());
        put(&own.join("task"), range.to_string().as_bytes());
        wait(&mut machines[number], &own.join(format!("done-{range}")));
    }
    let read = |value: usize| (value, fs::read(work.join(format!("value-{value}"))).unwrap());
    let values: BTreeMap<usize, Vec<u8>> = answers(&list).map(read).collect();
    driver.seal(&list, &of(&values, values.keys().copied())).unwrap();
    assert!(fs::read(&options.files.out).unwrap() == expected);
}
