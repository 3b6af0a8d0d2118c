//! The path of a step in a model, such as `layer.3.attention.weigh`.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Names one step of a forward pass. Ordered and hashed as its text; cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Site(Arc<str>);

impl Site {
    /// A first step, such as `embed`.
    pub fn root(name: &str) -> Site {
        Site(name.into())
    }

    /// `layer.{i}`.
    pub fn layer(i: usize) -> Site {
        Site(format!("layer.{i}").into())
    }

    /// The step `name` inside this one: `self.name`.
    pub fn then(&self, name: &str) -> Site {
        Site(format!("{}.{name}", self.0).into())
    }

    /// The path as text.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// The layer that a site lies in, if it lies in one.
    pub fn layer_index(&self) -> Option<usize> {
        let mut parts = self.0.split('.');
        (parts.next()? == "layer").then_some(())?;
        parts.next()?.parse().ok()
    }

    /// The path without its layer: `layer.3.attention.weigh` gives `attention.weigh`.
    pub fn in_layer(&self) -> &str {
        match self.layer_index() {
            Some(_) => self.0.splitn(3, '.').nth(2).unwrap_or(""),
            None => &self.0,
        }
    }
}

impl From<String> for Site {
    fn from(path: String) -> Site {
        Site(path.into())
    }
}

impl From<Site> for String {
    fn from(site: Site) -> String {
        site.0.to_string()
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Site;

    #[test]
    fn paths_and_layers() {
        let site = Site::layer(3).then("attention").then("weigh");
        assert_eq!(site.path(), "layer.3.attention.weigh");
        assert_eq!(site.layer_index(), Some(3));
        assert_eq!(site.in_layer(), "attention.weigh");
        assert_eq!(Site::root("embed").layer_index(), None);
        assert_eq!(Site::root("embed").in_layer(), "embed");
        assert_eq!(Site::layer(3).in_layer(), "");
    }
}
