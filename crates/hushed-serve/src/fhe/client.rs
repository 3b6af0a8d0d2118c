//! The client: keys, texts, inputs of networks ([`network`]) and replies in files ([`texts`]), in memory ([`memory`]),
//! or sent to a server and fetched from it ([`remote`]).

mod aside;
mod held;
mod keygen;
mod keyring;
mod link;
mod memory;
mod model;
mod network;
mod opening;
mod outbox;
mod remote;
mod score;
mod texts;
mod warning;

pub use keygen::{KeyOrder, KeygenOptions, keygen};
pub use memory::{MemoryKeys, SaveState, StoredParts};
pub use model::ClientModel;
pub use network::{EncryptedInputs, NetworkAnswer, decrypt_outputs, encrypt_inputs, network_client};
pub use remote::{OnEvent, Remote, RemoteEvent, RemoteOptions};
pub use score::{
    Chosen, Item, Scored, Wanted, check_items, chosen_in_clear, perplexity, scored_in_clear, scored_in_clear_rounded,
    tokens_scored_in_clear,
};
pub use texts::{Answer, CanaryOutcome, EncryptOptions, Encrypted, Head, Likely, Texts, decrypt, encrypt};
pub use warning::Warning;
