//! `windlass dev`: a database that is there as long as someone wants it.

use rustix::process::Signal;
use tokio_postgres::NoTls;

use crate::assert_line;
use crate::place::{Place, Running, is_alive};

/// A `windlass dev` at work, and the address that it says.
fn dev(place: &Place) -> (Running, String) {
    let mut dev = Running::spawn(&["dev", "--data", &place.data()]);
    let line = dev.read_to("DATABASE_URL=");
    dev.read_to("until Ctrl-C");
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
