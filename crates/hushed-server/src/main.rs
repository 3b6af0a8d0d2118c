//! `hushed-server DIR`: serves a model, and can do nothing else. Built without the client's code, for machines that must not have it.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use hushed_serve::{
    ClientAccess, Deadlines, ServeError, Server, ServerConfig, ServerIdentity, logging, signals,
};

/// Serves a model to clients whose texts it never sees.
///
/// Prints one line with the address, the SHA-256 of its certificate and the hash of its public bundle, then logs to standard error
/// until SIGTERM or SIGINT.
#[derive(Parser)]
#[command(
    version,
    after_help = "Examples:\n  hushed-server models/minilm\n  hushed-server models/minilm --listen 0.0.0.0:7450 --tokens tokens.txt --cert chain.pem --key key.pem"
)]
struct Arguments {
    /// The model: a Hugging Face folder.
    #[arg(value_name = "DIR")]
    model: PathBuf,
    /// Where to listen; port 0 takes any free one.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:0",
        env = "HUSHED_LISTEN"
    )]
    listen: String,
    /// Where the development certificate is kept; it is made on first use. Default: the user's state folder,
    /// `~/.local/state/hushed/certificate`.
    #[arg(
        long,
        value_name = "DIR",
        env = "HUSHED_CERT_DIR",
        conflicts_with = "cert"
    )]
    cert_dir: Option<PathBuf>,
    /// A certificate chain (PEM) instead.
    #[arg(long, value_name = "FILE", env = "HUSHED_CERT", requires = "key")]
    cert: Option<PathBuf>,
    /// Its key (PEM).
    #[arg(long, value_name = "FILE", env = "HUSHED_KEY", requires = "cert")]
    key: Option<PathBuf>,
    /// Accepted bearer tokens, one a line: `sha256:` and the digest, or the token itself. May be left out on loopback only.
    #[arg(long, value_name = "FILE", env = "HUSHED_TOKENS_FILE")]
    tokens: Option<PathBuf>,
    /// Authorities (PEM) one of which must have signed a client's certificate.
    #[arg(long, value_name = "FILE", env = "HUSHED_CLIENT_CA")]
    client_ca: Option<PathBuf>,
    /// Sessions at once.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4,
        env = "HUSHED_MAX_SESSIONS"
    )]
    max_sessions: usize,
    /// Most tokens of a text, below the model's own limit.
    #[arg(long, value_name = "N", env = "HUSHED_MAX_TOKENS")]
    max_tokens: Option<usize>,
    /// Most tokens of all texts of one pass together; a single text is bounded by --max-tokens alone.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 256,
        env = "HUSHED_MAX_PASS_TOKENS"
    )]
    max_pass_tokens: usize,
    /// Most texts of a session.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1000,
        env = "HUSHED_MAX_TEXTS"
    )]
    max_texts: usize,
    /// Seconds without a sign of life after which a client counts as gone.
    #[arg(long, value_name = "S", default_value_t = 60, env = "HUSHED_SILENCE")]
    silence: u64,
    /// Seconds that texts under way get to end after SIGTERM.
    #[arg(long, value_name = "S", default_value_t = 120, env = "HUSHED_DRAIN")]
    drain: u64,
    /// Where to answer /healthz, /readyz and /metrics, over plain HTTP.
    #[arg(long, value_name = "ADDR", env = "HUSHED_METRICS")]
    metrics: Option<String>,
    /// One JSON object a line instead of text.
    #[arg(long)]
    json: bool,
    /// Log every text's tokens, seconds and bytes.
    #[arg(long)]
    debug: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::to_stderr(arguments.json, arguments.debug);
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hushed-server: {error}");
            ExitCode::from(error.category().exit_code())
        }
    }
}

fn run(arguments: Arguments) -> Result<(), ServeError> {
    let json = arguments.json;
    let stop = signals::stop_on_signals().map_err(ServeError::Signals)?;
    let server = Server::bind(&arguments.config())?;
    let (address, certificate, bundle) = (
        server.local_addr(),
        server.fingerprint(),
        server.bundle_hash(),
    );
    if json {
        // The three are an address and digits: nothing to escape.
        println!(
            r#"{{"event":"listening","address":"{address}","certificate_sha256":"{certificate}","bundle":"{bundle}"}}"#
        );
    } else {
        println!("listening on {address}\ncertificate sha256 {certificate}\nbundle {bundle}");
    }
    server.run(&stop)
}

impl Arguments {
    fn config(self) -> ServerConfig {
        let identity = match (self.cert, self.key) {
            (Some(chain), Some(key)) => ServerIdentity::Files { chain, key },
            _ => ServerIdentity::Development(self.cert_dir.unwrap_or_else(state_dir)),
        };
        ServerConfig {
            model: self.model,
            listen: self.listen,
            identity,
            access: ClientAccess::new(self.tokens, self.client_ca),
            max_sessions: self.max_sessions,
            max_tokens: self.max_tokens,
            max_pass_tokens: self.max_pass_tokens,
            max_texts: self.max_texts,
            deadlines: Deadlines {
                silence: Duration::from_secs(self.silence),
                drain: Duration::from_secs(self.drain),
                ..Deadlines::default()
            },
            metrics_listen: self.metrics,
        }
    }
}

/// Where programs keep what should survive a restart (XDG base directories).
fn state_dir() -> PathBuf {
    let set = |name: &str| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path| path.is_absolute())
    };
    set("XDG_STATE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".local/state")))
        .unwrap_or_default()
        .join("hushed/certificate")
}
