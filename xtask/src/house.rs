//! Limits the number of files in a folder, and allows no import cycles between files.

use std::collections::{BTreeMap, BTreeSet};

use crate::Outcome;
use crate::imports::{Imports, Path};
use crate::source::Tree;

/// The most source files in a folder.
const MOST_FILES: usize = 16;

/// Counts the source files of each folder, and finds files of a crate that import each other in a cycle. Tests,
/// re-exports and a parent's declarations of its children do not count as imports.
pub fn order(tree: &Tree) -> Outcome {
    let mut folders: BTreeMap<&str, usize> = BTreeMap::new();
    let mut crates: BTreeMap<&str, BTreeMap<Path, &str>> = BTreeMap::new();
    for file in tree.rust() {
        if let Some((name, module)) = module(&file.path) {
            if !module.iter().any(|part| is_test(part)) {
                let folder = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                *folders.entry(folder).or_default() += 1;
            }
            // Files are sorted: the `main.rs` of a crate that is a library too is passed over.
            let files = crates.entry(name).or_default();
            files.entry(module).or_insert(&file.text);
        }
    }
    let mut problems = Vec::new();
    for (name, files) in &crates {
        match Imports::read(files).and_then(|imports| imports.edges()) {
            Ok(edges) => problems.extend(circles(&edges).iter().map(|c| format!("{name}: {c}"))),
            Err(unclear) => problems.extend(unclear.iter().map(|problem| format!("{name}: {problem}"))),
        }
    }
    let (folder, most) = folders.iter().max_by_key(|f| f.1).map_or(("", 0), |f| (*f.0, *f.1));
    if most > MOST_FILES {
        problems.push(format!("{folder} has {most} files, more than {MOST_FILES}"));
    }
    match problems.is_empty() {
        true => Ok(format!("{most} files in {folder}, no circles of files")),
        false => Err(problems),
    }
}

/// The crate and the module of a source file; `None` for tests and benches beside a library.
fn module(path: &str) -> Option<(&str, Path)> {
    let rest = path.strip_prefix("crates/")?;
    let (name, rest) = rest.split_once("/src/")?;
    let rest = rest.strip_suffix(".rs")?;
    let rest = rest.strip_suffix("/mod").unwrap_or(rest);
    let path = match rest {
        "lib" | "main" => Path::new(),
        _ => rest.split('/').map(str::to_owned).collect(),
    };
    Some((name, path))
}

/// Whether a file or a folder of this name has only tests.
fn is_test(name: &str) -> bool {
    name == "tests" || name.ends_with("_tests") || name == "testing"
}

/// Sets of more than one file that all reach each other, with what each of them imports of its set.
fn circles(edges: &BTreeMap<Path, BTreeSet<Path>>) -> BTreeSet<String> {
    let all: BTreeMap<&Path, BTreeSet<&Path>> = edges.keys().map(|file| (file, reached(file, edges))).collect();
    let name = |file: &Path| format!("crate::{}", file.join("::"));
    let mut circles = BTreeSet::new();
    for (file, far) in all.iter().filter(|(file, far)| far.contains(*file)) {
        let circle: Vec<&Path> = far.iter().copied().filter(|other| all[other].contains(file)).collect();
        let lines = circle.iter().map(|from| {
            let within = edges[*from].iter().filter(|to| circle.contains(to)).map(name);
            format!("{} imports {}", name(from), within.collect::<Vec<_>>().join(" "))
        });
        circles.insert(lines.collect::<Vec<_>>().join("; "));
    }
    circles
}

