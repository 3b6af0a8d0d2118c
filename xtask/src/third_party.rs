//! The licences of everything that a program links: `cargo xtask third-party PACKAGE FILE`.
//!
//! Most licences require their text to accompany the program. The file lists every crate that the package links
//! (without its build tools and macros) with the licence that its author states, then every licence text found in the
//! crates' sources, each once. A crate without a text is a failure: somebody has to look. Texts also lie beside C
//! sources, so the search covers subfolders.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::metadata::{Graph, Package};

/// How the names of licence files begin, in lower case.
const BEGINNINGS: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];
/// Their extensions.
const ENDINGS: [&str; 3] = ["", "md", "txt"];
/// The one linked part that is no crate of the graph: Rust's own library.
const LIBRARY: &str = "Rust's standard library: MIT OR Apache-2.0 (https://github.com/rust-lang/rust, COPYRIGHT). \
                       The text of Apache-2.0 is in LICENSE and below.";

/// Writes the licence file of a package of the workspace, and returns a summary of it.
pub fn write(root: &Path, package: &str, file: &Path) -> Result<String, String> {
    let graph = Graph::load(root)?;
    let linked = linked(root, package)?;
    let foreign = |p: &&Package| p.source.is_some() && linked.contains(&name(p));
    let packages: Vec<&Package> = graph.packages.iter().filter(foreign).collect();
    let text = text(package, &packages)?;
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    Ok(format!("{}: {} crates", file.display(), packages.len()))
}

/// `NAME vVERSION` of every crate that the package links on this machine, with features as cargo resolves them.
fn linked(root: &Path, package: &str) -> Result<Vec<String>, String> {
    let output = Command::new(crate::cargo())
        .args(["tree", "--locked", "--package", package, "--prefix", "none"])
        .args(["--edges", "normal,no-proc-macro", "--format", "{p}"])
        .current_dir(root)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cargo tree did not start: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo tree of {package} failed"));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let names = text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>());
    Ok(names.map(|words| words.join(" ")).collect())
}

fn name(package: &Package) -> String {
    format!("{} v{}", package.name, package.version)
}

/// The content of the file: a list of the crates, then each text once with the crates that it comes from.
fn text(package: &str, packages: &[&Package]) -> Result<String, String> {
    // Keyed by its words, because copies of one text differ in line breaks.
    let mut texts: BTreeMap<String, (String, Vec<String>)> = BTreeMap::new();
    let mut out =
        format!("What {package} links, and its licences\n\nMade by `cargo xtask third-party`.\n\n{LIBRARY}\n");
    for package in packages {
        let who = name(package);
        let licence = package.licence.as_deref().unwrap_or_default();
        writeln!(out, "{who}: {licence}").map_err(|error| error.to_string())?;
        let found = files(&package.folder).map_err(|error| format!("{who}: {error}"))?;
        if found.is_empty() {
            let folder = package.folder.display();
            return Err(format!("{who}: no text of a licence in {folder}"));
        }
        for file in found {
            let bytes = fs::read(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            let text = String::from_utf8_lossy(&bytes).replace('\r', "");
            let words: Vec<&str> = text.split_whitespace().collect();
            let place = file.strip_prefix(&package.folder).unwrap_or(&file);
            let from = format!("{who}: {}", place.display());
            let entry = texts.entry(words.join(" "));
            entry.or_insert((text, Vec::new())).1.push(from);
        }
    }
    for (text, from) in texts.values() {
        let from = from.join("\n");
        write!(out, "\n{}\n{from}\n{0}\n\n{}\n", "-".repeat(80), text.trim_end()).map_err(|error| error.to_string())?;
    }
    Ok(out)
}

/// The licence files below a folder, sorted.
fn files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if is_licence(&path) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.to_lowercase();
    let ending = match name.rsplit_once('.') {
        Some((_, ending)) => ending,
        None => "",
    };
    BEGINNINGS.iter().any(|b| name.starts_with(b)) && ENDINGS.contains(&ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server of the static image: its file names every crate, includes the licence of the C code of its
    /// cryptography, and does not mention crates that only tests or builds use.
    #[test]
    fn a_server_s_licences_are_all_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let file = tempfile::NamedTempFile::new().unwrap();
        write(&root, "hushed-server", file.path()).unwrap();
        let text = fs::read_to_string(file.path()).unwrap();
        for part in ["\nrustls v0.", "\naws-lc-sys v0.", "third_party/fiat/LICENSE"] {
            assert!(text.contains(part), "{part}");
        }
        let linked = linked(&root, "hushed-server").unwrap();
        let foreign = linked.iter().filter(|name| !name.starts_with("hushed-"));
        for name in foreign {
            assert!(text.contains(&format!("\n{name}: ")), "{name}");
        }
        for tool in ["proptest v", "cmake v", "serde_derive v"] {
            assert!(!text.contains(tool), "{tool}");
        }
    }

    #[test]
    fn a_crate_without_a_text_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let package = Package {
            name: "a".to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some("MIT".to_owned()),
            source: None,
            folder: folder.path().to_path_buf(),
            member: false,
            dependencies: Vec::new(),
        };
        assert!(text("p", &[&package]).is_err());
        fs::create_dir(folder.path().join("c")).unwrap();
        fs::write(folder.path().join("c/license_of_it.rs"), "code").unwrap();
        assert!(text("p", &[&package]).is_err());
        fs::write(folder.path().join("c/COPYING"), "the\r\ntext\n").unwrap();
        let written = text("p", &[&package, &package]).unwrap();
        assert_eq!(written.matches("the\ntext").count(), 1);
        assert_eq!(written.matches("a v1.0.0: c/COPYING").count(), 2);
    }
}
