//! A password is put wherever one can be, and looked for in all that is printed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use windlass::Windlass;
use windlass::embedded::EmbeddedOptions;
use windlass::store::postgres::{PostgresOptions, PostgresStore};

use crate::place::Place;
use crate::{command, text};

/// What must not be seen. Part of it is enough.
const CANARY: &str = "canary-5up3r-s3cret";
const PARTS: [&str; 2] = ["5up3r", "s3cret"];

#[track_caller]
fn assert_unseen(what: &str, said: &str) {
    let seen = PARTS.iter().any(|part| said.contains(part));
    assert!(!seen, "{what} shows the password:\n{said}");
}

/// Runs a command with every log turned on, and looks at all that it prints.
#[track_caller]
fn watched(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let logs = [("WINDLASS_LOG", "trace"), ("RUST_LOG", "trace"), ("RUST_BACKTRACE", "full")];
    let mut command = command(arguments);
    command.envs(logs).envs(variables.to_vec()).stdin(Stdio::null());
    let output = command.output().expect("the binary was built");
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_unseen(&format!("{arguments:?} with {variables:?}"), &said);
    output
}

/// Addresses that lead nowhere, or make no sense, with the password in every place.
fn addresses() -> Vec<String> {
    [
        "postgres://ops:CANARY@127.0.0.1:1/shop",
        "postgres://ops:CANARY@127.0.0.1:1/shop?sslmode=disable",
        "postgres://ops@127.0.0.1:1/shop?password=CANARY",
        "postgres://ops@127.0.0.1:1/shop?password=CANARY&sslmode=disable",
        "postgres://127.0.0.1:1/shop?user=ops&password=CANARY&application_name=x",
        "postgres://ops:CANARY@127.0.0.1:1/shop?options=-c%20app.key%3DCANARY",
        "postgres://ops@127.0.0.1:1/shop?options=CANARY",
        "postgres://ops:CANARY@127.0.0.1:port/shop",
        "postgres://ops:CANARY@127.0.0.1:1/shop?CANARY=1",
        "postgres://ops:CANARY@127.0.0.1:1/shop?passwrd=CANARY",
        "postgres://ops:a@CANARY@127.0.0.1:1/shop",
        "postgres://ops:a/CANARY@127.0.0.1:1/shop",
        "postgres://ops:a?CANARY@127.0.0.1:1/shop",
        "postgres://ops:a#CANARY@127.0.0.1:1/shop",
        "postgres://ops:a%zzCANARY@127.0.0.1:1/shop",
        "postgres://ops:CANARY@/shop",
        "postgres://ops:CANARY@127.0.0.1:1/shop?connect_timeout=soon",
        "postgresql://ops:CANARY@127.0.0.1:1",
        "mysql://ops:CANARY@127.0.0.1:1/shop",
        "host=127.0.0.1 port=1 user=ops password=CANARY dbname=shop",
        "host=127.0.0.1 port=1 user=ops password='a CANARY' dbname=shop",
        "host=127.0.0.1 options='-c app.key=CANARY'",
    ]
    .map(|address| address.replace("CANARY", CANARY))
    .to_vec()
}

/// How many processes are watched at once: most of them wait for the system.
const AT_ONCE: usize = 4;

#[test]
fn no_command_shows_the_password_of_an_address_that_leads_nowhere() {
    let all = addresses();
    let each = |address: &String| {
        let variables = [("DATABASE_URL", address.as_str())];
        let printed = watched(&["--print-config"], &variables);
        assert!(text(&printed.stdout).contains("DATABASE_URL"), "{address}");
        let failed = watched(&["runs"], &variables);
        assert!(!failed.status.success() && !failed.stderr.is_empty(), "{address}");
        // In the wrong place.
        watched(&["runs", address], &[]);
        watched(&["runs", "--json", "--server", address], &[]);
    };
    std::thread::scope(|scope| {
        for some in all.chunks(all.len().div_ceil(AT_ONCE)) {
            scope.spawn(move || some.iter().for_each(each));
        }
    });
}

#[test]
fn no_command_that_fails_shows_the_password_that_it_was_given() {
    let address = format!("postgres://ops:{CANARY}@127.0.0.1:1/shop?options=-c%20a.b%3D{CANARY}");
    let variables = [("DATABASE_URL", address.as_str())];
    for arguments in [
        &["migrate"][..],
        &["doctor"],
        &["doctor", "--json"],
        &["audit", "--json"],
        &["top", "--once"],
        &["start", "mail"],
        &["schedules", "list"],
        &["serve", "--insecure-dev", "--listen", "127.0.0.1:0"],
        &["doctor", "--listen-url", &address],
        &["dead", "list", &address],
        &[&address],
    ] {
        let failed = watched(arguments, &variables);
        assert!(!failed.status.success() && !failed.stderr.is_empty(), "{arguments:?}");
    }
    watched(&["doctor"], &[variables[0], ("WINDLASS_LISTEN_URL", &address)]);
    watched(&["--print-config", "--json"], &variables);
    watched(&["--print-config", "--server", &address], &[]);
    watched(&["bench", "start", "--database-url", &address], &[]);
    watched(&["migrate", "--server", &address], &[]);
}

