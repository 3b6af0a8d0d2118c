//! How a verb reaches a server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hushed_serve::{
    BundlePin, Client, ClientConfig, Digest, FilePins, Net, Offer, ServerTrust, Token, Unpinned, folders,
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
    #[arg(long, value_name = "FILE", requires = "key", env = "HUSHED_CLIENT_CERT")]
    cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", env = "HUSHED_CLIENT_KEY")]
    key: Option<PathBuf>,

    /// Accept only this model: a file made by `hushed bundle`
    #[arg(long, value_name = "FILE", env = "HUSHED_BUNDLE")]
    bundle: Option<PathBuf>,

    #[command(flatten)]
    pins: PinArgs,

    /// Wait this many seconds for a session if all are taken: in the server's queue, or where that is full by asking
    /// again; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 600, env = "HUSHED_RETRY")]
    retry: u32,

    /// The network to the server, in protocol 2pc: lan, wan (4 ms, 400 Mbit/s), internet (40 ms, 50 Mbit/s), a round
    /// trip and a bandwidth as in 20ms/100mbit, or auto, which takes the one with the nearest round trip. The longer a
    /// message takes, the fewer there are, of more bytes; answers are the same
    #[arg(long, value_name = "NET", default_value = "lan", env = "HUSHED_NET")]
    net: Net,

    /// Where the public parts of models are kept [default: the user's cache folder]
    #[arg(long, value_name = "DIR", env = "HUSHED_CACHE_DIR")]
    cache_dir: Option<PathBuf>,
}

/// How the server's certificate is authenticated. Verification cannot be switched off.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct TrustArgs {
    /// SHA-256 of the server's certificate, in hexadecimal. May be given more than once, the old one first, while the
    /// certificate changes; in HUSHED_PIN with commas between them
    #[arg(long, value_name = "SHA256", value_delimiter = ',', env = "HUSHED_PIN")]
    pin: Vec<String>,

    /// A PEM file of authorities that sign server certificates
    #[arg(long, value_name = "FILE", env = "HUSHED_CA")]
    ca: Option<PathBuf>,
}

/// Hashes by which a client accepts only one model, tokenizer or chat template (`hushed bundle` prints them).
#[derive(clap::Args)]
struct PinArgs {
    /// The same by its SHA-256, which `hushed bundle DIR` prints
    #[arg(long, value_name = "SHA256", conflicts_with = "bundle", env = "HUSHED_BUNDLE_SHA256")]
    bundle_sha256: Option<Digest>,

    /// Accept only this tokenizer: the SHA-256 of the published tokenizer.json. A server that may choose the tokenizer
    /// makes the number of tokens, which it sees, any function of the text
    #[arg(long, value_name = "SHA256", env = "HUSHED_TOKENIZER_SHA256")]
    tokenizer_sha256: Option<Digest>,

    /// Accept only this chat template: its SHA-256, which `hushed bundle DIR` prints
    #[arg(long, value_name = "SHA256", env = "HUSHED_TEMPLATE_SHA256")]
    template_sha256: Option<Digest>,
}

impl ConnectArgs {
    /// HOST:PORT.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The option by which only one model is accepted, if there is one.
    pub fn pins_bundle(&self) -> Option<&'static str> {
        let by_hash = self.pins.bundle_sha256.map(|_| "--bundle-sha256");
        self.bundle.as_ref().map(|_| "--bundle").or(by_hash)
    }

    /// Connects. `check` looks at what is to be run beside what the server offers, before megabytes of keys and
    /// correlations are made; what it makes is returned. Says so if the server may choose what decides the number of
    /// tokens of a text, or of a conversation (`chats`).
    pub fn client<T>(
        &self,
        out: &Output,
        chats: bool,
        check: impl FnOnce(&Offer) -> Result<T, CliError>,
    ) -> Result<(Client, T), CliError> {
        let mut config = self.config()?;
        if !out.is_json() && !out.is_quiet() {
            config.on_wait = Some(Arc::new(|waiting| eprintln!("{waiting}")));
        }
        let greeted = Client::greet(&config)?;
        // The rows of an image follow from its model's shape.
        if greeted.public().tokenizer().is_ok() {
            note_unpinned(out, config.unpinned(chats));
        }
        let checked = check(&greeted)?;
        Ok((greeted.establish()?, checked))
    }

    /// [`ConnectArgs::config`] for an encrypted batch, which has a manifest instead of a bundle.
    pub fn of_batch(&self) -> Result<ClientConfig, CliError> {
        match self.pins_bundle() {
            Some(option) => Err(CliError::OtherProtocol { option }),
            None => self.config(),
        }
    }

    pub fn config(&self) -> Result<ClientConfig, CliError> {
        let trust = match (self.trust.pin.as_slice(), &self.trust.ca) {
            ([pin], _) => ServerTrust::Pin(pin.clone()),
            ([], Some(ca)) => ServerTrust::CaFile(ca.clone()),
            (pins @ [_, ..], _) => ServerTrust::Pins(pins.to_vec()),
            ([], None) => return Err(CliError::NoTrust), // excluded by the group above
        };
        let mut config = ClientConfig::new(&self.server, trust);
        config.retry = Duration::from_secs(self.retry.into());
        config.identity = self.cert.clone().zip(self.key.clone());
        config.token = self.token_file.as_deref().map(Token::from_file).transpose()?;
        let by_hash = self.pins.bundle_sha256.map(BundlePin::Hash);
        config.bundle = self.bundle.clone().map(BundlePin::File).or(by_hash);
        config.files = FilePins { tokenizer: self.pins.tokenizer_sha256, template: self.pins.template_sha256 };
        config.cache_dir = self.cache_dir.clone().or_else(folders::cache);
        config.net = self.net;
        Ok(config)
    }
}

/// Says what the server may choose that decides the number of tokens.
pub fn note_unpinned(out: &Output, unpinned: Option<Unpinned>) {
    match unpinned {
        None => {}
        Some(Unpinned::Tokenizer) => out.note(
            "the server chose the tokenizer: the number of tokens, which it sees, can be any function of the text; pin \
             it with --tokenizer-sha256 (the SHA-256 of the published tokenizer.json), or the whole model with \
             --bundle-sha256",
        ),
        Some(Unpinned::Template) => out.note(
            "the server chose the chat template: the number of tokens, which it sees, can be any function of the \
             conversation; pin it with --template-sha256, or the whole model with --bundle-sha256",
        ),
    }
}

/// Parses a number of tokens or texts, at least 1.
pub fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1".to_owned()),
        Ok(n) => Ok(n),
    }
}
