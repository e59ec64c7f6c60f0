//! `windlass leaders` and `windlass workers` on a real server.

use std::process::Output;

use serde_json::Value;
use tokio_postgres::NoTls;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{TaskError, Windlass, Workflow};

use super::place::Place;
use super::{assert_line, text};

pub(crate) fn ask(url: &str, arguments: &[&str]) -> Output {
    let output = super::command(arguments).env("DATABASE_URL", url).output();
    output.expect("the binary was built")
}

/// What it prints, which must be all it has to say.
pub(crate) fn told(url: &str, arguments: &[&str]) -> String {
    let output = ask(url, arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[tokio::test(flavor = "multi_thread")]
async fn who_works_and_who_leads_is_shown_to_people_and_to_programs() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let output = ask(&url, &["leaders"]);
    assert_line(&text(&output.stderr), &["error: ", "[WL-0010]"]);

    let options = PostgresOptions::new(&url).migrate(true);
    let windlass = Windlass::connect(options).await.expect("the server is there");
    assert_line(&told(&url, &["leaders"]), &["reap", "vacant"]);
    assert_eq!(told(&url, &["workers"]), "no workers\n");
    assert_line(&told(&url, &["top"]), &["queues not counted yet"]);

    let mut builder = Workflow::<()>::builder("mail");
    builder.task("send").queue("post").run(async |_| Ok::<_, TaskError>(()));
    let workflow = builder.build().expect("the workflow is right");
    let worker = windlass.worker().register(&workflow).name("mail-1").host("node-7");
    let worker = worker.version("9.9").metadata("colour", "\u{1b}[31m");
    let hour = std::time::Duration::from_secs(3_600);
    let worker = worker.duty("sweep", hour, async |_| Err::<(), _>(TaskError::new("disk full")));
    assert_eq!(told(&url, &["duties"]), "no duties of programs\n");
    let worker = worker.spawn();
    let worker = worker.expect("the settings are within their limits");
    windlass.start(&workflow, ()).await.expect("it is there").wait().await.expect("it ends");
    while !told(&url, &["leaders"]).contains("mail-1") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let leaders = told(&url, &["leaders"]);
    assert_line(&leaders, &["promote_due", "mail-1", "leads", " 1 "]);
    let leaders: Value = serde_json::from_str(&told(&url, &["leaders", "--json"])).expect("JSON");
    assert_eq!((&leaders[1]["duty"], &leaders[1]["term"]), (&"reap".into(), &1.into()));
    assert_line(&told(&url, &["workers"]), &["mail-1", "live", "node-7", "9.9", "post", "0/10"]);

    while !told(&url, &["duties"]).contains("last error of sweep: disk full\n") {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_line(&told(&url, &["duties"]), &["sweep", "1h", "waits", "mail-1", "1", "1"]);
    let duties: Value = serde_json::from_str(&told(&url, &["duties", "--json"])).expect("JSON");
    assert_eq!((&duties[0]["name"], &duties[0]["errors"]), (&"sweep".into(), &1.into()));
    worker.drain().await.expect("nothing is left to do");
    assert_line(&told(&url, &["duties", "--forget", "sweep"]), &["duty sweep is forgotten"]);
    let output = ask(&url, &["duties", "--forget", "sweep"]);
    assert_line(&text(&output.stderr), &["error: duty \"sweep\" does not exist"]);
    assert_line(&told(&url, &["leaders"]), &["reap", "mail-1", "given up"]);
    assert_eq!(told(&url, &["workers"]), "no workers\n");
    assert_line(&told(&url, &["workers", "--all"]), &["mail-1", "dead"]);
    let workers: Value =
        serde_json::from_str(&told(&url, &["workers", "--all", "--json"])).expect("JSON");
    assert_eq!(workers[0]["state"], "dead");
    assert_eq!(workers[0]["metadata"]["colour"], "\u{1b}[31m");
    assert_eq!(workers[0]["workflows"][0]["name"], "mail");
    assert_eq!(workers[0]["queues"][0], "post");

    for _ in 0..3 {
        windlass.start(&workflow, ()).await.expect("it is there");
    }
    windlass.store().roll_up(1_000).await.expect("the server is there");
    let top: Value = serde_json::from_str(&told(&url, &["top", "--once", "--json"])).expect("JSON");
    let queue = &top["queues"][0];
    assert_eq!((&queue["queue"], &queue["workers"]), (&"post".into(), &0.into()));
    assert_eq!((&queue["came"], &queue["went"]), (&4.into(), &1.into()));
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("it runs");
    tokio::spawn(connection);
    let sql = "select count(*) from windlass.ready";
    let ready: i64 = client.query_one(sql, &[]).await.expect("it is there").get(0);
    assert_eq!(queue["ready"], ready);
    assert_line(&told(&url, &["top"]), &["post", "0", "3"]);
}
