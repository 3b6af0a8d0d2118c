//! The input of a pass over texts or images.

use hushed_model::{Block, Item, Pixels, Pool, Program, Rows, Step, TextRows, TokenIds};
use hushed_twopc::Link;

/// Each party's input to a pass. Both give the same terms and the same number of rows.
pub enum Input {
    /// The client's texts, including padding.
    Texts(Vec<TokenIds>, Terms),
    /// The client's images. There are no terms: all images of a model have the same rows, and there is no table.
    Images(Vec<Pixels>),
    /// For the server: the number of rows of each text or image, including padding.
    Lengths(Vec<usize>, Terms),
}

/// What both parties have agreed on for a pass, besides the number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The last rows of a text may be padding, and only the client knows which: the server learns only the padded
    /// length.
    pub padded: bool,
    /// The table of token vectors is public, and the client looks up its ids locally.
    pub public_table: bool,
}

/// The terms of a pass, and what its session brings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SessionTerms {
    /// Of the pass.
    pub terms: Terms,
    /// By which forms are chosen.
    pub link: Link,
    /// Whether the pass takes products that were made ahead on these terms.
    pub ahead: bool,
}

impl Terms {
    /// These terms in a session over a link.
    #[must_use]
    pub fn over(self, link: Link) -> SessionTerms {
        SessionTerms { terms: self, link, ahead: false }
    }
}

impl SessionTerms {
    /// The same where products were made ahead, or not.
    #[must_use]
    pub fn spending(self, ahead: bool) -> SessionTerms {
        SessionTerms { ahead, ..self }
    }
}

impl From<Terms> for SessionTerms {
    /// Over [`Link::LAN`].
    fn from(terms: Terms) -> Self {
        terms.over(Link::LAN)
    }
}

/// Where the padding of a text's first pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    /// After the text: positions come from a table, and those of later rows from a lookup by the client.
    Behind,
    /// Before it, where the last row of a text is read or others follow it: scores depend on the distance between rows,
    /// so a text may begin anywhere. Later rows then have the same distances as without padding, and the last row is
    /// the same for both parties.
    InFront,
}

impl Padding {
    /// The side that suits a program.
    pub(crate) fn of(program: &Program) -> Padding {
        let any = |of: fn(&Step) -> bool| program.steps().iter().any(of);
        let turned = any(|step| matches!(&step.block, Block::Attention(a) if a.rope.is_some()));
        let others = any(|step| matches!(&step.block, Block::Pool(how) if *how != Pool::Last));
        match turned && !others && program.embedding().is_some_and(|e| !e.placed) {
            true => Padding::InFront,
            false => Padding::Behind,
        }
    }
}

impl Input {
    /// The client's input for these texts or images. Items of the other kind than the images, if there are any, are
    /// left out; images have no terms.
    pub fn of(items: Vec<Item>, terms: Terms) -> Input {
        let (mut texts, mut images) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Text(text) => texts.push(text),
                Item::Image(image) => images.push(image),
            }
        }
        match images.is_empty() {
            true => Input::Texts(texts, terms),
            false => Input::Images(images),
        }
    }

    /// The rows of each text, including padding.
    pub fn lengths(&self) -> Vec<usize> {
        match self {
            Input::Texts(texts, _) => texts.iter().map(|t| t.rows().total).collect(),
            Input::Images(images) => images.iter().map(|i| i.rows().total).collect(),
            Input::Lengths(lengths, _) => lengths.clone(),
        }
    }

    /// The agreed terms.
    pub fn terms(&self) -> Terms {
        match self {
            Input::Texts(_, terms) | Input::Lengths(_, terms) => *terms,
            Input::Images(_) => Terms::default(),
        }
    }

    /// The rows of the pass as this party knows them: the server sees all as tokens.
    pub(crate) fn rows(&self) -> Rows {
        match self {
            Input::Texts(texts, _) => Rows::new(texts.iter().map(TokenIds::rows)),
            Input::Images(images) => Rows::new(images.iter().map(Pixels::rows)),
            Input::Lengths(lengths, _) => Rows::unpadded(lengths),
        }
    }

    /// The ids of all rows, including padding, for the party that has the texts.
    pub(crate) fn ids(&self, padding: Padding) -> Vec<i64> {
        match self {
            Input::Texts(texts, _) => {
                let ids = texts.iter().flat_map(|t| {
                    let (text, behind) = t.ids().split_at(t.rows().real);
                    match padding {
                        Padding::Behind => [text, behind].concat(),
                        Padding::InFront => [behind, text].concat(),
                    }
                });
                ids.map(i64::from).collect()
            }
            Input::Images(_) | Input::Lengths(..) => Vec::new(),
        }
    }

    /// For each row, including padding behind a text, 1 if it has token type 1, for the party that has the texts.
    pub(crate) fn second(&self) -> Vec<i64> {
        match self {
            Input::Texts(texts, _) => texts.iter().flat_map(TokenIds::second).map(i64::from).collect(),
            Input::Images(_) | Input::Lengths(..) => Vec::new(),
        }
    }

    /// The images, for the party that has them.
    pub(crate) fn images(&self) -> &[Pixels] {
        match self {
            Input::Images(images) => images,
            Input::Texts(..) | Input::Lengths(..) => &[],
        }
    }

    /// Whether a program that reads texts was given images, or vice versa.
    pub(crate) fn is_of_another(&self, program: &Program) -> bool {
        match self {
            Input::Texts(..) => program.embedding().is_none(),
            Input::Images(_) => program.patches().is_none(),
            Input::Lengths(_, terms) => program.patches().is_some() && *terms != Terms::default(),
        }
    }

    /// Whether there is padding that was not agreed on: it would be treated as tokens.
    pub(crate) fn breaks_its_terms(&self) -> bool {
        let padded = |t: &TextRows| t.real < t.total;
        !self.terms().padded && self.rows().texts().iter().any(padded)
    }
}
