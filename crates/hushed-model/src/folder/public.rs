//! The public part of a model: sizes, tokenizer, pooling. A server offers these files; a client needs no others.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::SystemTime;

use crate::arch::config::NetworkConfig;
use crate::arch::{Architecture, Task};
use crate::blocks::Pool;
use crate::error::{FolderError, ImageError, ModelError, Problem, TextError};
use crate::folder::chat::{self, CHAT, MAX_CHAT_BYTES};
use crate::folder::config::ends::{self, GENERATION};
use crate::folder::config::labels::ProblemType;
use crate::folder::config::scores::{self, ScoreFn};
use crate::folder::config::{self, CONFIG};
use crate::folder::declared::{self, FUNCTIONS};
use crate::folder::pooling::{self, MODULES, Matryoshka, NORMALIZE, POOLING, PROMPTS, SENTENCE, Similarity};
use crate::folder::small::{read_small, without_indentation};
use crate::folder::vision::{self, PREPROCESSOR};
use crate::graph::Graph;
use crate::images::{Pixels, Preprocess};
use crate::tokens::chat::{ChatError, ChatTemplate, Message, Prompt};
use crate::tokens::{TOKENIZER, TokenIds, Tokenizer, TooLong, head};

/// Name in the folder, and size limit in bytes.
const FILES: &[(&str, u64)] = &[
    (CONFIG, 1 << 20),
    (TOKENIZER, 64 << 20),
    (PREPROCESSOR, 1 << 16),
    (MODULES, 1 << 20),
    (POOLING, 1 << 20),
    (NORMALIZE, 1 << 16),
    (SENTENCE, 1 << 20),
    (PROMPTS, 1 << 20),
    (FUNCTIONS, 1 << 17),
    (CHAT, MAX_CHAT_BYTES),
    (GENERATION, 1 << 20),
];
/// Names that `sentence-transformers` once gave to [`SENTENCE`].
const SENTENCE_BEFORE: [&str; 6] = [
    "sentence_roberta_config.json",
    "sentence_distilbert_config.json",
    "sentence_camembert_config.json",
    "sentence_albert_config.json",
    "sentence_xlm-roberta_config.json",
    "sentence_xlnet_config.json",
];
/// A larger file is kept without its indentation.
const MOST_INDENTED: usize = 8 << 20;
/// What to do if a required file is missing.
const NO_CONFIG: &str = "point to a Hugging Face model folder";
const NO_TOKENIZER: &str = "only fast tokenizers are read; save the tokenizer with `save_pretrained` of a fast one";
const NO_PREPROCESSOR: &str = "it says how images become numbers; save the image processor with `save_pretrained`";

/// The public files of a model as bytes, sorted by name.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicFiles {
    files: BTreeMap<&'static str, Vec<u8>>,
}

/// The parsed and checked public files.
#[derive(Clone)]
pub struct Public {
    /// Sizes of the layers.
    pub config: NetworkConfig,
    /// Text to token ids, if the model reads text.
    tokenizer: Option<Tokenizer>,
    /// Images to patches, if the model reads images.
    pub images: Option<Preprocess>,
    /// How rows are pooled into one.
    pub pool: Pool,
    /// Whether the answer is scaled to unit length.
    pub normalise: bool,
    /// Longest input in tokens, including the two special ones; for a generator, of the text and its continuation.
    pub max_tokens: usize,
    /// What a head of one number is made into.
    pub score: ScoreFn,
    /// The tokens that end a generated text.
    pub end_tokens: Vec<u32>,
    /// Texts that a caller may put before its own, by name (`query`, `document`); none is added automatically.
    pub prompts: BTreeMap<String, String>,
    /// How embeddings are compared.
    pub similarity: Similarity,
    /// To which lengths an embedding may be cut.
    pub matryoshka: Matryoshka,
    /// Whether a prompt before a text is pooled with it. If not, a text after a prompt would get another answer here
    /// than from the published model.
    pub pools_prompts: bool,
    /// How a conversation becomes a text, if the model was trained on conversations.
    chat: Option<ChatTemplate>,
    /// The token that begins a text by the configuration, whether or not the tokenizer puts it there.
    begin: Option<u32>,
    head: OnceLock<Vec<u32>>,
}

