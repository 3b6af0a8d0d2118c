//! The client: texts in, embeddings out, with a server that sees neither.
//!
//! A [`Client`] is one session: keys and correlations are made once, then texts are run, one by one or several in a pass. What leaves this
//! process about a text is the number of its tokens, rounded up where [`Options::bucket`] asks for it, and messages that are
//! masked or encrypted.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod cache;
mod options;
mod table;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hushed_infer::twopc::{Input, Layers, SiteCost, TwopcBackend, embeddings};
use hushed_model::{Model, Public, TokenIds, TooLong};
use hushed_net::channel::tcp;
use hushed_net::{Expect, Identity, Party, Session, Shape, Stats, TlsClient, Trust};

use crate::agree;
use crate::bundle::{self, Bundle, Digest};
use crate::deadlines::Deadlines;
use crate::error::ServeError;
use crate::token::Token;
use crate::wire::{
    self, ANSWER, Answer, BUNDLE, CONFIRM, Confirm, HELLO, Hello, MAX_ANSWER, MAX_GREETING, READY,
    REPLY, REQUEST, Refusal, Reply, Request, Welcome,
};

pub use options::Options;

/// Present in every binary that has the client: the build test of the server-only binary looks for it.
#[used]
static MARKER: [u8; 27] = *b"hushed-serve client is here";

/// How the server's certificate is known. There is no third way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// A PEM file of authorities, or of the certificate itself.
    CaFile(PathBuf),
    /// The certificate's SHA-256 in hexadecimal, as the server prints it.
    Pin(String),
}

/// The only model that a client accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundlePin {
    /// This file, made by `hushed bundle`; it need not be fetched.
    File(PathBuf),
    /// One of this hash.
    Hash(Digest),
}

/// How to reach a server, and what to insist on. No `Debug`: it holds the token.
#[derive(Clone)]
pub struct ClientConfig {
    /// `HOST:PORT`. With [`ServerTrust::CaFile`] the certificate must carry the host.
    pub server: String,
    /// How its certificate is known.
    pub trust: ServerTrust,
    /// This client's certificate chain and key (PEM files), for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The bearer token, for servers that ask for one.
    pub token: Option<Token>,
    /// The only model to accept; `None` accepts what the server offers, and [`Client::bundle_hash`] says what that was.
    pub bundle: Option<BundlePin>,
    /// Where bundles are kept from one session to the next; `None` fetches anew each time.
    pub cache_dir: Option<PathBuf>,
    /// How long to wait for what.
    pub deadlines: Deadlines,
    /// A slower network to imitate, for measurements.
    pub shape: Option<Shape>,
}

impl ClientConfig {
    /// A client without token, pinned model or cache.
    #[must_use]
    pub fn new(server: impl Into<String>, trust: ServerTrust) -> Self {
        Self {
            server: server.into(),
            trust,
            identity: None,
            token: None,
            bundle: None,
            cache_dir: None,
            deadlines: Deadlines::default(),
            shape: None,
        }
    }
}

/// What a part of a session cost this side.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// Wall time, waiting for the server included.
    pub time: Duration,
    /// Bytes, frames and rounds.
    pub stats: Stats,
}

/// The answer to one text. No `Debug`: it is private.
#[derive(Clone)]
pub struct Embedding {
    /// The numbers; of unit length where the model says so.
    pub values: Vec<f64>,
    /// Tokens of the text.
    pub tokens: usize,
    /// What the server learned of that: tokens and padding.
    pub rows: usize,
    /// The pass that gave it.
    pub pass: Arc<Pass>,
}

/// What one pass over one or several texts cost.
#[derive(Clone, Debug)]
pub struct Pass {
    /// The first of its texts, by its index.
    pub first: usize,
    /// How many there were.
    pub texts: usize,
    /// What it cost in all.
    pub cost: Cost,
    /// What each step cost, in order.
    pub sites: Vec<SiteCost>,
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first text of the pass under way, from 0.
    pub text: usize,
    /// How many share that pass.
    pub sharing: usize,
    /// How many texts there are.
    pub texts: usize,
    /// The step that has ended.
    pub step: String,
    /// Layers of this pass that are behind, between 0 and `layers`.
    pub layer: usize,
    /// Layers of the model.
    pub layers: usize,
}

