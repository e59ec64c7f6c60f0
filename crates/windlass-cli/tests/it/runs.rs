//! `windlass start`, `runs`, `run`, `tasks`, `events`, `cancel`, `retry` and what is beside them,
//! on a real server.

use std::process::Output;

use serde_json::Value;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, RetryPolicy, TaskError, Windlass, Workflow};

use super::people::{ask, told};
use super::place::Place;
use super::{assert_line, command, text};

/// A workflow that does as its input says.
fn mail(version: u32) -> Workflow<Value> {
    let mut mail = Workflow::<Value>::builder("mail").version(version);
    mail.task("send").retry(RetryPolicy::none()).run(
        async |ctx: Ctx<Value>| match ctx.input()["to"].as_str() {
            Some("nobody") => Err(TaskError::new("no mailbox\u{1b}[2J\u{202e}").permanent()),
            Some(_) | None => Ok(ctx.input().clone()),
        },
    );
    mail.build().unwrap()
}

fn parsed(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout)
        .unwrap_or_else(|error| panic!("{error}: {:?} {:?}", text(&out.stdout), text(&out.stderr)))
}

fn asked_json(url: &str, arguments: &[&str]) -> Value {
    let out = ask(url, &[arguments, &["--json"]].concat());
    assert!(out.status.success(), "{arguments:?}: {}", text(&out.stderr));
    parsed(&out)
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_are_started_looked_at_and_steered_from_the_command_line() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    assert!(told(&url, &["workflows"]).starts_with("no workflows"));
    assert_eq!(told(&url, &["runs"]), "no runs\n");
    let out = ask(&url, &["start", "mail"]);
    assert_line(&text(&out.stderr), &[r#"workflow "mail" (there are no workflows"#, "WL-0004"]);

    let duties = windlass.duties(std::time::Duration::from_millis(100)).unwrap();
    let (first, second) = (mail(1), mail(2));
    let worker =
        windlass.worker().register(&first).register(&second).name("mail-worker").spawn().unwrap();
    // They are known once the worker has joined.
    windlass.start(&second, Value::Null).await.unwrap().wait().await.unwrap();
    let all = asked_json(&url, &["workflows"]);
    assert_eq!((&all[0]["name"], &all[0]["version"]), (&"mail".into(), &2.into()));
    assert_eq!((&all[1]["version"], &all[1]["tasks"][0]), (&1.into(), &"send".into()));
    assert_line(&told(&url, &["workflows", "mail"]), &["mail", "2", "1"]);

    succeeded(&url);
    let failed = failed(&url);
    wrong_starts_are_refused(&url);

    worker.drain().await.unwrap();
    steered(&url, &failed);
    duties.stop().await;
    queues_are_listed(&url, &windlass).await;
}

fn succeeded(url: &str) {
    let id = "01981c2e-7a40-7c1f-9d57-0242ac120002";
    let start = [
        &["start", "mail", "--version", "1", "--input", r#"{"to":"anna","sum":1.50}"#, "--id", id],
        &[
            "--tenant",
            "acme",
            "--key",
            "k1",
            "--metadata",
            "order=42",
            "--priority",
            "-5",
            "--wait",
        ][..],
    ];
    let out = ask(url, &start.concat());
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let said = text(&out.stdout);
    assert!(said.starts_with(&format!("{id}\nsucceeded after ")), "{said}");
    assert_line(&said, &[r#"output of send: {"sum":1.5,"to":"anna"}"#]);
    let run = asked_json(url, &["run", id]);
    for (field, value) in [
        ("run", Value::from(id)),
        ("workflow", "mail".into()),
        ("version", 1.into()),
        ("tenant", "acme".into()),
        ("state", "succeeded".into()),
        ("key", "k1".into()),
        ("priority", (-5).into()),
        ("round", 1.into()),
        ("open_tasks", 0.into()),
        ("has_more_tasks", false.into()),
    ] {
        assert_eq!(run[field], value, "{field} of {run}");
    }
    assert_eq!(run["metadata"]["order"], "42");
    assert_eq!(run["input"]["to"], "anna");
    let task = &run["tasks"][0];
    assert_eq!((&task["task"], &task["state"]), (&"send".into(), &"succeeded".into()));
    assert_eq!(task["output"]["to"], "anna");
    for time in [&run["created_at"], &run["ended_at"], &task["started_at"], &task["ended_at"]] {
        assert!(time.is_string(), "{run}");
    }
    let page = told(url, &["run", id]);
    assert_line(&page, &["metadata", "order=42"]);
    assert_line(&page, &["input", r#"{"to":"anna","sum":1.50}"#]);
    assert_line(&page, &["send", "succeeded"]);
    for arguments in
        [&["run", id][..], &["tasks", id], &["run", "01981c2e"], &["tasks", "01981C2E-7"]]
    {
        let page = told(url, arguments);
        assert_line(&page, &[r#"output of send: {"sum":1.5,"to":"anna"}"#]);
        assert!(!page.contains("shortened"), "{page}");
    }
    let long = format!("{:?}", "x".repeat(300));
    let said = told(url, &["start", "mail", "--input", &long, "--wait"]);
    assert_line(&said, &["output of send: \"xxxx", "xx…"]);
    assert_line(&said, &["outputs are shortened; use --json"]);
    assert_line(&told(url, &["run", "--last"]), &["output of send: \"xxxx", "xx…"]);

    let newest = ask(url, &["start", "mail", "--wait", "--timeout", "60s", "--json"]);
    let newest = parsed(&newest);
    assert_eq!((&newest["version"], &newest["state"]), (&2.into(), &"succeeded".into()));
    assert_eq!(newest["outputs"], serde_json::json!({ "send": null }));
    let last = asked_json(url, &["run", "--last"]);
    assert_eq!(last["run"], newest["run"], "the newest run");
    let mut piped = command(&["start", "mail", "--input-file", "-", "--database-url", url]);
    let piped = piped.stdin(std::fs::File::open("/dev/null").unwrap()).output().unwrap();
    assert_eq!(piped.status.code(), Some(2), "nothing is not JSON");

    let page = asked_json(url, &["runs", "--tenant", "acme", "--metadata", "order=42"]);
    assert_eq!((page["runs"].as_array().map(Vec::len), &page["next"]), (Some(1), &Value::Null));
    let none = ["runs", "--state", "cancelled", "--workflow", "mail"];
    assert_eq!(told(url, &none), "no runs\n");
    let (mut seen, mut after) = (0, None::<String>);
    loop {
        let mut arguments = vec!["runs", "--limit", "1"];
        arguments.extend(after.iter().flat_map(|after| ["--after", after.as_str()]));
        let page = asked_json(url, &arguments);
        seen += page["runs"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => after = Some(next.to_owned()),
            None => break,
        }
    }
    assert_eq!(seen, 4, "in pages of one");
    assert!(told(url, &["runs", "--limit", "1"]).contains("and more: --after "));
}

/// The id of a run that failed.
fn failed(url: &str) -> String {
    let out = ask(url, &["start", "mail", "--input", r#"{"to":"nobody"}"#, "--wait", "--json"]);
    assert_eq!(out.status.code(), Some(3), "{}", text(&out.stderr));
    let end = parsed(&out);
    assert_eq!(end["state"], "failed");
    assert_eq!(end["failures"][0]["task"], "send");
    let id = end["run"].as_str().unwrap().to_owned();
    for arguments in [&["run", &id][..], &["tasks", &id], &["events", &id], &["dead", "show", &id]]
    {
        let told = told(url, arguments);
        assert_line(&told, &[r"no mailbox\u{1b}[2J\u{202e}"]);
        assert!(!told.contains(['\u{1b}', '\u{202e}']), "{told:?}");
    }
    let tasks = asked_json(url, &["tasks", &id, "--state", "failed"]);
    assert_eq!(tasks["tasks"][0]["failure"]["code"], "error");
    assert_eq!(told(url, &["tasks", &id, "--state", "ready"]), "no tasks\n");
    let events = asked_json(url, &["events", &id]);
    let kinds: Vec<&str> = events["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["kind"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["run_started", "queued", "started", "failed", "run_ended"]);
    let failure = &events["events"][3];
    assert_eq!((&failure["from"], &failure["to"]), (&"running".into(), &"failed".into()));
    assert_eq!(failure["detail"]["failure"]["code"], "error", "{failure}");
    let followed = told(url, &["events", &id, "--follow", "--json"]);
    let lines: Vec<Value> = followed.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
    assert_eq!(Some(&lines), events["events"].as_array());
    let followed = told(url, &["events", &id, "--follow"]);
    let header: Vec<&str> = followed.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(header, ["event", "at", "task", "kind", "attempt", "detail"]);
    for told in [followed, told(url, &["events", "--last"])] {
        assert_line(&told, &["started", "by worker mail-worker"]);
    }
    let first = told(url, &["events", &id, "--limit", "1"]);
    assert!(first.contains("and more: --after "), "{first}");
    id
}

fn wrong_starts_are_refused(url: &str) {
    let nobody = "01981c2e-7a40-7c1f-9d57-0242ac12ffff";
    let missing = format!("run {nobody} does not exist");
    for (arguments, code, complaint) in [
        (&["start", "mial"][..], 1, r#"workflow "mial" (the nearest: "mail") does not exist"#),
        (&["start", "mail", "--version", "7"], 1, "version 7 of workflow \"mail\" (there is 2, 1)"),
        (
            &["start", "mail", "--input", "{\n\"to\": }"],
            2,
            "--input is not JSON: expected value at line 2 column 7",
        ),
        (&["start", "mail", "--input-file", "/nowhere"], 1, "input file /nowhere: No such file"),
        (&["start", "mail", "--metadata", "order"], 2, "not of the form KEY=VALUE"),
        (&["start", "mail", "--timeout", "1s"], 2, "--wait"),
        (&["start", "mail", "--priority", "101"], 2, "expected a whole number from -100 to 100"),
        (&["start", ""], 1, "name"),
        (&["run", "42"], 2, "invalid value '42' for '[RUN]': expected a run id (a UUID)"),
        (&["run", nobody], 1, &missing),
        (&["run", "eeee"], 1, "no run id starts with \"eeee\""),
        (&["run", "eeee", "--last"], 2, "cannot be used with"),
        (&["run"], 2, "--last"),
        (&["why", "42"], 2, "expected a run id (a UUID)"),
        (&["tasks", nobody], 1, &missing),
        (&["events", nobody], 1, &missing),
        (&["cancel", nobody], 1, &missing),
        (&["retry", nobody], 1, &missing),
        (&["workflows", "mial"], 1, r#"the nearest: "mail""#),
        (&["runs", "--state", "done"], 2, "expected one of running, succeeded, failed, cancelled"),
        (&["runs", "--after", "x"], 2, "invalid cursor"),
    ] {
        let out = ask(url, arguments);
        let said = text(&out.stderr);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said}");
        assert!(said.contains(complaint), "{arguments:?}: {said}");
    }
    let out = ask(url, &["run", nobody, "--json"]);
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    assert_eq!(error["error"]["code"], "WL-0004");
    assert!(told(url, &["log"]).starts_with("no actions"), "what is refused was not done");
}

/// Nobody works, so that what goes on stays as it is.
fn steered(url: &str, failed: &str) {
    let again = asked_json(url, &["retry", failed, "--by", "anna@ops"]);
    assert_eq!((&again["run"], &again["round"]), (&failed.into(), &2.into()));
    let late = ask(url, &["retry", failed]);
    assert_line(&text(&late.stderr), &["is running, only a failed run can be retried"]);
    let said = told(url, &["cancel", failed, "--reason", "not\u{1b} needed"]);
    assert_eq!(said, format!("run {failed} is cancelled\n"));
    assert_line(&told(url, &["events", failed]), &["run_cancelled", r"not\u{1b} needed"]);
    let log = told(url, &["log", "--run", failed]);
    assert_line(&log, &["anna@ops", "retry_run"]);
    assert_line(&log, &["retry_run (refused)", "only a failed run can be retried"]);
    assert_eq!(log.matches("(refused)").count(), 1, "{log}");
    assert_line(&log, &["cancel_run"]);

    let id = told(url, &["start", "mail", "--delay", "1h"]).trim().to_owned();
    let waited = ["start", "mail", "--id", &id, "--delay", "1h", "--wait", "--timeout", "10ms"];
    let out = ask(url, &waited);
    assert_eq!(out.status.code(), Some(5), "{}", text(&out.stderr));
    assert_line(&text(&out.stdout), &["not ended in time"]);
    assert_line(&told(url, &["why", "--last"]), &[&id, "is running"]);
    assert_line(&told(url, &["why", "--last", "send"]), &["task send"]);
    assert_eq!(told(url, &["cancel", "--last"]), format!("run {id} is cancelled\n"));
    let out = ask(url, &waited);
    assert_eq!(out.status.code(), Some(4), "{}", text(&out.stderr));
}

async fn queues_are_listed(url: &str, windlass: &Windlass) {
    told(url, &["start", "mail"]);
    windlass.store().roll_up(1_000).await.unwrap();
    let list = asked_json(url, &["queues"]);
    let queue = &list["queues"][0];
    assert_eq!((&queue["queue"], &queue["ready"]), (&"default".into(), &1.into()), "{list}");
    assert_line(&told(url, &["queues"]), &["default", "0", "1"]);
}
