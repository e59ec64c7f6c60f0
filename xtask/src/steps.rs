//! The steps of `cargo xtask test`, each announced, timed and repeatable by hand.
//!
//! Compiling is what takes the time, so the steps are cut for it:
//!
//! - Everything runs with `--workspace --all-features`. cargo unites the features
//!   of a dependency over the packages it is asked for: a step for one package, or
//!   with fewer features, would build tokio and all above it once more.
//! - The one exception are the lints of the binary as users build it: code that only
//!   tests use must not leave warnings there. They check, and build nothing.
//! - For the same reason the examples are built with `cargo build --workspace` and
//!   run as files; `cargo run --package windlass` would unite other features.
//! - Tests, doc tests and examples share the code of the dependencies, lints and
//!   docs their metadata; cargo cannot share between the two kinds. Docs leave
//!   dev-dependencies out, so what only those turn on features of is looked at
//!   again; that takes seconds.
//! - The simulation is the only release build, once for both of its steps.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::arguments::Simulation;
use crate::clusters::Clusters;
use crate::{previous, supply, tidy};

/// How long an example may run. Each is a program of a README or a guide and takes
/// seconds; the rest is room for a machine that is busy.
const EXAMPLE_TIME_MAX: Duration = Duration::from_secs(120);

/// How often a running example is looked at.
const EXAMPLE_POLL: Duration = Duration::from_millis(20);

/// What `cargo xtask test` simulates: the same seeds each time, so that a change is held to what
/// the one before it kept. Others are searched with `cargo xtask simulate`.
const TEST_SIMULATION: Simulation = Simulation::Seeds { count: 4_000, first: Some(1) };

/// How many more tests than cores run at once. Many wait for servers, leases and timeouts;
/// with four tests on two cores the cores are rarely idle.
const THREADS_BESIDES_CORES: usize = 2;

const EXAMPLES: &str = "crates/windlass/examples";

/// One test that starts a PostgreSQL, before all tests run at once: on a bare machine
/// it installs the package, and the others would look at half an installation.
const PRIVATE_SERVER: &str = "test --workspace --all-features --test it \
    embedded::a_server_is_private_and_does_not_run_as_root";

/// Tells that test that sudo may be used to install.
const INSTALL: &str = "WINDLASS_TEST_INSTALL";

/// One step of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Step {
    name: &'static str,
    work: Work,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Work {
    /// cargo is called with these arguments.
    Cargo(Vec<String>),
    /// The same, with clusters that are made once for all tests.
    Tests(Vec<String>),
    /// The same as the first, and what it runs may install PostgreSQL through sudo.
    Installing(Vec<String>),
    /// rustdoc is called through cargo, and its warnings are errors.
    Rustdoc(Vec<String>),
    /// The version before is built, and cargo called with these arguments to try it beside this one.
    Upgrade(Vec<String>),
    /// Every example is built and must end well.
    Examples,
    /// The texts are checked.
    Tidy,
    /// The dependencies are checked.
    Supply,
}

/// Which steps a test has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suite {
    /// Whether the long tests and the simulation are left out.
    pub(crate) is_quick: bool,
    /// Whether PostgreSQL may be installed through sudo.
    pub(crate) may_install: bool,
    /// Whether cargo-nextest is there.
    pub(crate) has_nextest: bool,
}

/// Runs everything a change must pass, up to the first failure.
pub(crate) fn test(root: &Path, suite: Suite) -> Result<(), Failure> {
    let began = Instant::now();
    let steps = suite.steps();
    for step in &steps {
        step.run(root)?;
    }
    println!("all {} steps passed in {}", steps.len(), seconds(began));
    Ok(())
}

/// Runs the test of rolling upgrades.
pub(crate) fn upgrade(root: &Path, suite: Suite) -> Result<(), Failure> {
    suite.upgrade().run(root)
}

/// Runs the simulation.
pub(crate) fn simulate(root: &Path, simulation: &Simulation) -> Result<(), Failure> {
    Step { name: "simulation", work: simulator(*simulation) }.run(root)
}

