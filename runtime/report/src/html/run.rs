//! The page of one run: the program, its warm-up, and its time by function.

use maud::{Markup, html};

use super::plot::{self, Scale, Step};
use super::{
    base_name, command_line, date, events, exchanges, figure, functions, swatch, tier_class,
    tier_label,
};
use crate::recording::{EventKind, LookupKind, Nanos, Recording, Tier};
use crate::summary::{self, Bin, PEAK_SHARE, PeakUnknown, Summary};
use crate::text;
use crate::units::{self, bytes, count, percent, ratio, things, time};

/// Columns of the plot of tiers over time.
const COLUMNS: u64 = 100;

pub(super) fn page(recording: &Recording) -> Markup {
    let summary = Summary::of(recording);
    let program = base_name(&recording.run.program);
    let body = html! {
        (head(recording, program))
        (figures(recording, &summary))
        (warm_up(recording, &summary))
        (tiers(recording, &summary))
        (exchanges::section(recording))
        (functions::hottest(recording, &summary))
        (functions::compile_time(recording))
        (events::section(recording))
        (foot(recording))
    };
    super::page(&format!("{program} · Uruk"), &body)
}

fn head(recording: &Recording, program: &str) -> Markup {
    let run = &recording.run;
    let ended = match recording.exit {
        Some(status) => format!("exit status {status}"),
        None => "did not exit by itself".to_owned(),
    };
    let facts = [
        date(run.started_unix_ms).unwrap_or_default(),
        ended,
        named("Uruk", &run.uruk),
        named("LLVM", &run.llvm),
        run.processor.clone(),
        named("tiers", &run.tiers),
        things(u64::from(run.jobs), "compile worker"),
    ];
    html! {
        header {
            h1 { (program) }
            p.command { code { (command_line(&run.program, &run.args)) } }
            ul.facts {
                @for fact in facts.iter().filter(|fact| !fact.is_empty()) {
                    li { (fact) }
                }
            }
        }
    }
}

/// `name value`; empty without a value.
fn named(name: &str, value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else {
        format!("{name}\u{a0}{value}")
    }
}

fn figures(recording: &Recording, summary: &Summary) -> Markup {
    let cores = ratio(recording.cpu.as_secs(), recording.wall.as_secs());
    let cpu = format!("CPU time {}, {cores:.2} cores", time(recording.cpu));
    let (peak, peak_remark) = peak_figure(summary);
    let (optimized, optimized_remark) = if summary.own_samples == 0 {
        ("–".to_owned(), "no samples in compiled code".to_owned())
    } else {
        let of = things(summary.own_samples, "sample");
        (
            percent(summary.optimized_share()),
            format!("of {of} in compiled code"),
        )
    };
    let defined = format!(
        "of {} in the program",
        things(recording.defined, "function")
    );
    let retired = match summary.retired {
        0 => "nothing replaced so far".to_owned(),
        _ => format!("{} of it replaced since", bytes(summary.retired_bytes)),
    };
    html! {
        dl.figures {
            (figure("Wall time", &time(recording.wall), &cpu))
            (figure("Time to peak", &peak, &peak_remark))
            (figure("In optimized code", &optimized, &optimized_remark))
            (figure("Functions compiled", &count(summary.compiled_functions), &defined))
            (figure("Compile time", &time(summary.compile()), "on the clock, all workers together"))
            (figure("Machine code", &bytes(summary.code_bytes()), &retired))
            (first_calls(recording))
            (sampling(recording, summary))
        }
        (notices(recording))
    }
}

fn peak_figure(summary: &Summary) -> (String, String) {
    match summary.peak {
        Ok(peak) => {
            let share = (PEAK_SHARE * 100.0).round();
            (
                time(peak.at),
                format!("then at least {share}\u{a0}% in final code"),
            )
        }
        Err(PeakUnknown::NotReached) => (
            "not reached".to_owned(),
            "hot code was replaced until the end".to_owned(),
        ),
        Err(PeakUnknown::TooFewSamples(_)) => ("–".to_owned(), text::peak(&summary.peak)),
    }
}

