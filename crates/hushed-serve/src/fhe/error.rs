//! What can end a step of a run under CKKS, and what to do about it. No variant holds a text or a number derived from
//! one.

use std::path::PathBuf;

use hushed_fhe::files::FileError;
use hushed_fhe::{ChoicesError, FheError, PlanFileError};
use hushed_model::{counted, json_fault};

use super::wire::Failure;
use crate::category::Category;
use crate::digest::Digest;

/// Errors of runs through files.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FheJobError {
    /// A file of keys, ciphertexts or columns.
    #[error(transparent)]
    File(FileError),
    /// The manifest.
    #[error(transparent)]
    Plan(PlanFileError),
    /// The calibration.
    #[error(transparent)]
    Choices(ChoicesError),
    /// The run.
    #[error(transparent)]
    Run(FheError),
    /// The public model does not belong to the manifest.
    #[error(
        "{path:?} is the public model {found}, and the manifest is for {expected}: ask for the one that belongs to the manifest"
    )]
    OtherPublic {
        /// Which file.
        path: PathBuf,
        /// Its hash.
        found: Digest,
        /// The manifest's public model, in hexadecimal.
        expected: String,
    },
    /// The file is not a public model.
    #[error(
        "{path:?} is not a public model, or is damaged; make one with `hushed plan DIR --protocol fhe --public-model FILE`"
    )]
    BadPublic {
        /// Which file.
        path: PathBuf,
    },
    /// The server's model, calibration or public part is not what the manifest was made for.
    #[error(
        "the manifest was made for another {what}: it says {planned}, and this is {found}; make the manifest again"
    )]
    OtherModel {
        /// `model`, `calibration`, `public model`.
        what: &'static str,
        /// What the plan says.
        planned: String,
        /// What was found.
        found: String,
    },
    /// Keys that have expired.
    #[error("the keys {id} expired {seconds} s ago: make new ones with `hushed keygen`")]
    Expired {
        /// Their id.
        id: Digest,
        /// Seconds since then.
        seconds: u64,
    },
    /// Keys under which an answer was wrong.
    #[error(
        "the keys {id} in {path:?} are retired: the canary of an answer that was decrypted with them was not right, or its decryption was interrupted \
         (then decrypt it again). Nothing was sent. If the server spoils answers on purpose, whether you come back reveals something about the secret \
         key, and with one key such bits add up. New keys end that: they tell the server once that something was wrong, and nothing about \
         themselves. If you accept that, `hushed embed --new-keys` replaces them, or make others with `hushed keygen`; what you sent before can still be decrypted"
    )]
    RetiredKeys {
        /// Their id.
        id: Digest,
        /// The folder.
        path: PathBuf,
    },
    /// `--new-keys` was given for keys that are not retired.
    #[error("the keys in {path:?} are not retired: leave out --new-keys")]
    NotRetired {
        /// The folder.
        path: PathBuf,
    },
    /// A manifest that asks for more keys than allowed.
    #[error(
        "the manifest asks for {keys} keys of {bytes} bytes together, and at most {most_keys} and {most_bytes} bytes are made: ask its operator why, and raise --max-keys or --max-key-bytes if you accept it"
    )]
    TooManyKeys {
        /// Keys asked for.
        keys: usize,
        /// Their bytes.
        bytes: u64,
        /// Keys allowed.
        most_keys: usize,
        /// Bytes allowed.
        most_bytes: u64,
    },
    /// The keys of a folder are for another manifest.
    #[error(
        "the keys in {path:?} were made for the manifest {theirs}, and this is {ours}: make keys for it with `hushed keygen`"
    )]
    KeysOfOtherPlan {
        /// The folder.
        path: PathBuf,
        /// Hash of their manifest.
        theirs: String,
        /// Hash of this one.
        ours: String,
    },
    /// A secret key stored with the state of another.
    #[error("the state is that of another secret key: the two are stored together, and only together do they count")]
    StateOfOtherKeys,
    /// A damaged record of keys or of a request.
    #[error("{path:?} is damaged ({})", json_fault(source))]
    Record {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A reply to a request that is not in this key folder.
    #[error("the reply is to the request {id}, which was not made with the keys in {path:?}")]
    UnknownRequest {
        /// The request's id.
        id: String,
        /// The folder.
        path: PathBuf,
    },
    /// More texts than the batch has places.
    #[error("the number of texts given is {texts}, and a batch of this manifest has places for {limit}: split them")]
    TooManyTexts {
        /// Given.
        texts: usize,
        /// Places, without the canary's.
        limit: usize,
    },
    /// A text with more tokens than the manifest has rows.
    #[error(
        "text {index} (the first is 0) has {}, and this manifest takes at most {limit}: shorten it, or cut it with --truncate",
        counted(*tokens, "token")
    )]
    TextTooLong {
        /// Which.
        index: usize,
        /// Its tokens.
        tokens: usize,
        /// Rows.
        limit: usize,
    },
    /// The manifest gives another answer than asked for.
    #[error(
        "this manifest returns {planned}, but {asked} was requested: ask the server's operator for a manifest that does (`hushed plan --answer`)"
    )]
    OtherAnswer {
        /// The manifest's answer.
        planned: &'static str,
        /// As asked.
        asked: &'static str,
    },
    /// The texts or choices are not those that were encrypted.
    #[error("these are not the texts that the reply answers: give those that were encrypted, in their order")]
    OtherTexts,
    /// A line of choices that is not an item.
    #[error(
        "line {line} of the choices file is not an item ({why}): an item is an object with a \"prompt\", two or more \"endings\", and, if it is known, the \"label\" of the right one, from 0"
    )]
    BadItem {
        /// Which line, from 1.
        line: usize,
        /// Why not.
        why: &'static str,
    },
    /// Texts of an item that do not begin with the tokens of its prompt, or have no tokens after them.
    #[error(
        "the choices of item {item} (the first is 0) do not share their prompt: the tokens of a prompt with an ending must begin with those of the prompt. \
         End it, and begin the endings, where a word ends"
    )]
    NotShared {
        /// Which item.
        item: usize,
    },
    /// The manifest declares lengths in another way than asked for.
    #[error(
        "this manifest declares lengths as {planned}, and {asked} was asked for: ask the server's operator for a manifest that does"
    )]
    OtherLengths {
        /// The manifest's way.
        planned: &'static str,
        /// As asked.
        asked: &'static str,
    },
    /// The run needs more memory than it may use.
    #[error("the run needs {needed} MiB of memory and may take {limit}")]
    Memory {
        /// MiB.
        needed: u64,
        /// MiB.
        limit: u64,
    },
    /// Keys that would exceed their owner's quota.
    #[error(
        "the keys take {needed} bytes, and {owner:?} has {left} left of its quota: delete some with `hushed keys delete`"
    )]
    Quota {
        /// The owner.
        owner: String,
        /// Bytes.
        needed: u64,
        /// Bytes.
        left: u64,
    },
    /// There are no keys with this id.
    #[error("there are no keys {id} in {path:?}")]
    NoSuchKeys {
        /// As asked for.
        id: String,
        /// Where.
        path: PathBuf,
    },
    /// Another file is where the reply should go.
    #[error("{path:?} exists and is not the reply to this request: give another --out")]
    OtherReply {
        /// Which file.
        path: PathBuf,
    },
    /// The store's file system keeps no locks.
    #[error(
        "the file system of {path:?} keeps no locks between processes, so that two could run one job: use a local disk, or NFS 4 mounted without `nolock` and `local_lock`"
    )]
    NoLocks {
        /// The store.
        path: PathBuf,
    },
    /// Replies would be made with another secret than the store's.
    #[error(
        "the secret of replies is not the one that this store's replies are made with: two replies to one request would mask one computation twice. Give \
         that file with --secret; if it is lost, empty the store and remove {path:?}"
    )]
    OtherSecret {
        /// The file that has the hash of the store's secret.
        path: PathBuf,
    },
    /// The folder is no store.
    #[error("{path:?} is not the store of a server: give the folder of its --store")]
    NoStore {
        /// Which folder.
        path: PathBuf,
    },
    /// Neither HOME nor a file for the secret of replies.
    #[error("there is no HOME for the secret of replies: give --secret")]
    NoStateFolder,
    /// The run was asked to stop.
    #[error("the run was stopped between two layers: run it again, and it continues from its checkpoint")]
    Stopped,
    /// The server offers another manifest than the client's.
    #[error(
        "the server offers the manifest {offered}, and the one in {path:?} is {ours}: its operator has changed it, or it is another server. Keys and \
         answers belong to one manifest: use another folder for the new one"
    )]
    PlanChanged {
        /// The client's manifest file.
        path: PathBuf,
        /// Its hash.
        ours: Digest,
        /// The server's.
        offered: Digest,
    },
    /// A file from the server is not the one that it offered.
    #[error("the {what} that the server sent is not the one it offered")]
    NotAsOffered {
        /// `manifest`, `public model`, `reply`.
        what: &'static str,
    },
    /// There are no keys yet.
    #[error(
        "there are no keys in {path:?} yet: make them with `hushed keygen --manifest {plan:?} --out {path:?}` (`embed`, `next` and `score` also make them, with --make-keys)"
    )]
    NoKeys {
        /// The folder.
        path: PathBuf,
        /// Where the manifest is.
        plan: PathBuf,
    },
    /// No job of this id was sent with these keys.
    #[error("no job {id} was sent with the keys in {path:?}")]
    NoSuchJob {
        /// As asked for.
        id: String,
        /// The folder.
        path: PathBuf,
    },
    /// The server does not have a job, or no longer has it.
    #[error(
        "the server does not have the job {id}, or no longer has it: its reply has expired, or it is another server. Send the texts again"
    )]
    JobGone {
        /// Its id.
        id: Digest,
    },
    /// A job that ended without a reply.
    #[error("the job {id} failed: {failure}")]
    JobFailed {
        /// Its id.
        id: Digest,
        /// Why.
        failure: Failure,
    },
    /// The answer of a batch's canary is wrong.
    #[error(
        "the canary's answer has cosine {found:.4} to the published one, and at least {least} was expected: the run failed, or some text left \
         the calibrated ranges. The answers are not shown (--anyway shows them); do not tell the server. The keys are retired: nothing more is encrypted for them"
    )]
    WrongCanary {
        /// The cosine found.
        found: f64,
        /// The cosine expected.
        least: f64,
    },
    /// Threads could not be started.
    #[error("could not start {}; is there a limit on them?", counted(*threads, "thread"))]
    Threads {
        /// How many.
        threads: usize,
    },
}

