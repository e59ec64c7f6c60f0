//! What no compiler checks: the texts of the workspace.
//!
//! Every check is a function of texts, so that its tests plant the fault in a
//! string. All problems of all files are reported at once. Anchors within pages
//! and addresses on the web are not checked.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use crate::Failure;
use crate::markdown;
use crate::workspace::{TextFile, Workspace};

/// Words that stand for work left undone. Put together here so that this file does
/// not have them.
const LEFT_WORK: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

const ERROR_SOURCE: &str = "crates/windlass/src/error.rs";
const ERROR_PAGES: &str = "docs/errors/";
const ERROR_INDEX: &str = "docs/errors/README.md";
const README: &str = "README.md";
const README_PROGRAM: &str = "crates/windlass/examples/readme.rs";
const MISTAKES: &str = "docs/mistakes.md";
const LOCK: &str = "Cargo.lock";
const ROOT_MANIFEST: &str = "Cargo.toml";

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    path: String,
    line: Option<usize>,
    what: String,
}

impl Problem {
    fn new(path: &str, what: impl Into<String>) -> Self {
        Problem { path: path.to_owned(), line: None, what: what.into() }
    }

    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Problem { line: Some(line), ..Problem::new(path, what) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

/// Checks the workspace and prints every problem.
pub(crate) fn tidy(root: &Path) -> Result<(), Failure> {
    let problems = check(&Workspace::read(root)?);
    if problems.is_empty() {
        return Ok(());
    }
    for problem in &problems {
        eprintln!("{problem}");
    }
    let count = problems.len();
    let noun = if count == 1 { "problem" } else { "problems" };
    Err(Failure::Check(format!("tidy found {count} {noun}; to repeat it: cargo xtask tidy")))
}

/// Copies the example into the README's program.
pub(crate) fn write_readme(root: &Path) -> Result<(), Failure> {
    let read = |path: &str| {
        std::fs::read_to_string(root.join(path))
            .map_err(|error| Failure::Check(format!("cannot read {path}: {error}")))
    };
    let text = with_program(&read(README)?, &read(README_PROGRAM)?)
        .map_err(|problem| Failure::Check(problem.to_string()))?;
    std::fs::write(root.join(README), text)
        .map_err(|error| Failure::Check(format!("cannot write {README}: {error}")))
}

/// The problems of a workspace.
fn check(workspace: &Workspace) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in &workspace.texts {
        problems.extend(check_lines(file));
        problems.extend(check_links(file, workspace));
        problems.extend(check_manifest(file));
    }
    problems.extend(check_error_pages(workspace));
    problems.extend(check_named_tests(workspace));
    problems.extend(check_readme(workspace.text(README), workspace.text(README_PROGRAM)));
    if !workspace.tracked.contains(LOCK) {
        let what = "is not committed, so that others would build other versions";
        problems.push(Problem::new(LOCK, what));
    }
    problems
}

/// A test or planted bug that the list of mistakes names must be there.
fn check_named_tests(workspace: &Workspace) -> Vec<Problem> {
    let is_code = |file: &&TextFile| file.path.ends_with(".rs") && file.path.starts_with("crates/");
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words: BTreeSet<&str> = workspace
        .texts
        .iter()
        .filter(is_code)
        .flat_map(|file| file.text.split(|c| !is_word(c)))
        .collect();
    let mut problems = Vec::new();
    for (number, line) in workspace.text(MISTAKES).unwrap_or_default().lines().enumerate() {
        let Some((_, tests)) = line.split_once(" | ") else { continue };
        for name in tests.split('`').skip(1).step_by(2).filter(|name| !words.contains(name)) {
            let what = format!("names the test {name}, which is not there");
            problems.push(Problem::at(MISTAKES, number + 1, what));
        }
    }
    problems
}

/// Every crate has the lints of the workspace, which forbid `unsafe`.
fn check_manifest(file: &TextFile) -> Option<Problem> {
    let has = |wanted: &str| file.text.contains(wanted);
    let what = match file.path.as_str() {
        ROOT_MANIFEST if !has("[workspace.lints.rust]\nunsafe_code = \"forbid\"\n") => {
            "does not begin its lints with unsafe_code = \"forbid\""
        }
        ROOT_MANIFEST => return None,
        path if path.ends_with(&format!("/{ROOT_MANIFEST}"))
            && !has("\n[lints]\nworkspace = true\n") =>
        {
            "does not have the lints of the workspace, which forbid unsafe code"
        }
        _ => return None,
    };
    Some(Problem::new(&file.path, what))
}

fn check_lines(file: &TextFile) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (number, line) in file.text.split('\n').enumerate() {
        if line.ends_with([' ', '\t', '\r']) {
            problems.push(Problem::at(&file.path, number + 1, "has spaces at its end"));
        }
        for word in LEFT_WORK {
            if line.contains(word) {
                let what = format!("has a {word}; do it, or open an issue");
                problems.push(Problem::at(&file.path, number + 1, what));
            }
        }
    }
    problems
}

