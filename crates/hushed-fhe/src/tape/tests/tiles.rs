//! A tape in tiles is the tape.

use super::*;
use crate::machines::part::Cut;
use crate::machines::tiles::tiled;
use crate::slots::REFRESH_TILE;

/// The first layer of a subject, placed, and the same in tiles.
fn both(subject: &Subject, on: &Simulator, hidden: bool) -> ([(Tape, Schedule); 2], BTreeMap<&'static str, Block>) {
    let placed = || {
        let (mut tape, sent) = subject.layer(on, hidden);
        let schedule = assign(&mut tape, on, &limits(on, hidden, false)).unwrap();
        (tape, schedule, sent)
    };
    let ((whole, schedule, sent), (tape, again, _)) = (placed(), placed());
    let tiles = tiled(tape, &again).unwrap();
    ([(whole, schedule), tiles], sent)
}

/// On plain numbers, bit by bit, whatever a layer is made of. No node that computes vectors apart has more than a tile.
#[test]
fn tiles_compute_what_the_tape_computes() {
    let replaced = Structure { previous: vec![(0, 1)], frozen_layers: 1 };
    let classifier = NetworkConfig { layers: 1, ..tiny_classifier_config(&TINY_LABELS) };
    let structures = [
        (tiny_config(), Pool::Mean, Structure::default()),
        (tiny_config(), Pool::First, replaced),
        (NetworkConfig { merged: vec![1], ..tiny_config() }, Pool::Mean, Structure::default()),
        (classifier, Pool::First, Structure::default()),
    ];
    for (config, pool, structure) in structures {
        let subject = Subject::new(&config, pool, &structure);
        let on = subject.simulator();
        for hidden in [false, true] {
            let ([whole, tiles], sent) = both(&subject, &on, hidden);
            let of = |(tape, _): &(Tape, Schedule)| outputs(tape, &sent, Functions::Approximate);
            assert_eq!(of(&whole), of(&tiles));
            let count = |(tape, _): &(Tape, Schedule)| tape.nodes.len();
            assert!(count(&tiles) > count(&whole), "{} of {}", count(&tiles), count(&whole));
            for node in &tiles.0.nodes {
                let alone = matches!(
                    node.op,
                    Op::Input(_)
                        | Op::LinearSum { .. }
                        | Op::Finished
                        | Op::Dot
                        | Op::Join
                        | Op::Row { .. }
                        | Op::Split { .. }
                        | Op::Cut { .. }
                );
                assert!(alone || node.shape.0 * node.shape.1 <= REFRESH_TILE, "{} {:?}", node.step, node.op);
            }
            // Levels and scales are those of the placement, on the way too.
            let (found, worst) = run(&tiles.0, &tiles.1, &on, &sent);
            assert!(worst < if hidden { 1e-2 } else { 1e-6 }, "{worst:e}");
            assert!(found.iter().all(|v| on.limbs(v) == on.floor() + 1));
        }
    }
}

/// Under a key, word by word.
#[test]
fn tiles_have_the_same_residues() {
    let subject = Subject::new(&tiny_config(), Pool::Mean, &Structure::default());
    let simulator = subject.simulator();
    let ([(whole, schedule), (tape, placed)], sent) = both(&subject, &simulator, false);
    run(&whole, &schedule, &simulator, &sent);
    let demand = KeyDemand::of(&subject.params, &simulator.tally().counts());
    let mut keys = Keys::new(&subject.params, |bootstrap| demand.specs(&subject.params, bootstrap).unwrap());
    let columns: Vec<Ciphertext> = subject.columns().iter().map(|v| keys.encrypt(v, simulator.top())).collect();
    let made = |tape: &Tape, schedule: &Schedule| -> Vec<Ciphertext> {
        let mut next = columns.iter();
        let mut held = values::<Encrypted>(tape, &sent, &mut |_| next.next().unwrap().clone());
        Local(&keys.on).run(tape, schedule, 0..tape.nodes.len(), &mut held, &mut |_, _| Ok(())).unwrap();
        leaving(tape).into_iter().flat_map(|i| held[&NodeId(i)].vectors().into_iter().cloned()).collect()
    };
    let (one, two) = (made(&whole, &schedule), made(&tape, &placed));
    assert_eq!(one.len(), subject.program.width());
    assert!(one.len() == two.len() && one.iter().zip(&two).all(|(one, two)| one.a() == two.a() && one.b() == two.b()));
}

/// Under a key, word by word: a layer in ranges, each on a machine of its own that gets the values which it reads.
#[test]
fn ranges_on_several_machines_have_the_same_residues() {
    let subject = Subject::new(&tiny_config(), Pool::Mean, &Structure::default());
    let simulator = subject.simulator();
    let ([(whole, schedule), (tape, placed)], sent) = both(&subject, &simulator, false);
    run(&whole, &schedule, &simulator, &sent);
    let demand = KeyDemand::of(&subject.params, &simulator.tally().counts());
    let mut keys = Keys::new(&subject.params, |bootstrap| demand.specs(&subject.params, bootstrap).unwrap());
    let columns: Vec<Ciphertext> = subject.columns().iter().map(|v| keys.encrypt(v, simulator.top())).collect();
    let mut next = columns.iter().cycle();
    let mut held = values::<Encrypted>(&whole, &sent, &mut |_| next.next().unwrap().clone());
    Local(&keys.on).run(&whole, &schedule, 0..whole.nodes.len(), &mut held, &mut |_, _| Ok(())).unwrap();
    let expected: Vec<Ciphertext> =
        leaving(&whole).into_iter().flat_map(|i| held[&NodeId(i)].vectors().into_iter().cloned()).collect();
    for count in [1, 2, 5, 16] {
        let nodes = tape.nodes.len();
        let ranges: Vec<Range<usize>> = (0..count).map(|r| r * nodes / count..(r + 1) * nodes / count).collect();
        let cut = Cut::new(&tape, &placed, &ranges);
        let mut next = columns.iter().cycle();
        let mut known = values::<Encrypted>(&tape, &sent, &mut |_| next.next().unwrap().clone());
        for r in 0..count {
            let part = cut.part(r);
            let mut held = BTreeMap::new();
            for (id, here) in &part.imports {
                let value = match tape.nodes[id.0].op {
                    // Begun sums are finished once.
                    Op::LinearSum { .. } => known.remove(id).unwrap(),
                    _ => Held::Block(Arc::new(known[id].rows().to_vec())),
                };
                held.insert(*here, value);
            }
            Local(&keys.on)
                .run(&part.tape, &part.schedule, 0..part.tape.nodes.len(), &mut held, &mut |_, _| Ok(()))
                .unwrap();
            for (id, here) in &part.exports {
                known.insert(*id, held.remove(here).unwrap());
            }
        }
        let found: Vec<&Ciphertext> = leaving(&tape).into_iter().flat_map(|i| known[&NodeId(i)].vectors()).collect();
        assert_eq!(found.len(), expected.len());
        assert!(found.iter().zip(&expected).all(|(one, two)| one.a() == two.a() && one.b() == two.b()), "{count}");
    }
}
