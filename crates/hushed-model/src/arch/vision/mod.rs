//! Models of images.

pub(crate) mod vit;
