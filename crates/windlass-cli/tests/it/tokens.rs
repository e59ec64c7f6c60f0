//! `windlass tokens`, and what those without the right one are told.

use serde_json::Value;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, TaskError, Windlass, Workflow};

use super::people::told;
use super::place::Place;
use super::serve::Serving;
use super::{assert_line, command, text};

/// Starts a run of the workflow `mail`, which is known from then on.
async fn start_mail(url: &str) {
    let connected = Windlass::connect(PostgresOptions::new(url).migrate(true)).await;
    let mut mail = Workflow::<()>::builder("mail");
    mail.task("send").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    let mail = mail.build().expect("the workflow is right");
    connected.expect("it is there").start(&mail, ()).await.expect("it is started");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_at_the_database_is_in_the_log_of_the_tenant_it_is_done_to() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let postgres = options.start().await.expect("PostgreSQL is installed");
    let url = postgres.url();
    start_mail(&url).await;

    let token = ["tokens", "create", "ci", "--role", "worker", "--tenant", "acme", "--json"];
    let made: Value = serde_json::from_str(&told(&url, &token)).expect("JSON");
    let id = made["id"].as_str().expect("it has an id");
    let run = told(&url, &["start", "mail", "--tenant", "acme"]);
    told(&url, &["cancel", run.trim(), "--reason", "enough"]);
    told(&url, &["quotas", "set", "acme", "--backlog", "7"]);
    let put = ["schedules", "put", "daily", "--tenant", "acme", "--workflow", "mail"];
    told(&url, &[&put[..], &["--every", "1d"]].concat());
    told(&url, &["tokens", "revoke", id]);
    // What is none of acme's.
    told(&url, &["tokens", "create", "all", "--role", "viewer"]);
    let log = told(&url, &["log", "--tenant", "acme"]);
    assert_eq!(log.lines().count(), 6, "a header and five lines:\n{log}");
    let said = format!("token {id} (ci), worker, tenant acme");
    assert_line(&log, &["create_token", &said]);
    assert_line(&log, &["revoke_token", &said]);
    assert_line(&log, &["cancel_run", run.trim(), "because enough, tenant acme"]);
    assert_line(&log, &["set_quota", "backlog_max 7, tenant acme"]);
    assert_line(&log, &["put_schedule", "schedule daily, workflow mail version 1, "]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_lacks_a_token_or_a_tenant_is_told_what_to_give() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let postgres = options.start().await.expect("PostgreSQL is installed");
    let url = postgres.url();
    start_mail(&url).await;
    let token = ["tokens", "create", "ci", "--role", "worker", "--tenant", "acme"];
    let token = told(&url, &token);
    let (_serving, server) = Serving::guarded(&url);

    let ask = |arguments: &[&str], token: Option<&str>| {
        let mut command = command(arguments);
        command.env("WINDLASS_SERVER", &server);
        if let Some(token) = token {
            command.env("WINDLASS_TOKEN", token);
        }
        command.output().unwrap()
    };
    let out = ask(&["runs"], None);
    let told = text(&out.stderr);
    assert!(!out.status.success() && told.contains("give --token-file <FILE>, or set"), "{told}");
    assert!(told.contains(&server) && told.contains("[WL-0015]"), "{told}");
    let out = ask(&["start", "mail"], Some(token.trim()));
    let told = text(&out.stderr);
    assert!(told.contains("without --tenant <NAME> it is for tenant \"default\""), "{told}");
    assert!(told.contains("\"acme\"") && told.contains("[WL-0014]"), "{told}");
    let out = ask(&["start", "mail", "--tenant", "acme"], Some(token.trim()));
    assert!(out.status.success(), "{}", text(&out.stderr));
}
