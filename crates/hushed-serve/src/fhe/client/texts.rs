//! The owner of a secret key encrypts texts and decrypts replies. Nothing derived from a decrypted reply leaves this
//! module for a server.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use hushed_fhe::files::atomic::{Access, AtomicFile, Target};
use hushed_fhe::files::chunked::open_file;
use hushed_fhe::files::{atomic, exchange, owner};
use hushed_fhe::plan::public_plan::{AnswerRows, FhePlan, Lengths, hex};
use hushed_fhe::run::client::Upload;
use hushed_model::tokens::Decoder;
use hushed_model::{
    Matrix, ProblemType, StepId, TokenIds, Tokenizer, TooLong, cosine, length, likeliest, likeliest_of, nearness, same,
};
use sha2::{Digest as _, Sha256};

use super::held::RequestRecord;
use super::keyring::{FolderKeys, Keyring};
use super::model::{ClientModel, encoded};
use super::opening::{Closed, check_usable};
use super::warning::{Warning, repetitive};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::record::VERSION;
use crate::fhe::{FheJobError, PublicModel, system};

/// Present in every binary that has this code: the build test of the server-only binary looks for it.
#[used]
static MARKER: [u8; 27] = *b"hushed-serve fhe owner here";

/// An encrypted batch.
#[derive(Clone, Debug)]
pub struct Encrypted {
    /// The request's id, in hexadecimal.
    pub id: String,
    /// The name of its content.
    pub content: Digest,
    /// Size of its file in bytes.
    pub bytes: u64,
    /// Tokens of each text.
    pub tokens: Vec<usize>,
    /// The lengths declared to the server, by place.
    pub declared: Vec<usize>,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

/// Whether the canary's answer is the published one. Only the client may know.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanaryOutcome {
    /// The cosine to the published answer; for logits, the nearness.
    pub cosine: f64,
    /// The least that it must be.
    pub least: f64,
}

impl CanaryOutcome {
    /// Whether the answer is as published. If so, no fault and no overflow affected the whole batch; it says nothing
    /// about a server that cheats on single places.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.cosine >= self.least
    }
}

/// A decrypted reply.
#[derive(Clone)]
pub struct Answer {
    /// The embedding of each text, its logits, or a decoder's hidden states or logits, in order.
    pub embeddings: Vec<Vec<f64>>,
    /// Turns hidden states or logits into next tokens, if the model is a decoder.
    pub head: Option<Head>,
    /// What a decoder's answer is: hidden states of these rows, one after another, or logits.
    pub rows: Option<AnswerRows>,
    /// SHA-256 of the texts' token ids, in hexadecimal.
    pub(super) texts: Option<String>,
    /// Names of the logits, if the model is a classifier.
    pub labels: Option<Vec<String>>,
    /// What the logits say of a classifier's classes.
    pub problem: ProblemType,
    /// Tokens of each text.
    pub tokens: Vec<usize>,
    /// The canary's outcome, if the manifest has a canary.
    pub canary: Option<CanaryOutcome>,
    /// Ciphertexts decrypted with this key so far.
    pub decryptions: u64,
}

impl Answer {
    /// Refuses the answers of a batch whose canary is wrong.
    ///
    /// # Errors
    /// [`FheJobError::WrongCanary`].
    pub fn check_canary(&self) -> Result<(), ServeError> {
        match self.canary.filter(|canary| !canary.is_good()) {
            Some(canary) => Err(FheJobError::WrongCanary { found: canary.cosine, least: canary.least }.into()),
            None => Ok(()),
        }
    }
}

/// Turns a decoder's answers into next tokens: from hidden states by its public table of token vectors, which is also
/// the head, or from logits.
#[derive(Clone)]
pub struct Head {
    pub(super) table: Arc<Matrix<f32>>,
    answer: AnswerRows,
    text: Decoder,
    tokenizer: Tokenizer,
    /// Maximum tokens per text.
    limit: usize,
}

