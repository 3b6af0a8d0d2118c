//! The owner of a secret key encrypts texts and decrypts replies. Nothing derived from a decrypted reply leaves this
//! module for a server.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;

use hushed_fhe::FhePlan;
use hushed_fhe::files::{FileError, atomic, exchange, owner};
use hushed_fhe::plan::public_plan::{AnswerRows, Lengths, Params};
use hushed_fhe::run::client::FheClient;
use hushed_model::tokens::Decoder;
use hushed_model::{
    Matrix, Task, TextError, TokenIds, Tokenizer, TooLong, cosine, length, likeliest, nearness,
};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::record::{
    KeyRecord, NotRight, RECORD, REQUESTS, RequestRecord, SECRET, VERSION, check_retired, hold,
    read, request_path, retired, write,
};
use crate::fhe::{FheJobError, PublicModel, read_plan, system};
use crate::files::make_folder;

/// Present in every binary that has this code: the build test of the server-only binary looks for it.
#[used]
static MARKER: [u8; 27] = *b"hushed-serve fhe owner here";

/// A repetitive text of at least this many tokens is unlike anything in a calibration.
const REPETITIVE: usize = 16;

/// A warning about a text, before it is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// One token makes up more than half of it, or it has four times as many tokens as different ones: such a text may
    /// leave the calibrated ranges, and its answer then means nothing.
    Repetitive {
        /// Which text, from 0.
        text: usize,
    },
    /// It was cut.
    Cut {
        /// Which text, from 0.
        text: usize,
    },
}

/// A batch that was encrypted.
#[derive(Clone, Debug)]
pub struct Encrypted {
    /// The request's id, in hexadecimal.
    pub id: String,
    /// What names its content.
    pub content: Digest,
    /// Bytes of its file.
    pub bytes: u64,
    /// Tokens of each text.
    pub tokens: Vec<usize>,
    /// The length of each place as declared to the server.
    pub declared: Vec<usize>,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

/// Whether the canary's answer is the published one. The client alone may know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanaryOutcome {
    /// The cosine to it; of logits, the nearness.
    pub cosine: f64,
    /// What it must be at least.
    pub least: f64,
}

impl CanaryOutcome {
    /// Whether the answer is as published: then no fault and no overflow affected the whole batch. It says nothing of a
    /// server that cheats on single places.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.cosine >= self.least
    }
}

/// A decrypted reply.
#[derive(Clone)]
pub struct Answer {
    /// The embedding of each text, its logits, or a decoder's hidden states, in order.
    pub embeddings: Vec<Vec<f64>>,
    /// What makes next tokens of hidden states, if the model is a decoder.
    pub head: Option<Head>,
    /// The rows whose hidden states a decoder's answer is, one after another.
    pub rows: Option<AnswerRows>,
    /// SHA-256 of the texts' token ids, in hexadecimal.
    pub(super) texts: Option<String>,
    /// Names of the logits, if the model is a classifier.
    pub labels: Option<Vec<String>>,
    /// Tokens of each text.
    pub tokens: Vec<usize>,
    /// The canary's, if the manifest has one.
    pub canary: Option<CanaryOutcome>,
    /// Ciphertexts decrypted with this key so far.
    pub decryptions: u64,
}

/// A decoder's head: its public table of token vectors.
#[derive(Clone)]
pub struct Head {
    pub(super) table: Arc<Matrix<f32>>,
    text: Decoder,
    tokenizer: Tokenizer,
    /// Most tokens of a text.
    limit: usize,
}

/// A token that may come next. No `Debug`: it is the private answer.
#[derive(Clone)]
pub struct Likely {
    /// Its id.
    pub id: u32,
    /// What it stands for; nothing for a special token.
    pub text: String,
    /// The natural logarithm of its probability among all tokens.
    pub log_probability: f64,
}

impl Head {
    pub(super) fn of(public: &PublicModel, rows: usize) -> Option<Head> {
        let tokenizer = public.public().tokenizer().ok()?;
        Some(Head {
            table: Arc::clone(public.embedding().tokens.as_ref()?),
            text: tokenizer.decoder()?,
            tokenizer: tokenizer.clone(),
            limit: public.public().max_tokens.min(rows),
        })
    }

    /// The tokens of a text as they were encrypted.
    pub(super) fn tokens(
        &self,
        index: usize,
        text: &str,
        too_long: TooLong,
    ) -> Result<TokenIds, ServeError> {
        encoded(&self.tokenizer, index, text, self.limit, too_long)
    }

