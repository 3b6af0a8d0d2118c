//! `hushed rerank`: private documents in the order of their scores for a private query.

use std::path::PathBuf;

use serde_json::json;

use crate::connect::{ConnectArgs, at_least_one};
use crate::error::CliError;
use crate::input::{PairQuery, read_lines};
use crate::output::{Output, one_line};
use crate::passes::{PassArgs, Sum, progress};

/// Sort private documents by their scores for a private query, with a server that sees neither
#[derive(clap::Args)]
#[command(
    after_help = "The server has a cross-encoder: a classifier of pairs of texts with a head of one number. This client pairs the \
query with every document, runs all pairs in one session, and opens one score of each, to itself alone. The \
documents are this client's: to search a server's documents, see `hushed search`.

The server learns how many documents there are and when, and how many tokens each has together with the query \
(with --bucket N rounded up to a multiple of N); not where the query ends and the document begins.

Examples:
  hushed rerank --server 127.0.0.1:7450 --pin 9f86d0… --query-file - --input documents.txt
  hushed rerank --server 127.0.0.1:7450 --pin 9f86d0… --query-file query.txt --input documents.txt \\
    --bucket 32 --batch 8 --top 3 --json
  hushed rerank --server 127.0.0.1:7450 --pin 9f86d0… --query \"notice period\" --input documents.txt"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    query: PairQuery,

    /// A file with one document per line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: PathBuf,

    /// Show only the K documents with the largest scores
    #[arg(long, value_name = "K", value_parser = at_least_one, env = "HUSHED_TOP")]
    top: Option<usize>,

    #[command(flatten)]
    passes: PassArgs,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let query = self.query.read(out, Some(&self.input))?.ok_or(CliError::NoQuery)?;
        let documents = read_lines(&self.input)?;
        let pairs: Vec<[&str; 2]> = documents.iter().map(|document| [query.as_str(), document.as_str()]).collect();
        let options = self.passes.options();
        let (mut client, _) = self.connect.client(out, false, |offer| Ok(offer.pairs_to_score(&pairs, &options)?))?;
        let setup = client.setup().time.as_secs_f64();
        out.note(&format!(
            "connected to {}, set up in {setup:.1} s; its model is {}",
            self.connect.server(),
            client.bundle_hash()
        ));
        let (bar, advance) = progress(out, &client, pairs.len(), "scoring");
        let scores = client.scores(&pairs, options, Some(advance))?;
        bar.finish_and_clear();
        let mut sum = Sum::default();
        sum.add_all(&scores);
        sum.made = client.made_ahead();
        let stats = client.close()?;
        let mut order: Vec<_> = scores.iter().enumerate().collect();
        // Equal scores stay in the file's order.
        order.sort_by(|a, b| b.1.values.value.total_cmp(&a.1.values.value));
        order.truncate(self.top.unwrap_or(usize::MAX));
        for (rank, (place, score)) in order.into_iter().enumerate() {
            let rank = rank + 1;
            let document = documents.get(place).map_or("", String::as_str);
            let object = json!({
                "rank": rank,
                "document_index": place,
                "score": score.values.value,
                "logit": score.values.logit,
                "tokens": score.tokens,
                "padded_tokens": score.rows,
                "text": document,
            });
            out.result(object, || {
                format!("{rank}. {:.4}  document {place}  {}", score.values.value, one_line(document))
            })?;
        }
        out.summary(sum.json(setup, &stats), &sum.words(setup, &stats, ("pair", "token")))
    }
}
