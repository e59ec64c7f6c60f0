//! Telling people, or their programs, that something went wrong.
//!
//! A [`Hook`] is a webhook or a command, and what it is told of. Workers with
//! [`WorkerBuilder::hooks`](crate::WorkerBuilder::hooks) look every five seconds, one process at a
//! time, what there is to tell, and start a run for each notification: delivery is a task like any
//! other, retried for hours, and a dead letter if that does not help. See `docs/hooks.md`.
//!
//! This module sends nothing by itself and keeps nothing: what was told is known by the idempotency
//! keys of those runs.

mod address;
mod command;
mod delivery;
mod host;
mod notice;
mod watch;
mod webhook;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use windlass_core::{RetryPolicy, Secret};

use self::command::Command;
use self::watch::Watch;
use self::webhook::Webhook;
use crate::duties::{DutyCtx, OwnDuty};
use crate::error::{Error, ErrorKind};
use crate::worker::SETTING_MAX;
use crate::workflow::Registration;

/// The most hooks of a program.
pub const HOOKS_MAX: usize = 32;

/// The longest name of a hook, in bytes. It is part of idempotency keys, besides the name of a
/// queue.
pub const HOOK_NAME_BYTES_MAX: usize = 64;

/// The longest time that one attempt to deliver may take.
pub const HOOK_TIMEOUT_MAX: Duration = Duration::from_secs(5 * 60);

/// How long an attempt to deliver may take if nothing is said.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The queue of all deliveries: what fills the other queues is not to hold up the news of it.
pub(crate) const QUEUE: &str = "windlass.hooks";

/// How the workflows begin whose runs are notifications.
const WORKFLOW: &str = "windlass.hook/";

/// How often is looked what there is to tell.
const EVERY: Duration = Duration::from_secs(5);

/// What a hook is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A run ended failed. It is told once per round, with the tasks that failed.
    RunFailed,
    /// A task failed for good, whether its run goes on or not.
    DeadLetter,
    /// A task has been ready for longer than this, told once per queue and hour.
    QueueLag(Duration),
    /// A task has been ready for longer than this, and for as long no worker has served its queue;
    /// told once per queue and hour.
    NoWorker(Duration),
}

