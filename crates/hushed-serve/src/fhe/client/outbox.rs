//! What a client keeps of a batch in its key folder until the answers have been read: the encrypted texts, and a record
//! to find them by, so that the same texts again are the same job.

use std::fs;
use std::path::{Path, PathBuf};

use hushed_fhe::files::FileError;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::record::{JOBS, VERSION, read, write};
use crate::files::make_folder;

/// Minimum number of digits of an id that identify a job.
const LEAST_DIGITS: usize = 8;

/// An encrypted batch whose answers have not been read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PendingRecord {
    pub(super) version: u32,
    /// The job's id, in hexadecimal.
    pub(super) job: String,
    /// Id of the key set, and name of the request's content, in hexadecimal.
    pub(super) keys: String,
    pub(super) request: String,
    /// SHA-256 of the texts and of whether they may be cut. The folder is private and also holds the secret key.
    pub(super) texts: String,
}

/// The folder of pending batches.
pub(super) struct Outbox {
    folder: PathBuf,
}

impl Outbox {
    /// The outbox of a key folder.
    pub(super) fn of(keys: &Path) -> Outbox {
        Outbox { folder: keys.join(JOBS) }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn make(&self) -> Result<(), ServeError> {
        make_folder(&self.folder)
    }

    /// The draft of a request, before it is a job.
    pub(super) fn draft(&self) -> PathBuf {
        self.folder.join("next.request")
    }

    /// The encrypted texts of a job.
    pub(super) fn request(&self, job: &Digest) -> PathBuf {
        self.folder.join(format!("{job}.request"))
    }

    /// Where the fetched reply of a job goes.
    pub(super) fn reply(&self, job: &Digest) -> PathBuf {
        self.folder.join(format!("{job}.reply"))
    }

    /// The job of these texts, if they were encrypted with these keys and not answered.
    pub(super) fn find(&self, texts: &Digest, keys: &Digest) -> Result<Option<(Digest, PendingRecord)>, ServeError> {
        let (texts, keys) = (texts.to_string(), keys.to_string());
        let all = self.all()?.into_iter();
        let mut fit =
            all.filter(|(job, record)| record.texts == texts && record.keys == keys && self.request(job).is_file());
        Ok(fit.next())
    }

    /// Finds a job by its id, or by a unique prefix of at least eight digits.
    pub(super) fn named(&self, id: &str, keys: &Path) -> Result<Digest, ServeError> {
        let wanted = id.to_ascii_lowercase();
        let all = self.all()?.into_iter();
        let mut found = all.filter(|(_, record)| id.len() >= LEAST_DIGITS && record.job.starts_with(&wanted));
        match (found.next(), found.next()) {
            (Some((job, _)), None) => Ok(job),
            _ => Err(FheJobError::NoSuchJob { id: id.chars().take(64).collect(), path: keys.to_owned() }.into()),
        }
    }

    /// Turns the encrypted draft into a job. Its record comes first: without one, a request would be found by nothing,
    /// and stay for ever; without a request, a record is that of no job, and is replaced when its texts are encrypted.
    pub(super) fn keep(&self, job: &Digest, record: &PendingRecord) -> Result<(), ServeError> {
        write(&self.record(job), record)?;
        let path = self.request(job);
        let moved = fs::rename(self.draft(), &path).map_err(FileError::io("write", &path));
        Ok(moved.map_err(FheJobError::from)?)
    }

    /// Makes the texts of a job unfindable; its request is never sent again, as its reply is about to be decrypted.
    pub(super) fn retire(&self, job: &Digest) -> Result<(), ServeError> {
        renamed(&self.request(job), &self.retired(job))
    }

    /// Makes the texts of a retired job findable again: its reply could not be read, and the secret key was not used.
    pub(super) fn restore(&self, job: &Digest) -> Result<(), ServeError> {
        renamed(&self.retired(job), &self.request(job))
    }

    /// The name of the content of a job's request, if there is such a job.
    pub(super) fn content(&self, job: &Digest) -> Result<Option<String>, ServeError> {
        let path = self.record(job);
        let record = path.is_file().then(|| read::<PendingRecord>(&path));
        Ok(record.transpose()?.map(|record| record.request))
    }

    /// Deletes a retired request.
    pub(super) fn drop_retired(&self, job: &Digest) -> Result<(), ServeError> {
        removed(&self.retired(job))
    }

    /// Deletes a job, its record last, so that an interrupted deletion can be repeated.
    pub(super) fn forget(&self, job: &Digest) -> Result<(), ServeError> {
        let all = [self.request(job), self.retired(job), self.reply(job), self.record(job)];
        all.iter().try_for_each(|path| removed(path))
    }

    fn retired(&self, job: &Digest) -> PathBuf {
        self.folder.join(format!("{job}.opened"))
    }

    fn record(&self, job: &Digest) -> PathBuf {
        self.folder.join(format!("{job}.json"))
    }

    fn all(&self) -> Result<Vec<(Digest, PendingRecord)>, ServeError> {
        let mut all = Vec::new();
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|extension| extension == "json") {
                let record: PendingRecord = read(&path)?;
                if let Ok(job) = record.job.parse() {
                    all.push((job, record));
                }
            }
        }
        Ok(all)
    }
}

