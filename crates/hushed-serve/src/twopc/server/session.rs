//! One session, from the accepted socket to its end and its log line.
//!
//! Everything before [`admit`] is done for strangers: it is bounded in time ([`crate::Deadlines::handshake`]) and
//! memory, and costs one handshake.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hushed_model::Model;
use hushed_mpc::{Input, Layers, Protocol, Terms, embeddings};
use hushed_net::{Expect, Party, Session, Stats};

use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe;
use crate::session::agree;
use crate::session::greeting::{admitted, closed, confirmed, known};
use crate::session::listener::Listener;
use crate::session::outcome::{Embedded, Outcome, Stop};
use crate::session::owner::Owner;
use crate::session::registry::Entry;
use crate::session::wire::{ABORT_STOPPING, READY, Refusal, Reply, Welcome};
use crate::twopc::table;
use crate::twopc::wire::{ANSWER, Answer, BUNDLE, MAX_REQUEST, REQUEST, Request};

/// What all sessions read.
pub(super) struct Shared {
    pub(super) listener: Listener,
    pub(super) model: Model,
    pub(super) layers: Arc<Layers>,
    pub(super) bundle: Bundle,
    pub(super) plan: Digest,
    pub(super) max_tokens: usize,
    pub(super) max_pass_tokens: usize,
    pub(super) max_texts: usize,
    /// Its hash, if the table is public.
    pub(super) table: Option<Digest>,
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
    let (mut session, certificate) = shared.listener.session(entry, socket)?;
    let greeted = greet(shared, entry, &mut session, certificate);
    outcome.stats = session.stats();
    let owner = match greeted {
        Ok(owner) => owner,
        Err(stop) => return closed(session, Err(stop)),
    };
    tracing::info!(session = entry.number(), %peer, "session opened");
    let mut backend = Protocol::establish(session, Arc::clone(&shared.layers))?;
    let result = texts(shared, entry, &owner, &mut backend, outcome);
    let session = backend.into_ctx().session;
    outcome.stats = session.stats();
    closed(session, result)
}

/// Hello, welcome, confirmation, bundle. Returns who the client is.
fn greet(
    shared: &Shared,
    entry: &Entry<'_>,
    session: &mut Session,
    certificate: Option<Digest>,
) -> Result<Owner, Stop> {
    let owner = admitted(session, |hello| admit(shared, entry, hello, certificate))?;
    let welcome = Welcome {
        nonce: agree::nonce()?,
        plan: shared.plan,
        bundle: shared.bundle.hash(),
        bundle_bytes: narrow(shared.bundle.bytes().len()),
        max_tokens: narrow(shared.max_tokens),
        max_pass_tokens: narrow(shared.max_pass_tokens),
        max_texts: narrow(shared.max_texts),
        table: shared.table,
    };
    let (confirm, identity) = confirmed(session, &Reply::Welcome(welcome))?;
    session.set_limits(
        shared
            .listener
            .deadlines
            .within(shared.listener.deadlines.setup),
    );
    if confirm.wants_bundle {
        session.send(BUNDLE, shared.bundle.bytes())?;
    }
    session.send(READY, &identity.tag(Party::Server))?;
    Ok(owner)
}

/// Decides on a hello.
fn admit(
    shared: &Shared,
    entry: &Entry<'_>,
    hello: &[u8],
    certificate: Option<Digest>,
) -> Result<Owner, Stop> {
    let refuse = |refusal| Err(Stop::Refuse(refusal));
    let hello = known(&shared.listener, hello)?;
    if hello.plan == fhe::wire::agreement() {
        return refuse(Refusal::OtherProtocol { fhe: false });
    }
    if hello.plan != shared.plan {
        return refuse(Refusal::OtherPlan {
            server: shared.plan,
        });
    }
    let bundle = shared.bundle.hash();
    if hello.pinned.is_some_and(|pinned| pinned != bundle) {
        return refuse(Refusal::OtherBundle { server: bundle });
    }
    shared.listener.admit(entry).map_err(Stop::Refuse)?;
    Ok(shared.listener.owner(hello.token.as_ref(), certificate))
}

