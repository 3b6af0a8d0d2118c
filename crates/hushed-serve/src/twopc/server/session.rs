//! One session, from the accepted socket to its end and its log line.
//!
//! Everything before [`admitted`] returns is done for strangers, so it is bounded in time
//! ([`crate::Deadlines::handshake`]) and memory, and costs one handshake.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod continued;
mod text;

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hushed_model::{Model, Program, Task};
use hushed_mpc::{
    Answers, Index, Input, Layers, Protocol, RunError, Sampler, Terms, Wanted, embeddings, labels, logits, search,
    search_opened_bits,
};
use hushed_net::{Expect, Party, Session, Stats};

use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe;
use crate::session::agree;
use crate::session::allowance::Charge;
use crate::session::greeting::{Agreed, Guest, admitted, closed, confirmed};
use crate::session::listener::Listener;
use crate::session::outcome::{Embedded, Outcome, Stop};
use crate::session::owner::Owner;
use crate::session::registry::Entry;
use crate::session::wire::{ABORT_IDLE, ABORT_STOPPING, IndexFacts, READY, Refusal, Reply, Welcome, WireFault};
use crate::twopc::prefix::Offered;
use crate::twopc::table;
use crate::twopc::wire::{ANSWER, Answer, BUNDLE, MAX_REQUEST, REQUEST, Request, Search};
use text::Text;

/// How often a session that waits for a request looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);

/// What all sessions share.
pub(super) struct Shared {
    pub(super) listener: Listener,
    pub(super) model: Model,
    pub(super) layers: Arc<Layers>,
    pub(super) bundle: Bundle,
    pub(super) agreement: Digest,
    pub(super) max_tokens: usize,
    pub(super) max_pass_tokens: usize,
    pub(super) max_texts: usize,
    /// The hash of the table, if it is public.
    pub(super) table: Option<Digest>,
    /// The model's steps.
    pub(super) program: Program,
    /// Draws tokens.
    pub(super) sampler: Sampler,
    /// Documents to search.
    pub(super) index: Option<Index>,
    /// Whether their scores are opened.
    pub(super) scores: bool,
    /// What an answer to one text or image counts as, in texts.
    pub(super) charge: usize,
    /// The bits that an answer to one text or image, or a token, opens.
    pub(super) bits: u64,
    /// What is opened in an answer.
    pub(super) answers: Answers,
    /// The prefix before every text that is continued.
    pub(super) prefix: Option<Offered>,
    /// Maximum number of passes for which a session holds products made ahead.
    pub(super) max_ahead: u16,
    /// Maximum drafts per pass.
    pub(super) max_drafts: u16,
}

impl Shared {
    /// The task of its model.
    pub(super) fn task(&self) -> Task {
        self.model.public.task()
    }
}

/// Serves one connection to its end.
pub(super) fn serve(
    shared: &Shared,
    entry: &Entry<'_>,
    socket: TcpStream,
    peer: SocketAddr,
    outcome: &mut Outcome,
) -> Result<(), Stop> {
    outcome.embedded = Some(Embedded::default());
    let (mut session, key) = shared.listener.session(entry, socket)?;
    let greeted = greet(shared, entry, &mut session, key);
    outcome.stats = session.stats();
    let (owner, link) = match greeted {
        Ok(Guest { owner, looks: false, link }) => (owner, link),
        Ok(Guest { looks: true, .. }) => {
            outcome.embedded = None;
            return closed(session, Ok(()));
        }
        Err(stop) => return closed(session, Err(stop)),
    };
    tracing::info!(session = entry.number(), client = owner.name(), %peer, %link, "session opened");
    outcome.client = Some(owner.clone());
    let mut backend = Protocol::establish(session, Arc::clone(&shared.layers), link)?;
    let result = texts(shared, entry, &owner, &mut backend, outcome);
    let session = backend.into_ctx().session;
    outcome.stats = session.stats();
    closed(session, result)
}

