//! SentencePiece's `precompiled_charsmap`: replacements of characters, found by a trie in a double array.
//!
//! Format: base64 of u32 little-endian n, n bytes of units of 4 bytes, then the replacements, each ended by a zero
//! byte. From the node at p with the unit u, the byte b leads to p ⊕ offset(u) ⊕ b; a replacement's place in the text
//! is the unit at p ⊕ offset(u). The library takes all of this as it is: it would index out of bounds, and take as much
//! memory as n says.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Units that the bytes of one node lie in: steps of ⊕ by a byte stay among them.
const BLOCK: usize = 256;
/// Most bytes of a replacement. The longest in NFKC is one character's 33 bytes.
const MAX_REPLACEMENT: usize = 64;

/// Whether every step leads to a unit, and every replacement is a text within the bounds.
pub(super) fn sound(base64: &str) -> bool {
    STANDARD
        .decode(base64)
        .is_ok_and(|bytes| parts(&bytes).is_some())
}

fn parts(bytes: &[u8]) -> Option<()> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (units, texts) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let texts = std::str::from_utf8(texts).ok()?;
    let (units, cut) = units.as_chunks::<4>();
    let whole = cut.is_empty() && !units.is_empty() && units.len().is_multiple_of(BLOCK);
    whole.then_some(())?;
    let replacement = |start: usize| {
        let text = texts.get(start..)?; // on the border of a character
        let length = text.find('\0').unwrap_or(text.len());
        (length <= MAX_REPLACEMENT).then_some(())
    };
    for (place, unit) in units.iter().enumerate() {
        let unit = u32::from_le_bytes(*unit);
        // A replacement's place, or unused: no byte leads here. The search begins at the first, whatever it is.
        if place > 0 && unit >> 31 == 1 {
            continue;
        }
        let next = place ^ ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize;
        let value = units.get(next)?; // So is the rest of its block, where the next byte leads.
        if unit >> 8 & 1 == 1 {
            replacement((u32::from_le_bytes(*value) & (u32::MAX >> 1)) as usize)?;
        }
    }
    Some(())
}
