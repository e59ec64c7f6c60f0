//! A hook that is a program: run without a shell, with the notification on its standard input.

use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStderr};
use tokio::time::timeout;

use super::delivery::Undelivered;
use super::notice::{ERROR_CHARS_MAX, cut};

/// How long what a program has said is waited for once it has ended: something that it left behind
/// may hold its standard error open for ever.
const LAST_WORDS_MAX: Duration = Duration::from_millis(200);

/// The most bytes that are kept of what a program says: enough for the characters that are told.
const SAID_BYTES_MAX: u64 = 4 * (ERROR_CHARS_MAX as u64 + 1);

pub(super) struct Command {
    program: String,
    args: Vec<String>,
}

impl Command {
    pub(super) fn new(program: String, args: Vec<String>) -> Result<Self, String> {
        if program.is_empty() {
            return Err("has no program".to_owned());
        }
        if args.iter().chain([&program]).any(|text| text.contains('\0')) {
            return Err("has a NUL in its program or arguments".to_owned());
        }
        Ok(Command { program, args })
    }

    /// Runs the program to its end. Dropped before that, it is killed with all that it has started.
    pub(super) async fn run(&self, body: String) -> Result<(), Undelivered> {
        let program = &self.program;
        let mut command = tokio::process::Command::new(program);
        command.args(&self.args).env_clear().kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        if let Some(path) = std::env::var_os("PATH") {
            command.env("PATH", path);
        }
        #[cfg(unix)]
        command.process_group(0);
        let child = command.spawn();
        let failed = |why: String| Undelivered::ForNow(format!("could not run {program:?}: {why}"));
        let mut child = child.map_err(|error| failed(error.to_string()))?;
        let group = Group::of(&child);
        let (stdin, stderr) = (child.stdin.take(), child.stderr.take());
        let mut said = Vec::new();
        let ended = {
            let speak = async {
                if let Some(mut stdin) = stdin {
                    // A program that does not care to read has not failed by that.
                    let _ = stdin.write_all(body.as_bytes()).await;
                }
            };
            let talk = async { tokio::join!(speak, hear(stderr, &mut said)) };
            tokio::pin!(talk);
            tokio::select! {
                biased;
                _ = &mut talk => child.wait().await,
                ended = child.wait() => {
                    let _ = timeout(LAST_WORDS_MAX, talk).await;
                    ended
                }
            }
        };
        group.let_go();
        let status = ended.map_err(|error| failed(error.to_string()))?;
        if status.success() {
            return Ok(());
        }
        let said = cut(String::from_utf8_lossy(&said).trim());
        Err(Undelivered::ForNow(format!("ran {program:?}, which ended with {status}: {said:?}")))
    }
}

/// Keeps the beginning of what a program says, and reads the rest, so that it can go on.
async fn hear(stderr: Option<ChildStderr>, said: &mut Vec<u8>) {
    let Some(mut stderr) = stderr else { return };
    let kept = (&mut stderr).take(SAID_BYTES_MAX).read_to_end(said).await;
    if kept.is_ok() {
        let _ = tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await;
    }
}

/// The processes that a program has started, itself included: killed when this is dropped.
struct Group {
    #[cfg(unix)]
    leader: Option<rustix::process::Pid>,
}

impl Group {
    #[cfg(unix)]
    fn of(child: &Child) -> Self {
        let number = child.id().and_then(|id| i32::try_from(id).ok());
        Group { leader: number.and_then(rustix::process::Pid::from_raw) }
    }

    #[cfg(not(unix))]
    fn of(_: &Child) -> Self {
        Group {}
    }

    /// The program has ended by itself: its number may be another's by now.
    #[cfg_attr(not(unix), expect(unused_mut))]
    fn let_go(mut self) {
        #[cfg(unix)]
        {
            self.leader = None;
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(leader) = self.leader {
            // It may be gone already, and then there is nothing to kill.
            let _ = rustix::process::kill_process_group(leader, rustix::process::Signal::KILL);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    async fn shell(script: &str, body: &str) -> Result<(), String> {
        let args = vec!["-c".to_owned(), script.to_owned()];
        let command = Command::new("sh".to_owned(), args).expect("it is a program");
        command.run(body.to_owned()).await.map_err(|undelivered| match undelivered {
            Undelivered::ForNow(why) => why,
            Undelivered::ForGood(why) => panic!("it may help to try again: {why}"),
        })
    }

    #[tokio::test]
    async fn a_program_gets_the_notification_and_nothing_of_the_environment() {
        let body = "{\"n\": 1}".repeat(50_000);
        let script = format!("test $(wc -c) -eq {} && test -z \"$HOME$CARGO\"", body.len());
        shell(&script, &body).await.unwrap();
    }

    #[tokio::test]
    async fn a_program_that_does_not_read_has_not_failed() {
        shell("exec 0<&-; exit 0", &"x".repeat(1 << 20)).await.unwrap();
    }

    #[tokio::test]
    async fn what_a_program_complains_of_is_told_and_cut() {
        let why = shell("echo 'no such pager' >&2; exit 3", "").await.unwrap_err();
        assert!(why.contains("exit status: 3: \"no such pager\""), "{why}");
        let why =
            shell("head -c 1000000 /dev/zero | tr '\\0' x >&2; exit 1", "").await.unwrap_err();
        assert!(why.contains(&format!("\"{}…\"", "x".repeat(ERROR_CHARS_MAX))), "{why}");
    }

    #[tokio::test]
    async fn what_a_program_leaves_behind_is_not_waited_for() {
        let begun = std::time::Instant::now();
        shell("sleep 60 & exit 0", "").await.unwrap();
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[tokio::test]
    async fn a_program_that_is_given_up_is_killed_with_what_it_has_started() {
        let directory = std::env::temp_dir().join(format!("windlass-hook-{}", std::process::id()));
        let script =
            format!("sleep 60 & echo $! > {0}.new; mv {0}.new {0}; wait", directory.display());
        let running = shell(&script, "");
        let begun = async {
            while !directory.exists() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            ended = running => panic!("{ended:?}"),
            begun = timeout(Duration::from_secs(30), begun) => begun.unwrap(),
        }
        let pid: i32 = std::fs::read_to_string(&directory).unwrap().trim().parse().unwrap();
        std::fs::remove_file(&directory).unwrap();
        let pid = rustix::process::Pid::from_raw(pid).unwrap();
        let gone = async {
            while rustix::process::test_kill_process(pid).is_ok() && !is_zombie(pid) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), gone).await.expect("it is killed");
    }

    /// One that nobody waits for is as good as gone.
    fn is_zombie(pid: rustix::process::Pid) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" Z")))
    }
}
