//! What the binary `windlass` is made of, as a CycloneDX document.
//!
//! cargo says which packages the binary depends on, and `Cargo.lock` what each of them was when it
//! was taken. What is linked into the binary is `required`; what only builds it, macros and build
//! scripts and theirs, is `excluded`, as CycloneDX calls what is not there at run time. What only
//! tests use is not listed. Two builds of one commit have the same document: it has no time and no
//! random number.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use self::lock::Locked;
use self::tree::{Package, Tree};
use crate::Failure;
use crate::steps::cargo;

mod json;
mod lock;
mod tree;

/// The package whose binary it is.
const PACKAGE: &str = "windlass-cli";

/// The binary.
const BINARY: &str = "windlass";

/// Where the document is written.
const FILE: &str = "target/sbom/windlass.cdx.json";

/// The edges of what is linked, and of all that has a part in the build.
const LINKED: &str = "normal,no-proc-macro";
const BUILT: &str = "normal,build";

/// Writes the document, for a target or for this machine.
pub(crate) fn write(root: &Path, target: Option<&str>) -> Result<(), Failure> {
    let text = document(root, target)?;
    let path: PathBuf = root.join(FILE);
    let failed = |error| Failure::Check(format!("cannot write {FILE}: {error}"));
    if let Some(directory) = path.parent() {
        std::fs::create_dir_all(directory).map_err(failed)?;
    }
    std::fs::write(&path, text).map_err(failed)?;
    println!("{FILE}");
    Ok(())
}

fn document(root: &Path, target: Option<&str>) -> Result<String, Failure> {
    let built = tree::parse(&ask(root, target, BUILT)?).map_err(Failure::Check)?;
    let linked = tree::parse(&ask(root, target, LINKED)?).map_err(Failure::Check)?;
    let lock = std::fs::read_to_string(root.join("Cargo.lock"))
        .map_err(|error| Failure::Check(format!("cannot read Cargo.lock: {error}")))?;
    let linked: BTreeSet<Package> = linked.packages.into_keys().collect();
    compose(&built, &linked, &lock::parse(&lock)).map_err(Failure::Check)
}

/// What cargo says of the dependencies.
fn ask(root: &Path, target: Option<&str>, edges: &str) -> Result<String, Failure> {
    let mut command = cargo(root);
    command.args(["tree", "--locked", "--package", PACKAGE, "--edges", edges]);
    command.args(["--prefix", "depth", "--format", tree::FORMAT]);
    if let Some(target) = target {
        command.args(["--target", target]);
    }
    let said = command
        .output()
        .map_err(|error| Failure::Check(format!("cargo tree cannot be run: {error}")))?;
    if !said.status.success() {
        let why = String::from_utf8_lossy(&said.stderr);
        return Err(Failure::Check(format!("cargo tree failed: {}", why.trim())));
    }
    String::from_utf8(said.stdout)
        .map_err(|_| Failure::Check("cargo tree does not speak UTF-8".to_owned()))
}

/// The document.
fn compose(
    tree: &Tree,
    linked: &BTreeSet<Package>,
    lock: &BTreeMap<Package, Locked>,
) -> Result<String, String> {
    let root = &tree.root;
    let mut components = Vec::new();
    for (package, said) in &tree.packages {
        let Some(locked) = lock.get(package) else {
            return Err(format!("{package} is not in Cargo.lock"));
        };
        if package == root {
            continue;
        }
        let mut fields = vec![
            ("type", json::text("library")),
            ("bom-ref", json::text(&reference(package))),
            ("name", json::text(&package.name)),
            ("version", json::text(&package.version)),
            ("scope", json::text(if linked.contains(package) { "required" } else { "excluded" })),
        ];
        match (&locked.source, &locked.checksum) {
            (Some(source), Some(checksum)) if lock::is_crates_io(source) => {
                let hash = [("alg", json::text("SHA-256")), ("content", json::text(checksum))];
                fields.push(("hashes", json::list([json::object(hash)])));
            }
            // A member of this workspace.
            (None, None) => {}
            (source, _) => {
                let source = source.as_deref().unwrap_or("nowhere");
                return Err(format!("{package} is of {source}, not of crates.io"));
            }
        }
        if let Some(licence) = said.licence() {
            let licence = json::object([("expression", json::text(&licence))]);
            fields.push(("licenses", json::list([licence])));
        }
        fields.push(("purl", json::text(&reference(package))));
        if !said.repository.is_empty() {
            let vcs = [("type", json::text("vcs")), ("url", json::text(&said.repository))];
            fields.push(("externalReferences", json::list([json::object(vcs)])));
        }
        components.push(json::object(fields));
    }
    let dependencies = tree.edges.iter().map(|(package, on)| {
        let on = on.iter().map(|package| json::text(&reference(package)));
        let reference = json::text(&reference(package));
        json::object([("ref", reference), ("dependsOn", json::list(on))])
    });
    let binary = json::object([
        ("type", json::text("application")),
        ("bom-ref", json::text(&reference(root))),
        ("name", json::text(BINARY)),
        ("version", json::text(&root.version)),
        ("purl", json::text(&reference(root))),
    ]);
    let document = json::object([
        ("bomFormat", json::text("CycloneDX")),
        ("specVersion", json::text("1.5")),
        ("version", "1".to_owned()),
        ("metadata", json::object([("component", binary)])),
        ("components", json::list(components)),
        ("dependencies", json::list(dependencies)),
    ]);
    Ok(document + "\n")
}

/// The package URL, which is also what a component is called within the document.
fn reference(package: &Package) -> String {
    // A version may have a `+`, which is a space to some.
    format!("pkg:cargo/{}@{}", package.name, package.version.replace('+', "%2B"))
}

#[cfg(test)]
mod tests;
