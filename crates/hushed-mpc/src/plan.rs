//! Computes in advance what a private run costs and reveals, from the [counted](Counting) circuit. Bytes and rounds are
//! exact (a test compares them with a run); times are estimates from single-core constants.

pub mod drafts;
mod exposures;
mod folder;
pub(crate) mod memory;
pub mod pace;

use std::sync::Arc;

use hushed_model::{Block, Program};
use hushed_net::Shape;
use hushed_rlwe::noise::failure_log2;
use hushed_twopc::Link;
use hushed_twopc::he::HeContext;
use hushed_twopc::ot::ferret::FerretParams;
use hushed_twopc::ot::{PAD_BITS, TREE_BITS};
use serde::Serialize;

use crate::circuit::answer::open_places;
use crate::circuit::cache::Cache;
use crate::circuit::token::{Adds, next_tokens, predicts_tokens, tokens_of_rows};
use crate::formats::is_long;
use crate::weights::factors::factors_of;
use crate::{Answers, Counting, Index, Input, Later, Prefix, RunError, SessionTerms, Terms, Wanted, open, run, search};
use memory::Memory;

pub use crate::Entry;
pub use exposures::Exposure;
use exposures::{Opened, exposures};
pub use folder::{PlanError, Request};
pub use pace::Pace;

/// The cost of one batch of texts, and of the session it runs in.
#[derive(Clone, Debug, Serialize)]
pub struct Plan {
    /// `2pc`.
    pub protocol: &'static str,
    /// The tokens of each text.
    pub tokens: Vec<usize>,
    /// The steps, in order.
    pub steps: Vec<Entry>,
    /// Once per session: the client's keys with their proof, in bytes. What the first OTs take is not included.
    pub setup_bytes_up: u64,
    /// Once per session: the server's part of that proof.
    pub setup_bytes_down: u64,
    /// Total traffic for generating these steps' correlated OTs. Extensions are run whole, so a run may be one ahead.
    pub ot_bytes: u64,
    /// Sum over the steps, not including OT traffic.
    pub bytes_up: u64,
    /// As above.
    pub bytes_down: u64,
    /// As above.
    pub rounds: u64,
    /// Bits of all words that are opened to the client. A client that cheats learns as many bits of a function that it
    /// chooses, and no more.
    pub opened_bits: u64,
    /// Estimated seconds on one core per party, without the network.
    pub seconds: f64,
    /// The link by which forms were chosen, as text.
    pub link: String,
    /// The network of [`Plan::seconds_in_all`], as text.
    pub network: String,
    /// Estimated seconds with that network: computing, waits and bytes one after the other. Half a round trip a round.
    pub seconds_in_all: f64,
    /// The machine that these are of.
    pub pace: Pace,
    /// Peak memory of the two processes in bytes: an estimate from measured constants, not a bound.
    pub memory: Memory,
    /// log2 of a bound on the probability that any decryption of the batch is off by more than its last unit: the
    /// number of decrypted coefficients times the probability for one.
    pub failure_log2: f64,
    /// The same for truncations; `None` means never. A truncation that is not local computes the wrap of its shares,
    /// and in a local one no wrap reaches the result. Both hold for every value of the formats.
    pub large_truncation_log2: Option<f64>,
    /// log2 of a bound on the statistical distance between what a party sees and a simulation that knows only that
    /// party's input and output. Masks and shares are exactly uniform and add nothing; a wrong decryption is not
    /// simulated, so its probability is the distance.
    pub distance_log2: f64,
    /// What else hiding rests on.
    pub hiding: String,
    /// Who sees what.
    pub exposures: Vec<Exposure>,
}

impl Plan {
    /// The plan on a machine of this pace, made for that of the table.
    fn at(mut self, pace: Pace) -> Plan {
        self.steps.iter_mut().for_each(|step| step.seconds = step.seconds_at(pace));
        self.seconds = self.steps.iter().map(|step| step.seconds).sum();
        self.pace = pace;
        self
    }

    /// The plan over this network, whatever the link of its forms.
    fn through(mut self, network: Link) -> Plan {
        self.network = network.to_string();
        self.seconds_in_all = self.seconds_over(&network.shape());
        self
    }

