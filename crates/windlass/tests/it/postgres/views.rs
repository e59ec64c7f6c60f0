//! The views for whoever looks after a database: what they show, and what they cost.

use std::path::Path;
use std::sync::Arc;

use tokio_postgres::{Client, Row};
use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{Completion, NewRun, Store, WorkerLink};
use windlass_core::definition::TaskDraft;
use windlass_core::{
    Decision, Definition, DefinitionDraft, Failure, FailureCode, Limit, Payload, RunId, TaskKind,
    Tenant,
};

use super::driver::{Worker, new_run, start, succeed, workflow};
use super::explain::{buffers, explain};
use super::fill::Fill;
use crate::database::TestDatabase;

/// The views that this is about.
const VIEWS: [&str; 7] = [
    "queue_lag",
    "oldest_ready",
    "expired_leases",
    "throughput_by_minute",
    "worker_load",
    "dead_letters_by_key",
    "lane_usage",
];

struct Scene {
    client: Client,
    store: PostgresStore,
    one: Arc<Definition>,
    /// Dropped last: the database goes with it.
    _database: TestDatabase,
}

impl Scene {
    async fn new() -> Self {
        let database = TestDatabase::new().await;
        let client = database.client().await;
        let options = PostgresOptions::new(database.url());
        let store = PostgresStore::connect(options).await.expect("the database is there");
        let one = workflow("one", &["a", "b < a"]);
        store.register(Arc::clone(&one)).await.expect("it can be registered");
        Scene { client, store, one, _database: database }
    }

    async fn start(&self, tenant: &str) -> RunId {
        let tenant = Tenant::new(tenant).expect("it is a name");
        let run = NewRun { tenant, ..new_run(&self.one) };
        let id = run.id;
        let answers = self.store.start_runs(vec![run]).await.expect("the store is there");
        assert!(answers.iter().all(Result::is_ok), "{answers:?}");
        id
    }

    async fn execute(&self, sql: &str) {
        self.client.batch_execute(sql).await.unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    async fn rows(&self, sql: &str) -> Vec<Row> {
        let rows = self.client.query(sql, &[]).await;
        rows.unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// The first column of all rows, as text.
    async fn texts(&self, sql: &str) -> Vec<String> {
        self.rows(sql).await.iter().map(|row| row.get(0)).collect()
    }
}

#[tokio::test]
async fn every_view_and_every_column_is_explained() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let page = std::fs::read_to_string(page).expect("there is one");
    let scene = Scene::new().await;
    let views = "select c.relname::text from pg_class c
                 where c.relnamespace = 'windlass'::regnamespace and c.relkind = 'v'";
    for view in scene.texts(views).await {
        let is_told =
            page.contains(&format!("`{view}`")) || page.contains(&format!("### {view}\n"));
        assert!(is_told, "docs/operations.md lacks {view}");
    }
    for view in VIEWS {
        let (_, section) = page.split_once(&format!("\n### {view}\n")).expect("it has a section");
        let section = section.split("\n#").next().unwrap_or_default();
        let columns = format!(
            "select a.attname::text from pg_attribute a
             where a.attrelid = 'windlass.{view}'::regclass and a.attnum > 0"
        );
        for column in scene.texts(&columns).await {
            assert!(section.contains(&format!("`{column}`")), "{view} lacks {column}");
        }
    }
}

#[tokio::test]
async fn a_queue_lags_by_how_long_its_next_task_is_ready() {
    let scene = Scene::new().await;
    let lag = "select concat_ws(' ', queue, priority, ready, is_more, turns)
               from windlass.queue_lag order by priority";
    assert_eq!(scene.texts(lag).await, [""; 0]);
    let first = scene.start("acme").await;
    for _ in 0..4 {
        scene.start("acme").await;
    }
    scene.start("umbrella").await;
    assert_eq!(scene.texts(lag).await, ["default 0 6 f 5"]);
    let same = format!(
        "select (l.ready_since = e.at and l.lag = now() - e.at)::text
         from windlass.queue_lag l, windlass.events e
         where e.run_id = '{first}' and e.to_state = 'ready'"
    );
    assert_eq!(scene.texts(&same).await, ["true"]);
    let worker = Worker::join(&scene.store, &scene.one).await;
    assert_eq!(worker.claim(&scene.store, 6).await.len(), 6);
    assert_eq!(scene.texts(lag).await, [""; 0]);
}

/// The run is old, its task is not.
#[tokio::test]
async fn a_task_is_ready_since_its_history_says_so() {
    let scene = Scene::new().await;
    let run = scene.start("acme").await;
    let worker = Worker::join(&scene.store, &scene.one).await;
    let claimed = worker.claim(&scene.store, 1).await.remove(0);
    succeed(&scene.store, &claimed).await;
    scene.execute("update windlass.runs set created_at = now() - interval '1 day'").await;
    let ready = format!(
        "select concat_ws(' ', task, attempt, tenant, ready_since = (
             select max(e.at) from windlass.events e
             where e.run_id = '{run}' and e.idx = 1 and e.to_state = 'ready'
         ), started_at = ready_since) from windlass.oldest_ready"
    );
    assert_eq!(scene.texts(&ready).await, ["b 0 acme t f"]);

    // Tried again, it is ready since then.
    let claimed = worker.claim(&scene.store, 1).await.remove(0);
    let failure = Failure::new(FailureCode::Error, "no");
    let decision = Decision::Retry { failure, delay: std::time::Duration::ZERO };
    let completion = Completion { task: claimed.task, fence: claimed.fence, decision };
    scene.store.finish(vec![completion]).await.expect("finishing works");
    scene.store.promote_due(100).await.expect("it can be promoted");
    assert_eq!(scene.texts(&ready).await, ["b 1 acme t f"]);

    // Behind many entries it cannot be seen any more.
    scene
        .execute(&format!(
            "insert into windlass.history (run_id, at, lines)
             select '{run}', now(), '0 note - running - -' from generate_series(1, 100)"
        ))
        .await;
    assert_eq!(scene.texts(&ready).await, ["b 1 acme f t"]);
}

