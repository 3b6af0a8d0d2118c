//! `hushed generate`: a private text continued by a server that sees neither the text nor its continuation.

use std::path::PathBuf;

use hushed_model::counted;
use hushed_mpc::Answers;
use hushed_serve::{Finish, GenerateOptions, Generated, MAX_DRAFTS, Penalties, Prompt, Protocol, read_prefix};
use serde_json::json;

use crate::connect::{ConnectArgs, at_least_one};
use crate::error::CliError;
use crate::input::{Asking, Said};
use crate::output::Output;

/// Continue a private text with a server that sees neither the text nor its continuation
#[derive(clap::Args)]
#[command(
    after_help = "The server prints the SHA-256 of its certificate when it starts: pass it with --pin, or the file of an authority \
with --ca.

Each token is one pass through the model (several with --draft), and its id is opened to this client alone. The \
server learns how many tokens the prompt has, how many passes there are and when. So it also learns where the \
text ends, if that is before --max-tokens. With --bucket N it learns the prompt's length rounded up to a \
multiple of N. With --pad-output all passes are run before anything is shown, and it does not learn where the \
text ends. Each token counts as a text of this client (see `hushed serve --max-texts-per-client`), so that a \
refusal can come in the middle of an answer; with --draft each draft counts too, right or wrong. Where the \
server has `--answers top:K`, --json gives the ids of the K likeliest tokens of each pass as \"top\", and each \
of them counts.

With --chat or --messages the model's chat template, which comes with its public part, makes a text of the \
conversation on this machine. The server learns the number of its tokens, as of any prompt. A message that holds \
one of the model's special tokens is refused.

With --temperature the server draws each token by noise that it adds to its own share: nobody sees the other \
tokens' probabilities. The same --seed, --temperature and --bucket give the same text again, as long as the \
server runs.

--logit-bias and the penalties are those of OpenAI's API. They are added to the logits on this side: the server \
learns nothing of them.

