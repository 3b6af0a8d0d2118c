//! Lookups whose product was made ahead, between two parties.

use hushed_model::testing::{tiny_generator, tiny_golden};
use hushed_model::{Embedding, Model, ModelError, Program};
use hushed_net::{Kind, Party};
use hushed_twopc::TwopcError;
use hushed_twopc::he::linear_ahead_cost;
use hushed_twopc::share::Share;

use crate::formats::MAIN;
use crate::lookup::Table;
use crate::shares::stock::Of;
use crate::shares::{Known, Protocol, Shares};
use crate::testing::run_pair;
use crate::weights::embed;
use crate::{RunError, Terms};

const PADDED: Terms = Terms { padded: true, public_table: false };

const PUBLIC: Terms = Terms { padded: true, public_table: true };

/// The same model at the client (as shapes) and at the server.
fn programs(model: &Model) -> [Program; 2] {
    [Model::shapes_only(&model.public).program(), model.program()]
}

/// Looks up places; the server gives only their number.
fn look(on: &mut Protocol, e: &Embedding, table: Table, places: &[u32]) -> Result<Share, RunError> {
    let values = || places.iter().map(|&p| i64::from(p)).collect();
    let places: Known = on.known(Party::Client, places.len(), values);
    on.lookup(&places, None, e, table)
}

/// Runs something and counts the bytes that this party sends and receives meanwhile.
fn counted<T>(on: &mut Protocol, run: impl FnOnce(&mut Protocol) -> T) -> (T, u64) {
    let before = on.ctx().session.stats();
    let result = run(on);
    let stats = on.ctx().session.stats().since(&before);
    (result, stats.bytes_sent + stats.bytes_received)
}

/// Checks that shares are rows of a table, off by at most one unit.
fn assert_rows(e: &Embedding, table: Table, places: &[u32], shares: [&Share; 2]) {
    let rows = embed::of_numbers(e, table, |[all, _]| {
        let rows = places.iter().map(|&p| all.chunks(e.width).nth(p as usize));
        rows.flat_map(|row| row.unwrap().iter().map(embed::integer)).collect::<Vec<i32>>()
    });
    let (rows, found) = (rows.unwrap(), shares[0].add(shares[1]));
    assert_eq!(rows.len(), found.len());
    for (word, row) in found.words().iter().zip(rows) {
        assert!((MAIN.decode(*word) - i64::from(row)).abs() <= 1);
    }
}

/// What was made for a pass is used once, by the first lookup of one place, and gives the same row as an ordinary
/// lookup; both send what they declare. Other tables and other numbers of places get nothing from it.
#[test]
fn a_row_is_looked_up_with_what_was_made_ahead_once() {
    let model = tiny_generator();
    let (programs, last) = (programs(&model), model.public.config.vocabulary as u32 - 1);
    let e = model.embedding().unwrap();
    let passes = [[0, 3], [last, 0], [17, 63]];
    let go = |on: &mut Protocol, program: &Program| {
        on.make_ahead(program, passes.len(), PADDED).unwrap();
        let e = program.embedding().unwrap();
        passes.map(|[id, place]| {
            on.spending_ahead(&[1], |on| {
                let lookups = [
                    (Table::Tokens, vec![id, last]),
                    (Table::Tokens, vec![id]),
                    (Table::Tokens, vec![id]),
                    (Table::Positions, vec![place]),
                    (Table::Positions, vec![place]),
                ];
                let mut all = Vec::new();
                for (table, places) in lookups {
                    let run = |on: &mut Protocol| look(on, e, table, &places);
                    let (share, bytes) = counted(on, run);
                    all.push((table, places, share?, bytes));
                }
                Ok(all)
            })
            .unwrap()
        })
    };
    let costs = |on: &Protocol| {
        let once = |table: Table, places: usize| {
            let spec = table.shape(e, places).spec(MAIN);
            let plan = on.he.layouts().of_rows(&spec).unwrap().cost();
            plan.traffic().wire_bytes()
        };
        let ahead = |table: Table| linear_ahead_cost(table.rows(e), MAIN).wire_bytes();
        [
            once(Table::Tokens, 2),
            ahead(Table::Tokens),
            once(Table::Tokens, 1),
            ahead(Table::Positions),
            once(Table::Positions, 1),
        ]
    };
    let ((client, costs), server) = run_pair(|on| (go(on, &programs[0]), costs(on)), |on| go(on, &programs[1]));
    for (client, server) in client.iter().zip(&server) {
        for ((a, b), cost) in client.iter().zip(server).zip(costs) {
            assert_eq!([a.3, b.3], [cost; 2], "{:?}", a.0);
            assert_rows(e, a.0, &a.1, [&a.2, &b.2]);
        }
    }
}

