//! Every sum of a transform stays within its bound in the worst case. Random numbers would not show one reduction too
//! few, so the kernels' own butterflies are compiled for the processor over bounds in place of numbers (`bounds.h`).

use std::path::Path;
use std::process::Command;

use hushed_device::{Arithmetic, Text};

use crate::bed::ARITHMETICS;

/// Whether all bounds hold for the text after a change; `None` without a C++ compiler.
fn hold(n: usize, arithmetic: Arithmetic, change: &dyn Fn(&str) -> String, name: &str) -> Option<bool> {
    let source = Text::new(n, arithmetic).unwrap().source();
    let sizes: String = source.lines().filter(|line| line.starts_with("#define LOG_N")).collect();
    // The macros of one arithmetic, and those that both share.
    let start = source.find("#define LOG_A").unwrap();
    let end = source.find("// End of the layers.").unwrap();
    let macros = change(&source[start..end]);
    let arith = usize::from(arithmetic == Arithmetic::Doubles);
    let kept = macros.lines().filter(|line| !line.starts_with("typedef"));
    let macros: String = kept.flat_map(|line| [line, "\n"]).collect();
    let shim = include_str!("bounds.h");
    let program = format!("{sizes}\n#define ARITH {arith}\n{macros}\n{shim}");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (from, to) = (folder.join(format!("{name}.cpp")), folder.join(name));
    std::fs::write(&from, program).unwrap();
    let compiled = Command::new("c++").args(["-std=c++17", "-O0", "-w", "-o"]).arg(&to).arg(&from).output();
    let Ok(compiled) = compiled else {
        println!("skipped: no C++ compiler");
        return None;
    };
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let run = Command::new(&to).output().unwrap();
    println!("n = {n}, {arithmetic:?}: {}", String::from_utf8_lossy(&run.stdout).trim());
    Some(run.status.success())
}

#[test]
fn sums_stay_within_their_bounds_in_the_worst_case() {
    for n in [1 << 8, 1 << 12, 1 << 16] {
        for arithmetic in ARITHMETICS {
            let Some(hold) = hold(n, arithmetic, &str::to_owned, &format!("bounds-{n}-{arithmetic:?}")) else {
                return;
            };
            assert!(hold, "n = {n}, {arithmetic:?}");
        }
    }
}

/// Without any one of the four groups of reductions, in doubles, a bound is exceeded.
#[test]
fn a_reduction_that_is_left_out_is_seen() {
    let forward = |j: u32| ("if (j % 2 == 0)".to_owned(), format!("if (j % 2 == 0 && j != {j})"));
    let inverse = |l: u32| ("if (l % 2 == 1 || j == 0)".to_owned(), format!("if ((l % 2 == 1 || j == 0) && l != {l})"));
    for (number, (from, to)) in [forward(0), forward(2), inverse(1), inverse(3)].into_iter().enumerate() {
        let change = |text: &str| {
            assert_eq!(text.matches(&from).count(), 1);
            text.replace(&from, &to)
        };
        let Some(hold) = hold(1 << 16, Arithmetic::Doubles, &change, &format!("bounds-without-{number}")) else {
            return;
        };
        assert!(!hold, "{to}");
    }
}