    /// Its seconds over a network: computing, bytes and half a round trip a round, one after the other.
    pub fn seconds_over(&self, network: &Shape) -> f64 {
        let bytes = self.bytes_up + self.bytes_down + self.ot_bytes;
        let waits = self.rounds as f64 * network.one_way.as_secs_f64();
        self.seconds + network.transmission(bytes).as_secs_f64() + waits
    }
}

/// The rows that precede a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Rows of a public prefix.
    pub public: usize,
    /// Rows of the text that earlier passes have run.
    pub held: usize,
    /// Whether every new row gives a token rather than only the last: all but the first are the client's drafts.
    pub drafts: bool,
    /// Whether the text, with its answer, may have so many rows of its own that sums over them need wider formats
    /// ([`is_long`](crate::formats::is_long)).
    pub long: bool,
}

impl From<usize> for Before {
    fn from(held: usize) -> Before {
        Before { held, ..Before::default() }
    }
}

impl Memory {
    /// The memory for the largest passes that a server admits, over any link with a name: one text of `tokens` rows
    /// after `public` ones, or several of `pass` rows together.
    ///
    /// # Errors
    /// As [`Plan::twopc`] and [`Plan::next_token`].
    pub fn largest(program: &Program, (public, tokens): (usize, usize), pass: usize) -> Result<Memory, RunError> {
        let tokens = tokens.max(1);
        // Attention grows with the square of a text's length, so the worst case is as many of the longest texts as fit.
        let texts = vec![tokens; (pass / tokens).max(1)];
        let mut memory = over_any(|link| {
            let terms = Terms::default().over(link);
            Ok(match predicts_tokens(program) {
                true => {
                    let before = Before { public, long: is_long(tokens), ..Before::default() };
                    Plan::next_token(program, before, &[tokens], terms)?.memory
                }
                false => Plan::twopc(program, &texts, terms, true, Answers::Label)?.memory,
            })
        })?;
        if predicts_tokens(program) {
            memory.weights += memory::cached(program, public);
        }
        Ok(memory)
    }

    /// The same for a server whose sessions hold products made ahead for `ahead` later tokens, or texts, of which as
    /// many are made together as a pass of `pass` rows has, and which accepts `drafts` drafts per pass.
    ///
    /// # Errors
    /// As [`Plan::next_token`] and [`Plan::ahead`].
    pub fn with_later(
        mut self,
        program: &Program,
        (public, tokens): (usize, usize),
        pass: usize,
        (ahead, drafts): (usize, usize),
    ) -> Result<Memory, RunError> {
        let tokens = tokens.max(1);
        // Texts that may be padded take the most.
        let terms = Terms { padded: program.patches().is_none(), public_table: false };
        if ahead > 0 {
            let (rows, together) = match predicts_tokens(program) {
                true => (1, ahead),
                false => (tokens, ahead.min((pass / tokens).max(1))),
            };
            let later = Later { passes: together, rows };
            let made = over_any(|link| Ok(Plan::ahead(program, later, terms.over(link))?.memory))?;
            let stock = made.stock / together as u64 * ahead as u64;
            // The rows of a text that waits for them are held as well.
            self.session = (self.session + stock).max(made.session - made.stock + stock + self.text);
            self.stock = stock;
        }
        let drafts = drafts.min(tokens - 1);
        if drafts > 0 {
            let (held, long) = (tokens - 1 - drafts, is_long(tokens));
            let before = Before { public, held, drafts: true, long };
            let pass = over_any(|link| Ok(Plan::next_token(program, before, &[1 + drafts], terms.over(link))?.memory))?;
            self.session = self.session.max(pass.session + self.stock);
        }
        Ok(self)
    }
}

/// The most of each part over the links with names.
fn over_any(of: impl Fn(Link) -> Result<Memory, RunError>) -> Result<Memory, RunError> {
    let mut all = Link::NAMED.into_iter().map(|(_, link)| of(link));
    let first = all.next().unwrap_or_else(|| of(Link::LAN))?;
    all.try_fold(first, |most, found| Ok(most.most(&found?)))
}

/// The number of classes of a classifier.
fn classes(program: &Program) -> Option<usize> {
    match program.steps().last().map(|step| &step.block) {
        Some(Block::Head(head)) => Some(head.classes.outputs),
        Some(Block::Classes(classes)) => Some(classes.outputs),
        _ => None,
    }
}

