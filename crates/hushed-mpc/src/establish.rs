//! From a connected session to a party that is ready to run: keys, correlations, and what both parties must agree on
//! first.

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_net::{Party, Session};
use hushed_rlwe::{RlweError, RlweParams};
use hushed_twopc::func::Format;
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::Correlations;
use hushed_twopc::ot::ferret::{FerretOt, FerretParams};
use hushed_twopc::{Ctx, Link, TwopcError};

use super::{Protocol, RunError};
use crate::circuit::function;
use crate::circuit::pool::SHARE_FRAC;
use crate::circuit::scores::LARGER;
use crate::formats::{
    ACTIVATION, ANSWER, ATTENDED, COSINE, EMBEDDING, GATE, GATED, INNER, INVERSE, KEY_BITS, LINEAR, LOGIT, MASKED,
    MAX_KEYS, MAX_TOKENS, MAXIMUM, PORTION, QUERY, QUOTIENT, RAW_ANSWER, RECORD, RECORD_GUARD, SCORE, SHORT,
    SQUARE_GATE, SQUARE_GATED, SUM_BITS, SUMS, TABLE_BITS, TURN_FRAC, TURNED, UNIT, VALUE, WEIGHED, WEIGHT_BITS,
    WEIGHT_FRAC,
};
use crate::weights::held::Layers;

/// Counts changes to the protocol itself: message order, and anything that the parameters below do not show.
const PROTOCOL_VERSION: u32 = 25;

/// Everything outside the model on which the two parties must agree, as text. The code that starts a session hashes and
/// compares it.
///
/// # Errors
/// If the security table rejects the parameters.
pub fn agreement() -> Result<String, RunError> {
    let params = RlweParams::olt_full().map_err(|e| TwopcError::from(RlweError::from(e)))?;
    let hash: String = params.hash().iter().map(|b| format!("{b:02x}")).collect();
    let version = env!("CARGO_PKG_VERSION");
    Ok(format!("hushed {version} 2pc {PROTOCOL_VERSION}; {}; rlwe {hash} levels={}", numbers(), HeContext::ALL_LEVELS,))
}

/// The formats and the protocols' own constants.
fn numbers() -> String {
    let show = |name: &str, f: Format| format!("{name}={}.{}", f.ring.bits(), f.frac);
    [
        show("activation", ACTIVATION),
        show("linear", LINEAR),
        show("embedding", EMBEDDING),
        show("query", QUERY),
        show("turned", TURNED),
        show("gate", GATE),
        show("gated", GATED),
        show("square gate", SQUARE_GATE),
        show("square gated", SQUARE_GATED),
        show("inner", INNER),
        show("weighed", WEIGHED),
        show("value", VALUE),
        show("attended", ATTENDED),
        show("portion", PORTION),
        show("standing", SUMS.standing),
        format!("quotient={}", QUOTIENT.bits()),
        show("inverse", INVERSE),
        show("maximum", MAXIMUM),
        show("logit", LOGIT),
        show("unit", UNIT),
        show("cosine", COSINE),
        format!("record={}+{RECORD_GUARD}", RECORD.bits()),
        // Opened values are rounded with the carry; a peer that truncates them must not match.
        show("answer rounded", ANSWER),
        show("raw rounded", RAW_ANSWER),
        show("score rounded", SCORE),
        format!(
            "weights={WEIGHT_FRAC},{WEIGHT_BITS} larger={LARGER} table={TABLE_BITS} sum={SUM_BITS} masked={MASKED} turn={TURN_FRAC}"
        ),
        hushed_twopc::func::describe(),
        function::describe(),
        format!("prefix={MAX_KEYS},{KEY_BITS} tokens={SHORT},{MAX_TOKENS} mean={SHARE_FRAC}"),
        format!(
            "{:?} {:?}",
            hushed_twopc::he::price::PRICES,
            FerretParams::DEFAULT
        ),
    ]
    .join(" ")
}

impl Protocol {
    /// Sets up a session once, with the forms of `link`: exchanges keys and starts the correlations in both directions.
    /// Both parties call it, with the same link.
    ///
    /// # Errors
    /// If the session fails, or the peer's keys or OT messages are invalid.
    pub fn establish(mut session: Session, layers: Arc<Layers>, link: Link) -> Result<Protocol, RunError> {
        let mut rng = SecretRng::from_os("hushed 2pc session");
        let mut ot = FerretOt::new(&mut session, &mut rng)?;
        // A direction starts at its first use, even for zero OTs; this makes it part of the set-up rather than of the
        // first text.
        if session.party() == Party::Client {
            ot.send(&mut session, 0)?;
            ot.recv(&mut session, 0)?;
        } else {
            ot.recv(&mut session, 0)?;
            ot.send(&mut session, 0)?;
        }
        let mut ctx = Ctx::new(session, rng, Box::new(ot)).on(link);
        let he = HeContext::exchange(&mut ctx)?;
        Ok(Protocol::new(ctx, he, layers))
    }
}
