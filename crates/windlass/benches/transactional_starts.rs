//! What starts inside users' transactions cost:
//! `cargo bench -p windlass --all-features --bench transactional_starts`.
//!
//! On a private PostgreSQL that waits for its disk at every commit. The workflow has four
//! tasks, so a start writes three rows. The best of a few rounds counts; the others were
//! disturbed.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, TaskError, Windlass, Workflow};

const BATCH: u64 = 10_000;
const ROUNDS: usize = 3;
const ROUND: Duration = Duration::from_secs(3);

/// A user's own row.
const OWN: &str = "insert into public.orders (cents) values (4200)";
const START: &str =
    r#"select windlass.start_run('order', '{"id": 9182, "cents": 4200}', tenant => 'acme')"#;
const NOTIFY: &str = "select pg_notify('windlass', '')";

/// The rows of a batch, without asking whether anything is right.
const BARE: &str = r#"
with made as (
    insert into windlass.runs
        (id, definition_id, workflow, version, tenant, open_tasks, created_at, input)
    select windlass.new_run_id(), d.id, d.workflow, d.version, 'acme', 4, clock_timestamp(),
        '{"id": 9182, "cents": 4200}'
    from windlass.definitions d, generate_series(1, 10000) n
    returning id
), h as (
    insert into windlass.history (run_id, at, lines)
    select id, clock_timestamp(), E'\x04' from made
)
insert into windlass.staged (run_id) select id from made"#;

const JSON: &str = r#"
select count(*) from windlass.start_runs((
    select json_agg(json_build_object('workflow', 'order', 'tenant', 'acme',
        'input', json_build_object('id', n, 'cents', 4200)))
    from generate_series(1, 10000) n))"#;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let place = std::env::temp_dir().join(format!("windlass-bench-{}", std::process::id()));
    std::fs::create_dir_all(&place)?;
    std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o711))?;
    let result = measure(place.join("database")).await;
    std::fs::remove_dir_all(&place)?;
    result
}

async fn measure(directory: PathBuf) -> anyhow::Result<()> {
    let server = EmbeddedOptions::new(directory).temporary(true).start().await?;
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(url.as_str()).migrate(true)).await?;
    let order = order()?;
    // Makes the workflow known.
    windlass.start(&order, Order { id: 0, cents: 0 }).await?;
    let admin = connect(&url).await?;
    admin
        .batch_execute(
            "create table public.orders (id bigserial primary key, cents integer not null)",
        )
        .await?;

    println!("| one start a transaction, transactions/s | 1 client | 16 clients | 64 clients |");
    println!("|---|---|---|---|");
    for (what, statements) in [
        ("the user's own row", vec![OWN]),
        ("… and a start", vec![OWN, START]),
        ("… and a start and a NOTIFY", vec![OWN, START, NOTIFY]),
    ] {
        let mut line = format!("| {what} |");
        for clients in [1, 16, 64] {
            let mut best = 0.0_f64;
            for _ in 0..ROUNDS {
                best = best.max(transactions_per_second(&url, &statements, clients).await?);
            }
            write!(line, " {best:.0} |")?;
        }
        println!("{line}");
        empty(&admin).await?;
    }

    println!();
    println!("| a batch of 10,000 runs, one transaction | ms | runs/s |");
    println!("|---|---|---|");
    let mut session = connect(&url).await?;
    for (what, sql) in [("the same rows by bare inserts", BARE), ("`start_runs(json)`", JSON)] {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            session.batch_execute(sql).await?;
            best = best.min(begin.elapsed());
            empty(&admin).await?;
        }
        report(what, best);
    }
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let mut transaction = session.transaction().await?;
        windlass.start_all_in(&mut transaction, starts(&windlass, &order)).await?;
        transaction.commit().await?;
        best = best.min(begin.elapsed());
        empty(&admin).await?;
    }
    report("`start_all_in`, tokio-postgres", best);
    #[cfg(feature = "sqlx")]
    {
        use sqlx::Connection;
        let mut connection = sqlx::PgConnection::connect(&url).await?;
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            let mut transaction = connection.begin().await?;
            windlass.start_all_in(&mut transaction, starts(&windlass, &order)).await?;
            transaction.commit().await?;
            best = best.min(begin.elapsed());
            empty(&admin).await?;
        }
        report("`start_all_in`, sqlx", best);
    }
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        for answer in windlass.start_all(starts(&windlass, &order)).await? {
            answer?;
        }
        best = best.min(begin.elapsed());
        empty(&admin).await?;
    }
    report("`start_all`, the engine's own, into the queues at once", best);
    drop((admin, session, windlass));
    server.stop().await?;
    Ok(())
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Order {
    id: u64,
    cents: u64,
}

fn order() -> anyhow::Result<Workflow<Order>> {
    let mut order = Workflow::<Order>::builder("order");
    let charge = order.task("charge").run(async |_: Ctx<Order>| Ok::<_, TaskError>(()));
    let pack = order.task("pack").run(async |_: Ctx<Order>| Ok::<_, TaskError>(()));
    let ship = order.task("ship").after(&charge).after(&pack);
    let ship = ship.run(async |_: Ctx<Order>| Ok::<_, TaskError>(()));
    order.task("thank").after(&ship).run(async |_: Ctx<Order>| Ok::<_, TaskError>(()));
    Ok(order.build()?)
}

fn starts(
    windlass: &Windlass,
    order: &Workflow<Order>,
) -> impl Iterator<Item = windlass::Start> + Send {
    (0..BATCH).map(|id| windlass.start(order, Order { id, cents: 4_200 }).tenant("acme"))
}

fn report(what: &str, time: Duration) {
    let rate = BATCH as f64 / time.as_secs_f64();
    println!("| {what} | {} | {rate:.0} |", time.as_millis());
}

async fn empty(admin: &Client) -> anyhow::Result<()> {
    let sql = "truncate windlass.runs, windlass.task_rows, windlass.history,
        windlass.staged, windlass.ready, public.orders; checkpoint";
    for statement in sql.split(';') {
        admin.batch_execute(statement).await?;
    }
    Ok(())
}

async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// How many transactions of these statements so many clients commit a second.
async fn transactions_per_second(
    url: &str,
    statements: &[&'static str],
    clients: usize,
) -> anyhow::Result<f64> {
    let (count, is_over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    // One round trip for all, so that the transaction is the server's work and nothing else.
    let transaction = format!("begin; {}; commit", statements.join("; "));
    let mut sessions = Vec::new();
    for _ in 0..clients {
        let session = connect(url).await?;
        session.batch_execute(&transaction).await?;
        sessions.push(session);
    }
    let begin = Instant::now();
    let mut tasks = Vec::new();
    for session in sessions {
        let (count, is_over) = (Arc::clone(&count), Arc::clone(&is_over));
        let transaction = transaction.clone();
        tasks.push(tokio::spawn(async move {
            while !is_over.load(Ordering::Relaxed) {
                session.batch_execute(&transaction).await?;
                count.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<_, tokio_postgres::Error>(())
        }));
    }
    tokio::time::sleep(ROUND).await;
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        task.await??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64())
}