/// Called after every step of every pass.
pub type OnProgress = Box<dyn FnMut(Progress) + Send>;

/// A session with a server.
pub struct Client {
    backend: TwopcBackend,
    model: Model,
    bundle_hash: Digest,
    welcome: Welcome,
    cache_dir: Option<PathBuf>,
    deadlines: Deadlines,
    texts: usize,
    setup: Cost,
}

impl Client {
    /// Connects, agrees with the server on everything, and makes keys and correlations.
    ///
    /// # Errors
    /// [`ServeError`]; its category tells the network from a refusal from a mismatch.
    pub fn connect(config: &ClientConfig) -> Result<Self, ServeError> {
        let began = Instant::now();
        let pinned = pinned(config.bundle.as_ref())?;
        let mut session = open(config)?;
        let (welcome, bundle) = greet(&mut session, config, pinned)?;
        session.set_limits(config.deadlines.within(config.deadlines.setup));
        let mut backend = TwopcBackend::establish(session, Arc::<Layers>::default())?;
        let setup = Cost {
            time: began.elapsed(),
            stats: backend.ctx().session.stats(),
        };
        Ok(Self {
            backend,
            model: Model::shapes_only(bundle.public()),
            bundle_hash: bundle.hash(),
            welcome,
            cache_dir: config.cache_dir.clone(),
            deadlines: config.deadlines,
            texts: 0,
            setup,
        })
    }

    /// The public part of the server's model.
    #[must_use]
    pub fn public(&self) -> &Public {
        &self.model.public
    }

    /// Hash of the bundle in use: what [`BundlePin::Hash`] takes.
    #[must_use]
    pub fn bundle_hash(&self) -> Digest {
        self.bundle_hash
    }

    /// Most tokens that this server takes in a text.
    #[must_use]
    pub fn max_tokens(&self) -> usize {
        self.model
            .public
            .max_tokens
            .min(self.welcome.max_tokens as usize)
    }

    /// Most tokens, padding included, that this server takes in all texts of a pass together.
    #[must_use]
    pub fn max_pass_tokens(&self) -> usize {
        self.welcome.max_pass_tokens as usize
    }

    /// Texts that this session may still run.
    #[must_use]
    pub fn texts_left(&self) -> usize {
        (self.welcome.max_texts as usize).saturating_sub(self.texts)
    }

    /// What connecting cost: handshake, bundle, keys, correlations.
    #[must_use]
    pub fn setup(&self) -> Cost {
        self.setup
    }

    /// The session's counters so far, everything included.
    pub fn stats(&mut self) -> Stats {
        self.backend.ctx().session.stats()
    }

