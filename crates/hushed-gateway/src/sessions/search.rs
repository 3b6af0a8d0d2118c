//! A waiting search, and how a worker runs it. Nothing is shared between searches, and nothing is kept.

use hushed_serve::{Found, Options, TooLong, Wanted};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::failure::Failure;
use super::ledger::Seen;
use super::session::Kept;
use super::share::Caller;
use super::shared::Shared;

/// A query that the model and the server accept. No `Debug`: it is private.
pub struct Job {
    /// The caller.
    pub caller: Caller,
    /// The query.
    pub query: Zeroizing<String>,
    /// What to do if it is too long.
    pub too_long: TooLong,
    /// Its rows, padding included, as the server will see them.
    pub rows: usize,
    /// How many documents, and whether with their texts and scores.
    pub wanted: Wanted,
    /// Planned seconds.
    pub planned: f64,
    /// Where the answer goes. Dropping the other end leaves the queue.
    pub answer: oneshot::Sender<Result<Found, Failure>>,
}

/// Runs a search, in a session that accepts as many texts as it counts for.
pub fn run(kept: &mut Kept, shared: &Shared, job: &Job) -> Result<Found, Failure> {
    let options = Options { bucket: shared.how.bucket, public_table: shared.how.public_table, ..job.too_long.into() };
    kept.run(job.wanted.charge(), Seen::one(job.rows, job.caller), |client, _| {
        let found = client.search(&job.query, job.wanted, &options, None)?;
        let cost = &found.cost;
        let counted = job.wanted.charge();
        shared.ledger.pass(Seen::one(found.rows, job.caller), counted, cost);
        shared.pace.pass_took(job.planned, cost.time);
        Ok(found)
    })
}
