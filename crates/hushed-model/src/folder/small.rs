//! Files of a folder that are read in full.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::error::Problem;

/// Reads a whole file of bounded size; `Ok(None)` if there is none.
pub(crate) fn read_small(path: &Path, name: &str, limit: u64) -> Result<Option<Vec<u8>>, Problem> {
    let unreadable = |source| Problem::Unreadable { file: name.to_owned(), source };
    let metadata = match path.metadata() {
        Ok(metadata) => metadata,
        Err(e) if matches!(e.kind(), std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory) => {
            return match link(path) {
                Some(target) => Err(Problem::BrokenLink { file: name.to_owned(), target }),
                None => Ok(None),
            };
        }
        Err(e) => return Err(unreadable(e)),
    };
    if !metadata.is_file() {
        // A named pipe would block forever.
        return Err(unreadable(std::io::Error::other("not a regular file")));
    }
    let too_large = |bytes| Problem::TooLarge { file: name.to_owned(), bytes, limit };
    if metadata.len() > limit {
        return Err(too_large(metadata.len()));
    }
    let mut bytes = Vec::new();
    File::open(path).and_then(|f| f.take(limit + 1).read_to_end(&mut bytes)).map_err(unreadable)?;
    if bytes.len() as u64 > limit {
        return Err(too_large(bytes.len() as u64)); // it grew
    }
    Ok(Some(bytes))
}

/// Where a symbolic link leads, if a path is one that leads nowhere.
pub(crate) fn link(path: &Path) -> Option<String> {
    let target = path.read_link().ok()?;
    (!path.exists()).then(|| target.display().to_string())
}
