//! Everything that can end a session, a client or a server, and what to do about it. No variant holds a text, a token
//! or a number derived from one.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use hushed_model::{ChatError, ImageError, ModelError, TextError, counted};
use hushed_mpc::{PenaltyError, RunError};
use hushed_net::channel::tls::CertificateError;
use hushed_net::{NetError, TlsFault};

pub use crate::category::Category;
use crate::digest::Digest;
use crate::fhe::FheJobError;
use crate::session::allowance::rate::CountsFault;
use crate::session::wire::{ABORT_IDLE, ABORT_STOPPING, Refusal, WireFault};
use crate::twopc::IndexFault;

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The connection, TLS included.
    #[error(transparent)]
    Net(NetError),
    /// A certificate, key or pin of this side.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The model folder or the bundle's files.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A text that the model does not accept.
    #[error("text {index} (the first is 0): {source}")]
    Text {
        /// Which of the texts given.
        index: usize,
        /// Why.
        source: TextError,
    },
    /// A conversation that the model does not accept.
    #[error(transparent)]
    Chat(#[from] ChatError),
    /// An image that the model does not accept.
    #[error("image {index} (the first is 0): {source}")]
    Image {
        /// Which of the images given.
        index: usize,
        /// Why.
        source: ImageError,
    },
    /// A setting that does not apply to a model of images.
    #[error("{name} does not apply to image models, whose inputs all have the same number of rows")]
    NotForImages {
        /// Which setting.
        name: &'static str,
    },
    /// A text that the model accepts and this server does not.
    #[error(
        "text {index} (the first is 0) has {} and this server takes at most {limit}: shorten it or split it",
        counted(*tokens, "token")
    )]
    TextAboveLimit {
        /// Which of the texts given.
        index: usize,
        /// Its tokens.
        tokens: usize,
        /// The server's limit.
        limit: usize,
    },
    /// A model whose head has several numbers, where a score was asked for.
    #[error(
        "the server's model gives {numbers} numbers for each text or pair, and a score is one: it is no cross-encoder; use classify"
    )]
    NoScores {
        /// How many.
        numbers: usize,
    },
    /// A file that should be text.
    #[error("{path:?} is not UTF-8 text")]
    NotText {
        /// Which file.
        path: PathBuf,
    },
    /// The server's public prefix is not the expected one.
    #[error(
        "the server {}, and another public prefix is expected: it may have changed, or leave out --public-prefix to take what the server has",
        match offered {
            Some(offered) => format!("puts a public prefix with the hash {offered} before each text"),
            None => "has no public prefix".to_owned(),
        }
    )]
    OtherPrefix {
        /// What the server has.
        offered: Option<Digest>,
    },
    /// Drafts together with a number of passes that should reveal nothing of the text.
    #[error(
        "with drafts, the number of passes shows the server how many drafts were wrong, so --pad-output cannot hide where the text ends; leave out one of the two"
    )]
    DraftsShow,
    /// A prompt that leaves no room for the answer.
    #[error(
        "a prompt of {} and {} of answer do not fit {limit}, the most that this server takes: shorten one of them",
        counted(*prompt, "token"),
        counted(*tokens, "token")
    )]
    NoRoomForAnswer {
        /// Tokens of the prompt.
        prompt: usize,
        /// Tokens asked for.
        tokens: usize,
        /// The limit on both together.
        limit: usize,
    },
    /// A temperature out of range.
    #[error("the temperature is a number from 0 to {most}")]
    Temperature {
        /// The highest.
        most: f64,
    },
    /// An invalid penalty or bias.
    #[error(transparent)]
    Penalty(#[from] PenaltyError),
    /// A bucket or a batch of size 0.
    #[error("{name} is 0; leave it out, or give at least 1")]
    EmptyOption {
        /// Which option.
        name: &'static str,
    },
    /// More documents than a search returns.
    #[error("a search returns at most {}", counted(*limit, "document"))]
    TooManyDocuments {
        /// How many.
        limit: usize,
    },
    /// More texts than the server accepts in a session.
    #[error(
        "the number of texts given is {texts}, and this server takes {limit} more in this session: start another session for the rest"
    )]
    TooManyTexts {
        /// Texts given.
        texts: usize,
        /// Texts left.
        limit: usize,
    },
    /// Too many runs with this server have failed after they began.
    #[error(
        "{failures} runs with this server have failed within a day after they began, and a server that cheats learns from such failures: nothing more is sent to it for {}. If you know why they failed, {} and try again",
        span(*seconds),
        forget(file.as_deref())
    )]
    TooManyFailures {
        /// How many.
        failures: usize,
        /// The time in seconds until there are few enough.
        seconds: u64,
        /// The file that records them; without a cache, the process does.
        file: Option<PathBuf>,
    },
    /// A run that failed after it began, which was counted against its server.
    #[error(
        "{source} (failure {failures} of {most} of runs with this server within a day: {})",
        after(*failures, *most)
    )]
    Counted {
        /// Why it failed.
        source: Box<ServeError>,
        /// How many have failed.
        failures: usize,
        /// How many are the most.
        most: usize,
    },
    /// A protocol failed for another reason than its connection.
    #[error(transparent)]
    Run(RunError),
    /// A run under CKKS.
    #[error(transparent)]
    Fhe(#[from] FheJobError),
    /// The server refused.
    #[error("the server refused: {0}")]
    Refused(Refusal),
    /// The server's reply has another agreement hash, although it did not refuse.
    #[error("the server's agreement hash is {theirs} and this client's {ours}; use the same release on both sides")]
    OtherAgreement {
        /// The client's.
        ours: Digest,
        /// The server's.
        theirs: Digest,
    },
    /// The server offers another bundle than the pinned one.
    #[error(
        "the server offers the bundle {offered}, and {pinned} is pinned: its model has changed, or it is another server"
    )]
    OtherBundle {
        /// What the client insists on.
        pinned: Digest,
        /// What the server offers.
        offered: Digest,
    },
    /// The server offers another `tokenizer.json` than the pinned one.
    #[error(
        "the server's tokenizer.json {}, and {pinned} is pinned: another tokenizer would show the server something else of a text than its length",
        theirs(offered)
    )]
    OtherTokenizer {
        /// What the client insists on.
        pinned: Digest,
        /// What the server offers.
        offered: Option<Digest>,
    },
    /// The server offers another chat template than the pinned one.
    #[error(
        "the server's chat template {}, and {pinned} is pinned: another template would show the server something else of a conversation than its length",
        theirs(offered)
    )]
    OtherTemplate {
        /// What the client insists on.
        pinned: Digest,
        /// What the server offers.
        offered: Option<Digest>,
    },
    /// No link that is accepted.
    #[error("the network: {0}")]
    NoLink(hushed_mpc::NoLink),
    /// A pinned hash that is none.
    #[error("{name} is not a SHA-256 in hexadecimal, which has 64 digits")]
    NotAHash {
        /// Which setting.
        name: &'static str,
    },
    /// The bundle's bytes do not have the agreed hash.
    #[error("the bytes that the server sent are not the bundle {agreed} that it offered")]
    BundleNotAsOffered {
        /// The agreed hash.
        agreed: Digest,
    },
    /// The table's bytes do not have the offered hash.
    #[error("the table of token vectors that the server sent is not the one it offered, {offered}")]
    TableNotAsOffered {
        /// The offered hash.
        offered: Digest,
    },
    /// A table that is too large to be public.
    #[error("the table of token vectors has {bytes} bytes, and a public one at most {limit}: leave out --public-table")]
    TableTooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// An index of documents.
    #[error(transparent)]
    Index(#[from] IndexFault),
    /// The bytes are not a bundle.
    #[error("this is not a bundle: {fault}; make one with `hushed bundle`")]
    BadBundle {
        /// Why.
        fault: WireFault,
    },
    /// A bundle of another release.
    #[error("this bundle was made by a release with another agreement hash; make it again with `hushed bundle`")]
    BundleOfOtherAgreement,
    /// The public files are too large for a bundle.
    #[error(
        "the model's public files have {bytes} bytes, and a bundle at most {limit}: is tokenizer.json the right file?"
    )]
    BundleTooLarge {
        /// Their size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The peer's control message is malformed.
    #[error("the peer's {message} is malformed: {fault}")]
    Malformed {
        /// Which message.
        message: &'static str,
        /// How.
        fault: WireFault,
    },
    /// The peer's confirmation belongs to another session.
    #[error("the peer confirmed another session: there is a man in the middle, or one of the two is defective")]
    WrongConfirmation,
    /// The channel has no exporter: it is not TLS.
    #[error("the channel is not secure; sessions run over TLS only")]
    NotSecure,
    /// No authentication on an address that other machines can reach.
    #[error(
        "{address} can be reached from other machines, and any client would be let in: give a token file or a client CA, or listen on 127.0.0.1"
    )]
    OpenToStrangers {
        /// The address.
        address: SocketAddr,
    },
    /// A token file with a malformed line.
    #[error(
        "{path:?}, line {line}: not a token (16 to 256 visible ASCII characters, or sha256: and 64 hexadecimal digits)"
    )]
    TokenFile {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
    },
    /// An address, to connect to or to listen on, without a port or a host.
    #[error("{address:?} is not an address: write HOST:PORT, with a port up to 65535")]
    Address {
        /// As given.
        address: String,
    },
    /// A file of counts that cannot be used.
    #[error(
        "the file of text counts {path:?} cannot be used ({fault}): restore it, or delete it to reset all counts; nothing is served without it"
    )]
    Counts {
        /// Which file.
        path: PathBuf,
        /// Why not.
        fault: CountsFault,
    },
    /// A limit per client below one batch.
    #[error(
        "one batch counts as {places} texts but a client may have only {limit}, so no batch could run; raise --max-texts-per-client"
    )]
    LessThanABatch {
        /// The number of texts that a batch of the manifest counts as.
        places: usize,
        /// The operator's limit.
        limit: u64,
    },
    /// A limit on opened bits for a server that opens nothing to its clients.
    #[error(
        "--max-opened-bits-per-client is for 2pc: with --protocol fhe nothing is opened, and whole answers are decrypted; use --max-texts-per-client"
    )]
    OpensNoBits,
    /// A limit of 0, which would refuse everything.
    #[error("{name} must be at least 1")]
    NothingAllowed {
        /// Which limit.
        name: &'static str,
    },
    /// An answer that this model cannot open.
    #[error("this model cannot open {answers}: {needs}")]
    OtherAnswers {
        /// What was asked for.
        answers: hushed_mpc::Answers,
        /// What it needs.
        needs: &'static str,
    },
    /// A limit on texts below what one answer counts as.
    #[error(
        "each place or logit that is opened counts as a text, {charge} for one answer, and a session may have {limit}: no text could ever run; raise --max-texts"
    )]
    LessThanAnAnswer {
        /// What one answer counts as.
        charge: usize,
        /// The operator's limit.
        limit: usize,
    },
    /// Neither HOME nor a folder for the development certificate.
    #[error("there is no HOME for the development certificate: give --cert-dir, or --cert and --key")]
    NoStateFolder,
    /// Neither HOME nor a file for clients' counts.
    #[error("there is no HOME for the clients' counts of texts: give --texts-file")]
    NoPlaceForCounts,
    /// The operating system refuses a file.
    #[error("could not {operation} {path:?}: {source}")]
    File {
        /// What was attempted.
        operation: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The operating system refuses a thread.
    #[error("could not start a thread: {0}; is there a limit on them?")]
    Thread(#[source] io::Error),
    /// The operating system refuses the handlers of signals.
    #[error("could not listen for signals: {0}")]
    Signals(#[source] io::Error),
    /// The operating system gives no randomness.
    #[error("the operating system gives no randomness, without which nothing is secret")]
    NoRandomness,
    /// The protocol ended without an answer.
    #[error("the protocol ended without an answer")]
    NoAnswer,
}

impl ServeError {
    /// The error for a control message of the peer that could not be decoded.
    pub(crate) fn malformed(message: &'static str) -> impl FnOnce(WireFault) -> Self {
        move |fault| Self::Malformed { message, fault }
    }

    /// The category of this error.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::Chat(ChatError::NoTemplate) => Category::Refused,
            Self::Chat(ChatError::Template { .. }) => Category::Folder,
            Self::Text { .. } | Self::Chat(_) | Self::Image { .. } => Category::Input,
            Self::Fhe(error) => error.category(),
            Self::Counted { source, .. } => source.category(),
            Self::Index(IndexFault::OtherModel) => Category::Mismatch,
            Self::Index(IndexFault::NotAnIndex(_)) => Category::Local,
            Self::Index(IndexFault::NoVectors) => Category::Folder,
            Self::Index(IndexFault::RecordBytes) => Category::Usage,
            Self::Index(_) => Category::Input,
            Self::Model(ModelError::Text(_) | ModelError::Image(_)) => Category::Input,
            Self::Model(
                ModelError::Folder(_) | ModelError::TokenOutOfRange { .. } | ModelError::NotAnEncoder { .. },
            ) => Category::Folder,
            Self::DraftsShow
            | Self::Model(ModelError::NotAGenerator)
            | Self::OtherAnswers { .. }
            | Self::LessThanAnAnswer { .. } => Category::Usage,
            Self::BundleTooLarge { .. } | Self::TableTooLarge { .. } => Category::Folder,
            Self::Run(RunError::NoSuchPlace { .. }) | Self::TooManyFailures { .. } => Category::Network,
            Self::Model(_) | Self::NoAnswer | Self::NotSecure => Category::Defect,
            Self::Run(RunError::Protocol(_) | RunError::WrongTable) => Category::Network,
            // Weights that are read in every pass and can no longer be read.
            Self::Run(RunError::Model(ModelError::Folder(_))) => Category::Folder,
            Self::Run(RunError::Unsupported { .. } | RunError::OutOfRange(_) | RunError::Leaves(_)) => Category::Folder,
            Self::Run(RunError::Stopped) => Category::Refused,
            Self::Run(_) => Category::Defect,
            // In a mutual handshake the peer refuses with an alert.
            Self::Net(NetError::Tls(TlsFault::Refused { .. })) => Category::Refused,
            Self::Net(NetError::Forked) => Category::Usage,
            Self::Net(_) | Self::Malformed { .. } => Category::Network,
            Self::WrongConfirmation | Self::BundleNotAsOffered { .. } | Self::TableNotAsOffered { .. } => {
                Category::Network
            }
            Self::Refused(
                Refusal::OtherVersion { .. }
                | Refusal::OtherAgreement { .. }
                | Refusal::OtherBundle { .. }
                | Refusal::OtherProtocol { .. }
                | Refusal::WrongSize
                | Refusal::OtherKeys,
            ) => Category::Mismatch,
            Self::OtherAgreement { .. }
            | Self::OtherBundle { .. }
            | Self::OtherTokenizer { .. }
            | Self::OtherTemplate { .. }
            | Self::BundleOfOtherAgreement
            | Self::OtherPrefix { .. } => Category::Mismatch,
            Self::NotText { .. } => Category::Local,
            Self::Refused(_)
            | Self::NoScores { .. }
            | Self::TextAboveLimit { .. }
            | Self::NoRoomForAnswer { .. }
            | Self::TooManyTexts { .. } => Category::Refused,
            Self::Certificate(CertificateError::BadPin)
            | Self::Address { .. }
            | Self::NoLink(_)
            | Self::NotAHash { .. }
            | Self::OpenToStrangers { .. }
            | Self::EmptyOption { .. }
            | Self::Temperature { .. }
            | Self::Penalty(_)
            | Self::TooManyDocuments { .. }
            | Self::NoStateFolder
            | Self::NoPlaceForCounts
            | Self::LessThanABatch { .. }
            | Self::OpensNoBits
            | Self::NothingAllowed { .. }
            | Self::NotForImages { .. } => Category::Usage,
            Self::Certificate(_)
            | Self::BadBundle { .. }
            | Self::TokenFile { .. }
            | Self::Counts { .. }
            | Self::File { .. }
            | Self::Thread(_)
            | Self::Signals(_)
            | Self::NoRandomness => Category::Local,
        }
    }

    /// The stable name of this kind of error, for `--json` output, logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Net(error) => net_name(error),
            Self::Fhe(error) => error.name(),
            Self::Counted { source, .. } => source.name(),
            Self::Index(_) => "index",
            Self::Certificate(_) => "certificate",
            Self::Chat(ChatError::NoTemplate) => "no-chat-template",
            Self::Chat(ChatError::Template { .. }) => "chat-template",
            Self::Text { .. } | Self::Chat(_) | Self::Model(ModelError::Text(_)) => "text-refused",
            Self::Image { .. } | Self::Model(ModelError::Image(_)) => "image-refused",
            Self::Model(_) if self.category() == Category::Folder => "model-folder",
            Self::BundleTooLarge { .. }
            | Self::TableTooLarge { .. }
            | Self::Run(
                RunError::Model(ModelError::Folder(_))
                | RunError::Unsupported { .. }
                | RunError::OutOfRange(_)
                | RunError::Leaves(_),
            ) => "model-folder",
            Self::Run(RunError::Protocol(_) | RunError::WrongTable) | Self::Malformed { .. } => "peer-misbehaved",
            Self::WrongConfirmation | Self::BundleNotAsOffered { .. } | Self::TableNotAsOffered { .. } => {
                "peer-misbehaved"
            }
            Self::TextAboveLimit { .. } | Self::NoRoomForAnswer { .. } => "too-long",
            Self::TooManyTexts { .. } => "too-many-texts",
            Self::NoScores { .. } => "other-task",
            Self::Refused(refusal) => refusal.name(),
            Self::OtherAgreement { .. } | Self::BundleOfOtherAgreement => "other-plan",
            Self::OtherBundle { .. } => "other-bundle",
            Self::OtherTokenizer { .. } => "other-tokenizer",
            Self::OtherTemplate { .. } => "other-template",
            Self::OtherPrefix { .. } => "other-prefix",
            Self::Model(ModelError::NotAGenerator) => "usage",
            Self::NotText { .. } => "file",
            Self::BadBundle { .. } => "bundle-malformed",
            Self::OpenToStrangers { .. } => "open-to-strangers",
            Self::TokenFile { .. } => "token-file",
            Self::Counts { .. } => "counts",
            Self::Address { .. } => "address",
            Self::NothingAllowed { .. }
            | Self::NotForImages { .. }
            | Self::LessThanABatch { .. }
            | Self::OpensNoBits
            | Self::LessThanAnAnswer { .. }
            | Self::OtherAnswers { .. }
            | Self::EmptyOption { .. }
            | Self::DraftsShow
            | Self::TooManyDocuments { .. }
            | Self::Penalty(_)
            | Self::Temperature { .. } => "limit",
            Self::NoStateFolder | Self::NoPlaceForCounts | Self::NoLink(_) | Self::NotAHash { .. } => "usage",
            Self::File { .. } => "file",
            Self::Thread(_) | Self::Signals(_) | Self::NoRandomness => "system",
            Self::TooManyFailures { .. } => "too-many-failures",
            Self::Run(RunError::Stopped) => "stopped",
            Self::Run(RunError::NoSuchPlace { .. }) => "peer-misbehaved",
            Self::Model(_) | Self::Run(_) | Self::NoAnswer | Self::NotSecure => "internal",
        }
    }
}

