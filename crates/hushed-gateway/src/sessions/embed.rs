//! A worker that embeds waiting texts and runs searches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hushed_model::Task;
use hushed_serve::{Client, Options, ServeError, TooLong};
use zeroize::Zeroizing;

use super::failure::Failure;
use super::ledger::Seen;
use super::search;
use super::session::{IDLE, Kept};
use super::shared::{How, Shared};
use super::texts::{Answer, Next, Pass, Reading, Texts};

/// Runs passes until the queue is closed.
pub fn work(texts: &Texts, shared: &Arc<Shared>, mut kept: Kept) {
    loop {
        match texts.next(IDLE) {
            Next::Closed => return kept.close(),
            Next::Idle => kept.close(),
            Next::Search(id, job) => {
                let run = || search::run(&mut kept, shared, &job);
                let found = catch_unwind(AssertUnwindSafe(run));
                let found = found.unwrap_or_else(|_| Err(Failure::defect()));
                texts.ended(id);
                let failed = found.is_err();
                // A client that has gone needs no answer.
                let _ = job.answer.send(found);
                if failed {
                    kept.stay_away(|failure| texts.fail(failure));
                }
            }
            Next::Pass(pass) => {
                // Waiting clients must be told, whatever happens.
                let given = catch_unwind(AssertUnwindSafe(|| run(&mut kept, shared, &pass)));
                let given = given.unwrap_or_else(|_| Err(Failure::defect()));
                let failed = given.is_err();
                texts.finish(&pass, given);
                if failed {
                    kept.stay_away(|failure| texts.fail(failure));
                }
            }
        }
    }
}

fn run(kept: &mut Kept, shared: &Shared, pass: &Pass) -> Result<Vec<Answer>, Failure> {
    let options = options(&shared.how, pass.texts.len());
    kept.run(pass.texts.len(), pass.seen.clone(), |client, _| embed(client, shared, pass, options))
}

fn embed(client: &mut Client, shared: &Shared, pass: &Pass, options: Options) -> Result<Vec<Answer>, ServeError> {
    let mut ids = Vec::with_capacity(pass.texts.len());
    for (Reading { text, second }, too_long) in &pass.texts {
        let options = Options { too_long: *too_long, ..options };
        ids.extend(match second {
            None => client.tokens(&[text.as_str()], &options)?,
            Some(second) => client.pair_tokens(&[[text.as_str(), second.as_str()]], &options)?,
        });
    }
    let charge = client.charge();
    let mut answers = Vec::with_capacity(ids.len());
    let narrow = |values: Vec<f64>| {
        let values = Zeroizing::new(values);
        Zeroizing::new(values.iter().map(|&x| x as f32).collect())
    };
    let mut add = |answered: &hushed_serve::Pass, answer| {
        if answers.len() == answered.first {
            let cost = &answered.cost;
            let (from, texts) = (answers.len(), answered.texts);
            let rows = pass.seen.rows.iter().skip(from).take(texts).copied().collect();
            let callers = pass.seen.callers.iter().skip(from).take(texts).copied().collect();
            shared.ledger.pass(Seen { rows, callers }, texts * charge, cost);
            if answered.texts == pass.texts.len() {
                shared.pace.pass_took(pass.planned, cost.time);
            }
        }
        answers.push(answer);
    };
    match client.public().task() {
        Task::Classify => client.classify_tokens(&ids, &options, None, |_, answer| {
            let hushed_serve::Class { top: labels, logits } = answer.values;
            let values = narrow(logits.unwrap_or_default());
            add(&answer.pass, Answer { values, labels, tokens: answer.tokens });
        })?,
        _ => client.embed_tokens(&ids, &options, None, |_, answer| {
            let values = narrow(answer.values);
            add(&answer.pass, Answer { values, labels: Vec::new(), tokens: answer.tokens });
        })?,
    }
    Ok(answers)
}

/// A text that is too long was refused earlier, unless its client asked for its beginning.
fn options(how: &How, batch: usize) -> Options {
    Options { too_long: TooLong::Cut, bucket: how.bucket, batch, public_table: how.public_table, ahead: 0 }
}