/// Runs the chaos test.
pub(crate) fn chaos(root: &Path, options: &[String]) -> Result<(), Failure> {
    let mut line = words("run --release --quiet --package windlass-chaos -- run");
    line.extend_from_slice(options);
    Step { name: "chaos", work: Work::Cargo(line) }.run(root)
}

impl Suite {
    /// The steps of the test, in order: what fails fast or often comes first.
    fn steps(self) -> Vec<Step> {
        let cargo = |line: &str| Work::Cargo(words(line));
        let threads = test_threads();
        let tests = if self.has_nextest {
            format!("nextest run --workspace --all-features --test-threads {threads}")
        } else {
            "test --workspace --all-features --lib --bins --tests".to_owned()
        };
        let long = if self.has_nextest {
            format!("{tests} --run-ignored only long::")
        } else {
            format!("{tests} -- --ignored long::")
        };
        let server = words(PRIVATE_SERVER);
        let server = if self.may_install { Work::Installing(server) } else { Work::Cargo(server) };
        let mut steps = vec![
            Step { name: "format", work: cargo("fmt --all --check") },
            Step {
                name: "lints",
                work: cargo("clippy --workspace --all-targets --all-features -- -D warnings"),
            },
            Step {
                name: "lints of the product",
                work: cargo("clippy --package windlass-cli -- -D warnings"),
            },
            Step { name: "private server", work: server },
            // Tests run them as well.
            Step { name: "examples", work: Work::Examples },
            Step { name: "tests", work: Work::Tests(words(&tests)) },
            Step { name: "doc tests", work: cargo("test --workspace --all-features --doc") },
            Step {
                name: "docs",
                work: Work::Rustdoc(words("doc --workspace --no-deps --all-features")),
            },
            Step { name: "tidy", work: Work::Tidy },
            Step { name: "supply chain", work: Work::Supply },
        ];
        if !self.is_quick {
            let bugs = Simulation::Bugs { seeds: None };
            steps.push(Step { name: "long tests", work: Work::Tests(words(&long)) });
            steps.push(self.upgrade());
            steps.push(Step { name: "simulation", work: simulator(TEST_SIMULATION) });
            steps.push(Step { name: "planted bugs", work: simulator(bugs) });
        }
        steps
    }

    /// The step of the rolling upgrade.
    fn upgrade(self) -> Step {
        let line = if self.has_nextest {
            "nextest run --workspace --all-features --run-ignored only upgrade::"
        } else {
            "test --workspace --all-features --test it -- --ignored upgrade::"
        };
        Step { name: "rolling upgrade", work: Work::Upgrade(words(line)) }
    }
}

fn simulator(simulation: Simulation) -> Work {
    let mut line = words("run --release --quiet --package windlass-sim --");
    line.extend(simulation.arguments());
    Work::Cargo(line)
}

/// How many tests run at once.
fn test_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cores + THREADS_BESIDES_CORES
}

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

impl Step {
    fn run(&self, root: &Path) -> Result<(), Failure> {
        let began = Instant::now();
        let line = self.work.line();
        println!("== {}: {line}", self.name);
        match &self.work {
            Work::Cargo(arguments) => call(self.name, &line, cargo(root).args(arguments))?,
            Work::Tests(arguments) => {
                let clusters = Clusters::prepare();
                let variables = clusters.iter().flat_map(Clusters::variables);
                call(self.name, &line, cargo(root).args(arguments).envs(variables))?;
            }
            Work::Installing(arguments) => {
                let mut command = cargo(root);
                command.args(arguments).env(INSTALL, "1");
                call(self.name, &line, &mut command)?;
            }
            Work::Rustdoc(arguments) => {
                let mut command = cargo(root);
                command.args(arguments).env("RUSTDOCFLAGS", "-D warnings");
                call(self.name, &line, &mut command)?;
            }
            Work::Upgrade(arguments) => {
                if !previous::rehearse(root, arguments)? {
                    println!("== {}: left out", self.name);
                    return Ok(());
                }
            }
            Work::Examples => run_examples(root)?,
            Work::Tidy => tidy::tidy(root)?,
            Work::Supply => supply::check(root)?,
        }
        println!("== {}: passed in {}", self.name, seconds(began));
        Ok(())
    }
}

