//! `hushed calibrate`: the ranges of every step over sample texts, written beside the model.

mod fhe;
mod write;

use std::path::PathBuf;

use clap::ValueEnum;
use hushed_model::{Declared, FUNCTIONS, Graph, Model, Range, Ranges, calibrate_layers, counted};
use hushed_mpc::{Bound, Fit, LEAST_COSINE, MARGIN, Trial, choose, choose_norms, fits};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::error::CliError;
use crate::graphs;
use crate::images::{self, Read};
use crate::input::{self, Begin, PublicHead, Truncate};
use crate::output::Output;
use crate::overwrite::Overwrite;
use write::write;

/// Measure the ranges of every step over sample texts or images, and write calibration.json
#[derive(clap::Args)]
#[command(
    after_help = "Beside the ranges it prints which function each step uses in a private run, and whether the measured values are \
within that function's bound. A step beyond its bound is marked: a private run of such texts would be wrong. So \
is a norm with rows too small for its format: a private run would be inexact.

Then it chooses the cheapest approximation of the activation: the narrowest domain that contains twice the \
largest argument measured, and the fewest segments that keep every answer of the sample at a cosine of 0.9999. \
Norms whose rows are beyond the usual formats get others. With --declare the choices are written to \
DIR/functions.json, and private runs use them. That file is public and part of the bundle, whose hash changes. \
Arguments outside the declared domain make an answer wrong: declare only from a sample like the texts to come.

With --protocol fhe it measures the intervals of the polynomials in the circuit's own forward pass, chooses \
degrees by every fourth text, which is not part of the measurement, and writes DIR/calibration-fhe.json. A text \
outside these intervals gets a wrong answer: use a sample like the texts to come, and texts made to leave \
intervals with --hostile.

The ranges reveal something of the weights and of the sample: all that is written stays with the server, except \
functions.json.

Examples:
  hushed calibrate DIR --input data/sample.txt
  hushed calibrate DIR --input data/sample.txt --declare --force
  hushed calibrate DIR --input data/sample.txt --output /tmp/c.json --json
  hushed calibrate DIR --protocol fhe --input data/sample.txt --hostile data/hostile.txt --rows 128
  hushed calibrate DIR --protocol fhe --input numbers.npy     a network (docs/networks.md)"
)]
pub struct Args {
    /// The model folder (config.json, model.safetensors, tokenizer.json, …)
    #[arg(value_name = "DIR")]
    dir: PathBuf,

    /// A file with one text per line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT", required_unless_present = "image")]
    input: Option<PathBuf>,

