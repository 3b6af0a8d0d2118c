//! What cargo knows about the workspace: packages, licences, sources and dependencies.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// One edge: a package that another package depends on.
pub struct Dependency {
    pub name: String,
    pub kind: Kind,
    /// The version requirement, `*` for none.
    pub requirement: String,
    /// True when the dependency is a folder of this repository.
    pub local: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Build,
    Dev,
}

pub struct Package {
    pub name: String,
    pub version: String,
    pub licence: Option<String>,
    /// `None` for a folder of this repository.
    pub source: Option<String>,
    /// The folder of its sources.
    pub folder: PathBuf,
    pub member: bool,
    pub dependencies: Vec<Dependency>,
}

pub struct Graph {
    pub packages: Vec<Package>,
}

impl Graph {
    /// Runs `cargo metadata --locked`: an outdated lock file is a finding, not something to fix silently.
    pub fn load(root: &Path) -> Result<Graph, String> {
        let output = Command::new(crate::cargo())
            .args(["metadata", "--format-version", "1", "--locked"])
            .current_dir(root)
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("cargo metadata did not start: {error}"))?;
        if !output.status.success() {
            return Err("cargo metadata --locked failed: is Cargo.lock up to date and committed?".to_owned());
        }
        let value: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        Ok(Graph::parse(&value))
    }

    pub fn parse(value: &Value) -> Graph {
        let members: Vec<&str> = list(value, "workspace_members").filter_map(Value::as_str).collect();
        Graph { packages: list(value, "packages").map(|p| package(p, &members)).collect() }
    }
}

fn package(value: &Value, members: &[&str]) -> Package {
    Package {
        name: text(value, "name").unwrap_or_default(),
        version: text(value, "version").unwrap_or_default(),
        licence: text(value, "license"),
        source: text(value, "source"),
        folder: PathBuf::from(text(value, "manifest_path").unwrap_or_default())
            .parent()
            .map(Path::to_path_buf)
            .unwrap_or_default(),
        member: text(value, "id").is_some_and(|id| members.contains(&id.as_str())),
        dependencies: list(value, "dependencies").map(dependency).collect(),
    }
}

fn dependency(value: &Value) -> Dependency {
    Dependency {
        name: text(value, "name").unwrap_or_default(),
        kind: match text(value, "kind").as_deref() {
            Some("dev") => Kind::Dev,
            Some("build") => Kind::Build,
            _ => Kind::Normal,
        },
        requirement: text(value, "req").unwrap_or_default(),
        local: value.get("path").is_some_and(|p| !p.is_null()),
    }
}

fn text(value: &Value, key: &str) -> Option<String> {
    value.get(key)?.as_str().map(str::to_owned)
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}
