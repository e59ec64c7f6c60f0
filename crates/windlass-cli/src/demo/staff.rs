//! The worker processes, seen from the demo.

use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc;
use windlass::{ErrorKind, Windlass};

use super::Pace;
use super::faults::{Blow, Striker, Victim};
use super::report::{LogLine, Report};
use super::worker::DRAIN;
use crate::text::coded;

/// The most processes of one demo; beyond it, they end as fast as they are started.
const HIRED_MAX: usize = 100;

/// How long all processes together may take to drain before they are killed.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(40);

/// Something that the story hears of.
pub(super) enum Heard {
    /// Something was done to a worker.
    Struck(Blow, Victim),
    /// A worker's engine logged a warning or an error.
    Logged { worker: String, line: LogLine },
}

/// One worker process.
struct Member {
    name: String,
    child: Child,
    pid: Pid,
    /// `None` once it was told to drain, and while it is being told.
    commands: Option<ChildStdin>,
    end: End,
}

/// Why a worker process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It was told to drain.
    Told,
    /// It was killed by the story.
    Killed,
    /// Nobody knows.
    ByItself,
}

/// The processes that were not waited for yet: their pids are theirs.
#[derive(Default)]
pub(super) struct Members(Mutex<Vec<Member>>);

impl Members {
    fn lock(&self) -> MutexGuard<'_, Vec<Member>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills or freezes a worker, unless it is gone or about to leave.
    pub(super) fn strike(&self, name: &str, blow: Blow) -> bool {
        let mut members = self.lock();
        let is_it = |member: &&mut Member| member.name == name && member.end == End::ByItself;
        let Some(member) = members.iter_mut().find(is_it) else { return false };
        match blow {
            Blow::Kill => {
                member.end = End::Killed;
                kill_process(member.pid, Signal::KILL).is_ok()
            }
            Blow::Freeze => kill_process(member.pid, Signal::STOP).is_ok(),
        }
    }
}

/// All worker processes. Dropped, they are killed.
pub(super) struct Staff {
    program: PathBuf,
    url: String,
    pace: Pace,
    hired: usize,
    members: Arc<Members>,
    striker: Arc<Striker>,
    sender: mpsc::UnboundedSender<Heard>,
    heard: mpsc::UnboundedReceiver<Heard>,
}

impl Staff {
    /// A staff without members, for the database of an engine.
    pub(super) fn new(windlass: &Windlass, url: String, pace: Pace) -> anyhow::Result<Self> {
        let program = std::env::current_exe().context("this program's file is not to be found")?;
        let (sender, heard) = mpsc::unbounded_channel();
        let members = Arc::new(Members::default());
        let striker = Striker::new(Arc::clone(windlass.store()), Arc::clone(&members));
        let striker = Arc::new(striker);
        Ok(Staff { program, url, pace, hired: 0, members, striker, sender, heard })
    }

    /// Starts a worker process and answers its name.
    ///
    /// To be called on the thread that lives as long as the demo: on Linux the worker
    /// dies with the thread that started it.
    pub(super) fn hire(&mut self) -> anyhow::Result<String> {
        let unavailable = |text| coded(ErrorKind::Unavailable, text);
        ensure!(
            self.hired < HIRED_MAX,
            unavailable(format!("{HIRED_MAX} worker processes were started, and ended"))
        );
        self.hired += 1;
        let name = format!("worker-{}", self.hired);
        let spawned = Command::new(&self.program)
            .args(["demo-worker", "--name", &name, "--url", &self.url])
            .args(["--speed", &self.pace.speed.to_string()])
            // A group of its own: what ends the demo's group is for the demo to pass on, also
            // while a worker has just begun and would not know what to do about it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned
            .map_err(|error| unavailable(format!("{:?} cannot be run: {error}", self.program)))?;
        let (commands, reports) = (child.stdin.take(), child.stdout.take());
        let pid = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
        let (Some(pid), Some(_), Some(reports)) = (pid, &commands, reports) else {
            return Err(unavailable(format!("{name} ended before it began")));
        };
        let ear = Ear { striker: Arc::clone(&self.striker), sender: self.sender.clone() };
        tokio::spawn(ear.listen(name.clone(), reports));
        let member = Member { name: name.clone(), child, pid, commands, end: End::ByItself };
        self.members.lock().push(member);
        Ok(name)
    }

