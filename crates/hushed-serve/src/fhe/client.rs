//! The client: keys, texts and replies in files ([`texts`]), or left with a server and fetched from it ([`remote`]).

mod aside;
mod keygen;
mod link;
mod outbox;
mod remote;
mod score;
mod texts;

pub use keygen::{KeyOrder, KeygenOptions, keygen};
pub use remote::{OnEvent, Remote, RemoteEvent, RemoteOptions};
pub use score::{Chosen, Item, Scored, Wanted, check_items, perplexity};
pub use texts::{
    Answer, CanaryOutcome, EncryptOptions, Encrypted, Head, Likely, Warning, decrypt, encrypt,
};
