//! `hushed next`: the likeliest next token of each of a batch of private texts, under encryption.

use hushed_serve::fhe::Wanted;

use super::decrypt::{Next, View};
use super::embed::{BatchArgs, Sent};
use crate::connect::ConnectArgs;
use crate::error::CliError;
use crate::input::{Asked, Truncate};
use crate::output::Output;

/// Show what comes next in private texts, with a decoder that sees neither texts nor tokens
#[derive(clap::Args)]
#[command(
    after_help = "All texts are one encrypted batch, which the server (`hushed serve --protocol fhe` with a decoder) runs alone, \
for minutes to hours: keys, manifest and pending texts are as for `hushed embed --protocol fhe`. The reply is \
the hidden state of each text's last row; the likeliest tokens and their probabilities are made of it here, with \
the public table of token vectors.

One run gives one token. What follows it takes another text, and a text that holds a token from a reply must not \
be sent: it would tell the server something about the key (docs/ensi.md).

Examples:
  hushed next --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --make-keys \"Once upon a\"
  hushed next --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --input prompts.txt --top 10 --json
  hushed next --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --job 6e34a1c0"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    #[command(flatten)]
    texts: Asked,

    #[command(flatten)]
    too_long: Truncate,

    #[command(flatten)]
    batch: BatchArgs,

    #[command(flatten)]
    next: Next,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        let config = self.connect.of_batch()?;
        let texts = match self.texts.job {
            Some(_) => Vec::new(),
            None => self.texts.read(out)?,
        };
        let sent = match &self.texts.job {
            Some(id) => Sent::Job(id),
            None => Sent::Texts(&texts),
        };
        let asked = (self.too_long.choice(), Some(Wanted::Next));
        (self.batch).run(out, config, &sent, asked, &View::Next(&self.next))
    }
}
