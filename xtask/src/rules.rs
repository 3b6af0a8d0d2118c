//! Rules for single files: size, `unsafe`, unfinished words, denied lints.

use crate::Outcome;
use crate::source::{File, Tree, code_only};

const LONGEST: usize = 800;
const LONG: usize = 500;

/// The only crates that may use `unsafe`: kernels on the processor, and the calls of a GPU's driver.
const UNSAFE_HOMES: [&str; 2] = ["crates/hushed-math/", "crates/hushed-device/"];

/// Files that read bytes from a peer or from a disk. Each must set the attribute below itself, so that clippy enforces
/// it there whatever the rest of the crate allows.
const HOSTILE: [&str; 163] = [
    "crates/hushed-bench/src/baselines/bole/mod.rs",
    "crates/hushed-net/src/channel/inbox.rs",
    "crates/hushed-net/src/channel/streams.rs",
    "crates/hushed-net/src/channel/stream.rs",
    "crates/hushed-net/src/channel/tls/halves.rs",
    "crates/hushed-net/src/channel/tls/verify.rs",
    "crates/hushed-net/src/frame.rs",
    "crates/hushed-net/src/session.rs",
    "crates/hushed-model/src/arch/mod.rs",
    "crates/hushed-model/src/folder/chat.rs",
    "crates/hushed-model/src/folder/config.rs",
    "crates/hushed-model/src/folder/declared.rs",
    "crates/hushed-model/src/folder/config/ends.rs",
    "crates/hushed-model/src/folder/fields.rs",
    "crates/hushed-model/src/folder/fields/generation.rs",
    "crates/hushed-model/src/folder/fields/sentence.rs",
    "crates/hushed-model/src/folder/fields/tokenizer.rs",
    "crates/hushed-model/src/folder/json.rs",
    "crates/hushed-model/src/folder/json/typed.rs",
    "crates/hushed-model/src/folder/config/labels.rs",
    "crates/hushed-model/src/folder/config/scores.rs",
    "crates/hushed-model/src/folder/pooling.rs",
    "crates/hushed-model/src/folder/public.rs",
    "crates/hushed-model/src/folder/shards.rs",
    "crates/hushed-model/src/folder/small.rs",
    "crates/hushed-model/src/folder/stored.rs",
    "crates/hushed-model/src/folder/ternary.rs",
    "crates/hushed-model/src/folder/vision.rs",
    "crates/hushed-model/src/folder/weights.rs",
    "crates/hushed-model/src/images/mod.rs",
    "crates/hushed-model/src/images/resize.rs",
    "crates/hushed-model/src/tokens/agree.rs",
    "crates/hushed-model/src/tokens/charsmap.rs",
    "crates/hushed-model/src/tokens/decoder.rs",
    "crates/hushed-model/src/tokens/head.rs",
    "crates/hushed-model/src/tokens/parts.rs",
    "crates/hushed-model/src/tokens/chat.rs",
    "crates/hushed-model/src/tokens/chat/clock.rs",
    "crates/hushed-model/src/tokens/chat/json.rs",
    "crates/hushed-model/src/tokens/chat/source.rs",
    "crates/hushed-model/src/tokens/mod.rs",
    "crates/hushed-model/src/tokens/pairs.rs",
    "crates/hushed-model/src/tokens/pipeline.rs",
    "crates/hushed-model/src/graph/attributes.rs",
    "crates/hushed-model/src/graph/inputs.rs",
    "crates/hushed-model/src/graph/ops.rs",
    "crates/hushed-model/src/graph/parse.rs",
    "crates/hushed-model/src/graph/shapes.rs",
    "crates/hushed-model/src/graph/weights.rs",
    "crates/hushed-rlwe/src/codec.rs",
    "crates/hushed-rlwe/src/flooded.rs",
    "crates/hushed-rlwe/src/hybrid/codec.rs",
    "crates/hushed-rlwe/src/keys.rs",
    "crates/hushed-rlwe/src/keys/proof.rs",
    "crates/hushed-rlwe/src/keys/stored.rs",
    "crates/hushed-rlwe/src/response.rs",
    "crates/hushed-rlwe/src/truncate.rs",
    "crates/hushed-rlwe/src/truncate/field.rs",
    "crates/hushed-rlwe/src/truncate/seeded.rs",
    "crates/hushed-ckks/src/codec.rs",
    "crates/hushed-ckks/src/lintrans/store.rs",
    "crates/hushed-ckks/src/lintrans/stored.rs",
    "crates/hushed-twopc/src/ctx.rs",
    "crates/hushed-twopc/src/he/context.rs",
    "crates/hushed-twopc/src/he/proof.rs",
    "crates/hushed-twopc/src/he/engine.rs",
    "crates/hushed-twopc/src/ot/additive.rs",
    "crates/hushed-twopc/src/ot/base.rs",
    "crates/hushed-twopc/src/ot/bit_table.rs",
    "crates/hushed-twopc/src/ot/ferret/extend.rs",
    "crates/hushed-twopc/src/ot/ferret/mod.rs",
    "crates/hushed-twopc/src/ot/set_aside.rs",
    "crates/hushed-twopc/src/ot/ferret/start.rs",
    "crates/hushed-twopc/src/ot/one_of_n.rs",
    "crates/hushed-twopc/src/ot/triple.rs",
    "crates/hushed-twopc/src/wire.rs",
    "crates/hushed-fhe/src/files/checkpoint.rs",
    "crates/hushed-fhe/src/machines/value.rs",
    "crates/hushed-fhe/src/files/chunked.rs",
    "crates/hushed-fhe/src/files/exchange.rs",
    "crates/hushed-fhe/src/files/keys.rs",
    "crates/hushed-fhe/src/files/spill.rs",
    "crates/hushed-fhe/src/network/choices.rs",
    "crates/hushed-fhe/src/network/manifest.rs",
    "crates/hushed-fhe/src/network/plan.rs",
    "crates/hushed-fhe/src/plan/public_plan.rs",
    "crates/hushed-fhe/src/plan/public_plan/check.rs",
    "crates/hushed-fhe/src/plan/public_plan/keys.rs",
    "crates/hushed-fhe/src/plan/public_plan/manifest.rs",
    "crates/hushed-fhe/src/plan/public_plan/read.rs",
    "crates/hushed-fhe/src/run/client/arranged.rs",
    "crates/hushed-gateway/src/batches/board.rs",
    "crates/hushed-gateway/src/batches/lines.rs",
    "crates/hushed-gateway/src/http/batches.rs",
    "crates/hushed-gateway/src/http/completions.rs",
    "crates/hushed-gateway/src/http/completions/answer.rs",
    "crates/hushed-gateway/src/http/completions/likeliest.rs",
    "crates/hushed-gateway/src/http/completions/chat.rs",
    "crates/hushed-gateway/src/http/door.rs",
    "crates/hushed-gateway/src/http/fields.rs",
    "crates/hushed-gateway/src/http/fields/harmless.rs",
    "crates/hushed-gateway/src/http/mod.rs",
    "crates/hushed-gateway/src/http/openai.rs",
    "crates/hushed-gateway/src/http/paths.rs",
    "crates/hushed-gateway/src/http/paths/openapi.rs",
    "crates/hushed-gateway/src/http/prepare.rs",
    "crates/hushed-gateway/src/http/prepare/how.rs",
    "crates/hushed-gateway/src/http/prepare/kept_alive.rs",
    "crates/hushed-gateway/src/http/search.rs",
    "crates/hushed-gateway/src/http/served.rs",
    "crates/hushed-gateway/src/http/tei.rs",
    "crates/hushed-gateway/src/http/tei/predict.rs",
    "crates/hushed-gateway/src/http/tei/rerank.rs",
    "crates/hushed-gateway/src/http/tei/request.rs",
    "crates/hushed-gateway/src/http/tei/tokens.rs",
    "crates/hushed-gateway/src/http/wanted.rs",
    "crates/hushed-serve/src/bundle.rs",
    "crates/hushed-serve/src/fhe/client/link.rs",
    "crates/hushed-serve/src/fhe/public.rs",
    "crates/hushed-serve/src/fhe/server/jobs.rs",
    "crates/hushed-serve/src/fhe/server/jobs/claims.rs",
    "crates/hushed-serve/src/fhe/server/jobs/failure.rs",
    "crates/hushed-serve/src/fhe/server/jobs/lease.rs",
    "crates/hushed-serve/src/fhe/server/jobs/queue.rs",
    "crates/hushed-serve/src/fhe/server/session.rs",
    "crates/hushed-serve/src/fhe/server/sharing.rs",
    "crates/hushed-serve/src/fhe/server/storage.rs",
    "crates/hushed-serve/src/fhe/wire.rs",
    "crates/hushed-serve/src/files.rs",
    "crates/hushed-serve/src/session/allowance.rs",
    "crates/hushed-serve/src/session/allowance/batch.rs",
    "crates/hushed-serve/src/session/codec.rs",
    "crates/hushed-serve/src/session/connect.rs",
    "crates/hushed-serve/src/session/greeting.rs",
    "crates/hushed-serve/src/session/hello.rs",
    "crates/hushed-serve/src/session/metrics.rs",
    "crates/hushed-serve/src/session/outcome.rs",
    "crates/hushed-serve/src/session/token.rs",
    "crates/hushed-serve/src/session/token/list.rs",
    "crates/hushed-serve/src/session/listener/gate.rs",
    "crates/hushed-serve/src/session/wire.rs",
    "crates/hushed-serve/src/session/wire/refusal.rs",
    "crates/hushed-serve/src/twopc/client.rs",
    "crates/hushed-serve/src/twopc/client/ahead.rs",
    "crates/hushed-serve/src/twopc/client/answer.rs",
    "crates/hushed-serve/src/twopc/client/failures.rs",
    "crates/hushed-serve/src/twopc/client/generate.rs",
    "crates/hushed-serve/src/twopc/client/generation.rs",
    "crates/hushed-serve/src/twopc/client/greet.rs",
    "crates/hushed-serve/src/twopc/client/offer.rs",
    "crates/hushed-serve/src/twopc/client/pairs.rs",
    "crates/hushed-serve/src/twopc/client/search.rs",
    "crates/hushed-serve/src/twopc/client/table.rs",
    "crates/hushed-serve/src/twopc/encoder.rs",
    "crates/hushed-serve/src/twopc/index.rs",
    "crates/hushed-serve/src/twopc/index/record.rs",
    "crates/hushed-serve/src/twopc/kept.rs",
    "crates/hushed-serve/src/twopc/server/session.rs",
    "crates/hushed-serve/src/twopc/server/session/continued.rs",
    "crates/hushed-serve/src/twopc/prefix.rs",
    "crates/hushed-serve/src/twopc/table.rs",
    "crates/hushed-serve/src/twopc/wire.rs",
    "crates/hushed-serve/src/twopc/client/images.rs",
];
const DENIED: [&str; 3] = ["clippy::unwrap_used", "clippy::expect_used", "clippy::indexing_slicing"];

