//! Runs: what is started, looked at and steered.

use std::sync::Arc;
use std::time::SystemTime;

use serde_json::json;
use windlass::random::secure_bits;
use windlass::store::{Action, NewKeySignal, NewRun, NewSignal, RunFilter};
use windlass::wire::{Wire, name, name_some, parse, read, read_all, write_all, write_why};
use windlass_core::{Call, Definition, EventId, RunId, TaskId, TaskIndex, TaskName, Timestamp};
use windlass_proto::v1;

use super::pages::{at_most, cut, first, shorter};
use super::{Caller, Refused};
use crate::notes::About;
use crate::pages::PageReader;

pub(super) async fn register_workflow(
    caller: &Caller,
    message: v1::RegisterWorkflowRequest,
) -> Result<v1::Done, Refused> {
    let definition: Arc<Definition> = read("definition", message.definition)?;
    caller.quotas.admit_definition(caller.identity.tenant(), &definition).await?;
    let noted = caller.identity.note_workflows(std::slice::from_ref(&definition)).await?;
    noted.perform(caller.store.register(definition)).await?;
    Ok(v1::Done {})
}

pub(super) async fn start_runs(
    caller: &Caller,
    mut message: v1::StartRunsRequest,
) -> Result<v1::StartRunsReply, Refused> {
    for run in message.runs.iter_mut().filter(|run| run.id.is_empty()) {
        let now = Timestamp::from(SystemTime::now());
        run.id = RunId::from_parts(now, secure_bits()).to_string();
    }
    let mut runs: Vec<NewRun> = read_all("runs", message.runs)?;
    runs.iter_mut().try_for_each(|run| caller.identity.sign(run))?;
    let mut batch = caller.quotas.admit_starts(&caller.identity, runs).await;
    let started = match batch.take_runs() {
        // Whoever is over its quota costs the store nothing.
        runs if runs.is_empty() && batch.has_refused() => Vec::new(),
        runs => caller.store.start_runs(runs).await?,
    };
    let answers = batch.answers(started);
    Ok(v1::StartRunsReply { answers: write_all(&answers) })
}

pub(super) async fn get_run(
    caller: &Caller,
    message: v1::GetRunRequest,
) -> Result<v1::GetRunReply, Refused> {
    let run = caller.run(parse("run", &message.run)?).await?;
    Ok(v1::GetRunReply { run: Some(run.to_wire()) })
}

pub(super) async fn list_runs(
    caller: &Caller,
    message: v1::ListRunsRequest,
) -> Result<v1::RunPage, Refused> {
    let _turn = caller.identity.begin_list().await?;
    let mut limit = first(message.limit);
    let filter = RunFilter::from_wire(message)?;
    loop {
        let filter = RunFilter { limit, ..filter.clone() };
        let page = caller.store.list_runs(filter).await?.to_wire();
        match shorter(&page, limit) {
            Some(half) => limit = half,
            None => return Ok(page),
        }
    }
}

pub(super) async fn list_tasks(
    caller: &Caller,
    message: v1::ListTasksRequest,
) -> Result<v1::ListTasksReply, Refused> {
    let (run, after) = (parse("run", &message.run)?, message.after.map(TaskIndex));
    let _turn = caller.identity.begin_list().await?;
    let (limit, payload_limit) = (at_most(message.limit), caller.store.payload_limit());
    let mut tasks = Vec::new();
    let mut page = PageReader::new(limit, payload_limit, after);
    while let Some((after, limit)) = page.next_chunk() {
        let rows = caller.store.list_tasks(run, after, limit).await?;
        tasks.extend(write_all(&rows));
        page.add(&rows, |task| task.index);
    }
    let (tasks, is_cut) = cut(tasks);
    Ok(v1::ListTasksReply { tasks, has_more: is_cut || page.is_short() })
}

pub(super) async fn get_task(
    caller: &Caller,
    message: v1::GetTaskRequest,
) -> Result<v1::GetTaskReply, Refused> {
    let task = name("name", TaskName::new(&message.name))?;
    let task = caller.store.get_task(parse("run", &message.run)?, task).await?;
    Ok(v1::GetTaskReply { task: task.as_ref().map(Wire::to_wire) })
}

