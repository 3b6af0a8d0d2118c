//! Reads a JSON object into a type that derives `Deserialize`, reporting every field that is wrong at once.
//!
//! `serde` stops at the first error. The object is therefore read again without the fields found wrong so far, until
//! only those are left. The names of the type's fields are also the account of what is read ([`names`]).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fmt;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, Expected, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use crate::error::Problem;
use crate::folder::json::{Fields, shown};

/// Reads the fields of `T`; `None` if and only if a problem was added. A field that may be absent or null is an
/// `Option`.
pub(crate) fn read<T: DeserializeOwned>(f: &mut Fields<'_>) -> Option<T> {
    let mut wrong: Vec<&'static str> = Vec::new();
    loop {
        let mut failed = None;
        let found = T::deserialize(Object { fields: f, wrong: &wrong, failed: &mut failed });
        let Some((field, trouble)) = failed else {
            return found.ok().filter(|_| wrong.is_empty());
        };
        let file = f.file().to_owned();
        f.problem(match trouble {
            Trouble::Missing => Problem::MissingField { file, field },
            Trouble::Type(expected) => Problem::WrongType { file, field, expected: expected.into() },
            Trouble::Value(supported) => {
                let value = shown(f.get(field).unwrap_or(&Value::Null));
                Problem::UnsupportedValue { file, field, value, supported: supported.into() }
            }
        });
        wrong.push(field);
    }
}

/// The names of the fields of `T`.
pub(crate) fn names<T: DeserializeOwned>() -> &'static [&'static str] {
    struct Names<'a>(&'a mut &'static [&'static str]);

    impl<'de> Deserializer<'de> for Names<'_> {
        type Error = Trouble;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, Trouble> {
            *self.0 = fields;
            Err(Trouble::Missing)
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Trouble> {
            Err(Trouble::Missing)
        }

        forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }
    let mut names: &'static [&'static str] = &[];
    let _ = T::deserialize(Names(&mut names));
    names
}

/// A whole number within `LEAST..=MOST`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size<const LEAST: usize, const MOST: usize>(pub usize);

impl<const LEAST: usize, const MOST: usize> Size<LEAST, MOST> {
    /// The largest.
    pub(crate) const MOST: usize = MOST;
}

impl<'de, const LEAST: usize, const MOST: usize> Deserialize<'de> for Size<LEAST, MOST> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let number = WholeNumber::deserialize(from)?.0;
        match usize::try_from(number) {
            Ok(n) if (LEAST..=MOST).contains(&n) => Ok(Size(n)),
            _ => Err(unsupported(&format!("{LEAST} to {MOST}"))),
        }
    }
}

struct WholeNumber(u64);

impl<'de> Deserialize<'de> for WholeNumber {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Whole;
        impl Visitor<'_> for Whole {
            type Value = u64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }
            fn visit_u64<E>(self, number: u64) -> Result<u64, E> {
                Ok(number)
            }
        }
        from.deserialize_u64(Whole).map(WholeNumber)
    }
}

/// A number within `least..=most`, for `deserialize` of a type of its own.
pub(crate) fn real<'de, D: Deserializer<'de>>(from: D, least: f64, most: f64) -> Result<f64, D::Error> {
    struct Number;
    impl Visitor<'_> for Number {
        type Value = f64;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a number")
        }
        fn visit_f64<E>(self, number: f64) -> Result<f64, E> {
            Ok(number)
        }
        fn visit_u64<E>(self, number: u64) -> Result<f64, E> {
            Ok(number as f64)
        }
        fn visit_i64<E>(self, number: i64) -> Result<f64, E> {
            Ok(number as f64)
        }
    }
    let number = from.deserialize_f64(Number)?;
    match (least..=most).contains(&number) {
        true => Ok(number),
        false => Err(unsupported(&format!("{least} to {most}"))),
    }
}

/// The error of a value that is not implemented.
pub(crate) fn unsupported<E: de::Error>(supported: &str) -> E {
    E::custom(supported)
}

/// What is wrong with a field.
#[derive(Debug)]
enum Trouble {
    Missing,
    /// What it should be.
    Type(String),
    /// What is supported.
    Value(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Trouble::Missing => "missing",
            Trouble::Type(text) | Trouble::Value(text) => text,
        })
    }
}

impl std::error::Error for Trouble {}

impl de::Error for Trouble {
    fn custom<T: fmt::Display>(supported: T) -> Trouble {
        Trouble::Value(supported.to_string())
    }

    fn invalid_type(_: de::Unexpected<'_>, expected: &dyn Expected) -> Trouble {
        Trouble::Type(expected.to_string())
    }