/// Checks that no Rust file has more than 800 lines without its tests; names those above 500. Counts all lines of code.
pub fn file_sizes(tree: &Tree) -> Outcome {
    let mut sizes: Vec<(usize, &str)> = tree
        .rust()
        .filter(|f| !is_test(&f.path) && !is_generated(f))
        .map(|f| (lines_before_tests(&f.text), f.path.as_str()))
        .collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    let over = |limit| sizes.iter().filter(move |(n, _)| *n > limit);
    let too_long: Vec<String> = over(LONGEST)
        .map(|(n, path)| format!("{path}: {n} lines, the limit is {LONGEST}: split it by subject"))
        .collect();
    if !too_long.is_empty() {
        return Err(too_long);
    }
    let long: Vec<String> = over(LONG).map(|(n, path)| format!("{path} ({n})")).collect();
    let longest = sizes.first().map_or(0, |(n, _)| *n);
    let note = if long.is_empty() { String::new() } else { format!("; above {LONG}: {}", long.join(", ")) };
    let (code, tests) = code_lines(tree);
    Ok(format!("{} files, longest {longest} lines, {code} lines of code and {tests} of tests{note}", sizes.len()))
}

/// Lines of Rust without comments and blank lines: of the code, and of its tests and benches.
fn code_lines(tree: &Tree) -> (usize, usize) {
    let count = |text: &str| {
        // A literal may have a line of its own.
        let code = |(code, line): &(&str, &str)| !code.trim().is_empty() || line.trim_start().starts_with('"');
        code_only(text).lines().zip(text.lines()).filter(code).count()
    };
    let mut lines = (0, 0);
    for file in tree.rust().filter(|f| !is_generated(f)) {
        let all = count(&file.text);
        let end = lines_before_tests(&file.text);
        let code = match is_test(&file.path) || file.path.ends_with("_tests.rs") {
            true => 0,
            false => count(&file.text.lines().take(end).collect::<Vec<_>>().join("\n")),
        };
        lines = (lines.0 + code, lines.1 + all - code);
    }
    lines
}

