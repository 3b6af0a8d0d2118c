//! `hushed gateway`: the APIs of OpenAI and of text-embeddings-inference on this machine, over private sessions.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hushed_gateway::{BatchConfig, BatchGateway, Gateway, GatewayConfig, Listen};
use hushed_model::Task;
use hushed_serve::{MAX_AHEAD, MAX_DRAFTS, Protocol, TooLong, logging, signals};
use serde_json::json;

use super::fhe::embed::KeyFolder;
use crate::connect::{ConnectArgs, at_least_one, note_unpinned};
use crate::error::CliError;
use crate::output::Output;

/// Offer a private server to programs on this machine, through the APIs of OpenAI and of text-embeddings-inference
#[derive(clap::Args)]
#[command(
    after_help = "Programs change their base URL, and the model's name unless --model-alias or --any-model takes theirs. Texts end \
at the gateway: it tokenizes, and takes part in each pass as the client. The server learns what it learns from \
`hushed embed` or `hushed generate`, and which texts share a pass. The page at the printed address shows what \
left this machine.

Equal texts share one pass for ten minutes, so that a retry costs nothing. What would take longer than its \
client waits is refused before anything is sent (413); clients say how long they wait by the header \
x-stainless-read-timeout, or wait --patience seconds. A list of texts that takes longer is worked through, up to \
--max-request, while its connection is kept alive.

Without --tls-cert, --tls-key and --api-key-file it listens on a loopback address or a Unix socket only. Any \
program of this machine can then use it; --api-key-file asks for a key there too.

With --protocol fhe it takes OpenAI's batches (/v1/files, /v1/batches) and nothing that is answered at once. \
Batches that come within --gather of each other become one encrypted batch, which takes the server as long as a \
full one. Files and batches are in memory: a gateway that is stopped forgets them.

Examples:
  hushed gateway --server 127.0.0.1:7450 --pin 9f86d0… --listen 127.0.0.1:8080
  OPENAI_BASE_URL=http://127.0.0.1:8080/v1 OPENAI_API_KEY=none python app.py
  curl http://127.0.0.1:8080/embed -H 'Content-Type: application/json' \\
    -d '{\"inputs\": \"a private text\"}'
  hushed gateway --server models.example.org:7450 --ca ca.pem --token-file token \\
    --listen unix:/run/user/1000/hushed.sock
  hushed gateway --server 127.0.0.1:7450 --pin 9f86d0… --listen 0.0.0.0:8443 \\
    --allow-host gateway.example.org \\
    --tls-cert chain.pem --tls-key key.pem --api-key-file keys.txt
  hushed gateway --server 127.0.0.1:7450 --pin 9f86d0… --ahead 32 --draft 3
  hushed gateway --protocol fhe --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --make-keys \\
    --gather 10m"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    /// The server's protocol
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    protocol: Protocol,

    /// Where to listen: HOST:PORT of a loopback address, or unix:PATH
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8080", env = "HUSHED_GATEWAY_LISTEN")]
    listen: String,

    /// The gateway's certificate chain (PEM), to be reached from other machines
    #[arg(long, value_name = "FILE", requires = "tls_key", env = "HUSHED_GATEWAY_TLS_CERT")]
    tls_cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert", env = "HUSHED_GATEWAY_TLS_KEY")]
    tls_key: Option<PathBuf>,

    /// A private file of keys, one per line, one of which programs must show (`Authorization: Bearer KEY`); in the
    /// place of a key sha256: and its digest, before it a name if you like, after it texts=N for a limit a day
    #[arg(long, value_name = "FILE", env = "HUSHED_GATEWAY_API_KEY_FILE")]
    api_key_file: Option<PathBuf>,

    /// A further host name by which programs may call the gateway; may be given more than once
    #[arg(long, value_name = "NAME")]
    allow_host: Vec<String>,

    /// A web origin (https://example.org) whose pages may use the gateway; may be given more than once
    #[arg(long, value_name = "ORIGIN")]
    allow_origin: Vec<String>,

    /// The model's name for programs [default: a name made from its hash]
    #[arg(long, value_name = "NAME", env = "HUSHED_MODEL_NAME")]
    model_name: Option<String>,

    /// A further name of the model, such as one that a program has built in; may be given more than once
    #[arg(long, value_name = "NAME")]
    model_alias: Vec<String>,

    /// Accept every model's name in requests
    #[arg(long, env = "HUSHED_ANY_MODEL")]
    any_model: bool,

    /// Number of concurrent sessions with the server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, env = "HUSHED_SESSIONS")]
    sessions: usize,

    /// Maximum number of texts that share a pass (fewer if the server's --max-pass-tokens requires)
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = at_least_one, env = "HUSHED_BATCH")]
    batch: usize,

    /// Maximum number of waiting texts; more are refused (429)
    #[arg(long, value_name = "N", default_value_t = 1024, value_parser = at_least_one, env = "HUSHED_MAX_WAITING")]
    max_waiting: usize,

    /// Seconds that a program waits, unless it says so itself
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..), env = "HUSHED_PATIENCE")]
    patience: u64,

    /// Seconds that requests under way may take after SIGTERM
    #[arg(long, value_name = "SECONDS", default_value_t = 120, env = "HUSHED_DRAIN")]
    drain: u64,

    /// Longest time in seconds for a list of texts whose client is kept waiting, by a space every 10 s
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400, value_parser = clap::value_parser!(u64).range(1..), env = "HUSHED_MAX_REQUEST")]
    max_request: u64,

    /// Pad texts to a multiple of N tokens: the server learns only the padded lengths
    #[arg(long, value_name = "N", value_parser = at_least_one, env = "HUSHED_BUCKET")]
    bucket: Option<usize>,

    /// Embed the beginning of a text that is too long, instead of refusing it
    #[arg(long, env = "HUSHED_TRUNCATE")]
    truncate: bool,

    /// Look up token vectors in the model's table, if the server's operator has made it public; fetched once and kept
    #[arg(long, env = "HUSHED_PUBLIC_TABLE")]
    public_table: bool,

    /// Run as many passes as an answer may have tokens, even if the text ends earlier
    #[arg(long, env = "HUSHED_PAD_OUTPUT")]
    pad_output: bool,

    /// With a model that generates: have products with weights and tables made for N later tokens of an answer at a
    /// time, before its first one, so that each token costs less (needs a server with `--max-ahead`). The server sees
    /// for how many tokens
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_AHEAD)), env = "HUSHED_AHEAD")]
    ahead: u16,

    /// With a model that generates: guess the next N tokens from what followed the last ones where they occurred
    /// before, and have them verified in one pass (server: `--max-drafts`). The answers are the same; the server sees
    /// how many guesses are right, and each counts as a text of this client. `hushed plan --draft` says when it pays
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_DRAFTS)), env = "HUSHED_DRAFT")]
    draft: u16,

    #[command(flatten)]
    folder: KeyFolder,

    /// With --protocol fhe: how long the first text of an encrypted batch waits for others, such as 30s, 10m or 2h
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = span, env = "HUSHED_GATHER")]
    gather: Duration,
}

