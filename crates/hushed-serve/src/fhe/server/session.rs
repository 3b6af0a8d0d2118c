//! One client session: it sends files, asks for runs, and fetches replies. It may break at any moment; the next one
//! continues.
//!
//! Everything before [`admitted`] returns is done for strangers, so it is bounded in time and memory.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use hushed_net::{Expect, NetError, Party, Session};

use super::jobs::Jobs;
use crate::bundle;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::PublicModel;
use crate::fhe::wire::{
    DATA, Download, MAX_REQUEST, PART, REQUEST, RESPONSE, Request, Response, Upload, agreement, frames,
};
use crate::session::agree;
use crate::session::allowance::Charge;
use crate::session::greeting::{Agreed, Guest, admitted, closed, confirmed};
use crate::session::listener::Listener;
use crate::session::outcome::{Outcome, Stop};
use crate::session::owner::Owner;
use crate::session::registry::Entry;
use crate::session::wire::{ABORT_STOPPING, FheWelcome, READY, Refusal, Reply};

/// Maximum time of a session, checked between two requests.
const MAX_SESSION: Duration = Duration::from_secs(3600);
/// Maximum number of successive requests that neither send nor fetch a part.
const MAX_IDLE_REQUESTS: u32 = 64;

/// What all sessions share.
pub(super) struct Shared {
    pub(super) listener: Listener,
    pub(super) plan: Vec<u8>,
    pub(super) plan_hash: Digest,
    pub(super) public: PublicModel,
    /// What a batch counts as: the server does not know how many texts it holds.
    pub(super) places: usize,
}

/// Serves one connection to its end.
pub(super) fn serve(
    shared: &Shared,
    jobs: &Jobs,
    entry: &Entry<'_>,
    socket: TcpStream,
    peer: SocketAddr,
    outcome: &mut Outcome,
) -> Result<(), Stop> {
    tracing::debug!(session = entry.number(), %peer, "connected");
    let (mut session, key) = shared.listener.session(entry, socket)?;
    let done =
        greet(shared, entry, &mut session, key).and_then(|owner| answer(shared, jobs, entry, &mut session, &owner));
    outcome.stats = session.stats();
    closed(session, done)
}

/// Exchanges hello, welcome and confirmation. Returns who the client is.
fn greet(shared: &Shared, entry: &Entry<'_>, session: &mut Session, key: Option<Digest>) -> Result<Owner, Stop> {
    let agreed = Agreed {
        agreement: agreement(),
        other: bundle::agreement_hash()?,
        fhe: true,
        bundle: None,
        // A client that has had its batches still fetches their replies.
        least: Charge::default(),
    };
    let Guest { owner, .. } = admitted(session, &shared.listener, entry, key, &agreed)?;
    let welcome = FheWelcome {
        nonce: agree::nonce()?,
        plan: shared.plan_hash,
        plan_bytes: u32::try_from(shared.plan.len()).unwrap_or(u32::MAX),
        public: shared.public.hash(),
        public_bytes: shared.public.bytes().len() as u64,
    };
    let (_, identity) = confirmed(session, &Reply::Fhe(welcome))?;
    session.send(READY, &identity.tag(Party::Server))?;
    Ok(owner)
}

/// Checks that a session may send another request. Sessions are few, and each may wait a while for its next request:
/// one that never ends, or keeps asking without sending or fetching anything, would keep others out. A client that is
/// cut off starts another session.
fn may_continue(began: Instant, idle_requests: u32) -> Result<(), Stop> {
    match began.elapsed() < MAX_SESSION && idle_requests < MAX_IDLE_REQUESTS {
        true => Ok(()),
        false => Err(ServeError::from(NetError::OutOfTime).into()),
    }
}

