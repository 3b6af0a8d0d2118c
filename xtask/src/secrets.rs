//! Secrets decide no time, branch or address: checks of an optimised build of `hushed-twopc/examples/secrets.rs`. With
//! valgrind it is built as what is released, in profile `dist`. Without, our crates are compiled as `release` compiles
//! them, and the foreign ones are those that the tests link: what is checked is in our crates.
//! * time: sees a difference in mean time between secrets of zeros and of ones, in the kernels of this processor;
//!   misses what differs only between other values.
//! * watch (valgrind): sees every branch and address that depends on a secret, in functions and in whole protocols;
//!   misses kernels that valgrind cannot run, those on 512-bit registers.
//! * disassembly: sees, in functions on 512-bit registers, any conditional jump beyond the declared ones and any jump
//!   on a mask register; cannot tell which of two equal-looking jumps is the loop's.

use crate::Outcome;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions on 512-bit registers, all of which may hold secrets, with the number of their conditional jumps: ends of
/// loops over public lengths, tails shorter than a register, layers of a transform, and bounds checks. Counted in the
/// builds of the pinned toolchain, the larger of the two. A higher count is an error until somebody has looked.
#[rustfmt::skip]
const DECLARED: [(&str, usize); 57] = [
    ("hushed_math::bits::aes::avx512::counter", 6),
    ("hushed_math::bits::aes::avx512::residues", 2),
    ("hushed_math::bits::aes::wide::quads::encrypt", 4),
    ("hushed_math::bits::aes::wide::quads::expand_many", 63),
    ("hushed_math::bits::aes::wide::quads::half_tree_level", 8),
    ("hushed_math::bits::aes::wide::quads::hash_each_alone", 26),
    ("hushed_math::bits::aes::wide::quads::hash_groups", 33),
    ("hushed_math::bits::field::vpclmul::dot", 7),
    ("hushed_math::kernels::fma::convert::combine::eight", 7),
    ("hushed_math::kernels::fma::convert::prepare::eight", 21),
    ("hushed_math::kernels::fma::inverse::inverse_whole::eight", 45),
    ("hushed_math::kernels::fma::limb::dot_assign::eight", 19),
    ("hushed_math::kernels::fma::limb::dot_pair::eight", 23),
    ("hushed_math::kernels::fma::limb::dot_scalars_assign::eight", 17),
    ("hushed_math::kernels::fma::limb::lift_centred::eight", 4),
    ("hushed_math::kernels::fma::limb::mod_down_finish::eight", 10),
    ("hushed_math::kernels::fma::limb::mul_add_assign::eight", 5),
    ("hushed_math::kernels::fma::limb::mul_assign::eight", 4),
    ("hushed_math::kernels::fma::limb::mul_scalar_add_assign::eight", 4),
    ("hushed_math::kernels::fma::limb::mul_scalar_assign::eight", 3),
    ("hushed_math::kernels::fma::limb::sub_mul_scalar_assign::eight", 4),
    ("hushed_math::kernels::fma::ntt::forward_block::eight", 77),
    ("hushed_math::kernels::fma::points::tile::eight", 13),
    ("hushed_math::kernels::ifma::accept::run", 7),
    ("hushed_math::kernels::ifma::convert::Converter::combine_strip", 50),
    ("hushed_math::kernels::ifma::convert::Converter::convert_two", 4),
    ("hushed_math::kernels::ifma::convert::Converter::prepare_strip", 13),
    ("hushed_math::kernels::ifma::forward::transform", 102),
    ("hushed_math::kernels::ifma::fused::add", 2),
    ("hushed_math::kernels::ifma::fused::dot_pair", 11),
    ("hushed_math::kernels::ifma::fused::dot_pair_of_turned", 9),
    ("hushed_math::kernels::ifma::fused::dot_scalars_assign", 5),
    ("hushed_math::kernels::ifma::fused::mul_scalar", 3),
    ("hushed_math::kernels::ifma::fused::sub", 2),
    ("hushed_math::kernels::ifma::fused::sub_mul_scalar", 6),
    ("hushed_math::kernels::ifma::inverse::transform", 114),
    ("hushed_math::kernels::ifma::limb::add_assign", 7),
    ("hushed_math::kernels::ifma::limb::dot_assign", 15),
    ("hushed_math::kernels::ifma::limb::lift_centred", 5),
    ("hushed_math::kernels::ifma::limb::lift_signed", 7),
    ("hushed_math::kernels::ifma::limb::lift_small", 6),
    ("hushed_math::kernels::ifma::limb::mul_add_assign", 3),
    ("hushed_math::kernels::ifma::limb::mul_assign", 3),
    ("hushed_math::kernels::ifma::limb::mul_scalar_assign", 6),
    ("hushed_math::kernels::ifma::limb::neg_assign", 7),
    ("hushed_math::kernels::ifma::limb::reduce", 3),
    ("hushed_math::kernels::ifma::limb::reduce_signed", 4),
    ("hushed_math::kernels::ifma::limb::sub_assign", 7),
    ("hushed_math::kernels::ifma::limb::sub_centred_mul_scalar", 5),
    ("hushed_math::kernels::ifma::permute::run", 4),
    ("hushed_math::kernels::ifma::points::multiply", 4),
    ("hushed_math::kernels::ifma::points::short", 12),
    ("hushed_math::kernels::ifma::points::tile", 40),
    ("hushed_math::kernels::ifma::points::whole_run", 3),
    ("hushed_math::kernels::ring::eight", 40),
    ("hushed_math::kernels::ring::words_eight", 16),
    ("hushed_math::kernels::sums::eight", 18),
];