Examples:
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… \"Once upon a time\" --max-tokens 20
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… \"def main(\" --temperature 0.8 --seed 7 \\
    --stop \"\\n\\n\"
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… \"To do:\" --frequency-penalty 0.5 \\
    --logit-bias 198=-100
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… --input letter.txt
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… --chat \"Is this a scam?\" \\
    --system \"Answer yes or no.\"
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… --messages conversation.json
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… \\
    --public-prefix system.txt \"Which clause covers this?\"
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… \"Dear\" --max-tokens 100 --ahead 32
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… --input form.txt --max-tokens 100 \\
    --ahead 32 --draft 3
  hushed generate --server 127.0.0.1:7450 --pin 9f86d0… \"Dear\" --max-tokens 16 --pad-output --json"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    /// The protocol; `fhe` is refused, as what follows from a decrypted token would go back to the server
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    protocol: Protocol,

    #[command(flatten)]
    said: Said,

    /// Maximum number of tokens to generate
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = at_least_one, env = "HUSHED_MAX_NEW_TOKENS")]
    max_tokens: usize,

    /// Pad the prompt to a multiple of N tokens: the server learns only the padded length
    #[arg(long, value_name = "N", value_parser = at_least_one, env = "HUSHED_BUCKET")]
    bucket: Option<usize>,

    /// How freely tokens are drawn, from 0 (always the likeliest) to 2
    #[arg(long, value_name = "T", default_value_t = 0.0, env = "HUSHED_TEMPERATURE")]
    temperature: f64,

    /// Seed of the draws; with the same seed the same tokens are drawn [default: a fresh one, which is printed]
    #[arg(long, value_name = "S", env = "HUSHED_SEED")]
    seed: Option<u64>,

    /// Subtract this, from -2 to 2, from the logits of tokens that the answer already has
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    presence_penalty: f64,

    /// Subtract this, from -2 to 2, from the logit of a token each time that the answer has it
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    frequency_penalty: f64,

    /// Add B, from -100 to 100, to the logit of the token with this id; may be given more than once
    #[arg(long, value_name = "ID=B", value_parser = bias)]
    logit_bias: Vec<(u32, f64)>,

    /// End before this text (\n is a new line); may be given more than once
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Run --max-tokens passes even if the text ends earlier
    #[arg(long, env = "HUSHED_PAD_OUTPUT")]
    pad_output: bool,

    /// A file with the public prefix that the server must have (`serve --public-prefix`); without it the client accepts
    /// what the server has and prints its length and hash
    #[arg(long, value_name = "FILE", env = "HUSHED_PUBLIC_PREFIX")]
    public_prefix: Option<PathBuf>,

    /// Put the token that begins a text before the prompt, as a chat template or tokenizer does where there is one
    #[arg(long, env = "HUSHED_BEGIN")]
    begin: bool,

    /// Precompute the products with weights and tables for N later tokens at a time, so that each token costs less
    /// when it comes (needs a server with `--max-ahead`; see `hushed plan --ahead`). The server sees for how many
    /// tokens, and whether the text is padded and the table public
    #[arg(long, value_name = "N", default_value_t = 0, env = "HUSHED_AHEAD")]
    ahead: u16,

    /// Guess the next N tokens from what followed the last ones where they occurred before, and have them verified in
    /// one pass (needs a server with `--max-drafts`). The text is the same, in fewer passes if guesses are right; the
    /// server sees how many there are and how many are right. `hushed plan --draft` says when it pays
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=i64::from(MAX_DRAFTS)), env = "HUSHED_DRAFT")]
    draft: u16,

    /// Look up token vectors in the model's table, if the server's operator has made it public; fetched once and kept
    #[arg(long, env = "HUSHED_PUBLIC_TABLE")]
    public_table: bool,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if self.protocol == Protocol::Fhe {
            return Err(CliError::NoGeneration);
        }
        let options = self.options()?;
        let said = self.said.read(out)?;
        let (mut client, prompt) = self.connect.client(out, matches!(said, Asking::Chat(_)), |offer| {
            let prompt = match &said {
                Asking::Text(text) => Prompt::text(text),
                Asking::Chat(messages) => offer.render(messages)?,
            };
            offer.check_prompt(&prompt, &options)?;
            Ok(prompt)
        })?;
        let setup = client.setup().time.as_secs_f64();
        out.note(&format!(
            "connected to {}, set up in {setup:.1} s; its model is {}",
            self.connect.server(),
            client.bundle_hash()
        ));
        let answers = client.answers();
        if answers != Answers::Label {
            out.note(&format!("the server opens {answers} of each token, and counts each as a text"));
        }
        if let Some(prefix) = client.public_prefix() {
            out.note(&format!(
                "the server puts a public prefix before the text: {}, sha256 {}",
                counted(prefix.tokens, "token"),
                prefix.text
            ));
        }
        let public_head = client.public_head().is_some();
        if self.ahead > 0 {
            out.note("products of later tokens are made before the first one");
        }
        let mut generation = client.generate_prompt(&prompt, &options)?;
        let (prompt_tokens, rows) = (generation.tokens(), generation.rows());
        let prefix = generation.prefix_tokens();
        if prefix > 0 && public_head {
            out.note(&format!(
                "the first {} of the text are public: the server runs them in the clear",
                counted(prefix, "token")
            ));
        }
        let seed = generation.seed();
        let (mut seconds, mut text, mut finish) = (Vec::new(), String::new(), Finish::Length);
        let mut written = Ok(());
        for token in generation.by_ref() {
            let token: Generated = token?;
            seconds.push(token.cost.time.as_secs_f64());
            finish = token.last.unwrap_or(finish);
            text.push_str(&token.text);
            written = show(out, seconds.len(), &token);
            if written.is_err() {
                // Nobody is reading, so the other tokens would be wasted.
                break;
            }
        }
        let (made, drafted) = (generation.made_ahead(), generation.drafted());
        let ended = generation.end();
        if written.is_ok() && !out.is_json() {
            written = out.piece("\n");
        }
        let stats = client.close();
        written?;
        ended?;
        let stats = stats?;
        let first = seconds.first().copied().unwrap_or(0.0);
        let later: f64 = seconds.iter().skip(1).sum();
        let each = later / seconds.len().saturating_sub(1).max(1) as f64;
        let finish = match finish {
            Finish::End => "end",
            Finish::Stop => "stop",
            Finish::Length => "length",
        };
        out.summary(
            json!({
                "text": text,
                "finish": finish,
                "prefix_tokens": prefix,
                "prompt_tokens": prompt_tokens,
                "padded_prompt_tokens": rows,
                "tokens": seconds.len(),
                "seed": (self.temperature > 0.0).then_some(seed),
                "setup_seconds": setup,
                "first_token_seconds": first,
                "seconds_a_token": each,
                "ahead": (self.ahead > 0).then(|| json!({
                    "tokens": made.passes,
                    "seconds": made.cost.time.as_secs_f64(),
                    "bytes_up": made.cost.stats.bytes_sent,
                    "bytes_down": made.cost.stats.bytes_received,
                })),
                "draft": (self.draft > 0).then(|| json!({
                    "passes": drafted.passes,
                    "drafts": drafted.drafts,
                    "right": drafted.right,
                })),
                "bytes_up": stats.bytes_sent,
                "bytes_down": stats.bytes_received,
                "wire_bytes_up": stats.wire_bytes_sent,
                "wire_bytes_down": stats.wire_bytes_received,
                "rounds": stats.rounds,
            }),
            &format!(
                "{prompt_tokens} + {} after {setup:.2} s of set-up: the first in {first:.2} s, then {each:.2} s each; \
                 {:.1} MB up, {:.1} MB down, {}{}{}{}; the server learned {rows} and the number of passes, and their times",
                counted(seconds.len(), "token"),
                stats.bytes_sent as f64 / 1e6,
                stats.bytes_received as f64 / 1e6,
                counted(stats.rounds, "round"),
                match self.temperature > 0.0 {
                    true => format!("; seed {seed}"),
                    false => String::new(),
                },
                match made.passes {
                    0 => String::new(),
                    tokens => format!(
                        "; of these {:.1} MB and {:.2} s more made products of {} ahead",
                        (made.cost.stats.bytes_sent + made.cost.stats.bytes_received) as f64 / 1e6,
                        made.cost.time.as_secs_f64(),
                        counted(tokens, "token")
                    ),
                },
                match self.draft {
                    0 => String::new(),
                    _ => format!(
                        "; {}, {} of {} right, which the server saw",
                        counted(drafted.passes, "pass"),
                        drafted.right,
                        counted(drafted.drafts, "draft")
                    ),
                },
            ),
        )
    }

    /// How to continue; numbers out of range are refused before anything is read or sent.
    fn options(&self) -> Result<GenerateOptions, CliError> {
        let public_prefix = self.public_prefix.as_deref().map(read_prefix).transpose()?;
        let stop = self.stop.iter().map(|s| s.replace("\\n", "\n"));
        let options = GenerateOptions {
            max_tokens: self.max_tokens,
            bucket: self.bucket,
            temperature: self.temperature,
            seed: self.seed,
            penalties: Penalties {
                presence: self.presence_penalty,
                frequency: self.frequency_penalty,
                logit_bias: self.logit_bias.iter().copied().collect(),
            },
            stop: stop.collect(),
            pad_output: self.pad_output,
            public_prefix,
            begin: self.begin,
            ahead: self.ahead,
            draft: self.draft,
            public_table: self.public_table,
        };
        options.check()?;
        Ok(options)
    }
}

/// Parses the id of a token and the bias of its logit.
fn bias(text: &str) -> Result<(u32, f64), String> {
    let parts = text.split_once('=');
    let read = parts.and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    read.ok_or_else(|| "the id of a token and a number are expected, like 198=-100".to_owned())
}

/// Shows a token as it comes: one object per line, or the text itself.
fn show(out: &Output, index: usize, token: &Generated) -> Result<(), CliError> {
    match out.is_json() {
        true => out.result(
            json!({
                "token": index,
                "id": token.id,
                "top": (token.top.len() > 1).then_some(&token.top),
                "text": token.text,
                "seconds": token.cost.time.as_secs_f64(),
                "bytes_up": token.cost.stats.bytes_sent,
                "bytes_down": token.cost.stats.bytes_received,
                "rounds": token.cost.stats.rounds,
            }),
            String::new,
        ),
        false => out.piece(&token.text),
    }
}
