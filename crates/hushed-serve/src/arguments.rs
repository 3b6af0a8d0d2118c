//! The command line of a server, shared by every program that serves (feature `arguments`).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytesize::ByteSize;

use crate::error::ServeError;
use crate::fhe::{FheServeArguments, FheServerConfig};
use crate::folders;
use crate::session::allowance::rate::{ClientLimits, Rate};
use crate::session::config::{ClientAccess, Entrance, MAX_SESSIONS, MAX_WAITING, ServerIdentity};
use crate::session::deadlines::Deadlines;
use crate::twopc::wire::{MAX_AHEAD, MAX_DRAFTS};
use crate::twopc::{MAX_PASS_TOKENS, ServerConfig};
use hushed_mpc::{Answers, CHECKED_LAYERS};

/// How texts are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Interactive, while the client waits: seconds per text
    #[value(name = "2pc")]
    TwoParty,
    /// Under encryption, by the server alone: a batch of many texts in one long run
    Fhe,
}

/// The configuration of a server, for either protocol.
pub enum ServeConfig {
    /// For `2pc`.
    TwoParty(Box<ServerConfig>),
    /// For `fhe`.
    Fhe(Box<FheServerConfig>),
}

/// The arguments of `hushed serve` and `hushed-server`.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArguments {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …)
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,

    /// The protocol
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    pub protocol: Protocol,

    /// Where to listen, HOST:PORT; port 0 takes any free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", env = "HUSHED_LISTEN")]
    pub listen: String,

    /// The server's certificate chain (PEM)
    #[arg(long, value_name = "FILE", requires = "key", env = "HUSHED_CERT")]
    pub cert: Option<PathBuf>,

    /// The key of that certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "cert", env = "HUSHED_KEY")]
    pub key: Option<PathBuf>,

    /// The folder of the development certificate, made on first use [default: ~/.local/state/hushed/certificate]
    #[arg(long, value_name = "DIR", conflicts_with = "cert", env = "HUSHED_CERT_DIR")]
    pub cert_dir: Option<PathBuf>,

    /// Accept clients with a token in this private file; each line is a token, or sha256: and its digest
    #[arg(long, value_name = "FILE", env = "HUSHED_TOKENS_FILE")]
    pub tokens: Option<PathBuf>,

    /// Accept clients with a certificate signed by an authority in this PEM file
    #[arg(long, value_name = "FILE", env = "HUSHED_CLIENT_CA")]
    pub client_ca: Option<PathBuf>,

    /// Maximum number of concurrent sessions; other clients wait for one
    #[arg(
        long,
        value_name = "N",
        default_value_t = MAX_SESSIONS,
        env = "HUSHED_MAX_SESSIONS"
    )]
    pub max_sessions: usize,

    /// Maximum number of clients that wait for a session; more are refused, and so is a client that does not wait
    /// (`--retry 0`). Clients take turns, and none takes more places than it leaves free. With --protocol fhe nobody
    /// waits
    #[arg(long, value_name = "N", default_value_t = MAX_WAITING, env = "HUSHED_MAX_WAITING")]
    pub max_waiting: usize,

    /// Maximum tokens per text, below the model's own limit [default: at most 512; of a text that is continued 256,
    /// answer included, and 1024 is the most]
    #[arg(long, value_name = "N", env = "HUSHED_MAX_TOKENS")]
    pub max_tokens: Option<usize>,

    /// Maximum tokens per pass, over all its texts (`embed --batch`); a single text is bounded by --max-tokens alone
    #[arg(
        long,
        value_name = "N",
        default_value_t = MAX_PASS_TOKENS,
        env = "HUSHED_MAX_PASS_TOKENS"
    )]
    pub max_pass_tokens: usize,

    /// Maximum texts per session
    #[arg(long, value_name = "N", default_value_t = 1000, env = "HUSHED_MAX_TEXTS")]
    pub max_texts: usize,

    /// Maximum texts per client in any window of this length, over all its sessions and restarts of the server:
    /// N/MINUTE, N/HOUR, N/DAY or N/WEEK. A client is identified by its token, otherwise by the public key of its
    /// certificate; otherwise all clients count as one. With --protocol fhe a batch counts with all texts that its
    /// places hold
    #[arg(long, value_name = "N/DAY", value_parser = rate, env = "HUSHED_MAX_TEXTS_PER_CLIENT")]
    pub max_texts_per_client: Option<Rate>,

    /// Maximum number of bits opened to a client in any window of this length, as --max-texts-per-client counts texts:
    /// `hushed plan` says how many a text opens (an embedding of MiniLM 6144, a class or token log2 of their number).
    /// They bound what a client can learn that does not keep to the protocol. 2pc only
    #[arg(long, value_name = "N/DAY", value_parser = rate, env = "HUSHED_MAX_OPENED_BITS_PER_CLIENT")]
    pub max_opened_bits_per_client: Option<Rate>,

    /// The file that counts clients' texts and bits [default: ~/.local/state/hushed/texts.json, with --protocol fhe
    /// STORE/texts.json]
    #[arg(long, value_name = "FILE", env = "HUSHED_TEXTS_FILE")]
    pub texts_file: Option<PathBuf>,

    /// Give the whole table of token vectors to clients that ask for it (`embed --public-table`)
    #[arg(long, env = "HUSHED_PUBLIC_TABLE")]
    pub public_table: bool,

    /// An index of documents (`hushed index`) that clients may search with private queries. 2pc only
    #[arg(long, value_name = "FILE", env = "HUSHED_INDEX")]
    pub index: Option<PathBuf>,

    /// Give clients that ask for it (`search --scores`) the cosine of each document found, which counts as another
    /// text. A document's cosines with as many queries as its vector has numbers reveal the vector
    #[arg(long, requires = "index", env = "HUSHED_SEARCH_SCORES")]
    pub search_scores: bool,

    /// What clients get for each text or image that is classified, or each token of a continued text: `label`, the
    /// index of the largest logit; `top:K`, those of the K largest; for a classifier also `logits`, all of them. Each
    /// counts as a text against the limits; logits reveal most of the weights. `above:P` is for classes of which
    /// several or none may be right (problem_type): those whose probability is above P, together one text [default:
    /// label; for such classes above:0.5; for a head of one number logits, its score]
    #[arg(long, value_name = "label|top:K|above:P|logits", env = "HUSHED_ANSWERS")]
    pub answers: Option<Answers>,

    /// Round the numbers of embeddings to this many bits in place of 16: a client that cheats learns less from each
    /// text, and the embeddings are coarser (8 bits: cosines change by about 0.001). For models whose embeddings have
    /// length one
    #[arg(long, value_name = "N", conflicts_with = "answers", env = "HUSHED_ANSWER_BITS", value_parser = clap::value_parser!(u8).range(6..=15))]
    pub answer_bits: Option<u8>,

    /// With a model that generates: a file (UTF-8, used as it is) with a public text, such as a system prompt, that
    /// precedes every text that is continued. It is run once, in the clear, when the server starts. 2pc only
    #[arg(long, value_name = "FILE", env = "HUSHED_PUBLIC_PREFIX")]
    pub public_prefix: Option<PathBuf>,

    /// Keep the first tokens of texts private too, where the model's folder says with which ones all begin (its chat
    /// template, or the token that begins every text). Without it they are run in the clear. 2pc only
    #[arg(long, env = "HUSHED_NO_PUBLIC_HEAD")]
    pub no_public_head: bool,

    /// Maximum number of texts, or of later tokens with a model that generates, for which the server holds products
    /// made ahead for a client (`embed --ahead`, `generate --ahead`); 0 makes none. Each takes memory until it is used
    /// or its session ends (`plan --ahead`), and counts as a text when it is made. 2pc only
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_AHEAD)),
        env = "HUSHED_MAX_AHEAD"
    )]
    pub max_ahead: u16,

    /// With a model that generates: maximum number of draft tokens that a client may have verified per pass (`generate
    /// --draft`); 0 accepts none. Each counts as a text, right or wrong, and takes memory meanwhile (`plan --draft`).
    /// 2pc only
    #[arg(
        long,
        value_name = "N",
        default_value_t = 0,
        value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_DRAFTS)),
        env = "HUSHED_MAX_DRAFTS"
    )]
    pub max_drafts: u16,

    /// Memory that the server may use, such as 4GiB. What sessions may need is kept free; the rest holds weights
    /// transformed at the start. If it cannot hold the weights at all, they are read from disk in every pass. Without
    /// this option weights are held, and transformed for each text. With --protocol fhe: what a run may use; a job that
    /// needs more fails
    #[arg(long, value_name = "SIZE", value_parser = size, env = "HUSHED_MAX_MEMORY")]
    pub max_memory: Option<u64>,

    /// Number of tokens per text for which weights are transformed at the start; texts that pack the same way benefit
    /// too (9 to 16 for 16) [default: 16, and 1 for a model that generates: one token per pass]
    #[arg(long, value_name = "N", requires = "max_memory", env = "HUSHED_READY_TOKENS")]
    pub ready_tokens: Option<usize>,

    /// Before listening, run every token of the vocabulary through this many layers in the clear, and refuse the model
    /// if one leaves the formats of a private run (`hushed check` names the tokens); 0: through none. Seconds to
    /// minutes, once per model: what is in order is kept in the user's cache folder. 2pc only
    #[arg(long, value_name = "N", default_value_t = CHECKED_LAYERS, env = "HUSHED_VOCABULARY_LAYERS")]
    pub vocabulary_layers: usize,

    /// Seconds without a message after which a client counts as gone
    #[arg(long, value_name = "S", default_value_t = 60, env = "HUSHED_SILENCE")]
    pub silence: u64,

    /// Seconds that texts in progress may take after SIGTERM
    #[arg(long, value_name = "S", default_value_t = 120, env = "HUSHED_DRAIN")]
    pub drain: u64,

    /// Where /healthz, /readyz and /metrics are served over plain HTTP; never on a public address
    #[arg(long, value_name = "ADDR", env = "HUSHED_METRICS")]
    pub metrics: Option<String>,

    /// Also log one line per pass (its numbers of tokens and its time, never its content)
    #[arg(long, env = "HUSHED_DEBUG")]
    pub debug: bool,
}

