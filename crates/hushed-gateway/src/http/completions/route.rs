//! The two routes that continue a text.

/// The route, which determines the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}