/// What a server has in place of a pinned file.
fn theirs(offered: &Option<Digest>) -> String {
    match offered {
        Some(offered) => format!("has the hash {offered}"),
        None => "does not exist".to_owned(),
    }
}

impl ServeError {
    /// Whether the session was over: the server has gone, is stopping, or has given the session's place away. Before a
    /// pass has begun, a caller opens another session.
    #[must_use]
    pub fn is_over(&self) -> bool {
        matches!(
            self.cause(),
            Self::Net(NetError::PeerGone | NetError::Io { .. }) | Self::Refused(Refusal::Stopping | Refusal::Idle)
        )
    }

    /// The error itself, whether or not it was counted.
    #[must_use]
    pub fn cause(&self) -> &Self {
        match self {
            Self::Counted { source, .. } => source.cause(),
            error => error,
        }
    }

    /// Whether the same attempt may succeed later although nothing is changed on this side: the network, or the
    /// server's present state, and not a setting.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self.cause() {
            Self::Net(NetError::Tls(TlsFault::WrongPin)) => false,
            Self::Refused(refusal) => refusal.may_pass(),
            error => error.category() == Category::Network,
        }
    }

    /// Whether the pass that it ended was run to its last message ([`RunError::is_of_a_whole_pass`]).
    #[cfg(feature = "client")]
    pub(crate) fn is_of_a_whole_pass(&self) -> bool {
        matches!(self.cause(), Self::Run(error) if error.is_of_a_whole_pass())
    }
}

