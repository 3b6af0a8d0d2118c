//! `hushed score`: how likely private texts are, or endings of a prompt, under encryption.

use hushed_model::TooLong;
use hushed_serve::fhe::Wanted;

use super::decrypt::View;
use super::embed::{BatchArgs, Sent};
use crate::connect::ConnectArgs;
use crate::error::CliError;
use crate::input::Scorable;
use crate::output::Output;

/// Show how likely private texts are, or which ending of a prompt is the likeliest, with a decoder that sees none of it
#[derive(clap::Args)]
#[command(
    after_help = "All texts are one encrypted batch, which the server (`hushed serve --protocol fhe` with a decoder) runs alone, \
for minutes to hours: keys, manifest and pending texts are as for `hushed embed --protocol fhe`. The server's \
manifest must answer with all rows (`hushed plan --answer rows`): then the reply is the hidden state of every \
token, and the likelihoods of the texts' own tokens are made of it here.

With --choices the texts are each prompt with each of its endings. The endings of an item must share its \
prompt's tokens: end the prompt, and begin the endings, where a word ends. With labels the accuracy is shown. \
--job fetches the answers to what was sent before; the same texts or items have to be given, as they are not in \
the reply.

Examples:
  hushed score --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --make-keys --input texts.txt
  hushed score --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --choices items.jsonl --json
  hushed score --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --choices items.jsonl \\
    --job 6e34a1c0"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    texts: Scorable,

    /// Fetch the answers to a batch that was sent before, by the id of its job or at least its first eight digits
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    #[command(flatten)]
    batch: BatchArgs,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let config = self.connect.of_batch()?;
        let given = self.texts.read()?;
        let sent = match &self.job {
            Some(id) => Sent::Job(id),
            None => Sent::of(&given),
        };
        let asked = (TooLong::Refuse, Some(Wanted::Likelihoods));
        (self.batch).run(out, config, &sent, asked, &View::of(&given))
    }
}
