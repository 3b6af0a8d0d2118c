//! Limits the number of files in a folder, and allows no import cycles between files.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::source::{Tree, code_only};

/// The most source files in a folder.
const MOST_FILES: usize = 16;

/// A module of a crate: `hushed-mpc`, `shares::clear`.
type Module = (String, String);

/// Counts the source files of each folder, and finds files of a crate that import each other in a cycle. Tests,
/// re-exports and a parent's declarations of its children do not count as imports.
pub fn order(tree: &Tree) -> Outcome {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    let mut imports: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    let mut files: Vec<(Module, &str)> = Vec::new();
    for file in tree.rust() {
        if let Some(module) = module(&file.path) {
            let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            *folders.entry(folder).or_default() += 1;
            files.push((module, &file.text));
        }
    }
    let known: BTreeSet<&Module> = files.iter().map(|(module, _)| module).collect();
    for (module, text) in &files {
        let found = used(module, &code_only(text));
        let found = found
            .into_iter()
            .filter_map(|path| owner(&module.0, &path, &known));
        let found = found.filter(|to| to != module).collect();
        imports.insert(module.clone(), found);
    }
    let circles = circles(&imports);
    let (folder, most) = folders
        .iter()
        .max_by_key(|f| f.1)
        .map_or(("", 0), |f| (*f.0, *f.1));
    let mut problems = Vec::new();
    if most > MOST_FILES {
        problems.push(format!("{folder} has {most} files, more than {MOST_FILES}"));
    }
    let circle = |c: &Vec<String>| format!("files that import each other: {}", c.join(" "));
    problems.extend(circles.iter().map(circle));
    match problems.is_empty() {
        true => Ok(format!("{most} files in {folder}, no circles of files")),
        false => Err(problems),
    }
}

/// The module of a source file; `None` for tests, benches and binaries beside a library.
fn module(path: &str) -> Option<Module> {
    let rest = path.strip_prefix("crates/")?;
    let (name, rest) = rest.split_once("/src/")?;
    let rest = rest.strip_suffix(".rs")?;
    let rest = rest.strip_suffix("/mod").unwrap_or(rest);
    let test = |part: &str| part == "tests" || part.ends_with("_tests") || part == "testing";
    if rest.split('/').any(test) {
        return None;
    }
    let path = match rest {
        "lib" | "main" => String::new(),
        _ => rest.replace('/', "::"),
    };
    Some((name.to_owned(), path))
}

/// The modules of its own crate that a file imports, as paths from the root.
fn used(module: &Module, code: &str) -> BTreeSet<String> {
    let code = code.split("#[cfg(test)]").next().unwrap_or_default();
    let mut found = BTreeSet::new();
    for statement in code.split(';') {
        let statement = statement.trim_start();
        let Some(at) = statement.rfind("use ") else {
            continue;
        };
        let before = statement[..at].trim_end();
        // A re-export is how a folder exposes its contents.
        if before.ends_with("pub") || before.ends_with(')') {
            continue;
        }
        for path in expanded(&statement[at + 4..]) {
            found.extend(from_root(&module.1, &path));
        }
    }
    found
}

/// `a::{b, c::d}` as `a::b`, `a::c::d`.
fn expanded(path: &str) -> Vec<String> {
    let path: String = path.split_whitespace().collect();
    let Some(open) = path.find('{') else {
        return vec![path];
    };
    let (prefix, rest) = (
        &path[..open],
        &path[open + 1..path.len().saturating_sub(1).max(open + 1)],
    );
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (i, c) in rest.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&rest[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&rest[start..]);
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    parts
        .flat_map(|part| expanded(&format!("{prefix}{part}")))
        .collect()
}

fn from_root(module: &str, path: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("crate::") {
        return Some(rest.to_owned());
    }
    let mut parts: Vec<&str> = module.split("::").filter(|part| !part.is_empty()).collect();
    let mut rest = path;
    if let Some(inside) = rest.strip_prefix("self::") {
        rest = inside;
    } else {
        rest.starts_with("super::").then_some(())?;
        while let Some(above) = rest.strip_prefix("super::") {
            parts.pop();
            rest = above;
        }
    }
    parts.push(rest);
    Some(parts.join("::"))
}

/// The file that a path leads into: the longest known module path that it begins with.
fn owner(name: &str, path: &str, known: &BTreeSet<&Module>) -> Option<Module> {
    let parts: Vec<&str> = path.split("::").collect();
    let modules = (0..=parts.len())
        .rev()
        .map(|n| (name.to_owned(), parts[..n].join("::")));
    modules.into_iter().find(|module| known.contains(module))
}

/// Sets of more than one module that all reach each other.
fn circles(imports: &BTreeMap<Module, BTreeSet<Module>>) -> Vec<Vec<String>> {
    let reached = |from: &Module| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from.clone()]);
        while let Some(module) = next.pop() {
            for to in imports.get(&module).into_iter().flatten() {
                if seen.insert(to.clone()) {
                    next.push(to.clone());
                }
            }
        }
        seen
    };
    let all: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|m| (m, reached(m))).collect();
    let mut circles: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, far) in &all {
        if far.contains(*module) {
            let back = |other: &&Module| all.get(*other).is_some_and(|far| far.contains(*module));
            let circle = far.iter().filter(back).map(|m| format!("{}/{}", m.0, m.1));
            circles.insert(circle.collect());
        }
    }
    circles.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn circles_of(files: &[(&str, &str)]) -> usize {
        order(&Tree::of(files)).err().map_or(0, |found| found.len())
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let a = (
            "crates/x/src/a.rs",
            "use super::b::{\n    B,\n    c::D,\n};\n",
        );
        let b = ("crates/x/src/b.rs", "use crate::a::A;\n");
        assert_eq!(circles_of(&[a, b]), 1);
        assert_eq!(
            circles_of(&[a, ("crates/x/src/b.rs", "use std::fmt;\n")]),
            0
        );
        // Imports of tests and re-exports of a folder do not count.
        let test = (
            "crates/x/src/b.rs",
            "#[cfg(test)]\nmod tests { use crate::a::A; }\n",
        );
        assert_eq!(circles_of(&[a, test]), 0);
        let folder = ("crates/x/src/lib.rs", "mod a;\npub use a::A;\n");
        assert_eq!(
            circles_of(&[folder, ("crates/x/src/a.rs", "use crate::Z;\n")]),
            0
        );
    }
}
