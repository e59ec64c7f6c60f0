//! The binary, as people run it.

#[cfg(unix)]
mod audit;

use std::process::{Command, Output};

/// Fast enough for a test, slow enough for tasks to wait for each other.
const DEMO: [&str; 4] = ["demo", "--plain", "--speed", "20"];

fn windlass(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(arguments).output().expect("the binary was built")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("the output is UTF-8")
}

/// The output of a demo that ended well.
fn demo(more: &[&str]) -> String {
    let output = windlass(&[&DEMO, more].concat());
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{:?}\n{out}\n{error}", output.status);
    assert_eq!(error, "");
    out
}

/// The rows of the table of runs, as words.
fn rows(out: &str) -> Vec<Vec<&str>> {
    let lines = out.lines().skip_while(|line| *line != "runs").skip(2);
    lines.take_while(|line| !line.is_empty()).map(|l| l.split_whitespace().collect()).collect()
}

/// The number before a word, such as 12 in `12 runs`.
fn number_before(line: &str, word: &str) -> usize {
    let words: Vec<&str> = line.split([' ', ',']).filter(|w| !w.is_empty()).collect();
    let place = words.iter().position(|w| *w == word).unwrap_or_else(|| panic!("{word}: {line}"));
    words[place - 1].parse().unwrap_or_else(|_| panic!("{word}: {line}"))
}

#[track_caller]
fn assert_line(out: &str, parts: &[&str]) {
    let has_all = |line: &str| parts.iter().all(|part| line.contains(part));
    assert!(out.lines().any(has_all), "no line with {parts:?} in\n{out}");
}

#[test]
fn the_demo_ends_by_itself_with_every_order_shipped() {
    let out = demo(&[]);
    let rows = rows(&out);
    assert_eq!(rows.len(), 12, "{out}");
    for row in &rows {
        let [tenant, order, state, round, tasks, ..] = row[..] else { panic!("{row:?}") };
        assert_eq!(state, "succeeded", "{row:?}");
        assert_eq!(tasks, "11", "{row:?}");
        let was_retried = (tenant, order) == ("acme", "order-03");
        assert_eq!(round, if was_retried { "2" } else { "1" }, "{row:?}");
    }
    let of = |tenant| rows.iter().filter(|row| row[0] == tenant).count();
    assert_eq!((of("acme"), of("bolt")), (9, 3));
}

#[test]
fn the_demo_shows_retries_a_skipped_branch_a_failure_and_a_deploy() {
    let out = demo(&[]);
    assert_line(&out, &["charge: attempt 1 failed (error: the bank does not answer)"]);
    assert_line(&out, &["charge: failed for good (card_declined: card declined)"]);
    assert_line(&out, &["gift-wrap: skipped, its condition is false"]);
    assert_line(&out, &["acme order-03 failed: charge: card declined; 4 tasks skipped"]);
    assert_line(&out, &["apologise gave \"sorry, order 3 has to wait: card declined\""]);
    assert_line(&out, &["acme order-03: card mended, round 2: 5 tasks anew, 6 kept"]);
    assert_line(&out, &["worker-1 drains"]);
    assert_line(&out, &["worker-3 takes its place"]);
    assert_line(&out, &["bolt's first claim: after", "of acme's", "bound 6)"]);
    assert_line(&out, &["run_retried", "round 2"]);
    assert_line(&out, &["next"]);
}

#[test]
fn the_figures_of_the_summary_add_up() {
    let out = demo(&["--orders", "20"]);
    let rows = rows(&out);
    let sum =
        |column: usize| rows.iter().map(|row| row[column].parse::<usize>().unwrap()).sum::<usize>();
    let totals = out.lines().skip_while(|line| *line != "totals").nth(1).expect("totals");
    let claims = out.lines().find(|line| line.contains("claims: ")).expect("claims");
    assert_eq!(rows.len(), number_before(totals, "runs"));
    assert_eq!(number_before(totals, "tasks"), sum(4));
    assert_eq!(number_before(totals, "attempts"), sum(6));
    assert_eq!(number_before(totals, "of"), sum(7));
    let of_tenants: usize = claims.split(", by").next().map(digits).expect("claims of tenants");
    assert_eq!(of_tenants, sum(6), "{claims}");
    assert_line(&out, &["every run ended: 20 of 20"]);
}

/// The sum of all numbers in a text.
fn digits(text: &str) -> usize {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<usize>().ok()).sum()
}

#[test]
fn output_that_is_not_a_terminal_has_no_escape_codes() {
    let output = windlass(&["demo", "--speed", "20", "--orders", "4"]);
    assert!(output.status.success());
    let out = text(&output.stdout);
    assert!(!out.contains('\u{1b}'), "{out:?}");
    assert_eq!(rows(&out).len(), 4);
}

#[test]
fn the_version_and_the_help_are_printed() {
    let version = windlass(&["--version"]);
    assert!(version.status.success());
    assert_eq!(text(&version.stdout), format!("windlass {}\n", env!("CARGO_PKG_VERSION")));
    let help = windlass(&["help"]);
    assert!(help.status.success());
    assert_line(&text(&help.stdout), &["demo", "orders"]);
}

#[test]
fn what_cannot_be_understood_is_refused_with_exit_code_2() {
    for (arguments, complaint) in [
        (&["dance"][..], "unrecognized subcommand 'dance'"),
        (&["demo", "--speed", "0"], "not within 0.1 to 100"),
        (&["demo", "--orders", "3"], "3 is not in 4..=200"),
        (&["demo", "--orders", "201"], "201 is not in 4..=200"),
    ] {
        let output = windlass(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert_line(&text(&output.stderr), &[complaint]);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_drains_the_workers_and_exits_with_130() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::Stdio;

    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    let mut child = command
        .args(["demo", "--plain", "--speed", "0.5"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut out = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut line = String::new();
    // The first turn of the story comes after the handler of the signal was set up,
    // and long before its end.
    while !line.contains("bolt comes late") {
        line.clear();
        assert_ne!(out.read_line(&mut line).expect("the demo talks"), 0, "it ended early");
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("kill is there").success());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("the output is UTF-8");
    assert_eq!(child.wait().expect("it was started").code(), Some(130), "{rest}");
    assert_line(&rest, &["interrupted: the workers were drained", "had not ended"]);
}
