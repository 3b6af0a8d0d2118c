//! Turns token ids back into text as they arrive.
//!
//! A token of a byte-level vocabulary stands for bytes, which may end inside a character. Such bytes are held back
//! until the character is complete. All results together are the text of all bytes, with U+FFFD for those that are not
//! UTF-8.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::HashMap;
use std::sync::Arc;

use tokenizers::Decoder as _;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::wordpiece::WordPiece;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::metaspace::Metaspace;

use super::parts::SPACE;
use super::pipeline::{Kind, character_of, name_of};

/// The bytes of every token.
pub(super) type Bytes = Arc<[Box<[u8]>]>;

/// The bytes of each token in a vocabulary over bytes or over pieces; empty for special tokens and for ids without a
/// token.
pub(super) fn bytes_of(
    kind: Kind,
    tokens: impl IntoIterator<Item = (String, u32)>,
    special: impl Fn(u32) -> bool,
) -> Bytes {
    let of: HashMap<char, u8> = (0..=255).map(|byte| (character_of(byte), byte)).collect();
    let named: HashMap<String, u8> = (0..=255).map(|byte| (name_of(byte), byte)).collect();
    let listed = |token: &str| -> Option<Box<[u8]>> {
        if kind != Kind::Pieces {
            return token.chars().map(|c| of.get(&c).copied()).collect();
        }
        Some(match named.get(token) {
            Some(&byte) => [byte].into(),
            None => token.replace(SPACE, " ").into_bytes().into(),
        })
    };
    let mut bytes: Vec<Box<[u8]>> = Vec::new();
    for (token, id) in tokens {
        let place = id as usize;
        if bytes.len() <= place {
            bytes.resize(place + 1, Box::default());
        }
        let listed = listed(&token);
        if let Some(entry) = bytes.get_mut(place).filter(|_| !special(id)) {
            // An added token is text, not bytes.
            *entry = listed.unwrap_or_else(|| token.into_bytes().into());
        }
    }
    bytes.into()
}

/// The text that tokens make together, special ones included.
pub(super) fn joined(kind: Kind, tokens: Vec<String>) -> String {
    let decoded = match kind {
        Kind::WordPiece => WordPiece::new("##".to_owned(), true).decode(tokens),
        Kind::Bytes => ByteLevel::default().decode(tokens),
        Kind::Pieces | Kind::Unigram => {
            let bytes = ByteFallback::default().decode_chain(tokens);
            bytes.and_then(|tokens| Metaspace::default().decode(tokens))
        }
    };
    // None of these refuses a token.
    decoded.unwrap_or_default()
}

/// Text from token ids. No `Debug`: it is the private answer.
#[derive(Clone)]
pub struct Decoder {
    bytes: Bytes,
    /// The beginning of an incomplete character.
    held: Vec<u8>,
}

impl Decoder {
    pub(super) fn new(bytes: Bytes) -> Decoder {
        let held = Vec::new();
        Decoder { bytes, held }
    }

    /// The text that this token completes, possibly empty. Special tokens and unknown ids stand for no text.
    pub fn push(&mut self, id: u32) -> String {
        let more = self.bytes.get(id as usize).map_or(&[][..], |b| b);
        self.held.extend_from_slice(more);
        let (mut text, mut left) = (String::new(), 0);
        let mut chunks = self.held.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(chunk.valid());
            let invalid = chunk.invalid();
            // An incomplete character at the end may still be completed.
            if chunks.peek().is_none() && begins_a_character(invalid) {
                left = invalid.len();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        self.held.drain(..self.held.len() - left);
        text
    }

    /// The rest at the end of a text: a replacement character for an incomplete character, or nothing.
    #[must_use]
    pub fn finish(self) -> &'static str {
        match self.held.is_empty() {
            true => "",
            false => "\u{fffd}",
        }
    }
}

/// Whether more bytes could complete these to a character.
fn begins_a_character(bytes: &[u8]) -> bool {
    let error = std::str::from_utf8(bytes).err();
    error.is_some_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One token per byte, and one special token.
    fn decoder() -> Decoder {
        let tokens = (0..=255).map(|b| (character_of(b).to_string(), u32::from(b)));
        let end = [("<|endoftext|>".to_owned(), 256), ("漢 字".to_owned(), 257)];
        Decoder::new(bytes_of(Kind::Bytes, tokens.chain(end), |id| id == 256))
    }

    /// A vocabulary over pieces, with bytes by name and spaces by their mark.
    #[test]
    fn pieces_and_their_bytes() {
        let tokens = ["<unk>", "▁a", "b▁", "<0xC5>", "<0xBC>", "<0x0A>", "<0xfe>"];
        let tokens = tokens.map(str::to_owned).into_iter().zip(0..);
        let mut decoder = Decoder::new(bytes_of(Kind::Pieces, tokens, |id| id == 0));
        let given: Vec<String> = [1, 2, 0, 3, 4, 5, 6].map(|id| decoder.push(id)).into();
        assert_eq!(given, [" a", "b ", "", "", "ż", "\n", "<0xfe>"]);
        assert_eq!(decoder.finish(), "");
    }

    /// Byte by byte gives the same text as all bytes at once.
    #[test]
    fn whole_characters_only() {
        let cases: [&[u8]; 12] = [
            b"plain",
            "zażółć 漢字 🙂 e\u{301}".as_bytes(),
            b"\xf0\x9f\x99",
            b"\xf0\x9f\x99a\xf0\x9f\x99\x82",
            b"\xff\xfe\x80",
            b"\xc3",
            b"\xc3\xc3\xa9\xe6\xbc",
            b"\xed\xa0\x80x",
            b"\xf4\x90\x80\x80",
            b"\xe0\x80",
            b"\xc0\xaf",
            b"",
        ];
        for bytes in cases {
            let mut decoder = decoder();
            let mut pieces: Vec<String> = Vec::new();
            for &byte in bytes {
                pieces.push(decoder.push(byte.into()));
            }
            pieces.push(decoder.finish().to_owned());
            assert_eq!(pieces.concat(), String::from_utf8_lossy(bytes), "{bytes:?}");
        }
    }

    #[test]
    fn nothing_of_a_character_is_given_before_it_is_whole() {
        let mut decoder = decoder();
        let given: Vec<String> = "ż🙂".bytes().map(|b| decoder.push(b.into())).collect();
        assert_eq!(given, ["", "ż", "", "", "", "🙂"]);
        assert_eq!(decoder.finish(), "");
    }

    #[test]
    fn special_and_unknown_ids_are_nothing_and_added_tokens_are_text() {
        let mut decoder = decoder();
        assert_eq!(decoder.push(256), "");
        assert_eq!(decoder.push(4_000_000_000), "");
        assert_eq!(decoder.push(257), "漢 字");
        // Between the bytes of a character they have no effect.
        assert_eq!(decoder.push(0xc3), "");
        assert_eq!(decoder.push(256), "");
        assert_eq!(decoder.push(0xa9), "é");
    }
}