/// Exchanges hello, welcome and confirmation, and sends the bundle. Returns who the client is.
fn greet(shared: &Shared, entry: &Entry<'_>, session: &mut Session, key: Option<Digest>) -> Result<Guest, Stop> {
    let agreed = Agreed {
        agreement: shared.agreement,
        other: fhe::wire::agreement(),
        fhe: false,
        bundle: Some(shared.bundle.hash()),
        least: Charge {
            texts: shared.charge as u64,
            // A search may open less than an embedding.
            bits: match shared.index {
                Some(_) => 1,
                None => shared.bits,
            },
        },
    };
    let guest = admitted(session, &shared.listener, entry, key, &agreed)?;
    let welcome = Welcome {
        nonce: agree::nonce()?,
        agreement: shared.agreement,
        bundle: shared.bundle.hash(),
        bundle_bytes: narrow(shared.bundle.bytes().len()),
        max_tokens: narrow(shared.max_tokens),
        max_pass_tokens: narrow(shared.max_pass_tokens),
        max_texts: narrow(shared.max_texts),
        table: shared.table,
        index: shared.index.as_ref().map(|index| IndexFacts {
            documents: narrow(index.documents()),
            record_bytes: narrow(index.record_bytes()),
            scores: shared.scores,
        }),
        answers: shared.answers,
        prefix: shared.prefix.as_ref().map(|prefix| prefix.facts),
        max_ahead: shared.max_ahead,
        max_drafts: shared.max_drafts,
    };
    let (confirm, identity) = confirmed(session, &Reply::Welcome(welcome))?;
    session.set_limits(shared.listener.deadlines.within(shared.listener.deadlines.setup));
    if confirm.wants_bundle {
        session.send(BUNDLE, shared.bundle.bytes())?;
    }
    session.send(READY, &identity.tag(Party::Server))?;
    Ok(guest)
}

/// Runs passes until the client ends the session.
fn texts(
    shared: &Shared,
    entry: &Entry<'_>,
    owner: &Owner,
    backend: &mut Protocol,
    outcome: &mut Outcome,
) -> Result<(), Stop> {
    let mut passes = Passes {
        shared,
        entry,
        owner,
        backend,
        text: None,
        sent_table: false,
        done: outcome.embedded.get_or_insert_default(),
    };
    let deadlines = &shared.listener.deadlines;
    loop {
        let session = &mut passes.backend.ctx().session;
        session.set_limits(deadlines.within(deadlines.idle));
        entry.rests(passes.text.is_some());
        while !session.arrived(LOOK)? {
            if let Some(refusal) = entry.called_off() {
                session.abort(match refusal {
                    Refusal::Idle => ABORT_IDLE,
                    _ => ABORT_STOPPING,
                });
                return Err(Stop::Refuse(refusal));
            }
        }
        let request = session.recv(REQUEST, Expect::AtMost(MAX_REQUEST))?;
        match Request::decode(&request).map_err(ServeError::malformed("request"))? {
            Request::End => return Ok(()),
            // Once: a client keeps it, and it is long.
            Request::Table if std::mem::replace(&mut passes.sent_table, true) => {
                return Err(malformed("tag"));
            }
            Request::Table => send_table(shared, session)?,
            Request::Embed { rows, padded, public_table, ahead } => {
                let terms = Terms { padded, public_table };
                passes.embed(rows.into_iter().map(|r| r as usize).collect(), terms, ahead)?;
            }
            Request::Next(next) => passes.next(&next)?,
            Request::Search(search) => passes.search(&search)?,
            Request::Ahead(asked) => passes.ahead(&asked)?,
        }
    }
}

/// The passes of a session.
struct Passes<'a> {
    shared: &'a Shared,
    entry: &'a Entry<'a>,
    owner: &'a Owner,
    backend: &'a mut Protocol,
    /// The state of the text being continued.
    text: Option<Text>,
    /// Whether it has had the public table.
    sent_table: bool,
    done: &'a mut Embedded,
}

