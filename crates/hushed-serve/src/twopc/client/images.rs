//! Images in place of texts.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::{ImageError, Pixels};
use hushed_mpc::embeddings;

use super::{Answered, Class, Client, Embedding, Offer, OnProgress, Options};
use crate::error::ServeError;

impl Client {
    /// Like [`Client::classify_each`] for images, at most `batch` per pass. [`Client::public`] makes them from files.
    ///
    /// # Errors
    /// [`ServeError::Image`] if the model reads text; [`ServeError::EmptyOption`] if `batch` is 0; as
    /// [`Client::embed`].
    pub fn classify_images_each(
        &mut self,
        images: &[Pixels],
        batch: usize,
        progress: Option<OnProgress>,
        each: impl FnMut(usize, Answered<Class>),
    ) -> Result<(), ServeError> {
        self.labels()?;
        let options = self.images_in(images, batch)?;
        self.enough_left(images)?;
        self.classes_of(images, &options, progress, each)
    }

    /// Like [`Client::embed_each`] for images, at most `batch` per pass. [`Client::public`] makes them from files.
    ///
    /// # Errors
    /// As [`Client::classify_images_each`].
    pub fn embed_images_each(
        &mut self,
        images: &[Pixels],
        batch: usize,
        progress: Option<OnProgress>,
        each: impl FnMut(usize, Embedding),
    ) -> Result<(), ServeError> {
        self.embeds()?;
        let options = self.images_in(images, batch)?;
        self.enough_left(images)?;
        let answers = self.answers();
        self.each_of(images, &options, progress, &|on, model, input| embeddings(on, model, input, answers), each)
    }
}

impl Offer {
    /// Checks that a session would run these images, at most `batch` per pass, to embeddings or to classes.
    ///
    /// # Errors
    /// As [`Client::classify_images_each`].
    pub fn images_to_run(&self, images: &[Pixels], batch: usize) -> Result<(), ServeError> {
        self.images_in(images, batch).map(|_| ())
    }

    /// The same, and how they are run.
    fn images_in(&self, images: &[Pixels], batch: usize) -> Result<Options, ServeError> {
        if self.public().images.is_none() {
            let source = ImageError::NoImages;
            return Err(ServeError::Image { index: 0, source });
        }
        let options = Options { batch, ..Options::default() };
        self.checked(images.len(), &options)?;
        let columns = self.model.program().patches().map(|patches| patches.linear.inputs);
        let other = |image: &Pixels| Some(image.patches().cols()) != columns;
        if let Some(index) = images.iter().position(other) {
            let source = ImageError::OtherPatches;
            return Err(ServeError::Image { index, source });
        }
        Ok(options)
    }
}