    /// The embeddings of the texts, in their order. All texts are looked at before the first is run, so that one that is refused costs
    /// nothing. `options` may be a [`TooLong`] alone.
    ///
    /// # Errors
    /// [`ServeError::Text`] and its like with the index of the text; after any other the session is over.
    pub fn embed<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        options: impl Into<Options>,
        progress: Option<OnProgress>,
    ) -> Result<Vec<Embedding>, ServeError> {
        let mut all = Vec::with_capacity(texts.len());
        self.embed_each(texts, options, progress, |_, answer| all.push(answer))?;
        Ok(all)
    }

    /// As [`Client::embed`], handing out each answer (with the text's index) as it comes.
    ///
    /// # Errors
    /// As there.
    pub fn embed_each<S: AsRef<str>>(
        &mut self,
        texts: &[S],
        options: impl Into<Options>,
        progress: Option<OnProgress>,
        mut each: impl FnMut(usize, Embedding),
    ) -> Result<(), ServeError> {
        let options = options.into();
        options.check()?;
        if texts.len() > self.texts_left() {
            return Err(ServeError::TooManyTexts {
                texts: texts.len(),
                limit: self.texts_left(),
            });
        }
        let ids = self.tokens(texts, &options)?;
        if options.public_table {
            self.need_table()?;
        }
        let progress = progress.map(|f| Arc::new(Mutex::new(f)));
        let mut first = 0;
        while let Some(left) = ids.get(first..).filter(|left| !left.is_empty()) {
            let sharing = options.next_pass(left, self.max_pass_tokens());
            let pass = left.get(..sharing).unwrap_or(left);
            if let Some(progress) = &progress {
                self.observe(first, sharing, texts.len(), Arc::clone(progress));
            }
            for (i, answer) in self.run(first, pass, &options)?.into_iter().enumerate() {
                each(first + i, answer);
            }
            first += sharing;
        }
        self.backend.observe(|_| ());
        Ok(())
    }

    /// Ends the session in agreement with the server; gives its counters.
    ///
    /// # Errors
    /// [`ServeError::Net`]; the answers are not touched by it.
    pub fn close(self) -> Result<Stats, ServeError> {
        let mut session = self.backend.into_ctx().session;
        session.set_limits(self.deadlines.within(self.deadlines.handshake));
        session.send_vec(REQUEST, Request::End.encode())?;
        let stats = session.stats();
        session.close()?;
        Ok(stats)
    }

    fn tokens<S: AsRef<str>>(
        &self,
        texts: &[S],
        options: &Options,
    ) -> Result<Vec<TokenIds>, ServeError> {
        let too_long = options.too_long;
        let public = self.public();
        let limit = self.max_tokens();
        let one = |(index, text): (usize, &S)| {
            let (own, theirs) = match too_long {
                TooLong::Cut => (limit, limit),
                TooLong::Refuse => (public.max_tokens, limit),
            };
            let ids = public
                .tokenizer
                .encode(text.as_ref(), own, too_long)
                .map_err(|source| ServeError::Text { index, source })?;
            let tokens = ids.rows().total;
            if tokens > theirs {
                return Err(ServeError::TextAboveLimit {
                    index,
                    tokens,
                    limit,
                });
            }
            Ok(options.pad(ids, public.tokenizer.padding_id(), limit))
        };
        texts.iter().enumerate().map(one).collect()
    }

    fn observe(
        &mut self,
        text: usize,
        sharing: usize,
        texts: usize,
        progress: Arc<Mutex<OnProgress>>,
    ) {
        let layers = self.model.public.config.layers;
        let mut layer = 0;
        self.backend.observe(move |site| {
            layer = site.layer_index().unwrap_or(layer);
            let mut call = progress.lock().unwrap_or_else(PoisonError::into_inner);
            call(Progress {
                text,
                sharing,
                texts,
                step: site.path().to_owned(),
                layer,
                layers,
            });
        });
    }

    /// One pass over these texts, of which the first has the index `first`.
    fn run(
        &mut self,
        first: usize,
        texts: &[TokenIds],
        options: &Options,
    ) -> Result<Vec<Embedding>, ServeError> {
        let began = Instant::now();
        let terms = options.terms();
        let sites_before = self.backend.costs().len();
        let limits = self.deadlines.within(self.deadlines.text);
        let session = &mut self.backend.ctx().session;
        let before = session.stats();
        session.set_limits(limits);
        let rows = texts.iter().map(|t| t.rows().total);
        let request = Request::Embed {
            rows: rows.map(|r| u32::try_from(r).unwrap_or(u32::MAX)).collect(),
            padded: terms.padded,
            public_table: terms.public_table,
        };
        session.send_vec(REQUEST, request.encode())?;
        let answer = session.recv(ANSWER, Expect::AtMost(MAX_ANSWER))?;
        match Answer::decode(&answer).map_err(|fault| malformed("answer", fault))? {
            Answer::Go => {}
            Answer::Refused(refusal) => return Err(ServeError::Refused(refusal)),
        }
        let input = Input::Texts(texts.to_vec(), terms);
        let answers = embeddings(&mut self.backend, &self.model, input)?;
        let answers = answers.ok_or(ServeError::NoAnswer)?;
        self.texts += texts.len();
        let stats = self.stats().since(&before);
        let sites = self.backend.costs().iter().skip(sites_before).cloned();
        let pass = Arc::new(Pass {
            first,
            texts: texts.len(),
            cost: Cost {
                time: began.elapsed(),
                stats,
            },
            sites: sites.collect(),
        });
        let answered = texts.iter().zip(answers).map(|(text, values)| Embedding {
            values,
            tokens: text.rows().real,
            rows: text.rows().total,
            pass: Arc::clone(&pass),
        });
        Ok(answered.collect())
    }
}