/// Only our own code is checked.
const OURS: [&str; 2] = ["hushed_math::", "hushed_twopc::"];

/// Builds the checker and runs it, with `watch` under valgrind too. Returns the outcomes with their names.
pub fn check(root: &Path, watch: bool) -> Vec<(&'static str, Outcome)> {
    let checker = match build(root, watch) {
        Ok(checker) => checker,
        Err(problem) => return vec![("secrets", Err(vec![problem]))],
    };
    let mut all = vec![("secrets: time", timed(&checker)), ("secrets: jumps", disassembled(&checker))];
    if watch {
        all.push(("secrets: valgrind", watched(&checker)));
    }
    all
}

/// Our crates in the checker, and how profile `release` compiles them where `dev` differs.
const COMPILED: [&str; 4] = ["hushed-math", "hushed-net", "hushed-rlwe", "hushed-twopc"];
const RELEASE: [&str; 3] = ["opt-level=3", "debug-assertions=false", "overflow-checks=false"];

fn build(root: &Path, released: bool) -> Result<PathBuf, String> {
    let mut command = Command::new(crate::cargo());
    command
        .args(["build", "--locked", "-p", "hushed-twopc"])
        .args(["--example", "secrets", "--features", "taint"])
        .current_dir(root);
    if released {
        // Lines for valgrind's reports; the code is the same without.
        let lines = "profile.dist.debug=\"line-tables-only\"";
        command.args(["--profile", "dist", "--config", lines]);
    } else {
        for (name, setting) in COMPILED.iter().flat_map(|n| RELEASE.map(|s| (n, s))) {
            let setting = format!("profile.dev.package.{name}.{setting}");
            command.args(["--config", &setting]);
        }
    }
    match command.status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Err(format!("cargo build of examples/secrets ended with {status}"));
        }
        Err(error) => return Err(format!("cargo build did not start: {error}")),
    }
    // This program is <target>/debug/xtask.
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let target = here.parent().and_then(Path::parent);
    let target = target.ok_or("xtask is in no target folder")?;
    let folder = if released { "dist" } else { "debug" };
    Ok(target.join(folder).join("examples/secrets"))
}

fn timed(checker: &Path) -> Outcome {
    verdicts(Command::new(checker).arg("time"))
}

fn watched(checker: &Path) -> Outcome {
    let mut command = Command::new("valgrind");
    command.args(["--quiet", "--error-limit=no", "--num-callers=30"]);
    verdicts(command.arg(checker).arg("watch"))
}

