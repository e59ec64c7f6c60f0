//! `windlass steps` and `windlass signal` on a real server.

use std::time::Duration;

use serde_json::{Value, json};
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, Function, RetryPolicy, TaskError, Windlass, Workflow};

use super::people::{ask, told};
use super::place::Place;
use super::{assert_line, text};

const DAY: Duration = Duration::from_secs(86_400);

/// Waits for a signal behind a step, and has another one behind it that fails, if it is to.
async fn approve(ctx: Ctx<u64>) -> Result<Value, TaskError> {
    let order = *ctx.input();
    ctx.step("reserve\u{202e}", async || Ok::<_, TaskError>("x".repeat(5_000))).await?;
    let verdict = ctx.signal::<Value>("verdict").await?;
    if order == 1 {
        let ship = ctx.step("ship", async || Err::<(), _>(TaskError::new("no lorry\u{1b}[2J")));
        ship.retry(RetryPolicy::fixed(DAY).attempts(2)).await?;
    }
    ctx.defer("release", async || Ok::<_, TaskError>(())).await?;
    Ok(verdict)
}

/// Asks until the table has such a line, which a worker elsewhere brings about.
async fn until_told(url: &str, arguments: &[&str], parts: &[&str]) -> String {
    let began = std::time::Instant::now();
    loop {
        let table = told(url, arguments);
        if table.lines().any(|line| parts.iter().all(|part| line.contains(part))) {
            return table;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "no {parts:?} in\n{table}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_is_watched_and_signalled_from_the_command_line() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    let approve = Function::new("approve", approve).unwrap();
    let worker = windlass.worker().register(&approve).spawn().unwrap();
    let first = windlass.start(&approve, 0).await.unwrap();
    let id = first.id().to_string();

    let waits = ["signal", "verdict", "waits", "for its signal"];
    let table = until_told(&url, &["steps", &id], &waits).await;
    assert_line(&table, &["1", "step", r"reserve\u{202e}", "done", "xxx…"]);
    assert!(table.lines().all(|line| line.chars().count() <= 200), "{table}");
    assert_eq!(told(&url, &["steps", &id, "--task", "approve"]), table);
    let table = told(&url, &["steps", &id, "--limit", "1"]);
    assert!(table.starts_with("1 earlier, see --limit\n"), "{table}");
    let why = told(&url, &["why", &id]);
    assert_line(&why, &[&id, "workflow approve version 1", "is running, 1 task open"]);
    assert_line(&why, &["task approve is waiting"]);
    assert_line(&why, &["call 2 waits for signal \"verdict\""]);
    assert_line(&why, &[&format!("→ somebody sends it: windlass signal {id} verdict")]);
    let why: Value = serde_json::from_str(&told(&url, &["why", &id, "approve", "--json"])).unwrap();
    assert_eq!(why["tasks"][0]["reasons"][0]["reason"], "signal");
    let sent = told(&url, &["signal", &id, "verdict", r#"{"is_approved": true}"#]);
    assert_eq!(sent, format!("signal verdict is sent to run {id}\n"));
    first.wait().await.unwrap();
    let output: Value = first.output(approve.output()).await.unwrap();
    assert_eq!(output, json!({ "is_approved": true }));
    let steps: Value = serde_json::from_str(&told(&url, &["steps", &id, "--json"])).unwrap();
    assert_eq!(steps[0]["value"].as_str().map(str::len), Some(5_000));
    assert_eq!(steps[1]["value"], json!({ "is_approved": true }));

    // What it did is undone by a run of its own, which is shown like any other.
    let said = told(&url, &["undo", &id]);
    let by = first.undone_by().await.unwrap().expect("it is undone").id().to_string();
    assert_eq!(said, format!("run {id} is undone by run {by}\n"));
    until_told(&url, &["steps", &by], &["1", "step", "release", "done", "null"]).await;
    let unknown = ask(&url, &["undo", "01234567-89ab-7def-8123-456789abcdef"]);
    assert_line(
        &text(&unknown.stderr),
        &["run 01234567-89ab-7def-8123-456789abcdef", "does not exist"],
    );

    // A signal that says nothing, sent before anybody waits, and a step that is tried again.
    let second = windlass.start(&approve, 1).await.unwrap();
    let id = second.id().to_string();
    told(&url, &["signal", &id, "verdict"]);
    let fails = ["3", "step", "ship", "waits", "for 23h 59m", "failed once", r"no lorry\u{1b}"];
    let table = until_told(&url, &["steps", &id], &fails).await;
    assert_line(&table, &["2", "signal", "verdict", "done", "null"]);
    worker.drain().await.unwrap();

    let mut plain = Workflow::<()>::builder("plain");
    plain.task("work").run(async |_| Ok::<_, TaskError>(()));
    let plain = windlass.start(&plain.build().unwrap(), ()).await.unwrap();
    assert_eq!(told(&url, &["steps", &plain.id().to_string()]), "no steps\n");
    assert_eq!(told(&url, &["steps", &plain.id().to_string(), "--json"]), "[]\n");
    a_key_is_signalled(&windlass, &url).await;
    errors_name_the_run(&url, &first.id().to_string());
}

/// A function that waits for a key is shown to, and gets what is sent to the key of its tenant.
async fn a_key_is_signalled(windlass: &Windlass, url: &str) {
    let settle = async |ctx: Ctx<()>| ctx.signal::<Value>("paid").key("pay_1").await;
    let settle = Function::new("settle", settle).unwrap();
    let worker = windlass.worker().register(&settle).spawn().unwrap();
    let run = windlass.start(&settle, ()).tenant("acme").await.unwrap();
    let id = run.id().to_string();
    let waits = ["signal", "paid", "waits", "for its signal to key pay_1"];
    until_told(url, &["steps", &id], &waits).await;
    told(url, &["signal", "--key", "pay_1", "paid", "0"]);
    let send = ["signal", "--key", "pay_1", "--tenant", "acme", "paid", "-7"];
    assert_eq!(told(url, &send), "signal paid is sent to key pay_1 of tenant acme\n");
    run.wait().await.unwrap();
    assert_eq!(run.output(settle.output()).await.unwrap(), json!(-7));
    let steps: Value = serde_json::from_str(&told(url, &["steps", &id, "--json"])).unwrap();
    assert_eq!(steps[0]["key"], "pay_1");
    worker.drain().await.unwrap();
}

fn errors_name_the_run(url: &str, ended: &str) {
    let nobody = "00000000-0000-7000-8000-000000000000";
    for (arguments, code, complaint) in [
        (&["signal", ended, "verdict"][..], 1, &[ended, "[WL-0005]"][..]),
        (&["signal", nobody, "verdict"], 1, &[nobody, "does not exist", "[WL-0004]"]),
        (&["signal", ended, ""], 1, &[ended]),
        (&["steps", nobody], 1, &[nobody, "does not exist", "[WL-0004]"]),
        (&["steps", ended, "--task", "\u{1b}x"], 1, &["task", ended, "does not exist"]),
        (&["why", nobody], 1, &[nobody, "does not exist", "[WL-0004]"]),
        (&["why", ended, "\u{1b}x"], 1, &["task", ended, "does not exist"]),
        (&["steps", "42"], 2, &["invalid value '42'"]),
        (&["signal", ended, "verdict", "yes"], 2, &["'yes'", "not JSON"]),
        (&["signal", "42", "verdict"], 2, &["invalid value '42'"]),
        (&["signal", ended, "verdict", "--tenant", "acme"], 2, &["--key"]),
        (&["signal", "--key", "", "paid"], 1, &["signal key is empty", "[WL-0002]"]),
    ] {
        let output = ask(url, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        let complaints = text(&output.stderr);
        assert_line(&complaints, complaint);
        assert!(!complaints.contains('\u{1b}'), "{complaints:?}");
    }
}