impl PublicFiles {
    /// Reads those of the files that are in the folder.
    pub fn read(folder: &Path) -> Result<PublicFiles, FolderError> {
        let mut problems = Vec::new();
        let files = PublicFiles::read_into(folder, &mut problems);
        if problems.is_empty() { Ok(files) } else { Err(FolderError { folder: folder.to_owned(), problems }) }
    }

    /// As [`PublicFiles::read`], adding to a list of problems.
    pub(crate) fn read_into(folder: &Path, problems: &mut Vec<Problem>) -> PublicFiles {
        let mut files = BTreeMap::new();
        if Graph::is_in(folder) {
            problems.push(Problem::IsGraph);
        }
        for &(name, limit) in FILES.iter().filter(|(name, _)| *name != CHAT) {
            match read_small(&folder.join(name), name, limit) {
                Ok(Some(bytes)) => {
                    // Some files of several megabytes are as large only because they are indented.
                    let bytes = if bytes.len() > MOST_INDENTED { without_indentation(&bytes) } else { bytes };
                    files.insert(name, bytes);
                }
                Ok(None) => {}
                Err(problem) => problems.push(problem),
            }
        }
        for older in SENTENCE_BEFORE {
            if !files.contains_key(SENTENCE)
                && let Ok(Some(bytes)) = read_small(&folder.join(older), older, 1 << 20)
            {
                files.insert(SENTENCE, bytes);
            }
        }
        // A decoder beside modules.json embeds.
        let generates = files.get(CONFIG).is_some_and(|b| config::generates(b)) && !files.contains_key(MODULES);
        if !generates {
            files.remove(GENERATION);
        }
        if !files.get(CONFIG).is_some_and(|b| config::sees(b))
            && let Some(bytes) = chat::read(folder, generates, &files, problems)
        {
            files.insert(CHAT, bytes);
        }
        PublicFiles { files }
    }

    /// Takes files from elsewhere (a bundle). Refuses names that are not a model's, and sizes beyond the limits.
    pub fn from_files(given: impl IntoIterator<Item = (String, Vec<u8>)>) -> Result<PublicFiles, FolderError> {
        let (mut files, mut problems) = (BTreeMap::new(), Vec::new());
        for (name, bytes) in given {
            match FILES.iter().find(|(known, _)| *known == name) {
                Some(&(known, limit)) if bytes.len() as u64 <= limit => {
                    files.insert(known, bytes);
                }
                Some(&(_, limit)) => problems.push(Problem::TooLarge { file: name, bytes: bytes.len() as u64, limit }),
                None => problems.push(Problem::UnsupportedValue {
                    file: "the bundle".to_owned(),
                    field: "file name",
                    value: name.chars().take(60).collect(),
                    supported: "the public files of a model folder".into(),
                }),
            }
        }
        if problems.is_empty() { Ok(PublicFiles { files }) } else { Err(bundle(problems)) }
    }