impl Trouble {
    /// Its name in what is sent.
    pub const fn word(self) -> &'static str {
        match self {
            Trouble::RunFailed => "run_failed",
            Trouble::DeadLetter => "dead_letter",
            Trouble::QueueLag(_) => "queue_lag",
            Trouble::NoWorker(_) => "no_worker",
        }
    }

    fn threshold(self) -> Option<Duration> {
        match self {
            Trouble::RunFailed | Trouble::DeadLetter => None,
            Trouble::QueueLag(threshold) | Trouble::NoWorker(threshold) => Some(threshold),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Whom to tell, and of what.
///
/// ```
/// use std::time::Duration;
/// use windlass::hooks::{Hook, Trouble};
///
/// let ops = Hook::webhook("ops", "https://hooks.example.com/windlass")
///     .secret("a long random text")
///     .on(Trouble::RunFailed)
///     .on(Trouble::QueueLag(Duration::from_secs(300)));
/// let pager = Hook::command("pager", "/usr/local/bin/page", ["--team", "orders"])
///     .on(Trouble::NoWorker(Duration::from_secs(60)));
/// ```
#[derive(Clone)]
#[must_use = "a hook does nothing until a worker has it"]
pub struct Hook {
    name: String,
    target: Target,
    troubles: Vec<Trouble>,
    timeout: Duration,
    secret: Option<Secret>,
    authority: Option<String>,
    allows_internal: bool,
}

#[derive(Clone)]
enum Target {
    Webhook { url: String },
    Command { program: String, args: Vec<String> },
}

impl Hook {
    fn new(name: String, target: Target) -> Self {
        Hook {
            name,
            target,
            troubles: Vec::new(),
            timeout: TIMEOUT,
            secret: None,
            authority: None,
            allows_internal: false,
        }
    }

    /// A hook that is told by a `POST` to an `http` or `https` address. Redirects are not followed.
    ///
    /// The name is of letters, digits, `-`, `_` and `.`, up to 64 bytes. Change it, and what was
    /// told before is told again if it is not long ago.
    pub fn webhook(name: impl Into<String>, url: impl Into<String>) -> Self {
        Hook::new(name.into(), Target::Webhook { url: url.into() })
    }

    /// A hook that is told by a program that is run, without a shell, with the notification on its
    /// standard input. Of the environment it gets `PATH`.
    pub fn command<A: Into<String>>(
        name: impl Into<String>,
        program: impl Into<String>,
        args: impl IntoIterator<Item = A>,
    ) -> Self {
        let args = args.into_iter().map(Into::into).collect();
        Hook::new(name.into(), Target::Command { program: program.into(), args })
    }

    /// Lets the hook be told of this as well. It must be told of something.
    pub fn on(mut self, trouble: Trouble) -> Self {
        if !self.troubles.contains(&trouble) {
            self.troubles.push(trouble);
        }
        self
    }

    /// How long an attempt to deliver may take, up to five minutes; 10 s if not said.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// What a webhook's requests are signed with; they are not signed if not said. Take it from a
    /// file or the environment with [`secrets`](crate::secrets).
    pub fn secret(mut self, secret: impl Into<Secret>) -> Self {
        self.secret = Some(secret.into());
        self
    }

    /// Whom a webhook trusts to vouch for its server, as certificates in PEM form, instead of those
    /// whom the machine trusts.
    pub fn authority(mut self, pem: impl Into<String>) -> Self {
        self.authority = Some(pem.into());
        self
    }

    /// Lets a webhook go to addresses that are not of the open internet, such as `127.0.0.1` and
    /// `10.0.0.1`: for tests and private networks, where nobody else chooses the URL. The addresses
    /// where clouds tell a machine its keys are refused all the same.
    pub fn allow_internal(mut self) -> Self {
        self.allows_internal = true;
        self
    }

    /// Checks all that can be checked without a look at the world.
    fn check(self) -> Result<Checked, Error> {
        let Hook { name, target, troubles, timeout, secret, authority, allows_internal } = self;
        let refuse = |why: String| refuse(format!("hook {name:?} {why}"));
        let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > HOOK_NAME_BYTES_MAX || !name.bytes().all(is_fit) {
            return Err(refuse(format!(
                "is not of 1 to {HOOK_NAME_BYTES_MAX} letters, digits, \"-\", \"_\" and \".\""
            )));
        }
        if troubles.is_empty() {
            return Err(refuse("is told of nothing".to_owned()));
        }
        for trouble in &troubles {
            let is_wrong = |time: &Duration| time.is_zero() || *time > SETTING_MAX;
            if let Some(time) = trouble.threshold().filter(is_wrong) {
                return Err(refuse(format!(
                    "is told of {trouble} after {time:?}, not more than zero and at most {SETTING_MAX:?}"
                )));
            }
        }
        if timeout.is_zero() || timeout > HOOK_TIMEOUT_MAX {
            return Err(refuse(format!(
                "has a timeout of {timeout:?}, not more than zero and at most {HOOK_TIMEOUT_MAX:?}"
            )));
        }
        let is_for_webhooks = secret.is_some() || authority.is_some() || allows_internal;
        let channel = match target {
            Target::Webhook { url } => Webhook::new(&url, secret, authority, allows_internal)
                .map(|webhook| Channel::Webhook(Box::new(webhook)))
                .map_err(&refuse)?,
            Target::Command { .. } if is_for_webhooks => {
                return Err(refuse(
                    "runs a command: secrets, authorities and addresses are for webhooks"
                        .to_owned(),
                ));
            }
            Target::Command { program, args } => {
                Command::new(program, args).map(Channel::Command).map_err(&refuse)?
            }
        };
        Ok(Checked { name, channel, troubles, timeout })
    }
}

/// Says nothing of secrets; the path of a URL is often one.
impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook")
            .field("name", &self.name)
            .field("troubles", &self.troubles)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A hook that can be used.
struct Checked {
    name: String,
    channel: Channel,
    troubles: Vec<Trouble>,
    timeout: Duration,
}

enum Channel {
    Webhook(Box<Webhook>),
    Command(Command),
}

/// How often is looked, and how often tried.
pub(crate) struct Pacing {
    every: Duration,
    retry: RetryPolicy,
}

impl Pacing {
    /// What programs have. The policy is part of the definition of a workflow: another one needs
    /// another version of it.
    pub(crate) fn usual() -> Self {
        Pacing { every: EVERY, retry: RetryPolicy::patient() }
    }

    /// For tests in real time.
    #[cfg(feature = "testing")]
    pub(crate) fn quick() -> Self {
        let retry = RetryPolicy::fixed(Duration::from_millis(10)).attempts(3);
        Pacing { every: Duration::from_secs(1), retry }
    }
}

/// What a worker does for the hooks of its program: the workflow of their deliveries, and the duty
/// that starts its runs.
pub(crate) fn declare(
    owner: &str,
    hooks: Vec<Hook>,
    pacing: Pacing,
) -> Result<(Registration, OwnDuty), Error> {
    if hooks.is_empty() {
        return Err(refuse(format!("the hooks of {owner:?} are none")));
    }
    if hooks.len() > HOOKS_MAX {
        let count = hooks.len();
        return Err(refuse(format!("{owner:?} has {count} hooks, the limit is {HOOKS_MAX}")));
    }
    let mut names = BTreeSet::new();
    let mut checked = Vec::new();
    for hook in hooks {
        let hook = hook.check()?;
        if !names.insert(hook.name.clone()) {
            return Err(refuse(format!("hook {:?} is declared twice", hook.name)));
        }
        checked.push(hook);
    }
    let hooks: Arc<[Checked]> = checked.into();
    let workflow = delivery::workflow(owner, Arc::clone(&hooks), pacing.retry)?;
    let registration = workflow.registration();
    let duty = format!("windlass.hooks/{owner}");
    let watch = Arc::new(Watch::new(hooks, workflow, &duty));
    let duty = OwnDuty::new(duty, pacing.every, move |ctx: DutyCtx| {
        let watch = Arc::clone(&watch);
        async move { watch.look(&ctx.windlass()).await }
    });
    Ok((registration, duty))
}

fn refuse(text: String) -> Error {
    Error::new(ErrorKind::Argument, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(hook: Hook) -> String {
        declare("shop", vec![hook], Pacing::usual())
            .map(drop)
            .expect_err("it makes no sense")
            .to_string()
    }

    #[test]
    fn hooks_that_make_no_sense_are_refused_by_name() {
        let hook = |name: &str| Hook::webhook(name, "https://example.com").on(Trouble::RunFailed);
        let declared = |hooks| declare("shop", hooks, Pacing::usual()).map(drop);
        declared(vec![hook("ops")]).expect("it makes sense");
        let cases = [
            (hook("o/s"), "hook \"o/s\" is not of 1 to 64 letters"),
            (hook(&"x".repeat(HOOK_NAME_BYTES_MAX + 1)), "is not of 1 to 64 letters"),
            (hook("ops").timeout(Duration::ZERO), "hook \"ops\" has a timeout of 0ns"),
            (hook("ops").timeout(HOOK_TIMEOUT_MAX * 2), "has a timeout of 600s"),
            (hook("ops").on(Trouble::QueueLag(Duration::ZERO)), "told of queue_lag after 0ns"),
            (Hook::webhook("ops", "https://example.com"), "hook \"ops\" is told of nothing"),
            (Hook::command("ops", "", [""; 0]).on(Trouble::DeadLetter), "no program"),
            (
                Hook::command("ops", "page", [""; 0]).on(Trouble::DeadLetter).secret("x"),
                "hook \"ops\" runs a command",
            ),
        ];
        for (hook, wanted) in cases {
            let text = refusal(hook);
            assert!(text.contains(wanted), "{text}");
        }
        let text = declared(vec![hook("a"), hook("a")]).unwrap_err().to_string();
        assert!(text.contains("hook \"a\" is declared twice"), "{text}");
        let many = (0..=HOOKS_MAX).map(|number| hook(&number.to_string())).collect();
        let text = declared(many).unwrap_err().to_string();
        assert!(text.contains("has 33 hooks, the limit is 32"), "{text}");
    }

    #[test]
    fn neither_the_secret_nor_the_path_of_a_hook_is_shown() {
        let hook = Hook::webhook("ops", "https://example.com/T0KEN").secret("s3cret");
        let shown = format!("{hook:?}");
        assert!(shown.contains("ops") && !shown.contains("T0KEN") && !shown.contains("s3cret"));
        let text = refusal(Hook::webhook("ops", "ftp://example.com/T0KEN").on(Trouble::RunFailed));
        assert!(!text.contains("T0KEN"), "{text}");
    }
}
