//! The output map: each head adds its part to the sums.

use hushed_ckks::Scale;

use super::layer::Run;
use crate::error::FheError;
use crate::ops::levels::below;
use crate::ops::norm::centred_scale;
use crate::packing::Pairs;
use crate::slots::Slots;

/// The output map, applied head by head.
pub struct Output<'a, S: Slots> {
    run: &'a Run<'a, S>,
    target: Scale,
    partial: Option<S::Partial>,
    /// The heads' results, if they are spilled until all are done: the map has as many sums as columns.
    waiting: Option<Vec<(usize, S::Stored)>>,
}

impl<'a, S: Slots> Output<'a, S> {
    pub fn new(run: &'a Run<'a, S>, stored: bool) -> Result<Self, FheError> {
        Ok(Output {
            target: centred_scale(run.on, below(run.on, run.limbs.heads, 1)?)?,
            run,
            partial: None,
            waiting: stored.then(Vec::new),
        })
    }

    /// Takes the result of head `h`.
    pub fn add(&mut self, h: usize, pairs: Pairs<S::Value>) -> Result<(), FheError> {
        self.run.site("output");
        match &mut self.waiting {
            Some(waiting) => waiting.push((h, self.run.on.store(pairs.into_vectors())?)),
            None => self.multiply(h, pairs)?,
        }
        Ok(())
    }

    /// Adds the part of head `h`; the first part includes the biases.
    fn multiply(&mut self, h: usize, pairs: Pairs<S::Value>) -> Result<(), FheError> {
        let run = self.run;
        let columns = pairs.into_columns(run.on)?;
        let mut map = run.maps.output.columns(h * run.width..(h + 1) * run.width);
        if self.partial.is_none() {
            map.bias.clone_from(&run.maps.output.bias);
        }
        let partial = self.partial.take();
        let partial = run.on.linear_add(&map, columns.vectors(), self.target, partial)?;
        self.partial = Some(partial);
        Ok(())
    }

    pub fn finish(mut self) -> Result<Vec<S::Value>, FheError> {
        self.run.site("output");
        for (h, stored) in self.waiting.take().unwrap_or_default() {
            let pairs = self.run.on.load(stored)?;
            let pairs = Pairs::from_vectors(self.run.layout, pairs, self.run.width);
            self.multiply(h, pairs)?;
        }
        match self.partial {
            Some(partial) => self.run.on.linear_finish(partial),
            None => Ok(Vec::new()),
        }
    }
}
