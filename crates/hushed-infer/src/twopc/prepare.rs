//! The weights of a whole model as integers, made before the first session needs them.

use hushed_model::{Model, Site};

use super::RunError;
use super::backend::Layers;
use super::layers;

impl Layers {
    /// Makes every layer that a run of `model` will ask for; what is there already stays. A server calls this when it starts, so that its
    /// first text is as quick as the others.
    ///
    /// # Errors
    /// [`RunError::Model`] if the model has shapes only, or numbers out of range.
    pub fn prepare(&self, model: &Model) -> Result<(), RunError> {
        let bert = &model.bert;
        self.table(&bert.embedding)?;
        // The norm whose gain and offset the next layers take over.
        let mut norm = Some(&bert.embedding_norm);
        for (i, layer) in bert.layers.iter().enumerate() {
            let at = Site::layer(i).then("attention");
            let attention = &layer.attention;
            self.get(&at.then("qkv"), || layers::attention_input(norm, attention))?;
            self.get(&at.then("output"), || {
                layers::alone(None, &attention.output)
            })?;
            let at = Site::layer(i).then("feed_forward");
            let (norm_inside, block) = (Some(&layer.attention_norm), &layer.feed_forward);
            self.get(&at.then("up"), || {
                layers::feed_forward_up(norm_inside, block)
            })?;
            self.get(&at.then("down"), || layers::feed_forward_down(block))?;
            norm = Some(&layer.feed_forward_norm);
        }
        if let Some(norm) = norm {
            self.get(&Site::root("pool").then("affine"), || layers::affine(norm))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_model::testing::tiny_folder;
    use hushed_model::{Model, TooLong};
    use hushed_net::{Session, memory_pair};
    use hushed_twopc::Ctx;
    use hushed_twopc::he::HeContext;
    use hushed_twopc::ot::Correlations;
    use hushed_twopc::ot::ideal::IdealPair;

    use super::super::{Input, Layers, Terms, TwopcBackend, embeddings};

    #[test]
    fn a_run_asks_for_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let model = Model::load(folder.path()).unwrap();
        let shapes = Model::shapes_only(&model.public);
        let ids = model.tokens("hello", TooLong::Refuse).unwrap();
        let layers = Arc::<Layers>::default();
        layers.prepare(&model).unwrap();
        let before = layers.len();
        assert_eq!(before, 4 * model.bert.layers.len() + 1);

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
                let mut server = backend(far, Box::new(far_ot), Arc::clone(&layers));
                embeddings(&mut server, &model, lengths).unwrap();
            });
            let mut client = backend(near, Box::new(near_ot), Arc::default());
            embeddings(
                &mut client,
                &shapes,
                Input::Texts(vec![ids], Terms::default()),
            )
            .unwrap();
        });
        assert_eq!(layers.len(), before);
        assert!(Layers::default().prepare(&shapes).is_err());
    }
}
