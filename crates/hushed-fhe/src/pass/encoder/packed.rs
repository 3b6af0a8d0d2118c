//! Passes over one text or a few in packed rows.

use std::borrow::Cow;
use std::sync::Arc;

use hushed_model::{Attention, Block, Program, StepId};

use super::Pass;
use crate::choices::Choices;
use crate::error::FheError;
use crate::ops::packed::heads_of;
use crate::ops::packed::rows::PackedRows;
use crate::packing::{Layout, Spread};
use crate::pass::shape::packed_decoder;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;
use crate::tape::assign::assign;
use crate::tape::encoder::{COLUMNS, InSlots};
use crate::tape::levels::{Heights, Limits, Outputs};
use crate::tape::packed::products::keys;
use crate::tape::packed::{HIDDEN, Places};
use crate::tape::record::Recorder;

impl<'a, S: Slots> Pass<'a, S> {
    /// A pass over texts in packed rows. The client divided its columns by `input_bound`, and by 2.
    ///
    /// # Errors
    /// As [`Pass::new`]; [`FheError::Unsupported`] for heads that do not fit the layout: if the pairs of columns per
    /// head are not a power of two, or more than rows, or vectors do not hold equally many heads.
    pub fn packed(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        rows: PackedRows<S::Value>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let places = places(program, rows.layout())?;
        let answers = match program.classes() {
            Some(classes) => rows.layout().spread(classes.outputs, 1)?,
            None => places.columns,
        };
        let (rows, sent) = rows.known();
        let texts = InSlots::Packed(Arc::new(rows), places);
        let choices = Cow::Borrowed(choices);
        let mut pass = Pass::of((on, program, choices, placement), texts, Some(answers), input_bound)?;
        if let Some(sent) = sent {
            let made = pass.masks(sent, pass.placement.statistics)?;
            pass.hidden = HIDDEN.iter().copied().zip(made.into_iter().map(|v| vec![v])).collect();
            let keys = pass.keys(&places)?;
            pass.hidden.insert(HIDDEN[2], keys);
        }
        Ok(pass)
    }

    /// A pass of a decoder over texts that end in the last row, answered with these rows, as [`Pass::packed`].
    ///
    /// # Errors
    /// As [`Pass::packed`]; [`FheError::Unsupported`] for softmax attention, norms inside blocks, LayerNorm, and
    /// logits.
    pub fn packed_last(
        on: &'a S,
        (program, choices): (&'a Program, &'a Choices),
        placement: Placement,
        (layout, answer): (Layout, AnswerRows),
        input_bound: f64,
    ) -> Result<Self, FheError> {
        packed_decoder(program)?;
        if answer == AnswerRows::Logits {
            return Err(FheError::Unsupported {
                what: "a decoder whose head is not its table of token vectors, in packed rows".to_owned(),
                remedy: "omit --texts to plan a batch",
            });
        }
        // Padding is zeros, so no mask depends on lengths.
        let rows = PackedRows::new(layout, Vec::new())?;
        Ok(Pass { answer, ..Pass::packed(on, program, choices, placement, rows, input_bound)? })
    }

    /// The masks of keys, with as many primes as a layer reads.
    fn keys(&self, places: &Places) -> Result<Vec<S::Value>, FheError> {
        let (on, width) = (self.on, self.program.width());
        let (gain, offset) = (vec![self.input_bound; width], vec![0.0; width]);
        let mut layer = self.encoder(true).layer(self.range(0)?, (&gain, &offset))?.tape;
        let high = HIDDEN.map(|name| (name, (on.top(), on.default_scale())));
        let columns = (COLUMNS, (self.placement.attention, on.default_scale()));
        let limits = Limits {
            heights: Heights::Least,
            inputs: high.into_iter().chain([columns]).collect(),
            outputs: self.outputs(0)?,
            spilled: Vec::new(),
        };
        let read = assign(&mut layer, on, &limits)?.reads(&layer, HIDDEN[2]);
        let mut t = Recorder::new();
        let keys = keys(&mut t, &places.heads);
        t.output(keys);
        let tokens = self.hidden.get(HIDDEN[0]).cloned().unwrap_or_default();
        let values = [(HIDDEN[0], tokens)].into();
        self.computed(t.finish(), values, (Heights::Least, Outputs::Exactly(read)), &mut |_, _| Ok(()))
    }
}

/// Where heads and columns lie, with whole heads in each vector.
fn places(program: &Program, layout: Layout) -> Result<Places, FheError> {
    let mut all = None;
    for steps in program.layers() {
        for step in program.steps().get(steps).unwrap_or_default() {
            let (id, Block::Attention(a)) = (step.id, &step.block) else { continue };
            let unfit = || unfit(id, a, layout);
            let heads = heads_of(a, layout).map_err(|_| unfit())?;
            let spread = layout.spread(program.width(), heads.pairs());
            let columns = spread.ok().filter(Spread::is_even).ok_or_else(unfit)?;
            // Masks of keys are made for heads of one kind.
            if all.get_or_insert(Places { heads, columns }).heads != heads {
                return Err(unfit());
            }
        }
    }
    all.ok_or_else(|| FheError::shape(StepId::outside("attention")))
}

fn unfit(at: StepId, a: &Attention, layout: Layout) -> FheError {
    FheError::Unsupported {
        what: format!(
            "{at}: {} heads of {} columns on {} rows of {} pairs",
            a.heads.count,
            a.heads.width,
            layout.rows(),
            layout.columns()
        ),
        remedy: "omit --texts to plan a batch",
    }
}
