//! Sizes of ciphertexts on the wire, and the cost of a tiling.

use crate::cost::Cost;
use crate::link::{LAN_BYTE_NS, Link};
use std::ops::Add;

/// Sizes of ciphertexts on the wire and the primes that determine the work per leaf; fixed by the parameter preset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire {
    /// Ring degree N.
    pub degree: usize,
    /// Bytes of one seeded input ciphertext.
    pub input_bytes: u64,
    /// Bytes of a response without its b coefficients.
    pub response_bytes: u64,
    /// Bits of one b coefficient in a response.
    pub response_bits: u64,
    /// Primes of the multiplication modulus.
    pub product_limbs: u64,
    /// Primes of the modulus in which leaves are interleaved.
    pub packing_limbs: u64,
}

/// Work and traffic of a tiling, exact except for time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OltCost {
    /// Ciphertexts sent by the owner of the encrypted operand.
    pub inputs: u64,
    /// Multiplier polynomials transformed.
    pub transforms: u64,
    /// Ciphertext × plaintext products.
    pub products: u64,
    /// Automorphisms with key switching.
    pub automorphisms: u64,
    /// Ciphertexts sent back.
    pub responses: u64,
    /// Numbers that the client decrypts.
    pub opened: u64,
    /// Bytes of all inputs.
    pub bytes_in: u64,
    /// Bytes of all responses.
    pub bytes_out: u64,
    /// Estimated time at [`PRICES`](super::price::PRICES), nanoseconds, bytes included.
    pub nanoseconds: u64,
}

impl OltCost {
    /// The work without the bytes, nanoseconds.
    pub(crate) fn work(&self) -> u64 {
        self.nanoseconds.saturating_sub((self.bytes_in + self.bytes_out).saturating_mul(LAN_BYTE_NS))
    }

    /// Estimated time over a link, nanoseconds: by it forms are chosen.
    pub(crate) fn nanoseconds_over(&self, link: &Link) -> u64 {
        self.work().saturating_add((self.bytes_in + self.bytes_out).saturating_mul(link.byte_ns_beside_work()))
    }

    /// Traffic of products whose ciphertexts the client sends before it opens a response.
    pub fn traffic(&self) -> Cost {
        Cost {
            bytes_client: self.bytes_in,
            bytes_server: self.bytes_out,
            frames_client: self.inputs,
            frames_server: self.responses,
            rounds: 2,
            ..Cost::ZERO
        }
    }
}

impl Add for OltCost {
    type Output = OltCost;

    /// One after the other.
    fn add(self, b: OltCost) -> OltCost {
        OltCost {
            inputs: self.inputs + b.inputs,
            transforms: self.transforms + b.transforms,
            products: self.products + b.products,
            automorphisms: self.automorphisms + b.automorphisms,
            responses: self.responses + b.responses,
            opened: self.opened + b.opened,
            bytes_in: self.bytes_in + b.bytes_in,
            bytes_out: self.bytes_out + b.bytes_out,
            nanoseconds: self.nanoseconds + b.nanoseconds,
        }
    }
}
