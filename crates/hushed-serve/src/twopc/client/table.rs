//! The client's public table of token vectors: kept in its cache, or fetched.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};

use hushed_model::Embedding;

use super::Client;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;
use crate::session::wire::Refusal;
use crate::twopc::table;
use crate::twopc::wire::Request;

impl Client {
    /// Makes the table ready for the next pass.
    pub(super) fn need_table(&mut self) -> Result<(), ServeError> {
        if self.backend.has_table() {
            return Ok(());
        }
        let refused = ServeError::Refused(Refusal::PrivateTable);
        let hash = self.offer.welcome.table.ok_or(refused)?;
        let refused = ServeError::Refused(Refusal::PrivateTable);
        let e = self.offer.model.embedding().cloned().ok_or(refused)?;
        let kept = self.cache_dir.as_deref().map(|dir| path(dir, hash));
        let known = kept.as_deref().and_then(|path| find(path, &e, hash));
        let bytes = match known {
            Some(bytes) => bytes,
            None => {
                self.ask(&Request::Table)?;
                let session = &mut self.backend.ctx().session;
                let bytes = table::receive(session, &e, hash)?;
                // The session does not need the file; the next one fetches again.
                if let Some(path) = &kept
                    && let Err(error) = keep(path, &bytes)
                {
                    tracing::warn!(%error, "the table could not be kept");
                }
                bytes
            }
        };
        self.backend.set_table(table::decode(&e, &bytes)?);
        Ok(())
    }
}

fn path(dir: &Path, hash: Digest) -> PathBuf {
    dir.join(format!("{hash}.table"))
}

/// The bytes of this hash, if they are there and whole: a damaged file is simply fetched again.
fn find(path: &Path, e: &Embedding, hash: Digest) -> Option<Vec<u8>> {
    let size = 4 * e.table_rows() as u64 * e.width as u64;
    let bytes = files::read(path, size).ok()?;
    (table::of_bytes(e, &bytes) == hash).then_some(bytes)
}

fn keep(path: &Path, bytes: &[u8]) -> Result<(), ServeError> {
    if let Some(dir) = path.parent() {
        super::cache::make(dir)?;
    }
    files::write(path, bytes)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use hushed_model::testing::tiny_folder;

    use super::*;
    use crate::{Category, ClientConfig, Server, ServerConfig, ServerTrust};

    /// A table is long: a client that asks for it again is none of ours, and its session ends.
    #[test]
    fn l2_a_session_has_the_table_once() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let mut config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        config.public_table = true;
        let server = Server::bind(&config).unwrap();
        let pin = ServerTrust::Pin(server.listener().fingerprint().to_string());
        let config = ClientConfig::new(server.listener().local_addr().to_string(), pin);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| server.run(&stop).unwrap());
            let mut client = Client::connect(&config).unwrap();
            client.need_table().unwrap();
            let again = client.ask(&Request::Table).err();
            stop.store(true, Ordering::SeqCst);
            assert_eq!(again.unwrap().category(), Category::Network);
        });
    }
}