/// How a client forgets a server's failures.
fn forget(file: Option<&std::path::Path>) -> String {
    match file {
        Some(path) => format!("remove {path:?}"),
        None => "start this process again".to_owned(),
    }
}

/// What follows a failure.
fn after(failures: usize, most: usize) -> String {
    let first = if failures < most { format!("after {most} ") } else { String::new() };
    format!("{first}nothing more is sent to it for a day")
}

/// A time in words, rounded up.
fn span(seconds: u64) -> String {
    match seconds.div_ceil(60) {
        minutes @ 0..120 => format!("{} min", minutes.max(1)),
        minutes => format!("{} h", minutes.div_ceil(60)),
    }
}

fn net_name(error: &NetError) -> &'static str {
    match error {
        NetError::Timeout { .. } | NetError::OutOfTime => "timeout",
        NetError::PeerGone | NetError::PeerAborted { .. } | NetError::Closed => "peer-gone",
        NetError::Connect { .. } => "unreachable",
        NetError::Listen { .. } => "address-in-use",
        NetError::Tls(TlsFault::Refused { .. }) => "tls-refused",
        NetError::Tls(TlsFault::WrongPin) => "wrong-pin",
        NetError::Tls(_) => "tls",
        NetError::PeerMisbehaved(_) => "peer-misbehaved",
        NetError::Io { .. } => "network",
        NetError::Forked => "forked",
        _ => "internal",
    }
}

