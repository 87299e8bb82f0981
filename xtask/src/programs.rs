//! Whole programs from Debian's sources, with their own test suites: natively, under `uruk run`,
//! with `--tune`, and under `uruk live`.
//!
//! `xtask/programs/NAME.sh` says how a program is built and tested, `xtask/programs/run` fetches
//! it with `apt-get source` and does that. The compiler is a script that makes bitcode of sources,
//! and of programs scripts that start `uruk`. What a program's tests need besides (`tcl`, `rake`,
//! `autoconf`, `libgtest-dev`) is not installed here.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::cargo::Cargo;

/// Programs, by the names of their scripts.
const PROGRAMS: [&str; 6] = ["xz", "gawk", "jq", "redis", "mruby", "ninja"];

/// How each is run.
const MODES: [&str; 4] = ["native", "default", "tune", "live"];

/// Runs the programs whose names are given, else all, and prints how many tests passed and failed.
/// Tests that fail natively fail elsewhere too: an error is a mode in which more fail, or fewer pass.
pub fn run(cargo: &Cargo, names: &[String]) -> anyhow::Result<()> {
    let mut words = vec!["--release"];
    for name in ["uruk-command", "uruk-preload", "uruk-locals"] {
        words.extend(["-p", name]);
    }
    cargo.run("build", &words)?;
    let folder = cargo.root().join("target/programs");
    fs::create_dir_all(&folder).context("no folder for programs")?;
    println!(
        "{:10}{}",
        "",
        MODES.map(|mode| format!("{mode:>14}")).concat()
    );
    let mut worse = Vec::new();
    for name in PROGRAMS {
        if !names.is_empty() && !names.iter().any(|wanted| wanted == name) {
            continue;
        }
        let mut line = format!("{name:10}");
        let mut natively = (0, 0);
        for mode in MODES {
            let output = Command::new(cargo.root().join("xtask/programs/run"))
                .args([name, mode])
                .arg(&folder)
                .env("URUK", cargo.built("release", "uruk"))
                .stderr(Stdio::inherit())
                .output()
                .context("cannot start xtask/programs/run")?;
            let (passed, failed) = counts(&String::from_utf8_lossy(&output.stdout));
            if mode == "native" {
                natively = (passed, failed);
            }
            if passed == 0 || passed < natively.0 || failed > natively.1 {
                worse.push(format!("{name} ({mode})"));
            }
            line.push_str(&format!("{:>14}", format!("{passed} / {failed}")));
        }
        println!("{line}");
    }
    match worse.is_empty() {
        true => Ok(()),
        false => bail!(
            "worse than natively, or not built: {}; logs are in {}",
            worse.join(", "),
            folder.display()
        ),
    }
}

/// The last two words: how many tests passed, and how many failed.
fn counts(output: &str) -> (u64, u64) {
    let mut words = output.split_whitespace().rev();
    let mut next = || words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
    let failed = next();
    (next(), failed)
}

#[cfg(test)]
mod tests {
    #[test]
    fn counts_are_the_last_words() {
        assert_eq!(super::counts("xz native 11 2\n"), (11, 2));
        assert_eq!(super::counts("xz: no such program\n"), (0, 0));
    }
}
