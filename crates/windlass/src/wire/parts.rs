//! Answers to workers that are too large for one message.
//!
//! A worker may be given thousands of tasks with an input each, and a function ask for a thousand
//! children. Such an answer goes in parts, between which others find their way; who asked puts
//! them together.

use std::mem;

use prost::Message;

use super::{WireError, v1};
use v1::worker_reply::Reply;

/// The most bytes of a part with more than one item.
pub const PART_BYTES_MAX: usize = 4 << 20;

/// The parts of an answer: at least one, and each with at least one item if there is one.
pub fn split_reply(reply: Reply) -> Vec<Reply> {
    match reply {
        Reply::Tasks(tasks) => split_tasks(tasks).map(Reply::Tasks).collect(),
        Reply::Answers(v1::Answers { mut answers, claimed: Some(tasks) }) => {
            let part = |tasks| {
                let answers = mem::take(&mut answers);
                Reply::Answers(v1::Answers { answers, claimed: Some(tasks) })
            };
            split_tasks(tasks).map(part).collect()
        }
        Reply::Children(v1::Children { children }) => {
            let part = |children| Reply::Children(v1::Children { children });
            chunks(children).into_iter().map(part).collect()
        }
        Reply::SignalsTaken(v1::SignalsTaken { taken }) => {
            let part = |taken| Reply::SignalsTaken(v1::SignalsTaken { taken });
            chunks(taken).into_iter().map(part).collect()
        }
        Reply::Answers(v1::Answers { claimed: None, .. })
        | Reply::Welcome(_)
        | Reply::ChildrenStarted(_)
        | Reply::ChildCount(_)
        | Reply::Beat(_)
        | Reply::Done(_)
        | Reply::Error(_)
        | Reply::Hint(_)
        | Reply::Goodbye(_) => vec![reply],
    }
}

/// The specifications go with the first part, or before it if they are large: tasks of all parts
/// name them by their places in the whole.
fn split_tasks(tasks: v1::Tasks) -> impl Iterator<Item = v1::Tasks> {
    let v1::Tasks { tasks, specs, refusal } = tasks;
    let bytes: usize = specs.iter().map(Message::encoded_len).sum();
    let (before, mut with) = match bytes > PART_BYTES_MAX / 8 && tasks.len() > 1 {
        true => (chunks(specs), Vec::new()),
        false => (Vec::new(), specs),
    };
    let before =
        before.into_iter().map(move |specs| v1::Tasks { tasks: Vec::new(), specs, refusal });
    let part = move |tasks| v1::Tasks { tasks, specs: mem::take(&mut with), refusal };
    before.chain(chunks(tasks).into_iter().map(part))
}

fn chunks<M: Message>(items: Vec<M>) -> Vec<Vec<M>> {
    let (mut parts, mut bytes) = (vec![Vec::new()], 0_usize);
    for item in items {
        let more = item.encoded_len();
        bytes = bytes.saturating_add(more);
        match parts.last_mut() {
            Some(part) if part.is_empty() || bytes <= PART_BYTES_MAX => part.push(item),
            Some(_) | None => {
                parts.push(vec![item]);
                bytes = more;
            }
        }
    }
    parts
}

/// Puts the next part of an answer behind those before it.
///
/// # Errors
///
/// For a part of another answer.
pub fn extend_reply(reply: &mut Reply, more: Reply) -> Result<(), WireError> {
    match (reply, more) {
        (Reply::Tasks(tasks), Reply::Tasks(more)) => extend_tasks(tasks, more),
        (Reply::Answers(answers), Reply::Answers(more)) => {
            answers.answers.extend(more.answers);
            extend_tasks(answers.claimed.get_or_insert_default(), more.claimed.unwrap_or_default());
        }
        (Reply::Children(children), Reply::Children(more)) => {
            children.children.extend(more.children);
        }
        (Reply::SignalsTaken(taken), Reply::SignalsTaken(more)) => taken.taken.extend(more.taken),
        // It says that there is no more.
        (reply, error @ Reply::Error(_)) => *reply = error,
        _ => return Err(WireError::new("reply", "is not a part of the answer before it")),
    }
    Ok(())
}

fn extend_tasks(tasks: &mut v1::Tasks, more: v1::Tasks) {
    tasks.tasks.extend(more.tasks);
    tasks.specs.extend(more.specs);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(attempt: u32, bytes: usize) -> v1::ClaimedTask {
        v1::ClaimedTask { attempt, input: "x".repeat(bytes), ..Default::default() }
    }

    fn joined(parts: Vec<Reply>) -> Reply {
        let mut parts = parts.into_iter();
        let mut first = parts.next().expect("there is one");
        parts.try_for_each(|part| extend_reply(&mut first, part)).expect("of one answer");
        first
    }

    #[test]
    fn an_answer_goes_in_parts_that_fit_and_comes_together_again() {
        let half = PART_BYTES_MAX / 2 - 100;
        let tasks: Vec<_> = [10, half, half, half, 2 * PART_BYTES_MAX, 0, half]
            .into_iter()
            .enumerate()
            .map(|(place, bytes)| task(place as u32, bytes))
            .collect();
        let tasks = v1::Tasks { tasks, specs: vec![v1::TaskSpec::default(); 3], refusal: 0 };
        let children = vec![v1::Child { run: "x".repeat(half), ..Default::default() }; 5];
        let answers = vec![1, 2, 3];
        let replies = [
            (Reply::Tasks(tasks.clone()), 4),
            (Reply::Answers(v1::Answers { answers, claimed: Some(tasks) }), 4),
            (Reply::Children(v1::Children { children }), 3),
            (Reply::SignalsTaken(v1::SignalsTaken { taken: Vec::new() }), 1),
            (Reply::Done(v1::Done {}), 1),
        ];
        for (reply, count) in replies {
            let parts = split_reply(reply.clone());
            assert_eq!(parts.len(), count);
            let size =
                |part: &Reply| v1::WorkerReply { reply: Some(part.clone()), ..Default::default() };
            let large =
                parts.iter().filter(|part| size(part).encoded_len() > PART_BYTES_MAX + 1_000);
            assert!(large.count() <= 1, "but for the one that cannot be cut");
            assert_eq!(joined(parts), reply);
        }
    }

    #[test]
    fn a_part_of_something_else_is_refused_and_an_error_ends_an_answer() {
        let mut reply = Reply::Tasks(v1::Tasks::default());
        let error = extend_reply(&mut reply, Reply::Done(v1::Done {})).unwrap_err();
        assert!(error.to_string().contains("not a part"), "{error}");
        extend_reply(&mut reply, Reply::Error(v1::Error::default())).unwrap();
        assert_eq!(reply, Reply::Error(v1::Error::default()));
    }
}
