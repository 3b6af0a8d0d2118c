//! An encrypted batch on a server over a connection: `hushed embed --protocol fhe`, `hushed next`, `hushed score`.

use std::path::PathBuf;

use hushed_fhe::plan::public_plan::Lengths;
use hushed_serve::fhe::wire::JobState;
use hushed_serve::fhe::{Item, Remote, RemoteEvent, RemoteOptions, Wanted, Warning};
use hushed_serve::{ClientConfig, TooLong};
use serde_json::json;

use super::decrypt::{self, View};
use super::keygen::{self, MostKeys};
use crate::error::CliError;
use crate::input::{Asked, Given};
use crate::lengths::Learns;
use crate::output::Output;
use crate::running::Counting;

/// A client's key folder, and what the client insists on.
#[derive(clap::Args)]
#[command(next_help_heading = "With --protocol fhe")]
pub struct KeyFolder {
    /// The key folder, which also keeps the server's manifest, its public model and pending texts
    #[arg(long, value_name = "DIR", env = "HUSHED_KEYS")]
    keys: Option<PathBuf>,

    /// Make keys in that folder if it has none
    #[arg(long)]
    make_keys: bool,

    #[command(flatten)]
    most: MostKeys,

    /// Days until keys made now expire
    #[arg(long, value_name = "N", default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=3650), env = "HUSHED_KEY_DAYS")]
    days: u32,

    /// Accept only this manifest, a file from the server's operator [default: the server's first one, and from then on
    /// only that]
    #[arg(long = "manifest", alias = "plan", value_name = "FILE", env = "HUSHED_MANIFEST")]
    plan: Option<PathBuf>,

    /// The public model that belongs to the manifest [default: fetched once]
    #[arg(long, value_name = "FILE", env = "HUSHED_PUBLIC")]
    public: Option<PathBuf>,

    /// What the server may learn of lengths; a manifest that says otherwise is refused
    #[arg(long, value_enum, env = "HUSHED_LENGTHS")]
    lengths: Option<Learns>,
}

impl KeyFolder {
    /// Whether keys should be made.
    pub fn makes_keys(&self) -> bool {
        self.make_keys
    }

    /// The options; keys are made if `makes` says so.
    pub fn remote(&self, connection: ClientConfig, makes: bool, too_long: TooLong) -> Result<RemoteOptions, CliError> {
        let keys = self.keys.clone().ok_or(CliError::NoKeysFolder)?;
        Ok(RemoteOptions {
            plan: self.plan.clone(),
            public: self.public.clone(),
            make_keys: makes.then_some(self.most.options(self.days)),
            too_long,
            lengths: self.lengths.map(Learns::name),
            ..RemoteOptions::new(connection, keys)
        })
    }
}

/// Further arguments of `embed --protocol fhe`.
#[derive(clap::Args)]
#[command(next_help_heading = "With --protocol fhe")]
pub struct FheArgs {
    #[command(flatten)]
    batch: BatchArgs,

    #[command(flatten)]
    next: decrypt::Next,
}

/// How a batch is encrypted, sent and opened.
#[derive(clap::Args)]
pub struct BatchArgs {
    #[command(flatten)]
    folder: KeyFolder,

    /// Replace retired keys with new ones. The old ones move to that folder's `retired`, for what was sent under them.
    /// The server sees new keys, and thus that something was wrong with an answer
    #[arg(long)]
    new_keys: bool,

    /// Exit when the batch is sent, and print the id of its job
    #[arg(long)]
    detach: bool,

    /// Print the answers even if the canary's is wrong
    #[arg(long)]
    anyway: bool,
}

