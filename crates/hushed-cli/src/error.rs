//! What can end a run, with the exit code and the short name that scripts may rely on (docs/errors.md).

use std::io;
use std::path::PathBuf;

use hushed_fhe::FheError;
use hushed_gateway::GatewayError;
use hushed_model::counted;
use hushed_model::graph::InputError;
use hushed_model::prune::PruneError;
use hushed_model::{CalibrationError, ModelError};
use hushed_mpc::RunError;
use hushed_mpc::plan::PlanError;
use hushed_serve::ServeError;

/// An error that ended a run.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    #[error("{path}: {source}")]
    ReadInput { path: PathBuf, source: io::Error },

    #[error("{path}, line {line}: not UTF-8 text")]
    NotText { path: PathBuf, line: usize },

    #[error("the inputs were refused: {0}")]
    Inputs(#[from] InputError),

    #[error("there is no text: {path} has only empty lines")]
    NoText { path: PathBuf },

    #[error("{path} is larger than {limit} MiB: split it")]
    InputTooLarge { path: PathBuf, limit: u64 },

    #[error("{path} already exists and is not overwritten: {instead}")]
    Exists { path: PathBuf, instead: &'static str },

    #[error("{path}, line {line}: {why}")]
    NotADocument { path: PathBuf, line: usize, why: String },

    #[error(
        "{path}: files that end in .{ending} are not read: write a .jsonl file, an object {{\"text\": \"…\", \"id\": …, \"metadata\": …}} per line"
    )]
    NotDocuments { path: PathBuf, ending: String },

    #[error(
        "{path}, line {line}, column {column}: {why}; a list of messages is expected, [{{\"role\": \"user\", \"content\": \"…\"}}, …] with the roles system, user and assistant"
    )]
    Messages { path: PathBuf, line: usize, column: usize, why: &'static str },

    #[error("labels, line {line}: expected {expected}, separated by tabs")]
    Labels { line: usize, expected: &'static str },

    #[error("labels, line {line}: not a label of this model, which has {names}")]
    NoSuchLabel { line: usize, names: String },

    #[error("this model does not take {given}: give {instead}")]
    OtherTask { given: &'static str, instead: &'static str },

    #[error("text {index} (the first is 0): {source}")]
    Text { index: usize, source: ModelError },

    #[error("image {index} (the first is 0): {source}")]
    Image { index: usize, source: ModelError },

    #[error(transparent)]
    Model(#[from] ModelError),

    #[error("this folder is not supported, for {}: see above", counted(*problems, "reason"))]
    Unsupported { problems: usize },

    #[error(transparent)]
    Calibration(#[from] CalibrationError),

    #[error("{path} could not be written, and was left as it was: {source}")]
    WriteFile { path: PathBuf, source: io::Error },

    #[error("the output could not be written: {0}")]
    Write(#[source] io::Error),

    #[error(
        "a text has {}, and this model takes {least} to {limit}, special ones and those of an answer counted",
        counted(*given, "token")
    )]
    Tokens { given: usize, least: usize, limit: usize },

    #[error(transparent)]
    Plan(PlanError),

    #[error(transparent)]
    Run(#[from] RunError),

    #[error(transparent)]
    Serve(#[from] ServeError),

    #[error(transparent)]
    Gateway(#[from] GatewayError),

    #[error("signal handlers could not be installed: {0}")]
    Signals(#[source] io::Error),

    #[error("standard input is read once: give the query or the texts as a file, --query-file FILE or --input FILE")]
    OneInput,

    #[error("give a query: --query-file FILE, or --query TEXT")]
    NoQuery,

    #[error("give the server's certificate by --pin or --ca")]
    NoTrust,

    #[error("{option} belongs to the other protocol: see --protocol")]
    OtherProtocol { option: &'static str },

    #[error("--protocol fhe needs --keys DIR, a folder for keys (--make-keys makes them)")]
    NoKeysFolder,

    #[error("--bucket, --public-table and --ahead are for texts, not for images: they have no padding and no table")]
    NotForImages,

    #[error(
        "fhe does not generate: the second token follows from the first, so what a client decrypted would go back to the server, which could learn \
         the secret key from it. One run gives one token, by `hushed decrypt --top K`; use --protocol 2pc to generate"
    )]
    NoGeneration,

    #[error("the manifest is of a model of text: give its public model, --public FILE")]
    NoPublic,

    #[error("give the tokens of texts: --tokens N, or with --protocol fhe --rows N; a network needs --protocol fhe")]
    NoTokens,

    #[error("--npy writes one array, and the network has {outputs} outputs: use --json")]
    SeveralOutputs { outputs: usize },

    #[error("--lengths bucket needs --bucket N")]
    NoBucket,

    #[error("{path} holds no prices: give the JSON of `hushed plan --protocol fhe --measure whole --json`")]
    Prices { path: PathBuf },

    #[error("{path}, line {line}: not the number of tokens of a text")]
    TokenCount { path: PathBuf, line: usize },

    #[error("no parameter set `{name}`: {source}")]
    Preset { name: String, source: hushed_ckks::CkksParamsError },

    #[error(transparent)]
    Ckks(#[from] hushed_ckks::CkksError),

    #[error(transparent)]
    Fhe(#[from] FheError),

    #[error(transparent)]
    Prune(#[from] PruneError),

    #[error("{list:?} is no list of layers: 1,3-5 or all, below {count}")]
    Layers { list: String, count: usize },

    #[error(
        "one text or image in {least} is held out for comparison, and only {given} were given: give at least {least}"
    )]
    NoneCompared { given: usize, least: usize },

    #[error(
        "--ray needs Python with this version of the package: pip install 'hushed[ray]', or --python FILE for another Python \
         ({}: {why})",
        python.display()
    )]
    NoRay { python: PathBuf, why: String },

    #[error("{message}")]
    Ray { exit_code: u8, name: String, message: String },

    #[error("{failed} of {of} checks of this machine failed: see above")]
    Doctor { failed: usize, of: usize },
}

impl CliError {
    /// Stable: scripts branch on it.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::ReadInput { .. }
            | Self::NotText { .. }
            | Self::NoText { .. }
            | Self::Inputs(_)
            | Self::NotADocument { .. }
            | Self::NotDocuments { .. }
            | Self::Messages { .. }
            | Self::InputTooLarge { .. }
            | Self::Labels { .. }
            | Self::NoSuchLabel { .. }
            | Self::Prices { .. }
            | Self::TokenCount { .. }
            | Self::Tokens { .. }
            | Self::Plan(_) => 3,
            Self::Prune(PruneError::Sample { .. }) | Self::NoneCompared { .. } => 3,
            Self::Prune(PruneError::NotFinite { .. }) => 4,
            Self::Prune(PruneError::Layer { .. }) | Self::Layers { .. } => 2,
            Self::Prune(PruneError::Model(error))
            | Self::Model(error)
            | Self::Text { source: error, .. }
            | Self::Image { source: error, .. } => match error {
                ModelError::Text(_) | ModelError::Image(_) => 3,
                ModelError::Folder(_)
                | ModelError::TokenOutOfRange { .. }
                | ModelError::NotAnEncoder { .. }
                | ModelError::NotAGenerator => 4,
                _ => 70,
            },
            Self::Unsupported { .. } | Self::Calibration(_) | Self::Run(RunError::Unsupported { .. }) => 4,
            Self::Fhe(error) => match error {
                FheError::Choices(_)
                | FheError::Unsupported { .. }
                | FheError::Levels { .. }
                | FheError::Coarse { .. } => 4,
                FheError::Packing(_) => 3,
                FheError::Model(ModelError::Folder(_) | ModelError::NotAnEncoder { .. }) => 4,
                FheError::Io { .. } => 8,
                _ => 70,
            },
            Self::Write(_) | Self::WriteFile { .. } | Self::Exists { .. } | Self::Signals(_) => 8,
            Self::NoTrust
            | Self::NoQuery
            | Self::OneInput
            | Self::NoBucket
            | Self::NoGeneration
            | Self::NotForImages
            | Self::OtherProtocol { .. }
            | Self::OtherTask { .. }
            | Self::NoKeysFolder
            | Self::NoPublic
            | Self::NoTokens
            | Self::SeveralOutputs { .. }
            | Self::NoRay { .. }
            | Self::Preset { .. } => 2,
            Self::Ray { exit_code, .. } => *exit_code,
            Self::Serve(error) => error.category().exit_code(),
            Self::Gateway(error) => error.category().exit_code(),
            Self::Ckks(_) | Self::Run(_) => 70,
            Self::Prune(_) => 8,
            Self::Doctor { .. } => 1,
        }
    }

    /// Stable name of the kind of error, in `--json` output.
    pub fn name(&self) -> &str {
        match self {
            Self::ReadInput { .. } => "input-unreadable",
            Self::NotText { .. } => "input-not-text",
            Self::NoText { .. } => "input-empty",
            Self::Inputs(_) => "inputs-refused",
            Self::Exists { .. } => "file-exists",
            Self::NotADocument { .. } | Self::NotDocuments { .. } => "not-a-document",
            Self::Messages { .. } => "messages-malformed",
            Self::InputTooLarge { .. } => "input-too-large",
            Self::Labels { .. } | Self::NoSuchLabel { .. } => "labels-malformed",
            Self::Prices { .. } => "prices",
            Self::TokenCount { .. } => "token-count-malformed",
            Self::Image { .. } | Self::Model(ModelError::Image(_)) => match self.exit_code() {
                3 => "image-refused",
                4 => "model-folder",
                _ => "internal",
            },
            Self::Prune(PruneError::Sample { .. }) | Self::NoneCompared { .. } => "sample-too-small",
            Self::Prune(PruneError::Layer { .. }) | Self::Layers { .. } => "usage",
            Self::Prune(PruneError::Write { .. }) => "file-unwritable",
            Self::Model(_) | Self::Prune(_) | Self::Text { .. } => match self.exit_code() {
                3 => "text-refused",
                4 => "model-folder",
                _ => "internal",
            },
            Self::Unsupported { .. } | Self::Run(RunError::Unsupported { .. }) => "model-folder",
            Self::Calibration(_) | Self::Fhe(FheError::Choices(_)) => "calibration",
            Self::Fhe(FheError::Unsupported { .. } | FheError::Levels { .. } | FheError::Coarse { .. }) => {
                "unsupported"
            }
            Self::Fhe(FheError::Model(ModelError::Folder(_) | ModelError::NotAnEncoder { .. })) => "model-folder",
            Self::Fhe(FheError::Packing(_)) => "batch",
            Self::Write(_) => "output",
            Self::WriteFile { .. } => "file-unwritable",
            Self::NoTrust
            | Self::NoQuery
            | Self::OneInput
            | Self::NoBucket
            | Self::NoGeneration
            | Self::NotForImages
            | Self::OtherProtocol { .. }
            | Self::OtherTask { .. }
            | Self::NoKeysFolder
            | Self::NoPublic
            | Self::NoTokens
            | Self::SeveralOutputs { .. }
            | Self::Preset { .. } => "usage",
            Self::NoRay { .. } => "no-ray",
            Self::Ray { name, .. } => name,
            Self::Signals(_) => "system",
            Self::Serve(error) => error.name(),
            Self::Gateway(error) => error.name(),
            Self::Tokens { .. } | Self::Plan(_) => "tokens",
            Self::Run(_) | Self::Ckks(_) | Self::Fhe(_) => "internal",
            Self::Doctor { .. } => "doctor",
        }
    }

    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<PlanError> for CliError {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::Model(error) => Self::Model(error),
            PlanError::Run(error) => Self::Run(error),
            PlanError::Tokens { given, least, limit } => Self::Tokens { given, least, limit },
            other => Self::Plan(other),
        }
    }
}
