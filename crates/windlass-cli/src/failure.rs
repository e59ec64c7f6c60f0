//! How a command fails: with a text, a code and an exit code.

use std::fmt;
use std::process::ExitCode;

use serde_json::{Value, json};
use windlass::store::StoreError;

use crate::redact::scrubbed;
use crate::text::{json_line, shown_lines};

/// The exit code if something went wrong that no other code stands for.
const FAILED: u8 = 1;

/// The exit code if what was asked for makes no sense, as for arguments that are not understood.
pub(crate) const MISUSED: u8 = 2;

/// The code of errors in what was asked for, which are not the library's.
const USAGE: &str = "usage";

/// What was asked for makes no sense.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// The error of whoever asks for what makes no sense.
pub(crate) fn usage(text: impl Into<String>) -> anyhow::Error {
    Usage(text.into()).into()
}

/// The exit code of an error.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    ExitCode::from(if error.is::<Usage>() { MISUSED } else { FAILED })
}

/// Prints an error to standard error, for people or for programs. An address in it has no password,
/// whoever put it there.
pub(crate) fn print(error: &anyhow::Error, is_json: bool) {
    let text = scrubbed(&format!("{error:#}"));
    if is_json {
        eprintln!("{}", json_line(&document(code(error), &text)));
    } else {
        eprintln!("error: {}", shown_lines(&text));
    }
}

/// Prints what is wrong with arguments for programs.
pub(crate) fn print_misuse(text: &str) {
    eprintln!("{}", json_line(&document(Some(USAGE), &scrubbed(text))));
}

fn document(code: Option<&str>, text: &str) -> Value {
    json!({ "error": { "code": code, "message": text } })
}

/// The code of the library's error in a chain, or of a misuse.
fn code(error: &anyhow::Error) -> Option<&'static str> {
    if error.is::<Usage>() {
        return Some(USAGE);
    }
    let of_link = |link: &(dyn std::error::Error + 'static)| match link.downcast_ref::<StoreError>()
    {
        Some(error) => Some(windlass::Error::from(error.clone()).code()),
        None => link.downcast_ref::<windlass::Error>().map(windlass::Error::code),
    };
    error.chain().find_map(of_link)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::Context as _;

    #[test]
    fn an_error_has_the_code_of_the_library_under_its_context() {
        let error = windlass::Error::from(StoreError::NotFound("run 1".into()));
        let error = Err::<(), _>(error).context("asking").expect_err("it is one");
        assert_eq!(code(&error), Some("WL-0004"));
        assert_eq!(code(&usage("no")), Some(USAGE));
        let bare = anyhow::Error::from(StoreError::NotFound("run 1".into()));
        assert_eq!(code(&bare), Some("WL-0004"));
        assert_eq!(code(&anyhow::anyhow!("no")), None);
        let document = document(Some("WL-0004"), "run 1\u{1b} does not exist");
        assert!(!document.to_string().contains('\u{1b}'), "{document}");
    }
}
