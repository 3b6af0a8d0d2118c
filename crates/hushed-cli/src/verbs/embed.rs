//! `hushed embed`: private texts in, embeddings out, with a server that sees neither.

use std::path::PathBuf;

use hushed_serve::{
    BundlePin, Client, ClientConfig, Embedding, Kind, Options, Protocol, ServerTrust, Stats,
    StepCost, Token, folders,
};
use serde_json::{Value, json};

use super::embed_fhe::FheArgs;
use crate::error::CliError;
use crate::input::{Asked, Truncate};
use crate::output::{Output, preview};

/// Embed private texts with a server that sees neither text nor embedding
#[derive(clap::Args)]
#[command(
    after_help = "The server prints the SHA-256 of its certificate when it starts: pass it with --pin, or the file of an authority with --ca.

The server learns how many tokens each text has, and nothing else about it. With --bucket N it learns that number rounded up to a
multiple of N, and a text costs as much as one of the padded length. With --batch N up to N texts go through the model together,
which saves rounds and partly empty ciphertexts; texts of the same padded length save most.

With --protocol fhe all texts are one encrypted batch, which the server runs alone, for minutes to hours. --keys is a folder for the keys,
the server's manifest and pending texts; gigabytes of evaluation keys are sent once. After Ctrl-C, a lost connection or a restart of the
server the same command continues. With --detach it exits when the batch is sent, and --job fetches the answers later. What the manifest
lets the server learn is printed before anything is sent; compare the manifest's hash with the one that the operator published, or pass the
operator's file with --manifest.

Examples:
  hushed embed --server 127.0.0.1:7450 --pin 9f86d0… \"a private question\"
  hushed embed --server 127.0.0.1:7450 --pin 9f86d0… --input texts.txt --bucket 32 --batch 8
  hushed embed --server models.example.org:7450 --ca ca.pem --token-file token --input texts.txt --json
  hushed embed --protocol fhe --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --make-keys --input texts.txt
  hushed embed --protocol fhe --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --input texts.txt --detach
  hushed embed --protocol fhe --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --job 6e34a1c0 --json"
)]
pub struct Args {
    /// The server, HOST:PORT
    #[arg(long, value_name = "ADDR", env = "HUSHED_SERVER")]
    server: String,

    /// The protocol: that of the server
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    protocol: Protocol,

    #[command(flatten)]
    texts: Asked,

    #[command(flatten)]
    trust: TrustArgs,

    /// A file with the bearer token that the server asks for
    #[arg(long, value_name = "FILE", env = "HUSHED_TOKEN_FILE")]
    token_file: Option<PathBuf>,

    /// This client's certificate chain (PEM), for a server that asks for one
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

    /// Accept this model only: a file made by `hushed bundle`
    #[arg(long, value_name = "FILE", env = "HUSHED_BUNDLE")]
    bundle: Option<PathBuf>,

    /// Where the public parts of models are kept [default: the user's cache folder]
    #[arg(long, value_name = "DIR", env = "HUSHED_CACHE_DIR")]
    cache_dir: Option<PathBuf>,

    #[command(flatten)]
    too_long: Truncate,

    /// Pad texts to a multiple of N tokens: the server learns only the padded lengths
    #[arg(long, value_name = "N", value_parser = at_least_one, env = "HUSHED_BUCKET")]
    bucket: Option<usize>,

    /// Most texts that go through the model together (fewer if the server's --max-pass-tokens says so)
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = at_least_one, env = "HUSHED_BATCH")]
    batch: usize,

    /// Look token vectors up in the model's table, if the server's operator has made it public: fetched once and kept
    #[arg(long, env = "HUSHED_PUBLIC_TABLE", value_parser = clap::builder::FalseyValueParser::new())]
    public_table: bool,

    #[command(flatten)]
    fhe: FheArgs,
}

/// A number of tokens or texts.
fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("a whole number from 1".to_owned()),
        Ok(n) => Ok(n),
    }
}