/// A token that may come next. No `Debug`: it is the private answer.
#[derive(Clone)]
pub struct Likely {
    /// Its id.
    pub id: u32,
    /// Its text; empty for a special token.
    pub text: String,
    /// The natural logarithm of its probability among all tokens.
    pub log_probability: f64,
}

impl Head {
    /// `None` for an encoder.
    pub(super) fn of(public: &PublicModel, plan: &FhePlan) -> Option<Head> {
        let tokenizer = public.public().tokenizer().ok()?;
        Some(Head {
            table: Arc::clone(public.embedding().tokens.as_ref()?),
            answer: plan.answer?,
            text: tokenizer.decoder()?,
            tokenizer: tokenizer.clone(),
            limit: public.public().max_tokens.min(plan.rows),
        })
    }

    /// What an answer holds: which rows, or logits.
    #[must_use]
    pub fn answer(&self) -> AnswerRows {
        self.answer
    }

    /// Numbers per row: the model's columns or, if they are logits, its tokens.
    pub(super) fn width(&self) -> usize {
        match self.answer {
            AnswerRows::Logits => self.table.rows(),
            AnswerRows::Last | AnswerRows::Rows => self.table.cols(),
        }
    }

    /// The tokens of a text as they were encrypted.
    pub(super) fn tokens(&self, index: usize, text: &str, too_long: TooLong) -> Result<TokenIds, ServeError> {
        encoded(&self.tokenizer, index, text, self.limit, too_long)
    }

    /// The likeliest next tokens of a text, at most `most`, from its last row (a hidden state or logits).
    ///
    /// # Errors
    /// [`ServeError::Model`] if the row has another width.
    pub fn likeliest(&self, last: &[f64], most: usize) -> Result<Vec<Likely>, ServeError> {
        let found = match self.answer {
            AnswerRows::Logits => {
                let at = StepId::outside("head");
                same(at, "logits", last.len(), self.width())?;
                likeliest_of(last, most)
            }
            AnswerRows::Last | AnswerRows::Rows => likeliest(&self.table, last, most)?,
        };
        let found = found.into_iter();
        let named = found.map(|(id, log_probability)| {
            let mut decoder = self.text.clone();
            let text = decoder.push(id) + decoder.finish();
            Likely { id, text, log_probability }
        });
        Ok(named.collect())
    }
}

/// SHA-256 of the token ids of texts, each preceded by their number.
pub(super) fn hash_of_ids(texts: &[TokenIds]) -> Digest {
    let mut hash = Sha256::new();
    for text in texts {
        hash.update((text.ids().len() as u64).to_le_bytes());
        text.ids().iter().for_each(|id| hash.update(id.to_le_bytes()));
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
    /// The file to write.
    pub out: &'a Path,
}

/// Encrypts texts into a file. `progress` is called with the number of ciphertexts done and their total.
///
/// # Errors
/// [`ServeError::Text`] or [`FheJobError::TextTooLong`] if a text cannot be sent, [`FheJobError::TooManyTexts`]; also
/// if a file belongs to another manifest, keys are expired or retired, or there is no room.
pub fn encrypt(options: &EncryptOptions<'_>, progress: &mut dyn FnMut(usize, usize)) -> Result<Encrypted, ServeError> {
    let mut keys = FolderKeys::open(options.keys, options.plan)?.released();
    let model = ClientModel::read(options.plan, options.public)?;
    let texts = Texts { texts: options.texts, too_long: options.too_long, lengths: options.lengths };
    let prepared = texts.prepare(&model, &keys)?;
    let out = options.out;
    atomic::refuse_existing(out).map_err(FheJobError::from)?;
    system::check_room(out.parent().unwrap_or(Path::new(".")), prepared.bytes)?;
    let file = AtomicFile::create(out, Access::Usual).map_err(FheJobError::from)?;
    let encrypted = prepared.encrypt(file, out, &mut keys, progress);
    if encrypted.is_err() {
        // Leave no request whose reply could not be decrypted.
        let _ = std::fs::remove_file(out);
    }
    encrypted
}

/// Texts to encrypt.
#[derive(Clone, Copy)]
pub struct Texts<'a> {
    /// The texts.
    pub texts: &'a [String],
    /// What to do with texts that are too long.
    pub too_long: TooLong,
    /// What the server may learn of lengths (`public`, `bucket`, `private`); a manifest that says otherwise is refused.
    pub lengths: Option<&'static str>,
}