impl Plan {
    /// The plan of one pass over texts with these numbers of rows, including padding. It gives one embedding per text,
    /// scaled to length one if `unit`, rounded as `answers` says, or the first token after a text.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] if a step has no protocol.
    pub fn twopc(
        program: &Program,
        tokens: &[usize],
        terms: impl Into<SessionTerms>,
        unit: bool,
        answers: Answers,
    ) -> Result<Plan, RunError> {
        let all = terms.into();
        if predicts_tokens(program) {
            return Plan::next_token(program, 0, tokens, all);
        }
        if let Some(classes) = classes(program) {
            return Plan::classes(program, tokens, all, Answers::of_classes(classes));
        }
        let SessionTerms { terms, link, ahead } = all;
        let mut counting = Counting::over(link)?.spending(ahead);
        let input = Input::Lengths(tokens.to_vec(), terms);
        let pooled = run(&mut counting, program, &input, |_, _| ())?;
        open(&mut counting, &pooled, answers.unit(unit))?;
        let opened = Opened::Embeddings(answers);
        Ok(Plan::of(program, counting, 0, tokens, terms, opened))
    }

    /// The plan of one pass of a classifier whose operator opens `answers`.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] for a model that is no classifier; otherwise as [`Plan::twopc`].
    pub fn classes(
        program: &Program,
        tokens: &[usize],
        terms: impl Into<SessionTerms>,
        answers: Answers,
    ) -> Result<Plan, RunError> {
        let Some(classes) = classes(program) else {
            return Err(RunError::Unsupported {
                site: "the answer".to_owned(),
                what: "classes: the model is not a classifier",
            });
        };
        let SessionTerms { terms, link, ahead } = terms.into();
        let mut counting = Counting::over(link)?.spending(ahead);
        let input = Input::Lengths(tokens.to_vec(), terms);
        let logits = run(&mut counting, program, &input, |_, _| ())?;
        match answers {
            Answers::Logits => drop(open(&mut counting, &logits, None)?),
            _ => drop(open_places(&mut counting, &logits, answers)?),
        }
        let opened = Opened::Classes { answers, classes };
        Ok(Plan::of(program, counting, 0, tokens, terms, opened))
    }

    /// The plan of the pass that gives one token, over the next rows of one text (a single number) after `before`. A
    /// text's first pass takes nothing that was made ahead.
    ///
    /// # Errors
    /// As [`next_token`](crate::next_token).
    pub fn next_token(
        program: &Program,
        before: impl Into<Before>,
        rows: &[usize],
        terms: impl Into<SessionTerms>,
    ) -> Result<Plan, RunError> {
        Plan::next_tokens(program, before, rows, terms, Answers::Label)
    }

    /// As [`Plan::next_token`], where the operator opens `answers`.
    ///
    /// # Errors
    /// As [`next_tokens`]; [`RunError::Unsupported`] for logits.
    pub fn next_tokens(
        program: &Program,
        before: impl Into<Before>,
        rows: &[usize],
        terms: impl Into<SessionTerms>,
        answers: Answers,
    ) -> Result<Plan, RunError> {
        let SessionTerms { terms, link, ahead } = terms.into();
        let top = answers.top().ok_or_else(|| RunError::Unsupported {
            site: "the answer".to_owned(),
            what: "logits, or what is above a threshold: the model is not a classifier",
        })?;
        let Before { public, held, drafts, long } = before.into();
        let mut cache = Cache::after(Arc::new(Prefix::of_rows(public)?)).long(long);
        let (input, adds) = (|rows| Input::Lengths(rows, terms), Adds::default());
        if held > 0 {
            let (on, input) = (&mut Counting::over(link)?, input(vec![held]));
            next_tokens(on, program, &mut cache, &input, adds, top)?;
        }
        let mut counting = Counting::over(link)?.spending(ahead && held > 0);
        let (on, input) = (&mut counting, input(rows.to_vec()));
        match drafts {
            true => drop(tokens_of_rows(on, program, &mut cache, &input, adds, top)?),
            false => drop(next_tokens(on, program, &mut cache, &input, adds, top)?),
        }
        let opened = Opened::Tokens { answers, drafts, public };
        Ok(Plan::of(program, counting, held, rows, terms, opened))
    }

