//! Whether files below a directory have changed, by looking at their times and sizes.
//!
//! This looks again and again instead of listening: it needs nothing of the system, misses nothing
//! that comes while nobody listens, and costs little, because it rests long between two looks that
//! take long.

use std::collections::{HashMap, HashSet};
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Directories that nobody wants to be watched: what builds and tools write.
const SKIPPED: [&str; 4] = ["target", "node_modules", ".git", "__pycache__"];

/// The most files that are watched.
const FILES_MAX: usize = 20_000;

/// How deep directories are looked into.
const DEPTH_MAX: usize = 32;

/// How long to rest between two looks at least.
const REST_MIN: Duration = Duration::from_millis(300);

/// How many times as long as a look took to rest behind it: at most 5 % of a core.
const REST_FACTOR: u32 = 20;

/// How long files must be left alone before a change is told: whoever saves saves several.
const SETTLED_AFTER: Duration = Duration::from_millis(100);

/// How often that is looked at before a change is told anyway.
const SETTLE_LOOKS_MAX: usize = 20;

/// A directory whose files are watched.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    root: PathBuf,
    ignored: Ignored,
    /// Where this process and its program write to: that changes whenever they say something.
    outputs: HashSet<FileId>,
    seen: Files,
}

/// What tells files apart, whatever they are called: a device, and a number on it.
type FileId = (u64, u64);

fn id_of(metadata: &Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

/// The file that something is written to, if it is one.
fn file_behind(output: BorrowedFd<'_>) -> io::Result<Option<FileId>> {
    let metadata = File::from(output.try_clone_to_owned()?).metadata()?;
    Ok(metadata.is_file().then(|| id_of(&metadata)))
}

/// When files were last written, and how long they are.
type Files = HashMap<PathBuf, (Option<SystemTime>, u64)>;

impl Watch {
    /// From now on, the files below a directory, but for those below `besides`.
    pub(super) fn new(root: PathBuf, besides: PathBuf) -> Self {
        let ignored = Ignored::read(&root, besides);
        let outputs = [file_behind(io::stdout().as_fd()), file_behind(io::stderr().as_fd())];
        // What cannot be asked about is no file that changes.
        let outputs = outputs.into_iter().filter_map(|it| it.ok().flatten()).collect();
        let mut watch = Watch { root, ignored, outputs, seen: Files::new() };
        watch.seen = watch.look();
        watch
    }

    /// How many files are watched at most, if there are more.
    pub(super) fn overflow(&self) -> Option<usize> {
        (self.seen.len() >= FILES_MAX).then_some(FILES_MAX)
    }

    /// Waits until files have changed and are left alone again; answers one of them. Cancel safe:
    /// what has changed meanwhile is told next time.
    pub(super) async fn changed(&mut self) -> PathBuf {
        let mut rest = REST_MIN;
        loop {
            tokio::time::sleep(rest).await;
            let began = Instant::now();
            let files = self.look_elsewhere().await;
            rest = (began.elapsed() * REST_FACTOR).max(REST_MIN);
            let Some(path) = difference(&self.seen, &files) else { continue };
            let mut last = files;
            for _ in 0..SETTLE_LOOKS_MAX {
                tokio::time::sleep(SETTLED_AFTER).await;
                let next = self.look_elsewhere().await;
                let is_settled = next == last;
                last = next;
                if is_settled {
                    break;
                }
            }
            self.seen = last;
            return path.strip_prefix(&self.root).unwrap_or(&path).to_path_buf();
        }
    }

    /// Looks without keeping others waiting.
    async fn look_elsewhere(&self) -> Files {
        let Watch { root, ignored, outputs, seen: _ } = self;
        let (root, ignored, outputs) = (root.clone(), ignored.clone(), outputs.clone());
        let watch = Watch { root, ignored, outputs, seen: Files::new() };
        let look = tokio::task::spawn_blocking(move || watch.look());
        // Only a runtime that ends does not look.
        look.await.unwrap_or_default()
    }

    fn look(&self) -> Files {
        let mut files = Files::new();
        let mut directories = vec![(self.root.clone(), 0)];
        while let Some((directory, depth)) = directories.pop() {
            // One that is gone, or that may not be read, has no files.
            let Ok(entries) = std::fs::read_dir(directory) else { continue };
            for entry in entries.flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let Ok(kind) = entry.file_type() else { continue };
                if self.ignored.has(&path, &name.to_string_lossy()) {
                    continue;
                }
                if kind.is_dir() {
                    if depth < DEPTH_MAX {
                        directories.push((path, depth + 1));
                    }
                } else if kind.is_file() {
                    let Ok(metadata) = entry.metadata() else { continue };
                    if self.outputs.contains(&id_of(&metadata)) {
                        continue;
                    }
                    files.insert(path, (metadata.modified().ok(), metadata.len()));
                    if files.len() >= FILES_MAX {
                        return files;
                    }
                }
            }
        }
        files
    }
}