fn is_test(path: &str) -> bool {
    path.split('/').any(|part| part == "tests" || part == "benches") || path.ends_with("/tests.rs")
}

fn is_generated(file: &File) -> bool {
    file.text.lines().take(3).any(|line| line.contains("@generated"))
}

/// The number of lines before the test module, which by house style is the last item of a file.
fn lines_before_tests(text: &str) -> usize {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.windows(2).position(
        |pair| matches!(pair, [gate, module] if gate.starts_with("#[cfg(test)]") && module.starts_with("mod tests")),
    );
    tests.unwrap_or(lines.len())
}

/// Checks that the keyword occurs only in hushed-math and hushed-device, and that every other crate forbids it at its
/// root.
pub fn unsafe_code(tree: &Tree) -> Outcome {
    let keyword = concat!("un", "safe");
    let forbid = concat!("#![forbid(un", "safe_code)]");
    let mut problems = Vec::new();
    let mut blocks = 0;
    for file in tree.rust() {
        let code = code_only(&file.text);
        let hits = code.lines().enumerate().filter(|(_, line)| words(line).any(|w| w == keyword));
        if UNSAFE_HOMES.iter().any(|home| file.path.starts_with(home)) {
            blocks += hits.count();
            continue;
        }
        problems.extend(
            hits.map(|(n, _)| format!("{}:{}: {keyword} outside hushed-math and hushed-device", file.path, n + 1)),
        );
        if is_crate_root(&file.path) && !file.text.contains(forbid) {
            problems.push(format!("{}: the crate root lacks {forbid}", file.path));
        }
    }
    if problems.is_empty() {
        Ok(format!("{blocks} lines, all in hushed-math and hushed-device; every other crate forbids it"))
    } else {
        Err(problems)
    }
}

