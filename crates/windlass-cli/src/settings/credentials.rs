//! What a server is shown, and whom to believe that it is one: each from the first place that says
//! it.
//!
//! What the config file says of it goes to a server that the file names, and to no other: a token
//! that is kept there is not sent to an address that someone typed.

use std::path::PathBuf;

use serde::Deserialize as _;
use windlass::Secret;
use windlass::remote::{
    CA_FILE_VARIABLE, CLIENT_CERT_VARIABLE, CLIENT_KEY_VARIABLE, PLAINTEXT_TOKEN_VARIABLE,
    RemoteOptions, TOKEN_FILE_VARIABLE, TOKEN_VARIABLE,
};

use super::{HEADING, Source};
use crate::failure::usage;

/// The flags of it.
#[derive(Clone, Default, clap::Args)]
pub(crate) struct CredentialArguments {
    /// File with the token for the server [env: WINDLASS_TOKEN_FILE, or WINDLASS_TOKEN for the
    /// token itself]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true, help_heading = HEADING)]
    token_file: Option<PathBuf>,

    // Whoever looks at the processes of a machine sees it.
    #[arg(id = "token_in_sight", long = "token", global = true, hide = true, num_args = 0..=1)]
    token_in_sight: Option<Option<String>>,

    /// File of CA certificates to trust for https [default: those of the machine] [env:
    /// WINDLASS_CA_FILE]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true, help_heading = HEADING)]
    ca_file: Option<PathBuf>,

    /// Client certificate for the server [env: WINDLASS_CLIENT_CERT_FILE]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true, help_heading = HEADING)]
    client_cert: Option<PathBuf>,

    /// Key of the client certificate [env: WINDLASS_CLIENT_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE", hide_short_help = true, help_heading = HEADING)]
    client_key: Option<PathBuf>,

    /// Send the token over http:// to another machine, if a proxy encrypts [env:
    /// WINDLASS_ALLOW_PLAINTEXT_TOKEN=true]
    #[arg(long, global = true, hide_short_help = true, help_heading = HEADING)]
    allow_plaintext_token: bool,
}

impl CredentialArguments {
    /// A flag that was given, if one was.
    pub(super) fn first_flag(&self) -> Option<&'static str> {
        let flags = [
            (self.token_file.is_some(), "--token-file"),
            (self.token_in_sight.is_some(), "--token"),
            (self.ca_file.is_some(), "--ca-file"),
            (self.client_cert.is_some(), "--client-cert"),
            (self.client_key.is_some(), "--client-key"),
            (self.allow_plaintext_token, "--allow-plaintext-token"),
        ];
        flags.into_iter().find(|(is_given, _)| *is_given).map(|(_, flag)| flag)
    }

    /// What the flags say.
    pub(super) fn said(&self) -> anyhow::Result<Said> {
        if self.token_in_sight.is_some() {
            return Err(usage(
                "a token on the command line can be read by everyone who sees the processes of \
                 this machine: put it into a file and give --token-file <FILE>, or set \
                 WINDLASS_TOKEN",
            ));
        }
        Ok(Said {
            token: None,
            token_file: self.token_file.clone(),
            ca_file: self.ca_file.clone(),
            client_cert: self.client_cert.clone(),
            client_key: self.client_key.clone(),
            allow_plaintext_token: self.allow_plaintext_token.then_some(true),
        })
    }
}

/// What one place says of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    pub(super) token: Option<Secret>,
    pub(super) token_file: Option<PathBuf>,
    pub(super) ca_file: Option<PathBuf>,
    pub(super) client_cert: Option<PathBuf>,
    pub(super) client_key: Option<PathBuf>,
    pub(super) allow_plaintext_token: Option<bool>,
}

/// Reads a token so that nobody shows it.
pub(super) fn secret<'de, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Secret>, D::Error> {
    Option::<String>::deserialize(from).map(|text| text.map(Secret::from))
}

