//! The weights of a whole model as integers, made before the first session needs them.

use hushed_model::{Block, Model, Program, StepId};

use crate::circuit::product::Product;
use crate::circuit::run;
use crate::circuit::token::predicts_tokens;
use crate::lookup::Table;
use crate::shares::Counting;
use crate::weights::held::Layers;
use crate::weights::ranges;
use crate::{Input, OutOfRange, RunError, Terms};

impl Layers {
    /// Makes every product that a run of `model` will ask for, keeping existing ones. A server calls this at start-up,
    /// so that its first text is as fast as the others.
    ///
    /// # Errors
    /// [`RunError::Model`] if the model has shapes only;
    /// [`RunError::OutOfRange`] for numbers that the formats cannot hold.
    pub fn prepare(&self, model: &Model) -> Result<(), RunError> {
        let program = model.program();
        each_product(&program, |id, product, _| self.get(id, product).map(drop))?;
        let Some(e) = program.embedding() else {
            return Ok(());
        };
        self.table(e, Table::Tokens)?;
        if predicts_tokens(&program) && e.placed {
            // Prompts may be padded.
            self.table(e, Table::Positions)?;
        }
        Ok(())
    }

    /// Layers that are made from stored matrices in every pass ([`Model::open`]). Nothing is read yet; [`out_of_range`]
    /// reports what no format holds.
    ///
    /// # Errors
    /// As [`run`].
    pub fn streaming(program: &Program) -> Result<Layers, RunError> {
        let mut layers = Layers::default();
        each_product(program, |id, product, _| {
            layers.streamed.push((id, product.clone()));
            Ok(())
        })?;
        Ok(layers)
    }
}

/// Lists every number of a model that exceeds the formats. Gains, offsets and factors are multiplied into the layers
/// first, as in a run.
///
/// # Errors
/// [`RunError::Model`] if the model has shapes only.
pub fn out_of_range(model: &Model) -> Result<Vec<OutOfRange>, RunError> {
    let mut all = Vec::new();
    let program = model.program();
    for step in program.steps() {
        match &step.block {
            Block::Embed(e) => all.extend(ranges::embedding(e)?),
            Block::Patches(p) => all.extend(ranges::patches(step.id, p)?),
            _ => {}
        }
    }
    each_product(&program, |id, product, _| {
        let integers = product.integers(id, None)?;
        all.extend(ranges::layer(id, integers.largest, &integers.bias));
        Ok(())
    })?;
    Ok(all)
}

/// Visits every product that a run asks for.
fn each_product(
    program: &Program,
    visit: impl FnMut(StepId, &Product, usize) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let rows = program.patches().map_or(1, |patches| patches.count + 1);
    products_in(program, (rows, Terms::default()), visit)
}

/// Visits every product of a pass over one text of this many rows, in order, with the rows that it multiplies.
pub(crate) fn products_in(
    program: &Program,
    (rows, terms): (usize, Terms),
    visit: impl FnMut(StepId, &Product, usize) -> Result<(), RunError>,
) -> Result<(), RunError> {
    let mut counting = Counting::new()?.telling(visit);
    run(&mut counting, program, &Input::Lengths(vec![rows], terms), |_, _| ()).map(drop)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_model::testing::tiny_model;
    use hushed_model::{Model, TokenIds, TooLong, cosine};

    use crate::testing::run_pair_with;
    use crate::{Answers, Input, Layers, Terms, embeddings};

    /// The answers are the same whatever memory is granted.
    #[test]
    fn weights_are_held_ready_as_far_as_memory_goes() {
        let model = tiny_model();
        let prepared = |budget| {
            let layers = Layers::default();
            layers.prepare(&model).unwrap();
            let ready = layers.make_ready(6, budget).unwrap();
            assert!(ready.bytes <= budget);
            (Arc::new(layers), ready)
        };
        let (_, none) = prepared(0);
        assert_eq!((none.held, none.matrices), (0, 4 * 2 + 1 + 1));
        let (all, whole) = prepared(none.bytes_of_all);
        assert_eq!((whole.held, whole.bytes), (whole.matrices, none.bytes_of_all));
        let (half, some) = prepared(none.bytes_of_all / 2);
        assert!(some.held > 0 && some.held < some.matrices);
        let text = model.tokens("hello", TooLong::Refuse).unwrap();
        let clear = model.embed(vec![text.clone()]).unwrap();
        for layers in [all, half] {
            let private = run(&model, text.clone(), &layers);
            assert!(cosine(&private[0], &clear[0]) > 0.999);
        }
    }

    #[test]
    fn a_run_asks_for_nothing_else() {
        let model = tiny_model();
        let ids = model.tokens("hello", TooLong::Refuse).unwrap();
        let layers = Arc::<Layers>::default();
        layers.prepare(&model).unwrap();
        let before = layers.len();
        assert_eq!(before, 4 * model.encoder().unwrap().layers.len() + 1);
        run(&model, ids, &layers);
        assert_eq!(layers.len(), before);
        let shapes = Model::shapes_only(&model.public);
        assert!(Layers::default().prepare(&shapes).is_err());
    }

    /// Runs one text between two threads, where the server has these layers.
    fn run(model: &Model, ids: TokenIds, layers: &Arc<Layers>) -> Vec<Vec<f64>> {
        let shapes = Model::shapes_only(&model.public);
        let lengths = Input::Lengths(vec![ids.rows().total], Terms::default());
        let input = Input::Texts(vec![ids], Terms::default());
        let (answers, none) = run_pair_with(
            layers,
            |client| embeddings(client, &shapes, &input, Answers::Label).unwrap(),
            |server| embeddings(server, model, &lengths, Answers::Label).unwrap(),
        );
        assert!(none.is_none());
        answers.unwrap()
    }
}
