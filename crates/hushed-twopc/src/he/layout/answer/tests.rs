use super::*;
use crate::he::layout::known::Layouts;
use crate::he::{Encrypted, MatmulShape, OltSpec};
use crate::share::Ring;
use std::collections::HashMap;

fn layouts() -> Layouts {
    Layouts::new(RlweParams::olt_full().unwrap())
}

fn answers(layouts: &Layouts, shape: MatmulShape, windows: [Option<Window>; 2]) -> Arc<[Answer]> {
    let [left, right] = shape.mixed(Ring::new(33));
    let [one, other] = windows;
    layouts.of_sum([OltSpec { window: one, ..left }, OltSpec { window: other, ..right }]).unwrap()
}

fn adds(answers: &[Answer]) -> bool {
    matches!(answers, [answer] if answer.terms.iter().any(|term| term.added))
}

/// Every leaf is in one response, and every cell has two positions, or one if leaves are added; none is used twice.
fn each_cell_has_its_place(answers: &[Answer]) {
    let added = adds(answers);
    let mut found: HashMap<usize, usize> = HashMap::new();
    for answer in answers {
        let mut leaves = vec![0; answer.terms().len()];
        for index in 0..answer.responses() {
            let size = answer.tree_size(index);
            assert!(size <= answer.largest_tree());
            for part in answer.parts(index) {
                assert_eq!(part.leaves.start, leaves[part.term]);
                leaves[part.term] = part.leaves.end;
                assert!(part.first + part.leaves.len() <= size);
                let wanted = answer.wanted(index, &part);
                let tiling = &answer.terms()[part.term].layout.tiling;
                assert_eq!(wanted.len(), tiling.wanted_in(part.leaves.clone()));
                // The tree keeps the coefficients of a leaf at multiples of its size, and only those.
                assert!(wanted.iter().all(|w| w.coefficient.is_multiple_of(size)));
            }
            let cells = answer.cells(index);
            assert!(cells.windows(2).all(|w| w[0].position < w[1].position));
            assert_eq!(cells.len(), answer.wanted_in_response(index));
            for cell in cells {
                *found.entry(cell.cell).or_default() += 1;
            }
            if added {
                let [one, other] = [0, 1].map(|term| answer.wanted(index, &answer.parts(index)[term]));
                assert_eq!(one, other);
            }
        }
        for (leaves, term) in leaves.iter().zip(answer.terms()) {
            assert_eq!(*leaves, term.layout.tiling.leaves());
        }
    }
    let results = answers[0].results();
    assert_eq!(found.len(), results);
    let times = if added { 1 } else { 2 };
    assert!(found.values().all(|count| *count == times));
}

#[test]
fn leaves_of_mirrored_windows_are_added() {
    let layouts = layouts();
    for (k, n, batch, [kw, mw, nw], added) in [
        (1, 384, 16, [1, 16, 384], true),
        (1, 384, 40, [1, 16, 200], true),
        (1, 128, 51, [1, 64, 128], true),
        (70, 1, 5, [70, 8, 1], true),
        // Cells are in another order there, and leaves.
        (6, 7, 3, [6, 8, 7], false),
        (6, 7, 3, [1, 8, 4], false),
    ] {
        let shape = MatmulShape { shape: OltShape { k, m: 1, n }, batch };
        let window = |kw, nw| Some(Window { kw, mw, nw });
        let answers = answers(&layouts, shape, [window(kw, nw), window(nw, kw)]);
        assert_eq!(adds(&answers), added, "{k} {n} {batch}");
        each_cell_has_its_place(&answers);
    }
}

#[test]
fn leaves_in_turn_take_fewer_responses() {
    let layouts = layouts();
    for (k, m, n, batch) in [(16, 32, 16, 12), (17, 17, 32, 12), (1, 64, 129, 12), (128, 64, 128, 2), (5, 6, 7, 2)] {
        let shape = MatmulShape { shape: OltShape { k, m, n }, batch };
        let together = answers(&layouts, shape, [None, None]);
        each_cell_has_its_place(&together);
        let apart = shape.mixed(Ring::new(33)).map(|spec| layouts.of(&spec).unwrap().tiling.cost());
        let [cost, apart] = [cost(together.iter()), apart[0] + apart[1]];
        assert!(cost.nanoseconds <= apart.nanoseconds && cost.bytes_out <= apart.bytes_out);
        assert_eq!((cost.inputs, cost.products), (apart.inputs, apart.products));
    }
    // Both terms of the scores of a short text fit one response.
    let scores = MatmulShape { shape: OltShape { k: 16, m: 32, n: 16 }, batch: 12 };
    assert_eq!(cost(answers(&layouts, scores, [None, None]).iter()).responses, 1);
}

#[test]
fn rows_in_two_parts_have_each_result_once() {
    let layouts = layouts();
    let spec = |k, m, n| OltSpec {
        multiplier_bits: 20,
        ..MatmulShape { shape: OltShape { k, m, n }, batch: 1 }.spec(Ring::new(48), Encrypted::Left)
    };
    for (k, m, n, parts) in [(17, 1536, 150, 2), (67, 300, 40, 2), (16, 1536, 384, 1), (24, 1536, 384, 1), (1, 9, 3, 1)]
    {
        let answer = layouts.of_rows(&spec(k, m, n)).unwrap();
        assert_eq!((answer.terms().len(), answer.results()), (parts, k * n), "{k}");
        let cells = (0..answer.responses()).flat_map(|index| answer.cells(index));
        let mut cells: Vec<usize> = cells.map(|cell| cell.cell).collect();
        cells.sort_unstable();
        assert!(cells.iter().copied().eq(0..k * n));
        let alone = layouts.of(&spec(k, m, n)).unwrap().tiling.cost();
        assert!(answer.cost().nanoseconds <= alone.nanoseconds);
    }
}

#[test]
fn terms_that_differ_in_kind_stay_apart() {
    let layouts = layouts();
    let spec = MatmulShape { shape: OltShape { k: 3, m: 5, n: 4 }, batch: 1 }.spec(Ring::new(33), Encrypted::Left);
    let krdy = OltSpec { packing: Packing::Krdy, ..spec };
    let wide = OltSpec { ring_bits: 40, ..spec };
    for other in [krdy, wide] {
        assert_eq!(layouts.of_sum([spec, other]).unwrap().len(), 2);
    }
}
