//! Ferret: random correlated OTs with sublinear traffic (Yang, Weng, Lan, Zhang, Wang, CCS 2020), iterated, and checked
//! against parties that cheat.
//!
//! Each direction starts at its first use: base OTs and a small extension ([`start`]) give the inputs of one extension
//! with the smallest set. From then on every extension keeps the inputs of the next ([`extend`]) and hands out the
//! rest, step by step. Both parties call with the same counts in the same order, so both run out at the same call.
//! Extensions are one-way, sender to receiver, and add no round of their own.
//!
//! A source that failed stays failed: restarting a direction would run base OTs and extensions under the same `delta`,
//! session id and indices, and repeat pads that may have been used.
//!
//! Beside its masked sum in a check, a receiver sends something at the start only, which [`start`] checks; a sender's
//! extensions are checked before every opening ([`super::Correlations::check`]). A party that cheats passes with
//! probability 2^-c if it is to learn c bits of the other's secrets: then OTs are malicious-secure by the theorems of
//! SoftSpokenOT (delta with leakage) and Ferret (LPN with static leakage).
//!
//! Security: LPN with regular noise at the sets of [`params`], a code of its own for every extension, the half-tree
//! under the hash of `hushed_math::bits`, base OTs under computational Diffie–Hellman in the random-oracle model. Base
//! OTs are not post-quantum: a party that records a session and later has a quantum computer learns its OTs.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod extend;
mod params;
mod start;

pub use params::FerretParams;
#[cfg(any(test, feature = "testing"))]
pub(crate) use start::{cases, read as read_start};

use super::base::SessionId;
use super::{Correlations, CotRecv, CotSend, Unchecked, check};
use crate::error::TwopcError;
use extend::Extender;
use hushed_math::bits::{Block, PadHash};
use hushed_math::process::Origin;
use hushed_math::rng::SecretRng;
use hushed_math::taint;
use hushed_net::{Expect, Kind, Party, Session};
use hushed_rlwe::RlweError;
use sha2::{Digest, Sha256};
use start::{StartReceiver, StartSender};
use zeroize::Zeroizing;

const HELLO: Kind = Kind(0x0340);
const BASE: Kind = Kind(0x0341);
const POINTS: Kind = Kind(0x0342);
const COLUMNS: Kind = Kind(0x0343);
const TREES: Kind = Kind(0x0344);

/// A nonce, and a byte with the version and the number of the parameter set.
const HELLO_BYTES: usize = 17;

/// Incremented whenever equal messages would give different OTs or pads, when the table of sets changes, and when a
/// step does. 5: checks against parties that cheat, rows of nine taps, a code of its own for every extension.
const VERSION: u8 = 6;

/// The set of the first extension: the smallest, because its inputs come from the more expensive [`start`].
const FIRST: FerretParams = FerretParams::K16;

/// Random correlated OTs in both directions.
pub struct FerretOt {
    origin: Origin,
    rng: SecretRng,
    id: SessionId,
    party: Party,
    params: FerretParams,
    delta: Block,
    sending: Direction,
    receiving: Direction,
}

/// One direction of a source.
enum Direction {
    /// Not used yet.
    Fresh,
    Running(Box<Stock>),
    /// A step failed or is under way; nothing leads back to [`Direction::Fresh`].
    Failed,
}

impl Direction {
    /// Moves the state out. Until a step has succeeded and put it back, the direction counts as failed.
    fn take(&mut self) -> Direction {
        core::mem::replace(self, Direction::Failed)
    }
}

impl FerretOt {
    /// Agrees on a session with the peer, for the default set. One round, 17 bytes each way; the directions are set up
    /// at their first use.
    ///
    /// # Errors
    /// If the session fails; [`TwopcError::PeerMisbehaved`] if the peer uses another version or set.
    pub fn new(session: &mut Session, rng: &mut SecretRng) -> Result<Self, TwopcError> {
        Self::with_params(session, rng, FerretParams::DEFAULT)
    }