/// What the client insists on: a bundle that it has, or a hash only.
#[derive(Clone)]
enum Pinned {
    Nothing,
    Whole(Box<Bundle>),
    Hash(Digest),
}

impl Pinned {
    fn hash(&self) -> Option<Digest> {
        match self {
            Self::Nothing => None,
            Self::Whole(bundle) => Some(bundle.hash()),
            Self::Hash(hash) => Some(*hash),
        }
    }
}

fn pinned(pin: Option<&BundlePin>) -> Result<Pinned, ServeError> {
    Ok(match pin {
        None => Pinned::Nothing,
        Some(BundlePin::File(path)) => Pinned::Whole(Box::new(Bundle::read(path)?)),
        Some(BundlePin::Hash(hash)) => Pinned::Hash(*hash),
    })
}

/// TCP, then TLS.
fn open(config: &ClientConfig) -> Result<Session, ServeError> {
    let trust = match &config.trust {
        ServerTrust::CaFile(path) => Trust::from_ca_file(path)?,
        ServerTrust::Pin(pin) => Trust::from_pin(pin)?,
    };
    let identity = match &config.identity {
        Some((chain, key)) => Some(Identity::from_files(chain, key)?),
        None => None,
    };
    let host = host(&config.server)?;
    let tls = TlsClient::new(trust, identity)?;
    let socket = tcp::connect(&config.server, config.deadlines.handshake)?;
    let limits = config.deadlines.before_authentication();
    let channel = tls.connect(socket, &host, limits)?;
    let mut session = Session::new(Party::Client, Box::new(channel));
    session.shape(config.shape);
    Ok(session)
}

