//! Functions that stay at their first version, and why.

use std::fmt::{self, Write};

use uruk_codegen::Reason;

/// Functions of each kind that the table names.
const NAMED: usize = 8;

/// Why a function stays at its first version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Staying {
    /// It is a coroutine, whose frames hold addresses of its code: it keeps its first version.
    Coroutine,
    /// Its native code takes addresses of labels, which the program may have stored: it keeps that
    /// code.
    NativeLabels,
    /// No loop of it can be left, and it is not called again: it stays at tier 1.
    Loops(Reason),
}

/// Functions that stay at their first version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StayingStats {
    /// Their names with the reason, sorted by the reason, then the name.
    pub functions: Vec<(String, Staying)>,
}

impl fmt::Display for Staying {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Staying::Coroutine => f.write_str("keeps its first version: coroutine"),
            Staying::NativeLabels => f.write_str("keeps its first version: labels of native code"),
            Staying::Loops(reason) => write!(f, "no loop can be left: {reason}"),
        }
    }
}

impl StayingStats {
    pub(crate) fn json(&self) -> String {
        let mut all = String::new();
        for (name, why) in &self.functions {
            let comma = if all.is_empty() { "" } else { "," };
            let name = name.replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(
                all,
                "{comma}{{\"function\":\"{name}\",\"reason\":\"{why}\"}}"
            );
        }
        format!("[{all}]")
    }

    /// Lines of the table, each with its newline; none if no function stays.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        if self.functions.is_empty() {
            return table;
        }
        let all = self.functions.len();
        let _ = writeln!(table, "functions that stay      {all:>10}");
        for (name, why) in self.functions.iter().take(NAMED) {
            let _ = writeln!(table, "  {name}  {why}");
        }
        if let Some(more @ 1..) = all.checked_sub(NAMED) {
            let _ = writeln!(table, "  {more} more");
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_named_and_the_rest_counted() {
        let name = |at| (format!("f{at}"), Staying::Coroutine);
        let stats = StayingStats {
            functions: (0..10).map(name).collect(),
        };
        let table = stats.table();
        assert!(table.contains("  f7  keeps its first version: coroutine\n  2 more\n"));
        assert_eq!(StayingStats::default().table(), "");
        assert_eq!(StayingStats::default().json(), "[]");
    }
}
