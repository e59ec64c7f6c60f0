//! The operator log only grows: PostgreSQL refuses to change its lines for every role.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, NoTls};
use windlass::store::postgres::Roles;
use windlass::store::{Action, LogFilter, NewLogEntry, Store};
use windlass_core::{ActionId, Operator, Payload};

use super::postgres;

/// Every column of every line.
async fn lines(client: &Client) -> Vec<String> {
    let sql = "select to_jsonb(l)::text from windlass.operator_log l order by l.number";
    client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn no_role_changes_or_deletes_a_line_of_the_operator_log() {
    let subject = postgres().await;
    for (number, action) in [(1, Action::CancelRun), (2, Action::CreateToken)] {
        let entry = NewLogEntry {
            id: ActionId::from_random(number),
            by: Operator::new("anna@ops").unwrap().into(),
            action,
            tenant: None,
            run: None,
            detail: Some(Payload::encode("why").unwrap()),
        };
        subject.store.log(entry).await.unwrap();
    }
    let reader = subject.database.client().await;
    let written = lines(&reader).await;
    assert_eq!(written.len(), 2);

    let roles = Roles::default();
    let superuser = subject.database.url();
    for (role, url) in [
        ("engine", subject.database.url_as(&roles.engine)),
        ("owner", subject.database.url_as(&roles.migration)),
        ("superuser", superuser.to_string()),
    ] {
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        for sql in [
            "update windlass.operator_log set operator = 'nobody'",
            "update windlass.operator_log set detail = null where action = 'cancel_run'",
            "delete from windlass.operator_log",
            "truncate windlass.operator_log",
            "truncate windlass.operator_log cascade",
            "begin; update windlass.operator_log set operator = 'nobody'; commit",
        ] {
            let error = client.batch_execute(sql).await.expect_err(sql);
            let answer = error.as_db_error().unwrap();
            assert_eq!(answer.code(), &SqlState::INSUFFICIENT_PRIVILEGE, "{role}: {sql}: {answer}");
            // The engine has no right to truncate any table; all else is up to the triggers.
            let is_by_right = role == "engine" && sql.starts_with("truncate");
            let is_by_trigger = answer.message().contains("only grows");
            assert!(is_by_trigger != is_by_right, "{role}: {sql}: {answer}");
            client.batch_execute("rollback").await.unwrap();
        }
        assert_eq!(lines(&reader).await, written, "{role}");
    }
    let page = subject.store.list_log(LogFilter::default()).await.unwrap();
    let actions: Vec<Action> = page.entries.iter().map(|entry| entry.action).collect();
    assert_eq!(actions, [Action::CreateToken, Action::CancelRun]);
}
