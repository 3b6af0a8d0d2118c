//! AES-128 on blocks.

use super::Block;
use ::aes::cipher::{BlockCipherEncrypt, KeyInit};

/// An expanded AES-128 key.
pub struct AesKey(::aes::Aes128);

impl AesKey {
    /// Expands `key`.
    pub fn new(key: Block) -> Self {
        AesKey(::aes::Aes128::new(&key.to_bytes().into()))
    }

    /// Encrypts each block in place.
    pub fn encrypt(&self, blocks: &mut [Block]) {
        for b in blocks {
            let mut bytes = b.to_bytes().into();
            self.0.encrypt_block(&mut bytes);
            *b = Block::from_bytes(bytes.into());
        }
    }
}