/// Runs passes until the client ends the session.
fn texts(
    shared: &Shared,
    entry: &Entry<'_>,
    owner: &Owner,
    backend: &mut Protocol,
    outcome: &mut Outcome,
) -> Result<(), Stop> {
    let done = outcome.embedded.get_or_insert_default();
    loop {
        let session = &mut backend.ctx().session;
        if !entry.rest() {
            session.abort(ABORT_STOPPING);
            return Err(Stop::Refuse(Refusal::Stopping));
        }
        session.set_limits(
            shared
                .listener
                .deadlines
                .within(shared.listener.deadlines.idle),
        );
        let request = session.recv(REQUEST, Expect::AtMost(MAX_REQUEST))?;
        let request = Request::decode(&request).map_err(ServeError::malformed("request"))?;
        let (rows, terms) = match request {
            Request::End => return Ok(()),
            Request::Table => {
                send_table(shared, session)?;
                continue;
            }
            Request::Embed {
                rows,
                padded,
                public_table,
            } => {
                let terms = Terms {
                    padded,
                    public_table,
                };
                (rows, terms)
            }
        };
        let rows: Vec<usize> = rows.into_iter().map(|r| r as usize).collect();
        if let Err(refusal) = allow(shared, entry, owner, &rows, terms, done.texts) {
            session.send_vec(ANSWER, Answer::Refused(refusal).encode())?;
            return Err(Stop::Refuse(refusal));
        }
        session.set_limits(
            shared
                .listener
                .deadlines
                .within(shared.listener.deadlines.text),
        );
        session.send_vec(ANSWER, Answer::Go.encode())?;
        let (began, before) = (Instant::now(), session.stats());
        let (texts, tokens) = (rows.len(), rows.iter().sum());
        embeddings(backend, &shared.model, &Input::Lengths(rows, terms))?;
        let stats = backend.ctx().session.stats().since(&before);
        let spent = began.elapsed();
        done.texts += texts;
        done.tokens += tokens;
        shared.listener.metrics.pass(texts, tokens, spent, &stats);
        debug(entry, texts, tokens, spent, &stats);
    }
}

/// The table of token vectors, if its operator has made it public.
fn send_table(shared: &Shared, session: &mut Session) -> Result<(), Stop> {
    if shared.table.is_none() {
        let refusal = Refusal::PrivateTable;
        session.send_vec(ANSWER, Answer::Refused(refusal).encode())?;
        return Err(Stop::Refuse(refusal));
    }
    session.set_limits(
        shared
            .listener
            .deadlines
            .within(shared.listener.deadlines.text),
    );
    session.send_vec(ANSWER, Answer::Go.encode())?;
    Ok(table::send(session, shared.model.embedding())?)
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

/// Whether texts of this many rows may run now.
fn allow(
    shared: &Shared,
    entry: &Entry<'_>,
    owner: &Owner,
    rows: &[usize],
    terms: Terms,
    done: usize,
) -> Result<(), Refusal> {
    if terms.public_table && shared.table.is_none() {
        return Err(Refusal::PrivateTable);
    }
    if rows.iter().any(|&r| r > shared.max_tokens) {
        return Err(Refusal::TooLong {
            limit: narrow(shared.max_tokens),
        });
    }
    if rows.iter().sum::<usize>() > shared.max_pass_tokens {
        return Err(Refusal::PassTooLarge {
            limit: narrow(shared.max_pass_tokens),
        });
    }
    if done + rows.len() > shared.max_texts {
        return Err(Refusal::TooManyTexts {
            limit: narrow(shared.max_texts),
        });
    }
    if !entry.begin() {
        return Err(Refusal::Stopping);
    }
    // Last, so that only what is about to run is counted.
    shared.listener.count(owner, rows.len())
}

fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
