//! What is searched for it: a dump, every file of the server with its WAL and its log of all
//! statements, and every event and span of the process, for a text that was in every value.

#![expect(clippy::unwrap_used, reason = "the tools of tests are tests as well")]

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_postgres::NoTls;
use tracing::field::{Field, Visit};
use tracing::span;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::{Layer, registry};
use windlass::schedule::{Cadence, Schedule};
use windlass::store::postgres::PostgresOptions;
use windlass::store::{Action, RetentionRule};
use windlass::{
    Ctx, Function, Keyring, RetryPolicy, RunHandle, RunState, TaskError, Windlass, Workflow,
};

use super::search::{Found, search};
use crate::postgres::server::Server;

const PATIENCE: Duration = Duration::from_secs(60);

/// What nobody but a holder of the keys may ever see.
const CANARY: &str = "CANARY-5e0f7a1c";

/// What everybody may: it is in the metadata of runs, and shows that the search finds things.
const VISIBLE: &str = "VISIBLE-93d1c4b2";

/// A value of its own, with the canary in it.
fn canary(what: &str) -> String {
    format!("{CANARY} {what}")
}

/// All that the process says of itself: events and spans, with their fields, of all levels.
#[derive(Clone, Default)]
struct Everything(Arc<Mutex<String>>);

impl Visit for &Everything {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.lock().unwrap().push_str(&format!(" {}={value:?}", field.name()));
    }
}

impl<S: tracing::Subscriber> Layer<S> for Everything {
    fn on_new_span(&self, attributes: &span::Attributes<'_>, _: &span::Id, _: Context<'_, S>) {
        self.0.lock().unwrap().push_str(&format!("\n{}", attributes.metadata().name()));
        attributes.record(&mut &*self);
    }

    fn on_record(&self, _: &span::Id, values: &span::Record<'_>, _: Context<'_, S>) {
        values.record(&mut &*self);
    }

    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.lock().unwrap().push('\n');
        event.record(&mut &*self);
    }
}

async fn ended(run: &RunHandle) -> RunState {
    let record = tokio::time::timeout(PATIENCE, run.wait()).await.expect("it ends in time");
    record.expect("the server answers").state
}

/// Waits until something is so.
async fn until(is_so: impl AsyncFn() -> bool) {
    let all = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, all).await.expect("it becomes so in time");
}

/// A DAG with a checkpoint, a note on progress and an attempt that fails, which succeeds; and one
/// that fails for good.
async fn run_dags(windlass: &Windlass) {
    let mut dag = Workflow::<String>::builder("dag");
    let again = RetryPolicy::fixed(Duration::ZERO).attempts(2);
    let noted = Arc::new(tokio::sync::Notify::new());
    let is_noted = Arc::clone(&noted);
    let first = dag.task("first").retry(again).run(move |ctx: Ctx<String>| {
        let noted = Arc::clone(&is_noted);
        async move {
            assert_eq!(*ctx.input(), canary("input"));
            if ctx.attempt() == 1 {
                ctx.checkpoint(&canary("checkpoint")).await?;
                ctx.progress(&canary("progress"))?;
                // A heartbeat takes the note along.
                noted.notified().await;
                return Err(TaskError::new(canary("attempt")));
            }
            assert_eq!(ctx.last_checkpoint::<String>()?, Some(canary("checkpoint")));
            assert!(ctx.last_failure().expect("it failed").message.contains(&canary("attempt")));
            Ok(canary("output"))
        }
    });
    let second = dag.task("second").reads(&first).run(async |_, read: String| {
        assert_eq!(read, canary("output"));
        Ok::<_, TaskError>(canary("second"))
    });
    let dag = dag.build().unwrap();
    let mut doomed = Workflow::<String>::builder("doomed");
    doomed.task("doomed").retry(RetryPolicy::none()).run(async |_: Ctx<String>| {
        Err::<(), _>(TaskError::new(canary("failure")).code("declined"))
    });
    doomed.on_failure("sorry").run(async |_: Ctx<String>, failures| {
        assert!(format!("{failures:?}").contains(&canary("failure")), "{failures:?}");
        Ok::<_, TaskError>(canary("sorry"))
    });
    let doomed = doomed.build().unwrap();
    let worker = windlass.worker().register(&dag).register(&doomed);
    let worker = worker.lease(Duration::from_secs(2)).spawn().unwrap();
    let run = windlass.start(&dag, canary("input")).metadata("note", VISIBLE).await.unwrap();
    until(async || {
        let progress = run.tasks().await.unwrap()[0].progress.clone();
        progress.is_some_and(|note| note.decode::<String>() == Ok(canary("progress")))
    })
    .await;
    let why = format!("{:?}", run.why().await.unwrap());
    assert!(why.contains(&canary("progress")), "{why}");
    noted.notify_one();
    assert_eq!(ended(&run).await, RunState::Succeeded);
    assert_eq!(run.output(&second).await.unwrap(), canary("second"));
    let run = windlass.start(&doomed, canary("doomed")).await.unwrap();
    assert_eq!(ended(&run).await, RunState::Failed);
    let history = format!("{:?}", run.history().await.unwrap());
    assert!(history.contains(&canary("failure")), "{history}");
    let why = format!("{:?}", run.why().await.unwrap());
    assert!(why.contains(&canary("failure")), "{why}");
    let letters = windlass.dead_letters(Default::default()).list(None, 10).await.unwrap();
    assert!(letters.letters[0].failure.message.contains(&canary("failure")));
    worker.drain().await.unwrap();
}

