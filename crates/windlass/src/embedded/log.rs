//! The server's log: opened for it, kept within a limit, and quoted in errors.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use super::directory::Directory;
use super::lock::open_own;
use crate::Error;

/// The largest log that a start adds to. A larger one is set aside, and the one that
/// was set aside before is dropped.
const LOG_BYTES_MAX: u64 = 4 << 20;

/// How many lines of the log an error quotes.
const LINES_MAX: usize = 10;

/// How much of the end of a log is read to find those lines.
const TAIL_BYTES_MAX: u64 = 16 << 10;

/// The log of one start of the server.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    /// Where this start's part begins.
    start: u64,
}

impl Log {
    pub(super) fn open(directory: &Directory) -> Result<Log, Error> {
        let path = directory.log();
        let is_full = std::fs::symlink_metadata(&path).is_ok_and(|it| it.len() > LOG_BYTES_MAX);
        if is_full {
            // Left as it is if it cannot be renamed: a long log is no reason not to start.
            let _ = std::fs::rename(&path, directory.path().join("server.log.1"));
        }
        let file = open_own(&path, directory.account())?;
        let start = file.metadata().map_or(0, |it| it.len());
        Ok(Log { file, start })
    }

    /// The log as the output of a child.
    pub(super) fn share(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// The end of what was written since this start.
    pub(super) fn read(&self) -> String {
        let mut bytes = Vec::new();
        let mut read = || {
            let mut file = &self.file;
            let end = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(self.start.max(end.saturating_sub(TAIL_BYTES_MAX))))?;
            file.take(TAIL_BYTES_MAX).read_to_end(&mut bytes)
        };
        match read() {
            Ok(_) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => format!("(the log cannot be read: {error})"),
        }
    }

    /// The last lines of this start.
    pub(super) fn tail(&self) -> String {
        tail(&self.read(), LINES_MAX)
    }
}

/// The last lines of a text, or a word that there are none.
pub(super) fn tail(text: &str, lines_max: usize) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "(nothing was written)".to_owned();
    }
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_the_last_lines_that_say_something() {
        assert_eq!(tail("one\ntwo\n\nthree\n\n", 2), "two\nthree");
        assert_eq!(tail("one\n", 2), "one");
        assert_eq!(tail(" \n\n", 2), "(nothing was written)");
    }
}