    fn invalid_value(_: de::Unexpected<'_>, expected: &dyn Expected) -> Trouble {
        Trouble::Value(expected.to_string())
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Trouble {
        Trouble::Value(expected.join(", "))
    }
}

/// The object, for one attempt.
struct Object<'a, 'f> {
    fields: &'a Fields<'f>,
    wrong: &'a [&'static str],
    /// The field that made this attempt fail.
    failed: &'a mut Option<(&'static str, Trouble)>,
}

impl<'de> Deserializer<'de> for Object<'_, '_> {
    type Error = Trouble;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Trouble> {
        let left = fields.iter().copied().filter(|field| !self.wrong.contains(field)).collect::<Vec<_>>();
        visitor.visit_map(Attempt { object: self, left: left.into_iter(), next: "" })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Trouble> {
        Err(Trouble::Missing)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Attempt<'a, 'f> {
    object: Object<'a, 'f>,
    left: std::vec::IntoIter<&'static str>,
    next: &'static str,
}

impl<'de> MapAccess<'de> for Attempt<'_, '_> {
    type Error = Trouble;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Trouble> {
        let Some(field) = self.left.next() else { return Ok(None) };
        self.next = field;
        seed.deserialize(StrDeserializer::new(field)).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Trouble> {
        let found = seed.deserialize(Given(self.object.fields.get(self.next)));
        found.map_err(|trouble| {
            *self.object.failed = Some((self.next, trouble));
            Trouble::Missing
        })
    }
}

/// A value, if it is present and not null.
#[derive(Clone, Copy)]
struct Given<'a>(Option<&'a Value>);

impl<'de> de::IntoDeserializer<'de, Trouble> for Given<'_> {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Given<'_> {
    type Error = Trouble;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        let given = |value| Given(Some(value).filter(|value: &&Value| !value.is_null()));
        match self.0 {
            None | Some(Value::Null) => Err(Trouble::Missing),
            Some(Value::Bool(flag)) => visitor.visit_bool(*flag),
            Some(Value::Number(number)) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (.., number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Some(Value::String(text)) => visitor.visit_str(text),
            Some(Value::Array(items)) => visitor.visit_seq(SeqDeserializer::new(items.iter().map(given))),
            Some(Value::Object(fields)) => {
                let fields = fields.iter().map(|(name, value)| (name.as_str(), given(value)));
                visitor.visit_map(MapDeserializer::new(fields))
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Trouble> {
        match self.0 {
            None => visitor.visit_none(),
            Some(_) => visitor.visit_some(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Trouble> {
        match self.0 {
            None => Err(Trouble::Missing),
            Some(Value::String(text)) => visitor.visit_enum(StrDeserializer::new(text)),
            Some(_) => Err(Trouble::Type("a text".to_owned())),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Trouble> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::json;

    #[derive(Debug, PartialEq, serde::Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Colour {
        Red,
        #[serde(alias = "verde")]
        Green,
    }

    #[derive(Debug, serde::Deserialize)]
    struct Sample {
        layers: Size<1, 9>,
        width: Size<1, 9>,
        colour: Colour,
        flag: Option<bool>,
        parts: Option<Vec<Size<0, 3>>>,
    }

    fn read_of(text: &str) -> (Option<Sample>, Vec<String>) {
        let mut problems = Vec::new();
        let object = json::object("config.json", text.as_bytes(), &mut problems).unwrap();
        let found = read(&mut Fields::new("config.json", &object, &mut problems));
        (found, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn sound_objects() {
        let (found, problems) =
            read_of(r#"{"layers":9,"width":1,"colour":"verde","flag":null,"more":{},"parts":[0,3]}"#);
        let found = found.unwrap();
        assert_eq!((found.layers.0, found.width.0, found.colour, found.flag), (9, 1, Colour::Green, None));
        assert_eq!((found.parts.unwrap().len(), problems.len()), (2, 0));
        assert_eq!(names::<Sample>(), ["layers", "width", "colour", "flag", "parts"]);
    }

    #[test]
    fn every_wrong_field_is_reported_at_once() {
        let (found, problems) = read_of(r#"{"layers":10,"width":"x","colour":"blue","flag":"yes","parts":[1,4]}"#);
        assert!(found.is_none());
        assert_eq!(
            problems,
            [
                "config.json: `layers` is 10; supported: 1 to 9",
                "config.json: the field `width` should be a whole number",
                "config.json: `colour` is \"blue\"; supported: red, green, verde",
                "config.json: the field `flag` should be a boolean",
                "config.json: `parts` is [1,4]; supported: 0 to 3",
            ]
        );
        let (found, problems) = read_of(r#"{"width":null,"colour":7}"#);
        assert!(found.is_none());
        assert_eq!(
            problems,
            [
                "config.json: the field `layers` is missing",
                "config.json: the field `width` is missing",
                "config.json: the field `colour` should be a text",
            ]
        );
    }
}
