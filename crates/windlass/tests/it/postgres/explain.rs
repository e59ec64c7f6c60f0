//! What the server says of a plan; shared by tests and benchmarks.

use std::path::Path;

use serde_json::Value;
use tokio_postgres::{Client, SimpleQueryMessage};

/// A file of the store in PostgreSQL.
pub(crate) fn source(file: &str) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/postgres");
    std::fs::read_to_string(directory.join(file)).expect("the sources are there")
}

/// What the store sets on its connections so that plans do not flip.
pub(crate) fn planner_settings() -> Vec<(String, String)> {
    let pool = source("pool.rs");
    let (_, settings) = pool.split_once("const PLANNER").expect("there are settings");
    let (settings, _) = settings.split_once("];").expect("they end");
    let words: Vec<&str> = settings.split('"').skip(1).step_by(2).collect();
    words.chunks(2).map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

/// The answer of the one `explain (format json)` among some statements.
pub(crate) async fn explain(client: &Client, sql: &str) -> Result<Value, tokio_postgres::Error> {
    let answers = client.simple_query(sql).await?;
    let text = answers.iter().find_map(|answer| {
        let SimpleQueryMessage::Row(row) = answer else { return None };
        row.get(0)
    });
    let plan: Value = serde_json::from_str(text.unwrap_or_default()).unwrap_or_default();
    Ok(plan[0].clone())
}

/// How many buffers a statement touched.
pub(crate) fn buffers(explained: &Value) -> u64 {
    let touched = |node: &Value| {
        let count = |key: &str| node[key].as_u64().unwrap_or_default();
        count("Shared Hit Blocks") + count("Shared Read Blocks")
    };
    let plan = &explained["Plan"];
    // The writes of a claim that nothing reads from are done after the plan proper, whose
    // count leaves them out.
    let is_left_out = |node: &&Value| {
        let name = node["Subplan Name"].as_str().unwrap_or_default();
        ["CTE leased", "CTE marked", "CTE unmarked"].contains(&name)
    };
    let children = plan["Plans"].as_array().into_iter().flatten();
    touched(plan) + children.filter(is_left_out).map(touched).sum::<u64>()
}
