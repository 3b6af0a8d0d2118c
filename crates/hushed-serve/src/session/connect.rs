//! Where the server is, what a client insists on, and the connection itself: TCP, then TLS.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hushed_mpc::{Link, NoLink, RunError};
use hushed_net::channel::tcp;
use hushed_net::{Party, Session, Shape, TlsClient, Trust};

use crate::bundle::Bundle;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::identity;
use crate::session::config::host;
use crate::session::deadlines::Deadlines;
use crate::session::token::Token;
use crate::session::wire::{Refusal, Waiting};

/// How long a client waits before it first asks again for a session; the wait doubles each time.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// How often a client that waits looks whether it was asked to stop.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// How a client authenticates the server's certificate. There is no third way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTrust {
    /// A PEM file of authorities, or of the certificate itself.
    CaFile(PathBuf),
    /// The certificate's SHA-256 in hexadecimal, as the server prints it.
    Pin(String),
    /// The same of any of several, the old one first, while the server's certificate changes.
    Pins(Vec<String>),
}

/// The only model that a client accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BundlePin {
    /// This file, made by `hushed bundle`; it need not be fetched.
    File(PathBuf),
    /// Any bundle with this hash.
    Hash(Digest),
}

/// The only files that a client accepts among those that decide how many tokens a text has. The server sees that
/// number, and could choose these files such that it is a function of the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FilePins {
    /// What [`Bundle::tokenizer_hash`] gives.
    pub tokenizer: Option<Digest>,
    /// What [`Bundle::template_hash`] gives.
    pub template: Option<Digest>,
}

impl FilePins {
    /// Checks a bundle before any text is looked at.
    ///
    /// # Errors
    /// [`ServeError::OtherTokenizer`], [`ServeError::OtherTemplate`].
    pub(crate) fn check(&self, bundle: &Bundle) -> Result<(), ServeError> {
        let tokenizer = (self.tokenizer, bundle.tokenizer_hash());
        if let (Some(pinned), offered) = tokenizer
            && offered != Some(pinned)
        {
            return Err(ServeError::OtherTokenizer { pinned, offered });
        }
        let template = (self.template, bundle.template_hash());
        if let (Some(pinned), offered) = template
            && offered != Some(pinned)
        {
            return Err(ServeError::OtherTemplate { pinned, offered });
        }
        Ok(())
    }
}

/// The link by which the forms of a session's steps are chosen (`2pc`). It changes bytes and messages, and no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Net {
    /// This one.
    Link(Link),
    /// The named one that is nearest to the measured round trip. Its bandwidth is not measured.
    Auto,
}

impl Default for Net {
    fn default() -> Self {
        Self::Link(Link::LAN)
    }
}

impl FromStr for Net {
    type Err = NoLink;

    fn from_str(text: &str) -> Result<Self, NoLink> {
        match text {
            "auto" => Ok(Self::Auto),
            text => text.parse().map(Self::Link),
        }
    }
}

impl Net {
    /// The link for a connection with this round trip.
    fn link(self, round_trip: Duration) -> Link {
        match self {
            Self::Link(link) => link,
            Self::Auto => nearest(round_trip),
        }
    }
}

/// The named link whose round trip differs from this one by the smallest factor.
fn nearest(round_trip: Duration) -> Link {
    let of = |time: Duration| time.as_secs_f64().max(1e-6).ln();
    let off = |link: &Link| (of(link.round_trip()) - of(round_trip)).abs();
    let all = Link::NAMED.into_iter().map(|(_, link)| link);
    all.min_by(|a, b| off(a).total_cmp(&off(b))).unwrap_or_default()
}

/// What decides the number of a text's tokens and is left to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unpinned {
    /// The tokenizer.
    Tokenizer,
    /// The chat template alone.
    Template,
}

/// Told of a client's place while it waits for a session.
pub type OnWait = Arc<dyn Fn(Waiting) + Send + Sync>;

/// How to reach a server, and what to insist on. No `Debug`: it holds the token.
#[derive(Clone)]
pub struct ClientConfig {
    /// `HOST:PORT`. With [`ServerTrust::CaFile`] the certificate must name the host.
    pub server: String,
    /// How its certificate is authenticated.
    pub trust: ServerTrust,
    /// This client's certificate chain and key (PEM files), for servers that ask for one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The bearer token, for servers that ask for one.
    pub token: Option<Token>,
    /// The only model to accept; `None` accepts what the server offers, and
    /// [`Client::bundle_hash`](crate::Client::bundle_hash) says what that was.
    pub bundle: Option<BundlePin>,
    /// The only tokenizer and chat template to accept.
    pub files: FilePins,
    /// Where bundles are kept from one session to the next; `None` fetches them each time.
    pub cache_dir: Option<PathBuf>,
    /// The deadlines of a session.
    pub deadlines: Deadlines,
    /// How long a `2pc` client waits for a session if all are taken: in the server's queue, and where that is full by
    /// asking again. Zero asks once.
    pub retry: Duration,
    /// Told of the client's place in the queue while it waits there.
    pub on_wait: Option<OnWait>,
    /// Ends a wait for a session once it is raised, with an error named `stopped`.
    pub stop: Option<Arc<AtomicBool>>,
    /// The link by which the forms of steps are chosen.
    pub net: Net,
    /// A slower network to imitate, for measurements.
    pub shape: Option<Shape>,
}

