//! What a start from SQL writes, and where it can be called.

use std::time::Duration;

use uuid::Uuid;
use windlass::store::Store;
use windlass::{Fence, RunState, TaskState, Version};
use windlass_core::{RunId, Timestamp};

use super::super::driver::{Worker, succeed, workflow};
use super::{PATIENCE, Shop, start};

const ALL: usize = 1_000;

#[tokio::test]
async fn a_run_is_whole_when_the_caller_commits_and_waits_for_its_admission() {
    let shop = Shop::open().await;
    let before: Timestamp = std::time::SystemTime::now().into();
    let id = shop
        .start(
            r#"'order', '{"json": 1}', tenant => 'acme', key => 'order-7', priority => -3,
               metadata => '{"region": "north"}'"#,
        )
        .await;
    assert_eq!(id.as_uuid().get_version_num(), 7);
    let run = shop.store.get_run(id).await.expect("the store is there").expect("it is there");
    assert_eq!(
        run.input.as_ref().unwrap().as_str(),
        r#"{"json": 1}"#,
        "the text is kept as it was given"
    );
    assert_eq!((run.tenant.as_str(), run.priority.get()), ("acme", -3));
    assert_eq!(run.key.expect("it has one").as_str(), "order-7");
    assert_eq!(run.metadata.get("region").map(String::as_str), Some("north"));
    assert_eq!((run.state, run.round, run.open_tasks), (RunState::Running, 1, 3));
    assert!(run.created_at >= before && run.ended_at.is_none());
    let tasks = shop.store.list_tasks(id, None, ALL).await.expect("the store is there");
    let states: Vec<_> = tasks.iter().map(|task| (task.state, task.pending_parents)).collect();
    assert_eq!(states, [(TaskState::Pending, 0), (TaskState::Pending, 0), (TaskState::Pending, 2)]);
    assert!(tasks.iter().all(|task| task.attempt == 0 && task.fence == Fence(0)));
    let events = shop.store.list_events(id, None, ALL).await.expect("the store is there");
    assert_eq!(events.iter().map(|event| event.word()).collect::<Vec<_>>(), ["run_started"]);
    assert_eq!(events[0].at, run.created_at);
    let untouched = shop.count("windlass.ready").await
        + shop.count("windlass.tenants").await
        + shop.count("windlass.routes").await;
    assert_eq!(untouched, 0, "nothing that starts share is touched before the commit");
}

#[tokio::test]
async fn an_admitted_run_goes_on_as_any_other_and_ends() {
    let shop = Shop::open().await;
    let order = workflow("order", &["charge", "reserve", "ship < charge reserve"]);
    let id = shop.start("'order', tenant => 'acme'").await;
    let worker = Worker::join(&*shop.store, &order).await;
    assert!(worker.claim(&*shop.store, 10).await.is_empty());
    assert_eq!(shop.store.promote_due(10).await.expect("the store is there").moved, 1);
    for expected in [2, 1] {
        let claimed = worker.claim(&*shop.store, 10).await;
        assert_eq!(claimed.len(), expected);
        for task in &claimed {
            assert_eq!(task.tenant.as_str(), "acme");
            succeed(&*shop.store, task).await;
        }
    }
    let run = shop.store.get_run(id).await.expect("the store is there").expect("it is there");
    assert_eq!(run.state, RunState::Succeeded);
    assert_eq!(shop.count("windlass.staged").await, 0);
}

#[tokio::test]
async fn a_run_with_a_delay_is_scheduled_when_it_is_admitted() {
    let shop = Shop::open().await;
    let id = shop.start("'order', delay => interval '1 hour 0.000001 seconds'").await;
    shop.store.promote_due(10).await.expect("the store is there");
    let run = shop.store.get_run(id).await.expect("the store is there").expect("it is there");
    let tasks = shop.store.list_tasks(id, None, ALL).await.expect("the store is there");
    assert_eq!(tasks[0].state, TaskState::Scheduled);
    let due = tasks[0].available_at.expect("it has a time");
    assert!(due.since(run.created_at) >= Duration::from_micros(3_600_000_001));
    assert!(due.since(run.created_at) < Duration::from_secs(3_600) + super::PATIENCE);
}