    /// [`FerretOt::new`] for the given set, which must be the peer's too.
    pub fn with_params(session: &mut Session, rng: &mut SecretRng, params: FerretParams) -> Result<Self, TwopcError> {
        rng.check().map_err(RlweError::from)?;
        let mut rng = rng.fork("ferret");
        let mut hello = [0u8; HELLO_BYTES];
        rng.fill_bytes(&mut hello);
        taint::public(&hello);
        hello[HELLO_BYTES - 1] = VERSION << 4 | params.id();
        let theirs = session.exchange(HELLO, &hello, Expect::Exactly(HELLO_BYTES))?;
        if theirs.last() != hello.last() {
            return Err(TwopcError::PeerMisbehaved { what: "OT version or parameter set" });
        }
        // By now the transcript holds both nonces and everything agreed before.
        let id = Sha256::new()
            .chain_update(b"hushed ferret")
            .chain_update([VERSION])
            .chain_update(session.transcript_hash())
            .finalize()
            .into();
        let mut delta = [0u8; 16];
        rng.fill_bytes(&mut delta);
        Ok(FerretOt {
            origin: Origin::here(),
            rng,
            id,
            party: session.party(),
            params,
            delta: Block::from_bytes(delta).with_lsb(),
            sending: Direction::Fresh,
            receiving: Direction::Fresh,
        })
    }

    /// The session's id for the direction in which `sender` sends and for one use.
    fn direction_id(&self, sender: Party, domain: &[u8]) -> SessionId {
        Sha256::new()
            .chain_update(self.id)
            .chain_update([u8::from(sender == Party::Client)])
            .chain_update(domain)
            .finalize()
            .into()
    }

    /// A stock with no OTs except the `inputs` of its first extension. Its public seeds depend on `columns`, the last
    /// message of the receiver, which chose its inputs before it knew codes and keys: it could otherwise look for
    /// inputs that make two of its blocks collide under one key of the pads' hash.
    fn stock(&self, sender: Party, inputs: Vec<Block>, columns: &[u8]) -> Box<Stock> {
        let bound = Sha256::new().chain_update(self.direction_id(sender, b"started")).chain_update(columns);
        let seed = |domain: &[u8]| {
            let id = bound.clone().chain_update(domain).finalize();
            let mut seed = [0; 16];
            seed.iter_mut().zip(id).for_each(|(s, i)| *s = i);
            seed
        };
        let first = Extender::new(FIRST, seed(b"first code"), seed(b"first trees"));
        let later = Extender::new(self.params, seed(b"code"), seed(b"trees"));
        let hash = PadHash::new(seed(b"pads"));
        Box::new(Stock::new(first, later, inputs, hash))
    }

    fn start_sending(&mut self, s: &mut Session) -> Result<Box<Stock>, TwopcError> {
        let n = FIRST.inputs();
        let id = self.direction_id(self.party, b"base");
        let first = s.recv(BASE, Expect::Exactly(start::FIRST_BYTES))?;
        let (start, points) = StartSender::new(id, self.delta, &first, &mut self.rng)?;
        s.send_vec(POINTS, points)?;
        let columns = s.recv(COLUMNS, Expect::Exactly(start::columns_bytes(n)))?;
        let inputs = start.finish(&columns, n)?;
        Ok(self.stock(self.party, inputs, &columns))
    }

    fn start_receiving(&mut self, s: &mut Session) -> Result<Box<Stock>, TwopcError> {
        let n = FIRST.inputs();
        let sender = self.party.other();
        let start = StartReceiver::new(self.direction_id(sender, b"base"), &mut self.rng);
        s.send(BASE, start.message())?;
        let points = s.recv(POINTS, Expect::Exactly(start::POINTS_BYTES))?;
        let (inputs, columns) = start.finish(&points, n, &mut self.rng)?;
        // As it is about to be sent; the stock's seeds depend on it.
        taint::public(&columns);
        // The stock owns the inputs before anything can fail, and erases them.
        let stock = self.stock(sender, inputs, &columns);
        s.send_vec(COLUMNS, columns)?;
        Ok(stock)
    }

