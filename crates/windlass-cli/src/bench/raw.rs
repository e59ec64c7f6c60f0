//! The rows that draining a task moves, moved by bare SQL: no fence, no fairness, no lease
//! that is kept, nothing that looks before it writes. What an engine can be measured by.

use std::time::{Duration, Instant};

use tokio_postgres::Client;
use uuid::Uuid;

use super::ground::Ground;

/// How many tasks are moved at once.
const BATCH: i64 = 500;

/// How many connections move them.
const CONNECTIONS: usize = 3;

/// As the engine's connections have it.
const SETTINGS: &str = "set enable_seqscan = off; set enable_bitmapscan = off; set jit = off; \
     set plan_cache_mode = force_generic_plan";

/// Off the queue, leased, and noted in the history.
const CLAIM: &str = "
with picked as materialized (
    select r.ctid as place from windlass.ready r order by r.route_id, r.tag, r.seq
    limit $1 for update skip locked
),
taken as (
    delete from windlass.ready r where r.ctid = any(array(select p.place from picked p))
    returning r.*
),
leased as (
    insert into windlass.leases (
        run_id, idx, worker_id, claim_seq, route_id, tag, seq, fence, attempt, max_attempts
    )
    select t.run_id, t.idx, $2, 1, t.route_id, t.tag, t.seq, t.fence + 1, t.attempt + 1,
        t.max_attempts
    from taken t
),
told as (
    insert into windlass.history (run_id, at, lines)
    select t.run_id, clock_timestamp(), $3 from taken t
)
select t.run_id from taken t";

/// The result of one step of each, while its lease is kept where it is.
const RECORD: &str = "
with held as materialized (
    select l.run_id, l.idx from windlass.leases l where l.run_id = any($1) for key share
)
insert into windlass.steps (run_id, idx, call, number, failures, kind, name)
select h.run_id, h.idx, $2, $2, 0, 'step', 'nothing' from held h";

/// No longer leased, task and run ended, and noted in the history.
const FINISH: &str = "
with unleased as (
    delete from windlass.leases l where l.run_id = any($1) returning l.run_id, l.idx, l.fence
),
tasks as (
    insert into windlass.task_rows (
        run_id, idx, state, fence, attempt, answered_verb
    )
    select u.run_id, u.idx, 'succeeded', u.fence, 1, 'finish' from unleased u
),
runs as (
    update windlass.runs r
    set state = 'succeeded', open_tasks = 0, ended_at = clock_timestamp()
    where r.id = any($1)
)
insert into windlass.history (run_id, at, lines)
select u.run_id, clock_timestamp(), $2 from unleased u";

/// Moves this many tasks from the queue to their end, each with so many steps one after the
/// other, and answers how long it took.
pub(crate) async fn drain(ground: &Ground, tasks: u64, steps: u32) -> anyhow::Result<Duration> {
    let mut clients = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = ground.options().client().await?;
        client.batch_execute(SETTINGS).await?;
        clients.push(client);
    }
    let began = Instant::now();
    let moved = clients.into_iter().map(|client| tokio::spawn(move_all(client, steps)));
    let mut total = 0;
    for moved in moved.collect::<Vec<_>>() {
        total += moved.await??;
    }
    let time = began.elapsed();
    anyhow::ensure!(total == tasks, "raw SQL moved {total} of {tasks} tasks");
    Ok(time)
}

async fn move_all(client: Client, steps: u32) -> anyhow::Result<u64> {
    let claim = client.prepare(CLAIM).await?;
    let record = client.prepare(RECORD).await?;
    let finish = client.prepare(FINISH).await?;
    let worker = Uuid::from_u128(7);
    let started = format!("0\u{2}1 1\u{6}{}\"}}", worker.simple());
    let ended = "0\u{3}1 1\n\u{5}";
    let mut total = 0;
    loop {
        let rows = client.query(&claim, &[&BATCH, &worker, &started]).await?;
        if rows.is_empty() {
            return Ok(total);
        }
        let runs: Vec<Uuid> = rows.iter().map(|row| row.get(0)).collect();
        for step in 1..=steps.cast_signed() {
            client.execute(&record, &[&runs, &step]).await?;
        }
        client.execute(&finish, &[&runs, &ended]).await?;
        total += runs.len() as u64;
    }
}
