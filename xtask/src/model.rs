//! The models of the lock-free parts, run under loom.
//!
//! Loom replaces the atomics of a package when it is compiled for it, so the models have a
//! target directory of their own.

use crate::cargo::Cargo;

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

/// All of them.
pub const MODELS: [Model; 7] = [
    model("uruk-stubs", "stubs", &["--lib"]),
    model("uruk-unwind", "runtime/unwind", &["--lib"]),
    model("uruk-roots", "runtime/roots", &["--lib"]),
    model("uruk-session", "runtime/session", &["--test", "loom"]),
    model("uruk-tiering", "tiering", &["--test", "loom"]),
    model("uruk-reclaim", "runtime/reclaim", &["--test", "loom"]),
    model("uruk-profiler", "profiler", &["--lib"]),
];

impl Model {
    /// The arguments of `cargo test`. Almost all of a run is in loom, almost all of a build
    /// in optimising our part: that is left out.
    pub fn words(&self) -> Vec<String> {
        let mut words = vec![
            "--release".to_owned(),
            "-p".to_owned(),
            self.package.to_owned(),
        ];
        words.extend(self.target.iter().map(|&word| word.to_owned()));
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

/// Runs them all.
pub fn run(cargo: &Cargo) -> anyhow::Result<()> {
    let cargo = for_loom(cargo, TARGET);
    MODELS.iter().try_for_each(|model| {
        let words = model.words();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        cargo.run("test", &words)
    })
}