/// How the server's certificate is known. Verification cannot be switched off.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct TrustArgs {
    /// SHA-256 of the server's certificate, in hexadecimal
    #[arg(long, value_name = "SHA256", env = "HUSHED_PIN")]
    pin: Option<String>,

    /// A PEM file of authorities that sign servers
    #[arg(long, value_name = "FILE", env = "HUSHED_CA")]
    ca: Option<PathBuf>,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if self.protocol == Protocol::Fhe {
            self.refuse_two_party_options()?;
            let config = self.config()?;
            return self
                .fhe
                .run(out, config, &self.texts, self.too_long.choice());
        }
        if let Some(option) = self.texts.job.as_ref().map(|_| "--job") {
            return Err(CliError::OtherProtocol { option });
        }
        self.fhe.refuse()?;
        let texts = self.texts.read()?;
        let mut client = Client::connect(&self.config()?)?;
        let setup = client.setup();
        out.note(&format!(
            "connected to {}, set up in {:.1} s; its model is {}",
            self.server,
            setup.time.as_secs_f64(),
            client.bundle_hash()
        ));

        let layers = client.public().config.layers as u64;
        let bar = out.progress(texts.len() as u64 * layers, "embedding");
        let shown = bar.clone();
        let advance = move |p: hushed_serve::Progress| {
            shown.set_position(p.text as u64 * layers + (p.layer * p.sharing) as u64);
        };
        let mut sum = Sum::default();
        let mut written = Ok(());
        client.embed_each(
            &texts,
            self.options(),
            Some(Box::new(advance)),
            |index, answer| {
                sum.add(index, &answer);
                // The session continues to its end even if nobody reads, so that the server does not wait.
                if written.is_ok() {
                    written = show(out, index, &answer);
                }
            },
        )?;
        bar.finish_and_clear();
        let stats = client.close()?;
        written?;
        let setup = setup.time.as_secs_f64();
        out.summary(sum.json(setup, &stats), &sum.text(setup, &stats))
    }

    /// Refuses options that have no meaning under encryption.
    fn refuse_two_party_options(&self) -> Result<(), CliError> {
        let given = [
            ("--bundle", self.bundle.is_some()),
            ("--bucket", self.bucket.is_some()),
            ("--batch", self.batch != 1),
            ("--public-table", self.public_table),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(CliError::OtherProtocol { option }),
            None => Ok(()),
        }
    }

    fn options(&self) -> Options {
        Options {
            too_long: self.too_long.choice(),
            bucket: self.bucket,
            batch: self.batch,
            public_table: self.public_table,
        }
    }

    fn config(&self) -> Result<ClientConfig, CliError> {
        let trust = match (&self.trust.pin, &self.trust.ca) {
            (Some(pin), _) => ServerTrust::Pin(pin.clone()),
            (None, Some(ca)) => ServerTrust::CaFile(ca.clone()),
            (None, None) => return Err(CliError::NoTrust), // excluded by the group above
        };
        let mut config = ClientConfig::new(&self.server, trust);
        config.identity = self.cert.clone().zip(self.key.clone());
        config.token = self
            .token_file
            .as_deref()
            .map(Token::from_file)
            .transpose()?;
        config.bundle = self.bundle.clone().map(BundlePin::File);
        config.cache_dir = self.cache_dir.clone().or_else(folders::cache);
        Ok(config)
    }
}

fn show(out: &Output, index: usize, answer: &Embedding) -> Result<(), CliError> {
    let object = json!({
        "text_index": index,
        "tokens": answer.tokens,
        "padded_tokens": answer.rows,
        "embedding": answer.values,
        "seconds": answer.pass.cost.time.as_secs_f64(),
        "texts_in_pass": answer.pass.texts,
    });
    out.result(object, || {
        format!(
            "text {index}, {} tokens: {}",
            answer.tokens,
            preview(&answer.values)
        )
    })
}

/// What all texts cost together.
#[derive(Default)]
struct Sum {
    tokens: Vec<usize>,
    /// What the server learned of these.
    rows: Vec<usize>,
    seconds: f64,
    phases: Vec<(&'static str, f64)>,
}

impl Sum {
    fn add(&mut self, index: usize, answer: &Embedding) {
        self.tokens.push(answer.tokens);
        self.rows.push(answer.rows);
        if index != answer.pass.first {
            return;
        }
        self.seconds += answer.pass.cost.time.as_secs_f64();
        for cost in &answer.pass.sites {
            let (name, seconds) = (phase(cost), cost.time.as_secs_f64());
            match self.phases.iter_mut().find(|(known, _)| *known == name) {
                Some((_, sum)) => *sum += seconds,
                None => self.phases.push((name, seconds)),
            }
        }
    }

    fn json(&self, setup: f64, stats: &Stats) -> Value {
        let phases = self.phases.iter();
        let phases: Vec<Value> = std::iter::once(&("set-up", setup))
            .chain(phases)
            .map(|(phase, seconds)| json!({ "phase": phase, "seconds": seconds }))
            .collect();
        json!({
            "texts": self.tokens.len(),
            "tokens": self.tokens,
            "padded_tokens": self.rows,
            "seconds": self.seconds,
            "setup_seconds": setup,
            "phases": phases,
            "bytes_up": stats.bytes_sent,
            "bytes_down": stats.bytes_received,
            "wire_bytes_up": stats.wire_bytes_sent,
            "wire_bytes_down": stats.wire_bytes_received,
            "rounds": stats.rounds,
        })
    }

    fn text(&self, setup: f64, stats: &Stats) -> String {
        format!(
            "{} text(s) in {:.2} s after {setup:.2} s of set-up; {:.1} MB up, {:.1} MB down, {} rounds; \
             the server learned the number of texts and of tokens{}: {:?}",
            self.tokens.len(),
            self.seconds,
            stats.bytes_sent as f64 / 1e6,
            stats.bytes_received as f64 / 1e6,
            stats.rounds,
            if self.rows == self.tokens {
                ""
            } else {
                ", rounded up"
            },
            self.rows,
        )
    }
}

/// Sums of steps, for the summary.
fn phase(cost: &StepCost) -> &'static str {
    match cost.step.kind() {
        Kind::Embed => "lookup",
        Kind::Norm => "norms",
        Kind::Attention => "attention",
        Kind::FeedForward => "feed-forward",
        Kind::Add => "sums",
        Kind::Answer | Kind::Outside => "answer",
    }
}