/// Texts ready to be encrypted. No `Debug`: it holds their contents as numbers.
pub(super) struct Prepared<'a> {
    upload: Upload<'a>,
    tokens: Vec<usize>,
    /// [`hash_of_ids`].
    ids: Digest,
    canary: Option<usize>,
    warnings: Vec<Warning>,
    /// Size of the request.
    bytes: u64,
}

impl Texts<'_> {
    /// Makes all checks that can refuse texts.
    pub(super) fn prepare<'m>(&self, model: &'m ClientModel, keys: &impl Keyring) -> Result<Prepared<'m>, ServeError> {
        check_usable(model.plan(), keys)?;
        let (plan, params, client) = (model.plan(), model.params(), model.client());
        let planned = named(plan.lengths);
        if let Some(asked) = self.lengths.filter(|asked| *asked != planned) {
            return Err(FheJobError::OtherLengths { planned, asked }.into());
        }
        client.check_bound().map_err(FheJobError::from)?;
        let limit = plan.texts(params).map_err(FheJobError::from)?;
        let (texts, too_long) = (self.texts, self.too_long);
        if texts.len() > limit {
            let texts = texts.len();
            return Err(FheJobError::TooManyTexts { texts, limit }.into());
        }
        let mut warnings = Vec::new();
        let mut tokens = Vec::with_capacity(texts.len());
        for (text, content) in texts.iter().enumerate() {
            let ids = model.tokens(text, content, too_long)?;
            if too_long != TooLong::Refuse && model.tokens(text, content, TooLong::Refuse).is_err() {
                warnings.push(Warning::Cut { text });
            }
            if repetitive(ids.ids()) {
                warnings.push(Warning::Repetitive { text });
            }
            tokens.push(ids);
        }
        let canary = model.canary()?;
        let counts: Vec<usize> = tokens.iter().map(|ids| ids.ids().len()).collect();
        let limit = model.fitting(&counts)?;
        if counts.len() > limit {
            return Err(FheJobError::TooManyTexts { texts: counts.len(), limit }.into());
        }
        let upload = client.pack(&tokens, canary.as_ref());
        Ok(Prepared {
            upload: upload.map_err(FheJobError::from)?,
            tokens: counts,
            ids: hash_of_ids(&tokens),
            canary: canary.map(|ids| ids.ids().len()),
            warnings,
            bytes: exchange::request_bytes(plan, params).map_err(FheJobError::from)?,
        })
    }
}

impl Prepared<'_> {
    /// Encrypts to `out`, which errors call `path`, and stores the request's record with the keys.
    pub(super) fn encrypt(
        self,
        out: impl Target,
        path: &Path,
        keys: &mut impl Keyring,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Encrypted, ServeError> {
        let (params, record) = (self.upload.client().params(), keys.record());
        let (set, secret) = (record.hash(), keys.secret(params, record.decryptions)?);
        let encrypted = owner::encrypt(out, path, &secret, set, &self.upload, progress);
        let owner::Encrypted { id, content, whole } = encrypted.map_err(FheJobError::from)?;
        let record = RequestRecord {
            version: VERSION,
            content: Digest(content).to_string(),
            tokens: self.tokens.clone(),
            canary: self.canary,
            texts: Some(self.ids.to_string()),
        };
        // Recorded first: a server must not run for hours for a reply that nobody can decrypt.
        keys.remember(&id, record)?;
        whole.complete().map_err(FheJobError::from)?;
        Ok(Encrypted {
            id: hex(&id),
            content: Digest(content),
            bytes: self.bytes,
            tokens: self.tokens,
            declared: self.upload.declared(),
            warnings: self.warnings,
        })
    }
}

