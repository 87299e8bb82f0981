//! The part of the page about functions that were replaced by hand: names, times and rollbacks.

use maud::{Markup, html};

use super::plot::{self, Scale};
use crate::recording::{Event, Exchange, Nanos, Recording};
use crate::text;
use crate::units::{count, time};

/// Limit of listed exchanges, the latest; the trace has all of them.
const SHOWN: usize = 200;

/// Time, exchange, and whether it is a rollback.
fn all(recording: &Recording) -> impl Iterator<Item = (Nanos, &Exchange, bool)> {
    recording.events.iter().filter_map(|event: &Event| {
        let (exchange, back) = event.kind.exchange()?;
        Some((event.time, exchange, back))
    })
}

/// The list; empty if there were no exchanges.
pub(super) fn section(recording: &Recording) -> Markup {
    let list: Vec<_> = all(recording).collect();
    let earlier = list.len().saturating_sub(SHOWN);
    html! {
        @if !list.is_empty() {
            section aria-labelledby="replaced" {
                h2 #replaced { "Functions replaced" }
                p.lead {
                    "New bodies that were put in by hand while the program ran, all functions of a row at "
                    "one instant. Rolled back: what ran before runs again."
                }
                div.events {
                    ol {
                        @for (at, exchange, back) in &list[earlier..] {
                            li { span.when { (time(*at)) } (row(exchange, *back)) }
                        }
                    }
                    @if earlier > 0 {
                        p.more { "and " (count(earlier as u64)) " before, which a trace shows" }
                    }
                }
            }
        }
    }
}

fn row(exchange: &Exchange, back: bool) -> Markup {
    html! {
        span {
            b { (text::what(back)) } " (no. " (exchange.number) "): "
            code { (text::exchanged(exchange)) }
            br;
            (exchange.level) "; took " (time(exchange.took)) ", "
            @match exchange.closed {
                Nanos(0) => "no call was held",
                closed => { "calls were held for " (time(closed)) }
            }
        }
    }
}

/// A strip of marks, one row for replacements and one for rollbacks, and its legend.
pub(super) fn strip(recording: &Recording, scale: Scale) -> (Option<Markup>, Markup) {
    let rows = [
        (false, "swapped", "Functions replaced"),
        (true, "back", "Rolled back"),
    ];
    let places = |wanted: bool| {
        let own = all(recording).filter(move |(_, _, back)| *back == wanted);
        own.map(move |(at, _, _)| scale.at(at))
            .collect::<Vec<f64>>()
    };
    let rows = rows.map(|(back, class, label)| (places(back), class, label));
    let rows: Vec<_> = rows
        .into_iter()
        .filter(|(at, _, _)| !at.is_empty())
        .collect();
    if rows.is_empty() {
        return (None, html! {});
    }
    let strip = html! {
        @for (places, class, label) in &rows {
            div.marks { (plot::canvas(
                label,
                &html! { path.mark.(class) d=(plot::marks(places.iter().copied())) {} },
            )) }
        }
    };
    let legend = html! {
        ul.legend {
            li { "Marks below:" }
            @for (_, class, label) in &rows {
                li { span.swatch.(class) aria-hidden="true" {} (label) }
            }
        }
    };
    (Some(strip), legend)
}
