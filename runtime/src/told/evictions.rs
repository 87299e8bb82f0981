//! What is told of evictions of code.

/// Evictions of code; see [`JitBuilder::code_budget`](crate::JitBuilder::code_budget).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EvictionStats {
    /// The budget in bytes, if there is one.
    pub budget: Option<u64>,
    /// How often it was looked which code is used.
    pub looks: u64,
    /// Functions whose code went, each as often as it did.
    pub evicted: u64,
    /// Bytes of that code.
    pub evicted_bytes: u64,
    /// Of those, how often one was compiled again because it was called.
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
