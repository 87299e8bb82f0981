//! Writes a run as a timeline in Chrome's trace event format, which Perfetto opens.
//!
//! The format: <https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>.
//! Used here: complete events (`X`), instants (`i`), counters (`C`) and metadata (`M`).
//!
//! Perfetto has more rules than the format; `tests/perfetto` checks them all.
//!
//! Invariants:
//! - One event per line, written immediately; only the spans of one track are held, for sorting.
//! - Times are microseconds since the run began, exact to the nanosecond: a double
//!   holds that for 100 days.
//! - On one track spans nest or are disjoint. Spans that overlap otherwise (only inconsistent
//!   clocks cause them) are on an extra track beside it; if there is no free track, they are
//!   omitted.
//! - A track's spans are in the order of their start, outer before inner.
//!
//! | process | tracks |
//! |---|---|
//! | 1 `uruk` | publications, decisions, replacements, one per compile worker; counters |
//! | 2 the program | one per thread that looked something up |

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};

use crate::recording::{
    Compile, EventKind, Exchange, LookupKind, Names, Nanos, Period, Place, Recording, Tier,
};
use crate::{text, units};

const RUNTIME: u32 = 1;
const PROGRAM: u32 = 2;
const PUBLICATIONS: u64 = 1;
const DECISIONS: u64 = 2;
const REPLACEMENTS: u64 = 3;
/// Track numbers of workers start here.
const WORKERS: u64 = 16;
/// Distance of the extra tracks from their track: above the thread ids of Linux (at most 2^22), so
/// that [`LANES`] of them fit 32 bits, which Perfetto requires.
const LANE: u64 = 1 << 23;
const LANES: usize = 1 << 8;

/// Writes the whole recording.
///
/// # Errors
///
/// The errors of `out`.
pub fn write(recording: &Recording, out: &mut dyn Write) -> io::Result<()> {
    let mut trace = Writer { out, first: true };
    trace.open(recording)?;
    trace.process(RUNTIME, "uruk")?;
    let program = format!("program {}", recording.run.program);
    trace.process(PROGRAM, &program)?;
    let names = Names::of(recording);
    write_spans(recording, &names, &mut trace)?;
    write_events(recording, &names, &mut trace)?;
    write_counters(&recording.periods, &mut trace)?;
    trace.close()
}

/// One line of the trace.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'a str>,
    ph: &'a str,
    pid: u32,
    tid: u64,
    ts: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// Scope of an instant.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'a str>,
    args: Value,
}

fn micros(time: Nanos) -> f64 {
    time.0 as f64 / 1e3
}

/// Writes lines with commas between them.
struct Writer<'a> {
    out: &'a mut dyn Write,
    first: bool,
}

impl Writer<'_> {
    fn open(&mut self, recording: &Recording) -> io::Result<()> {
        let omitted: HashMap<_, _> = recording.omitted.named().into_iter().collect();
        let about =
            json!({"run": recording.run, "sampling": recording.sampling, "omitted": omitted});
        self.out.write_all(b"{\"otherData\":")?;
        self.json(&about)?;
        self.out.write_all(b",\"traceEvents\":[\n")
    }

    fn json(&mut self, value: &impl Serialize) -> io::Result<()> {
        let mut serializer = Serializer::with_formatter(&mut *self.out, WithoutControls);
        value.serialize(&mut serializer).map_err(io::Error::from)
    }

    fn line(&mut self, line: &Line<'_>) -> io::Result<()> {
        if !std::mem::take(&mut self.first) {
            self.out.write_all(b",\n")?;
        }
        self.json(line)
    }

    fn close(&mut self) -> io::Result<()> {
        self.out.write_all(b"\n]}\n")?;
        self.out.flush()
    }

    fn metadata(&mut self, pid: u32, tid: u64, name: &str, args: Value) -> io::Result<()> {
        self.line(&Line {
            name,
            cat: None,
            ph: "M",
            pid,
            tid,
            ts: 0.0,
            dur: None,
            s: None,
            args,
        })
    }

    fn process(&mut self, pid: u32, name: &str) -> io::Result<()> {
        self.metadata(pid, 0, "process_name", json!({ "name": name }))
    }

    fn thread(&mut self, pid: u32, tid: u64, name: &str) -> io::Result<()> {
        self.metadata(pid, tid, "thread_name", json!({ "name": name }))?;
        let order = json!({ "sort_index": tid });
        self.metadata(pid, tid, "thread_sort_index", order)
    }

    fn instant(&mut self, time: Nanos, tid: u64, name: &str, args: Value) -> io::Result<()> {
        self.line(&Line {
            name,
            cat: Some(if tid == PUBLICATIONS {
                "publication"
            } else {
                "decision"
            }),
            ph: "i",
            pid: RUNTIME,
            tid,
            ts: micros(time),
            dur: None,
            s: Some("t"),
            args,
        })
    }

    fn counter(&mut self, time: Nanos, name: &str, args: Value) -> io::Result<()> {
        self.line(&Line {
            name,
            cat: None,
            ph: "C",
            pid: RUNTIME,
            tid: 0,
            ts: micros(time),
            dur: None,
            s: None,
            args,
        })
    }
}

