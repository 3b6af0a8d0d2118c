//! How a client reaches its server.

use std::path::PathBuf;
use std::time::Duration;

use hushed_serve::{BundlePin, ClientConfig, Digest, FilePins, ServeError, ServerTrust, Token};
use pyo3::prelude::*;

/// `hushed._settings.Connection`.
#[derive(FromPyObject)]
pub struct Connection {
    server: String,
    pin: Option<String>,
    ca: Option<PathBuf>,
    token_file: Option<PathBuf>,
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
    bundle: Option<PathBuf>,
    bundle_sha256: Option<String>,
    tokenizer_sha256: Option<String>,
    template_sha256: Option<String>,
    cache_dir: Option<PathBuf>,
    retry: u32,
    net: Option<String>,
}

impl Connection {
    /// The client's configuration. Python has checked that exactly one of pin and ca is given.
    pub fn config(self) -> Result<ClientConfig, ServeError> {
        let trust = match (self.pin, self.ca) {
            (None, Some(ca)) => ServerTrust::CaFile(ca),
            (pin, _) => {
                let pins: Vec<String> = pin.unwrap_or_default().split(',').map(|pin| pin.trim().to_owned()).collect();
                match pins.as_slice() {
                    [pin] => ServerTrust::Pin(pin.clone()),
                    _ => ServerTrust::Pins(pins),
                }
            }
        };
        let mut config = ClientConfig::new(self.server, trust);
        config.retry = Duration::from_secs(self.retry.into());
        config.identity = self.cert.zip(self.key);
        config.token = self.token_file.as_deref().map(Token::from_file).transpose()?;
        let by_hash = digest("bundle_sha256", self.bundle_sha256)?.map(BundlePin::Hash);
        config.bundle = self.bundle.map(BundlePin::File).or(by_hash);
        config.files = FilePins {
            tokenizer: digest("tokenizer_sha256", self.tokenizer_sha256)?,
            template: digest("template_sha256", self.template_sha256)?,
        };
        if let Some(net) = self.net {
            config.net = net.parse().map_err(ServeError::NoLink)?;
        }
        config.cache_dir = self.cache_dir.or_else(hushed_serve::folders::cache);
        Ok(config)
    }
}

/// A pinned hash, which must be one.
fn digest(name: &'static str, given: Option<String>) -> Result<Option<Digest>, ServeError> {
    let read = |text: String| text.parse().map_err(|_| ServeError::NotAHash { name });
    given.map(read).transpose()
}