fn reached<'a>(from: &'a Path, edges: &'a BTreeMap<Path, BTreeSet<Path>>) -> BTreeSet<&'a Path> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(file) = next.pop() {
        let imported = edges.get(file).into_iter().flatten();
        next.extend(imported.filter(|to| seen.insert(*to)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many problems a crate has that consists of these files, beside `mod` declarations of all of them.
    fn problems(lib: &str, files: &[(&str, &str)]) -> usize {
        let declared: String = files.iter().map(|(name, _)| format!("mod {name};")).collect();
        let lib = format!("{declared}{lib}");
        let named: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (format!("crates/x/src/{name}.rs"), *text)).collect();
        let mut tree: Vec<(&str, &str)> = named.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        tree.push(("crates/x/src/lib.rs", &lib));
        order(&Tree::of(&tree)).err().map_or(0, |found| found.len().min(1))
    }

    const B: &str = "use super::b::{\n    B,\n    c::D,\n};\n";

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        assert_eq!(problems("", &[("a", B), ("b", "use crate::a::A;")]), 1);
        assert_eq!(problems("", &[("a", B), ("b", "use std::fmt; pub(in crate::a) struct B;")]), 0);
    }

    #[test]
    fn what_is_for_tests_is_left_out_and_nothing_after_it() {
        let tests = "#[cfg(test)]\nmod tests { use crate::a::A; }\n";
        assert_eq!(problems("", &[("a", B), ("b", tests)]), 0);
        for test in ["use std::fmt;", "fn f<A, B>() { g(); }", "struct S { a: u8 }", "mod tests {}"] {
            let b = format!("#[cfg(test)]\n{test}\nuse crate::a::A;");
            assert_eq!(problems("", &[("a", B), ("b", &b)]), 1, "{test}");
        }
        let field = "struct S { #[cfg(test)] one: Vec<u8>, two: crate::a::A }";
        assert_eq!(problems("", &[("a", B), ("b", field)]), 1);
        let field = "struct S { #[cfg(test)] one: crate::a::A, two: u8 }";
        assert_eq!(problems("", &[("a", B), ("b", field)]), 0);
        // Nor is a file that only tests declare.
        let lib = "mod a; #[cfg(test)] mod b;";
        let tree = [("crates/x/src/lib.rs", lib), ("crates/x/src/a.rs", B), ("crates/x/src/b.rs", "use crate::a::A;")];
        assert!(order(&Tree::of(&tree)).is_ok());
    }

    #[test]
    fn a_reexport_leads_to_the_file_that_defines_the_name() {
        let import = "use crate::A;";
        for lib in ["pub use a::A;", "pub(crate) use self::a::{A, other};", "pub use a::Z as A;"] {
            assert_eq!(problems(lib, &[("a", B), ("b", import)]), 1, "{lib}");
        }
        // To show a name is not to use it, and another crate's is nobody's here.
        assert_eq!(problems("pub use a::A; pub struct Z;", &[("a", "use crate::Z;")]), 0);
        assert_eq!(problems("pub use a::A; pub struct Z(A);", &[("a", "use crate::Z;")]), 1);
        assert_eq!(problems("pub use other::A;", &[("a", B), ("b", import)]), 0);
        // Through two folders, where a module and its function share a name.
        let a = ("a", "mod inner; pub use inner::inner;");
        let inner = ("a/inner", "use crate::b::B; pub fn inner() {}");
        let tree =
            [a, inner, ("b", "use crate::a::inner;")].map(|(name, text)| (format!("crates/x/src/{name}.rs"), text));
        let mut tree: Vec<(&str, &str)> = tree.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        tree.push(("crates/x/src/lib.rs", "mod a; mod b;"));
        let found = order(&Tree::of(&tree)).err().unwrap_or_default();
        assert!(found.concat().contains("crate::a::inner imports crate::b;"), "{found:?}");
    }

    #[test]
    fn a_glob_of_another_file_is_refused() {
        assert_eq!(problems("", &[("a", "use crate::b::*;"), ("b", "")]), 1);
        assert_eq!(problems("", &[("a", "use std::fmt::*; mod inside { use super::*; }")]), 0);
    }

    #[test]
    fn a_path_in_code_is_an_import() {
        for b in [
            "fn f() { crate::a::f(1) }",
            "fn f(x: super::a::A) {}",
            "fn f() { vec![self::inside::X, super::a::f()] } mod inside {}",
            "use crate::a; fn f() { a::f() }",
            "use super::a as z; fn f() { g(&z::X) }",
            "mod inside { fn f() { super::super::a::f() } }",
        ] {
            assert_eq!(problems("", &[("a", B), ("b", b)]), 1, "{b}");
        }
        for b in [
            "use crate::a;",
            "fn f() { self.a::<u8>() }",
            "//! [`crate::a::A`]\n/// [`super::a::A`]\nfn f() { \"crate::a::A\" }",
        ] {
            assert_eq!(problems("", &[("a", B), ("b", b)]), 0, "{b}");
        }
    }
}
