use super::*;

fn file(path: &str, text: &str) -> TextFile {
    TextFile { path: path.into(), text: text.into() }
}

fn shown(problems: impl IntoIterator<Item = Problem>) -> Vec<String> {
    problems.into_iter().map(|problem| problem.to_string()).collect()
}

/// A workspace without problems, to which tests add one.
const CLEAN: [(&str, &str); 6] = [
    ("Cargo.lock", ""),
    (README, "# Windlass\n\n```rust\nfn main() {}\n```\n\n[Errors](docs/errors/README.md)\n"),
    (README_PROGRAM, "fn main() {}\n"),
    (ERROR_SOURCE, "/// Such as `WL-0004`.\nKind::Name => \"WL-0001\",\n"),
    (ERROR_INDEX, "[WL-0001](WL-0001.md)\n"),
    ("docs/errors/WL-0001.md", "# WL-0001: name\n"),
];

fn with(extra: &[(&str, &str)]) -> Vec<String> {
    let kept = CLEAN.iter().filter(|(path, _)| extra.iter().all(|(other, _)| other != path));
    let files: Vec<_> = kept.chain(extra).copied().collect();
    shown(check(&Workspace::of(&files)))
}

fn without(path: &str) -> Vec<String> {
    let files: Vec<_> = CLEAN.into_iter().filter(|(kept, _)| *kept != path).collect();
    shown(check(&Workspace::of(&files)))
}

#[test]
fn a_tidy_workspace_has_no_problems() {
    assert_eq!(with(&[]), [""; 0]);
}

#[test]
fn spaces_at_the_end_of_a_line_are_found_in_every_file() {
    let problems = shown(check_lines(&file("a.sql", "select 1\nfrom x \n\t\nwhere y\r\n")));
    assert_eq!(
        problems,
        [
            "a.sql:2: has spaces at its end",
            "a.sql:3: has spaces at its end",
            "a.sql:4: has spaces at its end",
        ]
    );
    assert_eq!(check_lines(&file("a.sql", "  select 1\n\nfrom x")), []);
}

#[test]
fn words_for_work_left_undone_are_found() {
    let [first, second] = LEFT_WORK;
    let text = format!("fine\n// {first}: later\n// {second}\ntodo = \"warn\"\n");
    let problems = shown(check_lines(&file("a.rs", &text)));
    assert_eq!(
        problems,
        [
            format!("a.rs:2: has a {first}; do it, or open an issue"),
            format!("a.rs:3: has a {second}; do it, or open an issue"),
        ]
    );
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let text = "[a](WL-0001.md#why)\n[b](../missing.md) [c](WL-0009.md)\n";
    assert_eq!(
        with(&[("docs/errors/more.rst", "[x](y.md)"), ("docs/a.md", text)]),
        [
            "docs/a.md:1: the link to \"WL-0001.md\" leads nowhere: there is no docs/WL-0001.md",
            "docs/a.md:2: the link to \"../missing.md\" leads nowhere: there is no missing.md",
            "docs/a.md:2: the link to \"WL-0009.md\" leads nowhere: there is no docs/WL-0009.md",
        ]
    );
}

#[test]
fn links_to_files_directories_and_elsewhere_are_fine() {
    let text = "[a](errors/WL-0001.md) [b](../docs/errors/) [c](./errors) [d](/README.md)\n\
                [e](#here) [f](https://example.org/x.md) [g](mailto:a@example.org) [h](..)\n";
    assert_eq!(with(&[("docs/a.md", text)]), [""; 0]);
}

#[test]
fn a_link_above_the_root_is_found() {
    assert_eq!(
        with(&[("docs/a.md", "[a](../../secret.md)\n")]),
        ["docs/a.md:1: the link to \"../../secret.md\" leaves the workspace"]
    );
}

#[test]
fn a_code_without_a_page_is_found() {
    assert_eq!(
        with(&[(ERROR_SOURCE, "A => \"WL-0001\",\nB => \"WL-0002\",\n")]),
        [
            "crates/windlass/src/error.rs:2: WL-0002 lacks docs/errors/WL-0002.md",
            "docs/errors/README.md: has no link to WL-0002.md",
        ]
    );
}

#[test]
fn a_page_without_a_code_is_found() {
    assert_eq!(
        with(&[("docs/errors/WL-0002.md", "# WL-0002: old\n"), ("docs/errors/notes.md", "\n")]),
        [
            "docs/errors/WL-0002.md: no kind in crates/windlass/src/error.rs has this code",
            "docs/errors/notes.md: no kind in crates/windlass/src/error.rs has this code",
        ]
    );
}

