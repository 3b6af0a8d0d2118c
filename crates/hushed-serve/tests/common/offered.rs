//! What an operator has and publishes for a tiny model and an insecure ring, and what is done with it through files.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use hushed_fhe::answer_in_clear;
use hushed_fhe::calibrate::{Options, Sample, calibrate, weights_sha256};
use hushed_fhe::plan::declared;
use hushed_fhe::plan::offer::Offer;
use hushed_fhe::plan::public_plan::{AnswerRows, Canary, FhePlan, Lengths, named};
use hushed_fhe::plan::{FheOptions, FhePlanReport, packed_placement, reference};
use hushed_fhe::run::job::bootstrap;
use hushed_model::testing::{tiny_folder, tiny_golden};
use hushed_model::{Model, TokenIds, TooLong, Weigh, cosine};
use hushed_serve::ServeError;
use hushed_serve::fhe::{
    self, Answer, ContextOptions, JobEvent, KeyRecord, KeygenOptions, PublicModel, RunFiles, RunOptions,
};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

const PARAMETERS: &str = "insecure-test/9/14";
const ROWS: usize = 16;

/// What an operator has and publishes.
pub struct Offered {
    pub folder: PathBuf,
    /// The file of the plan.
    pub file: &'static str,
}

/// Makes the folder of a decoder with a sigmoid.
fn decoder_folder(to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(tiny_golden("bitnet-sigmoid"))? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

impl Offered {
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn plan(&self) -> PathBuf {
        self.path(self.file)
    }

    pub fn lengths(&self) -> &'static str {
        match self.file {
            "plan.json" | "one.json" | "shared.json" => "public",
            _ => "private",
        }
    }

    /// A model, its calibration, public part and plans: for a batch with lengths public and private, and for a single
    /// text in packed rows with lengths public and private; made once for all tests.
    fn all() -> &'static [Offered; 4] {
        static OFFERED: OnceLock<(TempDir, [Offered; 4])> = OnceLock::new();
        let made = OFFERED.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let files = ["plan.json", "private.json", "one.json", "hidden.json"];
            let all = files.map(|file| Offered { folder: folder.path().to_owned(), file });
            all[0].make(tiny_folder);
            (folder, all)
        });
        &made.1
    }

    /// For a batch, with lengths public and private.
    pub fn both() -> &'static [Offered] {
        &Offered::all()[..2]
    }

    /// For a single text.
    pub fn one() -> &'static Offered {
        &Offered::all()[2]
    }

    /// The same, with a length that the server does not know.
    pub fn one_hidden() -> &'static Offered {
        &Offered::all()[3]
    }

    /// What another process has made.
    pub fn at(folder: PathBuf) -> Offered {
        Offered { folder, file: "plan.json" }
    }

    pub fn get() -> &'static Offered {
        &Offered::all()[0]
    }

    /// For a batch of texts of which up to three share a place.
    pub fn shared() -> Offered {
        Offered { file: "shared.json", folder: Offered::get().folder.clone() }
    }

    /// A decoder made for encryption, offered in the same way; its server learns no lengths.
    pub fn decoder() -> &'static Offered {
        &Offered::decoders()[0]
    }

    /// The same, read at all rows.
    pub fn decoder_rows() -> &'static Offered {
        &Offered::decoders()[1]
    }

    /// The same, for one or two prompts in packed rows.
    pub fn decoder_alone() -> &'static Offered {
        &Offered::decoders()[2]
    }

    /// The same, read at the logits of last rows.
    pub fn decoder_logits() -> &'static Offered {
        &Offered::decoders()[3]
    }

    /// The same, with two columns in each vector.
    pub fn decoder_paired() -> &'static Offered {
        &Offered::decoders()[4]
    }

    fn decoders() -> &'static [Offered; 5] {
        static OFFERED: OnceLock<(TempDir, [Offered; 5])> = OnceLock::new();
        let made = OFFERED.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let files = ["private.json", "rows.json", "alone.json", "logits.json", "paired.json"];
            let all = files.map(|file| Offered { folder: folder.path().to_owned(), file });
            all[0].make(decoder_folder);
            (folder, all)
        });
        &made.1
    }

    /// The same, with softmax attention.
    pub fn softmax() -> &'static Offered {
        static OFFERED: OnceLock<(TempDir, Offered)> = OnceLock::new();
        let made = OFFERED.get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let offered = Offered { folder: folder.path().to_owned(), file: "private.json" };
            offered.make(|to| {
                decoder_folder(to)?;
                let config = fs::read(to.join("config.json"))?;
                let mut config: serde_json::Value = serde_json::from_slice(&config)?;
                let fields = config.as_object_mut().unwrap();
                fields.retain(|name, _| !["attention_weights", "sigmoid_bias"].contains(&&**name));
                fs::write(to.join("config.json"), config.to_string())
            });
            (folder, offered)
        });
        &made.1
    }

    pub fn make(&self, write: impl Fn(&Path) -> std::io::Result<()>) {
        let dir = self.path("model");
        write(&dir).unwrap();
        let model = Model::load(&dir).unwrap();
        let tokens = |text: &String| model.tokens(text, TooLong::Refuse).unwrap();
        let program = model.program_of_all_rows();
        let decodes = program.vocabulary().is_some();
        let all: Vec<TokenIds> = sample().iter().map(tokens).filter(|text| text.ids().len() <= ROWS).collect();
        let sample = Sample {
            texts: &all,
            hostile: &[],
            broad: &[],
            sha256: &"0".repeat(64),
            model_sha256: &weights_sha256(&dir).unwrap(),
        };
        let options = Options {
            rows: ROWS,
            wanted: 0.999,
            most_frozen: 0,
            parameters: PARAMETERS.to_owned(),
            ..Options::default()
        };
        let choices = calibrate(&model, &sample, &options, &mut |_| {}).unwrap();
        let calibration = choices.to_json().unwrap();
        fs::write(self.path("calibration-fhe.json"), &calibration).unwrap();

        let public = PublicModel::from_folder(&dir, &model).unwrap();
        public.write(&self.path("public")).unwrap();
        let params = named(PARAMETERS).unwrap();
        let (_, bootstrap) = bootstrap(&params).unwrap();
        let canary = match decodes {
            true => "the sea is a key",
            false => "a private world is the hello",
        }
        .to_owned();
        let canary = |answer| Canary {
            embedding: answer_in_clear(&model, &tokens(&canary), answer).unwrap(),
            text: canary.clone(),
            least_cosine: 0.99,
        };
        let (all, last) = (usize::MAX, AnswerRows::Last);
        let softmax = program.attentions().any(|a| a.weigh == Weigh::Softmax);
        let files: &[_] = match decodes {
            true if softmax => &[("private.json", Lengths::Private, last, all)],
            true => &[
                ("private.json", Lengths::Private, last, all),
                ("rows.json", Lengths::Private, AnswerRows::Rows, all),
                ("alone.json", Lengths::Private, last, 1),
                ("logits.json", Lengths::Private, AnswerRows::Logits, all),
                ("paired.json", Lengths::Private, last, all),
            ],
            false => &[
                ("plan.json", Lengths::Public, last, all),
                ("shared.json", Lengths::Public, last, all),
                ("private.json", Lengths::Private, last, all),
                ("one.json", Lengths::Public, last, 1),
                ("hidden.json", Lengths::Private, last, 1),
            ],
        };
        for &(file, lengths, answer, places) in files {
            let shared = file == "shared.json";
            // Classifiers answer one text a place.
            if shared && program.classifier().is_some() {
                continue;
            }
            let canary = canary(answer);
            let mut options = FheOptions {
                rows: ROWS,
                texts: places,
                lengths,
                answer,
                max_memory: None,
                per_place: if shared { 3 } else { 1 },
                uplink: 1e7,
                prices: reference(2),
                placement: None,
            };
            options.placement = packed_placement(&program, &choices, &params, &options).unwrap();
            let report = FhePlanReport::new(&program, &choices, false, &params, &bootstrap, &options);
            let mut placement = report.unwrap().placement;
            assert!(!placement.spills());
            assert_eq!(placement.columns > 1, places == 1);
            if places > 1 {
                // As with little memory: in some plans half of a layer is spilled, in others both halves.
                placement.pairs = file == "paired.json";
                placement.spill_attention = true;
                placement.spill_feed_forward = !lengths.encrypted() || answer == AnswerRows::Rows || placement.pairs;
            }
            let plan = Offer {
                program: &program,
                choices: &choices,
                parameters: PARAMETERS,
                params: &params,
                bootstrap: &bootstrap,
                options: &options,
                placement: &placement,
                public_sha256: public.hash().0,
                calibration_sha256: Sha256::digest(&calibration).into(),
                texts: &declared::texts(model.public.tokenizer().unwrap(), ROWS, Some(tokens(&canary.text))),
                // A single text leaves no place for it; the decoder has room for two.
                canary: (places > 1 || decodes).then(|| canary.clone()),
                exposures: vec!["the server sees what it sees".to_owned()],
            };
            fhe::write_plan(&self.path(file), &plan.plan().unwrap()).unwrap();
        }
    }

    pub fn options(&self, work: &Path) -> RunOptions {
        RunOptions {
            context: ContextOptions {
                model: self.path("model"),
                plan: self.plan(),
                calibration: self.path("calibration-fhe.json"),
                secret: work.join("state/reply.secret"),
                max_memory: None,
                threads: Some(2),
            },
            files: RunFiles {
                keys: work.join("keys/evaluation.keys"),
                request: work.join("request"),
                out: work.join("reply"),
                checkpoint: Some(work.join("checkpoints")),
                spill: None,
            },
        }
    }

    pub fn keygen(&self, keys: &Path) -> Result<KeyRecord, ServeError> {
        let options = KeygenOptions::days(1);
        fhe::keygen(&self.plan(), keys, options, &mut |_, _| {})
    }

    pub fn encrypt(&self, work: &Path, texts: &[String]) -> Result<fhe::Encrypted, ServeError> {
        fhe::encrypt(
            &fhe::EncryptOptions {
                plan: &self.plan(),
                public: &self.path("public"),
                keys: &work.join("keys"),
                texts,
                too_long: TooLong::Refuse,
                lengths: Some(self.lengths()),
                out: &work.join("request"),
            },
            &mut |_, _| {},
        )
    }

    /// Options for a run by another plan, with keys and a request made for it, all in `at`.
    pub fn by_plan(&self, plan: &FhePlan, texts: &[String], at: &Path, options: &mut RunOptions) {
        fs::create_dir_all(at).unwrap();
        let path = at.join("plan.json");
        fhe::write_plan(&path, plan).unwrap();
        let (keys, request) = (at.join("keys"), at.join("request"));
        fhe::keygen(&path, &keys, KeygenOptions::days(1), &mut |_, _| {}).unwrap();
        let encrypt = fhe::EncryptOptions {
            plan: &path,
            public: &self.path("public"),
            keys: &keys,
            texts,
            too_long: TooLong::Refuse,
            lengths: None,
            out: &request,
        };
        fhe::encrypt(&encrypt, &mut |_, _| {}).unwrap();
        options.context.plan = path;
        options.files.keys = keys.join("evaluation.keys");
        options.files.request = request;
    }

    /// Runs request `id` whole, and again from the checkpoint after its first layer, to the same bytes.
    pub fn run_and_resume(&self, work: &Path, id: &str) {
        let options = self.options(work);
        let checkpoint = work.join(format!("checkpoints/{}.checkpoint", id));
        let kept = work.join("after-a-layer");
        fhe::run(&options, &|event| {
            if let JobEvent::Layer { layer: 0, .. } = event {
                fs::copy(&checkpoint, &kept).unwrap();
            }
        })
        .unwrap();
        let whole = fs::read(work.join("reply")).unwrap();
        fs::remove_file(work.join("reply")).unwrap();
        fs::rename(&kept, &checkpoint).unwrap();
        let resumed = Mutex::new(None);
        fhe::run(&options, &|event| {
            if let JobEvent::Resumed { layer } = event {
                *resumed.lock().unwrap() = Some(layer);
            }
        })
        .unwrap();
        assert_eq!(*resumed.lock().unwrap(), Some(1));
        assert!(whole == fs::read(work.join("reply")).unwrap());
    }

    pub fn decrypt(&self, work: &Path) -> Result<Answer, ServeError> {
        let (plan, public) = (self.plan(), self.path("public"));
        fhe::decrypt(&plan, &public, &work.join("keys"), &work.join("reply"))
    }
}

pub fn sample() -> Vec<String> {
    let words = ["the", "private", "world", "is", "a", "hello", "key", "sea", "7", "12", "red!", "no?"];
    (0..48)
        .map(|t| {
            let length = 1 + t % 6;
            let word = |i: usize| words[(t * 7 + i * 5 + t * i) % words.len()];
            (0..length).map(word).collect::<Vec<_>>().join(" ")
        })
        .filter(|text| text.len() < 20)
        .collect()
}

pub fn texts() -> Vec<String> {
    sample().into_iter().take(9).collect()
}

/// Checks that an answer is the clear model's for these texts.
pub fn assert_close(offered: &Offered, texts: &[String], answer: &Answer) {
    let model = Model::load(&offered.path("model")).unwrap();
    let tokens = |text: &String| model.tokens(text, TooLong::Refuse).unwrap();
    let clear = model.embed(texts.iter().map(tokens).collect()).unwrap();
    assert_eq!(answer.embeddings.len(), clear.len());
    for (found, expected) in answer.embeddings.iter().zip(&clear) {
        assert!(cosine(found, expected) > 0.998, "{}", cosine(found, expected));
    }
}
