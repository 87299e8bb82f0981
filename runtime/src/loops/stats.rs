//! Statistics of continuations.

use std::fmt::Write;

use uruk_codegen::Reason;

/// Loops that were left for better code while they ran. See [`Dylib::osr_loops`].
///
/// [`Dylib::osr_loops`]: crate::Dylib::osr_loops
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ContinuationStats {
    /// Continuations that were offered.
    pub offered: u64,
    /// How often a loop was left for one.
    pub left: u64,
    /// Loops that cannot be left, by the reason, the most frequent first. Of code of the baseline
    /// compiler that is known of a function once one of its loops is to be left.
    pub refused: Vec<(Reason, u64)>,
}

impl ContinuationStats {
    pub(crate) fn json(&self) -> String {
        let mut refused = String::new();
        for (reason, loops) in &self.refused {
            let comma = if refused.is_empty() { "" } else { "," };
            let _ = write!(refused, "{comma}\"{reason}\":{loops}");
        }
        let (offered, left) = (self.offered, self.left);
        format!("{{\"offered\":{offered},\"left\":{left},\"refused\":{{{refused}}}}}")
    }

    /// Lines of the table, each with its newline.
    pub(crate) fn table(&self) -> String {
        let mut table = String::new();
        if (self.offered, self.left) != (0, 0) {
            let _ = writeln!(table, "continuations offered    {:>10}", self.offered);
            let _ = writeln!(table, "  loops left for one     {:>10}", self.left);
        }
        if !self.refused.is_empty() {
            let all: u64 = self.refused.iter().map(|(_, loops)| loops).sum();
            let why = |(reason, loops): &(Reason, u64)| format!("{reason} {loops}");
            let why: Vec<String> = self.refused.iter().map(why).collect();
            let why = why.join(", ");
            let _ = writeln!(table, "loops that stay          {all:>10}  {why}");
        }
        table
    }
}