impl From<FileError> for FheJobError {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<PlanFileError> for FheJobError {
    fn from(error: PlanFileError) -> Self {
        Self::Plan(error)
    }
}

impl From<ChoicesError> for FheJobError {
    fn from(error: ChoicesError) -> Self {
        Self::Choices(error)
    }
}

impl From<FheError> for FheJobError {
    fn from(error: FheError) -> Self {
        match error {
            FheError::File(error) => Self::File(error),
            FheError::Plan(error) => Self::Plan(error),
            FheError::Choices(error) => Self::Choices(error),
            FheError::Stopped => Self::Stopped,
            error => Self::Run(error),
        }
    }
}

impl FheJobError {
    /// The category of this error.
    #[must_use]
    pub fn category(&self) -> Category {
        match self {
            Self::File(FileError::Audit { .. }) => Category::Defect,
            Self::TooManyKeys { .. } => Category::Mismatch,
            Self::File(FileError::Other { .. } | FileError::Content { .. })
            | Self::OtherPublic { .. }
            | Self::OtherModel { .. }
            | Self::KeysOfOtherPlan { .. }
            | Self::StateOfOtherKeys
            | Self::OtherSecret { .. }
            | Self::UnknownRequest { .. }
            | Self::OtherLengths { .. }
            | Self::OtherAnswer { .. }
            | Self::PlanChanged { .. }
            | Self::Run(FheError::InputBound | FheError::ReplyError { .. }) => Category::Mismatch,
            Self::Plan(PlanFileError::OtherParameters { .. } | PlanFileError::Version { .. }) => Category::Mismatch,
            Self::Choices(_) => Category::Folder,
            Self::Expired { .. }
            | Self::Quota { .. }
            | Self::JobGone { .. }
            | Self::JobFailed { .. }
            | Self::Stopped => Category::Refused,
            Self::NotAsOffered { .. } | Self::WrongCanary { .. } | Self::Run(FheError::ReplyShape { .. }) => {
                Category::Network
            }
            Self::TooManyTexts { .. }
            | Self::TextTooLong { .. }
            | Self::OtherTexts
            | Self::BadItem { .. }
            | Self::NotShared { .. } => Category::Input,
            Self::Run(FheError::Model(_) | FheError::Unsupported { .. }) => Category::Folder,
            Self::Run(_) => Category::Defect,
            Self::NoSuchKeys { .. }
            | Self::RetiredKeys { .. }
            | Self::NotRetired { .. }
            | Self::NoKeys { .. }
            | Self::NoSuchJob { .. }
            | Self::OtherReply { .. }
            | Self::NoStore { .. }
            | Self::NoStateFolder => Category::Usage,
            Self::File(_)
            | Self::Plan(_)
            | Self::BadPublic { .. }
            | Self::Record { .. }
            | Self::Memory { .. }
            | Self::NoLocks { .. }
            | Self::Threads { .. } => Category::Local,
        }
    }

