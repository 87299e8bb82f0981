//! Names that an image settles before archives are asked for members.

use std::collections::HashSet;
use std::sync::{Arc, OnceLock};

/// Names that are settled without an archive; once they are known, it defines others only.
///
/// The members that a program needs are in its image, so a name that the image mentions and does
/// not define is one that may be missing, such as a weak one.
#[derive(Clone)]
pub(crate) struct Settled(Option<Arc<OnceLock<HashSet<String>>>>);

impl Settled {
    /// No names.
    pub(crate) const NONE: Settled = Settled(None);

    /// The names given to [`Settled::are`]; until then all are settled.
    pub(crate) fn later() -> Settled {
        Settled(Some(Arc::default()))
    }

    /// Sets the names.
    pub(crate) fn are(&self, names: HashSet<String>) {
        if let Some(known) = &self.0 {
            // Set once.
            let _ = known.set(names);
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        match &self.0 {
            None => false,
            Some(names) => names.get().is_none_or(|names| names.contains(name)),
        }
    }
}