/// JSON without DEL, which Perfetto rejects in a string.
struct WithoutControls;

impl Formatter for WithoutControls {
    fn write_string_fragment<W>(&mut self, out: &mut W, fragment: &str) -> io::Result<()>
    where
        W: Write + ?Sized,
    {
        for (at, part) in fragment.split('\u{7f}').enumerate() {
            if at != 0 {
                out.write_all(b"\\u007f")?;
            }
            out.write_all(part.as_bytes())?;
        }
        Ok(())
    }
}

/// A span that is not written yet.
struct Span<'a> {
    start: Nanos,
    end: Nanos,
    name: String,
    cat: &'a str,
    args: Value,
}

/// The process, the track and its name.
fn track(place: Place) -> (u32, u64, String) {
    match place {
        Place::Worker(n) => (
            RUNTIME,
            WORKERS + u64::from(n),
            format!("compile worker {n}"),
        ),
        Place::Thread(id) => (PROGRAM, u64::from(id), format!("thread {id}")),
    }
}

fn write_spans(recording: &Recording, names: &Names<'_>, trace: &mut Writer<'_>) -> io::Result<()> {
    let mut tracks: BTreeMap<Place, Vec<Span<'_>>> = BTreeMap::new();
    for compile in &recording.compiles {
        let spans = tracks.entry(compile.place).or_default();
        spans.push(compile_span(compile, names));
    }
    for link in &recording.links {
        let name = link
            .function
            .map_or(Cow::Borrowed("data"), |id| names.get(id));
        tracks.entry(link.place).or_default().push(Span {
            start: link.start,
            end: link.end,
            name: format!("link {name}"),
            cat: "link",
            args: json!({}),
        });
    }
    for lookup in &recording.lookups {
        let kind = match lookup.kind {
            LookupKind::Symbol => "look up",
            LookupKind::FirstCall => "first call of",
        };
        tracks.entry(lookup.place).or_default().push(Span {
            start: lookup.start,
            end: lookup.end,
            name: format!("{kind} {}", lookup.name),
            cat: "lookup",
            args: json!({}),
        });
    }
    for (place, spans) in tracks {
        write_track(place, spans, trace)?;
    }
    Ok(())
}

fn compile_span<'a>(compile: &Compile, names: &Names<'_>) -> Span<'a> {
    let name = names.get(compile.function);
    Span {
        start: compile.start,
        end: compile.end,
        name: format!("{name} (tier {})", compile.tier.number()),
        cat: "compile",
        args: json!({
            "tier": compile.tier,
            "version": compile.version,
            "instructions": compile.instructions,
            "code_bytes": compile.code_bytes,
            "waited_us": micros(compile.waited),
        }),
    }
}

/// Writes the spans of one place, on as many tracks as their overlaps need.
fn write_track(place: Place, mut spans: Vec<Span<'_>>, trace: &mut Writer<'_>) -> io::Result<()> {
    spans.sort_by_key(|span| (span.start, Reverse(span.end)));
    let (pid, tid, name) = track(place);
    // Per lane the ends of the open spans, outermost first.
    let mut lanes: Vec<Vec<Nanos>> = Vec::new();
    for span in spans {
        let fits = |lane: &mut Vec<Nanos>| {
            while lane.pop_if(|end| *end <= span.start).is_some() {}
            lane.last().is_none_or(|end| span.end <= *end)
        };
        let lane = lanes.iter_mut().position(fits).unwrap_or(lanes.len());
        if lane == LANES {
            continue;
        }
        let tid = tid + lane as u64 * LANE;
        if lane == lanes.len() {
            lanes.push(Vec::new());
            let beside = if lane == 0 {
                name.clone()
            } else {
                format!("{name} ({})", lane + 1)
            };
            trace.thread(pid, tid, &beside)?;
        }
        lanes[lane].push(span.end);
        trace.line(&Line {
            name: &span.name,
            cat: Some(span.cat),
            ph: "X",
            pid,
            tid,
            ts: micros(span.start),
            dur: Some(micros(span.end.since(span.start))),
            s: None,
            args: span.args,
        })?;
    }
    Ok(())
}