/// What one pass leaves is not kept for the next; a place beyond the table is refused before anything is sent.
#[test]
fn what_a_pass_does_not_take_is_gone() {
    let programs = programs(&tiny_generator());
    let go = |on: &mut Protocol, program: &Program| {
        on.make_ahead(program, 2, Terms::default()).unwrap();
        let e = program.embedding().unwrap();
        for _ in 0..2 {
            on.spending_ahead(&[1], |_| Ok(())).unwrap();
            assert!(on.stock.current.is_empty() && on.stock.sets.len() < 2);
        }
        let nothing = on.spending_ahead(&[1], |on| look(on, e, Table::Tokens, &[1]));
        assert!(matches!(nothing, Err(RunError::NothingAhead)));
        on.make_ahead(program, 1, Terms::default()).unwrap();
        if on.ctx().is_client() {
            let beyond = e.vocabulary as u32;
            let (refused, bytes) =
                counted(on, |on| on.spending_ahead(&[1], |on| look(on, e, Table::Tokens, &[beyond])));
            let error = RunError::Model(ModelError::TokenOutOfRange { vocabulary: e.vocabulary });
            assert_eq!(refused.err().unwrap().to_string(), error.to_string());
            assert_eq!(bytes, 0);
        }
    };
    run_pair(|on| go(on, &programs[0]), |on| go(on, &programs[1]));
}

/// Products are made only for some tables: not for a public one, nor for positions that the server knows or that do not
/// exist.
#[test]
fn tables_that_are_not_looked_up_have_nothing_made() {
    let (placed, turned) = (tiny_generator(), Model::load(&tiny_golden("llama")).unwrap());
    let made = |model: &Model, terms: Terms| {
        let programs = programs(model);
        let go = |on: &mut Protocol, program: &Program| {
            on.make_ahead(program, 1, terms).unwrap();
            let of = on.stock.sets[0].products.keys();
            let of: Vec<bool> = [Table::Tokens, Table::Positions, Table::PublicTokens]
                .map(|table| of.clone().any(|of| *of == Of::Table(table)))
                .to_vec();
            of
        };
        let (client, server) = run_pair(|on| go(on, &programs[0]), |on| go(on, &programs[1]));
        assert_eq!(client, server);
        client
    };
    assert_eq!(made(&placed, Terms::default()), [true, false, false]);
    assert_eq!(made(&placed, PADDED), [true, true, false]);
    assert_eq!(made(&placed, PUBLIC), [false, true, false]);
    assert_eq!(made(&turned, PADDED), [true, false, false]);
    assert_eq!(made(&turned, PUBLIC), [false, false, false]);
}

/// Products made for passes with a public table, in a pass without one: the lookup is made on the spot.
#[test]
fn a_lookup_on_other_terms_is_made_at_once() {
    let model = tiny_generator();
    let (programs, e) = (programs(&model), model.embedding().unwrap());
    let go = |on: &mut Protocol, program: &Program| {
        on.make_ahead(program, 1, PUBLIC).unwrap();
        let e = program.embedding().unwrap();
        on.spending_ahead(&[1], |on| look(on, e, Table::Tokens, &[40])).unwrap()
    };
    let (a, b) = run_pair(|on| go(on, &programs[0]), |on| go(on, &programs[1]));
    assert_rows(e, Table::Tokens, &[40], [&a, &b]);
}

/// A masked row that is too short, too long or another message.
#[test]
fn masked_rows_of_other_lengths_are_refused() {
    let model = tiny_generator();
    let programs = programs(&model);
    let length = model.public.config.vocabulary * MAIN.bits() as usize / 8;
    for (kind, length) in [(0x0410, length - 1), (0x0410, length + 1), (0x0410, 0), (0x0411, length)] {
        let ((), error) = run_pair(
            |on| {
                on.make_ahead(&programs[0], 1, Terms::default()).unwrap();
                let session = &mut on.ctx().session;
                session.send(Kind(kind), &vec![0xff; length]).unwrap();
            },
            |on| {
                on.make_ahead(&programs[1], 1, Terms::default()).unwrap();
                let e = programs[1].embedding().unwrap();
                on.spending_ahead(&[1], |on| look(on, e, Table::Tokens, &[0])).err()
            },
        );
        let is_typed = matches!(error, Some(RunError::Protocol(TwopcError::Net(_))));
        assert!(is_typed, "{kind:x} {length}");
    }
}
