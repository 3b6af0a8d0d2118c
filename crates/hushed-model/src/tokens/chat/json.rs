//! The filter `tojson` as `transformers` defines it: Python's `json.dumps`, without escapes for HTML or, unless they
//! are asked for, for letters outside ASCII.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fmt::Write as _;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Error, ErrorKind, State, Value};

/// The names of its arguments, in order.
const ARGUMENTS: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];

/// `value | tojson(ensure_ascii, indent, separators, sort_keys)`.
pub(super) fn tojson(state: &State<'_, '_>, value: &Value, given: Rest<ValueOrKwargs>) -> Result<Value, Error> {
    let given = given.into_values();
    let (given, named) = from_args::<(&[Value], Kwargs)>(&given)?;
    if given.len() > ARGUMENTS.len() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let argument = |place: usize| -> Result<Value, Error> {
        let name = ARGUMENTS.get(place).copied().unwrap_or_default();
        let by_name = named.get::<Option<Value>>(name)?;
        Ok(by_name.or_else(|| given.get(place).cloned()).unwrap_or(Value::from(())))
    };
    let (ascii, indent) = (argument(0)?, argument(1)?);
    let (separators, sorted) = (argument(2)?, argument(3)?);
    named.assert_all_used()?;
    let indent = match (indent.is_none() || indent.is_undefined(), indent.as_str()) {
        (true, _) => None,
        (false, Some(text)) => Some((text.to_owned(), 1)),
        (false, None) => {
            let spaces = indent.as_i64().ok_or_else(|| unusable("indent"))?;
            Some((" ".to_owned(), usize::try_from(spaces).unwrap_or(0)))
        }
    };
    let (item, key) = match separators.is_none() || separators.is_undefined() {
        true if indent.is_some() => (",".to_owned(), ": ".to_owned()),
        true => (", ".to_owned(), ": ".to_owned()),
        false => {
            let both: Vec<Value> = separators.try_iter()?.take(3).collect();
            match both.as_slice() {
                [item, key] => (item.to_string(), key.to_string()),
                _ => return Err(unusable("separators")),
            }
        }
    };
    let mut out = Writer {
        state,
        text: String::new(),
        paid: 0,
        ascii: ascii.is_true(),
        indent,
        item,
        key,
        sorted: sorted.is_true(),
    };
    out.value(value, 0)?;
    out.pay(0)?;
    Ok(Value::from(out.text))
}

fn unusable(what: &'static str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what)
}

struct Writer<'a, 't, 'e> {
    state: &'a State<'t, 'e>,
    text: String,
    /// Bytes for which fuel was used.
    paid: usize,
    ascii: bool,
    /// A text, and how often it is written per level.
    indent: Option<(String, usize)>,
    item: String,
    key: String,
    sorted: bool,
}

impl Writer<'_, '_, '_> {
    /// Uses fuel for what was written, and for `more` bytes that will be, 64 for one as in the engine. Shared values
    /// may occur many times, so the text can be much longer than what it is made of.
    fn pay(&mut self, more: usize) -> Result<(), Error> {
        let bytes = (self.text.len() - self.paid).saturating_add(more);
        self.state.consume_fuel(bytes.div_ceil(64) as u64)?;
        self.paid = self.text.len().saturating_add(more);
        Ok(())
    }

    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if self.text.len() > self.paid.saturating_add(1024) {
            self.pay(0)?;
        }
        match value.kind() {
            ValueKind::None => self.text.push_str("null"),
            ValueKind::Bool => self.text.push_str(match value.is_true() {
                true => "true",
                false => "false",
            }),
            ValueKind::Number => self.text.push_str(&number(value)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default())?,
            ValueKind::Seq | ValueKind::Iterable => {
                self.text.push('[');
                let mut count = 0;
                for one in value.try_iter()? {
                    self.between(count, depth + 1)?;
                    self.value(&one, depth + 1)?;
                    count += 1;
                }
                self.close(']', count, depth)?;
            }
            ValueKind::Map => {
                self.text.push('{');
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sorted {
                    keys.sort();
                }
                let count = keys.len();
                for (place, key) in keys.into_iter().enumerate() {
                    self.between(place, depth + 1)?;
                    self.name(&key)?;
                    let separator = self.key.clone();
                    self.text.push_str(&separator);
                    self.value(&value.get_item(&key)?, depth + 1)?;
                }
                self.close('}', count, depth)?;
            }
            _ => return Err(unusable("a value that JSON does not have")),
        }
        Ok(())
    }

    /// What is before an item: a separator, unless it is the first, and a line of its own.
    fn between(&mut self, place: usize, depth: usize) -> Result<(), Error> {
        if place > 0 {
            let separator = self.item.clone();
            self.text.push_str(&separator);
        }
        self.line(depth)
    }

    fn line(&mut self, depth: usize) -> Result<(), Error> {
        let Some((text, times)) = self.indent.clone() else {
            return Ok(());
        };
        self.text.push('\n');
        let times = times.saturating_mul(depth);
        self.pay(text.len().saturating_mul(times))?;
        self.text.push_str(&text.repeat(times));
        Ok(())
    }

    fn close(&mut self, bracket: char, count: usize, depth: usize) -> Result<(), Error> {
        if count > 0 {
            self.line(depth)?;
        }
        self.text.push(bracket);
        Ok(())
    }

    /// The name of a member. Python writes other keys than texts as texts.
    fn name(&mut self, key: &Value) -> Result<(), Error> {
        match key.kind() {
            ValueKind::String => self.string(key.as_str().unwrap_or_default()),
            ValueKind::None | ValueKind::Bool | ValueKind::Number => {
                self.text.push('"');
                self.value(key, 0)?;
                self.text.push('"');
                Ok(())
            }
            _ => Err(unusable("a key that JSON does not have")),
        }
    }

    fn string(&mut self, text: &str) -> Result<(), Error> {
        self.pay(text.len())?;
        self.paid = self.text.len(); // what is longer for its escapes is paid later
        self.text.push('"');
        for c in text.chars() {
            match c {
                '"' => self.text.push_str("\\\""),
                '\\' => self.text.push_str("\\\\"),
                '\n' => self.text.push_str("\\n"),
                '\r' => self.text.push_str("\\r"),
                '\t' => self.text.push_str("\\t"),
                '\u{8}' => self.text.push_str("\\b"),
                '\u{c}' => self.text.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        // Writing to a text does not fail.
                        let _ = write!(self.text, "\\u{unit:04x}");
                    }
                }
                c => self.text.push(c),
            }
        }
        self.text.push('"');
        Ok(())
    }
}

/// A number as Python writes it.
fn number(value: &Value) -> String {
    if value.is_integer() {
        return value.to_string();
    }
    let Ok(number) = f64::try_from(value.clone()) else {
        return value.to_string();
    };
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let magnitude = number.abs();
    if magnitude != 0.0 && !(1e-4..1e16).contains(&magnitude) {
        let text = format!("{number:e}");
        let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
        let power: i32 = power.parse().unwrap_or(0);
        let sign = if power < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", power.abs());
    }
    let text = number.to_string();
    match text.contains('.') {
        true => text,
        false => text + ".0",
    }
}
