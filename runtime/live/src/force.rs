//! Compiles functions, and takes them back, without samples: the tests exchange all code of a program
//! this way ([`Force`]).
//!
//! ```text
//! before the program begins:  native -- new -- native -- new        (all functions, step by step)
//! while it runs:              new -- native -- new -- ..            (one after the other, for ever)
//! ```
//!
//! New is tier 2, or, for guided code, tier 3 in the way of the policy: a pin makes a background worker
//! publish a version with probes, and later a guided one, once the probes counted enough or no call came
//! for long. Before the program begins no calls come, and there are at most as many versions with probes
//! as background workers. So the code in which the program begins is compiled at tier 3 at once, and
//! versions with probes are published in turns.
//!
//! One line reports the round before the program. Its numbers come from the entries and slots after each
//! step, not from the requests. It is printed before the program runs, since a program may end in any
//! way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uruk::Tier;

use crate::function::Function;
use crate::session::Live;
use crate::settings::Force;

/// Prefix of the line.
const SAYS: &str = "uruk live: forced:";

/// How many functions are pinned to tier 3 at the same time: less than the policy lines up.
const AT_ONCE: usize = 64;

/// Time limit for functions to reach a tier in the background. Functions that did not are missing in the
/// line.
const LIMIT: Duration = Duration::from_secs(240);

/// Interval between checks.
const LOOK: Duration = Duration::from_millis(1);

/// How long a function stays native while the program runs.
const NATIVE: Duration = Duration::from_millis(1);

/// Compiles before the program begins, and prints the line about it.
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

/// Compiles and takes back while the program runs.
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
                // A failure is listed in the table.
                _ => drop(live.compile(function, Tier::Optimized)),
            }
        }
        std::thread::sleep(NATIVE);
    }
}

/// Publishes functions at a tier; a failure is listed in the table.
fn publish(live: &Live, adopted: &[Arc<Function>], tier: Tier) {
    for function in adopted {
        let _ = live.compile(function, tier);
    }
}

/// Publishes functions at tier 3, after versions with probes.
fn publish_guided(live: &Live, adopted: &[Arc<Function>]) {
    for some in adopted.chunks(AT_ONCE) {
        for function in some {
            pin(live, function);
        }
        settle(live, some);
    }
}

/// Returns to native code, and cancels other requests.
fn take_back(live: &Live, function: &Function) {
    let _ = live.dylib.pin(&function.chosen.name, None);
    let _ = live.take_back(function);
}

fn pin(live: &Live, function: &Function) {
    if let Err(cause) = live.dylib.pin(&function.chosen.name, Some(Tier::Guided)) {
        function.fail(cause);
    }
}

/// Waits until functions have reached tier 3, or failed.
fn settle(live: &Live, functions: &[Arc<Function>]) {
    let began = Instant::now();
    let is_settled = |function: &Arc<Function>| {
        has_failed(function) || stands(live, function) == Some(Tier::Guided)
    };
    while !functions.iter().all(is_settled) && began.elapsed() < LIMIT {
        std::thread::sleep(LOOK);
    }
}

/// Tier of the code that calls reach, by the function's entry and by its slot; `None` while these
/// disagree.
fn stands(live: &Live, function: &Function) -> Option<Tier> {
    let entry = function.entry()?;
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
