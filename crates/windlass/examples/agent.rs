//! An agent: a loop that asks a model what to do, does it, and tells the model what came of it.
//!
//! Calls to a model are slow and cost money, and a task may take hundreds of them. Each is a
//! step here: a worker that dies in the middle loses at most the call that was under way, and
//! the transcript is rebuilt from the recorded results, not paid for again.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::ensure;
use serde::{Deserialize, Serialize};
use windlass::{Ctx, Error, Function, RetryPolicy, TaskError, Windlass};

/// An agent that goes on for longer has lost its way.
const TURNS_MAX: usize = 200;

/// What the model wants.
#[derive(Serialize, Deserialize)]
enum Action {
    Search(String),
    Answer(String),
}

/// In place of a model: it searches as often as the question has words, and then answers.
pub(crate) struct Model {
    pub(crate) calls: AtomicU32,
}

impl Model {
    async fn think(&self, question: &str, transcript: &[String]) -> Result<Action, TaskError> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(match question.split_whitespace().nth(transcript.len()) {
            Some(word) => Action::Search(word.to_owned()),
            None => Action::Answer(transcript.join(", ")),
        })
    }
}

async fn search(word: &str) -> Result<String, TaskError> {
    Ok(format!("{word} has {} letters", word.len()))
}

async fn handle(ctx: Ctx<String>, model: Arc<Model>) -> Result<String, TaskError> {
    let policy = RetryPolicy::exponential().attempts(8);
    let mut transcript = Vec::new();
    for _ in 0..TURNS_MAX {
        // What is asked depends only on the input and on earlier results: when the function is
        // run again, it makes the same calls in the same order, and they are answered at once.
        let think = ctx.step("think", || model.think(ctx.input(), &transcript));
        match think.retry(policy.clone()).timeout(Duration::from_secs(60)).await? {
            Action::Answer(answer) => return Ok(answer),
            Action::Search(word) => {
                let found = ctx.step("search", || search(&word)).retry(policy.clone()).await;
                // An error is something to tell the model, not the end of the run.
                transcript.push(found.unwrap_or_else(|error| format!("failed: {error}")));
            }
        }
    }
    Err(TaskError::new(format!("no answer after {TURNS_MAX} turns")).permanent())
}

pub(crate) fn agent(model: Arc<Model>) -> Result<Function<String, String>, Error> {
    Function::new("agent", move |ctx| handle(ctx, Arc::clone(&model)))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let model = Arc::new(Model { calls: AtomicU32::new(0) });
    let agent = agent(Arc::clone(&model))?;
    // Where WINDLASS_SERVER or DATABASE_URL says; in memory if neither is set.
    let windlass = Windlass::from_env().await?.unwrap_or_else(Windlass::memory);
    let worker = windlass.worker().register(&agent).spawn()?;

    let words = vec!["windlass"; 100];
    let run = windlass.start(&agent, words.join(" ")).await?;
    run.wait().await?;
    let answer = run.output(agent.output()).await?;
    ensure!(answer.matches("windlass has 8 letters").count() == words.len(), "{answer}");
    // A hundred searches and the answer, and no call was made twice.
    ensure!(model.calls.load(Ordering::Relaxed) == 101);
    println!("101 calls of the model, an answer of {} bytes", answer.len());

    worker.drain().await?;
    Ok(())
}
