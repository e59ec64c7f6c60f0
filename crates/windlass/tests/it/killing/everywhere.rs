//! The examples, with a worker process killed at every place of every run.
//!
//! A trial is a run and a process that kills itself at one place of it: the first process at the
//! first place, and so on, until one comes to the end of its run. Processes live one after the
//! other, so each sees all places of its own run up to its death; what the ones before it left
//! comes back when their leases are over, and is ended by whoever lives then. So nobody waits for
//! leases, and each case takes seconds. A case of many places has several such chains, each in a
//! database of its own.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use tokio::sync::oneshot;
use tokio_postgres::Client;
use uuid::Uuid;
use windlass::store::WorkerLink;
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::{DutyOptions, RunId, TaskState, Tenant, Windlass, WorkerBuilder};

use super::cases::{Case, World};
use super::link::{DIES, Doom, EFFECT, KillingLink, RECORDED};
use super::{LEASE, PATIENCE};
use crate::database::TestDatabase;

/// Says that this process is a worker, for which database and case; whose run it dies of, if any,
/// and behind how many places.
const URL: &str = "WINDLASS_TEST_PLACES_URL";
const CASE: &str = "WINDLASS_TEST_PLACES_CASE";
const TENANT: &str = "WINDLASS_TEST_PLACES_TENANT";
const PLACES: &str = "WINDLASS_TEST_PLACES";

/// More places than any of the examples has.
const PLACES_MAX: usize = 1_000;

/// Between two looks at the runs of a trial.
const LOOK: Duration = Duration::from_millis(10);

/// How many tasks came back from dead processes.
const LOST: &str = "select count(*) from windlass.events where kind = 'lease_expired'";

/// The signal of `kill -9`.
const KILLED: i32 = 9;

#[tokio::test]
#[ignore = "not a test: the worker that another test starts, and that kills itself"]
async fn worker() {
    let Ok(url) = std::env::var(URL) else { return };
    // Told to end, or left alone by a test that was killed itself.
    let (tell, told) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::stdin().lines().last();
        let _ = tell.send(());
    });
    let case = Case::named(&std::env::var(CASE).unwrap());
    let doom = std::env::var(TENANT).ok().map(|tenant| Doom {
        tenant: Tenant::new(tenant).unwrap(),
        places: std::env::var(PLACES).unwrap().parse().unwrap(),
    });
    // What the test harness has written is no line of ours.
    println!();
    let world = World::new();
    let options = PostgresOptions::new(url).max_connections(2);
    let windlass = Windlass::connect(options).await.unwrap();
    let worker = windlass.worker().slots(1).lease(LEASE).duties(None);
    let worker = case.registrations(&world).into_iter().fold(worker, WorkerBuilder::registration);
    let link: Arc<dyn WorkerLink> = windlass.store().clone();
    let link = KillingLink::new(link, world, doom);
    let worker = worker.through(Arc::new(link)).spawn().unwrap();
    let _ = told.await;
    worker.drain().await.unwrap();
}

/// A worker process; told to end when it is dropped.
struct Process {
    stdin: Option<ChildStdin>,
    ended: oneshot::Receiver<(ExitStatus, Vec<String>)>,
}

impl Process {
    fn start(url: &str, case: Case, doom: Option<(&str, usize)>) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killing::everywhere::worker", "--ignored", "--nocapture"]);
        command.env(URL, url).env(CASE, case.name());
        if let Some((tenant, places)) = doom {
            command.env(TENANT, tenant).env(PLACES, places.to_string());
        }
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (tell, ended) = oneshot::channel();
        let stdin = child.stdin.take();
        std::thread::spawn(move || {
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let lines: Vec<String> = lines.map_while(Result::ok).collect();
            let _ = tell.send((child.wait().unwrap(), lines));
        });
        Process { stdin, ended }
    }

    /// Waits until it is dead, and tells it to end as soon as there is nothing to do. Gives what
    /// it said, and whether it was killed.
    async fn until(mut self, done: impl Future<Output = ()>) -> (bool, Vec<String>) {
        let told = tokio::select! {
            biased;
            told = &mut self.ended => told,
            () = done => {
                drop(self.stdin.take());
                self.ended.await
            }
        };
        let (status, lines) = told.unwrap();
        let is_killed = status.signal() == Some(KILLED);
        assert!(is_killed || status.success(), "{status}: {lines:#?}");
        (is_killed, lines)
    }
}

