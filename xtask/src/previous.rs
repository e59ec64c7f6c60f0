//! The version before this one, built from the history, for the test of rolling upgrades.
//!
//! `xtask/previous` holds the commit. It is set to that of a release when the next one begins.
//! The code is put beside what cargo builds, without a worktree that git would know of, and
//! shares the dependencies that both versions have: same target directory, same features. Its own
//! crates have another version number: cargo would take those of one version for the other's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Failure;
use crate::steps::{call, cargo, words};

/// Where the commit is named.
const COMMIT: &str = "xtask/previous";

/// Tells the test where the program is.
const PROGRAM: &str = "WINDLASS_TEST_PREVIOUS";

/// The program alone, with the features that all other steps unite.
const BUILD: &str = "build --workspace --all-features --bin windlass";

/// What its version number ends in.
const MARK: &str = "+previous";

/// Builds the program of the version before and runs the test with it. In a clone without that
/// commit it says so, and answers that nothing was tried.
pub(crate) fn rehearse(root: &Path, test: &[String]) -> Result<bool, Failure> {
    let commit = commit(root)?;
    if !is_there(root, &commit) {
        println!(
            "-- left out: commit {commit} of {COMMIT}, the version before, is not in this clone \
             (git fetch --unshallow brings it, a tarball has no history)"
        );
        return Ok(false);
    }
    let program = build(root, &commit)?;
    let line = format!("{PROGRAM}={} cargo {}", program.display(), test.join(" "));
    call("rolling upgrade", &line, cargo(root).args(test).env(PROGRAM, &program))?;
    Ok(true)
}

/// What `xtask/previous` says.
fn commit(root: &Path) -> Result<String, Failure> {
    let text = std::fs::read_to_string(root.join(COMMIT))
        .map_err(|error| Failure::Check(format!("cannot read {COMMIT}: {error}")))?;
    let commit = text.trim();
    // An abbreviation or a name may mean another commit tomorrow.
    if commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(commit.to_owned());
    }
    Err(Failure::Check(format!("{COMMIT} holds {commit:?}, which is no whole id of a commit")))
}

/// Whether the clone has a commit.
fn is_there(root: &Path, commit: &str) -> bool {
    let mut git = git(root);
    git.args(["cat-file", "-e", &format!("{commit}^{{commit}}")]);
    git.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn git(root: &Path) -> Command {
    let mut git = Command::new("git");
    git.current_dir(root);
    git
}

/// Builds the program, unless it was built before, and answers where it is.
fn build(root: &Path, commit: &str) -> Result<PathBuf, Failure> {
    let failed = |what: &str, error| Failure::Check(format!("{what}: {error}"));
    let target = target()?;
    let place = target.join("previous").join(commit);
    let program = place.join(format!("windlass{}", std::env::consts::EXE_SUFFIX));
    if program.is_file() {
        return Ok(program);
    }
    let source = place.join("source");
    std::fs::create_dir_all(&source)
        .map_err(|error| failed(&format!("cannot make {}", source.display()), error))?;
    // With an index of its own, git's is left alone.
    let index = place.join("index");
    let prefix = format!("--prefix={}/", source.display());
    for arguments in [&["read-tree", commit][..], &["checkout-index", "--all", "--force", &prefix]]
    {
        let line = format!("git {}", arguments.join(" "));
        let mut git = git(root);
        git.args(arguments).env("GIT_INDEX_FILE", &index);
        call("the code of the version before", &line, &mut git)?;
    }
    mark(&source.join("Cargo.toml"))?;
    let arguments = words(BUILD);
    let line = format!("cargo {BUILD}, in {}", source.display());
    println!("-- the version before: {line}");
    let mut command = cargo(&source);
    command.args(&arguments).arg("--target-dir").arg(&target);
    call("building the version before", &line, &mut command)?;
    // Away from where the next build puts the program of this version.
    let built = target.join("debug").join(program.file_name().unwrap_or_default());
    std::fs::copy(&built, &program)
        .map_err(|error| failed(&format!("cannot copy {}", built.display()), error))?;
    Ok(program)
}

/// Gives the crates of a workspace a version number of their own.
fn mark(manifest: &Path) -> Result<(), Failure> {
    let failed = |why: String| Failure::Check(format!("{}: {why}", manifest.display()));
    let text = std::fs::read_to_string(manifest).map_err(|error| failed(error.to_string()))?;
    let marked = marked(&text).ok_or_else(|| failed("it says no version".to_owned()))?;
    std::fs::write(manifest, marked).map_err(|error| failed(error.to_string()))
}

/// A manifest with the first version number marked, which is that of the workspace.
fn marked(text: &str) -> Option<String> {
    let (before, behind) = text.split_once("\nversion = \"")?;
    let (number, behind) = behind.split_once('"')?;
    let number = number.strip_suffix(MARK).unwrap_or(number);
    Some(format!("{before}\nversion = \"{number}{MARK}\"{behind}"))
}

/// Where cargo puts what it builds: above this program, which it built.
fn target() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Check(format!("cannot find the target directory: {error}")))?;
    let target = program.parent().and_then(Path::parent);
    target
        .map(Path::to_path_buf)
        .ok_or_else(|| Failure::Check(format!("{} is in no target directory", program.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn the_version_before_is_a_whole_commit_that_came_before() {
        let root = workspace::root();
        let commit = commit(&root).expect("it is one");
        if !is_there(&root, &commit) {
            return;
        }
        let mut git = git(&root);
        git.args(["merge-base", "--is-ancestor", &commit, "HEAD"]);
        assert!(git.status().expect("git is there").success(), "{commit} did not come before");
    }

    #[test]
    fn the_version_before_has_another_number_than_this_one() {
        let text = std::fs::read_to_string(workspace::root().join("Cargo.toml")).unwrap();
        let own = format!("\nversion = \"{}\"\n", env!("CARGO_PKG_VERSION"));
        let other = format!("\nversion = \"{}{MARK}\"\n", env!("CARGO_PKG_VERSION"));
        let marked = marked(&text).unwrap();
        assert!(text.contains(&own) && marked.contains(&other) && !marked.contains(&own));
        assert_eq!(super::marked(&marked), Some(marked), "also a second time");
    }

    #[test]
    fn a_commit_that_is_not_in_the_clone_is_seen() {
        let root = workspace::root();
        assert!(!is_there(&root, &"0".repeat(40)));
    }
}
