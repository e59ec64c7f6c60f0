//! The demo: real processes, a real server, and real kills.

use rustix::process::{Signal, kill_process};

use crate::place::{Place, Running, is_alive, wait_until};
use crate::{assert_line, command, text, windlass};

/// Fast enough for a test; the leases that the demo lets run out are not faster.
fn demo(place: &Place) -> Running {
    Running::spawn(&["demo", "--plain", "--speed", "20", "--data", &place.data()])
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

/// What a demo that ended well must say.
#[track_caller]
fn assert_whole(out: &str) {
    let rows = rows(out);
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
    assert_line(out, &["every run ended: 12 of 12"]);
    assert_line(out, &["every order was shipped once: 12 of 12"]);
    assert_line(out, &["checks on", "no guarantee is broken"]);
}

#[test]
fn the_demo_shows_how_work_survives_its_workers_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut demo = demo(&place);
    demo.read_to("worker processes");
    let server = place.server().expect("the server runs");
    let (status, out) = demo.end();
    assert!(status.success(), "{status:?}\n{out}");
    assert_whole(&out);
    assert!(!out.contains('\u{1b}'), "{out:?}");
    assert_figures_add_up(&out);

    assert_line(&out, &["charge: attempt 1 failed (error: the bank does not answer)"]);
    assert_line(&out, &["charge: failed for good (card_declined: card declined)"]);
    assert_line(&out, &["gift-wrap: skipped, its condition is false"]);
    assert_line(&out, &["acme order-03 failed: charge: card declined; 4 tasks skipped"]);
    assert_line(&out, &["apologise gave \"sorry, order 3 has to wait: card declined\""]);
    assert_line(&out, &["acme order-03: card mended, round 2: 5 tasks anew, 6 kept"]);
    assert_line(&out, &["bolt's first claim: after", "of acme's", "bound 6)"]);
    assert_line(&out, &["drains: it claims no more"]);
    assert_line(&out, &["has left after", "takes its place"]);

    let order = "acme order-01 reserve-stock";
    assert_line(&out, &["is killed (SIGKILL) in the middle of", order, "attempt 1, fence 1"]);
    assert_line(&out, &[order, "taken away", "claimed again", "attempt 2, fence 2"]);
    let order = "acme order-02 reserve-stock";
    assert_line(&out, &["is frozen (SIGSTOP) in the middle of", order, "attempt 1, fence 1"]);
    assert_line(&out, &[order, "taken away", "claimed again", "attempt 2, fence 2"]);
    assert_line(&out, &["is thawed (SIGCONT)"]);
    assert_line(&out, &["its write with fence 1 is refused"]);
    assert_line(&out, &["says: refused", "fence=1", "refusal=LeaseLost"]);
    assert_line(&out, &["leases that ran out: ", "; refused: 1 write"]);

    assert_eq!(place.list(), [""; 0]);
    assert!(!is_alive(server));
    assert_eq!(place.processes("demo-worker"), []);
}

#[track_caller]
fn assert_figures_add_up(out: &str) {
    let rows = rows(out);
    let number = |text: &str| text.parse::<usize>().unwrap();
    let sum = |column: usize| rows.iter().map(|row| number(row[column])).sum::<usize>();
    let totals = out.lines().skip_while(|line| *line != "totals").nth(1).expect("totals");
    let claims = out.lines().find(|line| line.contains("claims: ")).expect("claims");
    assert_eq!(rows.len(), number_before(totals, "runs"));
    assert_eq!(number_before(totals, "tasks"), sum(4));
    assert_eq!(number_before(totals, "attempts"), sum(6));
    assert_eq!(number_before(totals, "of"), sum(7));
    let of_tenants: usize = claims.split(", by").next().map(digits).expect("claims of tenants");
    assert_eq!(of_tenants, sum(6), "{claims}");
}

/// The sum of all numbers in a text.
fn digits(text: &str) -> usize {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse::<usize>().ok()).sum()
}

#[test]
fn a_demo_that_was_killed_goes_on_and_ships_every_order_once() {
    let place = Place::new();
    // While the cluster is made; with the first orders; while a worker is frozen; when it
    // has been refused; while the result is printed. Each time everything is killed.
    let moments =
        ["PostgreSQL is started", "starts 9 orders", "is frozen", "is refused", "every run ended"];
    for moment in moments {
        let mut demo = demo(&place);
        demo.read_to(moment);
        // The first one is killed before there is anything, or soon after.
        if moments[2..].contains(&moment) {
            assert_line(&demo.seen, &["a demo was cut off in"]);
            assert_line(&demo.seen, &["orders,", "ended: they go on"]);
        }
        demo.kill_group();
        place.kill_server();
        // They have groups of their own, and are killed when their demo is.
        wait_until("the workers are dead", || place.processes("demo-worker").is_empty());
    }
    let (status, out) = demo(&place).end();
    assert!(status.success(), "{status:?}\n{out}");
    assert_whole(&out);
    assert_eq!(place.list(), [""; 0]);
}

#[test]
fn workers_die_with_their_demo_and_the_next_one_adopts_the_server() {
    let place = Place::new();
    let mut first = demo(&place);
    first.read_to("is frozen");
    let server = place.server().expect("the server runs");
    assert!(place.processes("demo-worker").len() >= 3);
    // Only the demo itself: the workers, of which one is frozen, are on their own.
    first.signal(Signal::KILL);
    wait_until("the workers are dead", || place.processes("demo-worker").is_empty());
    first.reap();
    assert!(is_alive(server));

    let mut second = demo(&place);
    let line = second.read_to("runs already");
    assert!(line.contains(&format!("(pid {})", server.as_raw_pid())), "{line}");
    second.read_to("ended: they go on");
    second.signal(Signal::INT);
    let (status, out) = second.end();
    assert_eq!(status.code(), Some(130), "{out}");
}