impl ServeArguments {
    /// The configuration that the arguments describe, with what `--protocol fhe` takes besides. `reload`: see
    /// [`Entrance::reload`].
    ///
    /// # Errors
    /// [`ServeError::NoStateFolder`] if there is no folder for the development certificate.
    pub fn config(&self, fhe: &FheServeArguments, reload: Arc<AtomicBool>) -> Result<ServeConfig, ServeError> {
        let mut entrance = self.entrance(reload)?;
        let (texts, bits) = (self.max_texts_per_client, self.max_opened_bits_per_client);
        if bits.is_some() && self.protocol == Protocol::Fhe {
            return Err(ServeError::OpensNoBits);
        }
        if texts.or(bits).is_some() {
            let kept = match self.protocol {
                Protocol::Fhe => fhe.store.clone(),
                Protocol::TwoParty => folders::state(),
            };
            let kept = || kept.map(|folder| folder.join("texts.json"));
            let file = self.texts_file.clone().or_else(kept);
            let file = file.ok_or(ServeError::NoPlaceForCounts)?;
            entrance.per_client = Some(ClientLimits { texts, bits, file });
        }
        Ok(match self.protocol {
            Protocol::Fhe => {
                let config = fhe.config(&self.dir, entrance, self.max_memory)?;
                ServeConfig::Fhe(Box::new(config))
            }
            Protocol::TwoParty => ServeConfig::TwoParty(Box::new(self.two_party(entrance))),
        })
    }