/// Answers until the client ends the session.
fn answer(shared: &Shared, jobs: &Jobs, entry: &Entry<'_>, session: &mut Session, owner: &Owner) -> Result<(), Stop> {
    let deadlines = &shared.listener.deadlines;
    let (began, mut idle_requests) = (Instant::now(), 0);
    loop {
        may_continue(began, idle_requests)?;
        if !entry.rest() {
            session.abort(ABORT_STOPPING);
            return Err(Stop::Refuse(Refusal::Stopping));
        }
        session.set_limits(deadlines.within(deadlines.idle));
        let request = session.recv(REQUEST, Expect::AtMost(MAX_REQUEST))?;
        let request = Request::decode(&request).map_err(ServeError::malformed("request"))?;
        if !entry.begin() {
            session.abort(ABORT_STOPPING);
            return Err(Stop::Refuse(Refusal::Stopping));
        }
        session.set_limits(deadlines.within(deadlines.text));
        idle_requests = match request {
            Request::Put { .. } | Request::Get { .. } => 0,
            _ => idle_requests + 1,
        };
        let response = match request {
            Request::End => return Ok(()),
            Request::Offer { file, bytes } => {
                let have = jobs.storage().offer(owner, file, bytes);
                have.map(|bytes| Response::Have { bytes })
            }
            Request::Put { file, offset, bytes } => {
                let have = put(jobs, session, owner, file, offset, bytes)?;
                have.map(|bytes| Response::Have { bytes })
            }
            Request::Get { file, offset } => match get(shared, jobs, session, owner, file, offset)? {
                Ok(()) => continue,
                Err(refusal) => Err(refusal),
            },
            Request::Submit { keys, request } => {
                let charge = Charge { texts: shared.places as u64, bits: 0 };
                let count = || shared.listener.count(owner, charge);
                jobs.submit(owner, keys, request, &count).map(Response::Job)
            }
            Request::Status { job } => Ok(Response::Job(jobs.status(owner, &job))),
        };
        let (response, refused) = match response {
            Ok(response) => (response, None),
            Err(refusal) => (Response::Refused(refusal), Some(refusal)),
        };
        session.send_vec(RESPONSE, response.encode())?;
        if let Some(refusal) = refused {
            return Err(Stop::Refuse(refusal));
        }
    }
}

/// Receives a part. A refused part is received all the same: the client reads no answer before it has sent it.
fn put(
    jobs: &Jobs,
    session: &mut Session,
    owner: &Owner,
    file: Upload,
    offset: u64,
    bytes: u32,
) -> Result<Result<u64, Refusal>, Stop> {
    let mut part = jobs.storage().part(owner, file, offset, bytes);
    for frame in frames(bytes.into()) {
        let data = session.recv(DATA, Expect::Exactly(frame))?;
        if let Ok(open) = &mut part
            && let Err(refusal) = open.write(&data)
        {
            part = Err(refusal);
        }
    }
    Ok(part.and_then(|part| part.end()))
}

/// Sends a part, preceded by its length.
fn get(
    shared: &Shared,
    jobs: &Jobs,
    session: &mut Session,
    owner: &Owner,
    file: Download,
    offset: u64,
) -> Result<Result<(), Refusal>, Stop> {
    let mut opened = match file {
        Download::Plan => Source::Memory(&shared.plan),
        Download::Public => Source::Memory(shared.public.bytes()),
        Download::Reply(job) => match jobs.reply(owner, &job) {
            // It may have expired a moment ago.
            Ok(path) => match File::open(path) {
                Ok(file) => Source::File(file),
                Err(_) => return Ok(Err(Refusal::NoReply)),
            },
            Err(refusal) => return Ok(Err(refusal)),
        },
    };
    let total = match &opened {
        Source::Memory(bytes) => bytes.len() as u64,
        Source::File(file) => file.metadata().map_or(0, |metadata| metadata.len()),
    };
    let Some(left) = total.checked_sub(offset) else {
        return Ok(Err(Refusal::WrongOffset));
    };
    let part = left.min(PART);
    let response = Response::Part { total, bytes: u32::try_from(part).unwrap_or(0) };
    session.send_vec(RESPONSE, response.encode())?;
    let mut at = offset;
    for frame in frames(part) {
        let bytes = opened.read(at, frame).map_err(|source| ServeError::File {
            operation: "read",
            path: "a reply".into(),
            source,
        })?;
        session.send_vec(DATA, bytes)?;
        at += frame as u64;
    }
    Ok(Ok(()))
}

enum Source<'a> {
    Memory(&'a [u8]),
    File(File),
}

impl Source<'_> {
    fn read(&mut self, at: u64, bytes: usize) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Memory(all) => {
                let rest = usize::try_from(at).ok().and_then(|at| all.get(at..));
                let piece = rest.and_then(|rest| rest.get(..bytes));
                piece.map(<[u8]>::to_vec).ok_or_else(|| std::io::ErrorKind::UnexpectedEof.into())
            }
            Self::File(file) => {
                let mut piece = vec![0; bytes];
                file.seek(SeekFrom::Start(at))?;
                file.read_exact(&mut piece)?;
                Ok(piece)
            }
        }
    }
}
