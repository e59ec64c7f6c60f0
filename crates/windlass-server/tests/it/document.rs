//! The OpenAPI document says what there is, and all of it.

use hyper::Method;
use serde_json::Value;

use crate::support::TestServer;

const METHODS: [&str; 4] = ["get", "put", "post", "delete"];

#[tokio::test]
async fn every_operation_of_the_document_is_there() {
    let server = TestServer::start().await;
    let document = server.get("/v1/openapi.json").await.ok(200);
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    let mut operations = 0;
    for (path, item) in paths {
        let filled = path
            .replace("{run}", "01981c2e-7a40-7c1f-9d57-0242ac120002")
            .replace("{worker}", "01981c2e-7a40-7c1f-9d57-0242ac120002");
        let filled = filled.replace(['{', '}'], "");
        let named = METHODS.iter().filter(|method| item.get(method).is_some());
        for method in named {
            operations += 1;
            if filled.ends_with("/stream") && !filled.contains("/events/") {
                // It would not end.
                continue;
            }
            let method: Method = method.to_uppercase().parse().unwrap();
            let answer = server.raw(method.clone(), &filled, "").await;
            assert_ne!(answer.status, 405, "{method} {path}");
            assert!(!answer.status.is_server_error(), "{method} {path}: {}", answer.text);
            let is_missing = answer.text.contains("path \\\"");
            assert!(!is_missing, "{method} {path}: {}", answer.text);
        }
    }
    assert!(operations > 60, "{operations}");
    for path in [
        "/v1/workflows",
        "/v1/explain-cron",
        "/v1/workers/stream",
        "/v1/dead-letters/stream",
        "/v1/workers/{worker}/take-signals",
        "/v1/workers/{worker}/start-children",
        "/v1/workers/{worker}/count-children",
        "/v1/workers/{worker}/list-children",
        "/v1/workers/{worker}/read-undo",
    ] {
        assert!(paths.contains_key(path), "{path}");
    }
}

#[tokio::test]
async fn every_operation_says_what_it_does_and_that_it_may_fail() {
    let server = TestServer::start().await;
    let document = server.get("/v1/openapi.json").await.ok(200);
    let mut ids = std::collections::BTreeSet::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for method in METHODS {
            let Some(operation) = item.get(method) else { continue };
            let has = |field: &str| operation[field].as_str().is_some_and(|text| !text.is_empty());
            assert!(has("summary") && has("operationId"), "{method} {path}");
            assert!(ids.insert(operation["operationId"].as_str().unwrap()), "{method} {path}");
            let roles = operation["security"][0]["token"].as_array();
            let open = ["/healthz", "/readyz", "/errors/{code}", "/v1/openapi.json"];
            let is_open = open.contains(&path.as_str());
            assert_eq!(roles.is_none(), is_open, "{method} {path}");
            let is_for_viewers = roles.is_some_and(|roles| roles.contains(&"viewer".into()));
            assert!(roles.is_none_or(|roles| roles.contains(&"admin".into())), "{method} {path}");
            assert!(method == "get" || !is_for_viewers, "{method} {path}");
            let problem = &operation["responses"]["default"]["content"];
            assert!(problem["application/problem+json"].is_object(), "{method} {path}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["description"].is_string(), "{method} {path}: {parameter}");
            }
        }
    }
}

#[tokio::test]
async fn every_request_refuses_fields_that_it_does_not_know_and_every_field_is_described() {
    let server = TestServer::start().await;
    let document = server.get("/v1/openapi.json").await.ok(200);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut todo: Vec<String> = Vec::new();
    let refer = |value: &Value, todo: &mut Vec<String>| {
        let text = value.to_string();
        for part in text.split("#/components/schemas/").skip(1) {
            todo.push(part.split('"').next().unwrap().to_owned());
        }
    };
    for item in document["paths"].as_object().unwrap().values() {
        for method in METHODS {
            refer(&item[method]["requestBody"], &mut todo);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    while let Some(name) = todo.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let schema = &schemas[&name];
        refer(schema, &mut todo);
        if schema["type"] == "object" {
            assert_eq!(schema["additionalProperties"], false, "{name}");
        }
    }
    assert!(seen.len() > 30, "{seen:?}");
    for (name, schema) in schemas {
        for (field, value) in schema["properties"].as_object().into_iter().flatten() {
            assert!(value.to_string().contains("description"), "{name}.{field}");
        }
    }
}