/// Runs the checker, whose output lines report leaks.
fn verdicts(command: &mut Command) -> Outcome {
    let output = command.output();
    let output = output.map_err(|error| vec![format!("{command:?} did not start: {error}")])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let clean = text.lines().filter(|line| line.starts_with("ok ")).count();
    let seen = text.lines().any(|line| line.starts_with("seen"));
    if output.status.success() && seen {
        return Ok(format!("{clean} functions, and the planted leak seen"));
    }
    let bad = |line: &&str| !line.starts_with("ok ") && !line.starts_with("seen");
    let mut problems: Vec<String> = text.lines().filter(bad).map(str::to_owned).collect();
    let errors = String::from_utf8_lossy(&output.stderr);
    problems.extend(errors.lines().take(40).map(str::to_owned));
    Err(problems)
}

/// What is known about the code of one function.
#[derive(Debug, Default, PartialEq, Eq)]
struct Code {
    /// Uses 512-bit registers.
    wide: bool,
    /// Conditional jumps.
    jumps: usize,
    /// Instructions that set flags from a mask register or a vector test, hence a jump that depends on data.
    by_data: usize,
}

fn disassembled(checker: &Path) -> Outcome {
    let output = Command::new("objdump")
        .args(["-d", "-C", "--no-show-raw-insn"])
        .arg(checker)
        .output()
        .map_err(|error| vec![format!("objdump did not start: {error}")])?;
    let functions = read(&String::from_utf8_lossy(&output.stdout));
    let wide: BTreeMap<&String, &Code> = functions.iter().filter(|(_, code)| code.wide).collect();
    if cfg!(target_arch = "x86_64") && wide.is_empty() {
        return Err(vec!["no function on 512-bit registers was found: objdump, or the names, have changed".to_owned()]);
    }
    let mut problems = Vec::new();
    for (name, code) in &wide {
        let declared = DECLARED.iter().find(|(known, _)| *known == name.as_str());
        let declared = declared.map_or(0, |(_, jumps)| *jumps);
        if code.jumps > declared {
            problems
                .push(format!("{name}: {} conditional jumps, {declared} declared in xtask/src/secrets.rs", code.jumps));
        }
        if code.by_data > 0 {
            problems.push(format!("{name}: flags from a mask or vector register"));
        }
    }
    if problems.is_empty() { Ok(format!("{} functions on 512-bit registers", wide.len())) } else { Err(problems) }
}

/// Our functions in objdump's output.
fn read(text: &str) -> BTreeMap<String, Code> {
    let mut all: BTreeMap<String, Code> = BTreeMap::new();
    let mut name = None;
    for line in text.lines() {
        if let Some(label) = line.strip_suffix(">:") {
            let symbol = label.split_once('<').map_or("", |(_, symbol)| symbol);
            let ours = OURS.iter().any(|prefix| symbol.contains(prefix));
            name = ours.then(|| symbol.to_owned());
            continue;
        }
        let (Some(name), Some((_, instruction))) = (&name, line.split_once(":\t")) else {
            continue;
        };
        let code = all.entry(name.clone()).or_default();
        let operation = instruction.split_whitespace().next().unwrap_or("");
        code.wide |= instruction.contains("%zmm");
        code.jumps += usize::from(operation.starts_with('j') && operation != "jmp");
        let of_masks = ["kortest", "ktest"].iter().any(|t| operation.starts_with(t));
        code.by_data += usize::from(of_masks || ["vptest", "ptest"].contains(&operation));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_and_registers_are_counted() {
        let text = "0000000000001000 <hushed_math::bits::aes::wide::f>:\n    1000:\tvpxorq %zmm0,%zmm0,%zmm0\n    1006:\tjne    1000 <x>\n    1008:\tjmp    1000 <x>\n    100a:\tkortestb %k0,%k0\n\n\
                    0000000000002000 <core::fmt::write>:\n    2000:\tjne    2000 <y>\n";
        let all = read(text);
        let code = Code { wide: true, jumps: 1, by_data: 1 };
        assert_eq!(all.len(), 1);
        assert_eq!(all["hushed_math::bits::aes::wide::f"], code);
    }
}
