//! A tape in tiles is the tape.

use super::*;
use crate::machines::part::parts;
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

/// The first layer under a key.
struct Keyed {
    keys: Keys,
    columns: Vec<Ciphertext>,
    whole: (Tape, Schedule),
    tiles: (Tape, Schedule),
    sent: BTreeMap<&'static str, Block>,
}

impl Keyed {
    fn new() -> Keyed {
        let subject = Subject::new(&tiny_config(), Pool::Mean, &Structure::default());
        let simulator = subject.simulator();
        let ([whole, tiles], sent) = both(&subject, &simulator, false);
        run(&whole.0, &whole.1, &simulator, &sent);
        let demand = KeyDemand::of(&subject.params, &simulator.tally().counts());
        let mut keys = Keys::new(&subject.params, |bootstrap| demand.specs(&subject.params, bootstrap).unwrap());
        let columns: Vec<Ciphertext> = subject.columns().iter().map(|v| keys.encrypt(v, simulator.top())).collect();
        assert_eq!(columns.len(), subject.program.width());
        Keyed { keys, columns, whole, tiles, sent }
    }

    /// The values of a tape's inputs.
    fn values(&self, tape: &Tape) -> BTreeMap<NodeId, Held<Encrypted>> {
        let mut next = self.columns.iter();
        values::<Encrypted>(tape, &self.sent, &mut |_| next.next().unwrap().clone())
    }

    fn run(&self, (tape, schedule): (&Tape, &Schedule), held: &mut BTreeMap<NodeId, Held<Encrypted>>) {
        Local(&self.keys.on).run(tape, schedule, 0..tape.nodes.len(), held, &mut |_, _| Ok(())).unwrap();
    }

    /// What leaves a tape that is run as a whole.
    fn made(&self, (tape, schedule): &(Tape, Schedule)) -> Vec<Ciphertext> {
        let mut held = self.values(tape);
        self.run((tape, schedule), &mut held);
        let made: Vec<Ciphertext> = left(tape, &held).cloned().collect();
        assert_eq!(made.len(), self.columns.len());
        made
    }
}

/// What leaves a tape.
fn left<'h>(tape: &Tape, held: &'h BTreeMap<NodeId, Held<Encrypted>>) -> impl Iterator<Item = &'h Ciphertext> {
    leaving(tape).into_iter().flat_map(|i| held[&NodeId(i)].vectors())
}

fn equal<'c>(one: impl IntoIterator<Item = &'c Ciphertext>, two: &[Ciphertext]) -> bool {
    let one: Vec<&Ciphertext> = one.into_iter().collect();
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.a() == two.a() && one.b() == two.b())
}

/// Word by word.
#[test]
fn tiles_have_the_same_residues() {
    let layer = Keyed::new();
    assert!(equal(&layer.made(&layer.tiles), &layer.made(&layer.whole)));
}

/// Word by word: a layer in ranges, each on a machine of its own that gets the values which it reads.
#[test]
fn ranges_on_several_machines_have_the_same_residues() {
    let layer = Keyed::new();
    let (expected, (tape, placed)) = (layer.made(&layer.whole), &layer.tiles);
    for count in [1, 2, 5, 16] {
        let nodes = tape.nodes.len();
        let ranges: Vec<Range<usize>> = (0..count).map(|r| r * nodes / count..(r + 1) * nodes / count).collect();
        let parts = parts(tape, placed, &ranges);
        let mut known = layer.values(tape);
        for part in &parts {
            let mut held = BTreeMap::new();
            for import in &part.imports {
                let value = match import.sums {
                    // Begun sums are finished once.
                    true => known.remove(&import.id).unwrap(),
                    false => Held::Block(Arc::new(known[&import.id].rows().to_vec())),
                };
                held.insert(import.here, value);
            }
            layer.run((&part.tape, &part.schedule), &mut held);
            for export in &part.exports {
                known.insert(export.id, held.remove(&export.here).unwrap());
            }
        }
        assert!(equal(left(tape, &known), &expected), "{count}");
    }
}