/// Functions with steps, children, signals, and something to undo.
async fn run_functions(windlass: &Windlass) {
    let child = Function::<String, String>::new("child", async |ctx: Ctx<String>| {
        Ok::<_, TaskError>(format!("{} done", ctx.input()))
    });
    let child = child.unwrap();
    let tries = Arc::new(AtomicU32::new(0));
    let (of_child, tried) = (child.clone(), Arc::clone(&tries));
    let parent = Function::<String, String>::builder("parent").retry(RetryPolicy::none());
    let parent = parent
        .run(move |ctx: Ctx<String>| {
            let (child, tried) = (of_child.clone(), Arc::clone(&tried));
            async move {
                if *ctx.input() == canary("start") {
                    return Err(ctx.continue_with(&canary("afresh")));
                }
                let step = ctx.step("step", async || match tried.fetch_add(1, Ordering::Relaxed) {
                    0 => Err(TaskError::new(canary("step failure"))),
                    _ => Ok(canary("step")),
                });
                let again = RetryPolicy::fixed(Duration::from_millis(10)).attempts(2);
                assert_eq!(step.retry(again).await?, canary("step"));
                let done = ctx.run(&child, canary("child")).await?;
                assert_eq!(done, format!("{} done", canary("child")));
                let to_run: String = ctx.signal("to-run").await?;
                let to_key: String = ctx.signal("to-key").key("k").await?;
                ctx.step("undoable", async || Ok::<_, TaskError>(canary("to undo")))
                    .compensate(async |value: String| {
                        assert_eq!(value, canary("to undo"));
                        Ok::<_, TaskError>(())
                    })
                    .await?;
                let text = format!("{to_run} {to_key} {}", canary("function"));
                Err::<String, _>(TaskError::new(text))
            }
        })
        .unwrap();
    let worker = windlass.worker().register(&parent).register(&child).spawn().unwrap();
    let run = windlass.start(&parent, canary("start")).key("parent-1").await.unwrap();
    run.signal("to-run", &canary("to run")).await.unwrap();
    windlass.signal_key("k", "to-key", &canary("to key")).await.unwrap();
    assert_eq!(ended(&run).await, RunState::Failed);
    let failure = run.tasks().await.unwrap()[0].failure.clone().unwrap();
    assert!(failure.message.contains(&canary("to run")), "{failure}");
    assert!(failure.message.contains(&canary("to key")), "{failure}");
    let undone = run.undone_by().await.unwrap().expect("it is undone by itself");
    assert_eq!(ended(&undone).await, RunState::Succeeded);
    let steps = format!("{:?}", run.steps("parent").await.unwrap());
    for what in ["step", "child", "to run", "to key", "to undo"] {
        assert!(steps.contains(&canary(what)), "{what}: {steps}");
    }
    worker.drain().await.unwrap();
}

