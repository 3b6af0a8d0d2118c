//! Texts of equal length in a pass: their attention runs as one batch of heads, so that rounds and partly empty
//! ciphertexts are paid for once per length instead of once per text.

use hushed_model::{Queries, Rows};

/// The texts of a pass that have the same number of rows, including padding: public to both parties.
pub struct Group {
    /// The rows of each of its texts.
    pub rows: usize,
    /// Its texts, in order.
    pub texts: Vec<Member>,
}

/// A text of a group.
pub struct Member {
    /// Its first row in the pass.
    pub start: usize,
    /// Rows that are tokens, as this party knows it; the server assumes that all are.
    pub real: usize,
}

/// The rows of a pass, and which of them have queries.
pub struct Asking<'a> {
    /// All rows: they give keys and values.
    pub rows: &'a Rows,
    /// Which rows give queries.
    pub queries: Queries,
}

impl Asking<'_> {
    /// The rows with queries.
    pub fn asking(&self) -> Rows {
        match self.queries {
            Queries::All => self.rows.clone(),
            Queries::First | Queries::Last => self.rows.pooled(),
        }
    }

    /// The groups of a pass, each with the same texts' query rows, as placed in the matrix of queries.
    pub fn groups(&self) -> Vec<(Group, Group)> {
        let starts: Vec<usize> = self.rows.blocks().map(|(block, _)| block.start).collect();
        let one = |group: &Group| {
            let places = group.texts.iter();
            let places = places.filter_map(|t| starts.iter().position(|&s| s == t.start));
            Group { rows: 1, texts: places.map(|start| Member { start, real: 1 }).collect() }
        };
        let all = groups(self.rows).into_iter();
        match self.queries {
            Queries::All => all.zip(groups(self.rows)).collect(),
            Queries::First | Queries::Last => all
                .map(|group| {
                    let asking = one(&group);
                    (group, asking)
                })
                .collect(),
        }
    }
}

/// The groups of a pass, ordered by their first texts.
pub fn groups(rows: &Rows) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (block, real) in rows.blocks() {
        let member = Member { start: block.start, real };
        match groups.iter_mut().find(|g| g.rows == block.len()) {
            Some(group) => group.texts.push(member),
            None => groups.push(Group { rows: block.len(), texts: vec![member] }),
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
        let found: Vec<(usize, Vec<(usize, usize)>)> =
            groups(&rows).iter().map(|g| (g.rows, g.texts.iter().map(|t| (t.start, t.real)).collect())).collect();
        assert_eq!(found, [(4, vec![(0, 3), (9, 4)]), (5, vec![(4, 5)])]);
    }
}