fn is_crate_root(path: &str) -> bool {
    let inside = path.strip_prefix("crates/").or_else(|| path.strip_prefix("xtask/"));
    inside.is_some() && (path.ends_with("src/lib.rs") || path.ends_with("src/main.rs"))
}

/// Checks that every file beside a `tests/*/main.rs` is a module of it. Otherwise nothing would compile the file, and
/// no tool would report it.
pub fn test_modules(tree: &Tree) -> Outcome {
    let mut problems = Vec::new();
    let mut modules = 0;
    for main in tree.rust().filter(|f| f.path.ends_with("/main.rs")) {
        let folder = main.path.trim_end_matches("main.rs");
        if !folder.contains("/tests/") {
            continue;
        }
        for file in tree.rust() {
            let name = file.path.strip_prefix(folder).and_then(|f| f.strip_suffix(".rs"));
            let Some(name) = name.filter(|name| *name != "main" && !name.contains('/')) else {
                continue;
            };
            modules += 1;
            if !main.text.lines().any(|line| line == format!("mod {name};")) {
                problems.push(format!("{}: not a module of {}", file.path, main.path));
            }
        }
    }
    if problems.is_empty() { Ok(format!("{modules} files, all in a binary")) } else { Err(problems) }
}

/// Checks that code in documentation is marked as text. Code that runs is in `examples/`, which a test includes. So
/// there are no doc tests, and no pass over every crate to look for them.
pub fn documentation(tree: &Tree) -> Outcome {
    let mut problems = Vec::new();
    let mut blocks = 0;
    for file in tree.rust() {
        let mut inside = false;
        for (n, line) in file.text.lines().enumerate() {
            let line = line.trim_start();
            let doc = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            let Some(kind) = doc.and_then(|doc| doc.trim().strip_prefix("```")) else {
                continue;
            };
            inside = !inside;
            blocks += usize::from(inside);
            if inside && kind != "text" {
                let path = &file.path;
                problems.push(format!(
                    "{path}:{}: code in documentation that nobody runs: make it an example, or `text`",
                    n + 1
                ));
            }
        }
    }
    if problems.is_empty() { Ok(format!("{blocks} blocks, all text")) } else { Err(problems) }
}

