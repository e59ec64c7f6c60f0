//! The description of all operations (OpenAPI), made from their code.

use std::sync::Arc;

use axum::Router;
use axum::http::Method;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder};
use utoipa_axum::router::OpenApiRouter;
use windlass::Role;

use super::model::PRINTABLE;
use super::{
    App, cron, dead, duties, lists, operators, quotas, run_control, run_history, runs, schedules,
    streams,
};
use super::{system, tokens, worker_functions, worker_tasks, workers, workflows};
use crate::problem::{PROBLEM_JSON, ProblemBody};
use crate::rights::{self, Right};

/// What the document calls the way by which callers say who they are.
const TOKEN: &str = "token";

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Windlass",
        description = "Durable workflows on plain PostgreSQL. Ids are strings, times are RFC 3339, \
                       durations are milliseconds, lists have cursors, problems are RFC 9457."
    ),
    components(schemas(ProblemBody)),
    tags(
        (name = "runs", description = "Start runs, watch them, steer them."),
        (name = "workflows", description = "What runs can be started of."),
        (name = "signals", description = "Tell runs something."),
        (name = "schedules", description = "What starts runs by itself."),
        (name = "queues", description = "What waits for workers."),
        (name = "dead letters", description = "What failed for good."),
        (name = "operators", description = "What people do by hand."),
        (name = "tokens", description = "Who may use the server."),
        (name = "workers", description = "For workers in any language: join, claim, finish."),
        (name = "system", description = "How the server is.")
    )
)]
struct Document;

/// The paths, and the document that describes them.
pub(super) fn build() -> (Router<App>, Arc<str>) {
    let (router, mut document) = OpenApiRouter::with_openapi(Document::openapi())
        .merge(runs::routes())
        .merge(run_control::routes())
        .merge(run_history::routes())
        .merge(streams::routes())
        .merge(lists::routes())
        .merge(workflows::routes())
        .merge(schedules::routes())
        .merge(cron::routes())
        .merge(duties::routes())
        .merge(dead::routes())
        .merge(operators::routes())
        .merge(tokens::routes())
        .merge(quotas::routes())
        .merge(workers::routes())
        .merge(worker_tasks::routes())
        .merge(worker_functions::routes())
        .merge(system::routes())
        .split_for_parts();
    document.paths.paths.values_mut().flat_map(operations).for_each(add_problem);
    let mut document = serde_json::to_value(document).unwrap_or_default();
    tell_more(&mut document);
    tell_roles(&mut document);
    (router, document.to_string().into())
}

/// Says what the macros cannot: that of several forms of a value exactly one may be there, and that
/// names have no control characters.
fn tell_more(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(tell_more),
        Value::Object(fields) => {
            if let Some(Value::Array(forms)) = fields.get_mut("oneOf") {
                forms.iter_mut().filter_map(Value::as_object_mut).for_each(close_form);
                let is_json = |form: &Value| form["$ref"] == "#/components/schemas/Json";
                // That there is no value and that it is null look the same.
                if forms.iter().any(is_json)
                    && let Some(forms) = fields.remove("oneOf")
                {
                    fields.insert("anyOf".to_owned(), forms);
                }
            }
            if fields.contains_key("in")
                && let Some(Value::Array(types)) =
                    fields.get_mut("schema").map(|it| &mut it["type"])
            {
                // What is not there is left out, and not null.
                types.retain(|it| it != "null");
            }
            let is_name = fields.get("type") == Some(&Value::from("string"))
                && fields.get("maxLength") == Some(&Value::from(200))
                && !fields.contains_key("pattern");
            if is_name {
                fields.insert("pattern".to_owned(), Value::from(PRINTABLE));
            }
            fields.values_mut().for_each(tell_more);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Says of each operation which roles a token needs, one of which is enough, as the table of rights
/// has it.
fn tell_roles(document: &mut Value) {
    let description = "A token as `windlass tokens create` shows it. Each operation names the roles \
                       of which the token must have one.";
    document["components"]["securitySchemes"] = json!({
        TOKEN: { "type": "http", "scheme": "bearer", "description": description }
    });
    let paths = document["paths"].as_object_mut().into_iter().flatten();
    for (path, item) in paths {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            let method = Method::from_bytes(method.to_uppercase().as_bytes());
            let need = method.ok().and_then(|method| rights::of_http(&method, path));
            let roles = need.map(|need| need.right).filter(|right| *right != Right::Open);
            if let Some(right) = roles {
                let roles: Vec<&str> = right.roles().map(Role::word).collect();
                operation["security"] = json!([{ TOKEN: roles }]);
            }
        }
    }
}

/// A form of an enum has the field that names it, and no other.
fn close_form(form: &mut Map<String, Value>) {
    let fields = form.get("properties").and_then(Value::as_object).map_or(0, Map::len);
    if fields == 1 {
        form.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    let PathItem { get, put, post, delete, .. } = item;
    [get, put, post, delete].into_iter().flatten()
}

/// Every operation may answer with a problem.
fn add_problem(operation: &mut Operation) {
    let content = ContentBuilder::new().schema(Some(RefOr::Ref(Ref::from_schema_name("Problem"))));
    let response = ResponseBuilder::new()
        .description("Why it cannot be done (RFC 9457).")
        .content(PROBLEM_JSON, content.build());
    operation.responses.responses.insert("default".to_owned(), RefOr::T(response.build()));
}

/// The document, as it is asked for.
pub(super) async fn answer(document: Arc<str>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], document.to_string())
}