#[tokio::test]
async fn a_start_takes_the_newest_version_and_revision_unless_told_otherwise() {
    let shop = Shop::open().await;
    let newer = "insert into windlass.definitions
        (workflow, version, revision, body, open_tasks, registered_at)
        select workflow, version + v, revision + r, body, open_tasks, registered_at
        from windlass.definitions, (values (0, 1), (2, 0)) as n (v, r);
        insert into windlass.definition_tasks
        select d.id, t.idx, t.name, t.kind, t.parents, 9
        from windlass.definitions d, windlass.definition_tasks t where d.id > t.definition_id";
    shop.run(newer).await;
    let newest = shop.start("'order'").await;
    let first = shop.start("'order', version => 1").await;
    let sql = "select r.version, d.revision, t.max_attempts
        from windlass.runs r join windlass.definitions d on d.id = r.definition_id
        join windlass.tasks t on t.run_id = r.id where r.id = $1 and t.idx = 0";
    for (run, expected) in [(newest, (3, 1, 9)), (first, (1, 2, 9))] {
        let row = shop.user.query_one(sql, &[run.as_uuid()]).await.expect("it is there");
        assert_eq!((row.get::<_, i32>(0), row.get::<_, i32>(1), row.get::<_, i32>(2)), expected);
    }
    let run = shop.store.get_run(first).await.expect("the store is there").expect("it is there");
    assert_eq!(run.version, Version::FIRST);
}

#[tokio::test]
async fn a_start_that_is_rolled_back_leaves_nothing_behind() {
    let shop = Shop::open().await;
    shop.run("begin; select windlass.start_run('order', key => 'k')").await;
    assert_eq!(shop.rows().await, [1; 3]);
    shop.run("rollback").await;
    assert_eq!(shop.rows().await, [0; 3]);
    shop.run("begin; select windlass.start_run('order', key => 'kept'); savepoint s").await;
    shop.run("select windlass.start_run('order', key => 'k'); rollback to s").await;
    // The key is free again, within the same transaction.
    shop.run(r#"select windlass.start_run('order', '"other"', key => 'k'); savepoint s"#).await;
    let (state, _) = shop.refusal("select windlass.start_run('order', key => 'k')").await;
    assert_eq!(state, "WL005");
    shop.run("rollback to s; commit").await;
    assert_eq!(shop.rows().await, [2; 3]);
}

#[tokio::test]
async fn nobody_sees_or_admits_a_run_before_the_commit() {
    let shop = Shop::open().await;
    shop.run("begin").await;
    let id = shop.start("'order'").await;
    assert_eq!(shop.store.promote_due(10).await.expect("the store is there").moved, 0);
    assert_eq!(shop.store.get_run(id).await, Ok(None));
    shop.run("commit").await;
    assert_eq!(shop.store.promote_due(10).await.expect("the store is there").moved, 1);
}

#[tokio::test]
async fn a_trigger_starts_a_run_for_every_row_that_is_committed() {
    let shop = Shop::open().await;
    shop.run(
        "create table orders (id integer primary key, cents integer not null);
         create function start_order() returns trigger language plpgsql as $$
         begin
             perform windlass.start_run(
                 'order', row_to_json(new), tenant => 'acme', key => 'order-' || new.id);
             return new;
         end $$;
         create trigger start_order after insert on orders
             for each row execute function start_order();
         insert into orders select id, 100 * id from generate_series(1, 50) id",
    )
    .await;
    shop.run("begin; insert into orders values (51, 1); rollback").await;
    shop.run("insert into orders values (1, 2) on conflict do nothing").await;
    assert_eq!(shop.rows().await, [50; 3]);
    let sql = "select count(*) from orders o join windlass.runs r on r.key = 'order-' || o.id
        where r.input ->> 'cents' = o.cents::text";
    let matching: i64 = shop.user.query_one(sql, &[]).await.expect("it works").get(0);
    assert_eq!(matching, 50);
}

#[tokio::test]
async fn a_block_of_plpgsql_starts_runs_and_catches_refusals() {
    let shop = Shop::open().await;
    shop.run(
        r#"do $$
        declare first uuid := windlass.start_run('order', key => 'k');
        begin
            if windlass.start_run('order', key => 'k') <> first then
                raise 'the key named another run';
            end if;
            begin
                perform windlass.start_run('order', '{"other": true}', key => 'k');
                raise 'the conflict was not seen';
            exception when sqlstate 'WL005' then null;
            end;
            perform windlass.start_run('order');
        end $$"#,
    )
    .await;
    assert_eq!(shop.rows().await, [2; 3]);
}

#[tokio::test]
async fn a_batch_of_json_is_started_in_its_order() {
    let shop = Shop::open().await;
    let named = Uuid::from_u128(7);
    let sql = format!(
        r#"select position, run_id, is_new from windlass.start_runs('[
            {{"workflow": "order", "input": {{ "a":  [1, 2] }}, "tenant": "acme", "key": "k",
              "delay": "90 seconds", "priority": 4, "metadata": {{"m": "x"}}, "version": 1}},
            {{"workflow": "order"}},
            {{"workflow": "order", "input": {{ "a":  [1, 2] }}, "tenant": "acme", "key": "k"}},
            {{"workflow": "order", "id": "{named}", "key": null, "input": null}}
        ]')"#
    );
    let rows = shop.user.query(&sql, &[]).await.expect("it works");
    let answers: Vec<(i32, Uuid, bool)> =
        rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect();
    let news: Vec<_> = answers.iter().map(|(position, _, is_new)| (*position, *is_new)).collect();
    assert_eq!(news, [(1, true), (2, true), (3, false), (4, true)]);
    assert_eq!(answers[0].1, answers[2].1);
    assert_eq!(answers[3].1, named);
    assert_eq!(shop.rows().await, [3; 3]);
    let run = shop.store.get_run(RunId::from_uuid(answers[0].1)).await;
    let run = run.expect("the store is there").expect("it is there");
    assert_eq!(run.input.as_ref().unwrap().as_str(), r#"{ "a":  [1, 2] }"#);
    assert_eq!((run.tenant.as_str(), run.priority.get()), ("acme", 4));
    let delays = "select extract(epoch from delay)::integer from windlass.staged order by seq";
    let delays = shop.user.query(delays, &[]).await.expect("it works");
    let delays: Vec<i32> = delays.iter().map(|row| row.get(0)).collect();
    assert_eq!(delays, [90, 0, 0], "admitted in the order of the batch");
    let run = shop.store.get_run(RunId::from_uuid(answers[1].1)).await;
    let run = run.expect("the store is there").expect("it is there");
    assert_eq!((run.input.as_ref().unwrap().as_str(), run.tenant.as_str()), ("null", "default"));
    let none = shop.user.query("select position from windlass.start_runs('[]')", &[]).await;
    assert!(none.expect("it works").is_empty());
}

#[tokio::test]
async fn ids_that_are_made_for_a_batch_sort_like_the_batch() {
    let shop = Shop::open().await;
    let sql = r#"select position, run_id from windlass.start_runs((
        select json_agg(json_build_object('workflow', 'order', 'input', n))
        from generate_series(1, 1000) n))"#;
    let rows = shop.user.query(sql, &[]).await.expect("it works");
    let ids: Vec<Uuid> = rows.iter().map(|row| row.get(1)).collect();
    assert!(ids.is_sorted() && ids.iter().all(|id| id.get_version_num() == 7));
    let sql = "select r.input::text::integer from windlass.staged s
        join windlass.runs r on r.id = s.run_id order by s.seq";
    let staged = shop.user.query(sql, &[]).await.expect("it works");
    let staged: Vec<i32> = staged.iter().map(|row| row.get(0)).collect();
    assert_eq!(staged, (1..=1000).collect::<Vec<_>>());
}

