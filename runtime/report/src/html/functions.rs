//! The parts of the page with functions: the hottest, and the cost of compiles.

use std::cmp::Reverse;

use maud::{Markup, html};

use super::{swatch, tier_class};
use crate::recording::{Function, Nanos, Recording, State, Tier, Variant, Version};
use crate::summary::Summary;
use crate::text::tier_number;
use crate::units::{bytes, count, ms, percent, ratio, things, time};

/// Functions shown as hottest.
const HOTTEST: usize = 25;
/// Functions shown by compile time.
const COMPILED: usize = 15;

pub(super) fn hottest(recording: &Recording, summary: &Summary) -> Markup {
    let shown = &recording.functions[..recording.functions.len().min(HOTTEST)];
    let rest = recording.functions.len() - shown.len();
    html! {
        section aria-labelledby="functions" {
            h2 #functions { "Hottest functions" }
            @if shown.is_empty() {
                p.empty { "Nothing was compiled." }
            } @else {
                p.lead {
                    @if summary.samples == 0 {
                        "Without samples, the order is by compile time. "
                    } @else {
                        "By samples. "
                    }
                    "Calls are those that code with counters has counted. "
                    "Each opens to its versions and, where it was kept, their machine code."
                }
                div.functions {
                    div.heads aria-hidden="true" {
                        span { "Function" } span { "Tier" } span { "Samples" } span { "Calls" }
                        span { "Versions" } span { "Code" } span { "Compile ms" }
                    }
                    ol { @for function in shown { li { (row(function, summary.samples)) } } }
                }
                @if rest > 0 {
                    p.more { "and " (things(rest as u64, "function")) " more" }
                }
            }
        }
    }
}

/// One row of a function; `samples` is the number of all samples.
fn row(function: &Function, samples: u64) -> Markup {
    let share = ratio(function.samples as f64, samples as f64);
    let shown = if samples == 0 {
        "–".to_owned()
    } else {
        percent(share)
    };
    let tier = function
        .published()
        .map_or(0, |version| version.tier.rank());
    let code = function
        .published()
        .map_or("–".to_owned(), |v| bytes(v.code_bytes));
    html! {
        details {
            summary {
                span.name { code { (function.name) } }
                span.cell { i { "Tier" } span { (swatch(tier)) (tier_number(function)) } }
                span.cell.share {
                    i { "Samples" }
                    span { (shown) }
                    span.gauge aria-hidden="true" {
                        span.(tier_class(tier)) style=(format!("width:{:.1}%", share * 100.0)) {}
                    }
                }
                span.cell { i { "Calls" } span { (function.entries.map_or("–".to_owned(), count)) } }
                span.cell { i { "Versions" } span { (function.versions.len()) } }
                span.cell { i { "Code" } span { (code) } }
                span.cell { i { "Compile ms" } span { (ms(function.compile())) } }
            }
            (versions(function))
        }
    }
}

fn versions(function: &Function) -> Markup {
    html! {
        @if function.failures > 0 {
            p.more { (things(u64::from(function.failures), "compile")) " of it failed." }
        }
        div.versions {
            @for version in &function.versions { (card(version)) }
        }
        @if function.versions.is_empty() {
            p.more { "It has no code." }
        }
        @if !function.variants.is_empty() { (variants(&function.variants)) }
    }
}

/// Compile variants that were compared with the running version.
fn variants(all: &[Variant]) -> Markup {
    html! {
        div.variants {
            table {
                thead {
                    tr {
                        th scope="col" { "Tried" } th scope="col" { "Found" }
                        th scope="col" { "Times as fast" } th scope="col" { "Not refuted" }
                        th scope="col" { "Pairs" }
                    }
                }
                tbody { @for variant in all { (variant_row(variant)) } }
            }
        }
    }
}

fn variant_row(variant: &Variant) -> Markup {
    let [low, point, high] = variant.ratio;
    let (left, right) = (on_scale(low), on_scale(high));
    html! {
        tr {
            td {
                (swatch(variant.tier.rank())) code { (variant.words) }
                @if variant.stays { " " b { "stays" } }
            }
            td { (variant.verdict) }
            td { (format!("{point:.3}")) }
            td {
                span.range aria-hidden="true" {
                    i {}
                    b style=(format!("left:{left:.1}%;width:{:.1}%", right - left)) {}
                }
                (format!("{low:.3} to {high:.3}"))
            }
            td { (variant.pairs) }
        }
    }
}

/// The position of a ratio between a half and two, in percent.
fn on_scale(ratio: f64) -> f64 {
    let log = ratio.log2();
    let place = if log.is_nan() { 0.0 } else { log };
    (place.clamp(-1.0, 1.0) + 1.0) * 50.0
}