    fn try_send(&mut self, s: &mut Session, n: usize) -> Result<CotSend, TwopcError> {
        let mut stock = match self.sending.take() {
            Direction::Running(stock) => stock,
            Direction::Fresh => self.start_sending(s)?,
            Direction::Failed => return Err(TwopcError::SourceFailed),
        };
        let delta = self.delta;
        let (blocks, first_index) = stock.hand_out(n, &mut Sending { delta, session: s })?;
        let hash = stock.hash.clone();
        self.sending = Direction::Running(stock);
        Ok(CotSend { delta, blocks, first_index, hash })
    }

    fn try_recv(&mut self, s: &mut Session, n: usize) -> Result<CotRecv, TwopcError> {
        let mut stock = match self.receiving.take() {
            Direction::Running(stock) => stock,
            Direction::Fresh => self.start_receiving(s)?,
            Direction::Failed => return Err(TwopcError::SourceFailed),
        };
        let (blocks, first_index) = stock.hand_out(n, &mut Receiving { session: s })?;
        let hash = stock.hash.clone();
        self.receiving = Direction::Running(stock);
        Ok(CotRecv { blocks, first_index, hash })
    }

    /// Checks that this process made the source: in a fork the stock would be used a second time, with no session step
    /// that could fail.
    fn check_process(&self) -> Result<(), TwopcError> {
        Ok(self.origin.check().map_err(RlweError::from)?)
    }

    /// Ends both directions after a failure in one: the underlying session is out of step.
    fn sealed<T>(&mut self, result: Result<T, TwopcError>) -> Result<T, TwopcError> {
        if result.is_err() {
            self.sending = Direction::Failed;
            self.receiving = Direction::Failed;
        }
        result
    }
}

impl Correlations for FerretOt {
    fn send(&mut self, s: &mut Session, n: usize) -> Result<CotSend, TwopcError> {
        self.check_process()?;
        let result = self.try_send(s, n);
        self.sealed(result)
    }

    fn recv(&mut self, s: &mut Session, n: usize) -> Result<CotRecv, TwopcError> {
        self.check_process()?;
        let result = self.try_recv(s, n);
        self.sealed(result)
    }

    fn delta(&self) -> Block {
        self.delta
    }

    fn has_begun(&self) -> bool {
        let running = |d: &Direction| matches!(d, Direction::Running(_));
        running(&self.sending) && running(&self.receiving)
    }

    fn take_unchecked(&mut self) -> [Unchecked; 2] {
        [&mut self.sending, &mut self.receiving].map(|direction| match direction {
            Direction::Running(stock) => core::mem::take(&mut stock.unchecked),
            Direction::Fresh | Direction::Failed => Unchecked::default(),
        })
    }

    fn check(&mut self, s: &mut Session) -> Result<(), TwopcError> {
        self.check_process()?;
        let id = self.id;
        let result = check::run(self, s, &id);
        self.sealed(result)
    }
}

impl Drop for FerretOt {
    fn drop(&mut self) {
        Block::wipe(core::slice::from_mut(&mut self.delta));
    }
}

/// One end of an extension's step, over a session.
trait End {
    fn run(
        &mut self,
        extender: &Extender,
        extension: u64,
        step: usize,
        inputs: &[Block],
        outputs: &mut [Block],
    ) -> Result<Unchecked, TwopcError>;
}

struct Sending<'a> {
    delta: Block,
    session: &'a mut Session,
}

struct Receiving<'a> {
    session: &'a mut Session,
}

impl End for Sending<'_> {
    fn run(
        &mut self,
        extender: &Extender,
        extension: u64,
        step: usize,
        inputs: &[Block],
        outputs: &mut [Block],
    ) -> Result<Unchecked, TwopcError> {
        let (message, unchecked) = extender.send(extension, step, self.delta, inputs, outputs);
        self.session.send_vec(TREES, message)?;
        Ok(unchecked)
    }
}

