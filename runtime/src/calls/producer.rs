//! Producers of functions whose IR is produced at their first call.

/// A producer, whatever the type of its closure.
pub(crate) trait Lazy: Send + Sync {
    /// The file of its placeholder.
    fn file(&self) -> &str;

    /// Drops the closure, unless it is in use.
    fn lapse(&self);

    /// Resets production in the child of a fork: no thread produces a body.
    fn after_fork_child(&self);
}
