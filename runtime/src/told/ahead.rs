//! Statistics of compiles ahead of first calls.

use crate::speculation::SpeculationStats;

impl SpeculationStats {
    /// Compiles in vain so far.
    pub(super) fn wasted(&self) -> u64 {
        self.compiled.saturating_sub(self.called)
    }

    pub(crate) fn json(&self) -> String {
        format!(
            "{{\"compiled\":{},\"called\":{},\"joined\":{},\"failed\":{}}}",
            self.compiled, self.called, self.joined, self.failed,
        )
    }

    /// Lines of the table, each with its newline.
    pub(crate) fn table(&self) -> String {
        if *self == SpeculationStats::default() {
            return String::new();
        }
        let share = self.wasted() as f64 * 100.0 / self.compiled.max(1) as f64;
        format!(
            "compiled ahead           {:>10}\n\
             \x20 called while compiled {:>10}\n\
             \x20 called after          {:>10}\n\
             \x20 not called            {:>10} = {share:.0} %\n",
            self.compiled,
            self.joined,
            self.called.saturating_sub(self.joined),
            self.wasted(),
        )
    }
}
