//! Which crate may import which, as drawn in ARCHITECTURE.md, and which features a release binary may not contain.

use std::path::Path;
use std::process::Command;

use crate::Outcome;
use crate::metadata::{Graph, Kind};

/// Crate → the crates that it may import. A crate that is not listed may import none of ours and must be added.
const MAY_IMPORT: [(&str, &[&str]); 17] = [
    ("hushed-math", &[]),
    ("hushed-net", &[]),
    ("hushed-model", &[]),
    ("hushed-rlwe", &["hushed-math"]),
    ("hushed-ckks", &["hushed-math", "hushed-rlwe"]),
    ("hushed-device", &["hushed-math", "hushed-rlwe"]),
    ("hushed-twopc", &["hushed-math", "hushed-rlwe", "hushed-net"]),
    ("hushed-lower", &["hushed-model"]),
    ("hushed-fhe", &["hushed-lower", "hushed-model", "hushed-ckks", "hushed-math", "hushed-rlwe"]),
    ("hushed-mpc", &["hushed-lower", "hushed-model", "hushed-twopc", "hushed-math", "hushed-rlwe", "hushed-net"]),
    ("hushed-serve", &["hushed-fhe", "hushed-mpc", "hushed-model", "hushed-net"]),
    ("hushed-gateway", &["hushed-serve", "hushed-fhe", "hushed-mpc", "hushed-model", "hushed-net"]),
    ("hushed-server", &["hushed-serve"]),
    (
        "hushed-cli",
        &[
            "hushed-math",
            "hushed-net",
            "hushed-model",
            "hushed-rlwe",
            "hushed-ckks",
            "hushed-twopc",
            "hushed-lower",
            "hushed-fhe",
            "hushed-mpc",
            "hushed-serve",
            "hushed-gateway",
        ],
    ),
    (
        "hushed-python",
        &[
            "hushed-math",
            "hushed-net",
            "hushed-model",
            "hushed-rlwe",
            "hushed-ckks",
            "hushed-twopc",
            "hushed-lower",
            "hushed-fhe",
            "hushed-mpc",
            "hushed-serve",
            "hushed-gateway",
            "hushed-cli",
        ],
    ),
    (
        "hushed-bench",
        &[
            "hushed-math",
            "hushed-net",
            "hushed-model",
            "hushed-rlwe",
            "hushed-ckks",
            "hushed-device",
            "hushed-twopc",
            "hushed-lower",
            "hushed-fhe",
            "hushed-mpc",
            "hushed-serve",
        ],
    ),
    ("xtask", &[]),
];

/// The model must not depend on cryptography even in its tests, or it would no longer be an independent oracle.
const DEV_TOO: [&str; 1] = ["hushed-model"];

/// The crate that only compares: not even tests of other crates may depend on it.
const NEVER_IMPORTED: &str = "hushed-bench";

/// Released binaries, and the features that must not reach them.
const RELEASED: [&str; 3] = ["hushed-cli", "hushed-server", "hushed-python"];
const NOT_RELEASED: [&str; 5] = ["ideal", "testing", "tested", "insecure-test-parameters", "taint"];

/// The binary for machines that must not have the client's code, and the feature that holds all of it.
const ALONE: (&str, &str) = ("hushed-server", "client");

pub fn check(graph: &Graph) -> Outcome {
    let mut problems = Vec::new();
    let mut arrows = 0;
    for package in graph.packages.iter().filter(|p| p.member) {
        let Some((_, allowed)) = MAY_IMPORT.iter().find(|(name, _)| *name == package.name) else {
            problems.push(format!("{}: not in the table of xtask/src/arrows.rs", package.name));
            continue;
        };
        for needed in package.dependencies.iter().filter(|d| d.local && d.name != package.name) {
            let held = DEV_TOO.contains(&package.name.as_str()) || needed.name == NEVER_IMPORTED;
            if needed.kind == Kind::Dev && !held {
                continue;
            }
            arrows += 1;
            if !allowed.contains(&needed.name.as_str()) {
                problems.push(format!("{} imports {}, which is not allowed", package.name, needed.name));
            }
        }
    }
    if problems.is_empty() { Ok(format!("{arrows} imports, all as drawn")) } else { Err(problems) }
}

