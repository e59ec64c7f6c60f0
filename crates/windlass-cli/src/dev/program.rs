//! The program that `windlass dev` runs: started, started again when files change or it crashes,
//! and ended gracefully.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, Command};

use super::watch::Watch;
use crate::signals::Signals;
use crate::text::{seconds, shown};

/// How long to wait before a program that crashed is started again, at first and at most; it
/// doubles with every crash.
const BACKOFF_FIRST: Duration = Duration::from_millis(500);
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// A program that ran for so long did not crash because of how it starts.
const STEADY_AFTER: Duration = Duration::from_secs(60);

/// How often to look whether all processes of a program have ended.
const END_POLL: Duration = Duration::from_millis(20);

/// The most characters of a program and its arguments that are told.
const NAME_CHARS_MAX: usize = 30;

/// A program that is kept running.
pub(super) struct Program {
    words: Vec<OsString>,
    /// What the program is told of the database and the server.
    variables: [(&'static str, String); 2],
    grace: Duration,
    name: String,
}

/// What comes next.
enum Next {
    End,
    Changed(std::path::PathBuf),
    Ended(ExitStatus),
}

impl Program {
    /// The program with its arguments; `words` is not empty.
    pub(super) fn new(
        words: Vec<OsString>,
        variables: [(&'static str, String); 2],
        grace: Duration,
    ) -> Self {
        let all: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let all = all.join(" ");
        let mut name: String = all.chars().take(NAME_CHARS_MAX).collect();
        if name.len() < all.len() {
            name.push('…');
        }
        Program { words, variables, grace, name: shown(&name) }
    }

    /// Keeps it running until a signal comes, and ends it then.
    pub(super) async fn run(&self, watch: &mut Watch, signals: &mut Signals) -> anyhow::Result<()> {
        tell(&format!("{} is started again when files change", self.name))?;
        if let Some(most) = watch.overflow() {
            tell(&format!("there are more files than {most}: the others are not watched"))?;
        }
        let mut backoff = BACKOFF_FIRST;
        loop {
            let began = Instant::now();
            let mut started = self.start()?;
            let next = tokio::select! {
                biased;
                _ = signals.next() => Next::End,
                ended = started.child.wait() => Next::Ended(ended?),
                path = watch.changed() => Next::Changed(path),
            };
            match next {
                Next::End => return self.stop(started, signals).await.map(drop),
                Next::Changed(path) => {
                    tell(&format!("{} changed: starting again", shown_path(&path)))?;
                    if self.stop(started, signals).await? {
                        return Ok(());
                    }
                    backoff = BACKOFF_FIRST;
                }
                Next::Ended(status) => {
                    // What it has started ends with it.
                    if self.stop(started, signals).await? {
                        return Ok(());
                    }
                    if began.elapsed() >= STEADY_AFTER {
                        backoff = BACKOFF_FIRST;
                    }
                    if self.rest(status, backoff, watch, signals).await? {
                        return Ok(());
                    }
                    backoff = (backoff * 2).min(BACKOFF_MAX);
                }
            }
        }
    }

    /// Waits until it is to be started again; answers whether it is to end instead.
    async fn rest(
        &self,
        status: ExitStatus,
        backoff: Duration,
        watch: &mut Watch,
        signals: &mut Signals,
    ) -> anyhow::Result<bool> {
        if status.success() {
            tell("the program has ended: it is started again when files change")?;
        } else {
            tell(&format!("the program failed, {status}: again in {}", seconds(backoff)))?;
        }
        tokio::select! {
            biased;
            _ = signals.next() => return Ok(true),
            path = watch.changed() => {
                tell(&format!("{} changed: starting again", shown_path(&path)))?;
            }
            () = tokio::time::sleep(backoff), if !status.success() => {}
        }
        Ok(false)
    }

    /// Starts it in a process group of its own: what ends this command by the terminal does not
    /// reach it before it is ended in order.
    fn start(&self) -> anyhow::Result<Started> {
        let (program, arguments) = self.words.split_first().context("no program is named")?;
        let mut command = Command::new(program);
        // The other variable for an address would contradict DATABASE_URL.
        command.args(arguments).envs(self.variables.clone()).env_remove("DATABASE_URL_FILE");
        command.stdin(Stdio::null()).process_group(0).kill_on_drop(true);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.name))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let group = pid.context("a program that was just started has a pid")?;
        Ok(Started { child, group, is_over: false })
    }

    /// Asks it and all that it has started to end, and kills what has not after the grace, or
    /// when a signal comes; answers whether one came.
    async fn stop(&self, mut started: Started, signals: &mut Signals) -> anyhow::Result<bool> {
        let group = started.group;
        // A group that is gone has ended.
        let _ = kill_process_group(group, Signal::TERM);
        let ended = async {
            let _ = started.child.wait().await;
            while test_kill_process_group(group).is_ok() {
                tokio::time::sleep(END_POLL).await;
            }
        };
        let (is_in_time, is_told_to_end) = tokio::select! {
            biased;
            () = ended => (true, false),
            _ = signals.next() => (false, true),
            () = tokio::time::sleep(self.grace) => (false, false),
        };
        if is_in_time {
            started.is_over = true;
        } else {
            drop(started);
            let why = match is_told_to_end {
                true => "there was another signal".to_owned(),
                false => format!("it has not ended within {}", seconds(self.grace)),
            };
            tell(&format!("the program is killed: {why}"))?;
        }
        Ok(is_told_to_end)
    }
}

/// A program that was started. Dropped before it is over, it is killed with all that it has
/// started.
struct Started {
    child: Child,
    group: Pid,
    is_over: bool,
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.is_over {
            // A group that is gone has ended.
            let _ = kill_process_group(self.group, Signal::KILL);
        }
    }
}

/// Says something of the program, apart from what it says itself.
fn tell(text: &str) -> io::Result<()> {
    let mut out = io::stdout();
    writeln!(out, "dev: {text}")?;
    out.flush()
}

fn shown_path(path: &Path) -> String {
    shown(&path.to_string_lossy())
}
