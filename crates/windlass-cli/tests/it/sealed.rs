//! Sealed payloads, with and without the keys.

use std::os::unix::fs::PermissionsExt as _;

use serde_json::Value;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, Function, Keyring, RetryPolicy, TaskError, Windlass};

use super::people::{ask, told};
use super::place::Place;
use super::{assert_line, command, text, windlass};

#[test]
fn a_fresh_key_is_printed_as_a_line_of_a_keyring() {
    let out = windlass(&["keys", "new", "2026-11"]);
    let line = text(&out.stdout);
    assert!(out.status.success() && line.ends_with('\n'));
    assert!(Keyring::parse(&line).unwrap().ids().eq(["2026-11"]));
    let out = windlass(&["keys", "new", "2026-11", "--json"]);
    let said: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(Keyring::parse(said["line"].as_str().unwrap()).is_ok());
    let out = windlass(&["keys", "new", "no key!"]);
    assert!(!out.status.success());
    assert_line(&text(&out.stderr), &["an id is 1 to 32 letters", "WL-0002"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sealed_payloads_are_told_by_their_keys_and_read_by_who_has_them() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let line = text(&windlass(&["keys", "new", "k1"]).stdout);
    let options = PostgresOptions::new(&url).migrate(true);
    let engine = Windlass::connect(options).await.unwrap();
    let within = engine.clone();
    let engine = engine.sealed(Keyring::parse(&line).unwrap().required(true));
    let charge = Function::<Value, ()>::builder("charge").retry(RetryPolicy::none());
    let charge = charge
        .run(async |ctx: Ctx<Value>| {
            let card = ctx.input()["card"].clone();
            ctx.step("look", async || Ok::<_, TaskError>(card)).await?;
            Err::<(), _>(TaskError::new("no funds on card 4111"))
        })
        .unwrap();
    let worker = engine.worker().register(&charge).spawn().unwrap();
    engine.start(&charge, Value::Null).await.unwrap().wait().await.unwrap();

    let path = format!("{}.keys", place.data());
    std::fs::write(&path, &line).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let with = |arguments: &[&str]| {
        let out = ask(&url, &[arguments, &["--payload-keys", &path]].concat());
        text(&out.stdout) + &text(&out.stderr)
    };
    let input = r#"{"card":"4111","sum":7}"#;
    let id = "01981c2e-7a40-7c1f-9d57-0242ac120002";
    // A sealed start, since the worker takes nothing else.
    let said = with(&["start", "charge", "--input", input, "--id", id, "--wait"]);
    assert_line(&said, &["failed", "no funds on card 4111"]);

    for arguments in [&["run", id][..], &["steps", id], &["events", id], &["dead", "list"]] {
        let without = told(&url, arguments);
        assert!(!without.contains("4111") && !without.contains("wl-sealed"), "{without}");
        assert_line(&without, &["sealed (key k1, "]);
        assert_line(&with(arguments), &["4111"]);
    }
    let json = told(&url, &["run", id, "--json"]);
    assert!(json.contains("wl-sealed") && !json.contains("4111"), "{json}");
    let json: Value = serde_json::from_str(&with(&["run", id, "--json"])).unwrap();
    assert_eq!(json["input"]["card"], "4111", "{json}");

    // Whoever has other keys sees and steers what those do who have none.
    let other = format!("{}.other", place.data());
    std::fs::write(&other, windlass(&["keys", "new", "k2"]).stdout).unwrap();
    std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
    let arguments = ["run", id, "--payload-keys", &other];
    assert_line(&told(&url, &arguments), &["input", "sealed (key k1, 23 bytes)"]);
    for command in ["tasks", "events", "steps", "why"] {
        let arguments = [command, id, "--payload-keys", &other];
        assert!(!told(&url, &arguments).contains("4111"));
    }
    let mut variable = command(&["run", id, "--database-url", &url]);
    let out = variable.env("WINDLASS_PAYLOAD_KEYS", line.trim()).output().unwrap();
    assert_line(&text(&out.stdout), &["input", "4111"]);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert_line(&with(&["run", id]), &["has mode 644", "WL-0002"]);
    worker.drain().await.unwrap();
    told(&url, &["retry", id, "--payload-keys", &other]);
    told(&url, &["cancel", id, "--reason", "enough", "--payload-keys", &other]);
    let wanted = ["cancelled", "sealed (key k2, "];
    assert_line(&told(&url, &["events", id]), &wanted);

    // What the store says of a workflow does not make fields of sealed inputs readable.
    let mut ship = windlass::Workflow::<Value>::builder("ship");
    let task = ship.task("ship").limit(windlass::Limit::per("card", 1));
    task.run(async |_: Ctx<Value>| Ok::<_, TaskError>(()));
    let ship = ship.build().unwrap();
    within.store().register(ship.definition().clone()).await.unwrap();
    let start = ["start", "ship", "--input", input, "--payload-keys", &other];
    let put =
        ["schedules", "put", "nightly", "--workflow", "ship", "--every", "1h", "--input", input];
    for arguments in [&start[..], &[&put[..], &["--payload-keys", &other]].concat()] {
        let out = ask(&url, arguments);
        assert!(!out.status.success());
        assert_line(&text(&out.stderr), &["the field \"card\"", "readable card"]);
    }
    let lines = std::fs::read_to_string(&other).unwrap() + "readable card\n";
    std::fs::write(&other, lines).unwrap();
    told(&url, &start);
    for path in [path, other] {
        std::fs::remove_file(path).unwrap();
    }
}
