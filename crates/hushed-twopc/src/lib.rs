//! Shares modulo a power of two and the two-party protocols over them.
