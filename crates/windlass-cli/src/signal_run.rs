//! `windlass signal`: sends a signal to a run.

use std::io::Write as _;

use serde_json::Value;
use windlass::RunId;

use crate::database::DatabaseArguments;
use crate::text::shown;

/// What `windlass signal` can be told.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Arguments {
    /// The run, by its id.
    run: RunId,

    /// The name of the signal, by which a function waits for it.
    name: String,

    /// What it says, as JSON; `null` if nothing.
    #[arg(value_name = "JSON", default_value = "null", value_parser = value, allow_negative_numbers = true)]
    value: Value,

    #[command(flatten)]
    database: DatabaseArguments,
}

/// Sends it, and says so once it is stored.
pub(crate) async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { run, name, value, database } = arguments;
    let (windlass, _) = database.connect().await?;
    windlass.run(run).signal(&name, &value).await?;
    writeln!(std::io::stdout(), "signal {} is sent to run {run}", shown(&name))?;
    Ok(())
}

fn value(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        assert_eq!(value("-1.5"), Ok(Value::from(-1.5)));
        let error = value("yes").expect_err("a word is not JSON");
        assert_eq!(error, "not JSON: expected value at line 1 column 1");
    }
}