    /// The next thing that was heard, if there is one.
    pub(super) fn next_heard(&mut self) -> Option<Heard> {
        self.heard.try_recv().ok()
    }

    /// The workers that are not about to leave.
    pub(super) fn names(&self) -> Vec<String> {
        let members = self.members.lock();
        let staying = members.iter().filter(|member| member.end == End::ByItself);
        staying.map(|member| member.name.clone()).collect()
    }

    /// Lets a frozen worker go on.
    pub(super) fn thaw(&self, name: &str) -> anyhow::Result<()> {
        let members = self.members.lock();
        let member = members.iter().find(|member| member.name == name);
        let member = member.with_context(|| format!("{name} is not there"))?;
        Ok(kill_process(member.pid, Signal::CONT)?)
    }

    /// Tells a worker to drain.
    pub(super) async fn dismiss(&self, name: &str) {
        let commands = {
            let mut members = self.members.lock();
            let member = members.iter_mut().find(|member| member.name == name);
            member.and_then(|member| {
                member.end = End::Told;
                member.commands.take()
            })
        };
        let Some(mut commands) = commands else { return };
        // A worker that cannot be told is gone, which is found out soon enough.
        let _ = commands.write_all(format!("{DRAIN}\n").as_bytes()).await;
        // Closed, it would say that the demo is dead.
        let mut members = self.members.lock();
        if let Some(member) = members.iter_mut().find(|member| member.name == name) {
            member.commands = Some(commands);
        }
    }

    /// The workers that have ended since the last time, and how.
    pub(super) fn departed(&self) -> anyhow::Result<Vec<Departure>> {
        let mut departed = Vec::new();
        let mut members = self.members.lock();
        for member in members.iter_mut() {
            if let Some(exit) = member.child.try_wait()? {
                let (name, end) = (member.name.clone(), member.end);
                departed.push(Departure { name, exit, end });
            }
        }
        members.retain(|member| !departed.iter().any(|gone| gone.name == member.name));
        Ok(departed)
    }

    /// Drains all workers; those that take too long are killed.
    pub(super) async fn dismiss_all(self) -> anyhow::Result<()> {
        for member in self.members.lock().iter() {
            // A frozen one could not leave; one that is gone need not.
            let _ = kill_process(member.pid, Signal::CONT);
        }
        for name in self.names() {
            self.dismiss(&name).await;
        }
        let mut members = std::mem::take(&mut *self.members.lock());
        let ended = async {
            for member in &mut members {
                member.child.wait().await?;
            }
            anyhow::Ok(())
        };
        // What is left when the time is up is killed by being dropped.
        match tokio::time::timeout(DRAIN_TIME_MAX, ended).await {
            Ok(ended) => ended,
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Staff {
    fn drop(&mut self) {
        // Whoever listens to them has a share in them, so this does not happen by itself.
        self.members.lock().clear();
    }
}

/// A worker process that ended.
pub(super) struct Departure {
    pub(super) name: String,
    pub(super) exit: ExitStatus,
    pub(super) end: End,
}

/// Listens to one worker.
struct Ear {
    striker: Arc<Striker>,
    sender: mpsc::UnboundedSender<Heard>,
}

impl Ear {
    /// Passes on what a worker says until it has nothing more to say. Blows are dealt at
    /// once.
    async fn listen(self, worker: String, reports: ChildStdout) {
        let mut lines = BufReader::new(reports).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // A line that was cut off by a kill is no report.
            match Report::parse(&line) {
                Ok(Report::Began { tried, blow }) => {
                    let (striker, sender) = (Arc::clone(&self.striker), self.sender.clone());
                    let worker = worker.clone();
                    tokio::spawn(async move {
                        if let Some(victim) = striker.strike(worker, tried, blow).await {
                            // If nobody listens any more, the story is over.
                            let _ = sender.send(Heard::Struck(blow, victim));
                        }
                    });
                }
                Ok(Report::Logged(line)) => {
                    let _ = self.sender.send(Heard::Logged { worker: worker.clone(), line });
                }
                Err(_) => {}
            }
        }
    }
}
