//! What a terminal is sent: lines that fit, colours, and nothing that users wrote to steer it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use windlass::embedded::EmbeddedOptions;
use windlass::schedule::{Cadence, Schedule};
use windlass::store::postgres::PostgresOptions;
use windlass::{Ctx, RetryPolicy, TaskError, Windlass, Workflow};

use crate::command;
use crate::place::Place;

const COLUMNS: u16 = 90;

/// Both ends of a terminal with so many columns.
fn terminal() -> (File, OwnedFd) {
    let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&main).unwrap();
    unlockpt(&main).unwrap();
    let name = ptsname(&main, Vec::new()).unwrap();
    let mode = rustix::fs::Mode::empty();
    let end = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, mode).unwrap();
    let size = Winsize { ws_row: 24, ws_col: COLUMNS, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&main, size).unwrap();
    (File::from(main), end)
}

/// What `windlass top` sends to a terminal on which these keys are pressed, each after the words
/// before it were seen.
fn top(url: &str, steps: &[(&str, &str)]) -> (Option<i32>, String) {
    let (mut main, end) = terminal();
    let mut command = command(&["top", "--every", "200ms"]);
    command
        .env("DATABASE_URL", url)
        .env("TERM", "xterm")
        .stdin(Stdio::from(end.try_clone().unwrap()));
    command.stdout(Stdio::from(end.try_clone().unwrap())).stderr(Stdio::from(end));
    let mut child = command.spawn().unwrap();
    drop(command);
    let (mut seen, mut from) = (String::new(), 0);
    let mut bytes = [0; 4096];
    for (words, key) in steps {
        while !seen[from..].contains(words) {
            let count = main.read(&mut bytes).unwrap_or_else(|error| panic!("{error}: {seen:?}"));
            seen += &String::from_utf8_lossy(&bytes[..count]);
        }
        from = seen.len();
        main.write_all(key.as_bytes()).unwrap();
    }
    let mut rest = Vec::new();
    // Reading fails, instead of ending, once the other side of the terminal is closed.
    let _ = main.read_to_end(&mut rest);
    (child.wait().unwrap().code(), seen + &String::from_utf8_lossy(&rest))
}

#[tokio::test]
async fn top_obeys_keys_and_leaves_the_terminal_as_it_was() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    Windlass::connect(PostgresOptions::new(server.url()).migrate(true)).await.unwrap();
    let steps =
        [("view all", "\t"), ("view queues", "?"), ("keys of windlass top", " "), ("paused", "q")];
    let (code, seen) = top(&server.url(), &steps);
    assert_eq!(code, Some(0), "{seen:?}");
    assert!(seen.ends_with("\u{1b}[?25h\u{1b}[?1049l"), "{seen:?}");
}

/// What a command sends to a terminal.
fn sent(url: &str, arguments: &[&str], variables: &[(&str, &str)]) -> String {
    let (mut main, end) = terminal();
    let mut command = command(arguments);
    command.env("DATABASE_URL", url).env("TERM", "xterm").env_remove("NO_COLOR");
    command.envs(variables.to_vec()).stdin(Stdio::null());
    command.stdout(Stdio::from(end.try_clone().unwrap())).stderr(Stdio::from(end));
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut bytes = Vec::new();
    // Reading fails, instead of ending, once the other side of the terminal is closed.
    let _ = main.read_to_end(&mut bytes);
    child.wait().unwrap();
    String::from_utf8(bytes).unwrap()
}

const COLOURS: [&str; 8] = ["0", "1", "2", "31", "32", "33", "36", "4"];

