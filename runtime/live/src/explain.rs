//! Tables for users: the state of each function, with the reason.

use std::fmt::Write;
use std::sync::atomic::Ordering;

use uruk_files::shown;

use crate::choose::{Fate, Reason, stem};
use crate::session::Live;

/// Characters of a message that a table shows.
const LONGEST: usize = 300;

/// One line for each function: its tier, how often it was published and taken back, its name, and the
/// reason why it is not compiled.
pub fn table(live: &Live) -> String {
    let mut text = String::from("tier published taken-back function\n");
    for function in live.functions() {
        let failure = function.failure.with(|failure| failure.clone());
        let why = match (&function.chosen.fate, &failure) {
            (Fate::Refused(reason), _) => format!("stays native: {reason}"),
            (Fate::WithCallers, None) => "compiled with its callers only".to_owned(),
            (Fate::WithCallers | Fate::Adopted { .. }, Some(failure)) => {
                format!("not compiled: {failure}")
            }
            (Fate::Adopted { .. }, None) => match &function.chosen.rests {
                Some(Reason::Once) if function.rests() => once(live, &function.chosen.name),
                Some(reason) if function.rests() => format!("stays native: {reason}"),
                _ => stayed(live, &function.chosen.name),
            },
        };
        let _ = writeln!(
            text,
            "{:4} {:9} {:10} {} ({}){}{why}",
            function.tier.load(Ordering::Relaxed),
            function.published.load(Ordering::Relaxed),
            function.taken_back.load(Ordering::Relaxed),
            shown(stem(&function.chosen.name)),
            shown(&function.source.to_string()),
            if why.is_empty() { "" } else { ": " },
            why = shown(&why),
        );
    }
    for file in live.opened_later() {
        let file = shown(&file.display().to_string());
        let _ = writeln!(
            text,
            "   - {file}: stays native: opened while the program ran"
        );
    }
    for (module, why) in &live.failed {
        let why: String = shown(&why.chars().take(LONGEST).collect::<String>());
        let _ = writeln!(text, "   - {}: {why}", shown(module));
    }
    text
}

/// Least part of all samples in a loop for which it is listed.
const HOT: f64 = 0.05;

/// Why a function that is called once stays native, and how hot it is.
fn once(live: &Live, name: &str) -> String {
    let reason = format!("stays native: {}", Reason::Once);
    match live.dylib.native_samples(name) {
        Ok(part) if part >= HOT => {
            let part = 100.0 * part;
            format!(
                "{reason}, and has {part:.0} % of the samples: only loops in other functions are reached"
            )
        }
        _ => reason,
    }
}

/// A remark on a function with a hot loop that a thread never leaves.
fn stayed(live: &Live, name: &str) -> String {
    match live.dylib.stayed_in_native(name) {
        Ok(part) if part >= HOT => format!(
            "{:.0} % of the samples are in a loop that was entered before: new code starts with the \
             next call",
            100.0 * part
        ),
        _ => String::new(),
    }
}

/// A summary of compiled, redirected and native functions, in a few lines.
pub fn summary(live: &Live) -> String {
    let functions = live.functions();
    let count =
        |wanted: fn(&Fate) -> bool| functions.iter().filter(|f| wanted(&f.chosen.fate)).count();
    let published: u64 = functions
        .iter()
        .map(|f| f.published.load(Ordering::Relaxed))
        .sum();
    let back: u64 = functions
        .iter()
        .map(|f| f.taken_back.load(Ordering::Relaxed))
        .sum();
    let stats = live.jit.stats();
    format!(
        "functions: {} of tier 0, {} compiled with their callers, {} refused; modules: {}, {} not added\n\
         published: {published} versions, taken back: {back}, redirected now: {}\n\
         compiled: {}, failed: {}\n",
        count(|fate| matches!(fate, Fate::Adopted { .. })),
        count(|fate| matches!(fate, Fate::WithCallers)),
        count(|fate| matches!(fate, Fate::Refused(_))),
        live.sources.len(),
        live.failed.len(),
        live.redirected(),
        stats.compiled,
        stats.failed,
    )
}