/// Asks cargo which features of our crates the released binaries enable, not counting tests.
pub fn release_features(root: &Path) -> Outcome {
    let mut problems = Vec::new();
    let mut seen = Vec::new();
    for name in RELEASED.iter().filter(|name| root.join("crates").join(name).is_dir()) {
        let output = Command::new(crate::cargo())
            .args(["tree", "--locked", "-p", name, "-e", "normal,build", "--prefix", "none", "-f", "{p}|{f}"])
            .current_dir(root)
            .output();
        match output {
            Ok(output) if output.status.success() => {
                problems.extend(forbidden_features(name, &String::from_utf8_lossy(&output.stdout)));
                seen.push(*name);
            }
            Ok(output) => problems.push(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
            Err(error) => problems.push(format!("cargo tree did not start: {error}")),
        }
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() {
        Ok(format!("{} without {}; {} without {}", seen.join(", "), NOT_RELEASED.join(", "), ALONE.0, ALONE.1))
    } else {
        Err(problems)
    }
}

/// The lines are `package version (path)|feature,feature`.
fn forbidden_features(binary: &str, tree: &str) -> Vec<String> {
    let ours = tree.lines().filter(|line| line.starts_with("hushed-"));
    ours.filter_map(|line| {
        let (package, features) = line.split_once('|')?;
        let features = features.trim_end_matches(" (*)");
        let bad = features.split(',').find(|f| NOT_RELEASED.contains(f) || (binary, *f) == ALONE)?;
        let package = package.split(' ').next().unwrap_or(package);
        Some(format!("{binary} is built with feature `{bad}` of {package}"))
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn graph(name: &str, needs: &str, kind: Option<&str>) -> Graph {
        Graph::parse(&json!({
            "workspace_members": ["id"],
            "packages": [{
                "id": "id", "name": name, "version": "0.1.0", "license": "Apache-2.0", "source": null,
                "dependencies": [{ "name": needs, "kind": kind, "req": "*", "path": "/x" }],
            }],
        }))
    }

    #[test]
    fn a_forbidden_arrow_is_found() {
        assert!(check(&graph("hushed-rlwe", "hushed-math", None)).is_ok());
        assert!(check(&graph("hushed-math", "hushed-rlwe", None)).is_err());
        assert!(check(&graph("hushed-net", "hushed-math", Some("build"))).is_err());
        assert!(check(&graph("hushed-other", "hushed-math", None)).is_err());
    }

    #[test]
    fn only_the_model_is_held_in_its_tests_too_and_nobody_tests_with_the_benches() {
        assert!(check(&graph("hushed-ckks", "hushed-bench", Some("dev"))).is_err());
        assert!(check(&graph("hushed-model", "hushed-math", Some("dev"))).is_err());
        assert!(check(&graph("hushed-net", "hushed-math", Some("dev"))).is_ok());
    }

    #[test]
    fn a_test_feature_in_a_release_is_found() {
        let clean = "hushed-twopc v0.1.0 (/x)|default\nrand v1|ideal\n";
        assert!(forbidden_features("hushed-cli", clean).is_empty());
        let bad = "hushed-twopc v0.1.0 (/x)|default,ideal (*)\n";
        assert_eq!(forbidden_features("hushed-cli", bad).len(), 1);
    }

    #[test]
    fn the_client_in_the_server_is_found() {
        let tree = "hushed-fhe v0.1.0 (/x)|client\n";
        assert!(forbidden_features("hushed-cli", tree).is_empty());
        assert_eq!(forbidden_features("hushed-server", tree).len(), 1);
    }
}
