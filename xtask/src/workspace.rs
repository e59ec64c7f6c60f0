//! The files of the workspace, as git knows them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Failure;

/// A file that is text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TextFile {
    /// Its path from the root of the workspace, with forward slashes.
    pub(crate) path: String,
    /// What it says.
    pub(crate) text: String,
}

/// The files of the workspace that are committed or would be: not those that git
/// ignores.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    /// The path of every file, binary ones included.
    pub(crate) paths: BTreeSet<String>,
    /// The files that are text.
    pub(crate) texts: Vec<TextFile>,
    /// The paths that git tracks.
    pub(crate) tracked: BTreeSet<String>,
}

/// The root of the workspace: the directory above this crate's.
pub(crate) fn root() -> PathBuf {
    // cargo sets the variable for what it runs; the constant serves a binary that
    // was called directly.
    let crate_root = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    crate_root.parent().map_or_else(|| crate_root.clone(), Path::to_owned)
}

impl Workspace {
    /// Reads all files.
    pub(crate) fn read(root: &Path) -> Result<Self, Failure> {
        let tracked = list(root, &["--cached"])?;
        let untracked = list(root, &["--others", "--exclude-standard"])?;
        let mut workspace = Workspace { tracked, ..Workspace::default() };
        for path in workspace.tracked.iter().chain(&untracked) {
            let full = root.join(path);
            // A file that was deleted stays tracked until the deletion is committed.
            if !full.is_file() {
                continue;
            }
            let bytes = std::fs::read(&full)
                .map_err(|error| Failure::Check(format!("cannot read {path}: {error}")))?;
            workspace.paths.insert(path.clone());
            if let Ok(text) = String::from_utf8(bytes) {
                workspace.texts.push(TextFile { path: path.clone(), text });
            }
        }
        Ok(workspace)
    }

    /// The text of one file, `None` if there is no such text file.
    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.texts.iter().find(|file| file.path == path).map(|file| file.text.as_str())
    }

    /// Whether a path is a file, or a directory with files in it.
    pub(crate) fn has(&self, path: &str) -> bool {
        let inside = format!("{path}/");
        path.is_empty()
            || self.paths.contains(path)
            || self.paths.range(inside.clone()..).next().is_some_and(|p| p.starts_with(&inside))
    }
}

/// The paths that `git ls-files` prints.
fn list(root: &Path, which: &[&str]) -> Result<BTreeSet<String>, Failure> {
    let output = Command::new("git")
        .current_dir(root)
        .args(["ls-files", "-z"])
        .args(which)
        .output()
        .map_err(|error| Failure::Check(format!("cannot run git: {error}")))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::Check(format!("git ls-files failed: {}", why.trim())));
    }
    let text = String::from_utf8(output.stdout)
        .map_err(|_| Failure::Check("git ls-files printed a path that is not UTF-8".into()))?;
    Ok(text.split('\0').filter(|path| !path.is_empty()).map(str::to_owned).collect())
}

#[cfg(test)]
impl Workspace {
    /// A workspace of these files, all of them tracked.
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let texts: Vec<TextFile> = files
            .iter()
            .map(|(path, text)| TextFile { path: (*path).into(), text: (*text).into() })
            .collect();
        let paths: BTreeSet<String> = texts.iter().map(|file| file.path.clone()).collect();
        Workspace { tracked: paths.clone(), paths, texts }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_there_by_what_is_in_them() {
        let workspace = Workspace::of(&[("docs/errors/README.md", ""), ("docs-old.md", "")]);
        for there in ["", "docs", "docs/errors", "docs/errors/README.md", "docs-old.md"] {
            assert!(workspace.has(there), "{there}");
        }
        for not_there in ["doc", "docs/errors/README", "docs-old", "errors"] {
            assert!(!workspace.has(not_there), "{not_there}");
        }
    }

    #[test]
    fn this_workspace_is_read_without_what_git_ignores() {
        let workspace = Workspace::read(&root()).unwrap();
        assert!(workspace.text("xtask/src/workspace.rs").is_some());
        assert!(workspace.tracked.contains("Cargo.toml"));
        assert!(!workspace.has("target") && !workspace.has(".git"));
    }
}
