//! Errors of a scanner as a whole.

/// A scanner that cannot be made, or a wrong request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RootsError {
    /// Regions are not empty and shorter than 4 GiB.
    #[error("region {start:#x}..{end:#x} is empty or longer than 4 GiB")]
    BadRegion {
        /// First byte.
        start: u64,
        /// End.
        end: u64,
    },
    /// Wanted ranges must be sorted, not empty and not overlap.
    #[error("wanted range {index} ({start:#x}..{end:#x}) is empty, unsorted or overlaps")]
    BadRange {
        /// Its index.
        index: usize,
        /// First byte.
        start: u64,
        /// End.
        end: u64,
    },
    /// A stack to register is not empty and aligned to 8 bytes.
    #[error("stack {start:#x}..{end:#x} is empty or not aligned to 8 bytes")]
    BadStack {
        /// First byte.
        start: u64,
        /// End.
        end: u64,
    },
    /// No room for another registered stack.
    #[error("all {capacity} places for registered stacks are taken")]
    ManyStacks {
        /// The number of places.
        capacity: usize,
    },
    /// The kernel or a filter forbids `process_vm_readv` on the process itself.
    #[error("process_vm_readv is not allowed")]
    NoReading,
}
