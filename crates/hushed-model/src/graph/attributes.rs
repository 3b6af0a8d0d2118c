//! The attributes of a node: each is read once, and those that are left are faults.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::faults::{NodeFault, short};

/// The attributes of one node, and the list for its faults.
pub(super) struct Attributes<'a> {
    object: &'a Map<String, Value>,
    read: BTreeSet<&'static str>,
    faults: &'a mut Vec<NodeFault>,
}

/// Most dimensions of a shape.
const MAX_DIMENSIONS: usize = 8;
/// Largest window, stride and padding.
const MAX_WINDOW: usize = 1 << 12;
const DIMENSION: &str = "a dimension other than 0, the batch";

impl<'a> Attributes<'a> {
    pub(super) fn new(object: &'a Map<String, Value>, faults: &'a mut Vec<NodeFault>) -> Attributes<'a> {
        Attributes { object, read: BTreeSet::new(), faults }
    }

    /// Reports the attributes that nothing has read: an answer might depend on them.
    pub(super) fn end(self) {
        let left = self.object.keys().filter(|name| !self.read.contains(name.as_str()));
        self.faults.extend(left.map(|name| NodeFault::UnknownAttribute { attribute: short(name) }));
    }

    pub(super) fn fault(&mut self, attribute: &'static str, expected: impl Into<String>) {
        self.faults.push(NodeFault::Attribute { attribute, expected: expected.into() });
    }

    pub(super) fn has(&mut self, name: &'static str) -> bool {
        self.get(name).is_some()
    }

    /// The value, if it is there and not null.
    fn get(&mut self, name: &'static str) -> Option<&'a Value> {
        self.read.insert(name);
        self.object.get(name).filter(|value| !value.is_null())
    }

    /// A value that `read` accepts, or the default; `None` if a fault was added.
    fn one<T>(
        &mut self,
        name: &'static str,
        default: Option<T>,
        expected: impl Into<String>,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let found = match self.get(name) {
            Some(value) => read(value),
            None => default,
        };
        if found.is_none() {
            self.fault(name, expected);
        }
        found
    }

    pub(super) fn size(&mut self, name: &'static str, default: Option<usize>, min: usize, max: usize) -> Option<usize> {
        self.one(name, default, format!("a whole number from {min} to {max}"), |v| sized(v, min, max))
    }

    /// A dimension as torch counts them, where 0 is the batch, as a value without a batch has them.
    pub(super) fn dim(&mut self, name: &'static str, default: i64) -> Option<i64> {
        self.one(name, Some(default).and_then(counted), DIMENSION, |v| counted(v.as_i64()?))
    }

    /// One such dimension, or a list.
    pub(super) fn dims(&mut self, name: &'static str) -> Option<Vec<i64>> {
        self.one(name, None, format!("{DIMENSION}, or a list of such"), |v| match v.as_array() {
            Some(list) if (1..=MAX_DIMENSIONS).contains(&list.len()) => {
                list.iter().map(|v| counted(v.as_i64()?)).collect()
            }
            Some(_) => None,
            None => Some(vec![counted(v.as_i64()?)?]),
        })
    }

    pub(super) fn real(&mut self, name: &'static str, default: Option<f64>, min: f64, max: f64) -> Option<f64> {
        let expected = format!("a number from {min:e} to {max:e}");
        self.one(name, default, expected, |v| v.as_f64().filter(|n| (min..=max).contains(n)))
    }

    /// A list of up to `most` finite numbers.
    pub(super) fn reals(&mut self, name: &'static str, most: usize) -> Option<Vec<f64>> {
        self.one(name, None, format!("a list of up to {most} numbers"), |v| {
            let list = v.as_array().filter(|list| list.len() <= most)?;
            list.iter().map(|v| v.as_f64().filter(|n| n.is_finite())).collect()
        })
    }

    /// A shape; with `rest` one size may be −1, which becomes `None`.
    pub(super) fn sizes(&mut self, name: &'static str, rest: bool, max: usize) -> Option<Vec<Option<usize>>> {
        let expected = match rest {
            true => format!("up to {MAX_DIMENSIONS} sizes from 1 to {max}, of which one may be -1"),
            false => format!("up to {MAX_DIMENSIONS} sizes from 1 to {max}"),
        };
        self.one(name, None, expected, |v| {
            let size = |v: &Value| match v.as_i64() {
                Some(-1) if rest => Some(None),
                _ => sized(v, 1, max).map(Some),
            };
            let list = v.as_array().filter(|list| list.len() <= MAX_DIMENSIONS)?;
            let sizes: Vec<Option<usize>> = list.iter().map(size).collect::<Option<_>>()?;
            (sizes.iter().filter(|size| size.is_none()).count() <= 1).then_some(sizes)
        })
    }

    /// One number for rows and columns, or two.
    pub(super) fn pair(&mut self, name: &'static str, default: Option<[usize; 2]>, min: usize) -> Option<[usize; 2]> {
        self.one(name, default, format!("one or two whole numbers from {min} to {MAX_WINDOW}"), |v| {
            let size = |v: &Value| sized(v, min, MAX_WINDOW);
            match v.as_array().map(Vec::as_slice) {
                Some([rows, columns]) => Some([size(rows)?, size(columns)?]),
                Some(_) => None,
                None => size(v).map(|size| [size; 2]),
            }
        })
    }

    pub(super) fn flag(&mut self, name: &'static str, default: bool) -> bool {
        self.one(name, Some(default), "true or false", Value::as_bool).unwrap_or(default)
    }

    pub(super) fn off(&mut self, name: &'static str) {
        if self.flag(name, false) {
            self.fault(name, "false");
        }
    }

    pub(super) fn text(&mut self, name: &'static str) -> Option<&'a str> {
        let value = self.get(name)?;
        let text = value.as_str();
        if text.is_none() {
            self.fault(name, "a text");
        }
        text
    }

    /// An attribute of which one value is implemented.
    pub(super) fn only(&mut self, name: &'static str, value: &'static str) {
        if self.text(name).is_some_and(|text| text != value) {
            self.fault(name, value);
        }
    }

    /// The degree of a polynomial in place of a function, if there is one.
    pub(super) fn degree(&mut self, max: usize) -> Option<usize> {
        match self.has("degree") {
            true => self.size("degree", None, 1, max),
            false => None,
        }
    }
}

/// A dimension without the batch; negative numbers count from the end.
fn counted(dim: i64) -> Option<i64> {
    let most = MAX_DIMENSIONS as i64;
    let known = dim != 0 && (-most..=most).contains(&dim);
    known.then_some(if dim > 0 { dim - 1 } else { dim })
}

fn sized(value: &Value, min: usize, max: usize) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|n| (min..=max).contains(n))
}

/// The shape in a field of the file; `None` if it is none.
pub(super) fn shape(value: Option<&Value>, max: usize) -> Option<Vec<usize>> {
    let list = value?.as_array().filter(|list| list.len() <= MAX_DIMENSIONS)?;
    list.iter().map(|v| sized(v, 1, max)).collect()
}