fn card(version: &Version) -> Markup {
    let facts = [
        ("compile", time(version.compile)),
        ("IR", things(u64::from(version.instructions), "instruction")),
        ("code", bytes(version.code_bytes)),
        ("samples", count(version.samples)),
    ];
    html! {
        article {
            h3 {
                (swatch(version.tier.rank()))
                "Tier " (version.tier.number()) ", " (version.tier.name())
            }
            p.state { (state(&version.state)) }
            dl { @for (name, value) in &facts { div { dt { (name) } dd { (value) } } } }
            @match &version.disassembly {
                Some(listing) => {
                    pre tabindex="0" aria-label=(format!("Machine code at tier {}", version.tier.number())) {
                        (lines(listing))
                    }
                }
                None => p.more { "Its machine code was not kept." },
            }
        }
    }
}

/// A listing with its addresses dimmed.
fn lines(listing: &str) -> Markup {
    html! {
        @for line in listing.lines() {
            @match address(line) {
                Some(end) => { span.address { (line[..end]) } (line[end..]) }
                None => (line),
            }
            "\n"
        }
    }
}

/// The end of the address at the start of a line: hex digits, then perhaps a colon, then space.
fn address(line: &str) -> Option<usize> {
    let start = line.len() - line.trim_start().len();
    let digits = line[start..].find(|c: char| !c.is_ascii_hexdigit() && c != 'x')?;
    let end = start + digits;
    let colon = usize::from(line[end..].starts_with(':'));
    let after = line[end + colon..].starts_with(char::is_whitespace);
    // Words like `add` are hex digits too; an address has at least 4 digits or a colon.
    (after && (digits >= 4 || (digits > 0 && colon > 0))).then_some(end + colon)
}

fn state(state: &State) -> String {
    match state {
        State::Ready => "compiled, not published".to_owned(),
        State::Published { at } => format!("published at {}, still running", time(*at)),
        State::Retired { at, until } => {
            format!("published at {}, replaced at {}", time(*at), time(*until))
        }
        State::Dropped { at } => format!("not used, since {}", time(*at)),
    }
}

/// Bars of compile time by function.
pub(super) fn compile_time(recording: &Recording) -> Markup {
    let mut sorted: Vec<&Function> = recording.functions.iter().collect();
    sorted.sort_by_key(|function| (Reverse(function.compile()), function.id));
    sorted.retain(|function| function.compile() > Nanos(0));
    let (shown, rest) = sorted.split_at(sorted.len().min(COMPILED));
    let longest = shown
        .first()
        .map_or(Nanos(0), |function| function.compile());
    html! {
        section aria-labelledby="compile" {
            h2 #compile { "Compile time by function" }
            @if shown.is_empty() {
                p.empty { "Nothing was compiled." }
            } @else {
                ol.bars {
                    @for function in shown { (bar(function, longest)) }
                }
                @if !rest.is_empty() {
                    @let sum: Nanos = rest.iter().map(|function| function.compile()).sum();
                    p.more {
                        (things(rest.len() as u64, "other function")) ": " (time(sum)) " together, median "
                        (time(rest[rest.len() / 2].compile()))
                    }
                }
            }
        }
    }
}

fn bar(function: &Function, longest: Nanos) -> Markup {
    let by_tier = Tier::ALL.map(|tier| {
        let here = function.versions.iter().filter(|v| v.tier == tier);
        (tier, here.map(|version| version.compile).sum::<Nanos>())
    });
    let width = |time: Nanos| ratio(time.0 as f64, longest.0 as f64) * 100.0;
    let label: Vec<String> = by_tier
        .iter()
        .filter(|(_, sum)| sum.0 > 0)
        .map(|(tier, sum)| format!("tier {}: {}", tier.number(), time(*sum)))
        .collect();
    html! {
        li {
            span.name { code { (function.name) } }
            span.bar title=(label.join(", ")) {
                @for (tier, sum) in &by_tier {
                    @if sum.0 > 0 {
                        span.(tier_class(tier.rank())) style=(format!("width:{:.2}%", width(*sum))) {}
                    }
                }
            }
            span.value { (time(function.compile())) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_from_words() {
        for (line, end) in [
            ("  401000:\tpush %rbp", Some(9)),
            ("00007f12 ret", Some(8)),
            ("0x401000 ret", Some(8)),
            ("4: nop", Some(2)),
            ("add %rax, %rbx", None),
            ("push %rbp", None),
            ("", None),
        ] {
            assert_eq!(address(line), end, "{line}");
        }
    }
}
