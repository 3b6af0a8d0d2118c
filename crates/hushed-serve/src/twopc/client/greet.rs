//! From a connection to an agreed session: the handshake, the bundle.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Duration;

use hushed_mpc::Link;
use hushed_net::{Expect, Session};

use super::cache;
use crate::bundle::{self, Bundle};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::connect::{BundlePin, ClientConfig};
use crate::session::hello::{Asked, confirm, ready, replied, unasked_wait};
use crate::session::wire::{Refusal, Reply, Welcome};
use crate::twopc::wire::BUNDLE;

/// What the client insists on: a bundle that it has, or a hash only.
#[derive(Clone)]
pub(super) enum Pinned {
    Nothing,
    Whole(Box<Bundle>),
    Hash(Digest),
}

impl Pinned {
    fn hash(&self) -> Option<Digest> {
        match self {
            Self::Nothing => None,
            Self::Whole(bundle) => Some(bundle.hash()),
            Self::Hash(hash) => Some(*hash),
        }
    }
}

pub(super) fn pinned(pin: Option<&BundlePin>) -> Result<Pinned, ServeError> {
    Ok(match pin {
        None => Pinned::Nothing,
        Some(BundlePin::File(path)) => Pinned::Whole(Box::new(Bundle::read(path)?)),
        Some(BundlePin::Hash(hash)) => Pinned::Hash(*hash),
    })
}

/// Exchanges hello, welcome, confirmation and bundle. Afterwards both sides know that they agree, and the bundle is one
/// that the client accepts. No text has been looked at. Returns also how long the client waited for a session.
pub(super) fn greet(
    session: &mut Session,
    config: &ClientConfig,
    pinned: Pinned,
    (patience, looks, link): (Duration, bool, Link),
) -> Result<(Welcome, Bundle, Duration), ServeError> {
    let agreement = bundle::agreement_hash()?;
    let asked = Asked { agreement, pinned: pinned.hash(), patience, looks, link };
    let (reply, waited) = replied(session, config, &asked)?;
    let welcome = match reply {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused(Refusal::OtherBundle { server }) => {
            let pinned = pinned.hash().unwrap_or(Digest::ZERO);
            return Err(ServeError::OtherBundle { pinned, offered: server });
        }
        Reply::Fhe(_) => return Err(ServeError::Refused(Refusal::OtherProtocol { fhe: true })),
        Reply::Refused(refusal) => return Err(ServeError::Refused(refusal)),
        Reply::Waiting(_) => return Err(unasked_wait()),
    };
    if welcome.agreement != agreement {
        return Err(ServeError::OtherAgreement { ours: agreement, theirs: welcome.agreement });
    }
    if let Some(pinned) = pinned.hash()
        && pinned != welcome.bundle
    {
        return Err(ServeError::OtherBundle { pinned, offered: welcome.bundle });
    }
    let known = match pinned {
        Pinned::Whole(bundle) => Some(*bundle),
        _ => config.cache_dir.as_deref().and_then(|dir| cache::find(dir, welcome.bundle)),
    };
    let identity = confirm(session, known.is_none())?;
    session.set_limits(config.deadlines.within(config.deadlines.setup));
    let fetched = match &known {
        Some(_) => None,
        None => {
            let length = (welcome.bundle_bytes as usize).min(bundle::MAX_BUNDLE_BYTES);
            Some(session.recv(BUNDLE, Expect::Exactly(length))?)
        }
    };
    ready(session, &identity)?;
    let bundle = match (known, fetched) {
        (Some(bundle), _) => bundle,
        (None, fetched) => accept(fetched.unwrap_or_default(), &welcome, config)?,
    };
    config.files.check(&bundle)?;
    Ok((welcome, bundle, waited))
}

/// Checks a bundle that has just arrived, and keeps it.
fn accept(bytes: Vec<u8>, welcome: &Welcome, config: &ClientConfig) -> Result<Bundle, ServeError> {
    if bundle::hash(&bytes) != welcome.bundle {
        return Err(ServeError::BundleNotAsOffered { agreed: welcome.bundle });
    }
    let bundle = Bundle::from_bytes(bytes)?;
    if let Some(dir) = &config.cache_dir
        && let Err(error) = cache::keep(dir, &bundle)
    {
        // The session does not need it; the next one fetches again.
        tracing::warn!(%error, "the bundle could not be kept");
    }
    Ok(bundle)
}
