//! What `cargo tree` says: a line for each package under what depends on it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How a line is asked for, behind its depth. None of the three has a bar in it.
pub(super) const FORMAT: &str = "{p}|{l}|{r}|";

/// A package by name and version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Package {
    pub(super) name: String,
    pub(super) version: String,
}

impl fmt::Display for Package {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name, self.version)
    }
}

/// What a package says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    licence: String,
    pub(super) repository: String,
}

impl Said {
    /// Its licence as SPDX writes it; old packages have a stroke for `OR`.
    pub(super) fn licence(&self) -> Option<String> {
        let parts: Vec<&str> = self.licence.split('/').map(str::trim).collect();
        (!self.licence.is_empty()).then(|| parts.join(" OR "))
    }
}

/// Packages and what each depends on.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Package,
    pub(super) packages: BTreeMap<Package, Said>,
    pub(super) edges: BTreeMap<Package, BTreeSet<Package>>,
}

/// Reads what cargo says. What is below a package is said once, where it comes first.
pub(super) fn parse(text: &str) -> Result<Tree, String> {
    let mut packages = BTreeMap::new();
    let mut edges: BTreeMap<Package, BTreeSet<Package>> = BTreeMap::new();
    let mut path: Vec<Package> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        let wrong = || format!("cargo tree says {line:?}, which is not understood");
        let begin = line.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
        let depth: usize = line[..begin].parse().map_err(|_| wrong())?;
        let fields: Vec<&str> = line[begin..].split('|').collect();
        let [package, licence, repository, _] = fields[..] else { return Err(wrong()) };
        let mut words = package.split(' ');
        let (name, version) = (words.next(), words.next().and_then(|it| it.strip_prefix('v')));
        let (Some(name), Some(version)) = (name, version) else { return Err(wrong()) };
        let package = Package { name: name.to_owned(), version: version.to_owned() };
        if depth > path.len() || (depth == 0 && !packages.is_empty()) {
            return Err(wrong());
        }
        path.truncate(depth);
        if let Some(above) = path.last() {
            edges.entry(above.clone()).or_default().insert(package.clone());
        }
        edges.entry(package.clone()).or_default();
        let said = Said { licence: licence.to_owned(), repository: repository.to_owned() };
        packages.insert(package.clone(), said);
        path.push(package);
    }
    let root = path.into_iter().next().ok_or("cargo tree says nothing")?;
    Ok(Tree { root, packages, edges })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, version: &str) -> Package {
        Package { name: name.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn lines_become_packages_with_what_they_depend_on() {
        let text = "0cli v0.1.0 (/src/cli)|MIT||\n1a v1.0.0|MIT/Apache-2.0|https://a|\n\
            2b v2.0.0 (proc-macro)|ISC||\n1b v3.0.0|||\n1a v1.0.0|MIT/Apache-2.0|https://a| (*)\n";
        let tree = parse(text).unwrap();
        assert_eq!(tree.root, package("cli", "0.1.0"));
        let names: Vec<String> = tree.packages.keys().map(ToString::to_string).collect();
        assert_eq!(names, ["a 1.0.0", "b 2.0.0", "b 3.0.0", "cli 0.1.0"]);
        let on = |it: &Package| tree.edges[it].iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(on(&tree.root), ["a 1.0.0", "b 3.0.0"]);
        assert_eq!(on(&package("a", "1.0.0")), ["b 2.0.0"]);
        let said = &tree.packages[&package("a", "1.0.0")];
        assert_eq!(said.licence().as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(said.repository, "https://a");
        assert_eq!(tree.packages[&package("b", "3.0.0")].licence(), None);
    }

    #[test]
    fn what_is_not_understood_is_refused() {
        for text in
            ["", "cli v1|||", "0cli|||", "0cli v1|", "0a v1|||\n2b v1|||", "0a v1|||\n0b v1|||"]
        {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