/// A run and where its process died.
struct Trial {
    tenant: String,
    /// When and at which verb; none if the process came to the end.
    death: Option<String>,
    /// How many effects had happened whose record was not known to be stored.
    doubtful: usize,
}

/// All trials of a case.
struct Trials {
    case: Case,
    database: TestDatabase,
    windlass: Windlass,
    client: Client,
    tried: Vec<Trial>,
    /// What happened outside, by tenant.
    effects: BTreeMap<String, Vec<String>>,
}

impl Trials {
    async fn new(case: Case) -> Self {
        let database = TestDatabase::new().await;
        let options = PostgresOptions::new(database.url()).max_connections(3);
        let windlass = Windlass::connect(options).await.unwrap();
        let client = database.client().await;
        Trials { case, database, windlass, client, tried: Vec::new(), effects: BTreeMap::new() }
    }

    /// Waits until every run of a tenant has ended, or of all tenants.
    async fn ended(&self, tenant: Option<&str>) {
        let undone = if self.case.is_undone() { 1 } else { 0 };
        let sql = "select count(*) filter (where state = 'running'),
            count(*) filter (where workflow like '%~undo'), count(distinct tenant)
            from windlass.runs where tenant = coalesce($1, tenant)";
        let began = Instant::now();
        loop {
            let row = self.client.query_one(sql, &[&tenant]).await.unwrap();
            let (running, undoing, tenants): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
            if running == 0 && undoing == tenants * undone {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "{running} runs of {tenant:?} do not end");
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Starts a run and a process that dies behind so many places of it; `false` if it did not.
    async fn attempt(&mut self, places: usize) -> bool {
        let tenant = format!("trial-{places}");
        let run = self.case.start(&self.windlass, &tenant).await;
        tokio::spawn(self.case.drive(run));
        let process = Process::start(&self.database.url(), self.case, Some((&tenant, places)));
        let (is_killed, lines) = process.until(self.ended(Some(&tenant))).await;
        let doubtful = self.hear(&tenant, &lines);
        let death = lines.iter().find_map(|line| line.strip_prefix(DIES)).map(str::to_owned);
        assert_eq!(is_killed, death.is_some(), "{lines:#?}");
        self.tried.push(Trial { tenant, death, doubtful });
        is_killed
    }

    /// Sorts what a process said of effects. Gives how many of a tenant it said last, without
    /// having said that their results were stored.
    fn hear(&mut self, tenant: &str, lines: &[String]) -> usize {
        let mut doubtful = 0;
        for line in lines {
            let effect = match line.strip_prefix(EFFECT) {
                Some(effect) => effect.split_once(' '),
                None => line.strip_prefix("to ").and_then(|mail| mail.split_once(": ")),
            };
            if let Some((whose, effect)) = effect {
                doubtful += usize::from(whose == tenant);
                self.effects.entry(whose.to_owned()).or_default().push(effect.to_owned());
            } else if line == RECORDED {
                doubtful = 0;
            }
        }
        doubtful
    }

    /// What became of a trial: of each of its runs the end of its tasks, and its steps.
    async fn ending(&self, tenant: &str) -> Vec<String> {
        let sql = "select id, workflow, state, input::text from windlass.runs where tenant = $1";
        let runs = self.client.query(sql, &[&tenant]).await.unwrap();
        let mut endings = Vec::new();
        for row in &runs {
            let (id, workflow): (Uuid, String) = (row.get(0), row.get(1));
            let mut text =
                format!("{workflow} {}: {}", row.get::<_, String>(3), row.get::<_, String>(2));
            for task in self.windlass.run(RunId::from_uuid(id)).tasks().await.unwrap() {
                text.push_str(&format!("\n  {}: {}", task.name, task.state));
                match (&task.output, &task.failure) {
                    (Some(output), _) => text.push_str(&format!(" {}", output.as_str())),
                    (None, Some(failure)) if task.state == TaskState::Failed => {
                        text.push_str(&format!(" {failure}"));
                    }
                    (None, _) => {}
                }
            }
            for (idx, call, number, kind, name) in self.steps(id).await {
                text.push_str(&format!("\n  task {idx}, call {call}: {kind} {name:?}, {number:?}"));
            }
            endings.push(text);
        }
        let mask = |text: String| {
            let text = text.replace(tenant, "TENANT");
            let ids = runs.iter().map(|row| row.get::<_, Uuid>(0).to_string());
            let text = ids.fold(text, |text, id| text.replace(&id, "RUN"));
            ["payment-", "\"account\":"].iter().fold(text, |text, before| masked(&text, before))
        };
        let mut endings: Vec<String> = endings.into_iter().map(mask).collect();
        endings.sort();
        endings
    }

    /// The steps of a run.
    async fn steps(&self, run: Uuid) -> Vec<(i32, i32, Option<i32>, String, String)> {
        let sql = "select idx, call, number, kind, name from windlass.steps
            where run_id = $1 order by idx, call";
        let rows = self.client.query(sql, &[&run]).await.unwrap();
        rows.iter()
            .map(|row| (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4)))
            .collect()
    }

    /// Compares what happened outside with what should have, once more by what is doubtful.
    fn check_effects(&self, trial: &Trial) -> usize {
        let Trial { tenant, death, doubtful, .. } = trial;
        let none = Vec::new();
        let seen = self.effects.get(tenant).unwrap_or(&none);
        let expected = self.case.effects();
        let more = seen.len().saturating_sub(expected.len());
        let at = format!("{tenant}, died {death:?}: {seen:?}");
        // Repeated or not, they happen one after the other.
        let mut order = seen.iter().map(String::as_str).collect::<Vec<_>>();
        let mut right = expected.to_vec();
        order.dedup();
        right.dedup();
        assert_eq!(order, right, "{at}");
        assert!(seen.len() >= expected.len(), "{at}");
        match death.as_deref().and_then(|death| death.split(' ').next()) {
            Some("during") => assert!(more <= *doubtful, "{at}"),
            _ => assert_eq!(more, *doubtful, "{at}"),
        }
        more
    }

    /// Kills a process at every place of these, and lets another one end what is left.
    async fn kill(&mut self, places: impl Iterator<Item = usize>) {
        // They are not killed: how leaders are replaced is tested elsewhere, and takes its time.
        let duties = self.windlass.duties(DutyOptions::default()).unwrap();
        for place in places {
            assert!(place < PLACES_MAX, "{:?} does not end", self.case);
            if !self.attempt(place).await {
                break;
            }
        }
        let last = Process::start(&self.database.url(), self.case, None);
        let (is_killed, lines) = last.until(self.ended(None)).await;
        assert!(!is_killed, "nobody kills the last one");
        self.hear("", &lines);
        drop(duties);
    }

    /// Looks at what became of all trials. The last one was not disturbed. Gives how many effects
    /// were repeated.
    async fn check(&self) -> usize {
        let last = self.tried.last().expect("there was a trial");
        let right = self.ending(&last.tenant).await;
        assert!(right.iter().any(|run| run.contains(self.case.ending())), "{right:#?}");
        let mut repeated = 0;
        for trial in &self.tried {
            let Trial { tenant, death, .. } = trial;
            assert_eq!(self.ending(tenant).await, right, "{tenant}, died {death:?}");
            repeated += self.check_effects(trial);
        }
        let options = PostgresOptions::new(self.database.audited_url());
        let report = audit(&options, &AuditOptions::default()).await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        repeated
    }

    async fn count(&self, sql: &str) -> i64 {
        self.client.query_one(sql, &[]).await.unwrap().get(0)
    }

    /// How many steps of each name a trial has.
    async fn names(&self) -> Vec<(String, i64)> {
        let last = self.tried.last().expect("there was a trial");
        let sql = "select s.name, count(*) from windlass.steps s
            join windlass.runs r on r.id = s.run_id
            where r.tenant = $1 and s.kind in ('step', 'undoable') group by s.name";
        let rows = self.client.query(sql, &[&last.tenant]).await.unwrap();
        rows.iter().map(|row| (row.get(0), row.get(1))).collect()
    }
}

/// Hides the letters and digits behind a text.
fn masked(text: &str, before: &str) -> String {
    let parts = text.split(before).enumerate().map(|(place, part)| match place {
        0 => part.to_owned(),
        _ => format!("*{}", part.trim_start_matches(|c: char| c.is_ascii_alphanumeric())),
    });
    parts.collect::<Vec<_>>().join(before)
}

/// Kills a process at every place of a case, and looks at what all of them left.
async fn kill_everywhere(case: Case, chains: usize) {
    let began = Instant::now();
    let chain = async |first: usize| {
        let mut trials = Trials::new(case).await;
        trials.kill((first..).step_by(chains)).await;
        let repeated = trials.check().await;
        (trials, repeated)
    };
    let all = join_all((0..chains).map(chain)).await;
    let deaths =
        all.iter().flat_map(|(trials, _)| &trials.tried).filter_map(|it| it.death.as_ref());
    let deaths: Vec<&String> = deaths.collect();
    // Every step was a place to die: before its record, meanwhile and behind it.
    for (name, count) in all[0].0.names().await {
        for when in ["before", "during", "after"] {
            let place = format!("{when} record of {name}");
            let there = deaths.iter().filter(|death| ***death == place).count() as i64;
            // How often a function that waits for many children goes on is not always the same,
            // and so the same place may have another number in the next trial.
            let is_everywhere = if case.has_children() { there > 0 } else { there == count };
            assert!(is_everywhere, "{there} of {count} {place}: {deaths:#?}");
        }
    }
    let (mut lost, mut repeated) = (0, 0);
    for (trials, again) in &all {
        lost += trials.count(LOST).await;
        repeated += again;
    }
    let (places, took) = (deaths.len(), began.elapsed().as_secs_f64());
    println!(
        "{case:?}: killed at {places} places, {lost} leases lost, {repeated} effects repeated, \
         {took:.1} s"
    );
}

/// What takes too long for every day; `cargo xtask test` runs it by name.
mod long {
    use super::*;

    macro_rules! killed_everywhere {
        ($($name:ident: $case:expr, $chains:expr;)*) => {$(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            #[ignore = "long"]
            async fn $name() {
                kill_everywhere($case, $chains).await;
            }
        )*};
    }

    killed_everywhere! {
        an_order_is_shipped_wherever_its_process_is_killed: Case::Shipped, 1;
        an_order_is_refunded_wherever_its_process_is_killed: Case::Refunded, 1;
        an_order_is_refused_wherever_its_process_is_killed: Case::Refused, 1;
        a_customer_is_given_up_wherever_the_process_is_killed: Case::Silent, 2;
        a_customer_is_welcomed_wherever_the_process_is_killed: Case::Confirmed, 1;
        a_report_counts_every_shop_once_wherever_a_process_is_killed: Case::Reported, 3;
        an_agent_answers_wherever_its_process_is_killed: Case::Answered, 1;
        a_journey_that_fails_is_undone_wherever_a_process_is_killed: Case::Stranded, 1;
        a_journey_that_is_cancelled_is_undone_wherever_a_process_is_killed: Case::CalledOff, 1;
    }
}
