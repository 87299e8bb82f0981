//! Renders a run, or a comparison of runs, as one HTML page.
//!
//! Invariants:
//! - The page is one file: no script, no font, no image and no link to other sites. Foldable parts
//!   are `details`, which work in every HTML viewer.
//! - No element is wider than the screen from 320 px on; wide parts (listings) scroll by
//!   themselves.
//! - Text in plots is HTML beside the drawing, so it does not shrink with it; each drawing has its
//!   numbers as a table, for readers who cannot see it.
//! - Templates escape their input (`maud`), except the style sheet, which is a constant.
//!
//! The modules: `plot` draws, `run`, `functions`, `exchanges` and `events` are the
//! parts of a run's page, `versus` is the page of a comparison.

mod events;
mod exchanges;
mod functions;
mod plot;
mod run;
mod versus;

use std::time::{Duration, UNIX_EPOCH};

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::compare::Comparison;
use crate::recording::{Recording, Tier};

const STYLE: &str = include_str!("style.css");

/// Renders the page of one run.
pub fn run(recording: &Recording) -> String {
    run::page(recording).into_string()
}

/// Renders the page of a comparison.
pub fn compare(comparison: &Comparison) -> String {
    versus::page(comparison).into_string()
}

/// The frame of every page.
fn page(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    }
}

/// The last part of a path: the usual name of the program.
fn base_name(path: &str) -> &str {
    let name = path.rsplit('/').find(|part| !part.is_empty());
    name.unwrap_or("a program")
}

/// Program and arguments as one line to copy.
fn command_line(program: &str, args: &[String]) -> String {
    let words = std::iter::once(program).chain(args.iter().map(String::as_str));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    let quoted = words.map(|word| {
        if !word.is_empty() && word.chars().all(plain) {
            word.to_owned()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

/// A date and a time of day, in UTC; none for a time that is not set.
fn date(unix_ms: u64) -> Option<String> {
    let time = UNIX_EPOCH.checked_add(Duration::from_secs(unix_ms / 1000))?;
    // humantime fails for years past 9999.
    let year_10000 = 253_402_300_800;
    let shown = unix_ms > 0 && unix_ms / 1000 < year_10000;
    let text = shown.then(|| humantime::format_rfc3339_seconds(time).to_string())?;
    Some(text.replace('T', " ").replace('Z', " UTC"))
}

/// The CSS class of a tier's colour, by its rank; 0 is code that is no function's.
fn tier_class(rank: usize) -> &'static str {
    ["t0", "t1", "t2", "t3", "tn"][rank.min(4)]
}

/// The label of samples of a tier, by its rank.
fn tier_label(rank: usize) -> String {
    match Tier::WITH_NATIVE.iter().find(|tier| tier.rank() == rank) {
        Some(tier) => format!("tier {}, {}", tier.number(), tier.name()),
        None => "other code".to_owned(),
    }
}

/// A mark in a tier's colour, for legends.
fn swatch(number: usize) -> Markup {
    html! { span.swatch.(tier_class(number)) aria-hidden="true" {} }
}

/// One figure with a name above and a remark below.
fn figure(name: &str, value: &str, remark: &str) -> Markup {
    html! {
        div {
            dt { (name) }
            dd.value { (value) }
            dd { (remark) }
        }
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