impl ClientConfig {
    /// A client without token, pinned model or cache.
    #[must_use]
    pub fn new(server: impl Into<String>, trust: ServerTrust) -> Self {
        Self {
            server: server.into(),
            trust,
            identity: None,
            token: None,
            bundle: None,
            files: FilePins::default(),
            cache_dir: None,
            deadlines: Deadlines::default(),
            retry: Duration::ZERO,
            on_wait: None,
            stop: None,
            net: Net::default(),
            shape: None,
        }
    }

    /// Fails once the configured flag is raised.
    pub(crate) fn check_stop(&self) -> Result<(), ServeError> {
        match self.stop.as_ref().is_some_and(|stop| stop.load(Ordering::Relaxed)) {
            true => Err(RunError::Stopped.into()),
            false => Ok(()),
        }
    }

    /// What the server may choose such that the number of tokens tells it something about a text, or about a
    /// conversation if there are any (`chats`). A client tells its user.
    #[must_use]
    pub fn unpinned(&self, chats: bool) -> Option<Unpinned> {
        match self.files {
            _ if self.bundle.is_some() => None,
            FilePins { tokenizer: None, .. } => Some(Unpinned::Tokenizer),
            FilePins { template: None, .. } if chats => Some(Unpinned::Template),
            FilePins { .. } => None,
        }
    }
}

/// Connects, retrying while the server has neither a free session nor a place in its queue; `connect` gets the time
/// that is left. Clients refused at the same time come back at different times: each waits a random fraction, at least
/// half, of its current wait.
pub(crate) fn patiently<T>(
    config: &ClientConfig,
    mut connect: impl FnMut(Duration) -> Result<T, ServeError>,
) -> Result<T, ServeError> {
    let began = Instant::now();
    let left = || config.retry.saturating_sub(began.elapsed());
    let mut wait = FIRST_WAIT;
    loop {
        let busy = match connect(left()) {
            Err(error @ ServeError::Refused(Refusal::TooManySessions { .. })) => error,
            other => return other,
        };
        let random = getrandom::u32().map_err(|_| ServeError::NoRandomness)?;
        let now = wait.mul_f64(0.5 + 0.5 * f64::from(random) / f64::from(u32::MAX));
        if now > left() {
            return Err(busy);
        }
        let until = Instant::now() + now;
        while Instant::now() < until {
            config.check_stop()?;
            thread::sleep(LOOK.min(until.saturating_duration_since(Instant::now())));
        }
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}

/// TCP, then TLS. Also the link: either handshake waits for one round trip, and the shorter of the two waited for
/// little else.
pub(crate) fn open(config: &ClientConfig) -> Result<(Session, Link), ServeError> {
    let trust = match &config.trust {
        ServerTrust::CaFile(path) => Trust::from_ca_file(path)?,
        ServerTrust::Pin(pin) => Trust::from_pin(pin)?,
        ServerTrust::Pins(pins) => Trust::from_pins(pins)?,
    };
    let identity = match &config.identity {
        Some((chain, key)) => Some(identity::read(chain, key)?),
        None => None,
    };
    let host = host(&config.server)?;
    let tls = TlsClient::new(trust, identity)?;
    let began = Instant::now();
    let socket = tcp::connect(&config.server, config.deadlines.handshake)?;
    let connected = Instant::now();
    let limits = config.deadlines.before_authentication();
    let channel = tls.connect(socket, &host, limits)?;
    let round_trip = connected.elapsed().min(connected - began);
    let mut session = Session::new(Party::Client, Box::new(channel));
    session.shape(config.shape);
    Ok((session, config.net.link(round_trip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_a_link_or_measured() {
        assert_eq!(("auto".parse(), "wan".parse()), (Ok(Net::Auto), Ok(Net::Link(Link::WAN))));
        assert!("fast".parse::<Net>().is_err());
        for (microseconds, link) in [
            (0, Link::LAN),
            (900, Link::LAN),
            (6_000, Link::WAN),
            (25_000, Link::INTERNET),
            (3_000_000, Link::INTERNET),
        ] {
            let round_trip = Duration::from_micros(microseconds);
            assert_eq!(Net::Auto.link(round_trip), link, "{microseconds}");
            assert_eq!(Net::default().link(round_trip), Link::LAN);
        }
    }
}
