//! State of the host that code refers to.

use std::any::Any;
use std::sync::Arc;

/// State of a closure that code refers to.
pub(crate) type HostState = Arc<dyn Any + Send + Sync>;

/// Produces a body, or makes a caller wait for it.
///
/// In the names of placeholders' files, between the function's name and a number.
pub(crate) const FILE_MARK: &str = ", before its first call (";

/// Whether a module with state of the host is that of a placeholder.
pub(crate) fn is_placeholder(file: &str) -> bool {
    file.contains(FILE_MARK)
}