    /// With a model of images: a PNG or JPEG file; may be given more than once
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "truncate"])]
    image: Vec<PathBuf>,

    /// The protocol that the calibration is for
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    protocol: Protocol,

    /// Where to write [default: DIR/calibration.json, DIR/calibration-fhe.json for fhe]
    #[arg(long, short, visible_alias = "out", value_name = "FILE", env = "HUSHED_CALIBRATION")]
    output: Option<PathBuf>,

    /// Write the chosen approximation to DIR/functions.json, for private runs to use
    #[arg(long, conflicts_with_all = ["rows", "cosine", "hostile"])]
    declare: bool,

    #[command(flatten)]
    fhe: fhe::Args,

    #[command(flatten)]
    too_long: Truncate,

    #[command(flatten)]
    head: PublicHead,

    #[command(flatten)]
    begin: Begin,

    #[command(flatten)]
    overwrite: Overwrite,
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
        match self.protocol {
            Protocol::TwoPc => self.two_parties(out),
            Protocol::Fhe => {
                let path = self.path("calibration-fhe.json");
                self.overwrite.check(&path)?;
                if Graph::is_in(&self.dir) {
                    let option = "--image";
                    let input = self.input.as_deref().ok_or(CliError::OtherProtocol { option })?;
                    return write(&graphs::calibrate(&self.dir, &input::read(input)?, out)?, &path);
                }
                self.fhe.run(out, &self.dir, self.sample()?, &path, &self.too_long)
            }
        }
    }

    /// The file to write; `usual` is its name in the model's folder.
    fn path(&self, usual: &str) -> PathBuf {
        self.output.clone().unwrap_or_else(|| self.dir.join(usual))
    }

    fn two_parties(&self, out: &Output) -> Result<(), CliError> {
        let (path, functions) = (self.path("calibration.json"), self.dir.join(FUNCTIONS));
        self.overwrite.check(&path)?;
        if self.declare {
            self.overwrite.check(&functions)?;
        }
        let (given, digest) = self.sample()?;
        let sha256 = hushed_serve::Digest(digest.finalize().into()).to_string();
        let model = Model::load(&self.dir)?;
        let items = given.begun(&model.public, &self.too_long, &self.begin)?;
        let head = self.head.of(&model.public).to_vec();
        out.note(&format!("running {} in the clear …", counted(items.len(), "item")));
        let calibration = calibrate_layers(&model, &items, &sha256, (&head, usize::MAX))?;

        for (site, ranges) in &calibration.sites {
            let object = json!({ "site": site, "ranges": ranges });
            out.result(object, || format!("{:<34} {}", site, describe(ranges)))?;
        }
        let norms = choose_norms(&model, &calibration);
        for (site, reach) in &norms {
            let object = json!({ "norm": site, "squares_log2": reach.squares, "finer": reach.finer });
            out.result(object, || {
                format!("{site:<34} sums of squares below 2^{}, {} fraction bits more", reach.squares, reach.finer)
            })?;
        }
        // The model as it is run now, or will be once this is declared.
        let model = match self.declare {
            true => model.reaching(norms.clone()),
            false => model,
        };
        let fits = fits(&calibration, &model);
        for fit in &fits {
            out.result(json!({ "fit": fit, "fits": fit.fits() }), || shown(fit))?;
        }
        let trials = choose(&model, &items, &head, &calibration)?;
        for trial in &trials {
            out.result(json!({ "trial": trial, "keeps": trial.keeps() }), || tried(trial))?;
        }
        let chosen = trials.last().filter(|_| self.declare);
        if let Some(chosen) = chosen {
            let declared = Declared { activation: chosen.tolerance(), norms };
            write(declared.to_json().as_bytes(), &functions)?;
        }
        write(&calibration.to_json()?, &path)?;
        let of = |bound| fits.iter().filter(|f| f.bound == bound && !f.fits()).count();
        let (beyond, inexact) = (of(Bound::Most), of(Bound::Least));
        let end = json!({ "texts": calibration.texts, "tokens": calibration.tokens, "written": path, "beyond": beyond,
            "inexact": inexact, "declared": chosen });
        let remark = match (beyond, inexact) {
            (0, 0) => "every step fits its function".to_owned(),
            (0, n) => {
                format!("in {} rows come out too short: answers would be inexact", counted(n, "norm"))
            }
            (n, _) => format!("beyond {}: private answers would be wrong", counted(n, "bound")),
        };
        out.summary(
            end,
            &format!(
                "{}, {}; {remark}; written to {}",
                counted(calibration.texts, "item"),
                counted(calibration.tokens, "row"),
                path.display()
            ),
        )
    }
}

impl Args {
    /// The lines of the file, or the images, and the hash of their bytes, file after file.
    fn sample(&self) -> Result<(Read, Sha256), CliError> {
        match &self.input {
            Some(path) => {
                let bytes = input::read(path)?;
                let digest = Sha256::new().chain_update(&bytes);
                Ok((Read::Texts(input::lines(bytes, path)?), digest))
            }
            None => {
                let files = images::files(&self.image)?;
                let digest = files.iter().fold(Sha256::new(), Sha256::chain_update);
                Ok((Read::Images(files), digest))
            }
        }
    }
}

fn shown(fit: &Fit) -> String {
    let verdict = match (fit.fits(), fit.bound) {
        (true, _) => "fits",
        (false, Bound::Most) => "DOES NOT FIT",
        (false, Bound::Least) => "INEXACT",
    };
    let compared = match fit.bound {
        Bound::Most => format!("up to {:.3}, {:.0} at most", fit.measured, fit.holds),
        Bound::Least => format!("down to {:.1e}, {:.1e} at least", fit.measured, fit.holds),
    };
    format!("{:<34} {}: {} {compared}: {verdict}", fit.site, fit.function, fit.what)
}

fn tried(trial: &Trial) -> String {
    let verdict = if trial.keeps() { "keeps" } else { "does not keep" };
    format!(
        "{:<34} up to {:.1} ({MARGIN} times the measured), error {:.1e}, {:.1} bytes an element: least cosine {:.7}, {verdict} {LEAST_COSINE}",
        trial.function, trial.reach, trial.error, trial.bytes, trial.least_cosine
    )
}

fn describe(ranges: &Ranges) -> String {
    let r = |range: &Range| format!("{:.3} … {:.3}", range.min, range.max);
    match ranges {
        Ranges::Values { output } => r(output),
        Ranges::Activation { input } => format!("argument {}", r(input)),
        Ranges::Sigmoid { input } => format!("score with its bias {}", r(input)),
        Ranges::Softmax { shifted, denominator } => {
            format!("score less maximum {}, sum {}", r(shifted), r(denominator))
        }
        Ranges::Norm { first_variance, variance, centred, mean } => format!(
            "variance {} (first row {}), centred {}{}",
            r(variance),
            r(first_variance),
            r(centred),
            mean.map_or_else(String::new, |mean| format!(", mean {}", r(&mean)))
        ),
    }
}
