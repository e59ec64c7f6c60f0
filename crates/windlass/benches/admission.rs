//! How long after the commit of a user's transaction the first task of a run that it started
//! begins: `cargo bench -p windlass --all-features --bench admission`.
//!
//! On a private PostgreSQL that waits for its disk at every commit, with an idle worker that
//! does the background duties once per second, as by default. Whoever starts runs has a store
//! of its own, as in another process, except where it is said otherwise.

use std::collections::HashMap;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_postgres::{Client, NoTls};
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, TaskError, Windlass, Workflow};

/// How many starts are measured of each kind.
const STARTS: u64 = 200;

/// Fewer, where every one is preceded by a pause in which everything comes to rest.
const LONELY_STARTS: u64 = 40;

/// Longer than the worker keeps looking more often after it has seen a start.
const REST: Duration = Duration::from_secs(2);

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
    let options = || PostgresOptions::new(server.url()).migrate(true);
    let (here, elsewhere) =
        (Windlass::connect(options()).await?, Windlass::connect(options()).await?);
    let (sender, begun) = unbounded_channel();
    let order = order(sender)?;
    let worker = here.worker().register(&order).spawn()?;
    let (client, connection) = tokio_postgres::connect(&server.url(), NoTls).await?;
    tokio::spawn(connection);
    let mut bench = Bench { client, order, begun, at: HashMap::new(), next: 0 };

    println!("| commit to the start of the first task, ms | p50 | p99 |");
    println!("|---|---|---|");
    let ms = Duration::from_millis;
    for (what, by, count, pause) in [
        ("Rust, `admit()` or `wait()` after the commit", By::Admit(&elsewhere), STARTS, ms(50)),
        ("Rust, nothing called, in the worker's own process", By::Rust(&here), STARTS, ms(50)),
        ("SQL, `notify windlass, 't'` after the commit", By::Notify, STARTS, ms(50)),
        ("SQL, 100 starts a second", By::Sql, STARTS, ms(10)),
        ("SQL, 10 starts a second", By::Sql, STARTS, ms(100)),
        ("SQL, one start after everything came to rest", By::Sql, LONELY_STARTS, REST),
    ] {
        bench.run(what, by, count, pause).await?;
    }
    worker.drain().await?;
    drop((here, elsewhere, bench));
    server.stop().await?;
    Ok(())
}

fn order(begun: UnboundedSender<(u64, Instant)>) -> anyhow::Result<Workflow<u64>> {
    let mut order = Workflow::<u64>::builder("order");
    let begun = Arc::new(begun);
    order.task("charge").run(move |ctx: Ctx<u64>| {
        // Nobody listens any more when the bench is over.
        let _ = begun.send((*ctx.input(), Instant::now()));
        async { Ok::<_, TaskError>(()) }
    });
    Ok(order.build()?)
}

/// Who starts, and what it does after the commit.
#[derive(Clone, Copy)]
enum By<'a> {
    Admit(&'a Windlass),
    Rust(&'a Windlass),
    Notify,
    Sql,
}

struct Bench {
    client: Client,
    order: Workflow<u64>,
    begun: UnboundedReceiver<(u64, Instant)>,
    at: HashMap<u64, Instant>,
    next: u64,
}

impl Bench {
    async fn run(
        &mut self,
        what: &str,
        by: By<'_>,
        count: u64,
        pause: Duration,
    ) -> anyhow::Result<()> {
        let mut waits = Vec::new();
        // The first is not counted: plans are made and connections opened.
        for number in 0..=count {
            let share = pause.mul_f64(fastrand::f64());
            tokio::time::sleep(pause / 2 + share).await;
            let (id, committed) = self.start(by).await?;
            while !self.at.contains_key(&id) {
                let (id, at) = self.begun.recv().await.expect("the worker lives");
                self.at.insert(id, at);
            }
            let wait = self.at[&id].saturating_duration_since(committed);
            if number > 0 {
                waits.push(wait);
            }
        }
        waits.sort_unstable();
        let quantile = |share: f64| {
            let index = (waits.len() as f64 * share).ceil() as usize;
            waits[index.clamp(1, waits.len()) - 1].as_secs_f64() * 1e3
        };
        println!("| {what} | {:.1} | {:.1} |", quantile(0.5), quantile(0.99));
        Ok(())
    }

    /// Starts a run in a transaction; answers when it was committed.
    async fn start(&mut self, by: By<'_>) -> anyhow::Result<(u64, Instant)> {
        self.next += 1;
        let id = self.next;
        let mut transaction = self.client.transaction().await?;
        match by {
            By::Admit(windlass) | By::Rust(windlass) => {
                windlass.start(&self.order, id).in_transaction(&mut transaction).await?;
            }
            By::Notify | By::Sql => {
                let sql = format!("select windlass.start_run('order', '{id}')");
                transaction.batch_execute(&sql).await?;
            }
        }
        transaction.commit().await?;
        let committed = Instant::now();
        match by {
            By::Admit(windlass) => windlass.admit(),
            By::Notify => self.client.batch_execute("notify windlass, 't'").await?,
            By::Rust(_) | By::Sql => {}
        }
        Ok((id, committed))
    }
}
