//! A schedule that fires every second while the process that leads is killed again and again.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use windlass::schedule::{Cadence, Schedule};
use windlass::store::postgres::{AuditOptions, PostgresOptions, audit};
use windlass::store::{Duty, Holder};
use windlass::{Ctx, DutyOptions, TaskError, Timestamp, Windlass, Workflow};

use super::connect;
use crate::database::TestDatabase;

/// Says that this process does the duties, and for which database.
const URL: &str = "WINDLASS_TEST_SCHEDULES_URL";

/// For how many seconds the schedule fires, if not this many, and how often the leader is killed.
const SECONDS: &str = "WINDLASS_TEST_SCHEDULE_SECONDS";
const SECONDS_USUAL: u64 = 20;
const KILL_EVERY: u64 = 10;

/// How long after the last kill all of it may take.
const PATIENCE: Duration = Duration::from_secs(60);

const LEADERS: usize = 2;

fn beat() -> Workflow<()> {
    let mut workflow = Workflow::<()>::builder("beat");
    workflow.task("note").run(async |_: Ctx<()>| Ok::<_, TaskError>(()));
    workflow.build().unwrap()
}

#[tokio::test]
#[ignore = "not a test: the leader that another test starts and kills"]
async fn leader() {
    let Ok(url) = std::env::var(URL) else { return };
    let windlass = Windlass::connect(url.as_str()).await.unwrap();
    let options = DutyOptions::default().ttl(Duration::from_secs(2));
    let _duties = windlass.duties(options).unwrap();
    // Nobody is left behind by a test that is killed itself.
    tokio::task::spawn_blocking(|| std::io::stdin().read(&mut [0])).await.unwrap().unwrap();
}

/// A process that may lead; killed when it is dropped.
struct Leader(Child);

impl Leader {
    fn start(url: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "killing::schedules::leader", "--ignored", "--nocapture"]);
        let command = command.env(URL, url).stdin(Stdio::piped());
        Leader(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// As the options of duties call it if nothing is said.
    fn name(&self) -> String {
        format!("duties-{}", self.0.id())
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        // By the standard library that is SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Who does the duty of schedules.
async fn holder(windlass: &Windlass) -> Option<Holder> {
    let leaders = windlass.leaders().await.unwrap();
    let leader = leaders.into_iter().find(|leader| leader.duty == Duty::Schedules).unwrap();
    leader.holder
}

mod long {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "long"]
    async fn each_second_fires_once_however_often_the_leader_is_killed() {
        let seconds = std::env::var(SECONDS).ok().map(|text| text.parse().unwrap());
        let seconds: u64 = seconds.unwrap_or(SECONDS_USUAL);
        let database = TestDatabase::new().await;
        let url = database.url();
        let windlass = Windlass::connect(url.as_str()).await.unwrap();
        let client = connect(&url).await;
        let begin = windlass.store().now().await.unwrap();
        let last = begin + Duration::from_secs(seconds);
        let cadence = Cadence::every(Duration::from_secs(1)).unwrap();
        let schedule = Schedule::new("beat", &beat(), (), cadence).ends_at(last);
        let first = windlass.schedule(schedule).await.unwrap().next_at.unwrap();
        let mut leaders: Vec<Leader> = (0..LEADERS).map(|_| Leader::start(&url)).collect();
        let (mut kills, mut kill_at) = (0, begin + Duration::from_secs(KILL_EVERY));
        let deadline = Instant::now() + Duration::from_secs(seconds) + PATIENCE;
        loop {
            let record = windlass.scheduled("default", "beat").unwrap().get().await.unwrap();
            if record.unwrap().next_at.is_none() {
                break;
            }
            assert!(Instant::now() < deadline, "it does not come to its end");
            let now = windlass.store().now().await.unwrap();
            if now >= kill_at
                && let Some(holder) = holder(&windlass).await
                && let Some(leading) = leaders.iter().position(|one| one.name() == holder.name)
            {
                leaders[leading] = Leader::start(&url);
                kills += 1;
                kill_at = now + Duration::from_secs(KILL_EVERY);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let sql = "select metadata ->> 'windlass.nominal', count(*) from windlass.runs group by 1
            order by 1";
        let rows = client.query(sql, &[]).await.unwrap();
        let fired: Vec<(String, i64)> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let all = (0..).map(|number| first + Duration::from_secs(number));
        let all = all.take_while(|at: &Timestamp| *at <= last);
        let wanted: Vec<(String, i64)> = all.map(|at| (at.to_string(), 1)).collect();
        assert_eq!(fired, wanted);
        println!("{} seconds fired once each, {kills} leaders were killed", fired.len());
        assert!(kills > 0, "nobody was killed");
        drop(leaders);
        let report = audit(&PostgresOptions::new(&url), &AuditOptions::default()).await.unwrap();
        assert!(report.is_clean(), "{report:#?}");
    }
}