/// Decrypts a reply. The key's count of decryptions is saved before the first.
///
/// A canary whose answer is not the published one retires the keys: nothing is encrypted for them any more. A server
/// that makes answers wrong depending on the secret key, and learns each time whether the client comes back, would
/// learn the key bit by bit. The keys count as retired from before the decryption until the canary of that very reply
/// is seen to be right. So no crash or full disk leaves them in use, and a better reply that a server sends afterwards
/// does not bring them back: another reply to such a request is not decrypted. The same holds for a reply that is not
/// of the shape of an honest one, with a canary or without.
///
/// # Errors
/// [`FheError::ReplyShape`]; [`FheJobError::File`] if the reply is damaged or belongs to another manifest or other
/// keys, [`FheJobError::UnknownRequest`], [`FheJobError::RetiredKeys`].
pub fn decrypt(plan: &Path, public: &Path, folder: &Path, reply: &Path) -> Result<Answer, ServeError> {
    // A process that wants to encrypt meanwhile waits for the outcome.
    let mut keys = FolderKeys::open(folder, plan)?;
    let model = ClientModel::read(plan, public)?;
    let source = open_file(reply).map_err(FheJobError::from)?;
    decrypt_with(&model, &mut keys, source, reply)
}

/// [`decrypt`] from a source and its size in bytes; errors call it `path`.
pub(super) fn decrypt_with(
    model: &ClientModel,
    keys: &mut impl Keyring,
    source: (impl Read, u64),
    path: &Path,
) -> Result<Answer, ServeError> {
    model.check_keys(keys)?;
    let (plan, params) = (model.plan(), model.params());
    let closed = Closed::read((plan, params), keys, source, path)?;
    let request = &closed.request;
    let arranged = plan.arranged(params, &request.tokens, request.canary).map_err(FheJobError::from)?;
    let secret = closed.counted(params, keys)?;
    let rows = owner::open(&closed.ciphertexts, model.client(), &secret, &arranged.lengths);
    let rows = rows.map_err(FheJobError::from)?;
    let public = model.public().public();
    let mut answers: Vec<Option<Vec<f64>>> = rows.into_iter().map(|row| row.map(|row| public.finish(row))).collect();
    let mut take = |at: usize| answers.get_mut(at).and_then(Option::take);
    let canary = match (&plan.canary, arranged.canary) {
        (Some(canary), Some(at)) => take(at).map(|answer| CanaryOutcome {
            cosine: match public.labels() {
                Some(_) => nearness(&answer, &canary.embedding, length(&canary.embedding)),
                None => cosine(&answer, &canary.embedding),
            },
            least: canary.least_cosine,
        }),
        _ => None,
    };
    // Without a canary only the shape of the reply was looked at.
    let has_canary = plan.canary.is_some() && request.canary.is_some();
    if canary.map_or(!has_canary, |canary| canary.is_good()) {
        closed.right(keys)?;
    }
    Ok(Answer {
        embeddings: arranged.texts.into_iter().filter_map(take).collect(),
        tokens: request.tokens.clone(),
        head: Head::of(model.public(), plan),
        rows: plan.answer,
        texts: request.texts.clone(),
        labels: public.labels().map(<[String]>::to_vec),
        problem: public.config.problem,
        canary,
        decryptions: keys.record().decryptions,
    })
}

/// The names used in arguments.
fn named(lengths: Lengths) -> &'static str {
    match lengths {
        Lengths::Public => "public",
        Lengths::Bucket(_) => "bucket",
        Lengths::Private => "private",
    }
}
