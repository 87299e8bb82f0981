//! Rows to text: the table and the CSV file. Pure.

use crate::row::{Figure, Row, Target};
use crate::sample::Sample;
use crate::tiers::Curve;

const HEADINGS: [&str; 10] = [
    "what", "level", "unit", "ours", "peer", "peer's", "ratio", "wall", "target", "",
];

/// Notes that hold for the table as a whole.
pub const NOTES: [&str; 4] = [
    "ours, peer's: median [middle half; all of fewer than 4 runs]. ratio: ours over peer's, \
     with its standard error; `wall`: the same of wall-clock time",
    "`ms cpu` is user and system time of all threads and children: a compile thread that runs \
     beside the program counts in full",
    "`lli --jit-kind=orc` and `orc-lazy` ignore -O0 and compile at the default level: they have no \
     -O0 row; `--jit-kind=mcjit` honours it",
    "every lli mode runs with warm files; a mode slower than a multiple of the fastest is stopped \
     there, shown as > its limit",
];

/// The table, headings first, a line per row, then the rows' notes.
pub fn table(rows: &[Row]) -> String {
    let mut cells = vec![HEADINGS.map(str::to_owned)];
    let mut notes: Vec<&str> = Vec::new();
    for row in rows {
        let mut line = line(row);
        if !row.note.is_empty() {
            let known = notes.iter().position(|note| *note == row.note);
            let number = known.unwrap_or_else(|| {
                notes.push(&row.note);
                notes.len() - 1
            });
            line[9] = format!("{} ({})", line[9], number + 1);
        }
        cells.push(line);
    }
    let mut text = align(&cells);
    for (number, note) in notes.iter().enumerate() {
        text.push_str(&format!("({}) {note}\n", number + 1));
    }
    for note in NOTES {
        text.push_str(&format!("* {note}\n"));
    }
    text
}

/// How the first process of each of ours warmed up, a line each.
pub fn warm_up(curves: &[Curve]) -> String {
    let mut text = String::new();
    let mut heading = String::new();
    for curve in curves.iter().filter(|curve| curve.ours && curve.round == 1) {
        let now = format!("{} {}", curve.side, curve.level);
        if now != heading {
            text.push_str(&format!(
                "warm-up, processor time of an iteration, {now}:\n"
            ));
            heading = now;
        }
        text.push_str(&format!("  {}\n", curve.line()));
    }
    text
}

/// The same as comma-separated values, with full precision.
pub fn csv(rows: &[Row]) -> String {
    let mut text = String::from(
        "name,level,unit,ours_median,ours_low,ours_high,ours_runs,peer,peer_median,peer_low,\
         peer_high,peer_runs,ratio,ratio_error,ours_wall,peer_wall,target,verdict,note\n",
    );
    for row in rows {
        let mut fields = vec![
            row.name.clone(),
            row.level.clone(),
            row.unit.name().to_owned(),
        ];
        fields.extend(csv_figure(Some(&row.ours)));
        fields.push(
            row.peer
                .as_ref()
                .map_or_else(String::new, |peer| peer.name.clone()),
        );
        fields.extend(csv_figure(row.peer.as_ref().map(|peer| &peer.figure)));
        fields.push(
            row.ratio()
                .map_or_else(String::new, |ratio| ratio.to_string()),
        );
        let error = row.error();
        fields.push(error.map_or_else(String::new, |part| part.to_string()));
        let (ours, peer) = row.wall.unzip();
        fields.extend([ours, peer].map(|ms| ms.map_or_else(String::new, |ms| ms.to_string())));
        fields.push(target(row.target));
        fields.push(row.verdict().name().to_owned());
        fields.push(row.note.clone());
        let quoted: Vec<String> = fields.iter().map(|field| quote(field)).collect();
        text.push_str(&quoted.join(","));
        text.push('\n');
    }
    text
}

fn line(row: &Row) -> [String; 10] {
    let bound = match row.peer.as_ref().map(|peer| &peer.figure) {
        Some(Figure::Stopped(_)) => "< ",
        _ => "",
    };
    let times = |ratio: f64| format!("{bound}{}", number(ratio));
    let error = row.error().map(|part| format!(" +-{:.1}%", part * 100.0));
    let ratio = |ratio: f64| format!("{}{}", times(ratio), error.unwrap_or_default());
    [
        row.name.clone(),
        row.level.clone(),
        row.unit.name().to_owned(),
        figure(&row.ours),
        row.peer
            .as_ref()
            .map_or_else(String::new, |peer| peer.name.clone()),
        row.peer
            .as_ref()
            .map_or_else(String::new, |peer| figure(&peer.figure)),
        row.ratio().map_or_else(String::new, ratio),
        row.wall
            .map_or_else(String::new, |(ours, peer)| times(ours / peer)),
        target(row.target),
        row.verdict().name().to_owned(),
    ]
}

