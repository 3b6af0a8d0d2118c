//! A client's generator, and a text that it continues.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use hushed_serve::{
    Drafted, Finish, GenerateOptions, Kept, Message, Penalties, Prompt, Role, ServeError, Task, read_prefix,
};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::{errors, kept, plan, work};

/// How often Python's signal handlers get to run.
const LOOK: Duration = Duration::from_millis(50);

/// How to continue a text: `hushed._settings.Wanted`.
#[derive(FromPyObject)]
struct Wanted {
    max_tokens: usize,
    temperature: f64,
    seed: Option<u64>,
    penalties: Penalised,
    stop: Vec<String>,
    bucket: Option<usize>,
    pad_output: bool,
    public_prefix: Option<PathBuf>,
    ahead: u16,
    draft: u16,
    public_table: bool,
}

/// What is added to the logits: `hushed._settings.Penalties`.
#[derive(FromPyObject)]
struct Penalised {
    presence: f64,
    frequency: f64,
    logit_bias: BTreeMap<u32, f64>,
}

/// A generator. One text is continued at a time.
#[pyclass(frozen, module = "hushed._native")]
pub struct Generator {
    kept: Arc<Mutex<Kept>>,
    /// The text in progress.
    current: Mutex<Option<Arc<Text>>>,
    max_tokens: usize,
    bundle: String,
}

/// A text in progress.
#[pyclass(frozen, module = "hushed._native")]
pub struct Generation {
    text: Arc<Text>,
}

/// Nobody can take pieces any more. The generator also holds the text, so it would not end by itself.
impl Drop for Generation {
    fn drop(&mut self) {
        self.text.end();
    }
}

/// What generator and iterator share about a text.
struct Text {
    /// `None` once the text has ended or another one has begun.
    pieces: Mutex<Option<Receiver<Piece>>>,
    /// Set to end the pass at the next step.
    stop: Arc<AtomicBool>,
    finish: Mutex<Option<&'static str>>,
    /// What is known about the piece taken last.
    taken: Mutex<Taken>,
}

/// What is known about a piece besides its text.
#[derive(Clone, Default)]
struct Taken {
    /// The most likely tokens.
    top: Vec<u32>,
    /// The drafts so far.
    drafted: Drafted,
}

/// The result for a token: the text it adds, what else is known, and why it is the last, if it is.
type Piece = Result<(String, Taken, Option<Finish>), ServeError>;

#[pymethods]
impl Generator {
    #[new]
    fn new(py: Python<'_>, connection: Connection, answers: &str) -> PyResult<Self> {
        let kept = kept::open(py, connection, Task::Generate)?;
        plan::enough(py, answers, kept.answers())?;
        Ok(Self {
            max_tokens: kept.max_tokens(),
            bundle: kept.bundle().to_string(),
            kept: Arc::new(Mutex::new(kept)),
            current: Mutex::default(),
        })
    }

    /// Most tokens in a text and its continuation.
    #[getter]
    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Hash of the bundle, in hexadecimal.
    #[getter]
    fn bundle(&self) -> &str {
        &self.bundle
    }

    /// Begins to continue a text; ends the previous one.
    fn generate(&self, py: Python<'_>, prompt: String, wanted: Wanted) -> PyResult<Generation> {
        self.start(py, Said::Text(Prompt::text(prompt)), wanted)
    }

    /// Begins to answer a conversation, given as pairs of role and content; ends the previous text.
    fn chat(&self, py: Python<'_>, messages: Vec<(String, String)>, wanted: Wanted) -> PyResult<Generation> {
        let read = messages.into_iter().map(|(role, content)| {
            let role = Role::named(&role)?;
            Some(Message { role, content, name: None })
        });
        let messages: Option<Vec<Message>> = read.collect();
        let messages = messages.ok_or_else(|| errors::usage(py, "usage", "roles are system, user and assistant"))?;
        self.start(py, Said::Chat(messages), wanted)
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if let Some(text) = self.lock().take() {
            text.end();
        }
        kept::close(py, &self.kept)
    }
}

/// What to continue.
enum Said {
    Text(Prompt),
    Chat(Vec<Message>),
}

impl Generator {
    fn start(&self, py: Python<'_>, said: Said, wanted: Wanted) -> PyResult<Generation> {
        work::first_process(py)?;
        let options = wanted.options();
        let options = options.map_err(|error| errors::serve(py, &error))?;
        // At most one pass runs ahead: its piece waits here until taken, before the next pass begins.
        let (send, pieces) = sync_channel(0);
        let text = Arc::new(Text {
            pieces: Mutex::new(Some(pieces)),
            stop: Arc::default(),
            finish: Mutex::default(),
            taken: Mutex::default(),
        });
        self.begin(&text);
        let (kept, stop) = (Arc::clone(&self.kept), Arc::clone(&text.stop));
        let body = move || go(&kept, &said, &options, &stop, &send);
        let named = thread::Builder::new().name("hushed call".to_owned());
        named.spawn(body).map_err(|error| {
            let message = format!("could not start a thread: {error}; is there a limit on them?");
            errors::exception(py, 8, "system", &message)
        })?;
        Ok(Generation { text })
    }

