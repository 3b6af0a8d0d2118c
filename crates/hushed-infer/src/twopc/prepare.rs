//! The weights of a whole model as integers, made before the first session needs them.

use hushed_model::{Bert, Model, ModelError, Site};

use super::held::Layers;
use super::layers::{self, Fused};
use super::{RunError, refuse_classifier};

impl Layers {
    /// Makes every layer that a run of `model` will ask for; what is there already stays. A server calls this when it starts, so that its
    /// first text is as quick as the others.
    ///
    /// # Errors
    /// [`RunError::Unsupported`] for a classifier; [`RunError::Model`] if the model has shapes only; [`RunError::OutOfRange`] for numbers that the formats do not hold.
    pub fn prepare(&self, model: &Model) -> Result<(), RunError> {
        refuse_classifier(&model.bert)?;
        self.table(&model.bert.embedding)?;
        each_layer(&model.bert, |at, make| self.get(at, make).map(drop))
    }
}

/// The step and the maker of every layer that a run will ask for.
pub(super) fn each_layer(
    bert: &Bert,
    mut visit: impl FnMut(&Site, &dyn Fn() -> Fused) -> Result<(), RunError>,
) -> Result<(), RunError> {
    // The norm whose gain and offset the next layers take over.
    let mut norm = Some(&bert.embedding_norm);
    for (i, layer) in bert.layers.iter().enumerate() {
        let at = Site::layer(i).then("attention");
        let attention = &layer.attention;
        visit(&at.then("qkv"), &|| {
            layers::attention_input(norm, attention)
        })?;
        visit(&at.then("output"), &|| {
            layers::alone(None, &attention.output)
        })?;
        let at = Site::layer(i).then("feed_forward");
        let (inside, block) = (Some(&layer.attention_norm), &layer.feed_forward);
        visit(&at.then("up"), &|| layers::feed_forward_up(inside, block))?;
        visit(&at.then("down"), &|| layers::feed_forward_down(block))?;
        norm = Some(&layer.feed_forward_norm);
    }
    match norm {
        Some(norm) => visit(&Site::root("pool").then("affine"), &|| layers::affine(norm)),
        None => Ok(()),
    }
}

pub(super) fn shapes_only(at: &Site) -> ModelError {
    ModelError::ShapesOnly {
        site: at.path().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_model::testing::tiny_folder;
    use hushed_model::{Model, TokenIds, TooLong, cosine};
    use hushed_net::{Session, memory_pair};
    use hushed_twopc::Ctx;
    use hushed_twopc::he::HeContext;
    use hushed_twopc::ot::Correlations;
    use hushed_twopc::ot::ideal::IdealPair;

    use super::super::{Input, Layers, Terms, TwopcBackend, embeddings};

    /// Whatever memory is granted, the answers are the same.
    #[test]
    fn weights_are_held_ready_as_far_as_memory_goes() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let model = Model::load(folder.path()).unwrap();
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
        assert_eq!(
            (whole.held, whole.bytes),
            (whole.matrices, none.bytes_of_all)
        );
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
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let model = Model::load(folder.path()).unwrap();
        let ids = model.tokens("hello", TooLong::Refuse).unwrap();
        let layers = Arc::<Layers>::default();
        layers.prepare(&model).unwrap();
        let before = layers.len();
        assert_eq!(before, 4 * model.bert.layers.len() + 1);
        run(&model, ids, &layers);
        assert_eq!(layers.len(), before);
        let shapes = Model::shapes_only(&model.public);
        assert!(Layers::default().prepare(&shapes).is_err());
    }

    /// One text between two threads, the server with these layers.
    fn run(model: &Model, ids: TokenIds, layers: &Arc<Layers>) -> Vec<Vec<f64>> {
        let shapes = Model::shapes_only(&model.public);
        let backend = |mut session: Session, ot: Box<dyn Correlations>, layers| {
            let mut rng = hushed_math::rng::SecretRng::from_os("test");
            let he = HeContext::exchange(&mut session, &mut rng).unwrap();
            TwopcBackend::new(Ctx::new(session, rng, ot), he, layers)
        };
        let (near, far) = memory_pair();
        let (near_ot, far_ot) = IdealPair::new();
        let lengths = Input::Lengths(vec![ids.rows().total], Terms::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut server = backend(far, Box::new(far_ot), Arc::clone(layers));
                embeddings(&mut server, model, lengths).unwrap();
            });
            let mut client = backend(near, Box::new(near_ot), Arc::default());
            let input = Input::Texts(vec![ids], Terms::default());
            embeddings(&mut client, &shapes, input).unwrap().unwrap()
        })
    }
}
