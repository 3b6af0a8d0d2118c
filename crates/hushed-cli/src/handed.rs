//! `hushed completions` and `hushed man`: shell completions and manual pages, generated from this command's own
//! arguments.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;

use clap::Command;

use crate::error::CliError;
use crate::output::Output;

/// Print completions for a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:
  hushed completions bash > ~/.local/share/bash-completion/completions/hushed
  hushed completions zsh > \"${fpath[1]}/_hushed\"
  hushed completions fish > ~/.config/fish/completions/hushed.fish")]
pub struct Completions {
    /// The shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

/// Write manual pages into a folder
#[derive(clap::Args)]
#[command(after_help = "One page for the command and one for each verb, as `--help` has them.

Examples:
  hushed man ~/.local/share/man/man1
  hushed man out && man -l out/hushed-embed.1")]
pub struct Manual {
    /// The folder; it is created if it does not exist
    folder: PathBuf,
}

impl Completions {
    pub fn run(&self, mut command: Command) -> Result<(), CliError> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "hushed", &mut script);
        let mut out = io::stdout().lock();
        out.write_all(&script).and_then(|()| out.flush()).map_err(CliError::Write)
    }
}

impl Manual {
    pub fn run(&self, command: Command, out: &Output) -> Result<(), CliError> {
        let made = fs::create_dir_all(&self.folder);
        let made = made.and_then(|()| clap_mangen::generate_to(command, &self.folder));
        made.map_err(|source| CliError::WriteFile { path: self.folder.clone(), source })?;
        let folder = self.folder.display().to_string();
        let object = serde_json::json!({ "folder": folder });
        out.result(object, || format!("manual pages are in {folder}"))
    }
}
