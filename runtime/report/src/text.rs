//! A run as text for a terminal, and as one line of JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::recording::{Exchange, Function, Recording};
use crate::summary::{Peak, PeakUnknown, Summary};
use crate::units;

/// The alignment of the cells of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// Rows of cells, printed in columns.
#[derive(Debug, Clone)]
pub struct Table {
    columns: Vec<(String, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these headings.
    pub fn new(columns: &[(&str, Align)]) -> Table {
        let owned = columns
            .iter()
            .map(|(head, align)| ((*head).to_owned(), *align));
        Table {
            columns: owned.collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row. Missing cells are empty, cells without a column are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Renders the table, each line with a newline and without trailing spaces. Control characters
    /// in cells (names are input) become `?`.
    pub fn render(&self) -> String {
        let heads: Vec<String> = self.columns.iter().map(|(head, _)| head.clone()).collect();
        let lines: Vec<&Vec<String>> = std::iter::once(&heads).chain(&self.rows).collect();
        let empty = String::new();
        let cell = |line: &Vec<String>, at: usize| -> String {
            let text = line.get(at).unwrap_or(&empty);
            let plain = |c: char| match c {
                '\u{a0}' => ' ',
                c if c.is_control() => '?',
                c => c,
            };
            text.chars().map(plain).collect()
        };
        let widths = (0..heads.len()).map(|at| {
            let cells = lines.iter().map(|line| cell(line, at).chars().count());
            cells.max().unwrap_or(0)
        });
        let widths: Vec<usize> = widths.collect();
        let mut text = String::new();
        for line in lines {
            let mut row = String::new();
            for (at, ((_, align), width)) in self.columns.iter().zip(&widths).enumerate() {
                if at > 0 {
                    row.push_str("  ");
                }
                let _ = match align {
                    Align::Left => write!(row, "{:<width$}", cell(line, at)),
                    Align::Right => write!(row, "{:>width$}", cell(line, at)),
                };
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

/// The key figures of a run and its `hottest` functions, for a terminal.
pub fn run(recording: &Recording, hottest: usize) -> String {
    let summary = Summary::of(recording);
    let mut text = figures(recording, &summary);
    text.push('\n');
    text.push_str(&tiers(&summary).render());
    let functions = functions(recording, &summary, hottest);
    for table in [exchanges(recording), functions] {
        if !table.is_empty() {
            text.push('\n');
            text.push_str(&table.render());
        }
    }
    text
}

fn figures(recording: &Recording, summary: &Summary) -> String {
    let mut table = Table::new(&[("run", Align::Left), ("", Align::Left)]);
    table.row(["wall time", &units::time(recording.wall)]);
    table.row(["CPU time", &units::time(recording.cpu)]);
    table.row(["time to peak", &peak(&summary.peak)]);
    let compiled = units::count(summary.compiled_functions);
    let functions = format!("{compiled} of {} compiled", units::count(recording.defined));
    table.row(["functions", &functions]);
    let trouble = [
        (recording.totals.failed, "failed"),
        (recording.totals.dropped, "not used"),
    ];
    for (number, what) in trouble.into_iter().filter(|(number, _)| *number > 0) {
        table.row([&format!("compiles {what}"), &units::count(number)]);
    }
    let retired = units::count(summary.retired);
    let retired = format!("{retired}, {}", units::bytes(summary.retired_bytes));
    table.row(["retired versions", &retired]);
    table.row(["sampling", &sampling(recording, summary)]);
    for (what, number) in recording.omitted.named() {
        table.row([&format!("{what} not kept"), &units::count(number)]);
    }
    table.render()
}

/// The time to peak, or why it is unknown.
pub(crate) fn peak(peak: &Result<Peak, PeakUnknown>) -> String {
    match peak {
        Ok(peak) => units::time(peak.at),
        Err(PeakUnknown::TooFewSamples(0)) => "not known: no samples".to_owned(),
        Err(PeakUnknown::TooFewSamples(number)) => {
            format!("not known: only {}", units::things(*number, "sample"))
        }
        Err(PeakUnknown::NotReached) => "not reached".to_owned(),
    }
}

/// Source, samples, losses and cost; or why there are none.
fn sampling(recording: &Recording, summary: &Summary) -> String {
    let Some(source) = &recording.sampling.source else {
        let because = |(name, reason): &(String, String)| format!("; {name}: {reason}");
        let rejected: String = recording.sampling.rejected.iter().map(because).collect();
        return format!("not begun{rejected}");
    };
    let mut text = format!("{source}, {}", units::things(summary.samples, "sample"));
    if recording.totals.lost > 0 {
        let _ = write!(text, ", {} lost", units::count(recording.totals.lost));
    }
    if recording.totals.uncovered > 0 {
        let threads = units::things(recording.totals.uncovered, "thread");
        let _ = write!(text, ", {threads} not sampled");
    }
    if let Some(overhead) = summary.overhead {
        let _ = write!(text, ", cost {} of the CPU time", units::percent(overhead));
    }
    text
}

fn tiers(summary: &Summary) -> Table {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("tier", Align::Left),
        ("compiled", right),
        ("at exit", right),
        ("compile ms", right),
        ("code bytes", right),
        ("samples", right),
    ]);
    for tier in summary.rows() {
        table.row([
            format!("{} {}", tier.tier.number(), tier.tier.name()),
            units::count(tier.compiled),
            units::count(tier.published),
            units::ms(tier.compile),
            units::count(tier.code_bytes),
            units::count(tier.samples),
        ]);
    }
    table
}

fn functions(recording: &Recording, summary: &Summary, hottest: usize) -> Table {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("hottest functions", Align::Left),
        ("tier", right),
        ("samples", right),
        ("share", right),
        ("calls counted", right),
        ("versions", right),
        ("compile ms", right),
    ]);
    for function in recording.functions.iter().take(hottest) {
        let share = match summary.samples {
            0 => "-".to_owned(),
            all => units::percent(units::ratio(function.samples as f64, all as f64)),
        };
        table.row([
            crate::limits::without_middle(&function.name, NAME_WIDTH),
            tier_number(function),
            units::count(function.samples),
            share,
            function.entries.map_or("-".to_owned(), units::count),
            function.versions.len().to_string(),
            units::ms(function.compile()),
        ]);
    }
    table
}

/// Functions that were replaced by hand, with times; the latest if there are many.
fn exchanges(recording: &Recording) -> Table {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("functions replaced", Align::Left),
        ("", Align::Left),
        ("at", right),
        ("took", right),
        ("calls held", right),
    ]);
    let events = recording.events.iter();
    let all = events.filter_map(|event| Some((event.time, event.kind.exchange()?)));
    let all: Vec<_> = all.collect();
    for (time, (exchange, back)) in &all[all.len().saturating_sub(EXCHANGES)..] {
        table.row([
            crate::limits::without_middle(&exchanged(exchange), NAME_WIDTH),
            what(*back).to_owned(),
            units::time(*time),
            units::time(exchange.took),
            units::time(exchange.closed),
        ]);
    }
    table
}

/// Limit of exchanges on a terminal.
const EXCHANGES: usize = 20;

/// The name of the kind of an exchange.
pub(crate) fn what(back: bool) -> &'static str {
    match back {
        true => "rolled back",
        false => "replaced",
    }
}