#[tokio::test]
async fn every_tenant_that_waits_is_shown_with_its_next_task() {
    let scene = Scene::new().await;
    let first = scene.start("acme").await;
    for _ in 0..3 {
        scene.start("acme").await;
    }
    let other = scene.start("umbrella").await;
    let ready = "select concat_ws(' ', queue, priority, tenant, workflow, version, run_id, task)
                 from windlass.oldest_ready order by tenant";
    let row = |tenant: &str, run: RunId| format!("default 0 {tenant} one 1 {run} a");
    assert_eq!(scene.texts(ready).await, [row("acme", first), row("umbrella", other)]);
    let worker = Worker::join(&scene.store, &scene.one).await;
    worker.claim(&scene.store, 5).await;
    assert_eq!(scene.texts(ready).await, [""; 0]);
}

#[tokio::test]
async fn leases_that_are_over_are_shown_until_they_are_taken_away() {
    let scene = Scene::new().await;
    let run = scene.start("acme").await;
    scene.start("acme").await;
    let worker = Worker::join(&scene.store, &scene.one).await;
    worker.claim(&scene.store, 1).await;
    let other = Worker::join(&scene.store, &scene.one).await;
    other.claim(&scene.store, 1).await;
    let expired = "select concat_ws(' ', reason, overdue > '59 minutes', run_id, task, attempt,
                       fence, worker_id, state) from windlass.expired_leases";
    assert_eq!(scene.texts(expired).await, [""; 0]);
    let id = worker.id;
    let late = "now() - interval '1 hour'";
    scene
        .execute(&format!(
            "update windlass.pulses set lease_until = {late} where worker_id = '{id}'"
        ))
        .await;
    let row = |reason: &str| [format!("{reason} t {run} a 1 1 {id} live")];
    assert_eq!(scene.texts(expired).await, row("lease"));
    scene
        .execute(&format!(
            "update windlass.pulses set lease_until = now() + interval '1 hour';
             update windlass.leases set take_back_at = {late} where worker_id = '{id}'"
        ))
        .await;
    assert_eq!(scene.texts(expired).await, row("visibility_timeout"));
    scene.store.reap(100).await.expect("it can be reaped");
    assert_eq!(scene.texts(expired).await, [""; 0]);
}

#[tokio::test]
async fn runs_are_counted_by_the_minute() {
    let scene = Scene::new().await;
    let minutes = "select concat_ws(' ', (extract(epoch from date_trunc('minute', now()) - minute)
                       / 60)::integer, started, succeeded, failed, cancelled, is_whole)
                   from windlass.throughput_by_minute order by minute desc";
    assert_eq!(scene.texts(minutes).await, [""; 0]);
    // In one transaction, in which `now()` is the same.
    scene.execute("begin").await;
    scene
        .execute(
            "insert into windlass.runs (id, definition_id, workflow, version, tenant, state,
                 open_tasks, created_at, ended_at, input)
             select gen_random_uuid(), 1, 'one', 1, 'acme', s.state,
                 case when s.state = 'running' then 1 else 0 end,
                 date_trunc('minute', now()) - s.started * interval '1 minute',
                 date_trunc('minute', now()) - s.ended * interval '1 minute', '1'
             from (values
                 ('running', 0, null), ('succeeded', 2, 0), ('succeeded', 2, 2), ('failed', 2, 2),
                 ('cancelled', 3, 2), ('succeeded', 70, 0)
             ) s (state, started, ended)",
        )
        .await;
    // The run of more than an hour ago is not counted, nor its end.
    let counted = scene.texts(minutes).await;
    assert_eq!(counted, ["0 1 1 0 0 t", "2 3 1 1 1 t", "3 1 0 0 0 t"]);
    scene
        .execute(
            "insert into windlass.runs (id, definition_id, workflow, version, tenant, open_tasks,
                 created_at, input)
             select gen_random_uuid(), 1, 'one', 1, 'acme', 1,
                 date_trunc('minute', now()) - interval '1 minute', '1'
             from generate_series(1, 10000)",
        )
        .await;
    let counted = scene.texts(minutes).await;
    assert_eq!(counted, ["0 1 0 0 0 t", "1 9999 0 0 0 f"]);
    scene.execute("rollback").await;
}

