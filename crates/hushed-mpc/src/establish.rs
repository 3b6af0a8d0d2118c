//! From a connected session to a party that is ready to run: keys, correlations, and what both parties must have agreed
//! on before.

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_net::{Party, Session};
use hushed_rlwe::{RlweError, RlweParams};
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ferret::FerretOt;
use hushed_twopc::{Ctx, TwopcError};

use super::{Protocol, RunError, formats};
use crate::weights::held::Layers;

/// Counts changes of the protocol itself: the order of messages, and everything that the parameters below do not show.
const PROTOCOL_VERSION: u32 = 8;

/// Everything outside the model on which the two parties must agree, as text: the code that starts a session hashes and
/// compares it.
///
/// # Errors
/// Parameters that the security table refuses.
pub fn agreement() -> Result<String, RunError> {
    let params = RlweParams::olt_full().map_err(|e| TwopcError::from(RlweError::from(e)))?;
    let hash: String = params.hash().iter().map(|b| format!("{b:02x}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!(
        "hushed {version} 2pc {PROTOCOL_VERSION}; {}; rlwe {hash} levels={}",
        formats::describe(),
        HeContext::ALL_LEVELS,
    ))
}

impl Protocol {
    /// Exchanges keys and starts the correlations in both directions: what a session does once. Both parties call it.
    ///
    /// # Errors
    /// A failed session, or a peer whose keys or OT messages are not such.
    pub fn establish(mut session: Session, layers: Arc<Layers>) -> Result<Protocol, RunError> {
        let mut rng = SecretRng::from_os("hushed 2pc session");
        let he = HeContext::exchange(&mut session, &mut rng)?;
        let mut ot = FerretOt::new(&mut session, &mut rng)?;
        // A direction starts at its first use, even one for no OTs; here that belongs to the set-up and not to the
        // first text.
        if session.party() == Party::Client {
            ot.send(&mut session, 0)?;
            ot.recv(&mut session, 0)?;
        } else {
            ot.recv(&mut session, 0)?;
            ot.send(&mut session, 0)?;
        }
        Ok(Protocol::new(
            Ctx::new(session, rng, Box::new(ot)),
            he,
            layers,
        ))
    }
}