    /// The likeliest tokens after a text with this hidden state, at most `most` of them.
    ///
    /// # Errors
    /// [`ServeError::Model`] for numbers of another width.
    pub fn likeliest(&self, hidden: &[f64], most: usize) -> Result<Vec<Likely>, ServeError> {
        let found = likeliest(&self.table, hidden, most)?.into_iter();
        let named = found.map(|(id, log_probability)| {
            let mut decoder = self.text.clone();
            let text = decoder.push(id) + decoder.finish();
            Likely {
                id,
                text,
                log_probability,
            }
        });
        Ok(named.collect())
    }
}

/// What belongs together at a client.
struct Owned {
    plan: FhePlan,
    params: Params,
    public: PublicModel,
    client: FheClient,
    record: KeyRecord,
}

impl Owned {
    fn open(plan: &Path, path: &Path, folder: &Path) -> Result<Owned, ServeError> {
        let (plan, params) = read_plan(plan)?;
        let record = KeyRecord::read(folder)?;
        let ours = Digest(plan.hash()).to_string();
        if record.plan != ours {
            return Err(FheJobError::KeysOfOtherPlan {
                path: folder.to_owned(),
                theirs: record.plan,
                ours,
            }
            .into());
        }
        let public = PublicModel::read(path, &plan.public_sha256)?;
        let (embedding, norm) = (public.embedding().clone(), public.norm().cloned());
        let pool = public.public().pool;
        let classes = public.public().labels().map(<[String]>::len);
        let decodes = public.public().task() == Task::Generate;
        if classes != plan.logits || decodes != plan.answer.is_some() {
            let path = path.to_owned();
            return Err(FheJobError::BadPublic { path }.into());
        }
        let client = FheClient::new(plan.clone(), &params, embedding, norm, pool);
        Ok(Owned {
            client: client.map_err(FheJobError::from)?,
            plan,
            params,
            public,
            record,
        })
    }

    /// The tokens of a text, within the manifest's rows.
    fn tokens(&self, index: usize, text: &str, too_long: TooLong) -> Result<TokenIds, ServeError> {
        let public = self.public.public();
        let limit = public.max_tokens.min(self.plan.rows);
        let tokenizer = public.tokenizer();
        let tokenizer = tokenizer.map_err(|source| ServeError::Text { index, source })?;
        encoded(tokenizer, index, text, limit, too_long)
    }

    fn canary(&self) -> Result<Option<TokenIds>, ServeError> {
        let canary = self.plan.canary.as_ref();
        let texts = canary.map(|canary| self.tokens(0, &canary.text, TooLong::Refuse));
        texts.transpose()
    }
}

fn encoded(
    tokenizer: &Tokenizer,
    index: usize,
    text: &str,
    limit: usize,
    too_long: TooLong,
) -> Result<TokenIds, ServeError> {
    let tokens = tokenizer.encode(text, limit, too_long);
    tokens.map_err(|source| match source {
        TextError::TooLong { tokens, limit } => FheJobError::TextTooLong {
            index,
            tokens,
            limit,
        }
        .into(),
        source => ServeError::Text { index, source },
    })
}

/// SHA-256 of the token ids of texts, each after their number.
pub(super) fn hash_of_ids(texts: &[TokenIds]) -> Digest {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.ids().len() as u64).to_le_bytes());
        text.ids()
            .iter()
            .for_each(|id| hash.update(id.to_le_bytes()));
    }
    Digest(hash.finalize().into())
}

/// Arguments of [`encrypt`].
#[derive(Clone, Copy)]
pub struct EncryptOptions<'a> {
    /// The manifest.
    pub plan: &'a Path,
    /// Its public model.
    pub public: &'a Path,
    /// The folder of keys.
    pub keys: &'a Path,
    /// The texts.
    pub texts: &'a [String],
    /// What to do with texts that are too long.
    pub too_long: TooLong,
    /// What the server may learn of lengths; a manifest that says otherwise is refused.
    pub lengths: Option<&'static str>,
    /// The file.
    pub out: &'a Path,
}

