//! What a measurement is, and how it is run.

use hushed_ckks::counters::Counts;
use hushed_mpc::{Link, NoLink};
use hushed_net::{Session, Shape};
use serde_json::{Map, Value};

use crate::error::BenchError;
use crate::peer::Peer;

/// The network between the parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Net {
    /// No limit
    Loopback,
    /// 1 Gbit/s, 0.5 ms round trip
    Lan,
    /// 400 Mbit/s, 4 ms round trip
    Wan,
    /// 50 Mbit/s, 40 ms round trip
    Internet,
}

impl Net {
    fn link(self) -> Option<Link> {
        match self {
            Net::Loopback => None,
            Net::Lan => Some(Link::LAN),
            Net::Wan => Some(Link::WAN),
            Net::Internet => Some(Link::INTERNET),
        }
    }
}

/// The network between the parties, and the link by which forms of steps are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Between {
    /// None for loopback.
    network: Option<Link>,
    forms: Link,
}

impl Between {
    /// A named network with another round trip (microseconds) or bandwidth (kbit/s) if they are given, and with the
    /// forms of `forms`, or of the network itself.
    ///
    /// # Errors
    /// [`NoLink`] if there is no such link.
    pub fn new(net: Net, rtt: Option<u32>, bandwidth: Option<u32>, forms: Option<Link>) -> Result<Self, NoLink> {
        let network = match (net.link(), rtt, bandwidth) {
            (known, None, None) => known,
            (known, rtt, bandwidth) => {
                let known = known.unwrap_or_default();
                let (rtt, bandwidth) = (rtt.unwrap_or(known.microseconds()), bandwidth.unwrap_or(known.kilobits()));
                Some(Link::new(rtt, bandwidth)?)
            }
        };
        Ok(Self { network, forms: forms.or(network).unwrap_or_default() })
    }

    /// The link by which forms are chosen.
    pub fn forms(&self) -> Link {
        self.forms
    }

    /// The name or the figures of the network.
    pub fn name(&self) -> String {
        self.network.map_or_else(|| "loopback".to_owned(), |link| link.to_string())
    }

    pub(crate) fn shape(&self) -> Option<Shape> {
        self.network.map(|link| link.shape())
    }

    /// As arguments of this program.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut all = vec!["--forms".to_owned(), self.forms.to_string()];
        if let Some(link) = &self.network {
            all.extend(["--rtt".to_owned(), format!("{}us", link.microseconds())]);
            all.extend(["--bandwidth".to_owned(), format!("{}kbit", link.kilobits())]);
        }
        all
    }
}

/// One size of a measurement between two parties. Both build the same case.
pub trait Case {
    fn params(&self) -> Value;

    /// Shares the inputs; not timed.
    fn prepare(&mut self, peer: &mut Peer) -> Result<(), BenchError>;

    /// The timed part.
    fn run(&mut self, peer: &mut Peer) -> Result<(), BenchError>;

    /// The largest error of the last run compared with the clear, at the client; not timed.
    fn error(&mut self, peer: &mut Peer) -> Result<Option<f64>, BenchError>;
}

/// A measurement of a model between two parties.
pub trait Whole {
    fn params(&self) -> Value;

    /// The server's work before the two parties meet.
    fn prepare(&mut self) -> Result<(), BenchError> {
        Ok(())
    }
    /// Whether to run it; what takes long runs only if named.
    fn wanted(&self, how: How<'_>) -> bool;

    /// Runs it as one party, `runs` times after one extra run, which is not measured and not over the imitated network.
    /// Returns the session for the next measurement.
    fn measure(&self, session: Session, runs: usize, between: Between) -> Result<(Session, Value), BenchError>;
}

/// How a suite runs.
pub enum Kind {
    /// One process.
    Local(fn(How<'_>) -> Result<Vec<Value>, BenchError>),
    /// Two processes.
    Pair(fn() -> Vec<Box<dyn Case>>),
    /// Two processes that run a model, each with the set-up of a session.
    Model(fn() -> Vec<Box<dyn Whole>>),
}

pub struct Suite {
    pub name: &'static str,
    pub about: &'static str,
    pub kind: Kind,
}

/// How to run the sizes of a suite.
#[derive(Clone, Copy)]
pub struct How<'a> {
    pub between: Between,
    pub runs: usize,
    /// Threads of a single-process measurement.
    pub threads: usize,
    /// Only sizes whose parameters, as JSON, contain this.
    pub only: Option<&'a str>,
}

impl How<'_> {
    pub(crate) fn wants(&self, params: &Value) -> bool {
        self.only.is_none_or(|part| params.to_string().contains(part))
    }
}

/// The median; the upper one of the two middle values for an even number.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Counters by name.
pub(crate) fn counters(counts: &Counts) -> Value {
    let entries = counts.entries().into_iter();
    entries.map(|(name, count)| (name.to_owned(), count.into())).collect::<Map<_, Value>>().into()
}
