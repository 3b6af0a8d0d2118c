//! Reports whether a folder is supported, with every reason why not.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use crate::arch::{self, Architecture, Task};
use crate::blocks::Pool;
use crate::error::{FolderError, Problem};
use crate::folder::chat::CHAT as TOKENIZER_CONFIG;
use crate::folder::config::ends::GENERATION;
use crate::folder::config::labels::ProblemType;
use crate::folder::config::{self, CONFIG};
use crate::folder::declared::FUNCTIONS;
use crate::folder::fields;
use crate::folder::json::without_mark;
use crate::folder::pooling::{MODULES, NORMALIZE, POOLING, PROMPTS, SENTENCE};
use crate::folder::public::{Public, PublicFiles};
use crate::folder::small::read_small;
use crate::folder::vision::PREPROCESSOR;
use crate::folder::weights::Weights;
use crate::layers::Checking;

/// The report of `hushed check`.
#[derive(Debug)]
pub struct Report {
    /// The folder.
    pub folder: PathBuf,
    /// Empty if the folder is supported.
    pub problems: Vec<Problem>,
    /// Fields that nothing here reads and no version of a library is known to write.
    pub warnings: Vec<Warning>,
    /// A summary, if the folder is supported.
    pub summary: Option<Summary>,
}

/// A field that no list has, so that nobody knows whether it changes an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: the field `{field}` is unknown and was not read; does an answer depend on it?")]
pub struct Warning {
    /// Path inside the folder.
    pub file: &'static str,
    /// Its name, shortened.
    pub field: String,
}

/// A supported model in a few numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Layers.
    pub layers: usize,
    /// Columns of the activations, and of the answer unless the model is a classifier.
    pub width: usize,
    /// Attention heads.
    pub heads: usize,
    /// Columns inside the feed-forward block.
    pub hidden: usize,
    /// Rows of the token table.
    pub vocabulary: usize,
    /// Numbers in the tensors that are in use.
    pub parameters: usize,
    /// Longest input in tokens; for images, rows per image.
    pub max_tokens: usize,
    /// Width and height of an image as the model reads it, in pixels, if it reads images.
    pub image_side: Option<usize>,
    /// `mean`, `first`, `last` or `max`.
    pub pooling: &'static str,
    /// Whether answers have unit length.
    pub normalised: bool,
    /// `embed`, `classify` or `generate`.
    pub task: &'static str,
    /// Names of the classes, if it is a classifier.
    pub labels: Option<Vec<String>>,
    /// What the numbers of a classifier's head say.
    pub problem_type: Option<ProblemType>,
    /// Whether it is a classifier that reads pairs of texts.
    pub pairs: bool,
    /// How embeddings are compared.
    pub similarity: &'static str,
}

