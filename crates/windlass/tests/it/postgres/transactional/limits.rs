//! Bad input gets a clear refusal, and leaves nothing behind.

use windlass::store::postgres::{PostgresOptions, PostgresStore};
use windlass::store::{Store, WorkerLink};
use windlass::{Tenant, Windlass};
use windlass_core::{IdempotencyKey, Payload, TraceContext, WorkflowName};

use super::Shop;
use crate::runs::payloads_at_the_limit;

/// A text as a literal of SQL.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[tokio::test]
async fn what_is_refused_is_named_and_has_the_code_of_its_error_page() {
    let shop = Shop::open().await;
    let cases = [
        ("null", "WL002", "workflow name is null [WL-0002]"),
        ("''", "WL002", "workflow name is empty [WL-0002]"),
        (
            "repeat('x', 201)",
            "WL002",
            r#"workflow name "xxxxxxxxxxxxxxxxxxxxxxxx"… has 201 bytes, the limit is 200 [WL-0002]"#,
        ),
        ("'ordre'", "WL004", r#"workflow "ordre" does not exist [WL-0004]"#),
        (
            "'order', version => 2",
            "WL004",
            r#"workflow "order" version 2 does not exist [WL-0004]"#,
        ),
        ("'order', tenant => null", "WL002", "tenant name is null [WL-0002]"),
        (
            "'order', tenant => E'ac\\nme'",
            "WL002",
            r#"tenant name "ac\nme" has a control character at byte 2 [WL-0002]"#,
        ),
        ("'order', key => ''", "WL002", "idempotency key is empty [WL-0002]"),
        ("'order', priority => 101", "WL002", "priority 101 is not within -100 to 100 [WL-0002]"),
        ("'order', priority => null", "WL002", r#"priority of workflow "order" is null [WL-0002]"#),
        (
            "'order', delay => '-1 second'",
            "WL002",
            r#"delay -00:00:01 of workflow "order" is negative [WL-0002]"#,
        ),
        (
            "'order', delay => '36501 days'",
            "WL002",
            r#"delay 36501 days of workflow "order" is over the limit of 36500 days [WL-0002]"#,
        ),
        ("'order', delay => null", "WL002", r#"delay of workflow "order" is null [WL-0002]"#),
        (
            "'order', metadata => '[]'",
            "WL002",
            "metadata is of the type array, not an object [WL-0002]",
        ),
        (
            r#"'order', metadata => '{"n": 1}'"#,
            "WL002",
            r#"metadata "n" is of the type number, not a string [WL-0002]"#,
        ),
        (
            "'order', metadata => json_build_object('n', repeat('x', 1025))::jsonb",
            "WL002",
            r#"metadata "n" has 1025 bytes, the limit is 1024 [WL-0002]"#,
        ),
        (
            "'order', metadata => json_build_object(repeat('x', 1025), '')::jsonb",
            "WL002",
            r#"metadata "xxxxxxxxxxxxxxxxxxxxxxxx" has 1025 bytes, the limit is 1024 [WL-0002]"#,
        ),
        (
            "'order', metadata => (select jsonb_object_agg(n, '') from generate_series(1, 65) n)",
            "WL002",
            "metadata has 65 pairs, the limit is 64 [WL-0002]",
        ),
        (
            "'order', null",
            "WL003",
            r#"input of workflow "order" is null, write 'null' for the JSON value [WL-0003]"#,
        ),
        (
            "'order', to_json(repeat('x', 1048575))",
            "WL003",
            r#"input of workflow "order" has 1048577 bytes, the payload_limit is 1048576 [WL-0003]"#,
        ),
        (
            "'order', (repeat('[', 121) || repeat(']', 121))::json",
            "WL003",
            r#"input of workflow "order" is nested more than 120 deep, which is the limit [WL-0003]"#,
        ),
        (
            r#"'order', '{"a": "\ud800"}'"#,
            "WL003",
            r#"input of workflow "order" has an escape from \ud800 to \udfff without its other half [WL-0003]"#,
        ),
        (
            "'order', '[1, -1e999999]'",
            "WL003",
            r#"input of workflow "order" has the number -1e999999, the largest is 1.7976931348623157e308 [WL-0003]"#,
        ),
        (
            "'order', repeat('12', 155)::json",
            "WL003",
            r#"input of workflow "order" has the number 121212121212121212121212…, the largest is 1.7976931348623157e308 [WL-0003]"#,
        ),
    ];
    for (arguments, state, message) in cases {
        let sql = format!("select windlass.start_run({arguments})");
        assert_eq!(shop.refusal(&sql).await, (state.to_owned(), message.to_owned()), "{arguments}");
    }
    assert_eq!(shop.rows().await, [0; 3]);
}

#[tokio::test]
async fn a_trace_is_judged_in_sql_as_it_is_in_rust() {
    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let shop = Shop::open().await;
    let mut parents = vec![GOOD.to_owned(), GOOD[..54].to_owned(), format!("{GOOD}0")];
    for (place, length) in [(0, 2), (3, 32), (36, 16)] {
        for digit in ["0", "f"] {
            let mut text = GOOD.to_owned();
            text.replace_range(place..place + length, &digit.repeat(length));
            parents.push(text);
        }
    }
    for place in 0..GOOD.len() {
        for wrong in ["G", "-", "0", "é"] {
            let mut text = GOOD.to_owned();
            text.replace_range(place..(place + wrong.len()).min(GOOD.len()), wrong);
            parents.push(text);
        }
    }
    let states = ["", "a=1", &"x".repeat(512), &"x".repeat(513), "a\n", "aé", "~\u{7f}"];
    let cases = parents.iter().map(|parent| (Some(parent.as_str()), None));
    let cases = cases.chain(states.iter().map(|state| (None, Some(*state))));
    for (parent, state) in cases {
        let literal = |text: Option<&str>| text.map_or_else(|| "null".to_owned(), quoted);
        let sql = format!("select windlass.trace_problem({}, {})", literal(parent), literal(state));
        let said: Option<String> = shop.user.query_one(&sql, &[]).await.unwrap().get(0);
        let judged = TraceContext::parse(parent.unwrap_or(GOOD), state).map(drop);
        let wanted = judged.err().map(|error| error.to_string());
        // The two languages quote and escape characters each in its own way.
        let plain = |text: String| text.replace('\'', "\"").replace("\\u{7f}", "\u{7f}");
        assert_eq!(said.map(plain), wanted.map(plain), "{sql}");
    }
    let refused = shop
        .refusal(r#"select windlass.start_run('order', metadata => '{"traceparent": "00-4"}')"#);
    let message = r#"traceparent "00-4" has 4 bytes, not 55 [WL-0002]"#;
    assert_eq!(refused.await, ("WL002".to_owned(), message.to_owned()));
    shop.start(&format!(r#"'order', metadata => '{{"traceparent": "{GOOD}"}}'"#)).await;
}

#[tokio::test]
async fn what_is_at_its_limit_is_started() {
    let shop = Shop::open().await;
    for arguments in [
        "'order', tenant => repeat('x', 200), key => repeat('y', 400)",
        "'order', priority => 100, delay => '36500 days'",
        "'order', priority => -100, delay => '0'",
        "'order', metadata => (select jsonb_object_agg(rpad(n::text, 1024, 'k'), repeat('v', 1024))
            from generate_series(1, 64) n)",
        "'order', metadata => '{}'",
        "'order', to_json(repeat('x', 1048574))",
        r#"'order', (repeat('{"a":[', 60) || '"]]\"{{"' || repeat(']}', 60))::json"#,
        // Many brackets, not deep.
        r#"'order', (select json_agg(json_build_object('a', '[', 'b', '{}'::json))
            from generate_series(1, 500))"#,
    ] {
        shop.start(arguments).await;
    }
    let metadata = "windlass.runs where metadata is not null";
    assert_eq!(shop.count(metadata).await, 1, "an empty object is no metadata");
}

#[tokio::test]
async fn the_limit_on_payloads_is_a_setting_of_the_database() {
    let shop = Shop::open().await;
    let start = |bytes: usize| {
        format!("select windlass.start_run('order', to_json(repeat('x', {})))", bytes - 2)
    };
    shop.run("update windlass.settings set payload_limit = 2000").await;
    shop.run(&start(2_000)).await;
    let error = shop.user.simple_query(&start(2_001)).await.expect_err("it is too large");
    let error = error.as_db_error().expect("the database refused it");
    let text = r#"input of workflow "order" has 2001 bytes, the payload_limit is 2000 [WL-0003]"#;
    assert_eq!((error.code().code(), error.message()), ("WL003", text));
    let hint = error.hint().unwrap_or_default();
    assert!(hint.starts_with("update windlass.settings set payload_limit = "), "{hint}");
    for wrong in [1_023, 67_108_865] {
        let sql = format!("update windlass.settings set payload_limit = {wrong}");
        assert_eq!(shop.refusal(&sql).await.0, "23514", "{wrong}");
    }
    let sql = "insert into windlass.settings default values";
    assert_eq!(shop.refusal(sql).await.0, "23505", "there is one row");
}

#[tokio::test]
async fn who_connects_with_a_limit_on_payloads_sets_it_for_all() {
    let shop = Shop::open().await;
    let limits = async |bytes: Option<usize>| {
        let mut options = PostgresOptions::new(shop.database.url());
        if let Some(bytes) = bytes {
            options = options.payload_limit(bytes);
        }
        let store = PostgresStore::connect(options).await.expect("the database is there");
        let sql = "select payload_limit from windlass.settings";
        let set: i32 = shop.user.query_one(sql, &[]).await.expect("it works").get(0);
        (store.payload_limit().get(), set)
    };
    assert_eq!(limits(None).await, (1_048_576, 1_048_576));
    assert_eq!(limits(Some(4 << 20)).await, (4_194_304, 4_194_304));
    assert_eq!(limits(None).await, (4_194_304, 4_194_304));
    shop.run(r"select windlass.start_run('order', to_json(repeat('x', 4000000)))").await;
}

#[tokio::test]
async fn every_kind_of_payload_may_be_as_large_as_the_limit_that_is_set() {
    let shop = Shop::open().await;
    let options = PostgresOptions::new(shop.database.url()).payload_limit(3 << 20);
    let windlass = Windlass::connect(options).await.expect("the database is there");
    payloads_at_the_limit(windlass, 3 << 20).await;
}

#[tokio::test]
async fn names_are_judged_as_the_library_judges_them() {
    let shop = Shop::open().await;
    let mut names: Vec<String> =
        ["", " ", "ü", "a'b\"c\\", "\u{80}", "\u{85}", "\u{9f}", "\u{a0}", "\u{7f}", "\u{200b}"]
            .map(String::from)
            .into();
    names.extend((1..0x30).map(|code| format!("a{}", char::from(code))));
    names.extend(["ü".repeat(100), "ü".repeat(100) + "x", "x".repeat(200), "x".repeat(201)]);
    names.extend(["ü".repeat(200), "ü".repeat(200) + "x", "x".repeat(401)]);
    for name in &names {
        let literal = quoted(name);
        for (what, is_right) in
            [("tenant", Tenant::new(name).is_ok()), ("key", IdempotencyKey::new(name).is_ok())]
        {
            let sql = format!("select windlass.start_run('order', {what} => {literal})");
            let answer = shop.user.simple_query(&sql).await;
            assert_eq!(answer.is_ok(), is_right, "{what} {name:?}");
        }
        let sql = format!("select windlass.start_run({literal})");
        let (state, _) = shop.refusal(&sql).await;
        let is_right = WorkflowName::new(name).is_ok();
        assert_eq!(state == "WL004", is_right, "workflow {name:?} was answered {state}");
    }
}

#[tokio::test]
async fn the_nesting_of_inputs_is_judged_as_the_library_judges_it() {
    let shop = Shop::open().await;
    let nested = |open: &str, close: &str, depth| open.repeat(depth) + "0" + &close.repeat(depth);
    let wide = vec![nested("[", "]", 3); 100].join(",");
    for input in [
        nested("[", "]", 120),
        nested("[", "]", 121),
        nested(r#"{"a":"#, "}", 120),
        nested(r#"{"}\\\"{":"#, "}", 121),
        nested(r#"[{"a[":"#, "}]", 60),
        nested(r#"[{"a[":"#, "}]", 61),
        format!("[{wide}, {}]", nested("[", "]", 119)),
        format!("[{wide}, {}]", nested("[", "]", 120)),
        format!("[{wide}, {}]", nested("[ \n", " ]", 700)),
        nested(r#"["[[[\\\"[[[","#, "]", 30),
    ] {
        let is_right = Payload::from_json(input.as_str()).is_ok();
        let sql = format!("select windlass.start_run('order', {})", quoted(&input));
        let answer = shop.user.simple_query(&sql).await;
        assert_eq!(answer.is_ok(), is_right, "{input}");
    }
}

#[tokio::test]
async fn metadata_from_sql_may_have_every_character_but_nul() {
    let shop = Shop::open().await;
    let odd = "\u{1}\t\r\n\u{7f}\u{85}\u{9f}\u{2028}\u{10ffff}\"\\u0000";
    let metadata = serde_json::json!({ odd: odd }).to_string();
    let one = shop.start(&format!("'order', metadata => {}", quoted(&metadata))).await;
    let batch = format!(r#"[{{"workflow": "order", "key": "k", "metadata": {metadata}}}]"#);
    shop.run(&format!("select from windlass.start_runs({})", quoted(&batch))).await;
    let two = shop.start("'order', key => 'k'").await;
    for run in [one, two] {
        let run = shop.store.get_run(run).await.expect("the store is there").expect("it is there");
        assert_eq!(run.metadata, [(odd.to_owned(), odd.to_owned())].into());
    }
    let nul = r#"'{"a": "b\u0000"}'"#;
    let (state, _) =
        shop.refusal(&format!("select windlass.start_run('order', metadata => {nul})")).await;
    assert_eq!(state, "22P05", "the function is not even called");
    let batch = r#"'[{"workflow": "order", "metadata": {"a": "b\u0000"}}]'"#;
    let (state, _) = shop.refusal(&format!("select from windlass.start_runs({batch})")).await;
    assert_eq!(state, "WL002");
}

#[tokio::test]
async fn an_input_is_refused_if_no_handler_could_read_it() {
    let shop = Shop::open().await;
    let digits = |count| "9".repeat(count);
    for input in [
        // Halves of characters, and what only looks like them.
        r#""\ud83d\ude00""#.to_owned(),
        r#""\uD83D\uDE00 \ud7ff \ue000 \u0000""#.to_owned(),
        r#""\ud83d""#.to_owned(),
        r#""\uDE00""#.to_owned(),
        r#""\ude00\ud83d""#.to_owned(),
        r#""\ud83d\ud83d\ude00\ude00""#.to_owned(),
        r#""\ud83d \ude00""#.to_owned(),
        r#""\\ud83d""#.to_owned(),
        r#""\\\ud83d""#.to_owned(),
        r#""\\\ud83d\ude00""#.to_owned(),
        r#"{"\udabc": 1}"#.to_owned(),
        // Numbers, and what only looks like them.
        "1e308".to_owned(),
        "[1.7976931348623157e308, -1.7976931348623157E+308]".to_owned(),
        "1e309".to_owned(),
        "-1e309".to_owned(),
        "[0, 1E+400]".to_owned(),
        "1.8e308".to_owned(),
        "0e999999".to_owned(),
        "0.000e999".to_owned(),
        "1e-999999".to_owned(),
        r#"["1e999", "\"1e999", "\\", 1]"#.to_owned(),
        r#"["\\", 1e999]"#.to_owned(),
        format!("0.{}1e400", "0".repeat(100)),
        format!("0.{}1e400", "0".repeat(80)),
        digits(308),
        digits(309),
        format!("{}e99", digits(209)),
        format!("{}e99", digits(210)),
        format!("{}e-5", digits(310)),
        format!("{}.{}", digits(200), digits(200)),
        format!(r#""{}""#, digits(400)),
    ] {
        let is_right = serde_json::from_str::<serde_json::Value>(&input).is_ok();
        assert_eq!(Payload::from_json(input.as_str()).is_ok(), is_right, "{input}");
        let sql = format!("select windlass.start_run('order', {})", quoted(&input));
        let answer = shop.user.simple_query(&sql).await;
        assert_eq!(answer.is_ok(), is_right, "{input}");
        if !is_right {
            assert_eq!(shop.refusal(&sql).await.0, "WL003", "{input}");
        }
    }
}

#[tokio::test]
async fn a_batch_is_refused_as_a_whole_and_names_the_start_that_is_wrong() {
    let shop = Shop::open().await;
    let right = r#"{"workflow": "order"}"#;
    let cases = [
        ("null".to_owned(), "WL002", "the batch is of the type null, not an array [WL-0002]"),
        (
            r#"'{"workflow": "order"}'"#.to_owned(),
            "WL002",
            "the batch is of the type object, not an array [WL-0002]",
        ),
        (
            format!("'[{right}, 7]'"),
            "WL002",
            "start 2 of 2: the run to start is of the type number, not an object [WL-0002]",
        ),
        (format!("'[{right}, {{}}]'"), "WL002", "start 2 of 2: workflow name is null [WL-0002]"),
        (
            format!(r#"'[{right}, {{"workflow": "order", "tennant": "acme"}}]'"#),
            "WL002",
            r#"start 2 of 2: field "tennant" is not known [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "tenant": null}}]'"#),
            "WL002",
            r#"start 2 of 2: "tenant" is of the type null, not a string [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "priority": "9"}}]'"#),
            "WL002",
            r#"start 2 of 2: "priority" is of the type string, not a number [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "metadata": []}}]'"#),
            "WL002",
            r#"start 2 of 2: "metadata" is of the type array, not an object [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "delay": "soon"}}]'"#),
            "WL002",
            r#"start 2 of 2: "delay" cannot be read: invalid input syntax for type interval: "soon" [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "id": "7"}}]'"#),
            "WL002",
            r#"start 2 of 2: "id" cannot be read: invalid input syntax for type uuid: "7" [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"priority": 1.5, "workflow": "order"}}, {right}]'"#),
            "WL002",
            r#"start 2 of 3: "priority" cannot be read: invalid input syntax for type integer: "1.5" [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "version": 3000000000}}]'"#),
            "WL002",
            r#"start 2 of 2: "version" cannot be read: value "3000000000" is out of range for type integer [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "key": "a\u0000"}}]'"#),
            "WL002",
            r"start 2 of 2: a text cannot be read: unsupported Unicode escape sequence (\u0000 cannot be converted to text) [WL-0002]",
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "input": "\udead"}}]'"#),
            "WL002",
            "start 2 of 2: a text cannot be read: invalid input syntax for type json (Unicode low surrogate must follow a high surrogate) [WL-0002]",
        ),
        (
            r#"'[{"workflow": "order", "delay": "soon"}]'"#.to_owned(),
            "WL002",
            r#""delay" cannot be read: invalid input syntax for type interval: "soon" [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "a", "key": "k", "workflow": "order"}}]'"#),
            "WL002",
            r#"start 2 of 2: field "workflow" is there 2 times [WL-0002]"#,
        ),
        (
            format!(r#"'[{right}, {{"workflow": "order", "priority": 101}}]'"#),
            "WL002",
            "start 2 of 2: priority 101 is not within -100 to 100 [WL-0002]",
        ),
        (
            format!(r#"'[{right}, {{"workflow": "ordre"}}]'"#),
            "WL004",
            r#"start 2 of 2: workflow "ordre" does not exist [WL-0004]"#,
        ),
        (
            r#"(select json_agg('{"workflow": "order"}'::json) from generate_series(1, 10001))"#
                .to_owned(),
            "WL005",
            "a batch of 10001 is over the limit of 10000 [WL-0005]",
        ),
    ];
    for (batch, state, message) in cases {
        let sql = format!("select * from windlass.start_runs({batch})");
        assert_eq!(shop.refusal(&sql).await, (state.to_owned(), message.to_owned()), "{batch}");
    }
    let arrays = |second: &str| {
        format!(
            "select * from windlass.start_runs('{{null}}', array['order'], {second}, array['a'],
                array['1'::json], '{{null}}', array['0'::interval], array[0], '{{null}}')"
        )
    };
    for second in ["'{null,null}'", "null"] {
        let (state, message) = shop.refusal(&arrays(second)).await;
        assert_eq!(state, "WL002");
        assert_eq!(message, "the arrays of a batch differ in their lengths [WL-0002]");
    }
    assert_eq!(shop.rows().await, [0; 3]);
    shop.run(&arrays("array[1]")).await;
}
