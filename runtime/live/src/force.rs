//! Functions that are compiled, and taken back, without being asked for by samples: how the tests have
//! all code of a program exchanged ([`Force`]).
//!
//! ```text
//! before the program begins:  native -- new -- native -- new        (all functions, step by step)
//! while it runs:              new -- native -- new -- ..            (one after the other, for ever)
//! ```
//!
//! New is tier 2, or, where code is to be guided, tier 3 by the way that the policy takes: a pin, by
//! which a background worker publishes a version with probes, and, when that has counted or nobody
//! came for long, a guided one. Before the program nobody comes, and there are as many such versions
//! at a time as there are background workers: so what it begins in is compiled at tier 3 at once, and
//! versions with probes come again in turns.
//!
//! What came of the round before the program is said in one line, whose numbers are of the entries
//! and slots as they were after each step, not of what was asked for. A program may end in any way:
//! so it is said before.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk::Tier;

use crate::function::Function;
use crate::session::Live;
use crate::settings::Force;

/// Begins the line.
const SAYS: &str = "uruk live: forced:";

/// How many functions are pinned to tier 3 at the same time: less than the policy lines up.
const AT_ONCE: usize = 64;

/// How long functions may take to come to a tier in the background. What did not by then is missing
/// in the line.
const LIMIT: Duration = Duration::from_secs(240);

/// How often it is looked whether they did.
const LOOK: Duration = Duration::from_millis(1);

/// How long a function stays native while the program runs.
const NATIVE: Duration = Duration::from_millis(1);

/// What happens before the program begins, and the line about it.
pub(crate) fn begin(live: &Live, force: Force) {
    let tier = match force {
        Force::No => return,
        Force::All | Force::Flip => Tier::Optimized,
        Force::Guided => Tier::Guided,
    };
    let adopted = live.adopted();
    for function in &adopted {
        live.compile_inner(function);
    }
    match tier {
        Tier::Guided => publish_guided(live, &adopted),
        tier => publish(live, &adopted, tier),
    }
    let stands = |function: &&Arc<Function>| stands(live, function) == Some(tier);
    let published: Vec<_> = adopted.iter().filter(stands).collect();
    let fails = |function: &&Arc<Function>| !stands(function) && has_failed(function);
    let failed = adopted.iter().filter(fails).count();
    let mut line = format!(
        "{SAYS} {} of tier 0, {} of tier {}, {failed} failed",
        adopted.len(),
        published.len(),
        tier.number()
    );
    if force != Force::All {
        for function in &adopted {
            take_back(live, function);
        }
        let is_native = |function: &&&Arc<Function>| is_native(live, function);
        let native = published.iter().filter(is_native).count();
        line += &format!(", {native} native again");
        publish(live, &adopted, tier);
    }
    uruk_files::say!("{line}");
}

/// What happens while the program runs.
pub(crate) fn go_on(live: &Live, force: Force) {
    if matches!(force, Force::No | Force::All) {
        return;
    }
    let adopted = live.adopted();
    loop {
        for function in &adopted {
            if uruk::live::own_threads_end() {
                return;
            }
            take_back(live, function);
            std::thread::sleep(NATIVE);
            match force {
                Force::Guided => publish_guided(live, std::slice::from_ref(function)),
                // What fails is in the table.
                _ => drop(live.compile(function, Tier::Optimized)),
            }
        }
        std::thread::sleep(NATIVE);
    }
}

/// Has functions published at a tier; what fails is in the table.
fn publish(live: &Live, adopted: &[Arc<Function>], tier: Tier) {
    for function in adopted {
        let _ = live.compile(function, tier);
    }
}

/// Has functions published at tier 3, after versions with probes.
fn publish_guided(live: &Live, adopted: &[Arc<Function>]) {
    for some in adopted.chunks(AT_ONCE) {
        for function in some {
            pin(live, function);
        }
        settle(live, some);
    }
}

/// Native code, and nothing else is under way.
fn take_back(live: &Live, function: &Function) {
    let _ = live.dylib.pin(&function.chosen.name, None);
    let _ = live.take_back(function);
}

fn pin(live: &Live, function: &Function) {
    if let Err(cause) = live.dylib.pin(&function.chosen.name, Some(Tier::Guided)) {
        function.fail(cause);
    }
}

/// Waits until functions are of tier 3, or failed.
fn settle(live: &Live, functions: &[Arc<Function>]) {
    let began = Instant::now();
    let is_settled = |function: &Arc<Function>| {
        has_failed(function) || stands(live, function) == Some(Tier::Guided)
    };
    while !functions.iter().all(is_settled) && began.elapsed() < LIMIT {
        std::thread::sleep(LOOK);
    }
}

/// The tier of the code that calls reach, by the function's entry and by its slot; `None` while these
/// do not agree.
fn stands(live: &Live, function: &Function) -> Option<Tier> {
    let (entry, _) = function.native()?;
    let tier = live.dylib.tier(&function.chosen.name).ok()??;
    let redirected = function.program.entries.is_redirected(entry);
    (redirected == (tier > Tier::Native)).then_some(tier)
}

fn is_native(live: &Live, function: &Function) -> bool {
    stands(live, function) == Some(Tier::Native)
}

fn has_failed(function: &Function) -> bool {
    function.failure.with(|failure| failure.is_some())
}
