//! API keys: a file with one per line, each with a name and a limit if it has them.

use std::path::Path;

use hushed_serve::{Digest, read_secrets};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq};

use crate::error::GatewayError;
use crate::sessions::share::Caller;

/// What precedes the digest of a key in its file, as in a server's list of tokens.
const HASHED: &[u8] = b"sha256:";
/// Permitted lengths of a key.
const KEY_BYTES: std::ops::RangeInclusive<usize> = 16..=256;
/// Maximum length of a name.
const NAME_BYTES: usize = 64;
/// What precedes the most texts that a key may send in a day.
const TEXTS: &[u8] = b"texts=";
/// The name of the key that sees what all keys do.
const OPERATOR: &str = "operator";

/// The keys, which are known by their SHA-256 only.
pub struct Keys(Vec<Key>);

struct Key {
    name: Option<String>,
    digest: [u8; 32],
    /// The most texts a day.
    texts: Option<u64>,
}

impl Keys {
    /// Reads a private file: one key per line, `KEY` or `NAME KEY`; in the place of a key `sha256:` and its digest;
    /// after it `texts=N` if it is for at most N texts a day.
    ///
    /// # Errors
    /// [`GatewayError::KeyFile`] with the line; those of reading it.
    pub fn read(path: &Path) -> Result<Self, GatewayError> {
        let text = read_secrets(path)?;
        Self::parse(&text).map_err(|line| GatewayError::KeyFile { path: path.to_owned(), line })
    }

    fn parse(text: &[u8]) -> Result<Self, usize> {
        let mut keys: Vec<Key> = Vec::new();
        for (line, number) in text.split(|b| *b == b'\n').zip(1..) {
            let line = line.trim_ascii();
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            let key = Key::parse(line).ok_or(number)?;
            if key.name.is_some() && keys.iter().any(|known| known.name == key.name) {
                return Err(number);
            }
            keys.push(key);
        }
        match keys.is_empty() {
            true => Err(1),
            false => Ok(Self(keys)),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Who shows this key, if it is one of them; in time that depends only on their number.
    pub fn caller(&self, shown: &[u8]) -> Option<Caller> {
        let shown: [u8; 32] = Sha256::digest(shown).into();
        let known = self.0.iter().fold(Choice::from(0), |found, key| found | key.digest.ct_eq(&shown));
        bool::from(known).then_some(Caller(shown))
    }

    /// The name of a caller's key.
    pub fn name(&self, caller: Caller) -> Option<&str> {
        self.0.iter().find(|key| key.digest == caller.0)?.name.as_deref()
    }

    /// The most texts that a caller may send in a day, if there is a limit.
    pub fn texts(&self, caller: Caller) -> Option<u64> {
        self.0.iter().find(|key| key.digest == caller.0)?.texts
    }

    /// Whether one of the keys is for reading what all of them do.
    pub fn has_operator(&self) -> bool {
        self.0.iter().any(|key| key.name.as_deref() == Some(OPERATOR))
    }

    /// Whether this caller may see what others do: the operator, or a single user.
    pub fn sees_all(&self, caller: Caller) -> bool {
        self.len() == 1 || self.name(caller) == Some(OPERATOR)
    }
}

impl Key {
    fn parse(line: &[u8]) -> Option<Self> {
        let mut words: Vec<&[u8]> = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
        let texts = words.pop_if(|word| word.starts_with(TEXTS));
        let texts = texts.map(|word| std::str::from_utf8(word.get(TEXTS.len()..)?).ok()?.parse::<u64>().ok());
        let (name, key) = match words[..] {
            [key] => (None, key),
            [name, key] => (Some(std::str::from_utf8(name).ok().filter(|name| is_name(name))?.to_owned()), key),
            _ => return None,
        };
        let texts = match texts {
            Some(texts) => Some(texts?),
            None => None,
        };
        Some(Key { name, digest: digest(key)?, texts })
    }
}

fn digest(key: &[u8]) -> Option<[u8; 32]> {
    if let Some(hex) = key.strip_prefix(HASHED) {
        return Some(std::str::from_utf8(hex).ok()?.parse::<Digest>().ok()?.0);
    }
    (KEY_BYTES.contains(&key.len()) && key.iter().all(u8::is_ascii_graphic)).then(|| Sha256::digest(key).into())
}

/// A word that logs and metrics can show as it is.
fn is_name(name: &str) -> bool {
    let fine = |c: char| c.is_ascii_alphanumeric() || "._-@".contains(c);
    name.len() <= NAME_BYTES && name.chars().all(fine)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_key_and_perhaps_a_name() {
        let digest = hushed_serve::Token::from_bytes(b"the-key-of-somebody").unwrap().digest();
        let text = format!("# staff\r\n\r\nann \tthe-key-of-ann-here\r\nthe-key-of-nobody\nbob sha256:{digest}\n");
        let keys = Keys::parse(text.as_bytes()).ok().unwrap();
        let name = |key: &str| keys.name(keys.caller(key.as_bytes()).unwrap());
        assert_eq!(keys.len(), 3);
        assert_eq!((name("the-key-of-ann-here"), name("the-key-of-somebody")), (Some("ann"), Some("bob")));
        assert_eq!(name("the-key-of-nobody"), None);
        for wrong in ["ann", "ann the-key-of-ann-here", "", &format!("sha256:{digest}")] {
            assert!(keys.caller(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert!(!keys.has_operator() && !keys.sees_all(keys.caller(b"the-key-of-nobody").unwrap()));
    }

    #[test]
    fn a_key_may_have_a_limit() {
        let keys =
            Keys::parse(b"ann the-key-of-ann-here texts=40\nthe-key-of-nobody\ttexts=0\nbob the-key-of-bob-here\n");
        let keys = keys.ok().unwrap();
        let texts = |key: &[u8]| keys.texts(keys.caller(key).unwrap());
        assert_eq!(texts(b"the-key-of-ann-here"), Some(40));
        assert_eq!((texts(b"the-key-of-nobody"), texts(b"the-key-of-bob-here")), (Some(0), None));
    }

    #[test]
    fn the_operator_sees_all_and_so_does_a_single_user() {
        let keys = Keys::parse(b"operator the-key-of-the-operator\nthe-key-of-a-user\n").ok().unwrap();
        let sees = |key: &[u8]| keys.sees_all(keys.caller(key).unwrap());
        assert!(keys.has_operator() && sees(b"the-key-of-the-operator") && !sees(b"the-key-of-a-user"));
        let one = Keys::parse(b"the-key-of-a-user").ok().unwrap();
        assert!(one.sees_all(one.caller(b"the-key-of-a-user").unwrap()));
    }

    #[test]
    fn other_lines_are_refused_by_their_number() {
        for (text, line) in [
            ("", 1),
            ("# nobody\n", 1),
            ("short\n", 1),
            ("a-key-of-sixteen-bytes\nann short\n", 2),
            ("ann a-key-of-sixteen-bytes and-more\n", 1),
            ("a\u{e9} a-key-of-sixteen-bytes\n", 1),
            ("a\"b a-key-of-sixteen-bytes\n", 1),
            ("ann a-key-of-sixteen-bytes\nann another-of-sixteen-bytes\n", 2),
            ("sha256:00\n", 1),
            ("ann a-key-of-sixteen-bytes texts=many\n", 1),
            ("ann a-key-of-sixteen-bytes texts=-1\n", 1),
            ("texts=9\n", 1),
            ("ann texts=9 a-key-of-sixteen-bytes\n", 1),
        ] {
            assert_eq!(Keys::parse(text.as_bytes()).err(), Some(line), "{text:?}");
        }
    }
}
