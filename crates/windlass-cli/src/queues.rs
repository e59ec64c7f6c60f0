//! `windlass queues`: how much is in the queues.

use serde_json::{Value, json};
use windlass::store::{QueueList, QueueRecord};

use crate::session::Session;
use crate::text::{ago, listing, shown, thousands};

/// Prints the queues.
pub(crate) async fn run(session: &Session) -> anyhow::Result<()> {
    let (windlass, _) = session.connect().await?;
    let list = windlass.queues().await?;
    session.tell(|| json(&list), || table(&list))
}

fn json(list: &QueueList) -> Value {
    let queue = |queue: &QueueRecord| {
        json!({
            "queue": queue.queue,
            "priority": queue.priority.get(),
            "ready": queue.ready(),
            "came": queue.came,
            "went": queue.went,
            "oldest_at": queue.oldest_at.map(|at| at.to_string()),
        })
    };
    json!({
        "at": list.at.to_string(),
        "counted_at": list.counted_at.map(|at| at.to_string()),
        "queues": list.queues.iter().map(queue).collect::<Vec<_>>(),
    })
}

fn table(list: &QueueList) -> String {
    let counted = match list.counted_at {
        Some(at) => format!("counted {} ago\n", ago(Some(at), list.at)),
        None => "never counted: a worker or windlass dev does it\n".to_owned(),
    };
    if list.queues.is_empty() {
        return format!("no queues had a task; {counted}");
    }
    let header = ["queue", "priority", "ready", "came", "went", "oldest"];
    let row = |queue: &QueueRecord| {
        vec![
            shown(queue.queue.as_str()),
            queue.priority.get().to_string(),
            thousands(queue.ready()),
            thousands(queue.came),
            thousands(queue.went),
            ago(queue.oldest_at, list.at),
        ]
    };
    listing(&header, &[1, 2, 3, 4], list.queues.iter().map(row)) + &counted
}
