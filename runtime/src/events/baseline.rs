//! Statistics of the baseline compiler.

/// Reasons that the table names.
const REASONS: usize = 8;

/// Statistics of the baseline compiler; see [`JitBuilder::baseline`](crate::JitBuilder::baseline).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct BaselineStats {
    /// Versions that it compiled.
    pub compiled: u64,
    /// Compiles that went to LLVM instead, by the construct that is not covered; the most frequent
    /// first.
    pub uncovered: Vec<(&'static str, u64)>,
}

impl BaselineStats {
    pub(crate) fn json(&self) -> String {
        let reasons = self.uncovered.iter();
        let reasons: Vec<_> = reasons
            .map(|(what, count)| format!("\"{what}\":{count}"))
            .collect();
        format!(
            "{{\"compiled\":{},\"uncovered\":{{{}}}}}",
            self.compiled,
            reasons.join(","),
        )
    }

    /// Lines of the table, each with its newline; none if it was not used.
    pub(crate) fn table(&self) -> String {
        if *self == BaselineStats::default() {
            return String::new();
        }
        let all: u64 = self.uncovered.iter().map(|(_, count)| count).sum();
        let mut text = format!(
            "compiled without LLVM    {:>10}\n\
             \x20 not covered           {all:>10}\n",
            self.compiled,
        );
        for (what, count) in self.uncovered.iter().take(REASONS) {
            text += &format!("    {count:>9} {what}\n");
        }
        if let Some(more @ 1..) = self.uncovered.len().checked_sub(REASONS) {
            text += &format!("    and {more} more reasons\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_a_line_each_up_to_a_limit() {
        assert_eq!(BaselineStats::default().table(), "");
        let stats = BaselineStats {
            compiled: 12,
            uncovered: vec![("inline assembly", 2), ("`llvm.x`", 1)],
        };
        let json = r#"{"compiled":12,"uncovered":{"inline assembly":2,"`llvm.x`":1}}"#;
        assert_eq!(stats.json(), json);
        let table = "compiled without LLVM            12\n  not covered                    3\n            2 inline assembly\n            1 `llvm.x`\n";
        assert_eq!(stats.table(), table);
        let uncovered = vec![("something", 1); REASONS + 2];
        let table = BaselineStats { uncovered, ..stats }.table();
        assert!(table.ends_with("    and 2 more reasons\n"), "{table}");
    }
}