/// Encrypts texts into a file. `progress` is called with ciphertexts done and in all.
///
/// # Errors
/// [`ServeError::Text`] or [`FheJobError::TextTooLong`] for a text that cannot be sent, [`FheJobError::TooManyTexts`],
/// files of other manifests, expired or retired keys, no room.
pub fn encrypt(
    options: &EncryptOptions<'_>,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Encrypted, ServeError> {
    let EncryptOptions {
        plan,
        public,
        keys: folder,
        texts,
        too_long,
        lengths,
        out,
    } = *options;
    let owned = Owned::open(plan, public, folder)?;
    owned.record.check_time()?;
    check_retired(folder)?;
    let planned = named(owned.plan.lengths);
    if let Some(asked) = lengths.filter(|asked| *asked != planned) {
        return Err(FheJobError::OtherLengths { planned, asked }.into());
    }
    owned.client.check_bound().map_err(FheJobError::from)?;
    let limit = owned.plan.texts(&owned.params).map_err(FheJobError::from)?;
    if texts.len() > limit {
        let texts = texts.len();
        return Err(FheJobError::TooManyTexts { texts, limit }.into());
    }
    let mut warnings = Vec::new();
    let mut tokens = Vec::with_capacity(texts.len());
    for (text, content) in texts.iter().enumerate() {
        let ids = owned.tokens(text, content, too_long)?;
        if too_long == TooLong::Cut && owned.tokens(text, content, TooLong::Refuse).is_err() {
            warnings.push(Warning::Cut { text });
        }
        if repetitive(ids.ids()) {
            warnings.push(Warning::Repetitive { text });
        }
        tokens.push(ids);
    }
    let canary = owned.canary()?;
    let upload = owned
        .client
        .pack(&tokens, canary.as_ref())
        .map_err(FheJobError::from)?;
    atomic::refuse_existing(out).map_err(FheJobError::from)?;
    let bytes = exchange::request_bytes(&owned.plan, &owned.params).map_err(FheJobError::from)?;
    system::check_room(out.parent().unwrap_or(Path::new(".")), bytes)?;
    let secret = folder.join(SECRET);
    let keys = owned.record.hash();
    let (id, content) = owner::encrypt(
        out,
        &owned.client,
        &owned.params,
        &secret,
        keys,
        &upload,
        progress,
    )
    .map_err(FheJobError::from)?;
    let lengths: Vec<usize> = tokens.iter().map(|ids| ids.ids().len()).collect();
    make_folder(&folder.join(REQUESTS))?;
    let record = RequestRecord {
        version: VERSION,
        content: Digest(content).to_string(),
        tokens: lengths.clone(),
        canary: canary.map(|ids| ids.ids().len()),
        texts: Some(hash_of_ids(&tokens).to_string()),
    };
    if let Err(error) = write(&request_path(folder, &id), &record) {
        // No request is left whose reply could not be decrypted.
        let _ = std::fs::remove_file(out);
        return Err(error);
    }
    Ok(Encrypted {
        id: hushed_fhe::plan::public_plan::hex(&id),
        content: Digest(content),
        bytes,
        tokens: lengths,
        declared: upload.declared(),
        warnings,
    })
}

