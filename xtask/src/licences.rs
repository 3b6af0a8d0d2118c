//! Licences, bans and sources of everything that we link.
//!
//! Runs `cargo deny` where it is installed. Otherwise applies the same lists of `deny.toml` to `cargo metadata`, so
//! that the check never depends on a tool that a fresh machine lacks.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::Outcome;
use crate::metadata::Graph;

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

pub fn check(root: &Path, graph: &Graph) -> Outcome {
    let installed = Command::new(crate::cargo()).args(["deny", "--version"]).output();
    if installed.is_ok_and(|output| output.status.success()) {
        let args = ["deny", "--log-level", "error", "check", "licenses", "bans", "sources"];
        return crate::command(root, &args, "cargo deny is content");
    }
    let lists = Lists::read(&root.join("deny.toml")).map_err(|error| vec![format!("deny.toml: {error}")])?;
    lists.apply(graph)
}

/// The lists of `deny.toml` that this check understands.
struct Lists {
    licences: Vec<String>,
    banned: Vec<String>,
}

impl Lists {
    fn read(path: &Path) -> io::Result<Lists> {
        Ok(Lists::parse(&fs::read_to_string(path)?))
    }

    fn parse(text: &str) -> Lists {
        Lists { licences: string_array(text, "licenses", "allow"), banned: string_array(text, "bans", "deny") }
    }

    fn apply(&self, graph: &Graph) -> Outcome {
        let mut problems = Vec::new();
        if self.licences.is_empty() {
            problems.push("deny.toml allows no licence: is it readable?".to_owned());
        }
        for package in &graph.packages {
            let who = format!("{} {}", package.name, package.version);
            match &package.licence {
                None => problems.push(format!("{who}: names no licence")),
                Some(expression) if !satisfied(expression, &self.licences) => {
                    problems.push(format!("{who}: licence `{expression}` is not on the list of deny.toml"));
                }
                Some(_) => {}
            }
            match package.source.as_deref() {
                None | Some(REGISTRY) => {}
                Some(other) => problems.push(format!("{who}: comes from {other}, not from crates.io")),
            }
            if self.banned.contains(&package.name) {
                problems.push(format!("{who}: banned by deny.toml"));
            }
            let open = package.dependencies.iter().filter(|d| package.member && !d.local && d.requirement == "*");
            problems.extend(open.map(|d| format!("{who}: needs {} without a version", d.name)));
        }
        if problems.is_empty() {
            Ok(format!("{} packages by the lists of deny.toml", graph.packages.len()))
        } else {
            Err(problems)
        }
    }
}

/// The strings of `key = [ … ]` in `[section]`. Parses just enough TOML for our own file, comments included.
fn string_array(text: &str, section: &str, key: &str) -> Vec<String> {
    let mut inside = false;
    let mut collecting = false;
    let mut found = Vec::new();
    for line in text.lines().map(|l| l.split('#').next().unwrap_or_default().trim()) {
        if !collecting && line.starts_with('[') {
            inside = line == format!("[{section}]");
        } else if inside && !collecting {
            let value = line.strip_prefix(key).map(str::trim_start).and_then(|l| l.strip_prefix('='));
            collecting = value.is_some();
        }
        if collecting {
            found.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
            collecting = !line.ends_with(']');
        }
    }
    found
}

/// Evaluates an SPDX expression; true if the allowed licences suffice. An unreadable expression is refused.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    // Before SPDX expressions, crates wrote `MIT/Apache-2.0` for "or".
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens, at: 0, allowed };
    let answer = parser.any();
    answer == Some(true) && parser.at == tokens.len()
}

struct Parser<'a> {
    tokens: &'a [&'a str],
    at: usize,
    allowed: &'a [String],
}

impl Parser<'_> {
    fn eat(&mut self, token: &str) -> bool {
        let hit = self.tokens.get(self.at) == Some(&token);
        self.at += usize::from(hit);
        hit
    }

    /// any = all ("OR" all)*
    fn any(&mut self) -> Option<bool> {
        let mut answer = self.all()?;
        while self.eat("OR") {
            answer |= self.all()?;
        }
        Some(answer)
    }

    /// all = one ("AND" one)*
    fn all(&mut self) -> Option<bool> {
        let mut answer = self.one()?;
        while self.eat("AND") {
            answer &= self.one()?;
        }
        Some(answer)
    }

    /// one = "(" any ")" | licence ["WITH" exception]
    fn one(&mut self) -> Option<bool> {
        if self.eat("(") {
            let answer = self.any()?;
            return self.eat(")").then_some(answer);
        }
        let licence = self.tokens.get(self.at)?;
        self.at += 1;
        let mut name = (*licence).to_owned();
        if self.eat("WITH") {
            name = format!("{name} WITH {}", self.tokens.get(self.at)?);
            self.at += 1;
        }
        Some(self.allowed.contains(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn allow(expression: &str) -> bool {
        let allowed = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned);
        satisfied(expression, &allowed)
    }

    #[test]
    fn expressions_are_evaluated() {
        assert!(allow("MIT"));
        assert!(allow("GPL-3.0-only OR MIT"));
        assert!(!allow("GPL-3.0-only AND MIT"));
        assert!(allow("MIT/GPL-2.0-only"));
        assert!(allow("(GPL-3.0-only OR MIT) AND Apache-2.0"));
        assert!(!allow("(GPL-3.0-only OR BSD-3-Clause-Clear) AND Apache-2.0"));
        assert!(allow("Apache-2.0 WITH LLVM-exception"));
        assert!(!allow("MIT WITH LLVM-exception"));
    }

    #[test]
    fn broken_expressions_are_refused() {
        for broken in ["", "(MIT", "MIT)", "MIT OR", "MIT Apache-2.0", "MIT WITH"] {
            assert!(!allow(broken), "{broken:?}");
        }
    }

    #[test]
    fn lists_are_read_from_their_own_section() {
        let text = "[bans]\ndeny = [\"a\"] # why\n[licenses]\n# no \"b\"\nallow = [\n  \"c\", \"d\",\n  \"e\",\n]\n";
        let lists = Lists::parse(text);
        assert_eq!(lists.banned, ["a"]);
        assert_eq!(lists.licences, ["c", "d", "e"]);
    }

    #[test]
    fn foreign_sources_and_open_versions_are_found() {
        let package = |source: &str, requirement: &str| {
            Graph::parse(&json!({
                "workspace_members": ["id"],
                "packages": [{
                    "id": "id", "name": "a", "version": "1.0.0", "license": "MIT", "source": source,
                    "dependencies": [{ "name": "b", "kind": null, "req": requirement }],
                }],
            }))
        };
        let lists = Lists { licences: vec!["MIT".to_owned()], banned: Vec::new() };
        assert!(lists.apply(&package(REGISTRY, "^1")).is_ok());
        assert!(lists.apply(&package(REGISTRY, "*")).is_err());
        assert!(lists.apply(&package("git+https://example.org/a", "^1")).is_err());
        let banned = Lists { licences: vec!["MIT".to_owned()], banned: vec!["a".to_owned()] };
        assert!(banned.apply(&package(REGISTRY, "^1")).is_err());
    }
}
