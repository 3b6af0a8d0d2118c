//! Frames, channels and sessions with byte and round counters.
