//! Frames, channels and sessions between the two parties, with byte and round counters.
//!
//! * [`frame`]: the bytes of one frame and their total decoder.
//! * [`channel`]: carriers of frames: memory, TCP, TLS 1.3; each can be shaped to a bandwidth and a latency.
//! * [`session`]: the protocols' interface: typed frames in lock-step, counted, with a running transcript hash.
//!
//! Nothing here looks inside a payload, and there is no cryptography of our own: TLS is `rustls`.
#![forbid(unsafe_code)]

pub mod channel;
pub mod error;
pub mod frame;
#[doc(hidden)]
pub mod fuzz;
mod party;
mod process;
pub mod session;
pub mod stats;

pub use channel::shaped::Shape;
pub use channel::tcp::Listener;
pub use channel::tls::{Identity, TlsClient, TlsFault, TlsServer, Trust, Validity};
pub use channel::{Channel, Limits, StreamChannel};
pub use error::{NetError, PeerFault};
pub use party::{Kind, Party};
pub use session::{Expect, Session, memory_pair};
pub use stats::Stats;
