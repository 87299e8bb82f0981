//! Making sure that LLVM 22 is installed.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::cargo::check;
use crate::llvm::{Llvm, MAJOR};
use crate::system::{self, Recipe};

/// The purpose of the packages that the system installs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Building and running.
    Run,
    /// The tests, which have more of their own.
    Test,
}

/// The installed LLVM; installs it first where apt can.
pub fn ensure(purpose: Purpose) -> anyhow::Result<Llvm> {
    let found = Llvm::find();
    let extras = match purpose {
        Purpose::Test => missing_extras(),
        Purpose::Run => Vec::new(),
    };
    match (found, system::recipe()) {
        (Some(llvm), _) if extras.is_empty() => Ok(llvm),
        (Some(llvm), Recipe::Apt) => {
            // Only some tests are skipped without these.
            if let Err(error) = apt_update().and_then(|()| apt_install(&extras)) {
                eprintln!(
                    "warning: {} could not be installed: {error:#}",
                    extras.join(" ")
                );
            }
            Ok(llvm)
        }
        (Some(llvm), Recipe::Commands { .. }) => {
            eprintln!("note: without {} some tests are ignored", extras.join(" "));
            Ok(llvm)
        }
        (None, Recipe::Apt) => by_apt(&extras),
        (None, Recipe::Commands { system, commands }) => {
            bail!("LLVM {MAJOR} with clang is missing; on {system} it comes with:\n\n{commands}\n")
        }
    }
}

fn by_apt(extras: &[&'static str]) -> anyhow::Result<Llvm> {
    eprintln!("LLVM {MAJOR} is missing: installing it by apt");
    apt_update()?;
    if !in_archive(system::APT_NEEDED[0]) {
        bail!(
            "this release does not carry LLVM {MAJOR}; the LLVM project's own archive does:\n\n{}\n",
            system::APT_ARCHIVE
        );
    }
    let mut packages = system::APT_NEEDED.to_vec();
    packages.extend(extras.iter().filter(|package| in_archive(package)));
    apt_install(&packages)?;
    Llvm::find().context("the packages are installed, yet no usable LLVM is found")
}

fn missing_extras() -> Vec<&'static str> {
    let there = |shows: &str| match shows.starts_with('/') {
        true => Path::new(shows).exists(),
        false => on_path(shows),
    };
    let packages = system::APT_FOR_TESTS.into_iter();
    let missing = packages.filter(|(_, shows)| !there(shows));
    missing.map(|(package, _)| package).collect()
}

fn apt_update() -> anyhow::Result<()> {
    apt_get(&["update"])
}

fn apt_install(packages: &[&str]) -> anyhow::Result<()> {
    let mut words = vec!["install", "-y", "--no-install-recommends"];
    words.extend(packages);
    apt_get(&words)
}

/// Calls apt-get, as root already or through sudo.
fn apt_get(words: &[&str]) -> anyhow::Result<()> {
    let line = format!("apt-get {}", words.join(" "));
    let mut command = if is_root() {
        Command::new("apt-get")
    } else if on_path("sudo") {
        let mut command = Command::new("sudo");
        command.args(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]);
        command
    } else {
        bail!("there is neither root's permission nor sudo; as root, run:\n\n{line}\n");
    };
    command.args(words).env("DEBIAN_FRONTEND", "noninteractive");
    eprintln!("+ {line}");
    let status = command.status().context("cannot start apt-get")?;
    check(status, &line)
}

fn in_archive(package: &str) -> bool {
    let mut command = Command::new("apt-cache");
    command.args(["show", "--no-all-versions", package]);
    quiet(command)
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output();
    output.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}

fn on_path(program: &str) -> bool {
    let mut command = Command::new("sh");
    command.args(["-c", "command -v \"$0\"", program]);
    quiet(command)
}

/// Whether a command succeeds; what it says is of no interest.
fn quiet(mut command: Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