/// Checks that nothing is left unfinished: no macros that panic on purpose, no notes to oneself, no disabled tests.
pub fn unfinished_words(tree: &Tree) -> Outcome {
    // Written in two halves, so that this file does not report itself.
    let in_code = [concat!("todo", "!"), concat!("unimplemented", "!"), concat!("#[", "ignore")];
    let anywhere = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut problems = Vec::new();
    for file in &tree.files {
        if file.path.ends_with(".json") || file.path.ends_with(".txt") || file.path.ends_with(".tsv") {
            continue; // data: sentences, vocabularies, metrics
        }
        let code = if file.path.ends_with(".rs") { code_only(&file.text) } else { String::new() };
        for (n, line) in code.lines().enumerate() {
            let hit = in_code.iter().find(|w| line.contains(*w));
            problems.extend(hit.map(|w| format!("{}:{}: {w}", file.path, n + 1)));
        }
        for (n, line) in file.text.lines().enumerate() {
            let hit = anywhere.iter().find(|&&w| words(line).any(|x| x == w));
            problems.extend(hit.map(|w| format!("{}:{}: {w}", file.path, n + 1)));
        }
    }
    if problems.is_empty() { Ok(format!("none in {} files", tree.files.len())) } else { Err(problems) }
}

/// Checks that only the model crate names an architecture; benches may run models by name.
pub fn architectures(tree: &Tree) -> Outcome {
    const NAMES: [&str; 6] = ["bert", "gpt2", "llama", "mpnet", "bitnet", "mistral"];
    const MAY: [&str; 2] = ["crates/hushed-model/", "crates/hushed-bench/"];
    let mut problems = Vec::new();
    let elsewhere =
        |file: &&File| file.path.starts_with("crates/") && !MAY.iter().any(|may| file.path.starts_with(may));
    for file in tree.rust().filter(elsewhere) {
        for (n, line) in code_only(&file.text).lines().enumerate() {
            let line = line.to_ascii_lowercase();
            let hit = NAMES.iter().find(|name| line.contains(*name));
            problems.extend(hit.map(|name| format!("{}:{}: {name}", file.path, n + 1)));
        }
    }
    if problems.is_empty() { Ok("named in hushed-model alone".to_owned()) } else { Err(problems) }
}

