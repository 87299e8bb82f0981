//! The summary as text.

use std::fmt::Write;
use std::time::Duration;

use crate::measure::Row;

/// One line for each run, columns aligned.
pub fn render(rows: &[Row]) -> String {
    let mut titles = vec![
        "program",
        "functions",
        "compiled",
        "never needed",
        "compiling",
    ];
    if let Some(first) = rows.first() {
        titles.extend(first.times.iter().map(|(name, _)| *name));
    }
    let mut lines: Vec<Vec<String>> = vec![titles.iter().map(ToString::to_string).collect()];
    for row in rows {
        let stats = row.stats;
        let mut cells = vec![
            format!("{} {}", row.guest, row.run),
            stats.functions.to_string(),
            stats.compiled.to_string(),
            stats.functions.saturating_sub(stats.compiled).to_string(),
            format!("{:.1}", stats.compile_ms),
        ];
        cells.extend(row.times.iter().map(|(_, time)| milliseconds(*time)));
        lines.push(cells);
    }
    align(&lines)
}

/// The meaning of the numbers, in a few words.
pub fn explain(rows: &[Row]) -> String {
    let functions: u64 = rows.iter().map(|row| row.stats.functions).sum();
    let compiled: u64 = rows.iter().map(|row| row.stats.compiled).sum();
    let same = rows.iter().filter(|row| row.problem.is_none()).count();
    let percent = 100 * compiled / functions.max(1);
    format!(
        "uruk compiled {percent} % of the functions, each when it was first called.\n\
         Output and exit status as native: {same} of {} runs.\n\
         `tier 1 only` compiles nothing again: what it takes longer is what tiering wins.\n\
         `lli` without options optimizes all code before it starts; `-` means that it failed.",
        rows.len()
    )
}

fn milliseconds(time: Option<Duration>) -> String {
    match time {
        Some(time) => format!("{:.1}", time.as_secs_f64() * 1e3),
        None => "-".to_owned(),
    }
}

/// The first column to the left, the others to the right.
pub fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        lines
            .iter()
            .filter_map(|line| line.get(column))
            .map(String::len)
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let mut text = String::new();
    for line in lines {
        for (column, cell) in line.iter().enumerate() {
            let width = widths[column];
            // Writing to a string cannot fail.
            let _ = match column {
                0 => write!(text, "{cell:<width$}"),
                _ => write!(text, "  {cell:>width$}"),
            };
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::align;

    #[test]
    fn columns_line_up() {
        let lines = [["a", "bb"], ["ccc", "d"]].map(|line| line.map(str::to_owned).to_vec());
        assert_eq!(align(&lines), "a    bb\nccc   d\n");
    }
}