/// What goes through transactions of users, and not through the store.
async fn run_transactions(windlass: &Windlass, url: &str) {
    let manager = deadpool_postgres::Manager::new(url.parse().unwrap(), NoTls);
    let pool = deadpool_postgres::Pool::builder(manager).max_size(4).build().unwrap();
    let mut once = Workflow::<String>::builder("once");
    let of_once = pool.clone();
    let task = once.task("once").run(move |ctx: Ctx<String>| {
        let pool = of_once.clone();
        async move {
            let value = ctx.once("k", &pool, async |_| Ok::<_, TaskError>(canary("once"))).await?;
            // What was done before is read back, and not done again.
            let never = async |_| Err::<String, _>(TaskError::new("it was done before"));
            let again = ctx.once("k", &pool, never).await?;
            assert_eq!(value, again);
            Ok::<_, TaskError>(value)
        }
    });
    let once = once.build().unwrap();
    let of_step = pool.clone();
    let stepping = Function::<String, String>::new("stepping", move |ctx: Ctx<String>| {
        let pool = of_step.clone();
        async move {
            let work = async |_| Ok::<_, TaskError>(canary("transaction"));
            ctx.transaction("write", &pool, work).await
        }
    });
    let stepping = stepping.unwrap();
    let worker = windlass.worker().register(&once).register(&stepping).spawn().unwrap();
    let mut client = pool.get().await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    let start = windlass.start(&once, canary("staged"));
    let run = start.in_transaction(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(ended(&run).await, RunState::Succeeded);
    assert_eq!(
        run.get().await.unwrap().input.unwrap().decode::<String>().unwrap(),
        canary("staged")
    );
    assert_eq!(run.output(&task).await.unwrap(), canary("once"));
    let run = windlass.start(&stepping, canary("stepping")).await.unwrap();
    assert_eq!(ended(&run).await, RunState::Succeeded);
    assert_eq!(run.output(stepping.output()).await.unwrap(), canary("transaction"));
    worker.drain().await.unwrap();
}

/// What operators say, what schedules start, what duties fail with, and what goes to the archive.
async fn run_the_rest(windlass: &Windlass) {
    let mut report = Workflow::<String>::builder("report");
    let task =
        report.task("write").run(async |ctx: Ctx<String>| Ok::<_, TaskError>(ctx.input().clone()));
    let report = report.build().unwrap();
    let daily = Cadence::cron("0 2 * * *", "UTC").unwrap();
    let schedule = Schedule::new("daily", &report, canary("schedule"), daily);
    windlass.schedule(schedule).await.unwrap();
    let page = windlass.schedules(Default::default()).await.unwrap();
    let input = page.schedules[0].schedule.input.decode::<String>().unwrap();
    assert_eq!(input, canary("schedule"));
    let tenant = page.schedules[0].schedule.key.tenant.to_string();

    let told = Arc::new(tokio::sync::Notify::new());
    let tells = Arc::clone(&told);
    let worker = windlass.worker().register(&report);
    let worker = worker.duty("tidy", Duration::from_secs(3_600), move |_| {
        let tells = Arc::clone(&tells);
        async move {
            tells.notify_one();
            Err::<(), _>(TaskError::new(canary("duty")))
        }
    });
    let worker = worker.spawn().unwrap();
    let run = windlass.scheduled(&tenant, "daily").unwrap().trigger().await.unwrap();
    assert_eq!(ended(&run).await, RunState::Succeeded);
    assert_eq!(run.output(&task).await.unwrap(), canary("schedule"));
    tokio::time::timeout(PATIENCE, told.notified()).await.unwrap();
    until(async || {
        let duties = windlass.store().list_duties().await.unwrap();
        let error = duties.first().and_then(|duty| duty.last_error.clone());
        error.is_some_and(|error| error.contains(&canary("duty")))
    })
    .await;

    let waiting = windlass.start(&report, canary("cancelled")).delay(Duration::from_secs(3_600));
    let waiting = waiting.await.unwrap();
    let detail = serde_json::json!({ "why": canary("detail") });
    let (by, action) = ("someone", Action::CancelRun);
    windlass.note_action(by, action, Some(waiting.id()), Some(&detail)).await.unwrap();
    waiting.cancel(canary("reason")).await.unwrap();
    let history = format!("{:?}", waiting.history().await.unwrap());
    assert!(history.contains(&canary("reason")), "{history}");
    let log = format!("{:?}", windlass.store().list_log(Default::default()).await.unwrap());
    assert!(log.contains(&canary("detail")), "{log}");

    let mut rule = RetentionRule::new(RunState::Succeeded, Duration::ZERO);
    rule.archives = true;
    windlass.store().set_retention(rule).await.unwrap();
    until(async || {
        windlass.store().prune(100).await.unwrap();
        windlass.store().get_archived_run(run.id()).await.unwrap().is_some()
    })
    .await;
    let archived = windlass.store().get_archived_run(run.id()).await.unwrap().unwrap();
    assert!(archived.body.as_str().matches(&canary("schedule")).count() >= 2, "{archived:?}");
    worker.drain().await.unwrap();
}

fn dump(url: &str) -> String {
    let output = std::process::Command::new("pg_dump").arg(url).output();
    let output = output.expect("pg_dump is beside the server");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where a text is in the files of a server, by what they are.
fn kinds_of(found: &[Found], place: &Path) -> BTreeSet<&'static str> {
    let kind = |found: &Found| {
        let path = found.path.strip_prefix(place).unwrap_or(&found.path).to_string_lossy();
        match path {
            path if path.contains("pg_wal") => "wal",
            path if path.contains("data/base/") => "tables",
            path if path.ends_with("server.log") => "log",
            _ => "other",
        }
    };
    found.iter().map(kind).collect()
}

#[tokio::test]
async fn no_value_is_in_a_dump_the_files_the_wal_the_logs_or_the_traces() {
    let everything = Everything::default();
    let _listening = tracing::subscriber::set_default(registry().with(everything.clone()));
    let settings = [("log_statement", "all"), ("log_min_duration_statement", "0")];
    let settings = settings.map(|(name, value)| (name, value.to_owned()));
    let server = Server::start_with(settings.to_vec()).await;
    let options = PostgresOptions::new(server.url()).migrate(true);
    let keys = Keyring::parse(&Keyring::fresh_line("k1").unwrap()).unwrap().required(true);
    let windlass = Windlass::connect(options).await.unwrap().sealed(keys);
    run_dags(&windlass).await;
    run_functions(&windlass).await;
    run_transactions(&windlass, &server.url()).await;
    run_the_rest(&windlass).await;

    let client = server.client().await;
    client.batch_execute("checkpoint").await.unwrap();
    let dump = dump(&server.url());
    let said = everything.0.lock().unwrap().clone();
    // First that whoever looks finds: the dump and the files have what is not sealed.
    assert!(dump.contains(VISIBLE), "the dump has what is not sealed");
    let visible = kinds_of(&search(server.place(), VISIBLE), server.place());
    assert!(visible.is_superset(&BTreeSet::from(["wal", "tables", "log"])), "{visible:?}");
    assert!(said.contains("attempt failed") && said.contains("windlass.attempt"), "it listens");
    assert!(said.contains("otel.status_description=\"declined\""), "{said}");

    assert!(!dump.contains(CANARY), "the dump has {}", around(&dump));
    let found = search(server.place(), CANARY);
    assert!(found.is_empty(), "{found:#?}");
    assert!(!said.contains(CANARY), "the process says {}", around(&said));
}

/// What is around the canary.
fn around(text: &str) -> String {
    let at = text.find(CANARY).unwrap_or_default();
    let from = text.floor_char_boundary(at.saturating_sub(200));
    text[from..text.floor_char_boundary(at + 100)].to_owned()
}