/// A file that is in one of them only, or not the same in both.
fn difference(before: &Files, after: &Files) -> Option<PathBuf> {
    let changed = after.iter().find(|(path, state)| before.get(*path) != Some(state));
    let gone = || before.keys().find(|path| !after.contains_key(*path));
    changed.map(|(path, _)| path).or_else(gone).cloned()
}

/// What is not watched: well-known directories, and what the root's `.gitignore` says in simple
/// words. Patterns with more than a star in front are not understood, and what they mean is watched.
#[derive(Clone, Debug)]
struct Ignored {
    besides: PathBuf,
    names: HashSet<String>,
    endings: Vec<String>,
}

impl Ignored {
    fn read(root: &Path, besides: PathBuf) -> Self {
        let text = std::fs::read_to_string(root.join(".gitignore")).unwrap_or_default();
        let mut names: HashSet<String> = SKIPPED.map(str::to_owned).into();
        let mut endings = Vec::new();
        for line in text.lines().map(str::trim) {
            if line.is_empty() || line.starts_with(['#', '!']) {
                continue;
            }
            let word = line.trim_start_matches('/').trim_end_matches('/');
            match word.strip_prefix('*') {
                Some(ending) if !ending.is_empty() && !ending.contains(['*', '/', '?', '[']) => {
                    endings.push(ending.to_owned());
                }
                None if !word.contains(['*', '/', '?', '[']) => {
                    names.insert(word.to_owned());
                }
                Some(_) | None => {}
            }
        }
        Ignored { besides, names, endings }
    }

    fn has(&self, path: &Path, name: &str) -> bool {
        self.names.contains(name)
            || self.endings.iter().any(|ending| name.ends_with(ending))
            || path == self.besides
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory; gone with the test.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("windlass-watch-{}-{name}", std::process::id());
            let directory = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&directory).expect("there is room");
            Directory(directory)
        }

        fn write(&self, name: &str, text: &str) {
            let path = self.0.join(name);
            std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("room");
            std::fs::write(path, text).expect("there is room");
        }

        fn seen(&self) -> Vec<String> {
            let watch = Watch::new(self.0.clone(), self.0.join("data"));
            let name = |path: &PathBuf| {
                let path = path.strip_prefix(&self.0).expect("it is below");
                path.to_string_lossy().into_owned()
            };
            let mut names: Vec<String> = watch.seen.keys().map(name).collect();
            names.sort();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_builds_write_and_what_git_ignores_is_not_watched() {
        let directory = Directory::new("ignored");
        directory.write(".gitignore", "# build\n/dist/\n*.log\n!keep\na/*/b\n*\n");
        for name in
            ["src/main.rs", "target/x", "a/node_modules/x", ".git/x", "dist/x", "a.log", "data/x"]
        {
            directory.write(name, "");
        }
        assert_eq!(directory.seen(), [".gitignore", "src/main.rs"]);
    }

    #[test]
    fn what_the_program_says_into_a_file_is_no_change() {
        let directory = Directory::new("outputs");
        directory.write("out", "1");
        directory.write("main.rs", "1");
        let mut watch = Watch::new(directory.0.clone(), PathBuf::new());
        let out = File::open(directory.0.join("out")).expect("it is there");
        watch.outputs.extend(file_behind(out.as_fd()).expect("it is open"));
        assert_eq!(watch.look().into_keys().collect::<Vec<_>>(), [directory.0.join("main.rs")]);
        let (reader, _writer) = io::pipe().expect("there is room");
        assert_eq!(file_behind(reader.as_fd()).expect("it is open"), None, "a pipe is no file");
    }

    #[test]
    fn a_file_that_is_new_other_or_gone_is_a_change() {
        let directory = Directory::new("changes");
        directory.write("a", "1");
        directory.write("target/x", "1");
        let mut watch = Watch::new(directory.0.clone(), PathBuf::new());
        let mut changes = Vec::new();
        let mut look = |watch: &mut Watch| {
            let files = watch.look();
            changes
                .push(difference(&watch.seen, &files).map(|path| path.file_name().map(Into::into)));
            watch.seen = files;
        };
        directory.write("target/x", "12");
        look(&mut watch);
        directory.write("b", "1");
        look(&mut watch);
        directory.write("a", "12");
        look(&mut watch);
        std::fs::remove_file(directory.0.join("b")).expect("it is there");
        look(&mut watch);
        look(&mut watch);
        let name = |name: &str| Some(Some(std::ffi::OsString::from(name)));
        assert_eq!(changes, [None, name("b"), name("a"), name("b"), None]);
    }
}
