//! `hushed embed`: private texts or images in, embeddings out, with a server that sees neither.

use hushed_model::counted;
use hushed_serve::{Embedding, Protocol};
use serde_json::json;

use super::fhe::embed::FheArgs;
use crate::connect::ConnectArgs;
use crate::error::CliError;
use crate::images;
use crate::input::Asked;
use crate::output::{Output, preview};
use crate::passes::{PassArgs, Sum, progress};

/// Embed private texts or images with a server that sees neither them nor their embeddings
#[derive(clap::Args)]
#[command(
    after_help = "The server prints the SHA-256 of its certificate when it starts: pass it with --pin, or the file of an authority \
with --ca.

The server learns how many tokens each text has, and nothing else about it. With --bucket N it learns that \
number rounded up to a multiple of N, and a text costs as much as one of the padded length. With --batch N up to \
N texts go through the model together, which saves rounds and partly empty ciphertexts; texts of the same padded \
length save most. Of images (PNG or JPEG) it learns how many there are and when: all have the size that its model \
reads, whatever the size of the file.

With --protocol fhe all texts are one encrypted batch, which the server runs alone, for minutes to hours. --keys \
is a folder for the keys, the server's manifest and pending texts; gigabytes of evaluation keys are sent once. \
After Ctrl-C, a lost connection or a restart of the server the same command continues. With --detach it exits \
when the batch is sent, and --job fetches the answers later. What the manifest lets the server learn is printed \
before anything is sent; compare the manifest's hash with the one that the operator published, or pass the \
operator's file with --manifest.

Examples:
  hushed embed --server 127.0.0.1:7450 --pin 9f86d0… --input -
  hushed embed --server 127.0.0.1:7450 --pin 9f86d0… --input texts.txt --bucket 32 --batch 8
  hushed embed --server models.example.org:7450 --ca ca.pem --token-file token --input texts.txt \\
    --json
  hushed embed --server 127.0.0.1:7450 --pin 9f86d0… --image cat.jpg --image dog.png
  hushed embed --protocol fhe --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --make-keys \\
    --input texts.txt
  hushed embed --protocol fhe --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --input texts.txt \\
    --detach
  hushed embed --protocol fhe --server 127.0.0.1:7450 --pin 9f86d0… --keys keys --job 6e34a1c0 \\
    --json"
)]
pub struct Args {
    #[command(flatten)]
    connect: ConnectArgs,

    /// The server's protocol
    #[arg(long, value_enum, default_value = "2pc", env = "HUSHED_PROTOCOL")]
    protocol: Protocol,

    #[command(flatten)]
    texts: Asked,

    #[command(flatten)]
    passes: PassArgs,

    #[command(flatten)]
    fhe: FheArgs,
}

impl Args {
    pub fn run(&self, out: &Output) -> Result<(), CliError> {
        if self.protocol == Protocol::Fhe {
            self.refuse_two_party_options()?;
            let config = self.connect.config()?;
            return self.fhe.run(out, config, &self.texts, self.passes.too_long.choice());
        }
        if let Some(option) = self.texts.job.as_ref().map(|_| "--job") {
            return Err(CliError::OtherProtocol { option });
        }
        self.fhe.refuse()?;
        let files = images::files(&self.texts.image)?;
        let texts = match files.is_empty() {
            true => self.texts.read(out)?,
            false if self.passes.are_of_texts() => return Err(CliError::NotForImages),
            false => Vec::new(),
        };
        let options = self.passes.options();
        // All are decoded or read before the first request.
        let (mut client, (images, ids)) = self.connect.client(out, false, |offer| {
            let images = images::pixels(offer.public(), &files)?;
            let ids = match images.is_empty() {
                true => offer.texts_to_embed(&texts, &options)?,
                false => {
                    offer.images_to_run(&images, options.batch)?;
                    Vec::new()
                }
            };
            Ok((images, ids))
        })?;
        let setup = client.setup();
        out.note(&format!(
            "connected to {}, set up in {:.1} s; its model is {}",
            self.connect.server(),
            setup.time.as_secs_f64(),
            client.bundle_hash()
        ));
        let what = if files.is_empty() { ("text", "token") } else { ("image", "row") };
        let (bar, advance) = progress(out, &client, texts.len() + images.len(), "embedding");
        let mut sum = Sum::default();
        let mut written = Ok(());
        let each = |index, answer: Embedding| {
            sum.add(index, &answer);
            // The session continues to its end even if nobody reads, so that the server does not wait.
            if written.is_ok() {
                written = show(out, index, &answer, what);
            }
        };
        match images.is_empty() {
            true => client.embed_tokens(&ids, &options, Some(advance), each)?,
            false => client.embed_images_each(&images, options.batch, Some(advance), each)?,
        }
        bar.finish_and_clear();
        sum.made = client.made_ahead();
        let stats = client.close()?;
        written?;
        let setup = setup.time.as_secs_f64();
        out.summary(sum.json(setup, &stats), &sum.words(setup, &stats, what))
    }

    /// Refuses options that have no meaning under encryption.
    fn refuse_two_party_options(&self) -> Result<(), CliError> {
        let bundle = self.connect.pins_bundle();
        let given = [
            ("--image", !self.texts.image.is_empty()),
            (bundle.unwrap_or_default(), bundle.is_some()),
            ("--bucket", self.passes.bucket.is_some()),
            ("--batch", self.passes.batch != 1),
            ("--public-table", self.passes.public_table),
            ("--ahead", self.passes.ahead > 0),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(CliError::OtherProtocol { option }),
            None => Ok(()),
        }
    }
}

fn show(out: &Output, index: usize, answer: &Embedding, (what, unit): (&str, &str)) -> Result<(), CliError> {
    let object = json!({
        "text_index": index,
        "tokens": answer.tokens,
        "padded_tokens": answer.rows,
        "embedding": answer.values,
        "seconds": answer.pass.cost.time.as_secs_f64(),
        "texts_in_pass": answer.pass.texts,
    });
    out.result(object, || format!("{what} {index}, {}: {}", counted(answer.tokens, unit), preview(&answer.values)))
}
