//! What a terminal is sent: lines that fit, colours, and nothing that users wrote to steer it.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use windlass::embedded::EmbeddedOptions;
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
    // The end of a terminal that nobody has any more is an error, not an end.
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
    let raw = |c: char| c != '\n' && (c.is_control() || matches!(c, '\u{200f}' | '\u{202e}'));
    assert!(!plain.contains(raw), "{plain:?}");
    plain
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_texts_reach_no_terminal_and_tables_fit_it() {
    const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;gotcha\u{7}\u{9b}31m\u{202e}\u{200f}\r\nend";
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let url = server.url();
    let windlass = Windlass::connect(PostgresOptions::new(&url).migrate(true)).await.unwrap();
    let mut mail = Workflow::<String>::builder("mail");
    mail.task("send").retry(RetryPolicy::none()).run(async |ctx: Ctx<String>| {
        Err::<(), _>(TaskError::new(ctx.input().clone()).permanent())
    });
    let mail = mail.build().unwrap();
    let worker = windlass.worker().register(&mail).name("mail-\u{202e}").host("h\u{202e}");
    let worker = worker.metadata("hostile", HOSTILE).spawn().unwrap();
    let run =
        windlass.start(&mail, HOSTILE.to_owned()).key("k\u{200f}").metadata("m\u{1b}", HOSTILE);
    let run = run.await.unwrap();
    run.wait().await.unwrap();
    let id = run.id().to_string();

    let looks: [&[&str]; 17] = [
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
