//! Statistics of evictions of code.

/// Evictions of code; see [`JitBuilder::code_budget`](crate::JitBuilder::code_budget).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictionStats {
    /// The budget in bytes, if there is one.
    pub budget: Option<u64>,
    /// How often the use of code was checked.
    pub looks: u64,
    /// Evictions of functions' code.
    pub evicted: u64,
    /// Bytes of that code.
    pub evicted_bytes: u64,
    /// Number of these functions that were compiled again for a call.
    pub returned: u64,
}

impl EvictionStats {
    /// Lines of the table, each with its newline; none without evictions.
    pub(crate) fn table(&self) -> String {
        match self.evicted {
            0 => String::new(),
            _ => format!(
                "evicted code             {:>10} bytes of {} functions, {} compiled again\n",
                self.evicted_bytes, self.evicted, self.returned,
            ),
        }
    }
}
