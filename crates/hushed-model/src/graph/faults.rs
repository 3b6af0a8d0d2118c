//! What can be wrong with a node of a graph, and the limits of one.

/// The file's name in a folder.
pub const GRAPH: &str = "graph.json";
/// Most nodes, inputs counted.
pub const MAX_NODES: usize = 4096;
/// Most numbers in a value, in a tensor, and in the patches of a convolution, which are all in memory at once.
pub const MAX_ELEMENTS: usize = 1 << 26;

/// A name as a report shows it.
pub fn short(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(60).collect()
}

/// One reason why a node cannot be used. It is shown after the node's name.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NodeFault {
    /// No such operation.
    #[error("the operation {op} is unknown{instead}; known: {known}")]
    UnknownOp {
        /// Its name, shortened.
        op: String,
        /// What to use in its place, as `: use …`; empty if nothing is known.
        instead: &'static str,
        /// The known ones, as a list.
        known: String,
    },
    /// A name that is empty, too long, or has control characters.
    #[error("its name is empty, longer than {limit} bytes, or has control characters")]
    BadName {
        /// Most bytes of a name.
        limit: usize,
    },
    /// Two nodes or inputs have the name.
    #[error("two nodes or inputs have this name")]
    DuplicateName,
    /// An entry of the list is not an object with these fields.
    #[error("`{field}` should be {expected}")]
    Field {
        /// The field.
        field: &'static str,
        /// Such as `a list of names`.
        expected: &'static str,
    },
    /// A field that nothing reads.
    #[error("the field `{field}` is unknown; known: name, op, inputs, weights, attributes")]
    UnknownField {
        /// Its name, shortened.
        field: String,
    },
    /// An attribute is missing, or has another type or value than it should have.
    #[error("the attribute `{attribute}` should be {expected}")]
    Attribute {
        /// Its name.
        attribute: &'static str,
        /// Such as `a whole number from 1 to 65536`.
        expected: String,
    },
    /// An attribute that the operation does not have.
    #[error("the attribute `{attribute}` is unknown for this operation")]
    UnknownAttribute {
        /// Its name, shortened.
        attribute: String,
    },
    /// Another number of operands.
    #[error("it reads {found} values, and the operation takes {expected}")]
    Operands {
        /// How many it names.
        found: usize,
        /// How many it should name.
        expected: usize,
    },
    /// It reads a value that does not exist.
    #[error("it reads {name:?}, and no node or input has this name")]
    NoSuchValue {
        /// The name, shortened.
        name: String,
    },
    /// It reads its own value, directly or through others, or lies between two such nodes.
    #[error("it is part of a cycle, or between two")]
    Cycle,
    /// Nothing reads its value, and it is no output.
    #[error("nothing reads it, and it is no output: leave it out")]
    Unused,
    /// The value that it reads has another shape.
    #[error("it reads a value of shape {found:?}, and takes {expected}")]
    Shape {
        /// The actual shape.
        found: Vec<usize>,
        /// Such as `[…, 64]`.
        expected: String,
    },
    /// Two values that have to be of one shape are not.
    #[error("it reads values of the shapes {first:?} and {second:?}, which have to be equal")]
    OtherShapes {
        /// Of the first operand.
        first: Vec<usize>,
        /// Of the second.
        second: Vec<usize>,
    },
    /// Two values that are put together have other sizes in a dimension that has to be equal.
    #[error("it reads values of the shapes {first:?} and {second:?}, which have to be equal but in its dimension")]
    NotJoined {
        /// Of the first operand.
        first: Vec<usize>,
        /// Of the one that does not fit.
        second: Vec<usize>,
    },
    /// The declared shape of an output is not that of its value.
    #[error("the output is declared with the shape {declared:?}, and has the shape {found:?}")]
    OutputShape {
        /// In the list of outputs.
        declared: Vec<usize>,
        /// What the operations give.
        found: Vec<usize>,
    },
    /// It takes too much memory.
    #[error("it computes with {elements} numbers at once; at most {limit} are accepted")]
    TooLarge {
        /// Numbers of its value, of a tensor, or of the patches that a convolution makes.
        elements: usize,
        /// The limit.
        limit: usize,
    },
}