/// The host of `HOST:PORT`, without the brackets of an IPv6 address.
fn host(address: &str) -> Result<String, ServeError> {
    let wrong = || ServeError::Address {
        address: address.to_owned(),
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    let host = host
        .strip_prefix('[')
        .and_then(|h| h.strip_suffix(']'))
        .unwrap_or(host);
    if host.is_empty() || port.parse::<u16>().is_err() {
        return Err(wrong());
    }
    Ok(host.to_owned())
}

/// Hello, welcome, confirmation, bundle. After it both sides know that they agree.
fn greet(
    session: &mut Session,
    config: &ClientConfig,
    pinned: Pinned,
) -> Result<(Welcome, Bundle), ServeError> {
    let plan = bundle::plan()?;
    let hello = Hello {
        nonce: agree::nonce()?,
        plan,
        pinned: pinned.hash(),
        token: config.token.clone(),
    };
    session.send_vec(HELLO, hello.encode())?;
    let reply = session.recv(REPLY, Expect::AtMost(MAX_GREETING))?;
    let welcome = match Reply::decode(&reply).map_err(|fault| malformed("welcome", fault))? {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused(Refusal::OtherBundle { server }) => {
            let pinned = pinned.hash().unwrap_or(Digest::ZERO);
            return Err(ServeError::OtherBundle {
                pinned,
                offered: server,
            });
        }
        Reply::Refused(refusal) => return Err(ServeError::Refused(refusal)),
    };
    if welcome.plan != plan {
        return Err(ServeError::OtherPlan {
            ours: plan,
            theirs: welcome.plan,
        });
    }
    if let Some(pinned) = pinned.hash()
        && pinned != welcome.bundle
    {
        return Err(ServeError::OtherBundle {
            pinned,
            offered: welcome.bundle,
        });
    }
    let identity = agree::Identity::of(session)?;
    let known = match pinned {
        Pinned::Whole(bundle) => Some(*bundle),
        _ => config
            .cache_dir
            .as_deref()
            .and_then(|dir| cache::find(dir, welcome.bundle)),
    };
    let confirm = Confirm {
        tag: identity.tag(Party::Client),
        wants_bundle: known.is_none(),
    };
    session.send_vec(CONFIRM, confirm.encode())?;
    session.set_limits(config.deadlines.within(config.deadlines.setup));
    let fetched = match &known {
        Some(_) => None,
        None => {
            let length = (welcome.bundle_bytes as usize).min(bundle::MAX_BUNDLE_BYTES);
            Some(session.recv(BUNDLE, Expect::Exactly(length))?)
        }
    };
    let ready = session.recv(READY, Expect::Exactly(32))?;
    let tag = ready
        .try_into()
        .map_err(|_| ServeError::WrongConfirmation)?;
    identity.check(Party::Server, &tag)?;
    let bundle = match (known, fetched) {
        (Some(bundle), _) => bundle,
        (None, fetched) => accept(fetched.unwrap_or_default(), &welcome, config)?,
    };
    Ok((welcome, bundle))
}

/// Checks a bundle that has just come, and keeps it.
fn accept(bytes: Vec<u8>, welcome: &Welcome, config: &ClientConfig) -> Result<Bundle, ServeError> {
    if bundle::hash(&bytes) != welcome.bundle {
        return Err(ServeError::BundleNotAsOffered {
            agreed: welcome.bundle,
        });
    }
    let bundle = Bundle::from_bytes(bytes)?;
    if let Some(dir) = &config.cache_dir
        && let Err(error) = cache::keep(dir, &bundle)
    {
        // The session does not need it; the next one fetches again.
        tracing::warn!(%error, "the bundle could not be kept");
    }
    Ok(bundle)
}

fn malformed(message: &'static str, fault: wire::WireFault) -> ServeError {
    ServeError::Malformed { message, fault }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use hushed_model::testing::tiny_folder;

    use super::*;
    use crate::{Server, ServerConfig};

    /// A client that ignores what the welcome said.
    #[test]
    fn the_server_holds_its_limits_itself() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        config.max_tokens = Some(8);
        config.max_pass_tokens = 8;
        config.max_texts = 1;
        let server = Server::bind(&config).unwrap();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| server.run(&stop).unwrap());
            let pin = ServerTrust::Pin(server.fingerprint().to_string());
            let config = ClientConfig::new(server.local_addr().to_string(), pin);
            let unbridled = || {
                let mut client = Client::connect(&config).unwrap();
                client.welcome.max_tokens = u32::MAX;
                client.welcome.max_pass_tokens = u32::MAX;
                client.welcome.max_texts = u32::MAX;
                client
            };
            let refused = |result: Result<Vec<Embedding>, ServeError>| match result.err() {
                Some(ServeError::Refused(refusal)) => refusal,
                _ => panic!("the server must refuse"),
            };
            let long = unbridled().embed(&["a b c d e f g h"], TooLong::Refuse, None);
            assert_eq!(refused(long), Refusal::TooLong { limit: 8 });
            let many = unbridled().embed(&["a", "b"], TooLong::Refuse, None);
            assert_eq!(refused(many), Refusal::TooManyTexts { limit: 1 });
            let batch = Options {
                batch: 4,
                ..Options::default()
            };
            let together = unbridled().embed(&["a b c d", "a b c d"], batch, None);
            assert_eq!(refused(together), Refusal::PassTooLarge { limit: 8 });
            stop.store(true, Ordering::SeqCst);
        });
    }

    #[test]
    fn hosts_of_addresses() {
        assert_eq!(host("localhost:80").unwrap(), "localhost");
        assert_eq!(host("127.0.0.1:1").unwrap(), "127.0.0.1");
        assert_eq!(host("[::1]:443").unwrap(), "::1");
        for wrong in ["", ":1", "a", "a:", "a:b", "a:65536", "a:-1"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