/// How long threads waited for the compile of a first call.
fn first_calls(recording: &Recording) -> Markup {
    let first = recording
        .lookups
        .iter()
        .filter(|l| l.kind == LookupKind::FirstCall);
    let mut waits: Vec<Nanos> = first.map(|lookup| lookup.end.since(lookup.start)).collect();
    waits.sort_unstable();
    match waits.get(waits.len() / 2) {
        Some(median) => {
            let total = time(waits.iter().copied().sum());
            let remark = format!(
                "median of {} that waited, {total} in all",
                count(waits.len() as u64)
            );
            figure("First calls", &time(*median), &remark)
        }
        None => figure("First calls", "–", "no wait was recorded"),
    }
}

fn sampling(recording: &Recording, summary: &Summary) -> Markup {
    let Some(source) = &recording.sampling.source else {
        return figure("Cost of sampling", "–", "sampling did not begin");
    };
    let samples = things(summary.samples, "sample");
    let lost = recording.totals.lost;
    let remark = format!("{samples} by {source}, {} lost", count(lost));
    let cost = summary.overhead.map_or("–".to_owned(), percent);
    figure("Cost of sampling", &cost, &remark)
}

/// Notices that qualify the rest of the page.
fn notices(recording: &Recording) -> Markup {
    let totals = &recording.totals;
    let mut notices = Vec::new();
    if totals.failed > 0 {
        let compiles = things(totals.failed, "compile");
        notices.push(format!(
            "{compiles} failed; what ran before went on. See the events."
        ));
    }
    // If another source works, rejected ones are only mentioned at the page's foot.
    let none = recording.sampling.source.is_none();
    for (source, reason) in recording.sampling.rejected.iter().filter(|_| none) {
        notices.push(format!(
            "{source} could not be used for sampling: {reason}."
        ));
    }
    let lost_share = ratio(
        totals.lost as f64,
        (totals.lost + totals.samples.iter().sum::<u64>()) as f64,
    );
    if lost_share > 0.05 {
        notices.push(format!("{} of the samples were lost.", percent(lost_share)));
    }
    if totals.uncovered > 0 {
        let threads = things(totals.uncovered, "thread");
        notices.push(format!(
            "{threads} could not be sampled: signals are blocked there, or a limit was reached."
        ));
    }
    html! {
        @if !notices.is_empty() {
            ul.notices { @for notice in &notices { li { (notice) } } }
        }
    }
}

/// The reason why there are no samples to draw.
fn no_samples(recording: &Recording) -> Markup {
    let reason = match &recording.sampling.source {
        None if recording.sampling.rejected.is_empty() => {
            "Sampling did not begin: it was off, or the run used too little processor time for it. So it is not known where the program spent its time."
        }
        None => {
            "No way of sampling could be used (see above), so it is not known where the program spent its time."
        }
        Some(_) => "The run was too short, or slept too much, for a sample to be taken.",
    };
    html! { p.empty { (reason) } }
}

fn warm_up(recording: &Recording, summary: &Summary) -> Markup {
    let bins = summary::growing_bins(&recording.periods);
    let bins: Vec<Bin> = bins.into_iter().filter(|bin| bin.own() > 0).collect();
    html! {
        section aria-labelledby="warm-up" {
            h2 #warm-up { "Warm-up" }
            @if bins.is_empty() {
                (no_samples(recording))
            } @else {
                p.lead {
                    "The share of samples that lie in final code: versions that were never replaced "
                    "again during this run. Time grows by factors, so that the start can be seen."
                }
                (warm_up_plot(recording, summary, &bins))
            }
        }
    }
}

