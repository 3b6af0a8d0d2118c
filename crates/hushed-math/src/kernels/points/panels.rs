//! What the kernels multiply: panels of lines, and where their products go.

/// Points per group.
pub(crate) const GROUP: usize = 8;

/// Lines per left panel.
pub(crate) const LEFT: usize = 4;

/// Lines per right panel.
pub(crate) const RIGHT: usize = 3;

/// Terms of a sum between reductions: low halves of 52 bits and a residue stay below 2^63.
pub(crate) const TERMS: usize = 1024;

/// The sums of one group: left line l with right line r at l·RIGHT + r.
pub(crate) type Sums = [[u64; GROUP]; LEFT * RIGHT];

/// Where the sums of one group lie.
pub(crate) struct Place {
    /// Number of left and right lines that exist.
    pub(crate) lines: usize,
    pub(crate) columns: usize,
    /// The first sum, and the strides to the sums of the next left line and of the next right line.
    pub(super) first: usize,
    pub(super) stride: [usize; 2],
}

impl Place {
    /// Where the sum of left line l with right line r begins.
    #[inline]
    pub(crate) fn at(&self, l: usize, r: usize) -> usize {
        self.first + l * self.stride[0] + r * self.stride[1]
    }

    /// Whether `out` has room for all sums, and they are no more than a tile's.
    pub(crate) fn is_within(&self, out: &[u64]) -> bool {
        let last = |lines: usize| lines.saturating_sub(1);
        let end = self.at(last(self.lines), last(self.columns)) + GROUP;
        self.lines <= LEFT && self.columns <= RIGHT && end <= out.len()
    }
}

/// Groups of points over which a sum runs, and the words from one group to the next in a left and in a right operand.
pub(crate) struct Run {
    pub(crate) groups: usize,
    pub(crate) terms: usize,
    pub(crate) strides: [usize; 2],
}

impl Run {
    pub(crate) fn of_one(terms: usize) -> Run {
        Run { groups: 1, terms, strides: [0; 2] }
    }

    /// Whether the panels that begin at `left` and `right` contain these groups.
    pub(crate) fn is_within(&self, left: &[u64], right: &[u64]) -> bool {
        let last = self.groups.saturating_sub(1);
        let fits =
            |words: &[u64], stride: usize, lines: usize| last * stride + self.terms * lines * GROUP <= words.len();
        fits(left, self.strides[0], LEFT) && fits(right, self.strides[1], RIGHT)
    }
}