#[test]
fn an_interrupt_drains_the_workers_and_cleans_up_and_another_demo_is_refused_meanwhile() {
    let place = Place::new();
    let mut demo = Running::spawn(&["demo", "--speed", "0.5", "--data", &place.data()]);
    demo.read_to("bolt comes late");
    let server = place.server().expect("the server runs");

    let other = windlass(&["demo", "--fresh", "--data", &place.data()]);
    assert_eq!(other.status.code(), Some(1));
    let complaint = format!("another demo (pid {}) is running in", demo.pid().as_raw_pid());
    assert_line(&text(&other.stderr), &[&complaint, &place.data(), "[WL-0005]"]);
    assert_eq!(text(&other.stdout), "");

    demo.signal(Signal::INT);
    let (status, out) = demo.end();
    assert_eq!(status.code(), Some(130), "{out}");
    assert_line(&out, &["interrupted: the workers were drained", "had not ended"]);
    assert_eq!(place.list(), [""; 0]);
    assert!(!is_alive(server));
    assert_eq!(place.processes("demo-worker"), []);
}

#[test]
fn a_request_to_end_the_whole_group_leaves_the_cleaning_to_the_demo() {
    let place = Place::new();
    let mut demo = Running::spawn(&["demo", "--speed", "0.5", "--data", &place.data()]);
    demo.read_to("bolt comes late");
    let server = place.server().expect("the server runs");
    // What reaches the workers alone ends none of them.
    let workers = place.processes("demo-worker");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        workers.iter().for_each(|worker| kill_process(*worker, signal).unwrap());
    }
    demo.read_to("is killed (SIGKILL)");
    demo.signal_group(Signal::TERM);
    let (status, out) = demo.end();
    assert_eq!(status.code(), Some(143), "{out}");
    assert_line(&out, &["interrupted: the workers were drained", "had not ended"]);
    assert!(!out.contains("has ended by itself"), "{out}");
    assert_eq!(place.list(), [""; 0]);
    assert!(!is_alive(server));
}

#[test]
fn a_demo_is_refused_where_a_dev_is_at_work() {
    let place = Place::new();
    // As after a demo that was cut off.
    std::fs::write(place.directory().with_extension("lock"), "windlass-demo 1\n").unwrap();
    let mut dev = Running::spawn(&["dev", "--data", &place.data()]);
    dev.read_to("Press Ctrl-C");
    for more in [&[][..], &["--fresh"]] {
        let data = place.data();
        let output = windlass(&[&["demo", "--speed", "20", "--data", &data], more].concat());
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let complaint = "is used by another program, such as `windlass dev`; end that first";
        assert_line(&text(&output.stderr), &[complaint, &place.data(), "--data [WL-0005]"]);
    }
    dev.signal(Signal::INT);
    let (status, out) = dev.end();
    assert!(status.success(), "{out}");
    assert_line(&out, &["was stopped"]);
}

#[test]
fn a_dev_that_joins_a_demo_keeps_the_server_when_the_demo_has_ended() {
    let place = Place::new();
    let mut demo = demo(&place);
    demo.read_to("worker processes");
    let server = place.server().expect("the server runs");
    let mut dev = Running::spawn(&["dev", "--data", &place.data()]);
    dev.read_to("Press Ctrl-C");
    let (status, out) = demo.end();
    assert!(status.success(), "{status:?}\n{out}");
    assert_whole(&out);
    assert_line(&out, &["the server is used by others, to whom", &place.data(), "is left"]);
    // It is not a demo's any more, and no demo will remove it.
    assert_eq!(place.list(), ["data"]);
    assert!(is_alive(server));
    dev.signal(Signal::INT);
    let (status, out) = dev.end();
    assert!(status.success(), "{out}");
    assert_line(&out, &["was stopped"]);
}

#[test]
fn an_interrupt_while_the_server_starts_leaves_nothing_behind() {
    let place = Place::new();
    let mut demo = Running::spawn(&["demo", "--plain", "--data", &place.nested()]);
    demo.read_to("PostgreSQL is started there");
    demo.signal(Signal::TERM);
    let (status, out) = demo.end();
    assert_eq!(status.code(), Some(143), "{out}");
    assert_eq!(place.list(), [""; 0]);
}

#[test]
fn a_demo_without_postgres_says_so_and_leaves_nothing_behind() {
    let place = Place::new();
    let mut command = command(&["demo", "--data", &place.data()]);
    let output = command.env("WINDLASS_PG_BIN", "/nowhere").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_line(&text(&output.stderr), &["error: ", "/nowhere", "[WL-0002]"]);
    assert_eq!(place.list(), [""; 0]);
}

#[test]
fn whoever_stops_reading_the_demo_ends_it() {
    let place = Place::new();
    let mut demo = demo(&place);
    demo.read_to("starts 9 orders");
    let server = place.server().expect("the server runs");
    assert!(demo.close_output().success());
    assert_eq!(place.list(), [""; 0]);
    assert!(!is_alive(server));
}

#[test]
fn a_directory_that_is_not_a_demos_is_left_alone() {
    let place = Place::new();
    std::fs::create_dir(place.directory()).unwrap();
    std::fs::write(place.directory().join("letter.txt"), "dear").unwrap();
    let output = windlass(&["demo", "--data", &place.data()]);
    assert_eq!(output.status.code(), Some(1));
    assert_line(
        &text(&output.stderr),
        &["is in use, and not by a demo", &place.data(), "[WL-0005]"],
    );
    assert_eq!(place.list(), ["data"]);
    let letter = std::fs::read_to_string(place.directory().join("letter.txt"));
    assert_eq!(letter.unwrap(), "dear");
}
