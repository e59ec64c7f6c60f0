//! Which database or server is meant, and who says so.

use std::path::PathBuf;

use serde_json::Value;

use crate::{assert_line, command, text};

/// A config file; gone with the test.
struct ConfigFile(PathBuf);

impl ConfigFile {
    fn new(name: &str, written: &str) -> Self {
        let name = format!("windlass-config-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(directory.join("windlass")).unwrap();
        std::fs::write(directory.join("windlass/config.toml"), written).unwrap();
        ConfigFile(directory)
    }

    /// What the binary says of its settings.
    fn printed(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Value {
        let mut command = command(&[&["--print-config", "--json"], arguments].concat());
        let out =
            command.env("XDG_CONFIG_HOME", &self.0).envs(variables.to_vec()).output().unwrap();
        assert!(out.status.success(), "{}", text(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }
}

impl Drop for ConfigFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const TWO: &str = "
database_url = 'postgres://all'
[profiles.prod]
server = 'https://anna:secret@prod.example.com'
";

#[test]
fn settings_are_printed_with_where_they_come_from_and_without_passwords() {
    let file = ConfigFile::new("printed", TWO);
    let printed = file.printed(&[], &[]);
    assert_eq!(printed["database_url"]["value"], "postgres://all");
    assert_eq!(printed["database_url"]["from"], "config file");
    assert_eq!(printed["profile"]["value"], Value::Null);
    let printed =
        file.printed(&["workers", "--profile", "prod"], &[("DATABASE_URL", "postgres://b")]);
    assert_eq!(printed["server"]["value"], "https://***@prod.example.com");
    assert_eq!(printed["server"]["from"], "profile prod");
    assert_eq!(printed["database_url"]["value"], Value::Null);
    let printed = file.printed(&[], &[("DATABASE_URL", "postgres://b")]);
    assert_eq!(printed["database_url"]["from"], "environment DATABASE_URL");
    let printed = file.printed(&["--database-url", "postgres://c"], &[("DATABASE_URL", "x")]);
    assert_eq!(printed["database_url"]["from"], "flag --database-url");
    let out = command(&["--print-config"]).env("XDG_CONFIG_HOME", &file.0).output().unwrap();
    assert_line(&text(&out.stdout), &["database_url", "postgres://all", "config file"]);
}

#[test]
fn a_file_or_a_target_that_makes_no_sense_is_refused_with_exit_code_2() {
    let wrong = ConfigFile::new("wrong", "[profiles.prod]\nsever = 'secret'\n");
    let right = ConfigFile::new("right", TWO);
    for (file, arguments, complaint) in [
        (&wrong, &["workers"][..], "config.toml, line 2, column 1: unknown field `sever`"),
        (&right, &["workers", "--profile", "dev"], "which has prod"),
        (&right, &["migrate", "--profile", "prod"], "windlass migrate needs the database itself"),
        (&right, &["doctor", "--profile", "prod"], "windlass doctor needs the database itself"),
        (&right, &["audit", "--profile", "prod"], "windlass audit needs the database itself"),
        (&right, &["serve", "--profile", "prod"], "windlass serve needs the database itself"),
    ] {
        let out = command(arguments).env("XDG_CONFIG_HOME", &file.0).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        let told = text(&out.stderr);
        assert!(told.contains(complaint) && !told.contains("secret"), "{told}");
    }
    for (arguments, complaint) in [
        (&["bench", "throughput", "--server", "https://s"][..], "bench needs the database itself"),
        (&["bench", "throughput", "--profile", "prod"], "--profile is not for it"),
        (&["dev", "--database-url", "postgres://d"], "dev makes a database of its own"),
        (&["demo", "--server", "https://s"], "demo makes a database of its own"),
        (&["demo", "--token-file", "/t"], "--token-file is not for it"),
        (&["dev", "--payload-keys", "/k"], "--payload-keys is not for it"),
        (&["serve", "--payload-keys", "/k"], "leaves sealed what is sealed: --payload-keys is not"),
        (&["serve", "--token-file", "/t"], "the database itself: --token-file is not for it"),
        (&["workers", "--client-cert", "/c"], "flag --client-cert and flag --client-key are of"),
        (&["quotas", "set", "acme"], "give at least one, or --unlimited"),
        (&["quotas", "set", "acme", "--tasks", "1", "--unlimited"], "and a limit as well"),
        (&["tokens", "create", "a", "--role", "admin", "--expires-in", "0s"], "within 1s and"),
        (&["dev", "--json"], "have no JSON"),
    ] {
        let out = command(arguments).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        assert!(text(&out.stderr).contains(complaint), "{arguments:?}: {}", text(&out.stderr));
    }
    let missing = command(&["workers", "--config", "/nowhere/c.toml"]).output().unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert_line(&text(&missing.stderr), &["config file /nowhere/c.toml", "No such file"]);
}

#[test]
#[cfg(unix)]
fn a_token_is_neither_taken_in_sight_nor_from_a_file_that_others_may_read() {
    use std::os::unix::fs::PermissionsExt as _;

    for arguments in [
        &["workers", "--token", "wl_secret"][..],
        &["--token=wl_secret", "workers"],
        &["workers", "--token"],
    ] {
        let out = command(arguments).output().unwrap();
        assert_eq!(out.status.code(), Some(2), "{arguments:?}");
        let told = text(&out.stderr);
        assert!(told.contains("--token-file <FILE>") && !told.contains("wl_secret"), "{told}");
    }
    let file = ConfigFile::new("token", "server = 'https://h'\ntoken = 'wl_secret'\n");
    let path = file.0.join("windlass/config.toml");
    let mode = |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
    mode(0o644).unwrap();
    let out = command(&["workers"]).env("XDG_CONFIG_HOME", &file.0).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
    let told = text(&out.stderr);
    assert!(told.contains("others may read it") && !told.contains("wl_secret"), "{told}");
    mode(0o600).unwrap();
    let printed = file.printed(&[], &[]);
    assert_eq!(printed["token"]["value"], "***");
    assert_eq!(printed["token"]["from"], "config file");
    let printed = file.printed(&["--token-file", "/t", "--ca-file", "/ca"], &[]);
    assert_eq!(printed["token_file"]["value"], "/t");
    assert_eq!(printed["token_file"]["from"], "flag --token-file");
    assert_eq!(printed["ca_file"]["from"], "flag --ca-file");
    let far = ["workers", "--server", "http://192.0.2.1:7600", "--token-file"];
    let token = file.0.join("token");
    std::fs::write(&token, "wl_secret").unwrap();
    let out = command(&[&far[..], &[token.to_str().unwrap()]].concat()).output().unwrap();
    let told = text(&out.stderr);
    assert!(told.contains("in the clear") && !told.contains("wl_secret"), "{told}");
    assert!(!out.status.success());
}

#[test]
fn errors_are_json_for_whoever_asks_for_json() {
    for (arguments, code) in [(&["workers", "--json"][..], 2), (&["dance", "--json"], 2)] {
        let out = command(arguments).output().unwrap();
        assert_eq!((out.status.code(), out.stdout.len()), (Some(code), 0));
        let error: Value = serde_json::from_slice(&out.stderr).unwrap();
        assert_eq!(error["error"]["code"], "usage");
        assert!(error["error"]["message"].as_str().is_some_and(|it| !it.is_empty()), "{error}");
    }
}
