//! Texts of equal length in a pass: their attention runs as one batch of heads, so that rounds and part-empty
//! ciphertexts are paid once a length instead of once a text.

use hushed_model::Rows;

/// The texts of a pass that have one number of rows, padding included: public to both parties.
pub struct Group {
    /// Rows of each of its texts.
    pub rows: usize,
    /// Its texts, in their order.
    pub texts: Vec<Member>,
}

/// A text of a group.
pub struct Member {
    /// Its first row in the pass.
    pub start: usize,
    /// Rows that are tokens, as this party knows them: the server takes all of them for tokens.
    pub real: usize,
}

/// The groups of a pass, in the order of their first texts.
pub fn groups(rows: &Rows) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (block, real) in rows.blocks() {
        let member = Member {
            start: block.start,
            real,
        };
        match groups.iter_mut().find(|g| g.rows == block.len()) {
            Some(group) => group.texts.push(member),
            None => groups.push(Group {
                rows: block.len(),
                texts: vec![member],
            }),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use hushed_model::{Rows, TextRows};

    use super::groups;

    #[test]
    fn texts_of_one_length_come_together() {
        let text = |real, total| TextRows { real, total };
        let rows = Rows::new([text(3, 4), text(5, 5), text(4, 4)]);
        let found: Vec<(usize, Vec<(usize, usize)>)> = groups(&rows)
            .iter()
            .map(|g| (g.rows, g.texts.iter().map(|t| (t.start, t.real)).collect()))
            .collect();
        assert_eq!(found, [(4, vec![(0, 3), (9, 4)]), (5, vec![(4, 5)])]);
    }
}
