//! A party of a measurement.

use std::time::{Duration, Instant};

use hushed_math::rng::SecretRng;
use hushed_net::{Expect, Party, Session, Stats};
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::ferret::FerretOt;
use hushed_twopc::{Ctx, Link};

use crate::baselines::bole::OleContext;
use crate::error::BenchError;

/// A party with keys and correlations.
pub struct Peer {
    pub ctx: Ctx,
    pub he: HeContext,
    ole: Option<OleContext>,
    pub(crate) setup: Duration,
    pub(crate) setup_stats: Stats,
}

const BARRIER: hushed_net::Kind = hushed_net::Kind(0x0700);

impl Peer {
    /// Exchanges keys and starts OT in both directions, as a session does once, with the forms of a link.
    pub(crate) fn new(mut session: Session, link: Link) -> Result<Peer, BenchError> {
        let start = Instant::now();
        let mut rng = SecretRng::from_os("bench");
        let ot = FerretOt::new(&mut session, &mut rng)?;
        let mut ctx = Ctx::new(session, rng, Box::new(ot)).on(link);
        for first in [Party::Client, Party::Server] {
            if ctx.party() == first {
                ctx.ot.send(&mut ctx.session, 1)?;
            } else {
                ctx.ot.recv(&mut ctx.session, 1)?;
            }
        }
        let he = HeContext::exchange(&mut ctx)?;
        Ok(Peer { setup: start.elapsed(), setup_stats: ctx.session.stats(), ctx, he, ole: None })
    }

    /// Adds keys for element-wise products, made at first use: only measurements of these need them.
    pub fn with_ole(&mut self) -> Result<(&mut Ctx, &OleContext), BenchError> {
        let ole = match self.ole.take() {
            Some(ole) => ole,
            None => OleContext::exchange(&mut self.ctx.session, &mut self.ctx.rng)?,
        };
        Ok((&mut self.ctx, self.ole.insert(ole)))
    }

    pub fn is_client(&self) -> bool {
        self.ctx.is_client()
    }

    /// Waits for the other party to arrive here too.
    pub(crate) fn meet(&mut self) -> Result<(), BenchError> {
        let nothing = Expect::Exactly(0);
        self.ctx.session.exchange(BARRIER, &[], nothing)?;
        Ok(())
    }
}