#[test]
fn no_file_that_is_wrong_shows_what_it_holds() {
    let name = format!("windlass-secrets-{}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let file = path.to_str().unwrap();
    for (written, variable) in [
        (format!("postgres://ops:{CANARY}@127.0.0.1:1/shop\n"), "DATABASE_URL_FILE"),
        (format!("{CANARY}\n{CANARY}\n"), "DATABASE_URL_FILE"),
        ("\n".to_owned(), "DATABASE_URL_FILE"),
        (format!("database_url = 'postgres://ops:{CANARY}@127.0.0.1:1/shop'\n"), "config"),
        (format!("database_url = 'postgres://ops:{CANARY}@127.0.0.1:1/shop"), "config"),
        (format!("databse_url = '{CANARY}'"), "config"),
        (format!("pooled = '{CANARY}'"), "config"),
        (format!("pooled = {CANARY}"), "config"),
        (format!("profile = '{CANARY}'").replace(CANARY, "none"), "config"),
    ] {
        std::fs::write(&path, written).unwrap();
        let (before, variables) = match variable {
            "config" => (&["--config", file][..], vec![]),
            variable => (&[][..], vec![(variable, file)]),
        };
        for arguments in [&["runs"][..], &["--print-config"], &["doctor", "--json"]] {
            watched(&[before, arguments].concat(), &variables);
        }
    }
    std::fs::remove_file(&path).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_asks_for_a_password_is_reached_with_it_and_nobody_sees_it() {
    let place = Place::new();
    let options = EmbeddedOptions::new(place.directory()).durable(false).temporary(true);
    let server = options.start().await.expect("PostgreSQL is installed");
    let own = server.url();
    let client = PostgresOptions::new(&own).client().await.unwrap();
    let make = format!("create role ops login superuser password '{CANARY}'");
    client.batch_execute(&make).await.unwrap();
    let rules: String = client.query_one("show hba_file", &[]).await.unwrap().get(0);
    let others = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(&rules, format!("local all ops scram-sha-256\n{others}")).unwrap();
    client.batch_execute("select pg_reload_conf()").await.unwrap();
    let (scheme, rest) = own.split_once("://").unwrap();
    let (_, place_of) = rest.split_once('@').unwrap();
    let with = |user: &str| format!("{scheme}://{user}@{place_of}");

    // The rule holds once the server has read it.
    let wrong = with(&format!("ops:{CANARY}-not"));
    let is_asked = async || PostgresOptions::new(&wrong).client().await.is_err();
    tokio::time::timeout(std::time::Duration::from_secs(60), async {
        while !is_asked().await {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("the server asks for the password");

    for wrong in [wrong, with("ops") + &format!("?password={CANARY}-not")] {
        let failed = watched(&["runs"], &[("DATABASE_URL", &wrong)]);
        assert!(text(&failed.stderr).contains("password authentication failed"));
        let failed = watched(&["doctor", "--json"], &[("DATABASE_URL", &wrong)]);
        assert!(!failed.status.success());
        // What programs are told.
        let error = Windlass::connect(wrong.as_str()).await.map(drop).unwrap_err();
        assert_unseen("the error", &format!("{error} {error:?} {error:#?}"));
        let error = PostgresStore::connect(wrong.as_str().into()).await.map(drop).unwrap_err();
        assert_unseen("the error", &format!("{error} {error:?} {error:#?}"));
        let options = PostgresOptions::new(&wrong).listen_url(&wrong);
        assert_unseen("the options", &format!("{options:?} {options:#?}"));
    }

    let right = with(&format!("ops:{CANARY}"));
    let file = server.directory().with_file_name("database-url");
    std::fs::write(&file, format!("{right}\n")).unwrap();
    let variables = [("DATABASE_URL_FILE", file.to_str().unwrap())];
    for arguments in [&["migrate"][..], &["runs"], &["runs", "--json"], &["doctor"], &["audit"]] {
        let done = watched(arguments, &variables);
        assert!(done.status.success() || arguments == ["doctor"], "{}", text(&done.stderr));
    }
    let printed = text(&watched(&["--print-config"], &variables).stdout);
    assert!(printed.contains("ops:***@") && printed.contains("DATABASE_URL_FILE"), "{printed}");
    let store = PostgresStore::connect(right.as_str().into()).await.unwrap();
    assert_unseen("the store", &format!("{store:?}"));

    // A server with every log turned on, from its first line to its last.
    let mut command = command(&["serve", "--insecure-dev", "--listen", "127.0.0.1:0"]);
    command.envs(variables).env("WINDLASS_LOG", "trace").env("RUST_LOG", "trace");
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let logged = std::thread::spawn(move || {
        let mut all = String::new();
        stderr.read_to_string(&mut all).unwrap();
        all
    });
    let mut first = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("WINDLASS_SERVER=").expect("where it listens");
    let runs = watched(&["runs"], &[("WINDLASS_SERVER", address)]);
    assert!(runs.status.success());
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait().unwrap();
    let logged = logged.join().unwrap();
    assert!(logged.contains("TRACE"), "everything is logged: {logged}");
    assert_unseen("the server", &(first + &logged));
}