fn warm_up_plot(recording: &Recording, summary: &Summary, bins: &[Bin]) -> Markup {
    let first = bins
        .first()
        .map_or(Nanos(1), |bin| bin.start.max(Nanos(bin.end.0 / 2)));
    let last = bins.last().map_or(recording.wall, |bin| bin.end);
    let scale = Scale::Log {
        start: first.max(Nanos(1)),
        end: last.max(recording.wall),
    };
    let steps: Vec<Step> = joined(bins, scale)
        .zip(bins)
        .map(|((from, to), bin)| Step {
            from,
            to,
            low: 0.0,
            high: bin.settled_share(),
        })
        .collect();
    let label = format!(
        "Share of samples in final code over time; time to peak: {}",
        text::peak(&summary.peak)
    );
    let drawing = plot::canvas(
        &label,
        &html! {
            path.under d=(plot::area(&steps)) {}
            path.edge d=(plot::edge(&steps)) {}
        },
    );
    let over = html! {
        @if let Ok(peak) = summary.peak {
            @let place = scale.at(peak.at);
            @let side = if place > 0.5 { "left" } else { "right" };
            div.marker.(side) style=(format!("left:{:.2}%", place * 100.0)) {
                span { "peak " b { (time(peak.at)) } }
            }
        }
    };
    let (strip, legend) = publications(recording, scale);
    let rows: Vec<Vec<String>> = bins
        .iter()
        .map(|bin| {
            vec![
                time(bin.start),
                time(bin.end),
                percent(bin.settled_share()),
                count(bin.own()),
            ]
        })
        .collect();
    html! {
        (plot::frame(&scale.ticks(), &plot::share_ticks(), &drawing, &over, strip.as_ref()))
        (legend)
        (plot::numbers(&["from", "to", "in final code", "samples"], &rows))
    }
}

/// Positions of bins, without gaps: each lasts until the next begins.
fn joined(bins: &[Bin], scale: Scale) -> impl Iterator<Item = (f64, f64)> + '_ {
    let end = |at: usize| bins.get(at + 1).map_or(bins[at].end, |next| next.start);
    (0..bins.len()).map(move |at| (scale.at(bins[at].start), scale.at(end(at))))
}

/// A strip of marks, one for each publication by tier, and its legend.
fn publications(recording: &Recording, scale: Scale) -> (Option<Markup>, Markup) {
    let places = |tier: Tier| {
        let at = move |event: &crate::Event| match event.kind {
            EventKind::Published { to, .. } if to == tier => Some(scale.at(event.time)),
            _ => None,
        };
        recording.events.iter().filter_map(at)
    };
    let tiers: Vec<Tier> = Tier::WITH_NATIVE
        .into_iter()
        .filter(|tier| places(*tier).next().is_some())
        .collect();
    if tiers.is_empty() {
        return (None, html! {});
    }
    let strip = html! {
        @for tier in &tiers {
            div.marks { (plot::canvas(
                &format!("Publications at tier {}", tier.number()),
                &html! { path.mark.(tier_class(tier.rank())) d=(plot::marks(places(*tier))) {} },
            )) }
        }
    };
    let legend = html! {
        ul.legend {
            li { "Marks below: code published at" }
            @for tier in &tiers {
                li { (swatch(tier.rank())) (tier_label(tier.rank())) }
            }
        }
    };
    (Some(strip), legend)
}

fn tiers(recording: &Recording, summary: &Summary) -> Markup {
    let bins = summary::even_bins(recording, COLUMNS);
    html! {
        section aria-labelledby="tiers" {
            h2 #tiers { "Tiers over time" }
            @if bins.is_empty() {
                (no_samples(recording))
            } @else {
                p.lead {
                    "Which code the samples lie in. Other code is libraries, the kernel and the "
                    "compiler itself, where they were sampled."
                }
                (tiers_plot(recording, &bins))
            }
            (tier_table(recording, summary))
        }
    }
}