fn check_links(file: &TextFile, workspace: &Workspace) -> Vec<Problem> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for link in markdown::links(&file.text) {
        let is_elsewhere = link.target.contains("://") || link.target.starts_with("mailto:");
        let target = link.target.split('#').next().unwrap_or_default();
        if is_elsewhere || target.is_empty() {
            continue;
        }
        let what = match resolve(&file.path, target) {
            None => format!("the link to {target:?} leaves the workspace"),
            Some(path) if !workspace.has(&path) => {
                format!("the link to {target:?} leads nowhere: there is no {path}")
            }
            Some(_) => continue,
        };
        problems.push(Problem::at(&file.path, link.line, what));
    }
    problems
}

/// The path from the root that a link in the file `from` means, `None` if it is
/// above the root.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Every code has a page that says its name and stands in the index, and every
/// page has a code.
fn check_error_pages(workspace: &Workspace) -> Vec<Problem> {
    let Some(source) = workspace.text(ERROR_SOURCE) else {
        return vec![Problem::new(ERROR_SOURCE, "is missing, so that no error code is known")];
    };
    let mut problems = Vec::new();
    let mut codes: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, code) in error_codes(source) {
        if let Some(first) = codes.insert(code, line) {
            let what = format!("{code} is the code of line {first} already");
            problems.push(Problem::at(ERROR_SOURCE, line, what));
        }
    }
    if codes.is_empty() {
        problems.push(Problem::new(ERROR_SOURCE, "has no error codes"));
    }
    let index = workspace.text(ERROR_INDEX).unwrap_or_default();
    for (code, line) in &codes {
        let page = format!("{ERROR_PAGES}{code}.md");
        match workspace.text(&page) {
            None => problems.push(Problem::at(ERROR_SOURCE, *line, format!("{code} lacks {page}"))),
            Some(text) if !text.starts_with(&format!("# {code}: ")) => {
                problems.push(Problem::at(&page, 1, format!("does not begin with \"# {code}: \"")));
            }
            Some(_) => {}
        }
        if !index.contains(&format!("({code}.md)")) {
            problems.push(Problem::new(ERROR_INDEX, format!("has no link to {code}.md")));
        }
    }
    for page in error_pages(&workspace.paths) {
        if !codes.contains_key(page) {
            let what = format!("no kind in {ERROR_SOURCE} has this code");
            problems.push(Problem::new(&format!("{ERROR_PAGES}{page}.md"), what));
        }
    }
    problems
}

/// The codes in quotes, such as `"WL-0001"`, with their lines.
fn error_codes(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source.lines().enumerate().flat_map(|(number, line)| {
        let quoted = line.split('"').skip(1).step_by(2);
        quoted.filter(|text| is_error_code(text)).map(move |code| (number + 1, code))
    })
}

fn is_error_code(text: &str) -> bool {
    text.strip_prefix("WL-")
        .is_some_and(|digits| digits.len() == 4 && digits.bytes().all(|b| b.is_ascii_digit()))
}

/// The names of the pages beside the index, without their ending.
fn error_pages(paths: &BTreeSet<String>) -> impl Iterator<Item = &str> {
    paths
        .iter()
        .filter(|path| *path != ERROR_INDEX)
        .filter_map(|path| path.strip_prefix(ERROR_PAGES)?.strip_suffix(".md"))
}

/// The README's one program is the example, byte by byte.
fn check_readme(readme: Option<&str>, program: Option<&str>) -> Option<Problem> {
    let Some(readme) = readme else {
        return Some(Problem::new(README, "is missing"));
    };
    let Some(program) = program else {
        return Some(Problem::new(README_PROGRAM, "is missing, it is the README's program"));
    };
    match readme_program(readme) {
        Err(problem) => Some(problem),
        Ok(block) if readme[block.range.clone()] != *program => {
            let what = format!("the program is not {README_PROGRAM}; run cargo xtask readme");
            Some(Problem::at(README, block.line, what))
        }
        Ok(_) => None,
    }
}

/// The README with another program.
fn with_program(readme: &str, program: &str) -> Result<String, Problem> {
    let range = readme_program(readme)?.range;
    Ok(format!("{}{program}{}", &readme[..range.start], &readme[range.end..]))
}

/// The one block of Rust in the README. A second one would be tested by nobody.
fn readme_program(readme: &str) -> Result<markdown::Block<'_>, Problem> {
    let blocks = markdown::blocks(readme);
    let mut rust = blocks.into_iter().filter(|block| block.info.starts_with("rust"));
    let Some(program) = rust.next() else {
        return Err(Problem::new(README, format!("has no ```rust block for {README_PROGRAM}")));
    };
    match rust.next() {
        Some(second) => {
            let what = "is a second block of Rust, which nothing tests; make it an example";
            Err(Problem::at(README, second.line, what))
        }
        None => Ok(program),
    }
}

#[cfg(test)]
mod tests;
