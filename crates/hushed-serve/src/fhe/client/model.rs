//! What a client computes with: a run manifest and its public model, read and checked once.

use std::path::Path;

use hushed_fhe::plan::public_plan::Params;
use hushed_fhe::run::client::FheClient;
use hushed_fhe::{AnswerRows, FhePlan};
use hushed_model::{Task, TextError, TokenIds, Tokenizer, TooLong};

use super::keyring::Keyring;
use super::opening::check_keys;
use crate::error::ServeError;
use crate::fhe::{FheJobError, PublicModel, read_plan};

/// The path that errors give for a public model in memory.
const PUBLIC: &str = "<public model>";

/// A run manifest with its public model. It holds no secret, and serves any number of keys and batches.
pub struct ClientModel {
    public: PublicModel,
    client: FheClient,
}

impl ClientModel {
    /// Reads the manifest and its public model from files.
    ///
    /// # Errors
    /// [`FheJobError::Plan`]; [`FheJobError::OtherPublic`], [`FheJobError::BadPublic`]; [`ServeError::File`].
    pub fn read(plan: &Path, public: &Path) -> Result<ClientModel, ServeError> {
        let (plan, params) = read_plan(plan)?;
        let public_model = PublicModel::read(public, &plan.public_sha256)?;
        Self::new(plan, &params, public_model, public)
    }

    /// Decodes both from the bytes of their files.
    ///
    /// # Errors
    /// As [`ClientModel::read`].
    pub fn from_bytes(manifest: &[u8], public: Vec<u8>) -> Result<ClientModel, ServeError> {
        let (plan, params) = FhePlan::from_json(manifest).map_err(FheJobError::from)?;
        let path = Path::new(PUBLIC);
        let public = PublicModel::from_bytes(public, path, &plan.public_sha256)?;
        Self::new(plan, &params, public, path)
    }

    fn new(plan: FhePlan, params: &Params, public: PublicModel, path: &Path) -> Result<ClientModel, ServeError> {
        let (embedding, norm) = (public.embedding().clone(), public.norm().cloned());
        let pool = public.public().pool;
        let classes = public.public().labels().map(<[String]>::len);
        let decodes = public.public().task() == Task::Generate;
        let logits = match plan.answer {
            Some(AnswerRows::Logits) => embedding.tokens.as_ref().map(|table| table.rows()),
            _ => classes,
        };
        if logits != plan.logits || decodes != plan.answer.is_some() {
            let path = path.to_owned();
            return Err(FheJobError::BadPublic { path }.into());
        }
        let client = FheClient::new(plan, params, embedding, norm, pool);
        let client = client.map_err(FheJobError::from)?;
        Ok(ClientModel { public, client })
    }

    /// The manifest.
    #[must_use]
    pub fn plan(&self) -> &FhePlan {
        self.client.plan()
    }

    /// The task of the model.
    #[must_use]
    pub fn task(&self) -> Task {
        self.public.public().task()
    }

    /// The most texts that a batch takes. Fewer fit if texts share places and are long ([`ClientModel::fitting`]).
    ///
    /// # Errors
    /// [`FheJobError::Plan`].
    pub fn places(&self) -> Result<usize, ServeError> {
        let texts = self.plan().texts(self.params());
        Ok(texts.map_err(FheJobError::from)?)
    }

    /// How many texts of these numbers of tokens, from the first on, fit one batch.
    ///
    /// # Errors
    /// [`FheJobError::Plan`].
    pub fn fitting(&self, tokens: &[usize]) -> Result<usize, ServeError> {
        Ok(self.plan().fitting(self.params(), tokens).map_err(FheJobError::from)?)
    }

    /// The number of tokens of a text; errors name its index.
    ///
    /// # Errors
    /// [`FheJobError::TextTooLong`], [`ServeError::Text`].
    pub fn count(&self, index: usize, text: &str, too_long: TooLong) -> Result<usize, ServeError> {
        Ok(self.tokens(index, text, too_long)?.ids().len())
    }

    pub(super) fn params(&self) -> &Params {
        self.client.params()
    }

    pub(super) fn public(&self) -> &PublicModel {
        &self.public
    }

    pub(super) fn client(&self) -> &FheClient {
        &self.client
    }

    /// Checks that keys are for this manifest.
    pub(super) fn check_keys(&self, keys: &impl Keyring) -> Result<(), ServeError> {
        check_keys(self.plan(), keys)
    }

    /// The tokens of a text, within the manifest's rows.
    pub(super) fn tokens(&self, index: usize, text: &str, too_long: TooLong) -> Result<TokenIds, ServeError> {
        let public = self.public.public();
        let limit = public.max_tokens.min(self.plan().rows);
        let tokenizer = public.tokenizer();
        let tokenizer = tokenizer.map_err(|source| ServeError::Text { index, source })?;
        encoded(tokenizer, index, text, limit, too_long)
    }

    pub(super) fn canary(&self) -> Result<Option<TokenIds>, ServeError> {
        let canary = self.plan().canary.as_ref();
        let texts = canary.map(|canary| self.tokens(0, &canary.text, TooLong::Refuse));
        texts.transpose()
    }
}

/// The tokens of text `index`, at most `limit`.
pub(super) fn encoded(
    tokenizer: &Tokenizer,
    index: usize,
    text: &str,
    limit: usize,
    too_long: TooLong,
) -> Result<TokenIds, ServeError> {
    let tokens = tokenizer.encode(text, limit, too_long);
    tokens.map_err(|source| match source {
        TextError::TooLong { tokens, limit } => FheJobError::TextTooLong { index, tokens, limit }.into(),
        source => ServeError::Text { index, source },
    })
}
