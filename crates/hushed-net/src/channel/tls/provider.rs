//! The cryptography of a channel.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};

/// Only X25519MLKEM768 exchanges keys.
pub(super) fn provider() -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519MLKEM768];
    Arc::new(provider)
}
