//! What a pass over some texts or images begins with.

use hushed_model::{Block, Item, Pixels, Program, Rows, Step, TextRows, TokenIds};

/// The input of each party to a pass. Both give the same terms and the same numbers of rows.
pub enum Input {
    /// The client: its texts, padding included.
    Texts(Vec<TokenIds>, Terms),
    /// The client: its images. There are no terms: all images of a model have the same rows, and there is no table.
    Images(Vec<Pixels>),
    /// The server: how many rows each text or image has, padding included.
    Lengths(Vec<usize>, Terms),
}

/// Terms of a pass that both parties have agreed on, beside the numbers of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Terms {
    /// The last rows of a text may be padding, and only the client knows which are: the server learns the padded length
    /// alone.
    pub padded: bool,
    /// The table of token vectors is public, and the client looks its ids up alone.
    pub public_table: bool,
}

/// Where the padding of a text's first pass is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Padding {
    /// After the text: rows have their places by a table, and later ones by a lookup that the client makes.
    Behind,
    /// Before it: scores depend on the distance of two rows, so that a text may begin anywhere. Later rows then have
    /// the distances that they would have without padding, and the last row is the same for both parties.
    InFront,
}

impl Padding {
    /// What suits a program.
    pub(crate) fn of(program: &Program) -> Padding {
        let turned = |step: &Step| matches!(&step.block, Block::Attention(a) if a.rope.is_some());
        match program.steps().iter().any(turned) && program.embedding().is_some_and(|e| !e.placed) {
            true => Padding::InFront,
            false => Padding::Behind,
        }
    }
}

/// Whether padding comes before a text: where positions are distances.
pub fn pads_in_front(program: &Program) -> bool {
    Padding::of(program) == Padding::InFront
}

impl Input {
    /// The client's input of these texts, or of these images; what are of the other kind than the first is left out,
    /// and so are terms where there are images.
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

    /// Rows of each text, padding included.
    pub fn lengths(&self) -> Vec<usize> {
        match self {
            Input::Texts(texts, _) => texts.iter().map(|t| t.rows().total).collect(),
            Input::Images(images) => images.iter().map(|i| i.rows().total).collect(),
            Input::Lengths(lengths, _) => lengths.clone(),
        }
    }

    /// As agreed.
    pub fn terms(&self) -> Terms {
        match self {
            Input::Texts(_, terms) | Input::Lengths(_, terms) => *terms,
            Input::Images(_) => Terms::default(),
        }
    }

    /// The rows of the pass as this party knows them: to the server all of them are tokens.
    pub(crate) fn rows(&self) -> Rows {
        match self {
            Input::Texts(texts, _) => Rows::new(texts.iter().map(TokenIds::rows)),
            Input::Images(images) => Rows::new(images.iter().map(Pixels::rows)),
            Input::Lengths(lengths, _) => Rows::unpadded(lengths),
        }
    }

    /// The ids of all rows, padding included, at who has the texts.
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

    /// The images, at who has them.
    pub(crate) fn images(&self) -> &[Pixels] {
        match self {
            Input::Images(images) => images,
            Input::Texts(..) | Input::Lengths(..) => &[],
        }
    }

    /// Whether a program that reads texts was given images, or the other way round.
    pub(crate) fn is_of_another(&self, program: &Program) -> bool {
        match self {
            Input::Texts(..) => program.embedding().is_none(),
            Input::Images(_) => program.patches().is_none(),
            Input::Lengths(_, terms) => program.patches().is_some() && *terms != Terms::default(),
        }
    }

    /// Whether padding is where none was agreed on: it would be taken for tokens.
    pub(crate) fn breaks_its_terms(&self) -> bool {
        let padded = |t: &TextRows| t.real < t.total;
        !self.terms().padded && self.rows().texts().iter().any(padded)
    }
}