/// Checks that no two messages of the session protocol have one number: parties that are out of step would read one as
/// the other.
pub fn message_kinds(tree: &Tree) -> Outcome {
    let mut seen = std::collections::BTreeMap::new();
    let mut problems = Vec::new();
    for file in tree.rust().filter(|file| file.path.contains("/src/")) {
        for (n, line) in code_only(&file.text).lines().enumerate() {
            let Some((_, number)) = line.split_once(": Kind = Kind(") else { continue };
            let place = format!("{}:{}", file.path, n + 1);
            if let Some(first) = seen.insert(number.to_owned(), place.clone()) {
                problems.push(format!("{place}: the kind of {first} again"));
            }
        }
    }
    if problems.is_empty() { Ok(format!("{} kinds, each once", seen.len())) } else { Err(problems) }
}

/// Checks that every declared reader of foreign bytes denies the lints that hide a panic, and that every file that
/// denies them is declared.
pub fn hostile_bytes(tree: &Tree) -> Outcome {
    let mut problems: Vec<String> = HOSTILE.iter().filter_map(|path| hostile_problem(tree, path)).collect();
    problems.extend(undeclared(tree, &HOSTILE));
    if problems.is_empty() { Ok(format!("{} files deny {}", HOSTILE.len(), DENIED.join(", "))) } else { Err(problems) }
}

/// Files that deny all of the lints but are not on the list, and so could drop them unnoticed.
fn undeclared(tree: &Tree, listed: &[&str]) -> Vec<String> {
    let readers = tree.rust().filter(|f| missing(f).is_empty());
    readers
        .filter(|f| !listed.contains(&f.path.as_str()))
        .map(|f| format!("{}: declare it in xtask/src/rules.rs", f.path))
        .collect()
}

/// The lints that a file does not deny.
fn missing(file: &File) -> Vec<&'static str> {
    let code = code_only(&file.text);
    let denied: String = inner_attributes(&code, "deny").collect();
    let lints = DENIED.iter().copied();
    lints.filter(|lint| !denied.contains(lint)).collect()
}

fn hostile_problem(tree: &Tree, path: &str) -> Option<String> {
    let Some(file) = tree.file(path) else {
        return Some(format!("{path}: declared in xtask/src/rules.rs, but there is no such file"));
    };
    let missing = missing(file);
    (!missing.is_empty()).then(|| format!("{path}: lacks #![deny({})]", missing.join(", ")))
}

