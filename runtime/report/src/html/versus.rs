//! The page of a comparison: bars with whiskers, a table, warm-up curves.

use maud::{Markup, html};

use super::plot::{self, Scale};
use super::{base_name, command_line, date};
use crate::compare::{Comparison, Iteration, Output, Row, Side};
use crate::recording::Nanos;
use crate::units::{count, ratio, time};

/// Distinct line styles; further curves repeat them.
const STYLES: usize = 6;
/// Limit of drawn points of a curve.
const POINTS: usize = 2000;

pub(super) fn page(comparison: &Comparison) -> Markup {
    let program = base_name(&comparison.program);
    let body = html! {
        (head(comparison, program))
        (bars(comparison))
        (table(comparison))
        (curves(comparison))
    };
    super::page(&format!("{program}, compared · Uruk"), &body)
}

fn head(comparison: &Comparison, program: &str) -> Markup {
    let facts = [
        date(comparison.started_unix_ms).unwrap_or_default(),
        format!("Uruk\u{a0}{}", comparison.uruk),
        format!("LLVM\u{a0}{}", comparison.llvm),
        comparison.processor.clone(),
    ];
    html! {
        header {
            h1 { (program) ", compared" }
            p.command { code { (command_line(&comparison.program, &comparison.args)) } }
            ul.facts {
                @for fact in facts.iter().filter(|fact| !fact.is_empty()) { li { (fact) } }
            }
        }
    }
}

fn bars(comparison: &Comparison) -> Markup {
    let slowest = comparison
        .rows
        .iter()
        .filter_map(|row| Some(row.wall()?.max))
        .max();
    html! {
        section aria-labelledby="wall" {
            h2 #wall { "Wall time" }
            @match slowest {
                None => p.empty { "No way of running the program came to its end." },
                Some(slowest) => {
                    p.lead {
                        "Bars are medians; the line across goes from the fastest run to the slowest, "
                        "with a mark for each. Shorter is faster."
                    }
                    ol.bars.versus {
                        @for row in &comparison.rows { (bar(row, slowest)) }
                    }
                    ul.legend {
                        li { span.swatch.t2 aria-hidden="true" {} "under Uruk" }
                        li { span.swatch.t0 aria-hidden="true" {} "otherwise" }
                    }
                }
            }
        }
    }
}

fn bar(row: &Row, slowest: Nanos) -> Markup {
    let place = |time: Nanos| ratio(time.0 as f64, slowest.0 as f64) * 100.0;
    let class = match row.side {
        Side::Uruk => "t2",
        Side::Peer => "t0",
    };
    let sound = row.output == Output::Same;
    html! {
        li {
            span.name { (row.name) @if !sound { small { (row.verdict()) } } }
            span.bar {
                @if let Some(wall) = row.wall() {
                    span.(class) style=(format!("width:{:.2}%", place(wall.median))) {}
                    span.whisker style=(format!(
                        "left:{:.2}%;width:{:.2}%", place(wall.min), place(wall.max.since(wall.min))
                    )) {}
                    @for run in &row.runs {
                        span.run style=(format!("left:{:.2}%", place(run.wall))) {}
                    }
                }
            }
            span.value { (row.wall().map_or("–".to_owned(), |wall| time(wall.median))) }
        }
    }
}