pub(super) async fn list_steps(
    caller: &Caller,
    message: v1::ListStepsRequest,
) -> Result<v1::ListStepsReply, Refused> {
    let task: TaskId = read("task", message.task)?;
    let after = message.after.map(Call);
    let _turn = caller.identity.begin_list().await?;
    let (limit, payload_limit) = (at_most(message.limit), caller.store.payload_limit());
    let mut steps = Vec::new();
    let mut page = PageReader::new(limit, payload_limit, after);
    while let Some((after, limit)) = page.next_chunk() {
        let rows = caller.store.list_steps(task, after, limit).await?;
        steps.extend(write_all(&rows));
        page.add(&rows, |step| step.call);
    }
    let (steps, is_cut) = cut(steps);
    Ok(v1::ListStepsReply { steps, has_more: is_cut || page.is_short() })
}

pub(super) async fn list_events(
    caller: &Caller,
    message: v1::ListEventsRequest,
) -> Result<v1::ListEventsReply, Refused> {
    let (run, after) = (parse("run", &message.run)?, message.after.map(EventId));
    let _turn = caller.identity.begin_list().await?;
    let events = caller.store.list_events(run, after, at_most(message.limit)).await?;
    let (events, has_more) = cut(write_all(&events));
    Ok(v1::ListEventsReply { events, has_more })
}

pub(super) async fn why(caller: &Caller, message: v1::WhyRequest) -> Result<v1::WhyReply, Refused> {
    let task = name_some("task", message.task, TaskName::new)?;
    let why = caller.store.why(parse("run", &message.run)?, task).await?;
    Ok(write_why(why.as_ref())?)
}

pub(super) async fn cancel_run(
    caller: &Caller,
    message: v1::CancelRunRequest,
) -> Result<v1::Done, Refused> {
    let run = parse("run", &message.run)?;
    let detail = message.reason.as_ref().map(|reason| json!({ "reason": reason }));
    let about = About::run(caller.run(run).await?.tenant, run);
    let noted = caller.identity.note(Action::CancelRun, about, detail).await?;
    noted.perform(caller.store.cancel_run(run, message.reason)).await?;
    Ok(v1::Done {})
}

pub(super) async fn retry_run(
    caller: &Caller,
    message: v1::RetryRunRequest,
) -> Result<v1::RetryRunReply, Refused> {
    let run = parse("run", &message.run)?;
    let about = About::run(caller.run(run).await?.tenant, run);
    let noted = caller.identity.note(Action::RetryRun, about, None).await?;
    let round = noted.perform(caller.store.retry_run(run, message.round)).await?;
    Ok(v1::RetryRunReply { round })
}

pub(super) async fn undo_run(
    caller: &Caller,
    message: v1::UndoRunRequest,
) -> Result<v1::UndoRunReply, Refused> {
    let run = parse("run", &message.run)?;
    let about = About::run(caller.run(run).await?.tenant, run);
    let noted = caller.identity.note(Action::UndoRun, about, None).await?;
    let run = noted.perform(caller.store.undo_run(run)).await?;
    Ok(v1::UndoRunReply { run: run.to_string() })
}

pub(super) async fn signal_run(
    caller: &Caller,
    message: v1::SignalRunRequest,
) -> Result<v1::Done, Refused> {
    let signal = NewSignal::from_wire(message)?;
    let record = caller.run(signal.run).await?;
    caller.quotas.admit_signal(&caller.identity, &record.tenant, &signal.value).await?;
    let noted = caller.identity.note_signal(&record, signal.id, &signal.name).await?;
    noted.perform(caller.store.signal(signal)).await?;
    Ok(v1::Done {})
}

pub(super) async fn signal_key(
    caller: &Caller,
    message: v1::SignalKeyRequest,
) -> Result<v1::Done, Refused> {
    let signal = NewKeySignal::from_wire(message)?;
    caller.quotas.admit_signal(&caller.identity, &signal.to.tenant, &signal.value).await?;
    let noted = caller.identity.note_key_signal(&signal).await?;
    noted.perform(caller.store.signal_key(signal)).await?;
    Ok(v1::Done {})
}