impl Refusal {
    /// Whether it is of the server's present state: the same request may be accepted later.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::TooManySessions { .. }
                | Self::Stopping
                | Self::Idle
                | Self::Allowance { .. }
                | Self::Uncounted
                | Self::Busy
                | Self::NoRoom
                | Self::QueueFull { .. }
                | Self::TooManyUploads { .. }
        )
    }

    /// The stable name of this refusal, for `--json` output, logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::OtherVersion { .. } => "other-version",
            Self::OtherAgreement { .. } => "other-plan",
            Self::OtherBundle { .. } => "other-bundle",
            Self::NoToken => "no-token",
            Self::BadToken => "bad-token",
            Self::TooManySessions { .. } => "too-many-sessions",
            Self::TooLong { .. } => "too-long",
            Self::PassTooLarge { .. } => "pass-too-large",
            Self::PrivateTable => "private-table",
            Self::TooManyTexts { .. } => "too-many-texts",
            Self::Stopping => "stopping",
            Self::Idle => "idle",
            Self::OtherProtocol { .. } => "other-protocol",
            Self::WrongSize => "wrong-size",
            Self::WrongOffset => "wrong-offset",
            Self::Busy => "busy",
            Self::Quota { .. } => "quota",
            Self::TooManyUploads { .. } => "too-many-uploads",
            Self::DamagedUpload => "damaged-upload",
            Self::ExpiredKeys => "keys-expired",
            Self::NotThere => "not-there",
            Self::NoRoom => "server-disk-full",
            Self::QueueFull { .. } => "queue-full",
            Self::NoReply => "no-reply",
            Self::OtherKeys => "other-file",
            Self::Allowance { .. } | Self::AboveAllowance { .. } | Self::AboveOpenedBits { .. } => "allowance",
            Self::Uncounted => "not-counted",
            Self::OtherTask { .. } => "other-task",
            Self::NoIndex => "no-index",
            Self::NoScores => "no-scores",
            Self::TooFarAhead { .. } => "too-far-ahead",
            Self::TooManyDrafts { .. } => "too-many-drafts",
            Self::NoHead => "no-head",
            Self::NoLink => "no-link",
            Self::Unknown { .. } => "refused",
        }
    }
}

impl From<NetError> for ServeError {
    fn from(error: NetError) -> Self {
        match error {
            NetError::PeerAborted { code: ABORT_STOPPING } => Self::Refused(Refusal::Stopping),
            NetError::PeerAborted { code: ABORT_IDLE } => Self::Refused(Refusal::Idle),
            error => Self::Net(error),
        }
    }
}

impl From<RunError> for ServeError {
    fn from(error: RunError) -> Self {
        match error.net() {
            Some(net) => net.clone().into(),
            None => Self::Run(error),
        }
    }
}