#[tokio::test]
async fn no_start_reads_a_table_from_end_to_end() {
    let shop = Shop::open().await;
    let batch = "select count(*) from windlass.start_runs((
        select json_agg(json_build_object('workflow', 'order', 'input', n, 'key', 'k' || n))
        from generate_series(N, N + 1000) n))";
    // The first on empty tables, without statistics; the next two find keys in use.
    for start in ["1", "501", "501", "2001"] {
        shop.run("begin").await;
        shop.run(&batch.replace('N', start)).await;
        shop.run(
            "select windlass.start_run('order'), windlass.start_run('order', '1', key => 'k1')",
        )
        .await;
        let sql = "select string_agg(relname, ' ') from pg_stat_xact_user_tables
            where schemaname = 'windlass' and seq_scan > 0";
        let read: Option<String> = shop.user.query_one(sql, &[]).await.expect("it works").get(0);
        assert_eq!(read, None, "from {start}");
        shop.run("commit; analyze").await;
        // What the session prefers does not matter, nor that it is new to the functions.
        shop.run(
            "discard plans; set enable_indexscan = off; set enable_nestloop = off;
             set enable_bitmapscan = off; set plan_cache_mode = force_custom_plan",
        )
        .await;
    }
}

#[tokio::test]
async fn a_session_that_reads_backslashes_in_its_own_way_is_judged_as_any_other() {
    let shop = Shop::open().await;
    shop.run("set standard_conforming_strings = off; set escape_string_warning = off").await;
    // Many brackets, all of them in strings behind a quote that ends none.
    let input = format!("[{}]", vec![r#""\"[[""#; 200].join(","));
    let sql = "select windlass.start_run('order', $1::text::json, key => 'a')";
    let started = async { shop.user.query_one(sql, &[&input]).await };
    let started = tokio::time::timeout(PATIENCE, started).await.expect("it ends");
    started.expect("it is not nested deep");
}

#[tokio::test]
async fn a_role_needs_no_more_than_the_documented_privileges() {
    let shop = Shop::open().await;
    let role = format!("starter_{}", std::process::id());
    shop.run(&format!(
        "create role {role};
         grant usage on schema windlass to {role};
         set role {role}"
    ))
    .await;
    let (state, message) = shop.refusal("select windlass.start_run('order')").await;
    let wanted = ("42501", "permission denied for function start_run");
    assert_eq!((state.as_str(), message.as_str()), wanted);
    // Each form of a start needs the right to call itself and no other.
    shop.run(&format!(
        "reset role; grant execute on function windlass.start_run to {role}; set role {role}"
    ))
    .await;
    let first = start(&shop.user, "'order', key => 'k'").await;
    assert_eq!(start(&shop.user, "'order', key => 'k'").await, first);
    let batch = r#"select from windlass.start_runs('[{"workflow": "order"}]')"#;
    let (state, message) = shop.refusal(batch).await;
    let wanted = ("42501", "permission denied for function start_runs");
    assert_eq!((state.as_str(), message.as_str()), wanted);
    shop.run(&format!(
        "reset role; grant execute on function windlass.start_runs(json) to {role}; set role {role}"
    ))
    .await;
    shop.run(batch).await;
    let wrong = batch.replace(r#""order""#, r#""order", "delay": "soon""#);
    assert_eq!(shop.refusal(&wrong).await.0, "WL002");
    let may_call = "select string_agg(p.proname, ' ' order by p.proname) from pg_proc p
        where p.pronamespace = 'windlass'::regnamespace
            and has_function_privilege(p.oid, 'execute')";
    let may_call: String = shop.user.query_one(may_call, &[]).await.expect("it works").get(0);
    assert_eq!(may_call, "start_run start_runs");
    let (state, message) = shop.refusal("delete from windlass.runs").await;
    assert_eq!((state.as_str(), message.as_str()), ("42501", "permission denied for table runs"));
    shop.run(&format!("reset role; drop owned by {role}; drop role {role}")).await;
}

#[tokio::test]
async fn a_role_that_only_writes_a_table_starts_runs_through_a_trigger() {
    let shop = Shop::open().await;
    let role = format!("writer_{}", std::process::id());
    shop.run(&format!(
        "create table orders (id integer primary key);
         create function start_order() returns trigger language plpgsql security definer as $$
         begin
             perform windlass.start_run('order', row_to_json(new));
             return new;
         end $$;
         create trigger start_order after insert on orders
             for each row execute function start_order();
         create role {role};
         grant usage on schema public to {role};
         grant insert on orders to {role};
         set role {role};
         insert into orders values (1), (2);
         reset role; drop owned by {role}; drop role {role}"
    ))
    .await;
    assert_eq!(shop.rows().await, [2; 3]);
}

#[tokio::test]
async fn what_lies_in_the_callers_search_path_is_not_called() {
    let shop = Shop::open().await;
    shop.run(
        "create schema trap;
         create function trap.cardinality(anyarray) returns integer language plpgsql
             as $$ begin raise 'trapped'; end $$;
         create function trap.octet_length(text) returns integer language plpgsql
             as $$ begin raise 'trapped'; end $$;
         create function trap.equals(text, text) returns boolean language plpgsql
             as $$ begin raise 'trapped'; end $$;
         create operator trap.= (leftarg = text, rightarg = text, function = trap.equals);
         create temporary table runs (id integer);
         set search_path = trap, pg_catalog, pg_temp",
    )
    .await;
    let (_, message) = shop.refusal("select 'a'::text = 'b'::text").await;
    assert_eq!(message, "trapped", "the trap works");
    let id = shop.start("'order', key => 'k'").await;
    assert_eq!(shop.start("'order', key => 'k'").await, id);
    assert_eq!(shop.count("windlass.runs").await, 1);
}
