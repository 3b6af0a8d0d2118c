//! The passes of a text that is continued, and the products made ahead for them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Instant;

use hushed_model::Task;
use hushed_mpc::formats::{is_long, longest};
use hushed_mpc::{Adds, Input, Later, Terms, TextCache, next_tokens, tokens_of_rows};

use super::text::Text;
use super::{Passes, debug, malformed, narrow, whole_images};
use crate::session::outcome::Stop;
use crate::session::wire::{PrefixKind, Refusal};
use crate::twopc::wire::{Ahead, Next};

impl Passes<'_> {
    /// Makes products for passes to come. Each counts as a text now, and not again when it uses them: a client that
    /// leaves without running a text has still had the work done. Those of texts are made as a pass over as many would
    /// be run, within the same limits.
    pub(super) fn ahead(&mut self, asked: &Ahead) -> Result<(), Stop> {
        let (shared, passes, rows) = (self.shared, usize::from(asked.passes), asked.rows as usize);
        let terms = Terms { padded: asked.padded, public_table: asked.public_table };
        let texts = match shared.task() {
            Task::Generate if rows != 1 => return Err(malformed("number of tokens")),
            Task::Generate => Vec::new(),
            Task::Embed | Task::Classify => vec![rows; passes],
        };
        if shared.model.public.images.is_some() {
            whole_images(shared.model.public.max_tokens, &texts, terms)?;
        }
        let limit = usize::from(shared.max_ahead);
        let ours = match self.backend.passes_ahead() + passes <= limit {
            true => Ok(()),
            false => Err(Refusal::TooFarAhead { limit: narrow(limit) }),
        };
        let charge = passes.saturating_mul(shared.charge);
        let bits = shared.bits.saturating_mul(passes as u64);
        self.agreed(ours, &texts, (charge, bits), terms)?;
        let (began, before) = (Instant::now(), self.backend.ctx().session.stats());
        self.backend.make_ahead(&shared.program, Later { passes, rows }, terms)?;
        self.backend.forget_costs();
        self.done.texts += charge;
        let stats = self.backend.ctx().session.stats().since(&before);
        let spent = began.elapsed();
        shared.listener.metrics.pass(0, 0, spent, &stats);
        debug(self.entry, 0, 0, spent, &stats);
        Ok(())
    }

    /// Opens the token after the next rows of a text, or after each of them. Each opened token counts as a text, even
    /// after drafts that turn out wrong, as it reveals something of the model.
    pub(super) fn next(&mut self, next: &Next) -> Result<(), Stop> {
        let shared = self.shared;
        let mut text = self.begun(next)?;
        let (rows, dropped) = (next.rows as usize, usize::from(next.dropped));
        if dropped > text.drafts {
            return Err(malformed("number of dropped tokens"));
        }
        if dropped > 0 {
            text.cache.keep(text.cache.rows() - dropped)?;
        }
        let opened = if next.drafts { rows } else { 1 };
        if next.ahead && self.backend.passes_ahead() < opened {
            return Err(malformed("flags"));
        }
        let terms = Terms { padded: next.padded, public_table: next.public_table };
        let limit = usize::from(shared.max_drafts);
        let ours = self.for_this(shared.task() == Task::Generate);
        let ours = ours.and(match opened - 1 <= limit {
            true => Ok(()),
            false => Err(Refusal::TooManyDrafts { limit: narrow(limit) }),
        });
        // The model's positions are for the public rows too.
        let (public, positions) = (text.cache.public(), shared.model.public.max_tokens.min(longest(true)));
        let fits = public.saturating_add(text.cache.rows()).saturating_add(rows) <= positions;
        let ours = ours.and(match fits {
            true => Ok(()),
            false => Err(Refusal::TooLong { limit: narrow(shared.max_tokens.min(positions - public)) }),
        });
        let needs = shared.prefix.as_ref().is_some_and(|prefix| prefix.facts.kind == PrefixKind::NeededHead);
        let ours = ours.and(match needs && public == 0 {
            true => Err(Refusal::NoHead),
            false => Ok(()),
        });
        // Passes with products made ahead were counted when those were made.
        let charge = match next.ahead {
            true => 0,
            false => opened.saturating_mul(shared.charge),
        };
        let bits = match next.ahead {
            true => 0,
            false => shared.bits.saturating_mul(opened as u64),
        };
        let held = text.cache.rows();
        self.agreed(ours, &[held.saturating_add(rows)], (charge, bits), terms)?;
        // For the limits; the metrics count one text.
        self.done.texts = (self.done.texts + charge).saturating_sub(1);
        let temperature = f64::from(next.temperature) / 1000.0;
        // The first row that gives a token.
        let first = (text.cache.public() + held + rows).saturating_sub(opened);
        let draw = shared.sampler.draw(temperature, next.seed, first);
        let draw = (next.temperature > 0).then_some(&draw);
        let cache = &mut text.cache;
        self.pass(1, rows, |backend| {
            let input = Input::Lengths(vec![rows], terms);
            let (program, top) = (&shared.program, shared.answers.top().unwrap_or(1));
            let adds = Adds { draw, ..Adds::default() };
            let mut run = |on: &mut _| match next.drafts {
                true => tokens_of_rows(on, program, cache, &input, adds, top).map(drop),
                false => next_tokens(on, program, cache, &input, adds, top).map(drop),
            };
            match next.ahead {
                true => backend.spending_ahead(&vec![1; opened], run),
                false => run(backend),
            }
        })?;
        text.drafts = opened - 1;
        self.text = Some(text);
        Ok(())
    }

    /// The text that a pass is for: a new one, or the one held.
    fn begun(&mut self, next: &Next) -> Result<Text, Stop> {
        let cache = match (next.begins, self.text.take(), &self.shared.prefix) {
            (true, _, Some(offered)) => offered.cache(next.public).ok_or_else(|| malformed("public"))?,
            (true, _, None) if next.public == 0 => TextCache::default(),
            (true, _, None) => return Err(malformed("public")),
            (false, Some(text), _) => return Ok(text),
            (false, None, _) => return Err(malformed("begins")),
        };
        // Wider formats than the operator's longest text needs are more memory than was planned.
        if next.long && !is_long(self.shared.max_tokens) {
            return Err(malformed("long"));
        }
        Ok(Text { cache: cache.long(next.long), drafts: 0 })
    }
}
