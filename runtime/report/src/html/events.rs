//! The part of the page with events: failures, decisions, promotions.

use maud::{Markup, html};

use super::swatch;
use crate::recording::{Event, EventKind, Names, Recording};
use crate::text;
use crate::units::{count, time};

/// Events shown of each kind; the trace has all of them.
const SHOWN: usize = 200;
/// The longest list that is shown unfolded.
const SHORT: usize = 12;

pub(super) fn section(recording: &Recording) -> Markup {
    let names = Names::of(recording);
    let events = &recording.events;
    let pick = |wanted: fn(&EventKind) -> bool| -> Vec<&Event> {
        events.iter().filter(|event| wanted(&event.kind)).collect()
    };
    let groups = [
        (
            "Failed and unused compiles",
            pick(|kind| matches!(kind, EventKind::Failed { .. } | EventKind::Dropped { .. })),
        ),
        (
            "Decisions",
            pick(|kind| matches!(kind, EventKind::Policy { .. })),
        ),
        (
            "Changes of tier",
            pick(|kind| matches!(kind, EventKind::Published { from: Some(_), .. })),
        ),
        (
            "First publications",
            pick(|kind| matches!(kind, EventKind::Published { from: None, .. })),
        ),
    ];
    html! {
        section aria-labelledby="events" {
            h2 #events { "Events" }
            @if events.is_empty() {
                p.empty { "Nothing of note happened." }
            }
            @for (title, list) in &groups {
                @if !list.is_empty() { (group(title, list, &names)) }
            }
        }
    }
}

fn group(title: &str, events: &[&Event], names: &Names<'_>) -> Markup {
    html! {
        details.events open[events.len() <= SHORT] {
            summary { (title) " " span.number { (count(events.len() as u64)) } }
            ol {
                @for event in events.iter().take(SHOWN) {
                    li { span.when { (time(event.time)) } (what(&event.kind, names)) }
                }
            }
            @if events.len() > SHOWN {
                p.more { "and " (count((events.len() - SHOWN) as u64)) " more, which a trace shows" }
            }
        }
    }
}

fn what(kind: &EventKind, names: &Names<'_>) -> Markup {
    html! {
        @match kind {
            EventKind::Published { function, from, to, .. } => {
                span {
                    code { (names.get(*function)) } " "
                    @if let Some(from) = from {
                        span.move { (swatch(from.rank())) (from.number()) " → " }
                    }
                    span.move { (swatch(to.rank())) (to.number()) }
                }
            }
            EventKind::Failed { function, tier, reason } => {
                span {
                    b { "failed" } " at tier " (tier.number()) ": " code { (names.get(*function)) }
                    br; (reason)
                }
            }
            EventKind::Dropped { function, tier, reason } => {
                span {
                    b { "not used" }
                    @if let Some(tier) = tier { " at tier " (tier.number()) }
                    ": " code { (names.get(*function)) }
                    br; (reason)
                }
            }
            EventKind::Replaced(exchange) | EventKind::RolledBack(exchange) => {
                span { (text::exchanged(exchange)) }
            }
            EventKind::Policy { function, text } => {
                span {
                    @if let Some(function) = function { code { (names.get(*function)) } ": " }
                    (text)
                }
            }
        }
    }
}
