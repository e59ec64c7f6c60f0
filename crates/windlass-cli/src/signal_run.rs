//! `windlass signal`: sends a signal to a run, or to whoever waits for a key.

use std::time::Duration;

use serde_json::{Value, json};

use crate::choice::{RunPrefix, newest};
use crate::failure::usage;
use crate::session::Session;
use crate::text::shown;

/// What `windlass signal` can be told.
#[derive(Clone, Debug, clap::Args)]
#[command(override_usage = "windlass signal [OPTIONS] <RUN> <NAME> [JSON]\n       \
                            windlass signal [OPTIONS] --last <NAME> [JSON]\n       \
                            windlass signal [OPTIONS] --key <KEY> <NAME> [JSON]")]
pub(crate) struct Arguments {
    /// Run id or unique prefix (without --key and --last), name of the signal, and its payload as
    /// JSON [default: null]
    #[arg(value_name = "WORD", num_args = 1..=3, required = true, allow_negative_numbers = true)]
    words: Vec<String>,

    /// Send it to the functions that wait for this key, instead of to a run
    #[arg(long, value_name = "KEY")]
    key: Option<String>,

    /// Tenant of the key
    #[arg(long, value_name = "NAME", default_value = "default", requires = "key")]
    tenant: String,

    /// Days to keep a signal that no function takes
    #[arg(long, value_name = "DAYS", default_value = "30", value_parser = crate::text::whole_number::<u32>(1..=36_500), requires = "key")]
    keep_days: u32,

    /// Send it to the newest run
    #[arg(long, conflicts_with = "key")]
    last: bool,
}

/// Whom a signal is for.
enum To {
    Run(RunPrefix),
    Newest,
    Key(String),
}

/// Sends it, and says so once it is stored.
pub(crate) async fn run(arguments: Arguments, session: &Session) -> anyhow::Result<()> {
    let Arguments { words, key, tenant, keep_days, last } = arguments;
    let (to, name, value) = match parse(words, key, last) {
        Ok(parsed) => parsed,
        Err(text) => return Err(usage(text)),
    };
    let (windlass, _) = session.connect().await?;
    let (to, document) = match to {
        To::Run(_) | To::Newest => {
            let run = match to {
                To::Run(run) => run.resolve(&windlass).await?,
                To::Newest | To::Key(_) => newest(&windlass).await?,
            };
            windlass.run(run).signal(&name, &value).await?;
            (format!("run {run}"), json!({ "signal": name, "run": run.to_string() }))
        }
        To::Key(key) => {
            let keep_for = Duration::from_secs(u64::from(keep_days) * 86_400);
            let signal = windlass.signal_key(&key, &name, &value).tenant(&tenant);
            signal.keep_for(keep_for).await?;
            let document = json!({ "signal": name, "key": key, "tenant": tenant });
            (format!("key {} of tenant {}", shown(&key), shown(&tenant)), document)
        }
    };
    session.tell(|| document, || format!("signal {} is sent to {to}\n", shown(&name)))
}

/// What the words say. With a key or `--last`, the first is not a run.
fn parse(
    words: Vec<String>,
    key: Option<String>,
    is_last: bool,
) -> Result<(To, String, Value), String> {
    let mut words = words.into_iter();
    let to = match key {
        Some(key) => To::Key(key),
        None if is_last => To::Newest,
        None => {
            let word = words.next().unwrap_or_default();
            let wrong = |error| format!("invalid value {} for the run: {error}", quoted(&word));
            To::Run(word.parse().map_err(wrong)?)
        }
    };
    let name = words.next().ok_or("the name of the signal is missing")?;
    let value = words.next().map_or(Ok(Value::Null), |text| value(&text))?;
    match words.next() {
        Some(word) => Err(format!("unexpected argument {}", quoted(&word))),
        None => Ok((to, name, value)),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", shown(text))
}

fn value(text: &str) -> Result<Value, String> {
    let wrong = |error| format!("invalid value {} for the signal: not JSON: {error}", quoted(text));
    serde_json::from_str(text).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "00000000-0000-7000-8000-000000000000";

    fn parsed(words: &[&str], key: Option<&str>) -> Result<(String, String, Value), String> {
        let words = words.iter().map(ToString::to_string).collect();
        let (to, name, value) = parse(words, key.map(str::to_owned), false)?;
        let to = match to {
            To::Run(RunPrefix::Whole(run)) => run.to_string(),
            To::Run(RunPrefix::Prefix(prefix)) => prefix,
            To::Newest => "the newest".to_owned(),
            To::Key(key) => format!("key {key}"),
        };
        Ok((to, name, value))
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        assert_eq!(value("-1.5"), Ok(Value::from(-1.5)));
        let error = value("yes").expect_err("a word is not JSON");
        let text =
            "invalid value 'yes' for the signal: not JSON: expected value at line 1 column 1";
        assert_eq!(error, text);
    }

    #[test]
    fn a_signal_goes_to_a_run_or_to_a_key() {
        let to = |to: &str, value: Value| Ok((to.to_owned(), "paid".to_owned(), value));
        assert_eq!(parsed(&[RUN, "paid", "7"], None), to(RUN, 7.into()));
        assert_eq!(parsed(&[RUN, "paid"], None), to(RUN, Value::Null));
        assert_eq!(parsed(&["paid", "7"], Some("pay_1")), to("key pay_1", 7.into()));
        assert_eq!(parsed(&["paid"], Some("pay_1")), to("key pay_1", Value::Null));
        for (words, key, text) in [
            (&[RUN][..], None, "the name of the signal is missing"),
            (&["42", "paid"], None, "invalid value '42' for the run"),
            (&[RUN, "paid", "7"], Some("pay_1"), "not JSON"),
            (&["paid", "7", "8"], Some("pay_1"), "unexpected argument '8'"),
        ] {
            let error = parsed(words, key).expect_err("it cannot be sent");
            assert!(error.contains(text), "{error}");
        }
    }
}
