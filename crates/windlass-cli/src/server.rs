//! Which PostgreSQL a private server is run with.

use std::ffi::OsString;

use windlass::embedded::{EmbeddedOptions, Install};

/// What commands that run a private server are told of its programs.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ServerArguments {
    /// Directory of the PostgreSQL programs [default: the newest version found]
    // Empty is as good as unset, which a parser of paths would refuse.
    #[arg(long, value_name = "DIR", env = "WINDLASS_PG_BIN", value_parser = clap::value_parser!(OsString))]
    pg_bin: Option<OsString>,

    /// Install PostgreSQL through sudo if none is found; root needs no flag
    #[arg(long)]
    install: bool,
}

impl ServerArguments {
    /// The options with what was said.
    pub(crate) fn apply(&self, mut options: EmbeddedOptions) -> EmbeddedOptions {
        if let Some(directory) = self.pg_bin.as_ref().filter(|it| !it.is_empty()) {
            options = options.binaries(directory);
        }
        if self.install {
            options = options.install(Install::WithSudo);
        }
        options
    }
}
