//! `windlass dev`: a database that is there as long as someone wants it.

use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::NoTls;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use crate::assert_line;
use crate::place::{Place, Running, is_alive, wait_until};

/// A `windlass dev` at work, and the address that it says.
fn dev(place: &Place) -> (Running, String) {
    let mut dev = Running::spawn(&["dev", "--data", &place.data()]);
    let line = dev.read_to("DATABASE_URL=");
    dev.read_to("Press Ctrl-C");
    let url = line.trim().strip_prefix("DATABASE_URL=").unwrap().to_owned();
    (dev, url)
}

/// The version of the schema.
async fn schema_version(url: &str) -> i32 {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = "select max(version) from windlass.migrations";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test]
async fn dev_offers_a_migrated_database_until_the_last_one_leaves_and_keeps_its_data() {
    let place = Place::new();
    let (first, url) = dev(&place);
    let version = schema_version(&url).await;
    assert!(version >= 1);
    let server = place.server().unwrap();
    let (second, same_url) = dev(&place);
    assert_line(&second.seen, &["was running already", &server.as_raw_pid().to_string()]);
    assert_eq!(same_url, url);

    first.signal(Signal::INT);
    let (status, out) = first.end();
    assert!(status.success(), "{out}");
    assert_line(&out, &["is still used by others"]);
    assert!(is_alive(server));
    second.signal(Signal::INT);
    let (status, out) = second.end();
    assert!(status.success(), "{out}");
    assert_line(&out, &["was stopped"]);
    assert!(!is_alive(server));
    assert_eq!(place.list(), ["data"]);

    let (third, url) = dev(&place);
    assert_eq!(schema_version(&url).await, version);
    third.signal(Signal::TERM);
    assert!(third.end().0.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn dev_restarts_a_postgres_that_was_killed_and_a_run_finishes() {
    let place = Place::new();
    let (mut dev, database) = dev(&place);
    let server = server_of(&dev);
    let mut mail = Workflow::<u64>::builder("mail");
    mail.task("send").run(|ctx: Ctx<u64>| async move { Ok::<_, TaskError>(*ctx.input() + 1) });
    let mail = mail.build().unwrap();
    let windlass = Windlass::connect_server(server.as_str()).unwrap();
    let worker = windlass.worker().register(&mail).spawn().unwrap();
    windlass.start(&mail, 1).await.unwrap().wait().await.unwrap();

    // The postmaster alone, as the kernel does when memory runs out: its sessions notice later.
    let killed = place.server().unwrap();
    kill_process(killed, Signal::KILL).unwrap();
    dev.read_to("died: restarting it");
    let again = dev.read_to("is running again (pid ");
    assert!(!again.contains(&killed.as_raw_pid().to_string()), "{again}");

    // With both variables of dev, every command works.
    let run = |arguments: &[&str]| {
        let mut command = crate::command(arguments);
        command.env("DATABASE_URL", &database).env("WINDLASS_SERVER", &server);
        let out = tokio::task::block_in_place(|| command.output().unwrap());
        let code = out.status.code();
        (code, crate::text(&out.stdout) + &crate::text(&out.stderr))
    };
    let (code, out) = run(&["start", "mail", "--input", "41", "--wait", "--timeout", "60s"]);
    assert_eq!(code, Some(0), "{out}");
    let (_, runs) = run(&["runs"]);
    let newest: String = runs.lines().nth(1).unwrap().chars().take(36).collect();
    for arguments in [&["run", "--last"][..], &["run", &newest[..35]]] {
        let (code, out) = run(arguments);
        assert_eq!(code, Some(0), "{arguments:?}: {out}");
        assert_line(&out, &["output of send: 42"]);
    }
    for command in ["runs", "workers", "queues", "leaders", "audit", "migrate"] {
        let (code, out) = run(&[command]);
        assert_eq!(code, Some(0), "{command}: {out}");
    }
    worker.drain().await.unwrap();
    dev.signal(Signal::INT);
    let (status, out) = dev.end();
    assert!(status.success(), "{out}");
    assert_eq!(out.matches("died").count(), 1, "{out}");
    assert_line(&out, &["was stopped"]);
    assert!(place.server().is_none());
}

#[tokio::test]
async fn dev_ends_with_an_error_if_postgres_cannot_be_restarted() {
    let place = Place::new();
    let (mut dev, _) = dev(&place);
    let server = place.server().unwrap();
    std::fs::remove_file(place.directory().join("data/PG_VERSION")).unwrap();
    kill_process(server, Signal::KILL).unwrap();
    dev.read_to("died: restarting it");
    let (status, out) = dev.end();
    assert_eq!(status.code(), Some(1), "{out}");
    assert!(!out.contains("is running again"), "{out}");
    assert!(place.server().is_none());
}

/// The address of the server that a `windlass dev` printed.
fn server_of(dev: &Running) -> String {
    let line = dev.seen.lines().find_map(|line| line.strip_prefix("WINDLASS_SERVER="));
    line.unwrap().to_owned()
}

/// A working directory beside a place; gone with the test.
struct Work(PathBuf);

impl Work {
    fn new(name: &str) -> Self {
        let name = format!("windlass-dev-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        Work(directory)
    }

    /// A `windlass dev` in it that runs a script.
    fn dev(&self, place: &Place, grace: &str, script: &str) -> Running {
        let data = place.data();
        // Not for ever: a test that fails leaves it behind.
        let rest = "for i in $(seq 2000); do sleep 0.05; done";
        // What dev says of the program has only its first words.
        let script = &format!(": a script of a test; {}", script.replace("REST", rest));
        let arguments = ["dev", "--data", &data, "--grace", grace, "--", "sh", "-c", script];
        Running::spawn_in(&self.0, &arguments)
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The number behind a word of a script.
fn pid_of(line: &str) -> Pid {
    Pid::from_raw(line.split_whitespace().last().unwrap().parse().unwrap()).unwrap()
}

#[tokio::test]
async fn dev_runs_a_program_with_the_database_and_starts_it_again_when_files_change() {
    let (place, work) = (Place::new(), Work::new("changes"));
    let script = "trap 'echo asked to end $$; exit 0' TERM; echo \"has $DATABASE_URL\"; \
                  echo \"and $WINDLASS_SERVER\"; echo up $$; REST";
    let mut dev = work.dev(&place, "60s", script);
    let line = dev.read_to("DATABASE_URL=");
    let url = line.trim().strip_prefix("DATABASE_URL=").unwrap().to_owned();
    assert_eq!(dev.read_to("has ").trim(), format!("has {url}"));
    assert_eq!(dev.read_to("and ").trim(), format!("and {}", server_of(&dev)));
    assert!(schema_version(&url).await >= 1);
    let first = dev.read_to("up ");

    std::fs::create_dir(work.0.join("target")).unwrap();
    std::fs::write(work.0.join("target/built"), "is not watched").unwrap();
    std::fs::write(work.0.join("main.rs"), "fn main() {}").unwrap();
    assert_eq!(dev.read_to("changed"), "dev: main.rs changed: starting again\n");
    let ended = dev.read_to("asked to end");
    assert_eq!(pid_of(&ended), pid_of(&first), "the old one ends before the new one is there");
    let second = dev.read_to("up ");
    assert_ne!(pid_of(&second), pid_of(&first));

    dev.signal(Signal::INT);
    assert_eq!(pid_of(&dev.read_to("asked to end")), pid_of(&second));
    let (status, out) = dev.end();
    assert!(status.success(), "{out}");
    assert_line(&out, &["was stopped"]);
    assert!(!is_alive(pid_of(&second)));
    assert_eq!(out.matches("changed").count(), 1, "{out}");
}

#[test]
fn dev_starts_a_program_that_crashed_again_after_a_while_and_one_that_ended_only_after_a_change() {
    let (place, work) = (Place::new(), Work::new("crashes"));
    let script = "if [ -e done ]; then echo finished; exit 0; fi; echo crashing; exit 7";
    let mut dev = work.dev(&place, "10s", script);
    for backoff in ["500 ms", "1.00 s"] {
        dev.read_to("crashing");
        let line = dev.read_to("dev: the program failed");
        assert!(
            line.contains("exit status: 7") && line.contains(&format!("again in {backoff}")),
            "{line}"
        );
    }
    std::fs::write(work.0.join("done"), "").unwrap();
    dev.read_to("finished");
    dev.read_to("dev: the program has ended");
    std::fs::write(work.0.join("other"), "").unwrap();
    dev.read_to("other changed");
    dev.read_to("finished");
    dev.signal(Signal::TERM);
    assert!(dev.end().0.success());
}

#[test]
fn dev_kills_a_program_that_does_not_end_with_all_that_it_has_started() {
    let (place, work) = (Place::new(), Work::new("kills"));
    let script = "trap '' TERM; sleep 300 >/dev/null 2>&1 & echo below $!; echo up $$; REST";
    let mut dev = work.dev(&place, "100ms", script);
    let (below, up) = (pid_of(&dev.read_to("below ")), pid_of(&dev.read_to("up ")));
    dev.signal(Signal::INT);
    dev.read_to("killed: it has not ended within 100 ms");
    let (status, out) = dev.end();
    assert!(status.success(), "{out}");
    wait_until("all processes are dead", || !is_alive(below) && !is_alive(up));
}

#[test]
fn dev_ends_at_once_if_it_is_told_to_while_a_program_that_is_to_be_started_again_does_not_end() {
    let (place, work) = (Place::new(), Work::new("hurry"));
    let mut dev = work.dev(&place, "600s", "trap '' TERM; echo up $$; REST");
    let up = pid_of(&dev.read_to("up "));
    std::fs::write(work.0.join("main.rs"), "fn main() {}").unwrap();
    dev.read_to("main.rs changed");
    dev.signal(Signal::INT);
    let pid = dev.pid();
    wait_until("dev has ended", || !is_alive(pid));
    let (status, out) = dev.end();
    assert!(status.success(), "{out}");
    assert_line(&out, &["the program is killed: there was another signal"]);
    assert_eq!(out.lines().filter(|line| line.starts_with("up ")).count(), 1, "{out}");
    wait_until("the program is dead", || !is_alive(up));
}

#[test]
fn dev_says_which_program_cannot_be_started_and_stops_its_server() {
    let place = Place::new();
    let out = crate::windlass(&["dev", "--data", &place.data(), "--", "/nowhere/program", "x"]);
    assert_eq!(out.status.code(), Some(1));
    assert_line(&crate::text(&out.stderr), &["cannot start /nowhere/program x", "No such file"]);
    assert!(place.server().is_none());
}