#[tokio::test]
async fn the_load_of_a_worker_is_what_it_has_of_its_slots() {
    let scene = Scene::new().await;
    for _ in 0..30 {
        scene.start("acme").await;
    }
    let worker = Worker::join(&scene.store, &scene.one).await;
    let load = "select concat_ws(' ', worker_id, state, slots, tasks, percent,
                    seen_at > now() - interval '1 minute', lease_until > now())
                from windlass.worker_load";
    let id = worker.id;
    let texts = scene.texts(load).await;
    assert!(texts[0].starts_with(&format!("{id} live 1000 0 0 ")), "{texts:?}");
    worker.claim(&scene.store, 30).await;
    assert_eq!(scene.texts(load).await, [format!("{id} live 1000 30 3 t t")]);
    scene.execute("update windlass.workers set is_draining = true").await;
    assert_eq!(scene.texts(load).await, [format!("{id} draining 1000 30 3 t t")]);
    let silent_for = async |seconds: u32| {
        let sql = "update windlass.pulses set lease_until = clock_timestamp() - interval";
        scene.execute(&format!("{sql} '{seconds} s'")).await;
        scene.texts("select state from windlass.worker_load").await
    };
    assert_eq!(silent_for(50).await, ["draining"]);
    assert_eq!(silent_for(61).await, ["dying"]);
    scene.store.leave(worker.id).await.expect("it can leave");
    assert_eq!(scene.texts(load).await, [""; 0]);
}

/// A workflow of one task with two limits.
fn limited() -> Arc<Definition> {
    let mut task = TaskDraft::new("send", TaskKind::Handler);
    task.limits = vec![Limit::per("customer", 1), Limit::of(5).named("all").across_tenants()];
    Arc::new(DefinitionDraft::new("mail").task(task).build().expect("the workflow is right"))
}

async fn start_mail(scene: &Scene, mail: &Arc<Definition>, customer: &str) -> RunId {
    let input = format!("{{\"customer\":\"{customer}\"}}");
    let input = Payload::from_json(input).expect("it is JSON");
    let run = NewRun { input, ..new_run(mail) };
    let id = run.id;
    let answers = scene.store.start_runs(vec![run]).await.expect("the store is there");
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    id
}

#[tokio::test]
async fn dead_letters_are_counted_by_the_keys_of_their_tasks() {
    let scene = Scene::new().await;
    let mail = limited();
    scene.store.register(Arc::clone(&mail)).await.expect("it can be registered");
    let worker = Worker::join(&scene.store, &mail).await;
    for (number, customer) in ["ann", "ann", "bob"].into_iter().enumerate() {
        start_mail(&scene, &mail, customer).await;
        let claimed = worker.claim(&scene.store, 1).await.remove(0);
        let failure = Failure::new(FailureCode::Error, format!("no {number}"));
        let decision = Decision::Fail(failure);
        let completion = Completion { task: claimed.task, fence: claimed.fence, decision };
        scene.store.finish(vec![completion]).await.expect("finishing works");
    }
    let counted = r#"select concat_ws(' ', workflow, task, "limit", key, dead_letters, reason, error,
                         oldest_at = newest_at)
                     from windlass.dead_letters_by_key order by "limit", key"#;
    assert_eq!(
        scene.texts(counted).await,
        [
            "mail send all 3 error no 2 f",
            "mail send mail/send/customer ann 2 error no 1 f",
            "mail send mail/send/customer bob 1 error no 2 t",
        ]
    );
    // A task without limits has no key.
    let one = Arc::clone(&scene.one);
    let worker = Worker::join(&scene.store, &one).await;
    scene.start("acme").await;
    let claimed = worker.claim(&scene.store, 1).await.remove(0);
    let decision = Decision::Fail(Failure::new(FailureCode::Panic, "oh"));
    let completion = Completion { task: claimed.task, fence: claimed.fence, decision };
    scene.store.finish(vec![completion]).await.expect("finishing works");
    let alone = r#"select concat_ws(' ', tenant, workflow, dead_letters, reason)
                   from windlass.dead_letters_by_key where "limit" is null and key is null"#;
    assert_eq!(scene.texts(alone).await, ["acme one 1 panic"]);
}