impl Passes<'_> {
    /// Runs a pass that gives one embedding or label per text. With products made ahead, its texts were counted when
    /// those were made.
    fn embed(&mut self, rows: Vec<usize>, terms: Terms, ahead: bool) -> Result<(), Stop> {
        let shared = self.shared;
        if shared.model.public.images.is_some() {
            whole_images(shared.model.public.max_tokens, &rows, terms)?;
        }
        let ours = self.for_this(shared.task() != Task::Generate);
        let (texts, tokens) = (rows.len(), rows.iter().sum());
        if ahead && !self.backend.holds_ahead(&rows) {
            return Err(malformed("flags"));
        }
        let (charge, bits) = match ahead {
            true => (0, 0),
            false => (texts.saturating_mul(shared.charge), shared.bits.saturating_mul(texts as u64)),
        };
        self.agreed(ours, &rows, (charge, bits), terms)?;
        // For the limits; the metrics count texts.
        self.done.texts = (self.done.texts + charge).saturating_sub(texts);
        self.pass(texts, tokens, |backend| {
            let input = Input::Lengths(rows.clone(), terms);
            let run = |on: &mut _| {
                match shared.task() {
                    Task::Classify => match shared.answers {
                        Answers::Logits => drop(logits(on, &shared.model, &input)?),
                        answers => drop(labels(on, &shared.model, &input, answers)?),
                    },
                    Task::Embed | Task::Generate => drop(embeddings(on, &shared.model, &input, shared.answers)?),
                }
                Ok(())
            };
            match ahead {
                true => backend.spending_ahead(&rows, run),
                false => run(backend),
            }
        })
    }

    /// Finds the documents nearest to a text. Each opened place counts as a text, and so does each record and each
    /// score: all reveal something of the documents.
    fn search(&mut self, asked: &Search) -> Result<(), Stop> {
        let shared = self.shared;
        let terms = Terms { padded: asked.padded, public_table: asked.public_table };
        let wanted = Wanted { top: usize::from(asked.top), records: asked.records, scores: asked.scores };
        let rows = asked.rows as usize;
        let has = |index: &&Index| wanted.top <= index.documents() && (!wanted.records || index.has_records());
        let index = shared.index.as_ref().filter(has).ok_or(Refusal::NoIndex);
        let index = match wanted.scores && !shared.scores {
            true => index.and(Err(Refusal::NoScores)),
            false => index,
        };
        let charge = wanted.charge();
        let bits = match index {
            Ok(index) if shared.listener.limits_bits() => search_opened_bits(index, wanted)?,
            _ => 0,
        };
        self.agreed(index.map(drop), &[rows], (charge, bits), terms)?;
        let Ok(index) = index else { return Ok(()) };
        // For the limits; the metrics count one text.
        self.done.texts += charge - 1;
        self.pass(1, rows, |backend| {
            let input = Input::Lengths(vec![rows], terms);
            search(backend, &shared.program, index, &input, wanted).map(drop)
        })
    }

    /// Refuses a task other than the model's.
    fn for_this(&self, is_for_this: bool) -> Result<(), Refusal> {
        let task = self.shared.task();
        match is_for_this {
            true => Ok(()),
            false => Err(Refusal::OtherTask { task }),
        }
    }

    /// Allows a pass over texts with these numbers of rows, which counts as `charge` texts and opens `bits`, or refuses
    /// and ends the session.
    fn agreed(
        &mut self,
        ours: Result<(), Refusal>,
        rows: &[usize],
        (charge, bits): (usize, u64),
        terms: Terms,
    ) -> Result<(), Stop> {
        let counted = Charge { texts: charge as u64, bits };
        let left = self.shared.max_texts.saturating_sub(self.done.texts);
        let allowed = ours
            .and_then(|()| allow(self.shared, rows, charge, terms, left))
            .and_then(|()| match self.entry.begin() {
                true => Ok(()),
                false => Err(Refusal::Stopping),
            })
            // Last, so that only what is about to run is counted.
            .and_then(|()| match charge {
                0 => Ok(()),
                _ => self.shared.listener.count(self.owner, counted),
            });
        let session = &mut self.backend.ctx().session;
        let deadlines = &self.shared.listener.deadlines;
        if let Err(refusal) = allowed {
            session.send_vec(ANSWER, Answer::Refused(refusal).encode())?;
            return Err(Stop::Refuse(refusal));
        }
        self.shared.listener.metrics.client(self.owner.name(), charge);
        session.set_limits(deadlines.within(deadlines.text));
        session.send_vec(ANSWER, Answer::Go.encode())?;
        Ok(())
    }

    /// Runs a pass and counts it.
    fn pass(
        &mut self,
        texts: usize,
        tokens: usize,
        run: impl FnOnce(&mut Protocol) -> Result<(), RunError>,
    ) -> Result<(), Stop> {
        let (began, before) = (Instant::now(), self.backend.ctx().session.stats());
        run(self.backend)?;
        self.backend.forget_costs();
        let stats = self.backend.ctx().session.stats().since(&before);
        let spent = began.elapsed();
        self.done.texts += texts;
        self.done.tokens += tokens;
        self.shared.listener.metrics.pass(texts, tokens, spent, &stats);
        debug(self.entry, texts, tokens, spent, &stats);
        Ok(())
    }
}