#[test]
fn a_code_that_two_kinds_share_is_found() {
    assert_eq!(
        with(&[(ERROR_SOURCE, "A => \"WL-0001\",\nB => \"WL-0001\",\n")]),
        ["crates/windlass/src/error.rs:2: WL-0001 is the code of line 1 already"]
    );
}

#[test]
fn a_page_with_the_title_of_another_is_found() {
    assert_eq!(
        with(&[("docs/errors/WL-0001.md", "# WL-0002: name\n")]),
        ["docs/errors/WL-0001.md:1: does not begin with \"# WL-0001: \""]
    );
}

#[test]
fn an_error_file_that_moved_or_lost_its_codes_is_found() {
    let moved = without(ERROR_SOURCE);
    assert_eq!(moved, ["crates/windlass/src/error.rs: is missing, so that no error code is known"]);
    let empty = with(&[(ERROR_SOURCE, "// WL-0001 and \"WL-1\" and \"WL-000x\"\n")]);
    assert_eq!(empty[0], "crates/windlass/src/error.rs: has no error codes");
}

#[test]
fn a_program_that_differs_from_the_example_by_one_byte_is_found() {
    for program in ["fn main() { }\n", "fn main() {}\n\n", "fn main() {}", ""] {
        assert_eq!(
            with(&[(README_PROGRAM, program)]),
            ["README.md:3: the program is not crates/windlass/examples/readme.rs; \
              run cargo xtask readme"],
            "{program:?}"
        );
    }
}

#[test]
fn a_missing_readme_example_or_block_is_found() {
    assert_eq!(without(README), ["README.md: is missing"]);
    assert_eq!(
        without(README_PROGRAM),
        ["crates/windlass/examples/readme.rs: is missing, it is the README's program"]
    );
    assert_eq!(
        with(&[(README, "```sh\ncargo run\n```\n")]),
        ["README.md: has no ```rust block for crates/windlass/examples/readme.rs"]
    );
}

#[test]
fn a_second_block_of_rust_in_the_readme_is_found() {
    let readme = "```rust\nfn main() {}\n```\n```rust,ignore\nlet x;\n```\n";
    assert_eq!(
        with(&[(README, readme)]),
        ["README.md:4: is a second block of Rust, which nothing tests; make it an example"]
    );
}

#[test]
fn the_example_replaces_the_readmes_program_and_nothing_else() {
    let readme = "a\n```rust\nold\n```\nb\n```sh\nls\n```\n";
    let made = with_program(readme, "fn main() {}\n").unwrap();
    assert_eq!(made, "a\n```rust\nfn main() {}\n```\nb\n```sh\nls\n```\n");
    assert_eq!(check_readme(Some(&made), Some("fn main() {}\n")), None);
}

#[test]
fn a_lock_file_that_is_not_committed_is_found() {
    let mut workspace = Workspace::of(&CLEAN);
    workspace.tracked.remove(LOCK);
    assert_eq!(
        shown(check(&workspace)),
        ["Cargo.lock: is not committed, so that others would build other versions"]
    );
}

#[test]
fn a_test_that_the_list_of_mistakes_names_must_be_there() {
    let tests =
        ("crates/windlass/tests/it/a.rs", "async fn a_start_is_kept() {}\nKeysNotUnique,\n");
    let named = "| mistake | shown by |\n| `x` | `a_start_is_kept`, `KeysNotUnique` |\n";
    assert_eq!(with(&[tests, (MISTAKES, named)]), [""; 0]);
    let problems = with(&[tests, (MISTAKES, "| `x` | `a_start_is_kept`, `a_start` |\n")]);
    assert_eq!(problems, ["docs/mistakes.md:1: names the test a_start, which is not there"]);
}

#[test]
fn a_crate_without_the_lints_that_forbid_unsafe_code_is_found() {
    let own = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
    assert_eq!(check_manifest(&file("crates/a/Cargo.toml", own)), None);
    let what = "does not have the lints of the workspace, which forbid unsafe code";
    for text in ["[package]\nname = \"a\"\n", "[package]\n\n[lints]\nworkspace = false\n"] {
        let problems = shown(check_manifest(&file("crates/a/Cargo.toml", text)));
        assert_eq!(problems, [format!("crates/a/Cargo.toml: {what}")]);
    }
    let root = "[workspace.lints.rust]\nunsafe_code = \"forbid\"\n";
    assert_eq!(check_manifest(&file("Cargo.toml", root)), None);
    let problems = shown(check_manifest(&file("Cargo.toml", &root.replace("forbid", "deny"))));
    assert_eq!(problems, ["Cargo.toml: does not begin its lints with unsafe_code = \"forbid\""]);
    assert_eq!(check_manifest(&file("docs/Cargo.md", "")), None);
}