impl Work {
    /// What a person types to do the same.
    fn line(&self) -> String {
        match self {
            Work::Cargo(arguments) | Work::Tests(arguments) => {
                format!("cargo {}", arguments.join(" "))
            }
            Work::Installing(arguments) => format!("{INSTALL}=1 cargo {}", arguments.join(" ")),
            Work::Rustdoc(arguments) => {
                format!("RUSTDOCFLAGS=\"-D warnings\" cargo {}", arguments.join(" "))
            }
            Work::Upgrade(_) => "cargo xtask upgrade".to_owned(),
            Work::Examples => format!("every example in {EXAMPLES}"),
            Work::Tidy => "cargo xtask tidy".to_owned(),
            Work::Supply => "cargo xtask supply".to_owned(),
        }
    }
}

/// The cargo that runs this program, so that all steps use one toolchain.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command =
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    command.current_dir(root);
    command
}

/// Whether cargo-nextest is there.
pub(crate) fn has_nextest() -> bool {
    let mut command = cargo(Path::new("."));
    command.args(["nextest", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

pub(crate) fn call(name: &str, line: &str, command: &mut Command) -> Result<(), Failure> {
    let status = command
        .status()
        .map_err(|error| Failure::Check(format!("{name} cannot be run ({line}): {error}")))?;
    judge(name, status, line)
}

/// A step that did not exit with 0 failed; its message says how to repeat it.
fn judge(name: &str, status: ExitStatus, line: &str) -> Result<(), Failure> {
    if status.success() {
        return Ok(());
    }
    // "exit status: 101", or the signal that ended it.
    Err(Failure::Check(format!("{name} failed ({status}); to repeat it: {line}")))
}

fn seconds(began: Instant) -> String {
    format!("{:.1} s", began.elapsed().as_secs_f64())
}

/// Builds all examples, then runs each.
fn run_examples(root: &Path) -> Result<(), Failure> {
    let names = example_names(&root.join(EXAMPLES))?;
    let build = words("build --workspace --all-features --examples");
    let line = format!("cargo {}", build.join(" "));
    call("building the examples", &line, cargo(root).args(&build))?;
    let directory = built_examples()?;
    for name in &names {
        println!("-- example {name}");
        let line = format!("cargo run --package windlass --all-features --example {name}");
        let program = directory.join(format!("{name}{}", std::env::consts::EXE_SUFFIX));
        let mut child = Command::new(&program).current_dir(root).spawn().map_err(|error| {
            Failure::Check(format!("example {name} cannot be run ({line}): {error}"))
        })?;
        let status = wait(&mut child, EXAMPLE_TIME_MAX).map_err(|error| {
            Failure::Check(format!("example {name} {error}; to repeat it: {line}"))
        })?;
        judge(&format!("example {name}"), status, &line)?;
    }
    println!("-- examples that ended well: {}", names.len());
    Ok(())
}

/// The names of the examples, sorted: files that end in `.rs` and directories with a
/// `main.rs`. None if there is no such directory.
fn example_names(directory: &Path) -> Result<Vec<String>, Failure> {
    let unreadable = |error| Failure::Check(format!("cannot list {EXAMPLES}: {error}"));
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        let is_example =
            path.extension().is_some_and(|end| end == "rs") || path.join("main.rs").is_file();
        if let (true, Some(name)) = (is_example, path.file_stem().and_then(|name| name.to_str())) {
            names.push(name.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Where cargo puts examples: beside this program, which it built the same way.
fn built_examples() -> Result<PathBuf, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::Check(format!("cannot find the built examples: {error}")))?;
    Ok(program.with_file_name("examples"))
}

/// Waits for a child, and ends it when it takes longer than `time_max`.
fn wait(child: &mut Child, time_max: Duration) -> Result<ExitStatus, String> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status);
        }
        if began.elapsed() > time_max {
            child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
            return Err(format!("ran longer than {time_max:?}"));
        }
        std::thread::sleep(EXAMPLE_POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn suite(is_quick: bool, has_nextest: bool) -> Suite {
        Suite { is_quick, may_install: false, has_nextest }
    }

    #[test]
    fn only_the_first_server_may_be_installed_and_only_if_it_was_said() {
        let whole = suite(false, true);
        let is_installing = |step: &&Step| step.work.line().contains(INSTALL);
        assert_eq!(whole.steps().iter().filter(is_installing).count(), 0);
        let steps = Suite { may_install: true, ..whole }.steps();
        let installing: Vec<Step> = steps.iter().filter(is_installing).cloned().collect();
        assert_eq!(names(&installing), ["private server"]);
        let line = installing[0].work.line();
        assert!(line.starts_with("WINDLASS_TEST_INSTALL=1 cargo test --workspace"), "{line}");
    }

    fn names(steps: &[Step]) -> Vec<&str> {
        steps.iter().map(|step| step.name).collect()
    }

    #[test]
    fn the_quick_test_is_the_whole_test_without_what_takes_long() {
        let (quick, whole) = (suite(true, true).steps(), suite(false, true).steps());
        assert_eq!(whole[..quick.len()], quick[..]);
        assert_eq!(
            names(&whole[quick.len()..]),
            ["long tests", "rolling upgrade", "simulation", "planted bugs"]
        );
    }

    #[test]
    fn every_compiling_step_of_the_quick_test_unites_the_same_features() {
        for has_nextest in [false, true] {
            let is_united = |step: &Step| step.name != "lints of the product";
            for step in suite(true, has_nextest).steps().into_iter().filter(is_united) {
                let line = step.work.line();
                match step.work {
                    Work::Cargo(_) | Work::Tests(_) | Work::Installing(_) | Work::Rustdoc(_)
                        if step.name != "format" =>
                    {
                        assert!(line.contains("--workspace"), "{line}");
                        assert!(line.contains("--all-features"), "{line}");
                    }
                    Work::Cargo(_)
                    | Work::Tests(_)
                    | Work::Installing(_)
                    | Work::Rustdoc(_)
                    | Work::Upgrade(_)
                    | Work::Examples
                    | Work::Tidy
                    | Work::Supply => {}
                }
            }
        }
    }

    #[test]
    fn a_step_is_announced_as_the_command_that_repeats_it() {
        let steps = suite(false, false).steps();
        let line = |name| steps.iter().find(|step| step.name == name).unwrap().work.line();
        assert_eq!(line("tests"), "cargo test --workspace --all-features --lib --bins --tests");
        assert_eq!(
            line("docs"),
            "RUSTDOCFLAGS=\"-D warnings\" cargo doc --workspace --no-deps --all-features"
        );
        assert_eq!(
            line("simulation"),
            "cargo run --release --quiet --package windlass-sim -- run --seeds 4000 --first-seed 1"
        );
        assert_eq!(
            line("planted bugs"),
            "cargo run --release --quiet --package windlass-sim -- bugs"
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_failed_step_names_itself_its_exit_and_how_to_repeat_it() {
        use std::os::unix::process::ExitStatusExt;

        let exit = |code: i32| ExitStatus::from_raw(code << 8);
        assert_eq!(judge("lints", exit(0), "cargo clippy"), Ok(()));
        let what = "lints failed (exit status: 101); to repeat it: cargo clippy";
        assert_eq!(judge("lints", exit(101), "cargo clippy"), Err(Failure::Check(what.into())));
    }

    #[test]
    fn examples_are_found_by_their_files_and_directories() {
        let directory = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        std::fs::create_dir_all(directory.join("order/shared")).unwrap();
        for file in ["readme.rs", "fair.rs", "notes.md", "order/main.rs", "order/shared/mod.rs"] {
            std::fs::write(directory.join(file), "").unwrap();
        }
        let found = example_names(&directory);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found, Ok(vec!["fair".to_owned(), "order".to_owned(), "readme".to_owned()]));
        assert_eq!(example_names(&directory), Ok(Vec::new()));
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let error = wait(&mut child, Duration::ZERO).unwrap_err();
        assert_eq!(error, "ran longer than 0ns");
        assert!(child.try_wait().unwrap().is_some());
    }
}
