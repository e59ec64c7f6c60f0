//! One run per idempotency key and per id, whoever asks at the same time.

use std::sync::Arc;

use tokio_postgres::Client;
use uuid::Uuid;
use windlass::store::{MemoryStore, NewRun, Store};
use windlass::{Ctx, RunId, TaskError, Tenant, Windlass, Workflow};
use windlass_core::{IdempotencyKey, Payload, Version};

use super::super::driver::{Worker, new_run, workflow};
use super::{
    PATIENCE, Shop, pid_of, refusal, start, wait_until_blocked, wait_until_someone_is_blocked,
};

/// What a session is answered that starts with a key while another has it.
async fn start_beside(
    shop: &Shop,
    isolation: &str,
    end_of_the_first: &str,
    input: &str,
) -> (RunId, Result<RunId, String>) {
    shop.run(&format!("begin isolation level {isolation}")).await;
    let first = shop.start(r#"'order', '"same"', key => 'k'"#).await;
    let second = shop.database.client().await;
    let sql = format!("begin isolation level {isolation}; select count(*) from windlass.runs");
    second.batch_execute(&sql).await.expect("a transaction begins");
    let pid = pid_of(&second).await;
    let sql = format!("select windlass.start_run('order', '{input}', key => 'k')");
    let waiting = tokio::spawn(async move {
        let answer = second.query_one(&sql, &[]).await;
        let answer = answer.map(|row| RunId::from_uuid(row.get::<_, Uuid>(0)));
        let end = if answer.is_ok() { "commit" } else { "rollback" };
        second.batch_execute(end).await.expect("a transaction ends");
        answer.map_err(|error| error.code().map_or("none", |code| code.code()).to_owned())
    });
    let observer = shop.database.client().await;
    wait_until_blocked(&observer, pid).await;
    shop.run(end_of_the_first).await;
    let answer = tokio::time::timeout(PATIENCE, waiting).await;
    (first, answer.expect("it goes on").expect("no panic"))
}

#[tokio::test]
async fn the_second_of_two_with_one_key_waits_and_is_answered_with_the_first_run() {
    let shop = Shop::open().await;
    let (first, second) = start_beside(&shop, "read committed", "commit", r#""same""#).await;
    assert_eq!(second, Ok(first));
    assert_eq!(shop.rows().await, [1; 3]);
}

#[tokio::test]
async fn the_second_of_two_with_one_key_and_another_input_is_refused() {
    let shop = Shop::open().await;
    let (_, second) = start_beside(&shop, "read committed", "commit", r#""other""#).await;
    assert_eq!(second, Err("WL005".to_owned()));
    assert_eq!(shop.rows().await, [1; 3]);
}

#[tokio::test]
async fn the_second_of_two_with_one_key_starts_when_the_first_is_rolled_back() {
    for isolation in ["read committed", "repeatable read", "serializable"] {
        let shop = Shop::open().await;
        let (first, second) = start_beside(&shop, isolation, "rollback", r#""other""#).await;
        let second = second.unwrap_or_else(|state| panic!("{isolation}: {state}"));
        assert_ne!(second, first);
        assert_eq!(shop.rows().await, [1; 3]);
    }
}

#[tokio::test]
async fn a_run_that_a_transaction_cannot_see_is_a_serialization_failure() {
    for isolation in ["repeatable read", "serializable"] {
        let shop = Shop::open().await;
        let (_, second) = start_beside(&shop, isolation, "commit", r#""same""#).await;
        assert_eq!(second, Err("40001".to_owned()), "{isolation}");
        // The transaction, repeated, sees it.
        shop.run(&format!("begin isolation level {isolation}")).await;
        shop.start(r#"'order', '"same"', key => 'k'"#).await;
        shop.run("commit").await;
        assert_eq!(shop.rows().await, [1; 3]);
    }
}

#[tokio::test]
async fn an_open_start_keeps_only_those_with_its_own_key_waiting() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge", "reserve", "ship < charge reserve"]);
    let worker = Worker::join(&*shop.store, &order).await;
    shop.run("begin").await;
    shop.start("'order', tenant => 'acme', key => 'k'").await;
    // The same tenant, workflow and queue.
    let others = async {
        let other = shop.database.client().await;
        start(&other, "'order', tenant => 'acme', key => 'k2'").await;
        let mut new = new_run(&order);
        new.tenant = Tenant::new("acme").expect("a name");
        let answers = shop.store.start_runs(vec![new]).await.expect("the store is there");
        assert!(answers[0].is_ok());
        assert_eq!(shop.store.promote_due(10).await.expect("the store is there").moved, 1);
        assert_eq!(worker.claim(&*shop.store, 10).await.len(), 4);
    };
    tokio::time::timeout(PATIENCE, others).await.expect("nobody waits");
    shop.run("commit").await;
}

#[tokio::test]
async fn a_start_that_waits_for_its_key_keeps_no_other_of_its_engine_waiting() {
    let shop = Shop::open().await;
    let mut greet = Workflow::<()>::builder("greet");
    greet.task("hello").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    let greet = greet.build().expect("one task is a workflow");
    let windlass = Windlass::with_store(shop.store.clone());
    windlass.start(&greet, ()).await.expect("it is known from now on");
    shop.run("begin").await;
    shop.start("'greet', key => 'k'").await;
    let (engine, workflow) = (windlass.clone(), greet.clone());
    let waiting = tokio::spawn(async move { engine.start(&workflow, ()).key("k").await });
    wait_until_someone_is_blocked(&shop.database.client().await).await;
    for _ in 0..3 {
        let start = |_| windlass.start(&greet, ()).into_future();
        let others = futures_util::future::join_all((0..5).map(start));
        let others = tokio::time::timeout(PATIENCE, others).await.expect("nobody waits");
        assert!(others.iter().all(Result::is_ok));
    }
    assert!(!waiting.is_finished());
    shop.run("commit").await;
    waiting.await.expect("no panic").expect("the run that has the key");
}

#[tokio::test]
async fn a_start_of_the_engine_waits_for_a_users_transaction_with_its_key() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge", "reserve", "ship < charge reserve"]);
    shop.run("begin").await;
    let first = shop.start("'order', key => 'k'").await;
    let mut new = new_run(&order);
    new.key = Some(IdempotencyKey::new("k").expect("a key"));
    let store = Arc::clone(&shop.store);
    let waiting = tokio::spawn(async move { store.start_runs(vec![new]).await });
    let observer = shop.database.client().await;
    wait_until_someone_is_blocked(&observer).await;
    shop.run("commit").await;
    let answers = waiting.await.expect("no panic").expect("the store is there");
    assert_eq!(
        answers[0].as_ref().map(|started| (started.run, started.is_new)),
        Ok((first, false))
    );
}

#[tokio::test]
async fn a_batch_of_the_engine_takes_its_ids_in_one_order_whatever_that_of_its_starts() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge", "reserve", "ship < charge reserve"]);
    let [first, second, third] = std::array::from_fn(|_| new_run(&order));
    shop.run(&format!("begin; select windlass.start_run('order', id => '{}')", second.id)).await;
    let beside = format!("set lock_timeout = '1s'; begin; {}", {
        let id = third.id;
        format!("select windlass.start_run('order', id => '{id}'); rollback")
    });
    let ids = [&first, &second, &third].map(|run| run.id);
    let store = Arc::clone(&shop.store);
    let waiting = tokio::spawn(async move { store.start_runs(vec![third, second, first]).await });
    let observer = shop.database.client().await;
    wait_until_someone_is_blocked(&observer).await;
    // The batch waits for the second id: it has the first, and not yet the third.
    observer.batch_execute(&beside).await.expect("the last id is free");
    shop.run("rollback").await;
    let answers = waiting.await.expect("no panic").expect("the store is there");
    let made: Vec<_> = answers.into_iter().map(|answer| answer.map(|made| made.run)).collect();
    assert_eq!(made, [Ok(ids[2]), Ok(ids[1]), Ok(ids[0])]);
}

#[tokio::test]
async fn a_batch_takes_its_keys_in_one_order_whatever_the_order_of_its_starts() {
    let shop = Shop::open().await;
    shop.run("begin; select windlass.start_run('order', key => 'a')").await;
    let batch = shop.database.client().await;
    let pid = pid_of(&batch).await;
    let sql = r#"select count(*) from windlass.start_runs(
        '[{"workflow": "order", "key": "b"}, {"workflow": "order", "key": "a"}]')"#;
    let waiting = tokio::spawn(async move { batch.query_one(sql, &[]).await.map(|_| ()) });
    let third = shop.database.client().await;
    wait_until_blocked(&third, pid).await;
    // The batch waits for the first of the two keys and does not have the other yet: someone
    // who has that one and comes to want the first closes no circle.
    tokio::time::timeout(PATIENCE, start(&third, "'order', key => 'b'")).await.expect("it is free");
    shop.run("commit").await;
    waiting.await.expect("no panic").expect("the batch is started");
    assert_eq!(shop.count("windlass.runs").await, 2);
}

/// One of few starts, so that many have an id or a key in common.
fn any_start(rng: &mut fastrand::Rng) -> NewRun {
    let workflow = workflow(if rng.u8(..6) > 0 { "order" } else { "refund" }, &["a"]);
    let mut new = new_run(&workflow);
    new.id = RunId::from_uuid(Uuid::from_u128(rng.u128(1..9)));
    new.tenant = Tenant::new(if rng.u8(..6) > 0 { "acme" } else { "zebra" }).expect("a name");
    let key = (rng.u8(..3) > 0).then(|| format!("key \"{}\"", rng.u8(..4)));
    new.key = key.map(|key| IdempotencyKey::new(key).expect("a key"));
    if rng.u8(..6) == 0 {
        new.input = Payload::from_json(r#"{"other":1}"#).expect("it is JSON");
    }
    new
}

fn arguments(new: &NewRun) -> String {
    let key = new.key.as_ref().map_or("null".to_owned(), |key| format!("'{key}'"));
    format!(
        "'{}', '{}', '{}', {key}, id => '{}'",
        new.workflow,
        new.input.as_str(),
        new.tenant,
        new.id
    )
}

fn json(new: &NewRun) -> serde_json::Value {
    let key = new.key.as_ref().map(|key| key.as_str());
    let input: serde_json::Value = new.input.decode().expect("it is JSON");
    serde_json::json!({
        "workflow": new.workflow.as_str(), "tenant": new.tenant.as_str(), "key": key,
        "id": new.id.to_string(), "input": input,
    })
}

/// What a start was answered, in the words of the store.
async fn answer_of(session: &Client, new: &NewRun) -> Result<RunId, String> {
    let sql = format!("select windlass.start_run({})", arguments(new));
    match session.query_one(&sql, &[]).await {
        Ok(row) => Ok(RunId::from_uuid(row.get::<_, Uuid>(0))),
        Err(error) => {
            let error = error.as_db_error().expect("the database refused it");
            assert_eq!(error.code().code(), "WL005", "{sql}");
            Err(error.message().trim_end_matches(" [WL-0005]").to_owned())
        }
    }
}

#[tokio::test]
async fn starts_from_sql_are_answered_as_the_store_answers_them() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let shop = Shop::open().await;
    let memory = MemoryStore::new();
    for name in ["order", "refund"] {
        memory.register(workflow(name, &["a"])).await.expect("it can be registered");
    }
    shop.store.register(workflow("refund", &["a"])).await.expect("it can be registered");
    let (mut started, mut refused) = (0, 0);
    for round in 0..10 {
        for _ in 0..20 {
            let mut new = any_start(&mut rng);
            // Other ids and keys in every round, so that there is something new to start.
            new.id = RunId::from_uuid(Uuid::from_u128(new.id.as_uuid().as_u128() + (round << 8)));
            let key = new.key.map(|key| format!("{round} {key}"));
            new.key = key.map(|key| IdempotencyKey::new(key).expect("a key"));
            let expected = memory.start_runs(vec![new.clone()]).await.expect("it is there");
            let expected = expected.into_iter().next().expect("one answer");
            let found = answer_of(&shop.user, &new).await;
            // The functions in SQL do not name the difference.
            let expected = expected.map(|started| started.run).map_err(|error| {
                error.to_string().split(" (different: ").next().unwrap_or_default().to_owned()
            });
            assert_eq!(found, expected, "{new:?}");
            if found.is_ok() { started += 1 } else { refused += 1 }
        }
    }
    assert!(started > 20 && refused > 20, "{started} started, {refused} refused");
}

#[tokio::test]
async fn batches_of_the_engine_are_answered_as_in_memory() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let shop = Shop::open().await;
    let memory = MemoryStore::new();
    for name in ["order", "refund"] {
        memory.register(workflow(name, &["a"])).await.expect("it can be registered");
    }
    shop.store.register(workflow("refund", &["a"])).await.expect("it can be registered");
    for round in 0..100 {
        let batch = (0..rng.u8(1..12)).map(|_| {
            let mut new = any_start(&mut rng);
            // Few batches meet what an earlier one made.
            let number = new.id.as_uuid().as_u128() + ((round / 3) << 8);
            new.id = RunId::from_uuid(Uuid::from_u128(number));
            new.tenant = Tenant::new(format!("{} {}", new.tenant, round / 3)).expect("a name");
            if rng.u8(..8) == 0 {
                new.version = Version::MAX;
            }
            new
        });
        let batch: Vec<NewRun> = batch.collect();
        let expected = memory.start_runs(batch.clone()).await;
        assert_eq!(shop.store.start_runs(batch.clone()).await, expected, "{batch:#?}");
    }
}

/// Whether an id is there twice for different starts. A batch with one is refused even if the
/// first of the two turns out to be answered with another run, by its key.
fn names_two_starts_by_one_id(batch: &[NewRun]) -> bool {
    let what = |new: &NewRun| (new.tenant.clone(), new.workflow.clone(), new.key.clone());
    batch.iter().any(|a| batch.iter().any(|b| a.id == b.id && what(a) != what(b)))
}

#[tokio::test]
async fn a_batch_is_answered_as_its_starts_one_by_one() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let shop = Shop::open().await;
    shop.store.register(workflow("refund", &["a"])).await.expect("it can be registered");
    let (mut agreed, mut refused) = (0, 0);
    for _ in 0..200 {
        shop.run("begin").await;
        for _ in 0..rng.u8(..3) {
            shop.run("savepoint before").await;
            if answer_of(&shop.user, &any_start(&mut rng)).await.is_err() {
                shop.run("rollback to before").await;
            }
        }
        let batch: Vec<NewRun> = (0..rng.u8(1..4)).map(|_| any_start(&mut rng)).collect();
        shop.run("savepoint before").await;
        let mut expected = Some(Vec::new());
        for new in &batch {
            let Ok(id) = answer_of(&shop.user, new).await else {
                expected = None;
                break;
            };
            expected.iter_mut().for_each(|ids| ids.push(id));
        }
        shop.run("rollback to before").await;
        let json = serde_json::Value::Array(batch.iter().map(json).collect()).to_string();
        let sql = "select position, run_id, is_new from windlass.start_runs($1::text::json)";
        match (shop.user.query(sql, &[&json]).await, expected) {
            (Ok(rows), Some(ids)) => {
                let found: Vec<RunId> =
                    rows.iter().map(|row| RunId::from_uuid(row.get::<_, Uuid>(1))).collect();
                assert_eq!(found, ids, "{batch:?}");
                agreed += 1;
            }
            (Err(error), expected) if expected.is_none() || names_two_starts_by_one_id(&batch) => {
                assert_eq!(error.code().map(|code| code.code()), Some("WL005"), "{batch:?}");
                refused += 1;
            }
            (found, expected) => panic!("{batch:?} gave {found:?}, one by one {expected:?}"),
        }
        shop.run("rollback").await;
    }
    assert!(agreed > 20 && refused > 20, "{agreed} agreed, {refused} refused");
}

