//! A text that is looked for in all files of a directory.

use std::fs;
use std::path::{Path, PathBuf};

/// A file that has it.
#[derive(Debug)]
#[expect(dead_code, reason = "it is shown where a test fails")]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// What is around it.
    pub(super) context: String,
}

/// All files below a directory that have the text.
pub(super) fn search(directory: &Path, text: &str) -> Vec<Found> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(kind) = entry.file_type() else { continue };
        if kind.is_dir() {
            found.extend(search(&path, text));
        } else if kind.is_file()
            && let Ok(bytes) = fs::read(&path)
        {
            let mut windows = bytes.windows(text.len());
            if let Some(at) = windows.position(|window| window == text.as_bytes()) {
                let around = &bytes[at.saturating_sub(120)..bytes.len().min(at + 120)];
                let context = String::from_utf8_lossy(around).into_owned();
                found.push(Found { path, context });
            }
        }
    }
    found
}