impl Said {
    /// What the environment says.
    pub(super) fn by_variables(
        variable: impl Fn(&'static str) -> anyhow::Result<Option<String>>,
    ) -> anyhow::Result<Self> {
        let path = |name| anyhow::Ok(variable(name)?.map(PathBuf::from));
        Ok(Said {
            token: variable(TOKEN_VARIABLE)?.map(Secret::from),
            token_file: path(TOKEN_FILE_VARIABLE)?,
            ca_file: path(CA_FILE_VARIABLE)?,
            client_cert: path(CLIENT_CERT_VARIABLE)?,
            client_key: path(CLIENT_KEY_VARIABLE)?,
            allow_plaintext_token: match variable(PLAINTEXT_TOKEN_VARIABLE)?.as_deref() {
                None => None,
                Some("true") => Some(true),
                Some("false") => Some(false),
                Some(other) => {
                    let text =
                        format!("{PLAINTEXT_TOKEN_VARIABLE} is {other:?}, not true or false");
                    return Err(usage(text));
                }
            },
        })
    }

    /// Refuses what is said twice or by half. `source` is what each of its words is.
    fn check(&self, source: impl Fn(&'static str) -> Source) -> anyhow::Result<()> {
        let both = |one, other| match (source(one), source(other)) {
            (place, same) if place == same => format!("{place}: {one} and {other}"),
            (place, another) => format!("{place} and {another}"),
        };
        if self.token.is_some() && self.token_file.is_some() {
            let both = both("token", "token_file");
            return Err(usage(format!("{both} are both set; leave one of them out")));
        }
        if self.client_cert.is_some() != self.client_key.is_some() {
            let both = both("client_cert", "client_key");
            return Err(usage(format!("{both} are of use together only, and one is not set")));
        }
        Ok(())
    }
}

/// A token, or where it is.
#[derive(Clone, Debug)]
enum Token {
    Given(Secret),
    File(PathBuf),
}

/// What holds, and where each comes from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Credentials {
    token: Option<(Token, Source)>,
    ca_file: Option<(PathBuf, Source)>,
    client_cert: Option<(PathBuf, Source)>,
    client_key: Option<(PathBuf, Source)>,
    allow_plaintext_token: Option<(bool, Source)>,
}

impl Credentials {
    /// Adds what a place says, where none before it has said it. `source` is what each of its words
    /// is.
    pub(super) fn add(
        &mut self,
        said: &Said,
        source: impl Fn(&'static str) -> Source,
    ) -> anyhow::Result<()> {
        said.check(&source)?;
        if self.token.is_none() {
            let given = said.token.clone().map(|it| (Token::Given(it), source("token")));
            let file = || Some((Token::File(said.token_file.clone()?), source("token_file")));
            self.token = given.or_else(file);
        }
        if self.ca_file.is_none() {
            self.ca_file = said.ca_file.clone().map(|it| (it, source("ca_file")));
        }
        // A certificate is of use with its own key only.
        if self.client_cert.is_none() {
            self.client_cert = said.client_cert.clone().map(|it| (it, source("client_cert")));
            self.client_key = said.client_key.clone().map(|it| (it, source("client_key")));
        }
        if self.allow_plaintext_token.is_none() {
            let allows = said.allow_plaintext_token;
            self.allow_plaintext_token = allows.map(|it| (it, source("allow_plaintext_token")));
        }
        Ok(())
    }

    /// How to reach a server with it.
    pub(super) fn options(&self, url: &str) -> RemoteOptions {
        let mut options = RemoteOptions::new(url);
        options = match &self.token {
            Some((Token::Given(token), _)) => options.token(token.clone()),
            Some((Token::File(path), _)) => options.token_file(path),
            None => options,
        };
        if let Some((path, _)) = &self.ca_file {
            options = options.ca_file(path);
        }
        if let (Some((certificate, _)), Some((key, _))) = (&self.client_cert, &self.client_key) {
            options = options.client_certificate(certificate, key);
        }
        let allows = self.allow_plaintext_token.as_ref().is_some_and(|(allows, _)| *allows);
        options.allow_plaintext_token(allows)
    }

    /// The settings with where they come from, and without the token.
    pub(super) fn rows(&self) -> Vec<(&'static str, Option<String>, Source)> {
        let row = |name, found: Option<(String, Source)>| match found {
            Some((value, from)) => (name, Some(value), from),
            None => (name, None, Source::Nowhere),
        };
        let path = |path: &PathBuf| path.display().to_string();
        let (mut token, mut token_file) = (None, None);
        match &self.token {
            Some((Token::Given(secret), from)) => token = Some((secret.to_string(), from.clone())),
            Some((Token::File(file), from)) => token_file = Some((path(file), from.clone())),
            None => {}
        }
        let file = |it: &Option<(PathBuf, Source)>| {
            it.as_ref().map(|(file, from)| (path(file), from.clone()))
        };
        let allows = self.allow_plaintext_token.as_ref();
        vec![
            row("token", token),
            row("token_file", token_file),
            row("ca_file", file(&self.ca_file)),
            row("client_cert", file(&self.client_cert)),
            row("client_key", file(&self.client_key)),
            row("allow_plaintext_token", allows.map(|(it, from)| (it.to_string(), from.clone()))),
        ]
    }
}

/// The variable that says a word.
pub(super) fn variable_of(word: &str) -> Option<&'static str> {
    let variables = [
        ("token", TOKEN_VARIABLE),
        ("token_file", TOKEN_FILE_VARIABLE),
        ("ca_file", CA_FILE_VARIABLE),
        ("client_cert", CLIENT_CERT_VARIABLE),
        ("client_key", CLIENT_KEY_VARIABLE),
        ("allow_plaintext_token", PLAINTEXT_TOKEN_VARIABLE),
    ];
    variables.iter().find(|(it, _)| *it == word).map(|(_, variable)| *variable)
}
