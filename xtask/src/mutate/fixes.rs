//! Brings faults back that were fixed, one at a time: the ordinary test of each must fail.

use anyhow::{Context, bail};

use super::copy::Tree;
use crate::cargo::Cargo;
use crate::mutations::{Fate, Mutation, fixes};

/// Runs the tests of the faults whose names or files contain one of `only`, without the fault and
/// with it.
pub fn run(cargo: &Cargo, only: &[String]) -> anyhow::Result<()> {
    let folder = cargo.root().join("target/mutate");
    let tree = Tree::of(cargo.root(), folder.join("tree"))?;
    let cargo = cargo.at(folder.join("tree"));
    let cargo = cargo.with_env("CARGO_TARGET_DIR", folder.join("fixes"));
    let chosen = |fault: &&Mutation| {
        let words = [fault.name, fault.file];
        only.is_empty() || only.iter().any(|o| words.iter().any(|w| w.contains(&**o)))
    };
    let mut missed = 0;
    for fault in fixes::TABLE.iter().filter(chosen) {
        let Fate::Killed(test) = fault.fate else {
            bail!("{} has no test", fault.name);
        };
        let test: Vec<&str> = test.split(' ').collect();
        cargo.run("test", &test)?;
        let original = tree.read(fault.file)?;
        tree.write(fault.file, &fault.apply(&original)?)?;
        let built = cargo.run("test", &[&test[..], &["--no-run"]].concat());
        let passed = cargo.run("test", &test).is_ok();
        tree.write(fault.file, &original)?;
        built.with_context(|| format!("{} does not compile", fault.name))?;
        missed += usize::from(passed);
        println!(
            "{}  {}",
            if passed { "MISSED" } else { "caught" },
            fault.name
        );
    }
    match missed {
        0 => Ok(()),
        missed => bail!("the tests do not notice {missed} faults"),
    }
}
