//! Runs that are over go by themselves, in virtual time.

use std::time::Duration;

use windlass::store::RetentionRule;
use windlass::testing::TestEngine;
use windlass::{Ctx, ErrorKind, RunState, TaskError, Workflow};

const MINUTE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn whoever_does_the_duties_lets_old_runs_go_and_keeps_their_keys() {
    let mut ping = Workflow::<u32>::builder("ping");
    ping.task("answer").run(async |ctx: Ctx<u32>| Ok::<_, TaskError>(*ctx.input()));
    let ping = ping.build().expect("the workflow is right");
    let test = TestEngine::new().register(&ping);
    let windlass = test.windlass();
    let mut rule = RetentionRule::new(RunState::Succeeded, 10 * MINUTE);
    rule.keep_key_for = 60 * MINUTE;
    rule.archives = true;
    windlass.set_retention(rule.clone()).await.expect("it makes sense");
    assert_eq!(windlass.retention().await.expect("reading works"), [rule]);
    let run = test.start(&ping, 7).key("k").await.expect("it can be started");
    test.advance(8 * MINUTE).await;
    assert_eq!(run.get().await.expect("it is there").state, RunState::Succeeded);
    test.advance(4 * MINUTE).await;
    let gone = run.get().await.expect_err("it is gone");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let again = test.start(&ping, 7).key("k").await.expect("it was started");
    assert_eq!(again.id(), run.id());
    let other = test.start(&ping, 8).key("k").await.expect_err("it is another start");
    assert_eq!(other.kind(), ErrorKind::Conflict);
    let archived = windlass.archived_run(run.id()).await.expect("reading works");
    assert_eq!(archived.expect("it was archived").state, RunState::Succeeded);
}
