//! `windlass serve`, and the other commands against it.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Stdio};

use serde_json::Value;
use windlass::embedded::EmbeddedOptions;
use windlass::schedule::{Cadence, Schedule};
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use super::people::told;
use super::place::Place;
use super::text;

/// A server of a database, ended with the test.
pub(crate) struct Serving(Child);

impl Serving {
    /// Starts one that lets everyone in, and answers where it listens.
    pub(crate) fn start(url: &str, listen: &str) -> (Serving, String) {
        Serving::start_with(url, &["serve", "--insecure-dev", "--listen", listen])
    }

    /// Starts one that asks for tokens.
    pub(crate) fn guarded(url: &str) -> (Serving, String) {
        Serving::start_with(url, &["serve", "--listen", "127.0.0.1:0"])
    }

    fn start_with(url: &str, arguments: &[&str]) -> (Serving, String) {
        let mut command = super::command(arguments);
        command.env("DATABASE_URL", url).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the binary was built");
        let out = child.stdout.take().expect("its output is a pipe");
        let serving = Serving(child);
        let mut line = String::new();
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.trim().strip_prefix("WINDLASS_SERVER=").expect("where it listens");
        (serving, address.to_owned())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended by itself, which other assertions tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn through(server: &str, arguments: &[&str]) -> String {
    let mut command = super::command(arguments);
    let output = command.env("WINDLASS_SERVER", server).output().expect("the binary was built");
    assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn mail() -> Workflow<String> {
    let mut mail = Workflow::<String>::builder("mail");
    mail.task("send").retry(windlass::RetryPolicy::none()).run(async |ctx: Ctx<String>| match ctx
        .input()
        .as_str()
    {
        "nobody" => Err(TaskError::new("no such address")),
        _ => Ok(ctx.input().len()),
    });
    mail.build().expect("the workflow is right")
}

/// The JSON of a command, without what differs from moment to moment.
fn settled(text: &str) -> Value {
    fn forget(value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for field in ["now", "seen_at", "renewed_at", "swept_at", "at", "last_run_at"] {
                    fields.remove(field);
                }
                fields.values_mut().for_each(forget);
            }
            Value::Array(items) => items.iter_mut().for_each(forget),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut value = serde_json::from_str(text).unwrap_or_else(|_| panic!("no JSON: {text}"));
    forget(&mut value);
    value
}

#[tokio::test(flavor = "multi_thread")]
async fn every_command_works_against_a_database_and_against_a_server() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let postgres = options.start().await.expect("PostgreSQL is installed");
    let url = postgres.url();
    Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.expect("it is there");
    let (_serving, server) = Serving::start(&url, "127.0.0.1:0");

    // A worker without a database, on the same code as one with it.
    let far = Windlass::connect_server(&server).expect("it is an address");
    let mail = mail();
    let worker = far.worker().register(&mail).name("far").spawn().expect("it is set up");
    let monthly = Cadence::every(std::time::Duration::from_secs(30 * 86_400)).expect("it is one");
    let schedule = Schedule::new("monthly", &mail, "all".to_owned(), monthly);
    far.schedule(schedule).await.expect("it is made");
    let run = far.start(&mail, "sailor".to_owned()).await.expect("it is started");
    run.wait().await.expect("it ends");
    let dead = far.start(&mail, "nobody".to_owned()).await.expect("it is started");
    dead.wait().await.expect("it ends");
    worker.drain().await.expect("nothing is left to do");

    let (run, dead) = (run.id().to_string(), dead.id().to_string());
    let looks: &[&[&str]] = &[
        &["workflows"],
        &["runs"],
        &["runs", "--state", "failed"],
        &["run", &run],
        &["tasks", &run],
        &["events", &run],
        &["steps", &run],
        &["why", &dead],
        &["dead", "list"],
        &["log"],
        &["retention", "list"],
        &["quotas", "list"],
        &["schedules", "list"],
        &["schedules", "show", "monthly"],
        &["workers", "--all"],
        &["duties"],
    ];
    for arguments in looks {
        let arguments = [*arguments, &["--json"]].concat();
        let (near, far) = (told(&url, &arguments), through(&server, &arguments));
        assert_eq!(settled(&near), settled(&far), "{arguments:?}");
        let plain = &arguments[..arguments.len() - 1];
        assert!(!through(&server, plain).is_empty(), "{plain:?}");
    }
    for arguments in [&["leaders"][..], &["queues"], &["top", "--once"]] {
        assert!(!through(&server, arguments).is_empty(), "{arguments:?}");
    }
    let acts: &[&[&str]] = &[
        &["start", "mail", "--input", "\"again\""],
        &["retry", &dead],
        &["cancel", &dead, "--reason", "enough"],
        &["schedules", "pause", "monthly"],
        &["schedules", "resume", "monthly"],
        &["schedules", "trigger", "monthly"],
        &["schedules", "delete", "monthly"],
    ];
    for arguments in acts {
        assert!(!through(&server, arguments).is_empty(), "{arguments:?}");
    }
    let started: Value = serde_json::from_str(&told(&url, &["runs", "--json"])).expect("JSON");
    assert!(started.to_string().contains("cancelled"), "{started}");
    // The server logs a refusal, and the command line does not log it again.
    let mut late = super::command(&["retry", &dead]);
    let late = late.env("WINDLASS_SERVER", &server).output().expect("the binary was built");
    assert!(!late.status.success(), "{late:?}");
    let log = through(&server, &["log", "--run", &dead, "--action", "retry_run"]);
    assert_eq!(log.matches("retry_run (refused)").count(), 1, "{log}");
    let log = through(&server, &["log", "--run", &dead, "--action", "retry_run", "--json"]);
    let log: Value = serde_json::from_str(&log).expect("JSON");
    assert_eq!(log.as_array().expect("it is a list").len(), 3, "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_an_api_role_does_not_start_while_row_level_security_is_off() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let postgres = options.start().await.expect("PostgreSQL is installed");
    let url = |role: &str| postgres.url().replacen("windlass@", &format!("{role}@"), 1);
    let connecting = tokio_postgres::connect(&postgres.url(), tokio_postgres::NoTls).await;
    let (admin, connection) = connecting.expect("it runs");
    tokio::spawn(connection);
    let execute = async |sql: &str| admin.batch_execute(sql).await.expect("it is right");
    let grants = text(&super::windlass(&["migrate", "--grants"]).stdout);
    execute(&grants).await;
    let owner = PostgresOptions::new(url("windlass_owner")).migrate(true);
    Windlass::connect(owner).await.expect("the database is empty");
    execute(&grants).await;

    let listen = ["--listen", "127.0.0.1:0", "--api-role", "windlass_api"];
    let arguments = [&["serve", "--insecure-dev"], &listen[..]].concat();
    let engine = url("windlass_engine");
    drop(Serving::start_with(&engine, &arguments));
    execute("alter table windlass.runs disable row level security").await;
    let mut command = super::command(&arguments);
    command.env("DATABASE_URL", &engine).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut serving = Serving(command.spawn().expect("the binary was built"));
    let (out, error) = (serving.0.stdout.take(), serving.0.stderr.take());
    let mut line = String::new();
    BufReader::new(out.expect("a pipe")).read_line(&mut line).expect("it can be read");
    assert_eq!(line, "", "it listens");
    let mut text = String::new();
    error.expect("a pipe").read_to_string(&mut text).expect("it can be read");
    assert_eq!(serving.0.wait().expect("it ends").code(), Some(1), "{text}");
    super::assert_line(&text, &["error: ", "\"windlass_api\"", "sees windlass.runs whole"]);
}
