//! Packages are complete. Each package contains the licences. Dependencies have versions, and come
//! before the packages that use them. No published package needs an unpublished one.

use std::path::{Path, PathBuf};
use std::process::Command;

#[path = "../src/packages.rs"]
mod packages;

use packages::PACKAGES;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a manifest's section.
fn section(manifest: &str, name: &str) -> Vec<String> {
    let header = format!("[{name}]");
    let lines = manifest.lines().skip_while(|line| *line != header).skip(1);
    let own = lines.take_while(|line| !line.starts_with('['));
    own.map(String::from).collect()
}

#[test]
fn packages_come_after_what_they_use() {
    let mut before = Vec::new();
    for (folder, name) in PACKAGES {
        let manifest = read(&root().join(folder).join("Cargo.toml"));
        assert!(
            manifest.contains(&format!("name = \"{name}\"\n")),
            "{folder}"
        );
        assert!(
            !manifest.contains("publish"),
            "{folder} is not to be published"
        );
        for line in section(&manifest, "dependencies") {
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let ours = used == "uruk" || used.starts_with("uruk-");
            assert!(
                !ours || before.contains(&used.to_owned()),
                "{folder}: {used}"
            );
        }
        before.push(name.to_owned());
    }
}

#[test]
fn dependencies_of_ours_have_versions() {
    let workspace = read(&root().join("Cargo.toml"));
    let lines = section(&workspace, "workspace.dependencies");
    let ours = lines.iter().filter(|line| line.starts_with("uruk"));
    let without: Vec<_> = ours.filter(|line| !line.contains("version = ")).collect();
    assert!(without.is_empty(), "{without:?}");
}

#[test]
fn each_package_has_its_licences_and_no_stray_file() {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    for (folder, name) in PACKAGES {
        let output = Command::new(&cargo)
            .args([
                "package",
                "--list",
                "--allow-dirty",
                "--offline",
                "-p",
                name,
            ])
            .current_dir(root())
            .output()
            .expect("cargo runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let files: Vec<&str> = text.lines().collect();
        let said = String::from_utf8_lossy(&output.stderr);
        for needed in ["LICENSE-APACHE", "LICENSE-MIT", "Cargo.toml"] {
            assert!(files.contains(&needed), "{name} has no {needed}: {said}");
            let file = root().join(folder).join(needed);
            assert!(!read(&file).is_empty(), "{}", file.display());
        }
        let stray = |file: &&&str| file.contains("target/") || file.ends_with(".rej");
        assert_eq!(files.iter().find(stray), None, "{name}");
    }
}
