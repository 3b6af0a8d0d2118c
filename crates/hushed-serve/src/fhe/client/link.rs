//! The client side of a session with a server for encrypted runs.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::time::Duration;

use hushed_fhe::files::FileError;
use hushed_net::{Expect, Session};

use crate::bundle;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::wire::{
    DATA, Download, JobState, MAX_RESPONSE, PART, REQUEST, RESPONSE, Request, Response, Upload, agreement, frames,
};
use crate::files::open_append;
use crate::session::connect::{ClientConfig, open};
use crate::session::hello::{Asked, confirm, ready, replied, unasked_wait};
use crate::session::wire::{FheWelcome, Refusal, Reply, WireFault};

/// A session.
pub(super) struct Link<'a> {
    config: &'a ClientConfig,
    session: Session,
    pub(super) welcome: FheWelcome,
}

impl<'a> Link<'a> {
    /// Connects and performs the handshake.
    pub(super) fn open(config: &'a ClientConfig) -> Result<Link<'a>, ServeError> {
        let (mut session, _) = open(config)?;
        // Its sessions are short: nobody waits for one.
        let asked = Asked {
            agreement: agreement(),
            pinned: None,
            patience: Duration::ZERO,
            looks: false,
            link: hushed_mpc::Link::default(),
        };
        let (reply, _) = replied(&mut session, config, &asked)?;
        let welcome = match reply {
            Reply::Fhe(welcome) => welcome,
            Reply::Welcome(_) => {
                return Err(ServeError::Refused(Refusal::OtherProtocol { fhe: false }));
            }
            // A server of a release with only one protocol.
            Reply::Refused(Refusal::OtherAgreement { server }) if server == bundle::agreement_hash()? => {
                return Err(ServeError::Refused(Refusal::OtherProtocol { fhe: false }));
            }
            Reply::Refused(refusal) => return Err(ServeError::Refused(refusal)),
            Reply::Waiting(_) => return Err(unasked_wait()),
        };
        let identity = confirm(&mut session, false)?;
        ready(&mut session, &identity)?;
        Ok(Link { config, session, welcome })
    }

    /// Ends the session cleanly.
    pub(super) fn close(mut self) -> Result<(), ServeError> {
        let deadlines = &self.config.deadlines;
        self.session.set_limits(deadlines.within(deadlines.handshake));
        self.session.send_vec(REQUEST, Request::End.encode())?;
        Ok(self.session.close()?)
    }

    /// Asks for the state of a job.
    pub(super) fn status(&mut self, job: Digest) -> Result<JobState, ServeError> {
        self.job(Request::Status { job })
    }

    /// Asks for a run.
    pub(super) fn submit(&mut self, keys: Digest, request: Digest) -> Result<JobState, ServeError> {
        self.job(Request::Submit { keys, request })
    }

    /// Sends the rest of a file. `progress` is called with the bytes that the server has and their total.
    pub(super) fn send(
        &mut self,
        file: Upload,
        path: &Path,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ServeError> {
        let failed = || FileError::io("read", path);
        let mut source = File::open(path).map_err(failed()).map_err(FheJobError::from)?;
        let metadata = source.metadata().map_err(failed());
        let bytes = metadata.map_err(FheJobError::from)?.len();
        let mut have = self.have(Request::Offer { file, bytes })?;
        while have < bytes {
            progress(have, bytes);
            let part = (bytes - have).min(PART);
            self.begin(Request::Put { file, offset: have, bytes: u32::try_from(part).unwrap_or(0) })?;
            let sought = source.seek(SeekFrom::Start(have)).map_err(failed());
            sought.map_err(FheJobError::from)?;
            for frame in frames(part) {
                let mut piece = vec![0; frame];
                let read = source.read_exact(&mut piece).map_err(failed());
                read.map_err(FheJobError::from)?;
                self.session.send_vec(DATA, piece)?;
            }
            let now = self.response().and_then(|response| match response {
                Response::Have { bytes } => Ok(bytes),
                _ => Err(unexpected()),
            })?;
            if now != have + part {
                return Err(unexpected());
            }
            have = now;
        }
        progress(bytes, bytes);
        match have == bytes {
            true => Ok(()),
            false => Err(unexpected()),
        }
    }

    /// Receives the rest of a file of `bytes` bytes; if that fails, what has arrived stays.
    pub(super) fn receive(
        &mut self,
        file: Download,
        path: &Path,
        bytes: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), ServeError> {
        let failed = || FileError::io("write", path);
        let mut target = open_append(path).map_err(failed()).map_err(FheJobError::from)?;
        let metadata = target.metadata().map_err(failed());
        let mut have = metadata.map_err(FheJobError::from)?.len();
        if have > bytes {
            // It cannot be the beginning of this file.
            let cut = target.set_len(0).map_err(failed());
            cut.map_err(FheJobError::from)?;
            have = 0;
        }
        while have < bytes {
            progress(have, bytes);
            self.begin(Request::Get { file, offset: have })?;
            let Response::Part { total, bytes: part } = self.response()? else {
                return Err(unexpected());
            };
            if total != bytes || part == 0 || u64::from(part) > bytes - have {
                return Err(not_as_offered(file));
            }
            for frame in frames(part.into()) {
                let piece = self.session.recv(DATA, Expect::Exactly(frame))?;
                let written = target.write_all(&piece).map_err(failed());
                written.map_err(FheJobError::from)?;
            }
            have += u64::from(part);
        }
        progress(bytes, bytes);
        let synced = target.sync_all().map_err(failed());
        Ok(synced.map_err(FheJobError::from)?)
    }

    fn job(&mut self, request: Request) -> Result<JobState, ServeError> {
        self.begin(request)?;
        match self.response()? {
            Response::Job(state) => Ok(state),
            _ => Err(unexpected()),
        }
    }

    fn have(&mut self, request: Request) -> Result<u64, ServeError> {
        self.begin(request)?;
        match self.response()? {
            Response::Have { bytes } => Ok(bytes),
            _ => Err(unexpected()),
        }
    }

    fn begin(&mut self, request: Request) -> Result<(), ServeError> {
        let deadlines = &self.config.deadlines;
        self.session.set_limits(deadlines.within(deadlines.text));
        Ok(self.session.send_vec(REQUEST, request.encode())?)
    }

    fn response(&mut self) -> Result<Response, ServeError> {
        let response = self.session.recv(RESPONSE, Expect::AtMost(MAX_RESPONSE))?;
        match Response::decode(&response).map_err(ServeError::malformed("answer"))? {
            Response::Refused(refusal) => Err(ServeError::Refused(refusal)),
            response => Ok(response),
        }
    }
}

/// The error for a response to another request.
fn unexpected() -> ServeError {
    ServeError::malformed("answer")(WireFault::Undefined { field: "kind" })
}

pub(super) fn not_as_offered(file: Download) -> ServeError {
    let what = match file {
        Download::Plan => "manifest",
        Download::Public => "public model",
        Download::Reply(_) => "reply",
    };
    FheJobError::NotAsOffered { what }.into()
}