    /// Names and bytes, sorted by name, as in a bundle.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (*name, bytes.as_slice()))
    }

    /// Whether `config.json` names an architecture that is not known.
    pub(crate) fn are_of_unknown_architecture(&self) -> bool {
        self.files.get(CONFIG).is_some_and(|b| config::is_of_unknown_architecture(b))
    }

    /// Checks all files and reports every problem at once.
    pub fn parse(&self) -> Result<Public, FolderError> {
        let mut problems = Vec::new();
        let public = self.parse_into(&mut problems);
        public.ok_or_else(|| bundle(problems))
    }

    /// As [`PublicFiles::parse`], adding to a list of problems; `None` if and only if this list is then not empty.
    pub(crate) fn parse_into(&self, problems: &mut Vec<Problem>) -> Option<Public> {
        let bytes = |name: &str| self.files.get(name).map(Vec::as_slice);
        let mut config = bytes(CONFIG).and_then(|b| NetworkConfig::parse(b, problems));
        // What the other files of an unknown architecture should be, nobody knows.
        if self.are_of_unknown_architecture() {
            return None;
        }
        let sees = match &config {
            Some(config) => config.architecture.sees(),
            None => bytes(CONFIG).is_some_and(config::sees),
        };
        let reads = match sees {
            true => (PREPROCESSOR, NO_PREPROCESSOR),
            false => (TOKENIZER, NO_TOKENIZER),
        };
        for (file, hint) in [(CONFIG, NO_CONFIG), reads] {
            if bytes(file).is_none() && !problems.iter().any(|p| mentions(p, file)) {
                problems.push(Problem::MissingFile { file: file.to_owned(), hint });
            }
        }
        let declared = bytes(FUNCTIONS).and_then(|b| declared::parse(b, problems));
        if let (Some(config), Some(declared)) = (&mut config, declared) {
            config.tolerance = Some(declared.activation);
            config.norms = declared.norms;
        }
        let modules = bytes(MODULES).and_then(|b| pooling::modules(b, problems));
        let pooled = modules.is_some_and(|m| m.pooled);
        if let Some(config) = &mut config {
            config.pooled = pooled && config.architecture.pools_like_llama();
        }
        // Without a configuration the tokenizer is still checked, with no limit on its ids.
        let vocabulary = config.as_ref().map_or(usize::MAX, |c| c.vocabulary);
        let padding_id = config.as_ref().and_then(|c| c.padding_id);
        let task = match &config {
            Some(config) => config.task(),
            None if bytes(CONFIG).is_some_and(config::generates) => Task::Generate,
            None => Task::Embed,
        };
        let tokenizer = bytes(TOKENIZER)
            .filter(|_| !sees)
            .and_then(|b| Tokenizer::parse(b, vocabulary, padding_id, task, problems));
        let images = bytes(PREPROCESSOR)
            .filter(|_| sees)
            .and_then(|b| vision::preprocess(b, config.as_ref().map(sides), problems));
        if let (Some(config), Some(tokenizer)) = (&config, &tokenizer) {
            positions_fit(config, tokenizer, problems);
        }
        // A cross-encoder has a classifier's head where a sentence encoder has pooling.
        let cross = config.as_ref().is_some_and(|c| c.labels.is_some())
            && modules.is_some_and(|m| !m.pooled)
            && bytes(SENTENCE).is_some_and(pooling::is_of_cross_encoder);
        if let (Some(config), Some(_)) = (&mut config, bytes(MODULES).filter(|_| !cross)) {
            if task == Task::Generate || sees {
                problems.push(Problem::UnsupportedValue {
                    file: CONFIG.to_owned(),
                    field: "model_type",
                    value: "a decoder without Pooling, GPT-2 or a model of images".to_owned(),
                    supported: "an encoder of text, or a decoder like LLaMA with Pooling, beside modules.json".into(),
                });
            }
            // A sentence encoder, whatever it was derived from.
            if config.labels.is_some() && modules.is_some_and(|m| !m.pooled) {
                problems.push(Problem::UnsupportedValue {
                    file: MODULES.to_owned(),
                    field: "type",
                    value: "one module and a classifier, whose sentence_bert_config.json is no cross-encoder's"
                        .to_owned(),
                    supported: "a sentence encoder or a cross-encoder beside modules.json, a classifier without it"
                        .into(),
                });
            }
            config.labels = None;
            config.problem = ProblemType::default();
        }
        // Pooling takes the rows before any head.
        if let (Some(read), Some(b)) = (&config, bytes(CONFIG))
            && read.architecture.encoder().is_some()
            && let Some(value) = config::other_head(b, read.architecture)
            && !pooled
        {
            problems.push(Problem::UnsupportedValue {
                file: CONFIG.to_owned(),
                field: "architectures",
                value,
                supported:
                    "an encoder (…Model, …ForMaskedLM) or a classifier of single texts (…ForSequenceClassification)"
                        .into(),
            });
        }
        let classifies = config.as_ref().is_some_and(|c| c.labels.is_some());
        let mut pools_prompts = true;
        let mut pool = match task {
            _ if classifies || sees => Pool::First,
            Task::Generate => Pool::Last,
            _ if config.as_ref().is_some_and(|c| c.architecture == Architecture::ClipText) => Pool::Last,
            _ => Pool::Mean, // as sentence-transformers does if the folder says nothing
        };
        if pooled {
            match bytes(POOLING) {
                Some(b) => {
                    let width = config.as_ref().map(|c| c.width);
                    if let Some(found) = pooling::pooling(b, width, problems) {
                        pool = found;
                        pools_prompts = pooling::pools_prompts(b, problems);
                    }
                }
                None if problems.iter().any(|p| mentions(p, POOLING)) => {}
                None => problems.push(Problem::MissingFile { file: POOLING.to_owned(), hint: "modules.json names it" }),
            }
        }
        if let Some(b) = bytes(NORMALIZE).filter(|_| modules.is_some_and(|m| m.normalise)) {
            pooling::normalize(b, problems);
        }
        let matryoshka = match (bytes(CONFIG), &config) {
            (Some(b), Some(config)) => pooling::matryoshka(b, config.width, problems),
            _ => Matryoshka::No,
        };
        let sentence = bytes(SENTENCE).and_then(|b| pooling::sentence(b, cross, problems)).unwrap_or_default();
        if sentence.lower_case && tokenizer.as_ref().is_some_and(|t| !t.lower_case()) {
            problems.push(Problem::UnsupportedValue {
                file: SENTENCE.to_owned(),
                field: "do_lower_case",
                value: "true".to_owned(),
                supported: "false, or a tokenizer that lowers the case itself".into(),
            });
        }
        let published = bytes(PROMPTS).map(|b| pooling::published(b, cross, problems)).unwrap_or_default();
        let (chat, longest) = bytes(CHAT).map(|b| chat::parse(b, problems)).unwrap_or_default();
        let ends = bytes(GENERATION)
            .filter(|_| task == Task::Generate)
            .and_then(|b| ends::of_generation(b, config.as_ref().map(|c| c.vocabulary), problems));
        let score = match bytes(CONFIG).filter(|_| config.as_ref().is_some_and(NetworkConfig::scores)) {
            Some(b) => scores::parse(b, bytes(PROMPTS).filter(|_| cross), problems),
            None => ScoreFn::Identity,
        };
        if !problems.is_empty() {
            return None;
        }
        let config = config?;
        let max_tokens = sentence.max_tokens.or(longest).unwrap_or(config.positions).min(config.positions);
        let begin = bytes(CONFIG).filter(|_| task == Task::Generate);
        Some(Public {
            begin: begin.and_then(|b| ends::begin(b, config.vocabulary)),
            head: OnceLock::new(),
            end_tokens: ends.unwrap_or_else(|| config.end_tokens.clone()),
            config,
            tokenizer,
            images,
            pool,
            normalise: modules.is_some_and(|m| m.normalise),
            score,
            max_tokens,
            prompts: published.prompts,
            similarity: published.similarity,
            matryoshka,
            pools_prompts,
            chat: chat.filter(|_| task == Task::Generate),
        })
    }
}