impl End for Receiving<'_> {
    fn run(
        &mut self,
        extender: &Extender,
        extension: u64,
        step: usize,
        inputs: &[Block],
        outputs: &mut [Block],
    ) -> Result<Unchecked, TwopcError> {
        let message = self.session.recv(TREES, Expect::Exactly(extender.step_bytes(step)))?;
        extender.receive(extension, step, inputs, &message, outputs)
    }
}

/// One direction's unused OTs at one party.
struct Stock {
    /// The running extension, its number under its seeds, its inputs and its next step.
    extender: Extender,
    extension: u64,
    inputs: Vec<Block>,
    step: usize,
    /// The next extension's set, if different, and those of its inputs that exist already: the running extension's
    /// first outputs.
    later: Option<Extender>,
    kept: Vec<Block>,
    /// Outputs of the last step; those before `next` are handed out and erased.
    outputs: Vec<Block>,
    next: usize,
    /// OTs handed out so far, which is the index of the next.
    handed_out: u64,
    /// The sums over the steps since the last check.
    unchecked: Unchecked,
    /// Turns OTs into pads.
    hash: PadHash,
}

impl Stock {
    fn new(extender: Extender, later: Extender, inputs: Vec<Block>, hash: PadHash) -> Stock {
        // Allocated at once: growing would leave copies behind.
        let kept = Vec::with_capacity(later.params().inputs());
        Stock {
            extender,
            extension: 0,
            inputs,
            step: 0,
            later: Some(later),
            kept,
            outputs: Vec::new(),
            next: 0,
            handed_out: 0,
            unchecked: Unchecked::default(),
            hash,
        }
    }

    /// Replaces the used-up outputs with those of one step.
    #[expect(clippy::indexing_slicing, reason = "`next` is at most the number of outputs, which the parameters say")]
    fn refill(&mut self, end: &mut impl End) -> Result<(), TwopcError> {
        if self.step == self.extender.steps() {
            match self.later.take() {
                Some(later) => self.extender = later,
                None => self.extension += 1,
            }
            Block::wipe(&mut self.inputs);
            self.inputs = core::mem::take(&mut self.kept);
            self.kept = Vec::with_capacity(self.inputs.len());
            self.step = 0;
        }
        let n = self.extender.step_outputs(self.step);
        if self.outputs.len() != n {
            // Every old block has been erased already.
            self.outputs = vec![Block::ZERO; n];
        }
        let (extension, step) = (self.extension, self.step);
        let sums = end.run(&self.extender, extension, step, &self.inputs, &mut self.outputs)?;
        self.unchecked.add(sums);
        self.step += 1;
        let wanted = self.later.as_ref().unwrap_or(&self.extender).params().inputs();
        self.next = n.min(wanted - self.kept.len());
        let head = &mut self.outputs[..self.next];
        self.kept.extend_from_slice(head);
        Block::wipe(head);
        Ok(())
    }

    /// The next `n` OTs and the index of the first.
    #[expect(clippy::indexing_slicing, reason = "takes at most what is left after `next`")]
    fn hand_out(&mut self, n: usize, end: &mut impl End) -> Result<(Vec<Block>, u64), TwopcError> {
        let first_index = self.handed_out;
        let mut out = Zeroizing::new(Vec::with_capacity(n));
        while out.len() < n {
            if self.next == self.outputs.len() {
                self.refill(end)?;
                // All outputs of a step may be kept.
                continue;
            }
            let take = (n - out.len()).min(self.outputs.len() - self.next);
            let used = &mut self.outputs[self.next..self.next + take];
            out.extend_from_slice(used);
            Block::wipe(used);
            self.next += take;
        }
        self.handed_out += n as u64;
        Ok((core::mem::take(&mut *out), first_index))
    }
}

impl Drop for Stock {
    fn drop(&mut self) {
        Block::wipe(&mut self.inputs);
        Block::wipe(&mut self.kept);
        Block::wipe(&mut self.outputs);
        self.unchecked.wipe();
    }
}

#[cfg(test)]
mod tests;