    fn entrance(&self, reload: Arc<AtomicBool>) -> Result<Entrance, ServeError> {
        let identity = match self.cert.clone().zip(self.key.clone()) {
            Some((chain, key)) => ServerIdentity::Files { chain, key },
            None => {
                let dir = self.cert_dir.clone().or_else(certificates);
                ServerIdentity::Development(dir.ok_or(ServeError::NoStateFolder)?)
            }
        };
        Ok(Entrance {
            listen: self.listen.clone(),
            identity,
            access: ClientAccess::new(self.tokens.clone(), self.client_ca.clone()),
            max_sessions: self.max_sessions,
            max_waiting: self.max_waiting,
            per_client: None,
            deadlines: Deadlines {
                silence: Duration::from_secs(self.silence),
                drain: Duration::from_secs(self.drain),
                ..Deadlines::default()
            },
            reload,
            metrics_listen: self.metrics.clone(),
        })
    }

    fn two_party(&self, entrance: Entrance) -> ServerConfig {
        ServerConfig {
            entrance,
            model: self.dir.clone(),
            max_tokens: self.max_tokens,
            max_pass_tokens: self.max_pass_tokens,
            max_texts: self.max_texts,
            public_table: self.public_table,
            index: self.index.clone(),
            search_scores: self.search_scores,
            answers: self.answer_bits.map(Answers::Bits).or(self.answers),
            public_prefix: self.public_prefix.clone(),
            public_head: !self.no_public_head,
            max_ahead: self.max_ahead,
            max_drafts: self.max_drafts,
            max_memory: self.max_memory,
            ready_tokens: self.ready_tokens,
            vocabulary_layers: self.vocabulary_layers,
            checks: folders::cache().map(|cache| cache.join("checks")),
        }
    }
}

/// Parses a number of bytes: a number, then nothing or a unit of 1000 or 1024.
///
/// # Errors
/// Says what is expected, for anything else.
pub fn size(text: &str) -> Result<u64, String> {
    match text.parse() {
        // Anything larger saturates at `u64::MAX`.
        Ok(ByteSize(bytes)) if bytes < u64::MAX => Ok(bytes),
        _ => Err("a number of bytes such as 4GiB, 500MB or 1000000".to_owned()),
    }
}

fn rate(text: &str) -> Result<Rate, &'static str> {
    text.parse()
}

fn certificates() -> Option<PathBuf> {
    Some(folders::state()?.join("certificate"))
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes() {
        assert_eq!(size("4GiB"), Ok(4 << 30));
        assert_eq!(size("500 MB"), Ok(500_000_000));
        assert_eq!((size("0"), size("17")), (Ok(0), Ok(17)));
        for wrong in ["", "GiB", "4 apples", "-1", "99999999999GiB"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