    fn begin(&self, text: &Arc<Text>) {
        if let Some(before) = self.lock().replace(Arc::clone(text)) {
            before.end();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Text>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Generation {
    /// The next piece of the text; `None` at its end.
    fn next(&self, py: Python<'_>) -> PyResult<Option<String>> {
        work::first_process(py)?;
        loop {
            let text = Arc::clone(&self.text);
            match py.detach(move || text.next()) {
                Some(Ok(Ok((piece, ..)))) => return Ok(Some(piece)),
                Some(Ok(Err(error))) => return Err(errors::serve(py, &error)),
                Some(Err(RecvTimeoutError::Timeout)) => {}
                Some(Err(RecvTimeoutError::Disconnected)) => {
                    let message = "a call ended by a panic: see standard error";
                    return Err(errors::defect(py, message));
                }
                None if self.finish().is_some() => return Ok(None),
                None => {
                    let message = "this answer has been ended: by close(), by an error, or because another one began";
                    return Err(errors::usage(py, "usage", message));
                }
            }
            if let Err(exception) = py.check_signals() {
                self.text.stop.store(true, Ordering::Relaxed);
                self.text.end();
                return Err(exception);
            }
        }
    }

    /// Why the text ended: `end`, `stop` or `length`.
    #[getter]
    fn finish(&self) -> Option<&'static str> {
        *self.text.finish.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ids of the most likely tokens of the pass whose piece was taken last, its own token first.
    #[getter]
    fn top(&self) -> Vec<u32> {
        self.text.taken().top.clone()
    }

    /// Passes, their drafts, and the right ones among them, up to the pass whose piece was taken last.
    #[getter]
    fn drafted(&self) -> (usize, usize, usize) {
        let drafted = self.text.taken().drafted;
        (drafted.passes, drafted.drafts, drafted.right)
    }

    /// Ends the text early.
    fn close(&self) {
        self.text.end();
    }
}

impl Text {
    /// The next piece, if one comes before signals are checked; `None` if there will be no more.
    fn next(&self) -> Option<Result<Piece, RecvTimeoutError>> {
        let mut pieces = self.pieces.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = pieces.as_ref()?.recv_timeout(LOOK);
        if let Ok(Ok((_, taken, _))) = &piece {
            self.taken().clone_from(taken);
        }
        match &piece {
            Ok(Ok((.., Some(last)))) => {
                let finish = match last {
                    Finish::End => "end",
                    Finish::Stop => "stop",
                    Finish::Length => "length",
                };
                *self.finish.lock().unwrap_or_else(PoisonError::into_inner) = Some(finish);
                *pieces = None;
            }
            Ok(Ok(_)) | Err(RecvTimeoutError::Timeout) => {}
            _ => *pieces = None,
        }
        Some(piece)
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody takes pieces any more: the thread ends after the current pass, and the session is free.
    fn end(&self) {
        *self.pieces.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.end();
    }
}

impl Wanted {
    fn options(&self) -> Result<GenerateOptions, ServeError> {
        let public_prefix = self.public_prefix.as_deref().map(read_prefix).transpose()?;
        Ok(GenerateOptions {
            max_tokens: self.max_tokens,
            bucket: self.bucket,
            temperature: self.temperature,
            seed: self.seed,
            penalties: Penalties {
                presence: self.penalties.presence,
                frequency: self.penalties.frequency,
                logit_bias: self.penalties.logit_bias.clone(),
            },
            stop: self.stop.clone(),
            pad_output: self.pad_output,
            public_prefix,
            begin: false,
            ahead: self.ahead,
            draft: self.draft,
            public_table: self.public_table,
        })
    }
}

/// Runs passes as long as somebody takes their pieces.
fn go(kept: &Mutex<Kept>, said: &Said, options: &GenerateOptions, stop: &Arc<AtomicBool>, send: &SyncSender<Piece>) {
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    // The call below refuses more tokens than a session takes, with a named error.
    let texts = options.max_tokens.min(kept.max_texts());
    let done = kept.run(texts, |client| {
        client.stop_when(Arc::clone(stop));
        let mut generation = match said {
            Said::Text(prompt) => client.generate_prompt(prompt, options),
            Said::Chat(messages) => client.chat(messages, options),
        }?;
        while let Some(token) = generation.next().transpose()? {
            let taken = Taken { top: token.top, drafted: generation.drafted() };
            if send.send(Ok((token.text, taken, token.last))).is_err() {
                break;
            }
        }
        // A finished session is not kept for the next text.
        generation.end()
    });
    if let Err(error) = done {
        let _ = send.send(Err(error));
    }
}
