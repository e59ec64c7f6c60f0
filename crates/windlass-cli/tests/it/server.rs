//! Which PostgreSQL commands take, and what is left of a start that failed.

use std::process::Output;

use crate::place::{Place, Programs};
use crate::{assert_line, command, text, windlass};

/// A PostgreSQL of which only the version can be had.
const VERSION: &str = "echo 'postgres (PostgreSQL) 16.1'";

/// Runs a command with programs that the environment names.
fn with(programs: &Programs, arguments: &[&str]) -> Output {
    command(arguments).env("WINDLASS_PG_BIN", programs.directory()).output().unwrap()
}

#[test]
fn the_help_names_the_flags_for_programs_and_for_an_installation() {
    for name in ["demo", "dev"] {
        let help = windlass(&[name, "--help"]);
        let help = text(&help.stdout);
        assert_line(&help, &["--pg-bin <DIR>"]);
        assert_line(&help, &["[env: WINDLASS_PG_BIN="]);
        assert_line(&help, &["--install"]);
        assert_line(&help, &["through sudo"]);
    }
}

#[test]
fn programs_are_named_by_a_flag_or_by_the_environment_and_the_flag_wins() {
    let place = Place::new();
    for name in ["demo", "dev"] {
        let arguments = [name, "--data", &place.data(), "--pg-bin", "/nowhere/by-flag"];
        let output = command(&arguments).env("WINDLASS_PG_BIN", "/nowhere/else").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_line(&text(&output.stderr), &["\"/nowhere/by-flag\" was named", "[WL-0002]"]);
        // Nothing is as good as not said.
        let output = command(&[name, "--data", "/dev/null"]).env("WINDLASS_PG_BIN", "").output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_line(&text(&output.stderr), &["/dev/null", "[WL-0002]"]);
    }
    assert_eq!(place.list(), [""; 0]);
}

#[test]
fn a_postgres_that_does_not_answer_is_named_instead_of_waited_for() {
    let place = Place::new();
    let programs = place.programs("sleep 30", "");
    let output = with(&programs, &["dev", "--data", &place.data()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let program = format!("{}/postgres", programs.directory());
    let said = "has not answered \"--version\" within 5s [WL-0002]";
    assert_line(&text(&output.stderr), &["error: ", &program, said]);
    assert_eq!(place.list(), [""; 0]);
}

#[test]
fn a_cluster_that_cannot_be_made_is_explained_line_by_line_and_leaves_nothing_behind() {
    let place = Place::new();
    let initdb = "mkdir -p $2; touch $2/PG_VERSION; echo 'creating it' >&2; \
                  echo 'initdb: error: no room' >&2; exit 1";
    let programs = place.programs(VERSION, initdb);
    for name in ["demo", "dev"] {
        for data in [place.data(), place.nested()] {
            let output = with(&programs, &[name, "--data", &data]);
            assert_eq!(output.status.code(), Some(1), "{output:?}");
            let error = text(&output.stderr);
            assert_line(&error, &["error: ", "could not make a cluster in", &data]);
            let lines: Vec<&str> = error.lines().collect();
            assert_eq!(
                lines[lines.len() - 2..],
                ["  creating it", "  initdb: error: no room [WL-0007]"]
            );
            assert_eq!(place.list(), [""; 0], "{name} {data}");
        }
    }
}

#[test]
fn a_server_that_does_not_come_up_leaves_nothing_behind() {
    let place = Place::new();
    let postgres =
        format!("[ $1 = --version ] && {VERSION} || {{ echo 'FATAL: no' >&2; exit 1; }}");
    let programs = place.programs(&postgres, "mkdir $2; echo 16 > $2/PG_VERSION");
    for name in ["demo", "dev"] {
        let output = with(&programs, &[name, "--data", &place.nested()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_line(&text(&output.stderr), &["  FATAL: no [WL-0007]"]);
        assert_eq!(place.list(), [""; 0], "{name}");
    }
}

#[test]
fn what_was_there_before_a_failed_start_stays() {
    let place = Place::new();
    let programs = place.programs(VERSION, "exit 1");
    for name in ["demo", "dev"] {
        std::fs::create_dir(place.directory()).unwrap();
        let output = with(&programs, &[name, "--data", &place.data()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(place.list(), ["data"], "{name}");
        assert_eq!(std::fs::read_dir(place.directory()).unwrap().count(), 0, "{name}");
        std::fs::remove_dir(place.directory()).unwrap();

        std::fs::write(place.directory(), "dear").unwrap();
        let output = windlass(&[name, "--data", &place.data()]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_line(&text(&output.stderr), &["error: ", &place.data(), "[WL-0002]"]);
        assert_eq!(place.list(), ["data"], "{name}");
        std::fs::remove_file(place.directory()).unwrap();
    }
}