/// The arguments of every `#![name(…)]`.
fn inner_attributes<'a>(code: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    code.split("#![").skip(1).filter_map(move |rest| {
        let arguments = rest.strip_prefix(name)?.strip_prefix('(')?;
        arguments.split(")]").next()
    })
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|w| !w.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_count_code_and_not_tests() {
        let code = "x\n".repeat(801);
        assert!(file_sizes(&Tree::of(&[("crates/a/src/b.rs", &code)])).is_err());
        assert!(file_sizes(&Tree::of(&[("crates/a/tests/b.rs", &code)])).is_ok());
        let mostly_tests = format!("x\n#[cfg(test)]\nmod tests {{\n{code}}}\n");
        assert!(file_sizes(&Tree::of(&[("crates/a/src/b.rs", &mostly_tests)])).is_ok());
        let table = format!("// @generated by a script\n{code}");
        assert!(file_sizes(&Tree::of(&[("crates/a/src/b.rs", &table)])).is_ok());
    }

    #[test]
    fn a_test_file_that_is_no_module_is_found() {
        let main = ("crates/a/tests/it/main.rs", "//! All.\n\nmod one;\n");
        let one = ("crates/a/tests/it/one.rs", "");
        let two = ("crates/a/tests/it/two.rs", "");
        let others = [("crates/a/tests/alone.rs", ""), ("crates/a/src/main.rs", ""), ("crates/a/src/b.rs", "")];
        let with = |files: &[(&str, &str)]| test_modules(&Tree::of(&[files, &others].concat()));
        assert!(with(&[main, one]).is_ok());
        assert!(with(&[main, one, two]).is_err());
    }

    #[test]
    fn code_in_documentation_is_text() {
        let block = |kind| format!("/// As in\n/// ```{kind}\n/// a = b\n/// ```\nfn f() {{}}\n");
        let check = |kind| documentation(&Tree::of(&[("crates/a/src/b.rs", &block(kind))]));
        assert!(check("text").is_ok());
        assert!(check("").is_err() && check("rust").is_err() && check("no_run").is_err());
    }

    #[test]
    fn the_keyword_is_found_outside_math_and_device_only() {
        let root = concat!("#![forbid(un", "safe_code)]\n");
        let block = concat!("fn f() { un", "safe { g() } }\n");
        assert!(unsafe_code(&Tree::of(&[("crates/hushed-net/src/lib.rs", root)])).is_ok());
        assert!(unsafe_code(&Tree::of(&[("crates/hushed-net/src/lib.rs", "")])).is_err());
        assert!(unsafe_code(&Tree::of(&[("crates/hushed-net/src/a.rs", block)])).is_err());
        for home in UNSAFE_HOMES {
            assert!(unsafe_code(&Tree::of(&[(&format!("{home}src/a.rs"), block)])).is_ok());
        }
        let comment = concat!("// un", "safe would be faster\n");
        assert!(unsafe_code(&Tree::of(&[("crates/hushed-net/src/a.rs", comment)])).is_ok());
    }

    #[test]
    fn lines_of_code_have_neither_comments_nor_tests() {
        let code = "//! A file.\n\nfn f() {\n    g(\n        \"a\",\n    ) // b\n}\n";
        let both = format!("{code}\n#[cfg(test)]\nmod tests {{\n    // c\n}}\n");
        let lines = |path, text| code_lines(&Tree::of(&[(path, text)]));
        assert_eq!(lines("crates/a/src/b.rs", &both), (5, 3));
        assert_eq!(lines("crates/a/src/b_tests.rs", code), (0, 5));
    }

    #[test]
    fn architectures_are_named_where_models_are() {
        let code = "/// As BERT does.\nfn f(x: &BertLayer) { g(\"bert\") }\n";
        let found = architectures(&Tree::of(&[("crates/hushed-fhe/src/a.rs", code)]));
        assert_eq!(found.unwrap_err().len(), 1);
        assert!(architectures(&Tree::of(&[("crates/hushed-model/src/a.rs", code)])).is_ok());
        let words = "// BERT\nfn f() { g(\"bert\") }\n";
        assert!(architectures(&Tree::of(&[("crates/hushed-fhe/src/a.rs", words)])).is_ok());
    }

    #[test]
    fn notes_to_oneself_are_found_in_any_text() {
        let note = concat!("# TO", "DO later\n");
        assert!(unfinished_words(&Tree::of(&[("docs/a.md", note)])).is_err());
        assert!(unfinished_words(&Tree::of(&[("docs/a.md", "a to-do list\n")])).is_ok());
        let planned = concat!("fn f() { todo", "!() }\n");
        assert!(unfinished_words(&Tree::of(&[("crates/a/src/a.rs", planned)])).is_err());
    }

    #[test]
    fn denied_lints_are_read_from_the_file_itself() {
        let all = "#![deny(\n    clippy::unwrap_used,\n    clippy::expect_used,\n    clippy::indexing_slicing\n)]\n";
        assert_eq!(hostile_problem(&Tree::of(&[("a.rs", all)]), "a.rs"), None);
        let two = "#![deny(clippy::unwrap_used, clippy::expect_used)]\n";
        assert!(hostile_problem(&Tree::of(&[("a.rs", two)]), "a.rs").is_some());
        assert!(hostile_problem(&Tree::of(&[]), "a.rs").is_some());
        assert_eq!(undeclared(&Tree::of(&[("a.rs", all)]), &["a.rs"]).len(), 0);
        assert_eq!(undeclared(&Tree::of(&[("b.rs", all)]), &["a.rs"]).len(), 1);
        assert_eq!(undeclared(&Tree::of(&[("b.rs", two)]), &["a.rs"]).len(), 0);
    }
}
