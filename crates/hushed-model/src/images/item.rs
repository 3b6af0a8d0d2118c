//! The input of a model: a text or an image.

use super::Pixels;
use crate::rows::TextRows;
use crate::tokens::TokenIds;

/// One input of a model. No `Debug`: it is private.
#[derive(Clone, PartialEq)]
pub enum Item {
    /// A text.
    Text(TokenIds),
    /// An image.
    Image(Pixels),
}

impl Item {
    /// The rows of its matrix, and how many of them are not padding.
    pub fn rows(&self) -> TextRows {
        match self {
            Item::Text(text) => text.rows(),
            Item::Image(image) => image.rows(),
        }
    }
}

impl From<TokenIds> for Item {
    fn from(text: TokenIds) -> Item {
        Item::Text(text)
    }
}

impl From<Pixels> for Item {
    fn from(image: Pixels) -> Item {
        Item::Image(image)
    }
}