impl Report {
    /// Whether the folder can be used.
    pub fn supported(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Checks everything but the numbers themselves, which are read at load: files, sizes, tokenizer, pooling, names and
/// shapes of all tensors.
pub fn check(folder: &Path) -> Report {
    let (public, _, problems) = inspect(folder);
    let summary = public.as_ref().filter(|_| problems.is_empty()).map(Summary::from);
    Report { folder: folder.to_owned(), problems, warnings: warnings(folder), summary }
}

/// At most this many are listed.
const MOST_WARNINGS: usize = 32;

/// The fields that are not listed, file by file. What cannot be read is a problem, which is reported elsewhere.
fn warnings(folder: &Path) -> Vec<Warning> {
    let parsed = |name| {
        let bytes = read_small(&folder.join(name), name, 16 << 20).ok()??;
        serde_json::from_slice::<Value>(without_mark(&bytes)).ok()
    };
    let architecture = read_small(&folder.join(CONFIG), CONFIG, 1 << 20);
    let architecture = architecture.ok().flatten().and_then(|b| config::named(&b));
    let sees = architecture.is_some_and(Architecture::sees);
    let files = [
        (CONFIG, architecture.map(Architecture::fields)),
        (GENERATION, Some(vec![fields::GENERATION.into()])),
        (TOKENIZER_CONFIG, Some(vec![fields::TOKENIZER_CONFIG.into()])),
        (MODULES, Some(vec![fields::MODULE.into()])),
        (POOLING, Some(vec![fields::POOLING.into()])),
        (NORMALIZE, Some(vec![fields::NORMALIZE.into()])),
        (SENTENCE, Some(vec![fields::SENTENCE.into()])),
        (PROMPTS, Some(vec![fields::SENTENCE_TRANSFORMERS.into()])),
        (PREPROCESSOR, sees.then(|| vec![fields::PREPROCESSOR.into()])),
    ];
    let mut found = Vec::new();
    for (file, tables) in files {
        let (Some(tables), Some(value)) = (tables, parsed(file)) else {
            continue;
        };
        let entries = match &value {
            Value::Array(entries) => entries.as_slice(),
            one => std::slice::from_ref(one),
        };
        for object in entries.iter().filter_map(Value::as_object) {
            found.extend(
                fields::unknown(object, &tables)
                    .map(|field| Warning { file, field: field.chars().filter(|c| !c.is_control()).take(60).collect() }),
            );
        }
    }
    found.dedup();
    found.truncate(MOST_WARNINGS);
    found
}

/// The folder's public part and opened weights.
pub(crate) fn open(folder: &Path) -> Result<(Public, Weights<std::fs::File>), FolderError> {
    match inspect(folder) {
        (Some(public), Some(weights), problems) if problems.is_empty() => Ok((public, weights)),
        (_, _, problems) => Err(FolderError { folder: folder.to_owned(), problems }),
    }
}

fn inspect(folder: &Path) -> (Option<Public>, Option<Weights<std::fs::File>>, Vec<Problem>) {
    let mut problems = Vec::new();
    if !folder.is_dir() {
        let hint = match folder.exists() {
            true => "it is a file: a model is the folder that has it, with config.json and tokenizer.json",
            false => "there is no such folder",
        };
        problems.push(Problem::MissingFile { file: folder.display().to_string(), hint });
        return (None, None, problems);
    }
    // `transformers` would load the model that it changes, from wherever that is.
    if folder.join("adapter_config.json").is_file() {
        return (None, None, vec![Problem::Adapter]);
    }
    let files = PublicFiles::read_into(folder, &mut problems);
    if let [Problem::IsGraph] = problems[..] {
        return (None, None, problems);
    }
    let public = files.parse_into(&mut problems);
    if files.are_of_unknown_architecture() {
        return (None, None, problems);
    }
    let weights = Weights::open(folder, &mut problems);
    if let (Some(public), Some(weights)) = (&public, &weights) {
        let mut checking = Checking { weights, problems: &mut problems };
        // The result has no numbers; the problems are in the list.
        let Ok(body) = arch::body(&public.config, public.pool, &mut checking);
        let program = body.program();
        let known: Vec<String> = program.norms().map(|(id, _)| id.to_string()).collect();
        let declared = public.config.norms.keys();
        problems.extend(declared.filter(|name| !known.contains(name)).map(|name| Problem::UnsupportedValue {
            file: FUNCTIONS.to_owned(),
            field: "norms",
            value: name.chars().take(60).collect(),
            supported: "the norms of this model; make the file again with `hushed calibrate --declare`".into(),
        }));
    }
    (public, weights, problems)
}

impl From<&Public> for Summary {
    fn from(public: &Public) -> Summary {
        let c = &public.config;
        Summary {
            layers: c.layers,
            width: c.width,
            heads: c.heads,
            hidden: c.hidden,
            vocabulary: c.vocabulary,
            parameters: c.parameters(),
            max_tokens: public.max_tokens,
            image_side: public.images.as_ref().map(|images| images.side),
            pooling: match public.pool {
                Pool::First => "first",
                Pool::Mean => "mean",
                Pool::Last => "last",
                Pool::Max => "max",
            },
            normalised: public.normalise,
            task: match c.task() {
                Task::Embed => "embed",
                Task::Classify => "classify",
                Task::Generate => "generate",
            },
            labels: c.labels.clone(),
            problem_type: c.labels.as_ref().map(|_| c.problem),
            pairs: public.reads_pairs(),
            similarity: public.similarity.name(),
        }
    }
}
