//! The models of the lock-free parts, run under loom.
//!
//! Loom replaces the atomics of a package when it is compiled for it, so the models have a
//! target directory of their own.

use crate::cargo::Cargo;
use crate::tests::{self, Selection};

/// Where the models of one package are.
#[derive(Debug)]
pub struct Model {
    /// The package.
    pub package: &'static str,
    /// Its folder, from the root of the workspace.
    pub folder: &'static str,
    /// The words that choose its test binary.
    pub target: &'static [&'static str],
}

/// Where they are built.
pub const TARGET: &str = "target/loom";

const fn model(package: &'static str, folder: &'static str, target: &'static [&str]) -> Model {
    Model {
        package,
        folder,
        target,
    }
}

/// The kinds of targets: unit tests of a library, and a test binary.
const TARGETS: [&[&str]; 2] = [&["--lib"], &["--test", "loom"]];

/// All of them.
pub const MODELS: [Model; 7] = [
    model("uruk-stubs", "stubs", TARGETS[0]),
    model("uruk-unwind", "runtime/unwind", TARGETS[0]),
    model("uruk-roots", "runtime/roots", TARGETS[0]),
    model("uruk-session", "runtime/session", TARGETS[1]),
    model("uruk-tiering", "tiering", TARGETS[1]),
    model("uruk-reclaim", "runtime/reclaim", TARGETS[1]),
    model("uruk-profiler", "profiler", TARGETS[0]),
];

impl Model {
    /// The arguments of `cargo test`.
    pub fn words(&self) -> Vec<String> {
        let mut words = self.package_words();
        words.extend(self.target.iter().map(|&word| word.to_owned()));
        words
    }

    /// The package and its profile. Almost all of a run is in loom, almost all of a build in
    /// optimising our part: that is left out.
    fn package_words(&self) -> Vec<String> {
        let mut words = ["--release", "-p", self.package].map(String::from).to_vec();
        for setting in ["opt-level=0", "debug=false", "debug-assertions=true"] {
            words.push("--config".to_owned());
            words.push(format!(
                "profile.release.package.{}.{setting}",
                self.package
            ));
        }
        words
    }
}

/// Cargo that builds for loom, into a folder.
pub fn for_loom(cargo: &Cargo, target: &str) -> Cargo {
    let flags = cargo.with_env("RUSTFLAGS", "--cfg loom");
    flags.with_env("CARGO_TARGET_DIR", target)
}

/// Runs them all, after one build for each kind of target.
pub fn run(cargo: &Cargo) -> anyhow::Result<()> {
    let cargo = for_loom(cargo, TARGET);
    let selections = TARGETS.map(|target| {
        let models = MODELS.iter().filter(|model| model.target == target);
        let mut packages = vec!["--release".to_owned()];
        // `--release` is given once.
        packages.extend(models.flat_map(|model| model.package_words().split_off(1)));
        Selection {
            tests_only: true,
            packages,
            targets: target.iter().map(|&word| word.to_owned()).collect(),
            ..Selection::default()
        }
    });
    tests::run(&cargo, &selections, false)
}
