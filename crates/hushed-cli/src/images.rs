//! Texts or images, for the verbs that take what the model reads.

use std::path::{Path, PathBuf};

use hushed_model::folder::Public;
use hushed_model::{Item, ModelError, Pixels};

use crate::error::CliError;
use crate::input::{self, Begin, Texts, Truncate};

/// One text, a file with one text per line, or images.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Given {
    /// The text
    text: Option<String>,

    /// A file with one text per line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,

    /// With a model of images: a PNG or JPEG file; may be given more than once
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,
}

/// What was given.
pub enum Read {
    /// Texts.
    Texts(Vec<String>),
    /// The bytes of files.
    Images(Vec<Vec<u8>>),
}

impl Given {
    /// The file of texts, if one was given.
    pub fn input(&self) -> Option<&Path> {
        self.input.as_deref()
    }

    /// Whether a text is on the command line.
    pub fn is_shown(&self) -> bool {
        self.text.is_some()
    }

    /// The bytes of what is no image, for a network that reads numbers; `None` for images and where nothing is given.
    pub fn numbers(&self) -> Result<Option<Vec<u8>>, CliError> {
        match (&self.text, &self.input) {
            (Some(text), _) => Ok(Some(text.clone().into_bytes())),
            (None, Some(path)) => input::read(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Reads at least one text or image.
    pub fn read(&self) -> Result<Read, CliError> {
        if !self.image.is_empty() {
            return Ok(Read::Images(files(&self.image)?));
        }
        let texts = Texts::of(self.text.clone(), self.input.clone());
        Ok(Read::Texts(texts.read()?))
    }
}

impl Read {
    /// The number of texts or images.
    pub fn len(&self) -> usize {
        match self {
            Read::Texts(texts) => texts.len(),
            Read::Images(files) => files.len(),
        }
    }

    /// The items as the model reads them. All are checked before any work begins.
    pub fn items(&self, model: &Public, too_long: &Truncate) -> Result<Vec<Item>, CliError> {
        self.begun(model, too_long, &Begin::default())
    }

    /// The same, with the token that begins a text before each if it is asked for.
    pub fn begun(&self, model: &Public, too_long: &Truncate, begin: &Begin) -> Result<Vec<Item>, CliError> {
        Ok(match self {
            Read::Texts(texts) => {
                let tokens = begin.tokens(model, texts, too_long)?.into_iter();
                tokens.map(Item::from).collect()
            }
            Read::Images(files) => {
                let images = pixels(model, files)?.into_iter();
                images.map(Item::from).collect()
            }
        })
    }

    /// The texts, cut or refused at `rows` tokens, or the images.
    pub fn within(&self, model: &Public, rows: usize, too_long: &Truncate) -> Result<Vec<Item>, CliError> {
        Ok(match self {
            Read::Texts(texts) => {
                let tokens = too_long.tokens_within(model, texts, rows, false)?;
                tokens.into_iter().map(Item::from).collect()
            }
            Read::Images(files) => pixels(model, files)?.into_iter().map(Item::from).collect(),
        })
    }

    /// The same without empty texts.
    pub fn without_blanks(mut self) -> Read {
        if let Read::Texts(texts) = &mut self {
            texts.retain(|text| !text.trim().is_empty());
        }
        self
    }

    /// Pairs of a query with each text, as a classifier reads them.
    pub fn pairs(&self, model: &Public, query: &str, too_long: &Truncate) -> Result<Vec<Item>, CliError> {
        let Read::Texts(texts) = self else {
            return Err(image(0)(hushed_model::ImageError::NoImages));
        };
        let pairs: Vec<[&str; 2]> = texts.iter().map(|text| [query, text]).collect();
        too_long.pairs(model, &pairs)
    }

    /// The texts.
    ///
    /// # Errors
    /// If there are images, which the model does not read.
    pub fn texts(self) -> Result<Vec<String>, CliError> {
        match self {
            Read::Texts(texts) => Ok(texts),
            Read::Images(_) => Err(image(0)(hushed_model::ImageError::NoImages)),
        }
    }
}

/// The bytes of files.
pub fn files(paths: &[impl AsRef<Path>]) -> Result<Vec<Vec<u8>>, CliError> {
    paths.iter().map(|path| input::read(path.as_ref())).collect()
}

/// Images as the model reads them.
pub fn pixels(model: &Public, files: &[Vec<u8>]) -> Result<Vec<Pixels>, CliError> {
    let files = files.iter().enumerate();
    files.map(|(index, file)| model.image(file).map_err(image(index))).collect()
}

fn image(index: usize) -> impl Fn(hushed_model::ImageError) -> CliError {
    move |source| CliError::Image { index, source: ModelError::from(source) }
}