    /// The stable name of this kind of error.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::File(FileError::Io { .. }) => "file",
            Self::File(FileError::Codec { .. } | FileError::Unusable { .. }) => "file-damaged",
            Self::File(FileError::Content { .. }) => "keys-incomplete",
            Self::File(FileError::Other { .. }) => "other-file",
            Self::File(FileError::Exists { .. }) => "file-exists",
            Self::File(FileError::NotPrivate { .. }) => "not-private",
            Self::File(FileError::NoRoom { .. }) => "disk-full",
            Self::File(FileError::Audit { .. }) => "internal",
            Self::File(_) => "file",
            Self::RetiredKeys { .. } | Self::NotRetired { .. } => "keys-retired",
            Self::TooManyKeys { .. } => "too-many-keys",
            Self::Plan(_) => "plan",
            Self::Choices(_) => "calibration",
            Self::OtherModel { .. } | Self::Run(FheError::InputBound | FheError::ReplyError { .. }) => "other-model",
            Self::Run(FheError::ReplyShape { .. }) => "reply-shape",
            Self::Run(_) => "run",
            Self::OtherPublic { .. } | Self::BadPublic { .. } => "public-model",
            Self::Expired { .. } => "keys-expired",
            Self::KeysOfOtherPlan { .. } => "other-plan",
            Self::StateOfOtherKeys => "other-keys",
            Self::OtherSecret { .. } => "other-secret",
            Self::NoStore { .. } => "usage",
            Self::NoLocks { .. } => "no-locks",
            Self::Record { .. } => "record-damaged",
            Self::UnknownRequest { .. } => "unknown-request",
            Self::TooManyTexts { .. } => "too-many-texts",
            Self::TextTooLong { .. } => "too-long",
            Self::OtherLengths { .. } => "other-lengths",
            Self::OtherAnswer { .. } => "other-answer",
            Self::OtherTexts => "other-texts",
            Self::BadItem { .. } | Self::NotShared { .. } => "choices",
            Self::Memory { .. } => "memory",
            Self::Quota { .. } => "quota",
            Self::NoSuchKeys { .. } => "no-such-keys",
            Self::Stopped => "stopped",
            Self::PlanChanged { .. } => "other-plan",
            Self::NotAsOffered { .. } => "peer-misbehaved",
            Self::NoKeys { .. } => "no-keys",
            Self::NoSuchJob { .. } => "no-such-job",
            Self::JobGone { .. } => "job-gone",
            Self::JobFailed { .. } => "job-failed",
            Self::OtherReply { .. } => "file-exists",
            Self::WrongCanary { .. } => "canary",
            Self::NoStateFolder => "usage",
            Self::Threads { .. } => "system",
        }
    }
}
