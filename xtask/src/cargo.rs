//! Calls of cargo, with the environment in which LLVM is found.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, bail};

use crate::llvm::Llvm;

/// The variable in which llvm-sys looks for LLVM 22.1.
const PREFIX_VARIABLE: &str = "LLVM_SYS_221_PREFIX";

/// Cargo in this workspace.
#[derive(Clone)]
pub struct Cargo {
    program: OsString,
    root: PathBuf,
    env: Vec<(OsString, OsString)>,
}

impl Cargo {
    /// Cargo with the LLVM that was found.
    pub fn new(llvm: Llvm) -> anyhow::Result<Self> {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().context("xtask lies in no workspace")?;
        let cargo = Self {
            program: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            root: root.to_owned(),
            env: Vec::new(),
        };
        Ok(cargo.with_env(PREFIX_VARIABLE, llvm.prefix))
    }

    /// The same with one more variable.
    pub fn with_env(&self, name: &str, value: impl AsRef<OsStr>) -> Self {
        let mut copy = self.clone();
        copy.env.push((name.into(), value.as_ref().to_owned()));
        copy
    }

    /// The same in another copy of the workspace.
    pub fn at(&self, root: PathBuf) -> Self {
        Self {
            root,
            ..self.clone()
        }
    }

    /// The root of the workspace.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The variables that it gets.
    pub fn variables(&self) -> impl Iterator<Item = (OsString, OsString)> {
        self.env.iter().cloned()
    }

    /// Whether cargo has a subcommand, as an installed component.
    pub fn has(&self, subcommand: &str) -> bool {
        let mut command = self.command(subcommand);
        command
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// A cargo command that is not started yet.
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .arg(subcommand)
            .current_dir(&self.root)
            .envs(self.env.iter().cloned());
        command
    }

    /// Runs a cargo command; its output passes through.
    pub fn run(&self, subcommand: &str, args: &[&str]) -> anyhow::Result<()> {
        let status = self.command(subcommand).args(args).status();
        let status = status.context("cannot start cargo")?;
        check(status, &format!("cargo {subcommand} {}", args.join(" ")))
    }

    /// Where cargo puts a program.
    pub fn built(&self, profile: &str, program: &str) -> PathBuf {
        let target = env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| self.root.join("target"));
        // Relative to where the user is, as cargo itself takes it.
        let target = std::path::absolute(&target).unwrap_or(target);
        target.join(profile).join(program)
    }

    /// Runs a program that cargo has built.
    pub fn run_built(&self, profile: &str, program: &str, args: &[String]) -> anyhow::Result<()> {
        let mut command = Command::new(self.built(profile, program));
        let status = command.args(args).envs(self.env.iter().cloned()).status();
        let status = status.with_context(|| format!("cannot start {program}"))?;
        check(status, program)
    }
}

/// A field of a message of cargo that is a text, the first of its name.
pub fn string_field<'a>(message: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = message.split_once(&format!("\"{name}\":\""))?;
    rest.split('"').next()
}

/// A command that failed has said why; this only names it.
pub fn check(status: ExitStatus, what: &str) -> anyhow::Result<()> {
    if !status.success() {
        bail!("`{what}` failed ({status})");
    }
    Ok(())
}