/// The functions of an exchange, in words.
pub(crate) fn exchanged(exchange: &Exchange) -> String {
    let kinds = [
        ("", &exchange.functions),
        ("added: ", &exchange.added),
        ("compiled again: ", &exchange.dependents),
    ];
    let kinds = kinds.into_iter().filter(|(_, names)| !names.is_empty());
    let mut parts: Vec<String> = kinds
        .map(|(how, names)| format!("{how}{}", names.join(", ")))
        .collect();
    if exchange.unnamed > 0 {
        parts.push(format!("and {} more", units::count(exchange.unnamed)));
    }
    parts.join("; ")
}

/// Limit of a name on a terminal, bytes.
const NAME_WIDTH: usize = 48;

/// The tier of a function at the end of the run.
pub(crate) fn tier_number(function: &Function) -> String {
    let number = |version: &crate::Version| version.tier.number().to_string();
    function.published().map_or("-".to_owned(), number)
}

/// The figures of a run as one JSON object on one line, with a newline. Times are integers in
/// nanoseconds (`_ns`), shares are fractions of one.
pub fn json(recording: &Recording, hottest: usize) -> String {
    let summary = Summary::of(recording);
    let hot = |function: &Function| Hot {
        name: function.name.clone(),
        tier: function.published().map(|version| version.tier.number()),
        samples: function.samples,
        calls_counted: function.entries,
        versions: function.versions.len(),
        code_bytes: function.published().map(|version| version.code_bytes),
        compile_ns: function.compile().0,
    };
    let figures = Figures {
        wall_ns: recording.wall.0,
        cpu_ns: recording.cpu.0,
        peak_ns: summary.peak.ok().map(|peak| peak.at.0),
        defined: recording.defined,
        compiled: summary.compiled_functions,
        failed: recording.totals.failed,
        dropped: recording.totals.dropped,
        retired: summary.retired,
        retired_bytes: summary.retired_bytes,
        tiers: summary.rows().map(tier_json).collect(),
        sampling: recording.sampling.source.clone(),
        samples: summary.samples,
        outside: recording.totals.samples[0],
        lost: recording.totals.lost,
        threads_not_sampled: recording.totals.uncovered,
        sampling_overhead: summary.overhead,
        hottest: recording.functions.iter().take(hottest).map(hot).collect(),
    };
    let mut text = serde_json::to_string(&figures).expect("plain data can be written");
    text.push('\n');
    text
}

