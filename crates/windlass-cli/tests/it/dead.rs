//! `windlass dead` and `windlass log` on a real server.

use serde_json::Value;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, RetryPolicy, TaskError, Windlass, Workflow};

use super::people::{ask, told};
use super::place::Place;
use super::{assert_line, text};

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_listed_redriven_and_discarded_from_the_command_line() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    assert_eq!(told(&url, &["dead", "list"]), "no dead letters\n");
    assert_eq!(told(&url, &["log"]), "no actions\n");

    let mut mail = Workflow::<u32>::builder("mail");
    mail.task("send").retry(RetryPolicy::none()).run(async |ctx: Ctx<u32>| {
        let error = TaskError::new(format!("no mailbox {}\u{1b}[2J", ctx.input()));
        Err::<(), _>(error.permanent())
    });
    let mail = mail.build().unwrap();
    let worker = windlass.worker().register(&mail).spawn().unwrap();
    let mut runs = Vec::new();
    for number in 0..3 {
        let run = windlass.start(&mail, number).tenant("acme").await.unwrap();
        run.wait().await.unwrap();
        runs.push(run);
    }
    // Nobody works on what is redriven, so that it does not fail again.
    worker.drain().await.unwrap();
    let ids: Vec<String> = runs.iter().map(|run| run.id().to_string()).collect();

    let table = told(&url, &["dead", "list"]);
    assert_line(&table, &[&ids[0], "mail", "send", "acme", "error", "1", r"no mailbox 0\u{1b}"]);
    assert!(!table.contains('\u{1b}'), "{table:?}");
    assert_eq!(told(&url, &["dead"]), table, "list is the default");
    assert_eq!(told(&url, &["dead", "--reason", "panic"]), "no dead letters\n");
    let limited = told(&url, &["dead", "list", "--limit", "1"]);
    assert!(limited.contains(&ids[2]) && limited.ends_with("and more, see --limit\n"), "{limited}");
    let filtered = ["dead", "list", "--workflow", "mail", "--since", "1h", "--reason", "panic"];
    assert_eq!(told(&url, &filtered), "no dead letters\n");
    assert_line(&told(&url, &["dead", "show", "--last"]), &["run", &ids[2]]);
    let shown = told(&url, &["dead", "show", &ids[0]]);
    assert_line(&shown, &["error", r"no mailbox 0\u{1b}[2J"]);
    assert_line(&shown, &["queue", "default"]);
    let json: Value = serde_json::from_str(&told(&url, &["dead", "list", "--json"])).unwrap();
    assert_eq!(json.as_array().map(Vec::len), Some(3));
    assert_eq!((&json[2]["run"], &json[2]["reason"]), (&ids[0].as_str().into(), &"error".into()));

    let said = told(&url, &["dead", "redrive", &ids[0], "--by", "anna@ops"]);
    assert_eq!(said, "1 run redriven\n");
    assert_eq!(runs[0].get().await.unwrap().round, 2);
    assert_eq!(told(&url, &["dead", "discard", &ids[1]]), "1 dead letter discarded\n");
    let said = told(&url, &["dead", "redrive", "--tenant", "acme", "--rate", "2"]);
    assert_eq!(said, "1 run redriven\n");
    assert_eq!(told(&url, &["dead", "list"]), "no dead letters\n");

    let log = told(&url, &["log", "--run", &ids[0]]);
    assert_line(&log, &["anna@ops", "redrive", &format!("run {}", ids[0])]);
    assert_eq!(told(&url, &["log"]).lines().count(), 4, "three actions under a header");
    let log: Value = serde_json::from_str(&told(&url, &["log", "--action", "discard", "--json"]))
        .expect("it is JSON");
    assert_eq!(log[0]["runs"][0], ids[1].as_str());
    assert!(log[0]["by"].as_str().is_some_and(|by| by.contains('@')), "{log}");
    errors_name_what_is_wrong(&url, &ids[1]);
}

fn errors_name_what_is_wrong(url: &str, failed: &str) {
    let nobody = "00000000-0000-7000-8000-000000000000";
    for (arguments, code, complaint) in [
        (&["dead", "show", nobody][..], 1, &[nobody, "does not exist", "[WL-0004]"][..]),
        (&["dead", "show", failed], 1, &[failed, "is failed and has no dead letters"]),
        (&["dead", "redrive", failed], 1, &[failed, "has no dead letters that match"]),
        (&["dead", "discard", nobody], 1, &[nobody, "does not exist", "[WL-0004]"]),
        (&["dead", "redrive"], 1, &["give a run", "--all"]),
        (&["dead", "redrive", "--all", "--yes"], 1, &["there are no dead letters"]),
        (&["dead", "redrive", "--tenant", "acme"], 1, &["no dead letters match"]),
        (&["dead", "discard", "--workflow", "mail"], 1, &["no dead letters match"]),
        (&["dead", "redrive", "--all"], 2, &["--yes"]),
        (&["dead", "redrive", "--all", "--yes", "--task", "a"], 1, &["--all excludes filters"]),
        (&["dead", "redrive", failed, "--rate", "0"], 2, &["invalid value '0'"]),
        (&["dead", "list", "--tenant", ""], 1, &["tenant name is empty"]),
        (&["dead", "redrive", failed, "--by", ""], 1, &["name of an operator is empty"]),
        (&["log", "--action", "destroy"], 2, &["destroy"]),
    ] {
        let output = ask(url, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert_line(&text(&output.stderr), complaint);
    }
}
