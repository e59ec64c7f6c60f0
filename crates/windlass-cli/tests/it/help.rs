//! Help, docs and completions: every command has them.

use crate::{command, text, windlass};

/// The commands below some words, as their help lists them.
fn commands_below(words: &[&str]) -> Vec<String> {
    let out = windlass(&[words, &["--help"]].concat());
    assert!(out.status.success(), "{words:?} has no help: {}", text(&out.stderr));
    let help = text(&out.stdout);
    assert!(help.contains("Usage: windlass"), "{words:?}: {help}");
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = lines.take_while(|line| !line.is_empty());
    // What goes on in the next line is moved in further.
    let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Every command with those below it, such as `dead list`.
fn all_commands() -> Vec<String> {
    let mut all = Vec::new();
    for command in commands_below(&[]) {
        let below = commands_below(&[&command]);
        for name in &below {
            assert!(commands_below(&[&command, name]).is_empty(), "{command} {name}");
        }
        all.extend(below.iter().map(|name| format!("{command} {name}")));
        all.push(command);
    }
    all
}

#[test]
fn every_command_has_a_help_and_is_in_the_docs() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/cli.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let all = all_commands();
    for wanted in [
        "demo",
        "migrate",
        "start",
        "runs",
        "run",
        "tasks",
        "events",
        "signal",
        "cancel",
        "retry",
        "redrive",
        "schedules",
        "queues",
        "workers",
        "leaders",
        "why",
        "doctor",
        "audit",
        "bench",
        "top",
        "completions",
        "dev",
        "workflows",
        "dead list",
        "schedules put",
    ] {
        assert!(all.iter().any(|command| command == wanted), "no {wanted} in {all:?}");
    }
    let is_missing = |command: &&String| {
        let named = format!("`windlass {command}");
        !docs.contains(&format!("{named}`")) && !docs.contains(&format!("{named} "))
    };
    let missing: Vec<&String> = all.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "not in docs/cli.md: {missing:?}");
}

#[test]
fn shells_are_told_how_to_complete_every_command() {
    for (shell, mark) in
        [("bash", "_windlass()"), ("zsh", "#compdef windlass"), ("fish", "complete -c")]
    {
        let out = windlass(&["completions", shell]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let script = text(&out.stdout);
        assert!(script.contains(mark), "{shell}: {}", script.chars().take(300).collect::<String>());
        for name in ["start", "redrive", "workflows", "input-file", "print-config"] {
            assert!(script.contains(name), "{name} for {shell}");
        }
    }
    let out = command(&["completions", "tcsh"]).output().unwrap();
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn the_short_help_hides_global_options_that_few_need() {
    let (short, long) = (windlass(&["runs", "-h"]), windlass(&["runs", "--help"]));
    let (short, long) = (text(&short.stdout), text(&long.stdout));
    for name in ["--database-url", "--server", "--json", "--limit", "Global options:"] {
        assert!(short.contains(name) && long.contains(name), "{name}\n{short}");
    }
    for name in ["--payload-keys", "--client-cert", "--pooled", "--print-config", "--token-file"] {
        assert!(!short.contains(name), "{name}\n{short}");
        assert!(long.contains(name), "{name}\n{long}");
    }
}
