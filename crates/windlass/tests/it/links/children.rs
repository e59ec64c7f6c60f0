//! What a function makes of what the store says of its children.

use windlass::store::{Child, StoreError};
use windlass::{Ctx, Function, RetryPolicy, RunState, TaskError};

use super::{Mood, SECOND, moody};

/// The children of a call, as a link in this mood tells of them.
pub(super) fn as_told(mood: Mood, mut children: Vec<Child>) -> Result<Vec<Child>, StoreError> {
    if mood == Mood::Unread {
        return Err(StoreError::Unreadable("no key".to_owned()));
    }
    if mood == Mood::Swaps
        && let [one, .., other] = children.as_mut_slice()
    {
        std::mem::swap(&mut one.place, &mut other.place);
        children.reverse();
    }
    Ok(children)
}

/// Why a function failed that waits for two children.
async fn difference(mood: Mood) -> windlass::Failure {
    let (windlass, link) = moody(mood);
    let same = Function::new("same", async |ctx: Ctx<u32>| Ok::<_, TaskError>(*ctx.input()));
    let same = same.expect("the function is valid");
    let of_child = same.clone();
    let both = Function::<(), u32>::builder("both").retry(RetryPolicy::none());
    let both = both.run(move |ctx: Ctx<()>| {
        let same = of_child.clone();
        async move {
            let numbers = ctx.map(&same, [7, 5]).await?;
            let numbers = numbers.into_iter().collect::<Result<Vec<u32>, TaskError>>()?;
            Ok::<_, TaskError>(numbers[0] - numbers[1])
        }
    });
    let both = both.expect("the function is valid");
    let worker = windlass.worker().register(&both).register(&same).through(link);
    let worker = worker.spawn().expect("memory answers");
    let run = windlass.start(&both, ()).await.expect("memory answers");
    let end = run.wait_timeout(100 * SECOND).await.expect("it ends");
    assert_eq!(end.state, RunState::Failed);
    worker.drain().await.expect("memory answers");
    let tasks = run.tasks().await.expect("memory answers");
    tasks[0].failure.clone().expect("it says why")
}

#[tokio::test(start_paused = true)]
async fn a_run_that_a_call_did_not_start_is_not_taken_for_its_child() {
    let failure = difference(Mood::Swaps).await;
    assert_eq!(failure.code, windlass::FailureCode::Payload);
    assert!(failure.message.contains("did not start run"), "{failure}");
    assert!(failure.message.ends_with("which the store says has place 0 of it"), "{failure}");
}

#[tokio::test(start_paused = true)]
async fn a_function_fails_that_cannot_read_what_its_children_came_to() {
    let failure = difference(Mood::Unread).await;
    assert_eq!(
        (failure.code, failure.message.as_str()),
        (windlass::FailureCode::Payload, "no key")
    );
}