    /// The plan of the products with tables and weights that are made ahead for passes to come on these terms
    /// ([`Protocol::make_ahead`](crate::Protocol::make_ahead)).
    ///
    /// # Errors
    /// As [`Plan::twopc`].
    pub fn ahead(program: &Program, later: impl Into<Later>, terms: impl Into<SessionTerms>) -> Result<Plan, RunError> {
        let Later { passes, rows } = later.into();
        let SessionTerms { terms, link, .. } = terms.into();
        let (mut counting, mut products) = (Counting::over(link)?, Vec::new());
        for (id, factor, each) in factors_of(program, rows, terms)? {
            let shape = factor.shape(passes * each);
            products.push(shape);
            counting.make(id, &shape)?;
        }
        let texts = vec![rows; passes];
        let mut plan = Plan::of(program, counting, 0, &texts, terms, Opened::Nothing);
        let (client, server) = memory::stock(&products);
        // The rows of one product are in memory twice while they are split. At the client the lookup's are too, but the
        // estimate for any pass of this many rows already includes those.
        let widest = products.iter().map(|p| p.shape.k * p.shape.n).max();
        plan.memory.session += 8 * widest.unwrap_or(0) as u64;
        plan.memory.client += client;
        plan.memory.session += server;
        plan.memory.stock = server;
        Ok(plan)
    }

    /// The plan of a [search](crate::search) for a text of this many rows.
    ///
    /// # Errors
    /// As [`search`](crate::search).
    pub fn search(
        program: &Program,
        index: &Index,
        rows: usize,
        terms: impl Into<SessionTerms>,
        wanted: Wanted,
    ) -> Result<Plan, RunError> {
        let SessionTerms { terms, link, .. } = terms.into();
        let mut counting = Counting::over(link)?;
        let input = Input::Lengths(vec![rows], terms);
        search(&mut counting, program, index, &input, wanted)?;
        let opened = Opened::Nearest(wanted);
        Ok(Plan::of(program, counting, 0, &[rows], terms, opened))
    }

    /// The plan of what was counted, where `held` rows were run before and `opened` is opened.
    fn of(
        program: &Program,
        counting: Counting<'_>,
        held: usize,
        tokens: &[usize],
        terms: Terms,
        opened: Opened,
    ) -> Plan {
        let setup = HeContext::exchange_cost(counting.params(), HeContext::ALL_LEVELS);
        let (kept, link) = (counting.kept(), *counting.link());
        let (steps, cots) = counting.into_steps();

        let sum = |f: fn(&Entry) -> u64| steps.iter().map(f).sum::<u64>();
        let decrypted = sum(|e| e.opened) as f64;
        let failure = decrypted.max(1.0).log2() + failure_log2();
        let set = FerretParams::DEFAULT;
        let made = (set.outputs() - set.inputs()) as u64;
        let per_ot = set.message_bytes() as f64 / made as f64;
        let extensions: u64 = cots.iter().map(|n| n.div_ceil(made)).sum();
        let cots = (cots[0] + cots[1]) as f64;
        let rows = tokens.iter().sum::<usize>();
        let plan = Plan {
            memory: memory::estimate(program, (held, rows), terms.public_table, (&steps, kept)),
            protocol: "2pc",
            tokens: tokens.to_vec(),
            setup_bytes_up: setup.bytes_client,
            setup_bytes_down: setup.bytes_server,
            ot_bytes: (cots * per_ot).ceil() as u64,
            bytes_up: sum(|e| e.bytes_up),
            bytes_down: sum(|e| e.bytes_down),
            rounds: sum(|e| e.rounds),
            opened_bits: sum(|e| e.opened_bits),
            seconds: steps.iter().map(|e| e.seconds).sum(),
            link: link.to_string(),
            network: String::new(),
            seconds_in_all: 0.0,
            pace: Pace::default(),
            failure_log2: failure,
            large_truncation_log2: None,
            distance_log2: failure,
            hiding: format!(
                "computational: RLWE at 128 bits by the 2024 guidelines; LPN of the OTs at {:.0} bits by the attacks that are computed, \
                 for each of {extensions} extensions under codes of their own; their hash at {PAD_BITS} bits in pads, {TREE_BITS} in trees",
                set.attacks().least()
            ),
            exposures: exposures(program, tokens, terms, opened),
            steps,
        };
        plan.through(link)
    }
}
