//! How a verb reaches a server.

use std::path::PathBuf;
use std::time::Duration;

use hushed_serve::{
    BundlePin, Client, ClientConfig, Digest, FilePins, ServerTrust, Token, UNPINNED, folders,
};

use crate::error::CliError;
use crate::output::Output;

/// The server, and what each side shows the other.
#[derive(clap::Args)]
pub struct ConnectArgs {
    /// The server, HOST:PORT
    #[arg(long, value_name = "ADDR", env = "HUSHED_SERVER")]
    server: String,

    #[command(flatten)]
    trust: TrustArgs,

    /// A file with the bearer token that the server requires
    #[arg(long, value_name = "FILE", env = "HUSHED_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// This client's certificate chain (PEM), for a server that requires one
    #[arg(
        long,
        value_name = "FILE",
        requires = "key",
        env = "HUSHED_CLIENT_CERT"
    )]
    cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(
        long,
        value_name = "FILE",
        requires = "cert",
        env = "HUSHED_CLIENT_KEY"
    )]
    key: Option<PathBuf>,

    /// Accept only this model: a file made by `hushed bundle`
    #[arg(long, value_name = "FILE", env = "HUSHED_BUNDLE")]
    bundle: Option<PathBuf>,

    /// Accept only the model whose bundle has this SHA-256, as `hushed bundle` prints it
    #[arg(
        long,
        value_name = "SHA256",
        conflicts_with = "bundle",
        env = "HUSHED_BUNDLE_SHA256"
    )]
    bundle_sha256: Option<Digest>,

    /// Accept only models whose tokenizer.json has this SHA-256, that of the published file
    #[arg(long, value_name = "SHA256", env = "HUSHED_TOKENIZER_SHA256")]
    tokenizer_sha256: Option<Digest>,

    /// Accept only models whose chat template has this SHA-256
    #[arg(long, value_name = "SHA256", env = "HUSHED_TEMPLATE_SHA256")]
    template_sha256: Option<Digest>,

    /// Keep asking a server that has no free session for this many seconds, at growing, random intervals
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 0,
        env = "HUSHED_RETRY"
    )]
    retry: u32,

    /// Where the public parts of models are kept [default: the user's cache folder]
    #[arg(long, value_name = "DIR", env = "HUSHED_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
}

/// How the server's certificate is authenticated. Verification cannot be switched off.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct TrustArgs {
    /// SHA-256 of the server's certificate, in hexadecimal
    #[arg(long, value_name = "SHA256", env = "HUSHED_PIN")]
    pin: Option<String>,

    /// A PEM file of authorities that sign server certificates
    #[arg(long, value_name = "FILE", env = "HUSHED_CA")]
    ca: Option<PathBuf>,
}

impl ConnectArgs {
    /// HOST:PORT.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether only one model is accepted.
    pub fn pins_bundle(&self) -> bool {
        self.bundle.is_some() || self.bundle_sha256.is_some() || self.files() != FilePins::default()
    }

    fn files(&self) -> FilePins {
        FilePins {
            tokenizer: self.tokenizer_sha256,
            template: self.template_sha256,
        }
    }

    /// A session for texts, and a word on who chooses the tokenizer.
    pub fn client(&self, out: &Output) -> Result<Client, CliError> {
        let config = self.config()?;
        let client = Client::connect(&config)?;
        if !config.pins_tokenizer() && client.public().images.is_none() {
            out.note(UNPINNED);
        }
        Ok(client)
    }

    /// [`ConnectArgs::config`] for an encrypted batch, which has a manifest instead of a bundle.
    pub fn of_batch(&self) -> Result<ClientConfig, CliError> {
        match self.pins_bundle() {
            true => Err(CliError::OtherProtocol { option: "--bundle" }),
            false => self.config(),
        }
    }

    pub fn config(&self) -> Result<ClientConfig, CliError> {
        let trust = match (&self.trust.pin, &self.trust.ca) {
            (Some(pin), _) => ServerTrust::Pin(pin.clone()),
            (None, Some(ca)) => ServerTrust::CaFile(ca.clone()),
            (None, None) => return Err(CliError::NoTrust), // excluded by the group above
        };
        let mut config = ClientConfig::new(&self.server, trust);
        config.retry = Duration::from_secs(self.retry.into());
        config.identity = self.cert.clone().zip(self.key.clone());
        config.token = self
            .token_file
            .as_deref()
            .map(Token::from_file)
            .transpose()?;
        let hash = self.bundle_sha256.map(BundlePin::Hash);
        config.bundle = self.bundle.clone().map(BundlePin::File).or(hash);
        config.files = self.files();
        config.cache_dir = self.cache_dir.clone().or_else(folders::cache);
        Ok(config)
    }
}

/// Parses a number of tokens or texts, at least 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1".to_owned()),
        Ok(n) => Ok(n),
    }
}