#[tokio::test]
async fn lanes_are_shown_with_who_is_in_them() {
    let scene = Scene::new().await;
    let mail = limited();
    scene.store.register(Arc::clone(&mail)).await.expect("it can be registered");
    let mut runs = Vec::new();
    for customer in ["ann", "ann", "ann", "bob"] {
        runs.push(start_mail(&scene, &mail, customer).await);
    }
    let usage = r#"select concat_ws(' ', "limit", coalesce(tenant, '-'), key, slots, taken, waiting,
                       is_more, first_run_id, first_idx, coalesce(next_run_id::text, '-'), next_idx)
                   from windlass.lane_usage order by "limit", key"#;
    let [first, second, _, bob] = runs[..] else { panic!("four were started") };
    assert_eq!(
        scene.texts(usage).await,
        [
            format!("all -  5 4 0 f {first} 0 -"),
            format!("mail/send/customer default ann 1 1 2 f {first} 0 {second} 0"),
            format!("mail/send/customer default bob 1 1 0 f {bob} 0 -"),
        ]
    );
    let worker = Worker::join(&scene.store, &mail).await;
    while let Some(claimed) = worker.claim(&scene.store, 1).await.pop() {
        succeed(&scene.store, &claimed).await;
    }
    assert_eq!(scene.texts(usage).await, [""; 0], "a lane in which nobody is costs nothing");
}

/// What the planner believes of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Belief {
    /// What is true.
    Right,
    /// That they are empty, as they were when they were vacuumed.
    Empty,
}

/// Dead letters, and tasks that wait in a lane.
fn dead_and_waiting(count: u32) -> String {
    format!(
        "insert into windlass.dead_letters (run_id, idx, round, version, attempts, failed_at,
             tenant, workflow, task, queue, reason, failure, lanes)
         select gen_random_uuid(), 0, 1, 1, 5, now() - n * interval '1 s', 'acme', 'one', 'a',
             'default', 'error', '{{\"message\":\"no\"}}',
             '[{{\"limit\":\"all\",\"key\":\"x\"}}]'
         from generate_series(1, {count}) n;
         insert into windlass.limits (name) values ('all');
         insert into windlass.lanes (limit_id, tenant_id, key, number, held, served, last, slots)
         select m.id, 0, 'key ' || n, 1, 1, 1, {count}, 1
         from windlass.limits m, generate_series(1, 10) n;
         insert into windlass.lane_places (run_id, idx, limit_id, tenant_id, key, seq, slots)
         select gen_random_uuid(), 0, m.id, 0, 'key ' || n % 10 + 1, n / 10 + 1, 1
         from windlass.limits m, generate_series(0, {count} - 1) n;"
    )
}

/// With the settings of anybody's session if the planner knows the tables, and otherwise with
/// those that docs/operations.md names. The limits of the views are passed on both databases.
#[tokio::test]
async fn no_view_reads_more_where_there_is_more() {
    for belief in [Belief::Right, Belief::Empty] {
        let mut looks = Vec::new();
        for (finished, ready) in [(2_000, 16_000), (6_000, 48_000)] {
            let scene = Scene::new().await;
            if belief == Belief::Empty {
                scene.execute("vacuum analyze").await;
            }
            start(&scene.store, &scene.one).await;
            let worker = Worker::join(&scene.store, &scene.one).await;
            let fill = Fill { finished, ready, tenants: 20 };
            fill.write(&scene.client).await.expect("it can be filled");
            scene.execute(&dead_and_waiting(ready)).await;
            worker.claim(&scene.store, 100).await;
            match belief {
                Belief::Right => scene.execute("vacuum analyze").await,
                Belief::Empty => {
                    scene.execute("set enable_seqscan = off; set enable_bitmapscan = off").await;
                }
            }
            let counted = "select concat_ws(' ', ready, is_more) from windlass.queue_lag";
            assert_eq!(scene.texts(counted).await, ["1000 t"]);
            let mut costs = Vec::new();
            for view in VIEWS {
                let sql = format!(
                    "explain (analyze, buffers, format json) select * from windlass.{view}"
                );
                let explained = explain(&scene.client, &sql).await.expect("it can be explained");
                costs.push((view, buffers(&explained)));
            }
            looks.push(costs);
        }
        for ((view, small), (_, large)) in looks[0].iter().zip(&looks[1]) {
            // An index may have one more level, at each of some looks.
            let most = small + small / 4 + 10;
            assert!(*large <= most, "{belief:?}: {view} reads {large} buffers, {small} of less");
        }
    }
}