/// What is sent: texts, or items to choose from; nothing for a job that was sent before.
pub enum Sent<'a> {
    Texts(&'a [String]),
    Items(&'a [Item]),
    Job(&'a str),
}

impl<'a> Sent<'a> {
    pub fn of(given: &'a Given) -> Sent<'a> {
        match given {
            Given::Texts(texts) => Sent::Texts(texts),
            Given::Items(items) => Sent::Items(items),
        }
    }
}

impl FheArgs {
    /// Refuses options that have no meaning between two parties, unless the environment sets them.
    pub fn refuse(&self) -> Result<(), CliError> {
        let batch = &self.batch;
        let given = [
            ("--make-keys", batch.folder.make_keys),
            ("--new-keys", batch.new_keys),
            ("--detach", batch.detach),
            ("--anyway", batch.anyway),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(CliError::OtherProtocol { option }),
            None => Ok(()),
        }
    }

    pub fn run(
        &self,
        out: &Output,
        connection: ClientConfig,
        asked: &Asked,
        too_long: TooLong,
    ) -> Result<(), CliError> {
        let texts = match asked.job {
            Some(_) => Vec::new(),
            None => asked.read(out)?,
        };
        let sent = match &asked.job {
            Some(id) => Sent::Job(id),
            None => Sent::Texts(&texts),
        };
        let view = View::Next(&self.next);
        (self.batch).run(out, connection, &sent, (too_long, None), &view)
    }
}

impl BatchArgs {
    /// Sends a batch, unless it was sent before, and shows its answer. `wanted` is what a decoder must answer, if the
    /// model has to be one.
    pub fn run(
        &self,
        out: &Output,
        connection: ClientConfig,
        sent: &Sent<'_>,
        (too_long, wanted): (TooLong, Option<Wanted>),
        view: &View<'_>,
    ) -> Result<(), CliError> {
        let makes = self.folder.make_keys || self.new_keys;
        let remote = Remote::new(RemoteOptions {
            replace_retired: self.new_keys,
            wanted,
            ..self.folder.remote(connection, makes, too_long)?
        });
        let shown = Shown::new(out);
        let mut watch = |event| shown.event(event);
        let job = match sent {
            Sent::Job(id) => remote.find(id)?,
            Sent::Texts(texts) => remote.submit(texts, &mut watch)?,
            Sent::Items(items) => remote.submit_items(items, &mut watch)?,
        };
        if self.detach {
            shown.counting.end();
            return out.result(json!({ "job": job.to_string() }), || {
                format!("job {job}: fetch its answers with --job {job}")
            });
        }
        let answer = remote.collect(&job, &mut watch)?;
        shown.counting.end();
        decrypt::show(out, &answer, self.anyway, view)?;
        // Only answers that have been shown are deleted.
        Ok(remote.forget(&job)?)
    }
}

/// A bar for the current step, and a line for each event worth one.
struct Shown<'a> {
    out: &'a Output,
    counting: Counting<'a>,
}

impl<'a> Shown<'a> {
    fn new(out: &'a Output) -> Shown<'a> {
        Shown { out, counting: Counting::new(out, "connecting") }
    }

    fn event(&self, event: RemoteEvent) {
        match event {
            RemoteEvent::Plan { hash, lengths, first } => {
                let learns = match lengths {
                    Lengths::Public => "the length of each text".to_owned(),
                    Lengths::Bucket(multiple) => {
                        format!("the length of each text, rounded up to a multiple of {multiple}")
                    }
                    Lengths::Private => "no lengths".to_owned(),
                };
                let new = if first { ", kept from now on" } else { "" };
                self.note(&format!("manifest {hash}{new}: the server learns {learns}"));
            }
            RemoteEvent::SetAside(folder) => {
                self.note(&format!("the retired keys, and what was sent under them, are in {}", folder.display()))
            }
            RemoteEvent::Ordered(order) => self.note(&keygen::told(order)),
            RemoteEvent::Keys(done, of) => self.counting.at("making keys", done as u64, of as u64),
            RemoteEvent::Encrypting(done, of) => self.counting.at("encrypting", done as u64, of as u64),
            RemoteEvent::Encrypted(sent) => {
                let most = match self.out.is_json() {
                    true => usize::MAX,
                    false => Warning::NAMED,
                };
                let lines = Warning::lines(&sent.warnings, most);
                lines.iter().for_each(|line| self.warn(line));
            }
            RemoteEvent::Again => self.note("these texts wait for their answers: going on"),
            RemoteEvent::Sending { what, done, of } => {
                let what = match what {
                    "keys" => "sending keys, MiB",
                    _ => "sending texts, MiB",
                };
                self.counting.at(what, done >> 20, of >> 20);
            }
            RemoteEvent::Fetching(done, of) => self.counting.at("fetching, KiB", done >> 10, of >> 10),
            RemoteEvent::Job(state) => self.job(state),
            RemoteEvent::Lost(why) => self.note(&format!("the server is out of reach ({why}); trying again")),
        }
    }

    fn job(&self, state: JobState) {
        let bar = self.counting.bar();
        match state {
            JobState::Queued { ahead, left } => {
                bar.set_message(format!("queued, {ahead} before it{}", about(left)));
            }
            JobState::Running { layer, of, part, left } => {
                let done = u64::from(layer) * 1000 + u64::from(part);
                bar.set_length(u64::from(of.max(1)) * 1000);
                bar.set_position(done);
                bar.set_message(format!("layer {} of {of}{}", layer.saturating_add(1).min(of), about(left)));
            }
            JobState::Done { .. } | JobState::Unknown | JobState::Failed(_) => {}
        }
    }

    fn note(&self, line: &str) {
        self.counting.bar().suspend(|| self.out.note(line));
    }

    fn warn(&self, line: &str) {
        self.counting.bar().suspend(|| self.out.warn(line));
    }
}

fn about(left: u32) -> String {
    match left {
        0 => String::new(),
        left if left < 120 => format!(", about {left} s"),
        left => format!(", about {} min", left / 60),
    }
}
