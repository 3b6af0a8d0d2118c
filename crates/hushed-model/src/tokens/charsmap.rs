//! SentencePiece's `precompiled_charsmap`: replacements of characters, found by a trie in a double array.
//!
//! Format: base64 of u32 little-endian n, n bytes of 4-byte units, then the replacements, each terminated by a zero
//! byte. From the node at p with unit u, byte b leads to p ⊕ offset(u) ⊕ b; the unit at p ⊕ offset(u) is the position
//! of a replacement in the text. The library does not check any of this: it would index out of bounds, and allocate as
//! much memory as n says.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Units in the block of one node's children: ⊕ with a byte stays within it.
const BLOCK: usize = 256;
/// Longest replacement in bytes. The longest in NFKC has 33, for one character.
const MAX_REPLACEMENT: usize = 64;

/// Checks that every step leads to a unit, and that every replacement is text within the bounds.
pub(super) fn sound(base64: &str) -> bool {
    STANDARD.decode(base64).is_ok_and(|bytes| parts(&bytes).is_some())
}

fn parts(bytes: &[u8]) -> Option<()> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (units, texts) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let texts = std::str::from_utf8(texts).ok()?;
    let (units, cut) = units.as_chunks::<4>();
    let whole = cut.is_empty() && !units.is_empty() && units.len().is_multiple_of(BLOCK);
    whole.then_some(())?;
    let replacement = |start: usize| {
        let text = texts.get(start..)?; // fails inside a character
        let length = text.find('\0').unwrap_or(text.len());
        (length <= MAX_REPLACEMENT).then_some(())
    };
    for (place, unit) in units.iter().enumerate() {
        let unit = u32::from_le_bytes(*unit);
        // A replacement's position, or unused: no byte leads here. The search begins at the first, whatever it is.
        if place > 0 && unit >> 31 == 1 {
            continue;
        }
        let next = place ^ ((unit >> 10) << ((unit & 1 << 9) >> 6)) as usize;
        let value = units.get(next)?; // The rest of its block, where the next byte leads, exists too.
        if unit >> 8 & 1 == 1 {
            replacement((u32::from_le_bytes(*value) & (u32::MAX >> 1)) as usize)?;
        }
    }
    Some(())
}