fn table(comparison: &Comparison) -> Markup {
    let reference = comparison.reference.and_then(|at| comparison.rows.get(at));
    let dash = || "–".to_owned();
    let factor = |speed: Option<f64>| speed.map_or_else(dash, |speed| format!("{speed:.2}"));
    html! {
        section aria-labelledby="table" {
            h2 #table { "Figures" }
            div.scroll tabindex="0" {
                table {
                    thead { tr {
                        th.text scope="col" { "Way" }
                        th scope="col" { "Wall" }
                        th scope="col" { "Spread" }
                        th scope="col" { "CPU" }
                        th scope="col" { "Build" }
                        @if reference.is_some() { th scope="col" { "Speed" } }
                        @if comparison.has_steady() {
                            th scope="col" { "Steady CPU" }
                            th scope="col" { "Its speed" }
                        }
                        th scope="col" { "Runs" }
                        th.text scope="col" { "Output" }
                    } }
                    tbody {
                        @for row in &comparison.rows {
                            @let wall = row.wall();
                            tr {
                                th.text scope="row" { (row.name) }
                                td { (wall.map_or_else(dash, |spread| time(spread.median))) }
                                td { (row.shown_spread().unwrap_or_else(dash)) }
                                td { (row.cpu().map_or_else(dash, |spread| time(spread.median))) }
                                td { (row.build.map_or_else(dash, time)) }
                                @if reference.is_some() {
                                    td { (factor(comparison.speed(row))) }
                                }
                                @if comparison.has_steady() {
                                    td { (row.steady().map_or_else(dash, time)) }
                                    td { (factor(comparison.steady_speed(row))) }
                                }
                                td { (row.runs.len()) }
                                td.text { (row.verdict()) }
                            }
                        }
                    }
                }
            }
            @if let Some(row) = reference {
                p.more { "Speed: how many times as fast as " (row.name) ", by median wall time." }
            }
            @if comparison.has_steady() {
                p.more { "Steady: processor time that a longer run takes beyond the first: work without start and warm-up." }
            }
        }
    }
}

fn curves(comparison: &Comparison) -> Markup {
    let drawn: Vec<&Row> = comparison
        .rows
        .iter()
        .filter(|row| row.curve.len() > 1)
        .collect();
    let points = || drawn.iter().flat_map(|row| &row.curve);
    let slowest = points().map(|point| point.took).max();
    let last = points().map(|point| point.at).max();
    let first = points().map(|point| point.at).min();
    html! {
        @if let (Some(slowest), Some(last), Some(first)) = (slowest, last, first) {
            section aria-labelledby="warm-up" {
                h2 #warm-up { "Warm-up" }
                p.lead {
                    "How long one step of the program's work took, by when it ended. Time grows by "
                    "factors to the right. Lower is faster."
                }
                (curves_plot(&drawn, first.max(Nanos(1)), last, slowest))
            }
        }
    }
}

fn curves_plot(rows: &[&Row], start: Nanos, end: Nanos, slowest: Nanos) -> Markup {
    let x = Scale::Log { start, end };
    let y = Scale::Even { end: slowest };
    let place = |point: &Iteration| (x.at(point.at), y.at(point.took));
    let drawing = plot::canvas(
        "Time per step over the time since the start, one line for each way of running",
        &html! {
            @for (at, row) in rows.iter().enumerate() {
                @let points: Vec<(f64, f64)> = thinned(&row.curve).map(place).collect();
                path.curve.(format!("c{}", at % STYLES)) d=(plot::line(&points)) {}
            }
        },
    );
    let numbers: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|row| {
            let (first, last) = (row.curve.first()?, row.curve.last()?);
            let steps = count(row.curve.len() as u64);
            Some(vec![
                row.name.clone(),
                steps,
                time(first.took),
                time(last.took),
            ])
        })
        .collect();
    html! {
        (plot::frame(&x.ticks(), &y.ticks(), &drawing, &html! {}, None))
        ul.legend {
            @for (at, row) in rows.iter().enumerate() {
                li {
                    svg.sample aria-hidden="true" viewBox="0 0 1000 1000" preserveAspectRatio="none" {
                        path.curve.(format!("c{}", at % STYLES)) d="M0 500H1000" {}
                    }
                    (row.name)
                }
            }
        }
        (plot::numbers(&["way", "steps", "first step", "last step"], &numbers))
    }
}

/// At most [`POINTS`] points, evenly among the steps, the last one included.
fn thinned(curve: &[Iteration]) -> impl Iterator<Item = &Iteration> {
    let step = curve.len().div_ceil(POINTS).max(1);
    let extra = curve
        .last()
        .filter(|_| !(curve.len() - 1).is_multiple_of(step));
    curve.iter().step_by(step).chain(extra)
}