#[tokio::test]
async fn a_conflict_in_a_batch_names_the_start_and_what_it_conflicts_with() {
    let shop = Shop::open().await;
    let there = shop.start("'order', '1', key => 'there'").await;
    let order = |more: &str| format!(r#"{{"workflow": "order", {more}}}"#);
    let id = Uuid::from_u128(7);
    let cases = [
        (
            vec![order(r#""key": "a""#), order(r#""key": "there", "input": 2"#)],
            format!(
                r#"start 2 of 2: idempotency key "there" was used for run {there} with another start [WL-0005]"#
            ),
        ),
        (
            vec![order(&format!(r#""id": "{there}", "input": 1"#)), order(r#""key": "a""#)],
            format!(
                "start 1 of 2: run id {there} was used for run {there} with another start [WL-0005]"
            ),
        ),
        // Two starts of the batch.
        (
            vec![
                order(r#""key": "b""#),
                order(r#""key": "a""#),
                order(r#""key": "a", "input": 2"#),
            ],
            r#"start 3 of 3: idempotency key "a" was used for start 2, which differs [WL-0005]"#
                .to_owned(),
        ),
        (
            vec![
                order(&format!(r#""id": "{id}""#)),
                order(&format!(r#""id": "{id}", "input": 2"#)),
            ],
            format!("start 2 of 2: run id {id} was used for start 1, which differs [WL-0005]"),
        ),
    ];
    for (batch, message) in cases {
        let sql = format!("select * from windlass.start_runs('[{}]')", batch.join(", "));
        assert_eq!(shop.refusal(&sql).await, ("WL005".to_owned(), message), "{batch:?}");
    }
    assert_eq!(shop.rows().await, [1; 3]);
}

#[tokio::test]
async fn a_run_that_was_removed_meanwhile_is_a_serialization_failure() {
    let shop = Shop::open().await;
    // As if the run had been pruned between the insert that met it and the look at it.
    shop.run(
        "create function forget() returns trigger language plpgsql as $$
         begin delete from windlass.runs where key = 'k'; return null; end $$;
         create trigger forget after insert on windlass.runs
             for each statement execute function forget();
         alter table windlass.runs disable trigger forget",
    )
    .await;
    shop.start("'order', key => 'k'").await;
    shop.run("alter table windlass.runs enable trigger forget").await;
    let sql = "select windlass.start_run('order', key => 'k')";
    let (state, message) = refusal(&shop.user, sql).await;
    assert_eq!(state, "40001");
    assert_eq!(message, "the run that start 1 named was removed meanwhile");
}

/// Keeps the key of a run that is gone.
async fn keep_key(shop: &Shop) -> RunId {
    let run = new_run(&workflow("order", &["a"])).id;
    shop.run(&format!(
        "insert into windlass.kept_keys (tenant, workflow, key, run_id, expires_at, input)
         values ('default', 'order', 'k', '{run}', clock_timestamp() + interval '1 hour', '\"same\"')"
    ))
    .await;
    run
}

#[tokio::test]
async fn a_key_of_a_run_that_is_gone_answers_with_it_while_it_is_kept() {
    let shop = Shop::open().await;
    let run = keep_key(&shop).await;
    assert_eq!(shop.start(r#"'order', '"same"', key => 'k'"#).await, run);
    assert_eq!(shop.rows().await, [0; 3], "nothing is made");
    let other = r#"select windlass.start_run('order', '"other"', key => 'k')"#;
    let (code, text) = shop.refusal(other).await;
    assert_eq!(code, "WL005");
    assert!(text.contains(&run.to_string()), "{text}");
    shop.run("update windlass.kept_keys set expires_at = clock_timestamp()").await;
    assert_ne!(shop.start(r#"'order', '"same"', key => 'k'"#).await, run, "its time is over");
    assert_eq!(shop.rows().await, [1; 3]);
}

#[tokio::test]
async fn a_key_that_is_kept_for_one_tenant_is_free_for_others() {
    let shop = Shop::open().await;
    let run = keep_key(&shop).await;
    let other = shop.start(r#"'order', '"same"', tenant => 'acme', key => 'k'"#).await;
    assert_ne!(other, run);
    assert_eq!(shop.rows().await, [1; 3]);
}

#[tokio::test]
async fn a_transaction_that_cannot_see_that_a_key_is_kept_is_refused() {
    let shop = Shop::open().await;
    let second = shop.database.client().await;
    for isolation in ["repeatable read", "serializable"] {
        shop.run("delete from windlass.kept_keys").await;
        let begin =
            format!("begin isolation level {isolation}; select count(*) from windlass.runs");
        second.batch_execute(&begin).await.expect("a transaction begins");
        keep_key(&shop).await;
        let sql = r#"select windlass.start_run('order', '"same"', key => 'k')"#;
        let error = second.query_one(sql, &[]).await.expect_err("it is refused");
        assert_eq!(error.code().map(|code| code.code()), Some("40001"), "{error:?}");
        second.batch_execute("rollback").await.expect("a transaction ends");
    }
    // Where there is nothing that it cannot see, it starts and leaves nothing behind.
    shop.run("delete from windlass.kept_keys").await;
    shop.run("begin isolation level serializable").await;
    shop.start(r#"'order', '"same"', key => 'k'"#).await;
    shop.run("commit").await;
    assert_eq!(shop.count("windlass.kept_keys").await, 0);
}