impl Public {
    /// What the model is used for.
    pub fn task(&self) -> Task {
        self.config.task()
    }

    /// The token ids of a text, within the model's limit; between special tokens unless the text is to be continued.
    pub fn tokens(&self, text: &str, too_long: TooLong) -> Result<TokenIds, ModelError> {
        Ok(self.tokenizer()?.encode(text, self.max_tokens, too_long)?)
    }

    /// Whether a classifier reads pairs of texts.
    pub fn reads_pairs(&self) -> bool {
        self.task() == Task::Classify && self.tokenizer.as_ref().is_some_and(Tokenizer::reads_pairs)
    }

    /// The token ids of two texts that a classifier reads as one input, within the model's limit.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode_pair`].
    pub fn pair(&self, texts: [&str; 2], too_long: TooLong) -> Result<TokenIds, ModelError> {
        if !self.reads_pairs() {
            return Err(TextError::NoPairs.into());
        }
        Ok(self.tokenizer()?.encode_pair(texts, self.max_tokens, too_long)?)
    }

    /// Renders a conversation as a text to continue.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn chat(&self, messages: &[Message]) -> Result<Prompt, ChatError> {
        let template = self.chat.as_ref().ok_or(ChatError::NoTemplate)?;
        template.render(messages, self.tokenizer()?)
    }

    /// The same at another time than now.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn chat_at(&self, messages: &[Message], now: SystemTime) -> Result<Prompt, ChatError> {
        let template = self.chat.as_ref().ok_or(ChatError::NoTemplate)?;
        template.render_at(messages, self.tokenizer()?, now)
    }

    /// Checks that conversations can be rendered.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn check_chat(&self) -> Result<(), ChatError> {
        let template = self.chat.as_ref().ok_or(ChatError::NoTemplate)?;
        template.check(self.tokenizer()?)
    }

    /// The token ids of a text that others follow ([`Tokenizer::encode_behind`]), leaving room for one token of these.
    ///
    /// # Errors
    /// [`ModelError::NotAGenerator`]; [`ModelError::Text`] if the text is empty or too long.
    pub fn prefix(&self, text: &str) -> Result<TokenIds, ModelError> {
        if self.task() != Task::Generate {
            return Err(ModelError::NotAGenerator);
        }
        let limit = self.max_tokens.saturating_sub(1);
        Ok(self.tokenizer()?.encode(text, limit, TooLong::Refuse)?)
    }

    /// The public head of a generator's texts ([`TokenIds::public_rows`]): the tokens that every conversation begins
    /// with, if the folder has a chat template, or else the token that begins every text. Empty for other models, and
    /// where the folder names no such token.
    #[must_use]
    pub fn head(&self) -> &[u32] {
        self.head.get_or_init(|| {
            let Some(tokenizer) = self.tokenizer.as_ref().filter(|_| self.task() == Task::Generate) else {
                return Vec::new();
            };
            let chat = self.chat.as_ref().map(|template| head::of_chat(template, tokenizer));
            let mut head = match chat.filter(|head| !head.is_empty()) {
                Some(head) => head,
                None => tokenizer.first().or(self.begin).into_iter().collect(),
            };
            head.truncate(self.max_tokens.saturating_sub(1));
            head
        })
    }

    /// The token that begins a text, put before it if it is not there.
    ///
    /// # Errors
    /// [`TextError::NoBegin`] if the folder names none.
    pub fn begun(&self, text: TokenIds) -> Result<TokenIds, TextError> {
        let first = *self.head().first().ok_or(TextError::NoBegin)?;
        match text.ids().first() == Some(&first) {
            true => Ok(text),
            false => Ok(text.behind_token(first)),
        }
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`TextError::NoText`] if the model reads images.
    pub fn tokenizer(&self) -> Result<&Tokenizer, TextError> {
        self.tokenizer.as_ref().ok_or(TextError::NoText)
    }

    /// Preprocesses a PNG or JPEG file into the model's input.
    ///
    /// # Errors
    /// [`ImageError`]; [`ImageError::NoImages`] if the model reads text.
    pub fn image(&self, file: &[u8]) -> Result<Pixels, ImageError> {
        let images = self.images.as_ref().ok_or(ImageError::NoImages)?;
        images.read(file)
    }

    /// Names of the numbers in the answer, if the model is a classifier.
    pub fn labels(&self) -> Option<&[String]> {
        self.config.labels.as_deref()
    }

    /// From the pooled row to the answer: scales to unit length if the model does (a row of zeros stays zero).
    pub fn finish(&self, mut pooled: Vec<f64>) -> Vec<f64> {
        let length = pooled.iter().map(|v| v * v).sum::<f64>().sqrt();
        if self.normalise && length > 0.0 {
            pooled.iter_mut().for_each(|v| *v /= length);
        }
        pooled
    }
}

/// Sides of an image and of a patch, in pixels.
fn sides(config: &NetworkConfig) -> (usize, usize) {
    let across = config.positions.saturating_sub(1).isqrt();
    (across * config.patch_side, config.patch_side)
}

/// Positions that count on from the padding id require that it is the tokenizer's.
fn positions_fit(config: &NetworkConfig, tokenizer: &Tokenizer, problems: &mut Vec<Problem>) {
    let padding = tokenizer.padding_id();
    if let (1.., Some(id)) = (config.first_position, config.padding_id)
        && id != padding
    {
        problems.push(Problem::SpecialTokenDiffers {
            token: tokenizer.padding().to_owned(),
            tokenizer: padding,
            config: id,
        });
    }
}

fn bundle(problems: Vec<Problem>) -> FolderError {
    FolderError { folder: PathBuf::from("(its public files)"), problems }
}

fn mentions(problem: &Problem, name: &str) -> bool {
    match problem {
        Problem::MissingFile { file, .. }
        | Problem::Unreadable { file, .. }
        | Problem::BrokenLink { file, .. }
        | Problem::TooLarge { file, .. } => file == name,
        _ => false,
    }
}