fn tier_json(tier: &crate::TierFigures) -> TierJson {
    TierJson {
        tier: tier.tier.number(),
        compiled: tier.compiled,
        published: tier.published,
        compile_ns: tier.compile.0,
        code_bytes: tier.code_bytes,
        samples: tier.samples,
    }
}

#[derive(Serialize)]
struct Figures {
    wall_ns: u64,
    cpu_ns: u64,
    peak_ns: Option<u64>,
    defined: u64,
    compiled: u64,
    failed: u64,
    dropped: u64,
    retired: u64,
    retired_bytes: u64,
    tiers: Vec<TierJson>,
    sampling: Option<String>,
    samples: u64,
    outside: u64,
    lost: u64,
    threads_not_sampled: u64,
    sampling_overhead: Option<f64>,
    hottest: Vec<Hot>,
}

#[derive(Serialize)]
struct TierJson {
    tier: u8,
    compiled: u64,
    published: u64,
    compile_ns: u64,
    code_bytes: u64,
    samples: u64,
}

#[derive(Serialize)]
struct Hot {
    name: String,
    tier: Option<u8>,
    samples: u64,
    calls_counted: Option<u64>,
    versions: usize,
    code_bytes: Option<u64>,
    compile_ns: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::{Event, EventKind, Nanos};

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&[("name", Align::Left), ("ms", Align::Right)]);
        table.row(["a", "1.00"]);
        table.row(["longer\u{1b}[0m", "12.50"]);
        table.row(["ünï"]);
        let expected = "name           ms\na            1.00\nlonger?[0m  12.50\nünï\n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn what_was_replaced_is_a_table() {
        let fix = Exchange {
            functions: vec!["answer".to_owned()],
            dependents: vec!["serve".to_owned()],
            took: Nanos(3_000_000),
            closed: Nanos(4_000),
            ..Exchange::default()
        };
        let event = |ms: u64, kind| Event {
            time: Nanos(ms * 1_000_000),
            kind,
        };
        let text = run(
            &Recording {
                events: vec![
                    event(20, EventKind::Replaced(fix.clone())),
                    event(70, EventKind::RolledBack(fix)),
                ],
                ..Recording::default()
            },
            5,
        );
        let expected = "
functions replaced                               at     took  calls held
answer; compiled again: serve  replaced     20.0 ms  3.00 ms     4.00 µs
answer; compiled again: serve  rolled back  70.0 ms  3.00 ms     4.00 µs
";
        assert!(text.ends_with(expected), "{text}");
    }

    #[test]
    fn an_empty_run_says_what_it_does_not_know() {
        let text = run(&Recording::default(), 5);
        assert!(
            text.contains("time to peak      not known: no samples\n"),
            "{text}"
        );
        assert!(text.contains("sampling          not begun\n"), "{text}");
        assert!(!text.contains("hottest"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&json(&Recording::default(), 5)).expect("JSON");
        assert!(json["peak_ns"].is_null() && json["hottest"].as_array().is_some_and(Vec::is_empty));
    }
}
