//! `Cargo.lock`, which cargo writes one way: a table for each package, a line for each value.

use std::collections::BTreeMap;

use super::tree::Package;

/// What is known of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Locked {
    /// Where it is from; nowhere for members of the workspace.
    pub(super) source: Option<String>,
    /// The SHA-256 of its archive.
    pub(super) checksum: Option<String>,
    /// The names of what it depends on, of members also for tests.
    pub(super) dependencies: Vec<String>,
}

/// The packages.
pub(super) fn parse(text: &str) -> BTreeMap<Package, Locked> {
    text.split("[[package]]\n").skip(1).map(package).collect()
}

/// Whether a source is crates.io.
pub(super) fn is_crates_io(source: &str) -> bool {
    source == "registry+https://github.com/rust-lang/crates.io-index"
}

fn package(table: &str) -> (Package, Locked) {
    let value = |name: &str| {
        let line = table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
        line.map(|value| value.trim_matches('"').to_owned())
    };
    let name = value("name").unwrap_or_default();
    let version = value("version").unwrap_or_default();
    let listed = table.split_once("dependencies = [\n").and_then(|(_, rest)| rest.split_once(']'));
    let listed = listed.map_or("", |(lines, _)| lines).lines();
    let dependencies = listed.filter_map(|line| {
        // A version behind the name is there if there are several.
        let line = line.trim().trim_matches([',', '"']);
        line.split(' ').next().map(str::to_owned)
    });
    let dependencies = dependencies.collect();
    let locked = Locked { source: value("source"), checksum: value("checksum"), dependencies };
    (Package { name, version }, locked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_read_with_where_they_are_from() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0+x\"\n\
            source = \"registry+https://github.com/rust-lang/crates.io-index\"\n\
            checksum = \"00ff\"\ndependencies = [\n \"b\",\n \"c 2.0.0\",\n]\n\n\
            [[package]]\nname = \"b\"\nversion = \"0.1.0\"\n";
        let packages = parse(text);
        assert_eq!(packages.len(), 2);
        let of = |name: &str, version: &str| {
            packages[&Package { name: name.to_owned(), version: version.to_owned() }].clone()
        };
        let a = of("a", "1.0.0+x");
        assert!(is_crates_io(&a.source.unwrap()));
        assert_eq!(a.checksum.as_deref(), Some("00ff"));
        assert_eq!(a.dependencies, ["b", "c"]);
        assert_eq!(of("b", "0.1.0"), Locked::default());
        assert!(!is_crates_io("git+https://github.com/a/b#0"));
    }
}
