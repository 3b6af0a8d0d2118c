//! Error categories, which determine exit codes.

/// The category of an error: stable, and mapped to exit codes (docs/errors.md).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Category {
    /// A text.
    Input,
    /// The model folder.
    Folder,
    /// Network or peer.
    Network,
    /// Client and server do not match.
    Mismatch,
    /// The server refused.
    Refused,
    /// Files and other resources of this machine.
    Local,
    /// Arguments.
    Usage,
    /// A defect of this program.
    Defect,
}

impl Category {
    /// The exit code of a command that ends with this category of error.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Usage => 2,
            Self::Input => 3,
            Self::Folder => 4,
            Self::Network => 5,
            Self::Mismatch => 6,
            Self::Refused => 7,
            Self::Local => 8,
            Self::Defect => 70,
        }
    }
}