/// Parses a whole number of seconds, minutes or hours.
fn span(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600)].into_iter();
    let mut read = units.filter_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?.parse::<u32>().ok()?;
        Some(Duration::from_secs(u64::from(number) * seconds))
    });
    read.next().ok_or_else(|| "a time such as 30s, 10m or 2h is expected".to_owned())
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if !out.is_quiet() {
            logging::to_stderr(out.is_json(), false);
        }
        if self.protocol == Protocol::Fhe {
            return self.batches(out);
        }
        if self.folder.makes_keys() {
            let option = "--make-keys";
            return Err(CliError::OtherProtocol { option });
        }
        let stop = signals::stop_on_signals().map_err(CliError::Signals)?;
        let mut config = self.config()?;
        config.client.stop = Some(Arc::clone(&stop));
        let gateway = match Gateway::bind(&config) {
            // It was stopped before its server could be used.
            Err(_) if stop.load(Ordering::SeqCst) => return Ok(()),
            bound => bound?,
        };
        note_unpinned(out, config.client.unpinned(gateway.chats()));
        let address = self.address(gateway.address(), gateway.has_tls());
        let task = match gateway.task() {
            Task::Generate => "generate",
            Task::Classify => "classify",
            Task::Embed => "embed",
        };
        let (model, bundle) = (gateway.model_name().to_owned(), gateway.bundle_hash());
        let object = json!({
            "event": "listening",
            "address": address,
            "model": model,
            "bundle": bundle.to_string(),
            "task": task,
        });
        out.result(object, || {
            format!(
                "listening on {address}\nmodel {model}, of {} (bundle {bundle})\n\n\
                 try:  {}",
                self.connect.server(),
                self.hint(&address),
            )
        })?;
        Ok(gateway.run(&stop)?)
    }

    /// Runs in front of an `fhe` server.
    fn batches(&self, out: &Output) -> Result<(), CliError> {
        let given = [
            ("--bucket", self.bucket.is_some()),
            ("--public-table", self.public_table),
            ("--pad-output", self.pad_output),
            ("--ahead", self.ahead > 0),
            ("--draft", self.draft > 0),
        ];
        if let Some((option, _)) = given.into_iter().find(|(_, given)| *given) {
            return Err(CliError::OtherProtocol { option });
        }
        let too_long = match self.truncate {
            true => TooLong::Cut,
            false => TooLong::Refuse,
        };
        let (connection, makes) = (self.connect.of_batch()?, self.folder.makes_keys());
        let gateway = BatchGateway::bind(BatchConfig {
            gateway: self.config()?,
            remote: self.folder.remote(connection, makes, too_long)?,
            gather: self.gather,
        })?;
        // Keys may have been in the making until now, and Ctrl-C must end that at once.
        let stop = signals::stop_on_signals().map_err(CliError::Signals)?;
        let address = self.address(gateway.address(), gateway.has_tls());
        let (model, manifest) = (gateway.model_name().to_owned(), gateway.manifest());
        let object = json!({
            "event": "listening",
            "protocol": "fhe",
            "address": address,
            "model": model,
            "plan": manifest.to_string(),
            "task": "embed",
        });
        out.result(object, || {
            format!(
                "listening on {address} for batches (/v1/files, /v1/batches)\nmodel {model}, of {} (manifest {manifest})",
                self.connect.server(),
            )
        })?;
        Ok(gateway.run(&stop)?)
    }

    /// The address at which programs call it. If it is bound to every address, the first name of `--allow-host` stands
    /// for it.
    fn address(&self, bound: Option<SocketAddr>, tls: bool) -> String {
        let Some(bound) = bound else {
            return self.listen.clone();
        };
        let scheme = if tls { "https" } else { "http" };
        match self.allow_host.first() {
            Some(name) if bound.ip().is_unspecified() => {
                format!("{scheme}://{name}:{}", bound.port())
            }
            _ => format!("{scheme}://{bound}"),
        }
    }

    /// What to try first.
    fn hint(&self, address: &str) -> String {
        if let Listen::Unix(path) = Listen::from(self.listen.as_str()) {
            let header = match &self.api_key_file {
                Some(_) => " -H 'Authorization: Bearer KEY'",
                None => "",
            };
            let path = path.display();
            return format!("curl --unix-socket '{path}'{header} http://localhost/info");
        }
        let key = match &self.api_key_file {
            Some(file) => format!("'a key of {}'", file.display()),
            None => "none".to_owned(),
        };
        format!("OPENAI_BASE_URL={address}/v1 OPENAI_API_KEY={key}, or open {address}/")
    }

    fn config(&self) -> Result<GatewayConfig, CliError> {
        Ok(GatewayConfig {
            listen: Listen::from(self.listen.as_str()),
            tls: self.tls_cert.clone().zip(self.tls_key.clone()),
            api_keys: self.api_key_file.clone(),
            reload: signals::reload_on_hangup().map_err(CliError::Signals)?,
            hosts: self.allow_host.clone(),
            origins: self.allow_origin.clone(),
            model_name: self.model_name.clone(),
            aliases: self.model_alias.clone(),
            any_model: self.any_model,
            sessions: self.sessions,
            batch: self.batch,
            max_waiting: self.max_waiting,
            patience: Duration::from_secs(self.patience),
            drain: Duration::from_secs(self.drain),
            longest: Duration::from_secs(self.max_request),
            bucket: self.bucket,
            truncate: self.truncate,
            public_table: self.public_table,
            pad_output: self.pad_output,
            ahead: self.ahead,
            draft: self.draft,
            ..GatewayConfig::new(self.connect.config()?)
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn hint(bound: Option<&str>, tls: bool, more: &[&str]) -> String {
        let args = ["hushed", "--server", "s:1", "--pin", "9f"].iter();
        let args = Line::try_parse_from(args.chain(more)).ok().unwrap().args;
        let address = args.address(bound.map(|bound| bound.parse().unwrap()), tls);
        args.hint(&address)
    }

    #[test]
    fn times() {
        for (text, seconds) in [("30s", 30), ("10m", 600), ("2h", 7200), ("0s", 0)] {
            assert_eq!(span(text), Ok(Duration::from_secs(seconds)));
        }
        for wrong in ["", "10", "m", "-1s", "1.5h", "10 m", "1d", "99999999999s"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_to_try_first() {
        let plain = hint(Some("127.0.0.1:80"), false, &[]);
        assert!(plain.starts_with("OPENAI_BASE_URL=http://127.0.0.1:80/v1 OPENAI_API_KEY=none,"));
        let named = ["--listen", "0.0.0.0:9", "--allow-host", "a.example"];
        let keyed = [&named[..], &["--api-key-file", "keys.txt"]].concat();
        let tls = hint(Some("0.0.0.0:9"), true, &keyed);
        assert!(tls.starts_with("OPENAI_BASE_URL=https://a.example:9/v1 OPENAI_API_KEY='a key of keys.txt',"));
        let socket = ["--listen", "unix:/run/x.sock"];
        let unix = hint(None, false, &socket);
        assert_eq!(unix, "curl --unix-socket '/run/x.sock' http://localhost/info");
        let keyed = [&socket[..], &["--api-key-file", "k"]].concat();
        assert!(hint(None, false, &keyed).contains("Authorization: Bearer KEY"));
    }
}
