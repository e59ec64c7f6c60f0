//! `windlass retention` on a real server.

use serde_json::Value;
use windlass::Windlass;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;

use super::people::{ask, told};
use super::place::Place;
use super::{assert_line, text};

#[tokio::test(flavor = "multi_thread")]
async fn how_long_runs_are_kept_is_set_and_shown_from_the_command_line() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    assert_eq!(told(&url, &["retention", "list"]), "all runs are kept\n");
    let set = ["retention", "set", "succeeded", "30d", "--keep-keys", "90d", "--archive"];
    let said = told(&url, &set);
    let all = "all workflows without a rule of their own";
    assert_eq!(said, format!("succeeded runs of {all} go 30d after their end\n"));
    let own = ["retention", "set", "failed", "1h", "--workflow", "mail", "--by", "anna@ops"];
    assert_eq!(told(&url, &own), "failed runs of workflow mail go 1h after their end\n");
    let table = told(&url, &["retention", "list"]);
    assert_eq!(told(&url, &["retention"]), table, "list is the default");
    assert_eq!(told(&url, &["quotas"]), "nothing is limited\n");
    assert_eq!(told(&url, &["schedules"]), "there are no schedules\n");
    assert_eq!(told(&url, &["tokens"]), told(&url, &["tokens", "list"]));
    assert_line(&table, &["all", "succeeded", "30d", "90d", "yes", "no"]);
    assert_line(&table, &["mail", "failed", "1h", "-", "no"]);
    let json: Value = serde_json::from_str(&told(&url, &["retention", "list", "--json"])).unwrap();
    assert_eq!((&json[1]["workflow"], &json[1]["keep_seconds"]), (&"mail".into(), &3_600.into()));
    assert_line(&told(&url, &["leaders"]), &["prune", "vacant"]);
    let log: Value =
        serde_json::from_str(&told(&url, &["log", "--by", "anna@ops", "--json"])).unwrap();
    assert_eq!(
        (&log[0]["action"], &log[0]["detail"]["state"]),
        (&"set_retention".into(), &"failed".into())
    );
    told(&url, &["retention", "clear", "failed", "--workflow", "mail"]);
    for (arguments, code, complaint) in [
        (&["retention", "clear", "failed"][..], 1, &["no rule for failed runs of all"][..]),
        (&["retention", "set", "running", "1d"], 2, &["'running'", "succeeded, failed"]),
        (&["retention", "set", "failed", "soon"], 2, &["'soon'"]),
        (&["retention", "set", "failed", "99999d"], 1, &["failed", "the limit is", "[WL-0005]"]),
        (&["retention", "set", "failed", "1d", "--workflow", ""], 1, &["workflow name is empty"]),
    ] {
        let output = ask(&url, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert_line(&text(&output.stderr), complaint);
    }
}
