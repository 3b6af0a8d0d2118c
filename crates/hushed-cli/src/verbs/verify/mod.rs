//! `hushed verify`: where accuracy goes, stage by stage, and how accurate the answers are.

mod fhe;
mod plot;
mod twopc;

use std::path::PathBuf;

use clap::ValueEnum;
use hushed_model::{Graph, Model};

use crate::error::CliError;
use crate::images::{self, Read};
use crate::input::{self, Begin, PublicHead, Truncate};
use crate::labels;
use crate::output::Output;

/// Compare the private run with the clear one, stage by stage: all of it on this machine
#[derive(clap::Args)]
#[command(
    after_help = "Everything runs in this process, on temporary keys, and values that no party may see are revealed or decrypted. \
This needs the weights and is never done with a server; there is no option for one.

2pc: the error of a stage is relative to the root mean square of its clear values. `approximation` is due to the \
functions behind GELU and softmax and to fixed-point rounding, `protocol` to the shares, which round at random. \
Of a model that generates the likeliest token after every row of every text is found privately and compared with \
that in the clear, and rows where they differ are named. Of classifiers, of texts or images, the logits are \
compared, and their labels.

fhe: the model runs in the clear; with the polynomials of a calibration; with simulated errors of rescales and \
bootstraps; and, with --encrypted, on ciphertexts, each step of which is decrypted. Errors are relative to the \
root mean square of the clear values of the step. A text that leaves a calibrated interval is named, and left \
out from there. --encrypted takes as long as `hushed run`, layer by layer, and two simulations more. It places \
the circuit as `hushed plan` does, in --max-memory, of which the comparison takes up to 2 GiB.

A network (docs/networks.md) is run under a key that is made for it, input by input.

--labels takes pairs of texts with a number, tab-separated (text, text, score), and reports the rank correlation \
of the cosines with the scores, in the clear and privately, and that of private with clear cosines: their \
agreement. A model that scores pairs (2pc) reads the two as one, and its scores take the place of cosines.

Examples:
  hushed verify DIR --input data/sample.txt
  hushed verify DIR --labels pairs.tsv --json
  hushed verify data/gpt2-small --input data/decoder-small/held-out.txt
  hushed verify data/vit-digits --image 7.png --image 3.png
  hushed verify DIR --protocol fhe --calibration data/calibration-fhe-minilm.json \\
    --input data/sample.txt \\
      --rows 32 --truncate --plot verify.svg
  hushed verify DIR --protocol fhe --input data/search/documents.txt \\
    --queries data/search/queries.txt
  hushed verify data/vit-digits --protocol fhe --image 7.png --image 3.png
  hushed verify DIR --protocol fhe --input data/unseen.txt --truncate --rows 128 --texts 1
  hushed verify DIR --protocol fhe --input data/sample.txt --rows 32 --truncate --layers 1 \\
    --encrypted --max-memory 20"
)]
#[command(group = clap::ArgGroup::new("source").required(true).args(["input", "labels", "image"]))]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …)
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// The protocol whose run is compared
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    protocol: Protocol,

    /// A file with one text per line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,

    /// A file of labelled pairs: text, text and a number, tab-separated
    #[arg(long, value_name = "FILE.tsv", env = "HUSHED_LABELS")]
    labels: Option<PathBuf>,

    /// With a model of images: a PNG or JPEG file; may be given more than once
    #[arg(long, value_name = "FILE")]
    image: Vec<PathBuf>,

    #[command(flatten)]
    fhe: fhe::Args,

    #[command(flatten)]
    too_long: Truncate,

    #[command(flatten)]
    head: PublicHead,

    #[command(flatten)]
    begin: Begin,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    /// Interactive, both parties compute on shares
    #[value(name = "2pc")]
    TwoPc,
    /// The server computes alone, on ciphertexts
    Fhe,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if let (true, Protocol::Fhe, Some(input)) = (Graph::is_in(&self.dir), self.protocol, &self.input) {
            return self.fhe.graph(&self.dir, &input::read(input)?, out);
        }
        let (given, scores) = self.read()?;
        match self.protocol {
            Protocol::TwoPc => {
                let model = Model::load(&self.dir)?;
                let items = match model.public.config.scores() && !scores.is_empty() {
                    true => labels::paired(given.texts()?, &model.public, &self.too_long)?,
                    false => given.begun(&model.public, &self.too_long, &self.begin)?,
                };
                let head = self.head.of(&model.public);
                twopc::run(out, &model, (&items, head), &scores)
            }
            Protocol::Fhe => self.fhe.run(out, &self.dir, given, &scores, &self.too_long),
        }
    }

    /// The texts or images, and the scores of consecutive pairs if there are labels.
    fn read(&self) -> Result<(Read, Vec<f64>), CliError> {
        if let Some(path) = &self.labels {
            let (texts, scores) = labels::pairs(&input::read_lines(path)?)?;
            return Ok((Read::Texts(texts), scores));
        }
        let read = match &self.input {
            Some(path) => Read::Texts(input::read_lines(path)?),
            // The group above requires one of the three.
            None => Read::Images(images::files(&self.image)?),
        };
        Ok((read, Vec::new()))
    }
}