impl PendingRecord {
    pub(super) fn new(job: &Digest, keys: &Digest, request: &Digest, texts: &Digest) -> Self {
        Self {
            version: VERSION,
            job: job.to_string(),
            keys: keys.to_string(),
            request: request.to_string(),
            texts: texts.to_string(),
        }
    }
}

/// Renames a file if it is there.
fn renamed(from: &Path, to: &Path) -> Result<(), ServeError> {
    match fs::rename(from, to) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FheJobError::from(FileError::io("write", to)(error)).into())
        }
        _ => Ok(()),
    }
}

/// Deletes a file if it is there.
fn removed(path: &Path) -> Result<(), ServeError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(FheJobError::from(FileError::io("delete", path)(error)).into())
        }
        _ => Ok(()),
    }
}

/// The hash that identifies a batch.
pub(super) fn name_of(texts: &[String], cut: bool) -> Digest {
    let mut hash = Sha256::new().chain_update(b"hushed texts 1");
    hash.update([u8::from(cut)]);
    for text in texts {
        hash.update((text.len() as u64).to_le_bytes());
        hash.update(text);
    }
    Digest(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kill between the two used to leave a request that nothing found and nothing deleted.
    #[test]
    fn l4_a_job_is_recorded_before_its_request_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let outbox = Outbox::of(folder.path());
        outbox.make().unwrap();
        let [job, keys, request, texts] = [1, 2, 3, 4].map(|byte| Digest([byte; 32]));
        let record = PendingRecord::new(&job, &keys, &request, &texts);
        fs::write(outbox.draft(), b"request").unwrap();
        // The record cannot be written.
        let path = outbox.record(&job);
        fs::create_dir(&path).unwrap();
        assert!(outbox.keep(&job, &record).is_err());
        assert!(outbox.draft().is_file() && !outbox.request(&job).exists());
        fs::remove_dir(&path).unwrap();
        // The request cannot be moved: its record finds no job.
        fs::create_dir(outbox.request(&job)).unwrap();
        assert!(outbox.keep(&job, &record).is_err());
        assert!(path.is_file() && outbox.find(&texts, &keys).unwrap().is_none());
        fs::remove_dir(outbox.request(&job)).unwrap();
        outbox.keep(&job, &record).unwrap();
        let found = outbox.find(&texts, &keys).unwrap();
        assert_eq!(found, Some((job, record)));
        assert_eq!(outbox.content(&job).unwrap(), Some(request.to_string()));
        outbox.forget(&job).unwrap();
        assert_eq!(outbox.content(&job).unwrap(), None);
        assert_eq!(fs::read_dir(outbox.folder()).unwrap().count(), 0);
    }
}
