//! `windlass keys`: keys to seal payloads with.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use windlass::Keyring;

/// What is to be done.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print a line with a new key
    ///
    /// Append it to the key file of every process and restart them. Once all of them have it, move it
    /// to the top and restart them again. The key is stored nowhere else.
    New {
        /// Id of the key: 1 to 32 letters, digits, - and _
        id: String,
    },
}

/// Does what is to be done. Nothing is connected to: no server has keys.
pub(crate) fn run(arguments: Arguments, is_json: bool) -> anyhow::Result<ExitCode> {
    let Command::New { id } = arguments.command;
    let line = Keyring::fresh_line(&id)?;
    let text = match is_json {
        true => crate::text::document(&json!({ "id": id, "line": line }))?,
        false => format!("{line}\n"),
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
