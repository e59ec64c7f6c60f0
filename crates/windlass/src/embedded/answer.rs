//! Asking a program something that it answers at once, and not waiting if it does not.

use std::fmt;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

/// The longest answer, in bytes; the rest is not read.
const ANSWER_BYTES_MAX: u64 = 4096;

/// How often a program that has answered is looked at until it ends.
const POLL: Duration = Duration::from_millis(1);

/// A program that did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Silent {
    program: PathBuf,
    question: String,
    time_max: Duration,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Silent { program, question, time_max } = self;
        write!(f, "{program:?} has not answered {question:?} within {time_max:?}")
    }
}

/// What a program answers to a question. `None` if it is not there, fails, or says
/// something that is no text. One that takes too long is killed with all it started.
pub(super) fn answer(
    program: &Path,
    question: &str,
    time_max: Duration,
) -> Result<Option<String>, Silent> {
    let began = Instant::now();
    let mut command = Command::new(program);
    command.arg(question).env("LC_ALL", "C").process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return Ok(None) };
    let (sender, receiver) = mpsc::channel();
    if let Some(stdout) = child.stdout.take() {
        // On a thread of its own: reading a pipe cannot be given up.
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let read = stdout.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes);
            // Nobody listens any more if it took too long.
            let _ = sender.send(read.map(|_| bytes));
        });
    }
    let said = receiver.recv_timeout(time_max);
    let is_over = |child: &mut Child| !matches!(child.try_wait(), Ok(None));
    while !is_over(&mut child) && began.elapsed() < time_max {
        sleep(POLL);
    }
    if !is_over(&mut child) {
        // Best effort: what cannot be killed is not ours to wait for.
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        let _ = child.wait();
        let (program, question) = (program.to_owned(), question.to_owned());
        return Err(Silent { program, question, time_max });
    }
    let has_succeeded = child.wait().is_ok_and(|status| status.success());
    let said = said.ok().and_then(Result::ok).filter(|_| has_succeeded);
    Ok(said.and_then(|bytes| String::from_utf8(bytes).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_what_a_program_writes_if_it_ends_well() {
        let ask = |program: &str| answer(Path::new(program), "--version", ANSWER_TIME);
        assert!(ask("sh").is_ok());
        assert_eq!(answer(Path::new("echo"), "yes", ANSWER_TIME), Ok(Some("yes\n".to_owned())));
        assert_eq!(ask("false"), Ok(None));
        assert_eq!(ask("/nowhere/postgres"), Ok(None));
    }

    /// More than any machine needs.
    const ANSWER_TIME: Duration = Duration::from_secs(60);

    #[test]
    fn a_program_that_hangs_is_killed_and_named() {
        let silent = answer(Path::new("sleep"), "600", Duration::from_millis(20)).unwrap_err();
        assert_eq!(silent.to_string(), "\"sleep\" has not answered \"600\" within 20ms");
    }
}