/// Decrypts a reply. The key's count of decryptions is saved before the first.
///
/// A canary whose answer is not the published one retires the keys: nothing is encrypted for them any more. A server
/// that makes answers wrong depending on the secret key, and learns each time whether the client comes back, would
/// learn the key bit by bit. The keys count as retired from before the decryption until the canary of that very reply
/// is seen to be right. So no crash or full disk leaves them in use, and a better reply that a server sends afterwards
/// does not bring them back: another reply to such a request is not decrypted.
///
/// # Errors
/// [`FheJobError::File`] for a damaged reply or one of another manifest or other keys, [`FheJobError::UnknownRequest`],
/// [`FheJobError::RetiredKeys`].
pub fn decrypt(
    plan: &Path,
    public: &Path,
    folder: &Path,
    reply: &Path,
) -> Result<Answer, ServeError> {
    let owned = Owned::open(plan, public, folder)?;
    let keys = owned.record.hash();
    // Read once: what is decrypted is what was checked.
    let hashed = hash_of(reply)?;
    let read_whole = exchange::read_reply(reply, &owned.plan, &owned.params, &keys);
    let (head, ciphertexts) = read_whole.map_err(FheJobError::from)?;
    let theirs = hash_of(reply)?;
    // Another process has put another there meanwhile.
    if theirs != hashed {
        return Err(FheJobError::File(FileError::Other {
            path: reply.to_owned(),
            what: "content",
            theirs,
            ours: hashed,
        })
        .into());
    }
    let remembered = request_path(folder, &head.id);
    if !remembered.is_file() {
        return Err(FheJobError::UnknownRequest {
            id: hushed_fhe::plan::public_plan::hex(&head.id),
            path: folder.to_owned(),
        }
        .into());
    }
    let request: RequestRecord = read(&remembered)?;
    let theirs = Digest(head.request).to_string();
    if theirs != request.content {
        return Err(FheJobError::File(FileError::Other {
            path: reply.to_owned(),
            what: "request",
            theirs,
            ours: request.content,
        })
        .into());
    }
    let places = owned
        .plan
        .places(&owned.params)
        .map_err(FheJobError::from)?;
    let mut lengths = request.tokens.clone();
    lengths.resize(places, 0);
    if let (Some(last), Some(canary)) = (lengths.last_mut(), request.canary) {
        *last = canary;
    }
    let held = hold(folder)?;
    atomic::clear_drafts(&folder.join(RECORD));
    let mut record = KeyRecord::read(folder)?;
    let opening = NotRight {
        request: request.content.clone(),
        reply: hashed,
    };
    let other = |open: &NotRight| open.request == opening.request && *open != opening;
    if record.not_right.iter().any(other) {
        return Err(retired(&record, folder));
    }
    let before = record.decryptions;
    record.decryptions = before.saturating_add(owned.plan.reply.ciphertexts as u64);
    let has_canary = owned.plan.canary.is_some() && request.canary.is_some();
    if has_canary && !record.not_right.contains(&opening) {
        record.not_right.push(opening.clone());
    }
    record.write(folder)?;
    let rows = owner::open(
        &ciphertexts,
        &owned.client,
        &owned.params,
        &folder.join(SECRET),
        before,
        &lengths,
    )
    .map_err(FheJobError::from)?;
    let public = owned.public.public();
    let mut answers: Vec<Option<Vec<f64>>> = rows
        .into_iter()
        .map(|row| row.map(|row| public.finish(row)))
        .collect();
    let canary = match (&owned.plan.canary, request.canary) {
        (Some(canary), Some(_)) => answers.pop().flatten().map(|answer| CanaryOutcome {
            cosine: match public.labels() {
                Some(_) => nearness(&answer, &canary.embedding, length(&canary.embedding)),
                None => cosine(&answer, &canary.embedding),
            },
            least: canary.least_cosine,
        }),
        _ => None,
    };
    if canary.is_some_and(|canary| canary.is_good()) {
        record.not_right.retain(|open| *open != opening);
        record.write(folder)?;
    }
    // A process that wants to encrypt meanwhile waits for the outcome.
    drop(held);
    let texts = request.tokens.len();
    Ok(Answer {
        embeddings: answers.into_iter().take(texts).flatten().collect(),
        tokens: request.tokens,
        head: (owned.plan.answer).and_then(|_| Head::of(&owned.public, owned.plan.rows)),
        rows: owned.plan.answer,
        texts: request.texts,
        labels: public.labels().map(<[String]>::to_vec),
        canary,
        decryptions: record.decryptions,
    })
}

/// SHA-256 of a file, in hexadecimal.
fn hash_of(path: &Path) -> Result<String, ServeError> {
    let hash = || -> io::Result<String> {
        let (mut file, mut hash) = (File::open(path)?, Sha256::new());
        let mut piece = vec![0; 1 << 16];
        loop {
            match file.read(&mut piece)? {
                0 => return Ok(Digest(hash.finalize().into()).to_string()),
                n => hash.update(&piece[..n]),
            }
        }
    };
    let hashed = hash().map_err(FileError::io("read", path));
    Ok(hashed.map_err(FheJobError::from)?)
}

/// As arguments name them.
fn named(lengths: Lengths) -> &'static str {
    match lengths {
        Lengths::Public => "public",
        Lengths::Bucket(_) => "bucket",
        Lengths::Private => "private",
    }
}

fn repetitive(ids: &[u32]) -> bool {
    let mut counts: HashMap<u32, usize> = HashMap::new();
    ids.iter()
        .for_each(|id| *counts.entry(*id).or_default() += 1);
    let most = counts.values().copied().max().unwrap_or(0);
    ids.len() >= REPETITIVE && (2 * most > ids.len() || 4 * counts.len() <= ids.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetition_is_seen() {
        assert!(repetitive(&[7; 16]));
        assert!(!repetitive(&[7; 15]));
        // "a b c a b c …"
        let thrice: Vec<u32> = (0..100).map(|i| i % 3).collect();
        assert!(repetitive(&thrice));
        let halves: Vec<u32> = (0..100).map(|i| i % 50).collect();
        assert!(!repetitive(&halves));
        assert!(!repetitive(&(0..100).collect::<Vec<u32>>()));
    }
}
