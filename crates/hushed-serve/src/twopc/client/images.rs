//! Images in place of texts.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::{ImageError, Pixels, Task};
use hushed_mpc::embeddings;

use super::{Answered, Class, Client, Embedding, OnProgress, Options};
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
        if self.public().task() != Task::Embed {
            return Err(self.other_task());
        }
        let options = self.images_in(images, batch)?;
        let answers = self.answers();
        self.each_of(images, &options, progress, &|on, model, input| embeddings(on, model, input, answers), each)
    }

    /// Checks that the images may run, at most `batch` per pass, and how.
    fn images_in(&self, images: &[Pixels], batch: usize) -> Result<Options, ServeError> {
        if self.public().images.is_none() {
            let source = ImageError::NoImages;
            return Err(ServeError::Image { index: 0, source });
        }
        let options = Options { batch, ..Options::default() };
        options.check()?;
        let columns = self.program.patches().map(|patches| patches.linear.inputs);
        let other = |image: &Pixels| Some(image.patches().cols()) != columns;
        if let Some(index) = images.iter().position(other) {
            let source = ImageError::OtherPatches;
            return Err(ServeError::Image { index, source });
        }
        self.enough_left(images.len())?;
        Ok(options)
    }
}
