//! One event is one line, whatever users' data hold.

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use windlass::telemetry::{LogFormat, Telemetry, VALUE_BYTES_MAX};
use windlass::{Ctx, RetryPolicy, TaskError, Windlass, Workflow};

use super::PATIENCE;

/// What would end a line, steer a terminal or turn the direction of writing.
const NASTY: &str = "one\ntwo\r\nthree\u{1b}[2J\u{85}\u{2028}\u{2029}\u{202e}\u{7}\0\"end\" \\n";

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn lines(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        assert!(text.is_empty() || text.ends_with('\n'), "a line is written whole");
        let steers = |it: char| {
            it != '\n' && it.is_control()
                || matches!(it, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        };
        assert!(!text.contains(steers), "{text:?}");
        text.lines().map(str::to_owned).collect()
    }
}

/// Runs a task that logs twice and fails, all of it with nasty texts.
async fn log_of_a_run(format: LogFormat) -> (Vec<String>, String) {
    let log = Log::default();
    let telemetry = Telemetry::from_env().unwrap().logs(format).logs_to(log.clone());
    let (dispatch, _guard) = telemetry.log_levels("info").unwrap().build().unwrap();
    let _listening = tracing::dispatcher::set_default(&dispatch);
    let mut workflow = Workflow::<String>::builder("nasty");
    let once = RetryPolicy::fixed(Duration::ZERO).attempts(1);
    workflow.task("print").retry(once).run(async |ctx: Ctx<String>| {
        tracing::warn!(customer = ctx.input().as_str(), level = "mine", "{}", ctx.input());
        let _inner = tracing::info_span!("inner", page = 3, task = "mine").entered();
        tracing::info!(size = 1.5, is_last = true, "printed");
        tracing::debug!("not wanted");
        Err::<(), _>(TaskError::new(ctx.input().clone()))
    });
    let workflow = workflow.build().unwrap();
    let windlass = Windlass::memory();
    let worker = windlass.worker().register(&workflow).duties(None).spawn().unwrap();
    let run = windlass.start(&workflow, NASTY.to_owned()).await.unwrap();
    tokio::time::timeout(PATIENCE, run.wait()).await.unwrap().unwrap();
    worker.drain().await.unwrap();
    let run = run.id().to_string();
    let lines = log.lines();
    let lines = lines.into_iter().filter(|line| line.contains(&run)).collect();
    (lines, run)
}

#[tokio::test]
async fn an_event_is_one_line_of_json_with_run_task_attempt_and_fence() {
    let (lines, run) = log_of_a_run(LogFormat::Json).await;
    assert!(lines.iter().all(|line| line.starts_with(r#"{"timestamp":""#)), "{lines:#?}");
    let lines: Vec<Value> = lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [warned, printed, failed] = &lines[..] else { panic!("{lines:#?}") };
    for line in &lines {
        assert_eq!(line["run"], run.as_str());
        assert_eq!((&line["attempt"], &line["fence"]), (&1.into(), &1.into()));
        assert!(line["timestamp"].as_str().unwrap().ends_with('Z'));
    }
    assert_eq!((&warned["level"], &warned["field.level"]), (&"WARN".into(), &"mine".into()));
    assert_eq!((&warned["message"], &warned["customer"]), (&NASTY.into(), &NASTY.into()));
    assert_eq!((&warned["task"], &warned["workflow"]), (&"print".into(), &"nasty".into()));
    assert_eq!((&printed["page"], &printed["size"]), (&3.into(), &1.5.into()));
    assert_eq!((&printed["is_last"], &printed["task"]), (&true.into(), &"mine".into()));
    assert_eq!((&failed["task"], &failed["message"]), (&"print".into(), &"attempt failed".into()));
    assert!(failed["failure"].as_str().unwrap().contains("one\ntwo"), "{failed}");
}

#[tokio::test]
async fn an_event_is_one_line_of_text_with_run_task_attempt_and_fence() {
    let (lines, run) = log_of_a_run(LogFormat::Text).await;
    let [warned, printed, failed] = &lines[..] else { panic!("{lines:#?}") };
    for line in &lines {
        for field in [&format!("run={run}"), "attempt=1", "fence=1"] {
            assert!(line.split(' ').any(|word| word == field), "{line}");
        }
    }
    assert!(warned.contains(r"WARN it::traces::lines: one\ntwo\r\nthree\u{1b}[2J"), "{warned}");
    assert!(
        warned.contains(r#"customer="one\ntwo"#) && warned.contains(" task=print "),
        "{warned}"
    );
    assert!(printed.contains("printed") && printed.contains(" page=3 "), "{printed}");
    assert!(failed.contains("attempt failed") && failed.contains("failure=\""), "{failed}");
}

#[tokio::test]
async fn a_value_that_is_too_long_is_cut() {
    let log = Log::default();
    let telemetry = Telemetry::from_env().unwrap().logs(LogFormat::Json).logs_to(log.clone());
    let (dispatch, _guard) = telemetry.build().unwrap();
    let _listening = tracing::dispatcher::set_default(&dispatch);
    tracing::info!(at = "é".repeat(VALUE_BYTES_MAX / 2), over = "é".repeat(VALUE_BYTES_MAX));
    let [line] = &log.lines()[..] else { panic!("one event, one line") };
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(line["at"].as_str().unwrap().len(), VALUE_BYTES_MAX);
    let over = line["over"].as_str().unwrap();
    assert!(over.ends_with('…') && over.len() == VALUE_BYTES_MAX + '…'.len_utf8());
}

#[test]
fn levels_and_formats_that_make_no_sense_are_refused() {
    let error = Telemetry::from_env().unwrap().log_levels("windlass=loud").unwrap_err();
    assert!(error.to_string().contains(r#"log levels: "windlass=loud""#), "{error}");
    let error = "xml".parse::<LogFormat>().unwrap_err();
    assert_eq!(error, r#"log format "xml" is neither "text" nor "json""#);
}
