//! Are the models of the lock-free parts able to fail? Takes one ordering, fence or check at
//! a time out of the sources (`mutations` has the table) and runs the model that should
//! notice.
//!
//! The sources are copied to `target/mutate/tree`; the user's files are only read. Each
//! mutation is applied to the copy, built, run and taken back. What comes of it:
//!
//! | the table says | the model | result |
//! |---|---|---|
//! | killed | fails | killed |
//! | killed | is not done in time | killed, by the time limit: a spinning model |
//! | killed | passes | **survived** |
//! | equivalent | passes, as do all of its package | explained |
//! | equivalent | any of its package fails | **the explanation is wrong** |
//! | not modelled | is not run | explained |
//!
//! The bold ones fail the command, as does a mutation that does not apply or compile. The
//! time limit is [`PATIENCE`] times what all models of the package take without a mutation,
//! which must pass, and [`LIMIT_LEAST`] at least.
//!
//! [`fixes`] does the same with faults that were fixed, and the ordinary tests.

mod copy;
pub mod fixes;
mod run;

use std::time::Duration;

use anyhow::{Context, bail};

use crate::cargo::Cargo;
use crate::model::{self, MODELS, Model};
use crate::mutations::{self, Fate, Mutation};

use copy::Tree;
use run::{Binary, Ended};

/// How much longer than all models together one with a mutation may take.
const PATIENCE: u32 = 5;

/// No model is cut off before this.
const LIMIT_LEAST: Duration = Duration::from_secs(60);

/// The outcome of one mutation.
enum Verdict {
    /// A model failed, or was cut off; with its first words.
    Killed(String),
    /// No model can tell.
    Explained(&'static str),
    /// The table is wrong, or a model is missing.
    Wrong(String),
}

/// Runs the mutations whose names, files or packages contain one of `only`. With `search`,
/// all models of a package are run where the one that should fail passes.
pub fn run(cargo: &Cargo, only: &[String], search: bool) -> anyhow::Result<()> {
    let chosen = |mutation: &&Mutation| {
        let words = [mutation.name, mutation.file, model_of(mutation).package];
        only.is_empty() || only.iter().any(|o| words.iter().any(|w| w.contains(&**o)))
    };
    let all: Vec<&Mutation> = mutations::all().filter(chosen).collect();
    if all.is_empty() {
        bail!("no mutation is named so");
    }
    let folder = cargo.root().join("target/mutate");
    let tree = Tree::of(cargo.root(), folder.join("tree"))?;
    // With the dependencies that the models were built with.
    let target = cargo.root().join(model::TARGET);
    let target = target.to_str().context("a path that is no text")?;
    let cargo = model::for_loom(&cargo.at(folder.join("tree")), target);
    let cargo = cargo.with_env("CARGO_INCREMENTAL", "1");
    let mut counts = [0; 3];
    for model in &MODELS {
        let own = |mutation: &&&Mutation| model_of(mutation).package == model.package;
        let own: Vec<&Mutation> = all.iter().filter(own).copied().collect();
        if own.is_empty() {
            continue;
        }
        let limit = limit(&cargo, model)?;
        for mutation in own {
            let verdict = judge(&cargo, &tree, mutation, limit, search)?;
            let (place, word, why) = match verdict {
                Verdict::Killed(by) => (0, "killed", by),
                Verdict::Explained(why) => (1, "explained", why.to_owned()),
                Verdict::Wrong(why) => (2, "WRONG", why),
            };
            counts[place] += 1;
            println!("{word:9}  {:40}  {why}", mutation.name);
        }
    }
    let [killed, explained, wrong] = counts;
    println!("{killed} killed, {explained} explained, {wrong} wrong");
    if wrong > 0 {
        bail!("the models do not notice what the table says");
    }
    Ok(())
}

/// The models of the package that a mutation changes.
pub fn model_of(mutation: &Mutation) -> &'static Model {
    let own = |model: &&Model| {
        let rest = mutation.file.strip_prefix(model.folder);
        rest.is_some_and(|rest| rest.starts_with('/'))
    };
    MODELS
        .iter()
        .find(own)
        .expect("a test checks that each mutation is of a package with models")
}

/// How long a model with a mutation may take. All models pass without one.
fn limit(cargo: &Cargo, model: &Model) -> anyhow::Result<Duration> {
    let Some(binary) = Binary::build(cargo, model)? else {
        bail!("the models of {} do not compile", model.package);
    };
    match binary.run(None, None)? {
        Ended::Passed(took) => {
            println!(
                "{}: {:.1} s without a mutation",
                model.package,
                took.as_secs_f64()
            );
            Ok(LIMIT_LEAST.max(took * PATIENCE))
        }
        Ended::Failed(why) => bail!("the models of {} fail: {why}", model.package),
        Ended::CutOff => unreachable!("there was no limit"),
    }
}

fn judge(
    cargo: &Cargo,
    tree: &Tree,
    mutation: &Mutation,
    limit: Duration,
    search: bool,
) -> anyhow::Result<Verdict> {
    if let Fate::NotModelled(why) = mutation.fate {
        return Ok(Verdict::Explained(why));
    }
    let original = tree.read(mutation.file)?;
    let changed = mutation.apply(&original)?;
    tree.write(mutation.file, &changed)?;
    let verdict = judge_built(cargo, mutation, limit, search);
    tree.write(mutation.file, &original)?;
    verdict
}

/// With the mutation in place.
fn judge_built(
    cargo: &Cargo,
    mutation: &Mutation,
    limit: Duration,
    search: bool,
) -> anyhow::Result<Verdict> {
    let Some(binary) = Binary::build(cargo, model_of(mutation))? else {
        return Ok(Verdict::Wrong(String::from("does not compile")));
    };
    let test = match mutation.fate {
        Fate::Killed(test) => Some(test),
        Fate::Equivalent(_) | Fate::NotModelled(_) => None,
    };
    let ended = binary.run(test, Some(limit))?;
    Ok(match (mutation.fate, ended) {
        (Fate::Killed(by), Ended::Failed(why)) => Verdict::Killed(format!("{by}: {why}")),
        (Fate::Killed(by), Ended::CutOff) => {
            let limit = limit.as_secs();
            Verdict::Killed(format!("{by}: not done after {limit} s"))
        }
        (Fate::Killed(by), Ended::Passed(_)) => {
            let others = match search.then(|| binary.run(None, Some(limit))).transpose()? {
                None => "",
                Some(Ended::Passed(_)) => "; so do all others",
                Some(Ended::Failed(why)) => &format!("; of the others: {why}"),
                Some(Ended::CutOff) => "; another is not done in time",
            };
            Verdict::Wrong(format!("{by} passes{others}"))
        }
        (Fate::Equivalent(why), Ended::Passed(_)) => Verdict::Explained(why),
        (_, Ended::Failed(why)) => Verdict::Wrong(format!("explained, but {why}")),
        (_, Ended::CutOff) => Verdict::Wrong(String::from("explained, but not done in time")),
        (Fate::NotModelled(why), Ended::Passed(_)) => Verdict::Explained(why),
    })
}