/// The text without colours, which must be all there is of escape sequences.
fn uncoloured(text: &str) -> String {
    let mut plain = text.replace("\r\n", "\n");
    for code in COLOURS {
        plain = plain.replace(&format!("\u{1b}[{code}m"), "");
    }
    let unseen = ['\u{ad}', '\u{61c}', '\u{200b}', '\u{200f}', '\u{feff}', '\u{e0041}'];
    let turns = |c: char| matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    let raw = |c: char| c != '\n' && (c.is_control() || turns(c) || unseen.contains(&c));
    assert!(!plain.contains(raw), "{plain:?}");
    plain
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_reach_no_terminal_and_tables_fit_it() {
    const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;gotcha\u{7}\u{9b}31m\u{9d}\u{85}\u{202a}\u{202e}\u{200f}\u{2028}\
        \u{2029}\u{2066}\u{2069}\u{200b}\u{feff}\u{ad}\u{61c}\u{e0041}\u{7f}\u{8}\r\nend";
    /// In names, where control characters are refused.
    const TURNED: &str = "\u{202e}\u{2067}\u{200b}x";
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    let mut mail = Workflow::<String>::builder(format!("mail{TURNED}"));
    mail.task(format!("send{TURNED}")).queue(format!("q{TURNED}")).retry(RetryPolicy::none()).run(
        async |ctx: Ctx<String>| Err::<(), _>(TaskError::new(ctx.input().clone()).permanent()),
    );
    let mail = mail.build().unwrap();
    let worker = windlass.worker().register(&mail).name("mail-\u{202e}").host("h\u{202e}");
    let worker = worker.metadata("hostile", HOSTILE).spawn().unwrap();
    let run =
        windlass.start(&mail, HOSTILE.to_owned()).key("k\u{200f}").metadata("m\u{1b}", HOSTILE);
    let tenant = format!("t{TURNED}");
    let run = run.tenant(&tenant).await.unwrap();
    let monthly = Cadence::cron("0 3 1 * *", "UTC").unwrap();
    let schedule = Schedule::new(format!("s{TURNED}"), &mail, HOSTILE.to_owned(), monthly);
    windlass.schedule(schedule).await.unwrap();
    run.wait().await.unwrap();
    let id = run.id().to_string();

    let (name, schedule) = (format!("mail{TURNED}"), format!("s{TURNED}"));
    let looks: [&[&str]; 42] = [
        &["runs"],
        &["runs", "--json"],
        &["run", &id],
        &["run", &id, "--json"],
        &["tasks", &id],
        &["tasks", &id, "--json"],
        &["events", &id],
        &["events", &id, "--follow"],
        &["events", &id, "--follow", "--json"],
        &["dead", "list"],
        &["dead", "show", &id],
        &["workers"],
        &["workers", "--json"],
        &["why", &id],
        &["leaders"],
        &["workflows", HOSTILE],
        &["run", HOSTILE],
        &["runs", "--tenant", &tenant],
        &["runs", "--tenant", HOSTILE],
        &["runs", "--tenant", HOSTILE, "--json"],
        &["runs", "--workflow", &name, "--metadata", "m=\u{202e}"],
        &["steps", &id],
        &["dead", "list", "--json"],
        &["leaders", "--json"],
        &["workflows"],
        &["workflows", &name],
        &["workflows", "--json"],
        &["workflows", "mail\u{202e}"],
        &["top", "--once"],
        &["top", "--once", "--json"],
        &["schedules", "list"],
        &["schedules", "list", "--json"],
        &["schedules", "show", &schedule],
        &["schedules", "show", HOSTILE],
        &["duties"],
        &["doctor"],
        &["audit"],
        &["start", "mail\u{202e}", "--input", "\"\u{202e}\""],
        &["cancel", &id, "--reason", HOSTILE, "--by", "o\u{202e}"],
        &["dead", "discard", &id, "--by", "o\u{202e}", "--yes"],
        &["log"],
        &["log", "--json"],
    ];
    for arguments in looks {
        let plain = uncoloured(&sent(&url, arguments, &[]));
        assert!(!plain.trim().is_empty(), "{arguments:?}");
        let is_table = matches!(arguments, ["runs" | "workers" | "leaders"] | ["dead", "list"]);
        for line in plain.lines().filter(|_| is_table) {
            assert!(line.chars().count() <= usize::from(COLUMNS), "{arguments:?}: {line}");
        }
    }
    let runs = sent(&url, &["runs"], &[]);
    assert!(runs.contains("\u{1b}[31mfailed\u{1b}[0m") && runs.contains(&id), "{runs:?}");
    let plain = sent(&url, &["runs"], &[("NO_COLOR", "1")]);
    assert!(!plain.contains('\u{1b}') && plain.contains("failed"), "{plain:?}");
    worker.drain().await.unwrap();
}
