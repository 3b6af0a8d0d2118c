//! `hushed search`: search the server's documents with a private query.

use hushed_model::counted;
use hushed_serve::{Options, Record, Wanted};
use serde_json::json;

use crate::connect::{ConnectArgs, at_least_one};
use crate::error::CliError;
use crate::input::{Query, Truncate};
use crate::output::{Output, one_line};
use crate::passes::progress;

/// Search a server's documents with a private query: the server sees neither the query nor what was found
#[derive(clap::Args)]
#[command(
    after_help = "The server's operator has made an index of documents (`hushed index`) and serves it with --index.

The server learns how many tokens the query has (with --bucket N rounded up to a multiple of N), how many \
documents are asked for and whether their texts and scores are. This client learns the places of the nearest \
documents, in order, and their texts; how near they are only with --scores, where the operator allows it (`serve \
--search-scores`). Each place counts as a text of this client at the server, and so do each text that is fetched \
and each score.

Examples:
  hushed search --server 127.0.0.1:7450 --pin 9f86d0… --input -
  hushed search --server 127.0.0.1:7450 --pin 9f86d0… --input query.txt --bucket 32
  hushed search --server 127.0.0.1:7450 --pin 9f86d0… --input query.txt --top 10 --places --json"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    query: Query,

    /// Number of documents to find, at most 100
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=100), env = "HUSHED_TOP")]
    top: u16,

    /// Find only places, without the documents' texts
    #[arg(long)]
    places: bool,

    /// Also get the cosine of each document, rounded to 2^-12, if the server's operator allows it
    #[arg(long)]
    scores: bool,

    #[command(flatten)]
    too_long: Truncate,

    /// Pad the query to a multiple of N tokens: the server learns only the padded length
    #[arg(long, value_name = "N", value_parser = at_least_one, env = "HUSHED_BUCKET")]
    bucket: Option<usize>,

    /// Look up token vectors in the model's table, if the server's operator has made it public; fetched once and kept
    #[arg(long, env = "HUSHED_PUBLIC_TABLE")]
    public_table: bool,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let query = self.query.read(out)?;
        let options = Options { bucket: self.bucket, public_table: self.public_table, ..self.too_long.choice().into() };
        let (mut client, wanted) = self.connect.client(out, false, |offer| {
            let records = !self.places && offer.has_records();
            let wanted = Wanted { top: self.top.into(), records, scores: self.scores };
            offer.query(query.trim_end(), wanted, &options)?;
            Ok(wanted)
        })?;
        let setup = client.setup().time.as_secs_f64();
        let documents = client.documents();
        out.note(&format!(
            "connected to {}, set up in {setup:.1} s; it has {}",
            self.connect.server(),
            counted(documents, "document"),
        ));
        let (bar, advance) = progress(out, &client, 1, "searching");
        let found = client.search(query.trim_end(), wanted, &options, Some(advance))?;
        bar.finish_and_clear();
        let stats = client.close()?;
        for (rank, hit) in found.hits.iter().enumerate() {
            let (rank, place) = (rank + 1, hit.place);
            let record = hit.record.as_deref().map(Record::parse).unwrap_or_default();
            let mut object = json!({ "rank": rank, "place": place, "text": hit.record.as_ref().map(|_| &record.text) });
            if let Some(metadata) = &record.metadata {
                object["metadata"] = metadata.clone();
            }
            let mut name = format!("document {place}");
            if let Some(id) = &record.id {
                object["id"] = json!(id);
                name = one_line(id);
            }
            let mut score = String::new();
            if let Some(cosine) = hit.score {
                object["score"] = json!(cosine);
                score = format!("{cosine:.4}  ");
            }
            let text = one_line(&record.text);
            out.result(object, || format!("{rank}. {score}{name}  {text}"))?;
        }
        let seconds = found.cost.time.as_secs_f64();
        out.summary(
            json!({
                "found": found.hits.len(),
                "documents": documents,
                "tokens": found.tokens,
                "padded_tokens": found.rows,
                "seconds": seconds,
                "setup_seconds": setup,
                "bytes_up": stats.bytes_sent,
                "bytes_down": stats.bytes_received,
                "wire_bytes_up": stats.wire_bytes_sent,
                "wire_bytes_down": stats.wire_bytes_received,
                "rounds": stats.rounds,
            }),
            &format!(
                "{} of {} in {seconds:.2} s after {setup:.2} s of set-up; {:.1} MB up, {:.1} MB down, {}; \
                 the server learned {}, how many documents were asked for and that their texts were {}",
                found.hits.len(),
                counted(documents, "document"),
                stats.bytes_sent as f64 / 1e6,
                stats.bytes_received as f64 / 1e6,
                counted(stats.rounds, "round"),
                counted(found.rows, "token"),
                if wanted.records { "fetched" } else { "not fetched" },
            ),
        )
    }
}
