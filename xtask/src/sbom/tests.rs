//! The document of this workspace, against what cargo and the lock say.

use super::*;
use crate::workspace;

/// The value of a field in a line of the document.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = line.split_once(&format!("\"{name}\":\""))?;
    rest.split_once('"').map(|(value, _)| value)
}

/// The lines of the components.
fn components(document: &str) -> Vec<&str> {
    let (_, rest) = document.split_once("\"components\":[\n").unwrap();
    let (components, _) = rest.split_once("\n],\"dependencies\"").unwrap();
    components.lines().map(|line| line.trim_end_matches(',')).collect()
}

fn listed(root: &Path, of: &[&str], edges: &str) -> BTreeSet<String> {
    let mut command = cargo(root);
    command.args(["tree", "--locked", "--edges", edges, "--prefix", "none"]).args(of);
    let said = command.args(["--format", "{p}"]).output().unwrap();
    assert!(said.status.success());
    let said = String::from_utf8(said.stdout).unwrap();
    let name = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    said.lines().filter(|line| !line.is_empty()).map(name).collect()
}

#[test]
fn every_package_of_the_binary_is_listed_as_it_was_locked_and_none_of_tests_only() {
    let root = workspace::root();
    let document = document(&root, None).unwrap();
    let lock = lock::parse(&std::fs::read_to_string(root.join("Cargo.lock")).unwrap());
    let components = components(&document);

    let mut named = BTreeSet::new();
    let mut required = BTreeSet::new();
    for line in &components {
        let of = |name| field(line, name).unwrap_or_else(|| panic!("no {name} in {line}"));
        let package = Package { name: of("name").into(), version: of("version").into() };
        let locked = lock.get(&package).unwrap_or_else(|| panic!("{package} is not locked"));
        assert_eq!(field(line, "content"), locked.checksum.as_deref(), "{package}");
        assert!(line.contains("\"expression\":\""), "{package} has no licence");
        let purl = of("purl");
        assert!(purl.starts_with(&format!("pkg:cargo/{}@", package.name)), "{purl}");
        assert_eq!(of("bom-ref"), purl);
        let name = format!("{} v{}", package.name, package.version);
        if of("scope") == "required" {
            required.insert(name.clone());
        }
        assert!(named.insert(name), "{package} is listed twice");
    }

    let binary = ["--package", PACKAGE];
    let own = format!("{PACKAGE} v{}", env!("CARGO_PKG_VERSION"));
    let without_own = |mut all: BTreeSet<String>| {
        assert!(all.remove(&own));
        all
    };
    let linked = without_own(listed(&root, &binary, "normal,no-proc-macro"));
    assert_eq!(named, without_own(listed(&root, &binary, "normal,build")));
    assert_eq!(required, linked);
    assert!(linked.iter().any(|name| name.starts_with("rustls v")), "the tree is a real one");
    let all = listed(&root, &["--workspace", "--all-features"], "normal,build,dev");
    let built = listed(&root, &["--workspace", "--all-features"], "normal,build");
    let tests_only: BTreeSet<String> = all.difference(&built).cloned().collect();
    assert!(tests_only.iter().any(|name| name.starts_with("proptest v")), "{tests_only:?}");
    assert!(tests_only.is_disjoint(&named), "{tests_only:?}");
}

#[test]
fn what_depends_on_what_is_what_the_lock_says() {
    let root = workspace::root();
    let tree = tree::parse(&ask(&root, None, BUILT).unwrap()).unwrap();
    let lock = lock::parse(&std::fs::read_to_string(root.join("Cargo.lock")).unwrap());
    let mut edges = 0;
    for (package, on) in &tree.edges {
        for dependency in on {
            let known = &lock[package].dependencies;
            assert!(known.contains(&dependency.name), "{package} does not depend on {dependency}");
            edges += 1;
        }
    }
    assert!(edges > tree.packages.len(), "{edges}");
}

#[test]
fn two_documents_of_one_commit_are_the_same() {
    let root = workspace::root();
    assert_eq!(document(&root, None).unwrap(), document(&root, None).unwrap());
}

#[test]
fn a_package_that_is_not_of_crates_io_is_refused() {
    let text = "0windlass-cli v0.1.0 (/src)|MIT||\n1a v1.0.0|MIT||\n";
    let tree = tree::parse(text).unwrap();
    let own = "[[package]]\nname = \"windlass-cli\"\nversion = \"0.1.0\"\n\n";
    let linked = tree.packages.keys().cloned().collect();
    let composed = |locked: &str| compose(&tree, &linked, &lock::parse(&format!("{own}{locked}")));
    let a = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n";
    assert_eq!(composed("").unwrap_err(), "a 1.0.0 is not in Cargo.lock");
    let error = composed(&format!("{a}source = \"git+https://example.com/a#0\"\n")).unwrap_err();
    assert_eq!(error, "a 1.0.0 is of git+https://example.com/a#0, not of crates.io");
    let source = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
    let document = composed(&format!("{a}{source}\nchecksum = \"00\"\n")).unwrap();
    let wanted = "{\"alg\":\"SHA-256\",\"content\":\"00\"}";
    assert!(document.contains(wanted), "{document}");
}