fn tiers_plot(recording: &Recording, bins: &[Bin]) -> Markup {
    let scale = Scale::Even {
        end: recording.wall,
    };
    // From the bottom: the best code first, so that its share can be read from the axis.
    let order = [3, 2, 1, Tier::Native.rank(), 0];
    let stacked = |upto: usize| -> Vec<Step> {
        let sum = |bin: &Bin, layers: &[usize]| layers.iter().map(|n| bin.samples[*n]).sum::<u64>();
        let share = |bin: &Bin, layers: &[usize]| ratio(sum(bin, layers) as f64, bin.all() as f64);
        let step = |bin: &Bin| Step {
            from: scale.at(bin.start),
            to: scale.at(bin.end),
            low: share(bin, &order[..upto]),
            high: share(bin, &order[..=upto]),
        };
        bins.iter().map(step).collect()
    };
    let present: Vec<usize> = order
        .into_iter()
        .filter(|n| recording.totals.samples[*n] > 0)
        .collect();
    let drawing = plot::canvas(
        "Share of samples by tier over time, stacked: tier 3 at the bottom, native and other code on top",
        &html! {
            @for (upto, number) in order.into_iter().enumerate() {
                @if present.contains(&number) {
                    path.layer.(tier_class(number)) d=(plot::area(&stacked(upto))) {}
                }
            }
        },
    );
    let (strip, marks) = exchanges::strip(recording, scale);
    let rows: Vec<Vec<String>> = bins
        .iter()
        .map(|bin| {
            let share = |n: usize| percent(ratio(bin.samples[n] as f64, bin.all() as f64));
            let mut row = vec![time(bin.start), time(bin.end)];
            row.extend([0, Tier::Native.rank(), 1, 2, 3].map(share));
            row
        })
        .collect();
    html! {
        (plot::frame(&scale.ticks(), &plot::share_ticks(), &drawing, &html! {}, strip.as_ref()))
        (marks)
        ul.legend {
            @for number in present.iter().rev() {
                li { (swatch(*number)) (tier_label(*number)) }
            }
        }
        (plot::numbers(&["from", "to", "other", "tier 0", "tier 1", "tier 2", "tier 3"], &rows))
    }
}

fn tier_table(recording: &Recording, summary: &Summary) -> Markup {
    let all = summary.samples as f64;
    let part = |samples: u64| {
        if summary.samples == 0 {
            "–".to_owned()
        } else {
            percent(ratio(samples as f64, all))
        }
    };
    html! {
        div.scroll tabindex="0" {
            table {
                thead { tr {
                    th.text scope="col" { "Tier" }
                    th scope="col" { "Compiled" }
                    th scope="col" { "At exit" }
                    th scope="col" { "Compile ms" }
                    th scope="col" { "Code" }
                    th scope="col" { "Samples" }
                } }
                tbody {
                    @for tier in summary.rows() {
                        tr {
                            th.text scope="row" { (swatch(tier.tier.rank())) (tier.tier.number()) " " (tier.tier.name()) }
                            td { (count(tier.compiled)) }
                            td { (count(tier.published)) }
                            td { (units::ms(tier.compile)) }
                            td { (bytes(tier.code_bytes)) }
                            td { (part(tier.samples)) }
                        }
                    }
                    tr {
                        th.text scope="row" { (swatch(0)) "other code" }
                        td {} td {} td {} td {}
                        td { (part(recording.totals.samples[0])) }
                    }
                }
            }
        }
    }
}

fn foot(recording: &Recording) -> Markup {
    let omitted = recording.omitted.named();
    html! {
        footer {
            @if recording.sampling.source.is_some() {
                @for (source, reason) in &recording.sampling.rejected {
                    p { "Not used for sampling: " (source) ", because " (reason) "." }
                }
            }
            @if !omitted.is_empty() {
                p {
                    "More happened than is kept. Left out, though counted in the sums: "
                    @for (at, (what, number)) in omitted.iter().enumerate() {
                        @if at > 0 { ", " }
                        (count(*number)) " " (what)
                    }
                    "."
                }
            }
            details {
                summary { "What the words mean" }
                dl.words {
                    dt { "Tier 1, baseline" }
                    dd { "Compiled as fast as possible at the first call; counts calls." }
                    dt { "Tier 2, optimized" }
                    dd { "Compiled in the background for functions that turned out to be hot." }
                    dt { "Tier 3, guided" }
                    dd { "Compiled once more with what the run has shown: branches taken, targets called." }
                    dt { "Version" }
                    dd { "One compiled body of a function. One version is published, that is, called." }
                    dt { "Sample" }
                    dd { "A look at where a thread is, many times a second. Code that was inlined counts for the function it went into." }
                }
            }
        }
    }
}