/// Every image has as many rows as the model reads, and no padding; any other request is malformed.
fn whole_images(of_one: usize, rows: &[usize], terms: Terms) -> Result<(), Stop> {
    let field = match rows.iter().all(|&r| r == of_one) {
        false => "number of tokens",
        true if terms.padded => "flags",
        true => return Ok(()),
    };
    Err(malformed(field))
}

/// The error for a request with a value in this field that our client never writes.
fn malformed(field: &'static str) -> Stop {
    let fault = WireFault::Undefined { field };
    ServeError::malformed("request")(fault).into()
}

/// Sends the table of token vectors, if its operator has made it public.
fn send_table(shared: &Shared, session: &mut Session) -> Result<(), Stop> {
    if shared.table.is_none() {
        let refusal = Refusal::PrivateTable;
        session.send_vec(ANSWER, Answer::Refused(refusal).encode())?;
        return Err(Stop::Refuse(refusal));
    }
    session.set_limits(shared.listener.deadlines.within(shared.listener.deadlines.text));
    session.send_vec(ANSWER, Answer::Go.encode())?;
    match shared.model.embedding() {
        Some(e) => Ok(table::send(session, e)?),
        None => Err(Stop::Refuse(Refusal::PrivateTable)),
    }
}

fn debug(entry: &Entry<'_>, texts: usize, tokens: usize, spent: Duration, stats: &Stats) {
    tracing::debug!(
        session = entry.number(),
        texts,
        tokens,
        seconds = spent.as_secs_f64(),
        sent = stats.bytes_sent,
        received = stats.bytes_received,
        rounds = stats.rounds,
        "pass done"
    );
}

/// Checks that texts with these numbers of rows may run in a session that has `left` texts left.
fn allow(shared: &Shared, rows: &[usize], charge: usize, terms: Terms, left: usize) -> Result<(), Refusal> {
    if terms.public_table && shared.table.is_none() {
        return Err(Refusal::PrivateTable);
    }
    if rows.iter().any(|&r| r > shared.max_tokens) {
        return Err(Refusal::TooLong { limit: narrow(shared.max_tokens) });
    }
    if rows.iter().sum::<usize>() > shared.max_pass_tokens {
        return Err(Refusal::PassTooLarge { limit: narrow(shared.max_pass_tokens) });
    }
    if charge > left {
        return Err(Refusal::TooManyTexts { limit: narrow(shared.max_texts) });
    }
    Ok(())
}

fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