fn figure(figure: &Figure) -> String {
    match figure {
        Figure::Measured(sample) => format!("{}{}", number(sample.median()), spread(sample)),
        Figure::Stopped(at) => format!("> {}", number(*at)),
        Figure::Failed(why) => why.clone(),
    }
}

fn spread(sample: &Sample) -> String {
    if sample.count() == 1 {
        return String::from(" [once]");
    }
    let (low, high) = sample.spread();
    format!(" [{}..{}]", number(low), number(high))
}

fn target(target: Target) -> String {
    match target {
        Target::RatioAtMost(limit) => format!("ratio <= {limit}"),
        Target::RatioAtLeast(limit) => format!("ratio >= {limit}"),
        Target::AtMost(limit) => format!("<= {limit}"),
        Target::AtLeast(limit) => format!(">= {limit}"),
        Target::Information => String::new(),
    }
}

/// Three significant digits, whole numbers in full.
fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Columns as wide as their widest cell, two blanks between.
fn align(cells: &[[String; 10]]) -> String {
    let width = |column: usize| cells.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..10).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in cells {
        let mut padded = String::new();
        for (cell, &width) in line.iter().zip(&widths) {
            padded.push_str(&format!("{cell:width$}  "));
        }
        text.push_str(padded.trim_end());
        text.push('\n');
    }
    text
}

fn csv_figure(figure: Option<&Figure>) -> [String; 4] {
    match figure {
        Some(Figure::Measured(sample)) => {
            let (low, high) = sample.spread();
            let count = sample.count().to_string();
            [
                sample.median().to_string(),
                low.to_string(),
                high.to_string(),
                count,
            ]
        }
        Some(Figure::Stopped(at)) => [format!(">{at}"), String::new(), String::new(), "0".into()],
        Some(Figure::Failed(why)) => [why.clone(), String::new(), String::new(), "0".into()],
        None => Default::default(),
    }
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\n']) {
        return format!("\"{}\"", field.replace('"', "\"\""));
    }
    field.to_owned()
}

#[cfg(test)]
mod tests {
    use super::{csv, number, table};
    use crate::row::{Figure, Row, Target, Unit};

    fn rows() -> Vec<Row> {
        let mut first = Row::new(
            "lua, hello",
            Unit::CpuMs,
            Figure::of([40.0, 41.0, 39.0, 60.0]),
        )
        .level("O0")
        .peer("lli mcjit -O0", Figure::of([200.0]))
        .target(Target::RatioAtMost(0.5))
        .note("a note");
        first.wall = Some((30.0, 210.0));
        let second = Row::new("stopped", Unit::CpuMs, Figure::of([10.0]))
            .peer("lli orc", Figure::Stopped(1000.0))
            .note("a note");
        let third = Row::new("dead", Unit::Us, Figure::Failed("signal 11".to_owned()))
            .target(Target::AtMost(450.0));
        vec![first, second, third]
    }

    #[test]
    fn the_table_is_aligned_and_numbers_its_notes() {
        let text = table(&rows());
        let lines: Vec<&str> = text.lines().take(5).collect();
        let expected = "\
what        level  unit    ours                peer           peer's        ratio    wall   target        
lua, hello  O0     ms cpu  40.5 [39.8..45.8]   lli mcjit -O0  200 [once]    0.203    0.143  ratio <= 0.5  ok (1)
stopped            ms cpu  10.0 [once]         lli orc        > 1000        < 0.010                       - (1)
dead               us      signal 11                                                        <= 450        short
(1) a note";
        let expected: Vec<String> = expected.lines().map(words).collect();
        assert_eq!(
            lines.iter().map(|line| words(line)).collect::<Vec<_>>(),
            expected
        );
        let column = lines[0].find("target").expect("a heading");
        assert!(lines[1][column..].starts_with("ratio <= 0.5"), "{text}");
    }

    fn words(line: &str) -> String {
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn csv_quotes_what_holds_a_comma() {
        let text = csv(&rows());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(
            lines[1].starts_with("\"lua, hello\",O0,ms cpu,40.5,39.75,45.75,4,"),
            "{text}"
        );
        let columns = lines[0].split(',').count();
        assert!(
            lines[2..]
                .iter()
                .all(|line| line.split(',').count() == columns),
            "{text}"
        );
    }

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0123, 1.005, 12.345, 99.96, 1234.4].map(number);
        assert_eq!(shown, ["0.012", "1.00", "12.3", "100", "1234"]);
    }
}