fn write_events(
    recording: &Recording,
    names: &Names<'_>,
    trace: &mut Writer<'_>,
) -> io::Result<()> {
    trace.thread(RUNTIME, PUBLICATIONS, "publications")?;
    trace.thread(RUNTIME, DECISIONS, "decisions")?;
    trace.thread(RUNTIME, REPLACEMENTS, "replacements")?;
    for event in &recording.events {
        let (track, name, args) = match &event.kind {
            EventKind::Published {
                function,
                version,
                from,
                to,
            } => {
                let name = format!("{} to tier {}", names.get(*function), to.number());
                let from = from.map_or(0, Tier::number);
                let args = json!({"version": version, "from": from, "to": to});
                (PUBLICATIONS, name, args)
            }
            EventKind::Failed {
                function,
                tier,
                reason,
            } => {
                let name = format!("{} failed", names.get(*function));
                (PUBLICATIONS, name, json!({"tier": tier, "reason": reason}))
            }
            EventKind::Dropped {
                function,
                tier,
                reason,
            } => {
                let name = format!("{} not used", names.get(*function));
                (PUBLICATIONS, name, json!({"tier": tier, "reason": reason}))
            }
            EventKind::Replaced(exchange) | EventKind::RolledBack(exchange) => {
                let back = matches!(event.kind, EventKind::RolledBack(_));
                let name = exchange_name(exchange, back);
                (REPLACEMENTS, name, json!(exchange))
            }
            EventKind::Policy { function, text } => {
                let function = function.map(|id| names.get(id));
                (DECISIONS, text.clone(), json!({ "function": function }))
            }
        };
        trace.instant(event.time, track, &name, args)?;
    }
    Ok(())
}

/// `replaced f, g` or `rolled back f`; of many functions, the number of further ones.
fn exchange_name(exchange: &Exchange, back: bool) -> String {
    let what = text::what(back);
    let named: Vec<&str> = exchange.functions.iter().map(String::as_str).collect();
    let shown = named.len().min(SHOWN);
    let names = named[..shown].join(", ");
    match exchange.reached() - shown as u64 {
        0 => format!("{what} {names}"),
        more if shown == 0 => format!("{what} {}", units::things(more, "function")),
        more => format!("{what} {names} and {more} more"),
    }
}

/// Limit of function names in the name of an event.
const SHOWN: usize = 3;

fn write_counters(periods: &[Period], trace: &mut Writer<'_>) -> io::Result<()> {
    let mut last: Option<Nanos> = None;
    for period in periods {
        // A counter holds its value until the next one, so a pause must end it.
        if let Some(end) = last.filter(|end| *end < period.start) {
            write_samples(end, [0.0; Tier::RANKS], trace)?;
        }
        let seconds = period.end.since(period.start).as_secs();
        let rates = period
            .samples
            .map(|count| crate::units::ratio(count as f64, seconds));
        write_samples(period.start, rates, trace)?;
        let queue = json!({ "functions": period.queue });
        trace.counter(period.start, "compile queue", queue)?;
        let percent = json!({ "percent": period.overhead * 100.0 });
        trace.counter(period.start, "sampling cost", percent)?;
        trace.counter(
            period.start,
            "sampling rate",
            json!({ "hz": period.rate_hz }),
        )?;
        trace.counter(
            period.start,
            "samples lost",
            json!({ "samples": period.lost }),
        )?;
        last = Some(period.end);
    }
    match last {
        Some(end) => write_samples(end, [0.0; Tier::RANKS], trace),
        None => Ok(()),
    }
}

fn write_samples(time: Nanos, rates: [f64; Tier::RANKS], trace: &mut Writer<'_>) -> io::Result<()> {
    let [other, one, two, three, native] = rates;
    let rates =
        json!({"other": other, "tier 0": native, "tier 1": one, "tier 2": two, "tier 3": three});
    trace.counter(time, "samples per second", rates)
}

#[cfg(test)]
#[path = "trace_tests.rs"]
mod tests;
