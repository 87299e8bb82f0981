//! Inputs are admitted once a child has read them.

use super::InputLimits;
use crate::error::Error;
use crate::load::loader::Loader;
use crate::load::source::InputSource;

impl Loader {
    /// Makes a child read inputs within `limits`, if given; once, at the beginning.
    pub(crate) fn distrust(&self, limits: Option<InputLimits>) {
        if let Some(limits) = limits {
            let _ = self.untrusted.set(limits);
        }
    }

    /// Makes a child read `source`, if the session's inputs are untrusted. Without a pass.
    pub(crate) fn admit(&self, source: &InputSource) -> Result<(), Error> {
        let limits = self.untrusted.get();
        limits.map_or(Ok(()), |limits| limits.admit(source))
    }
}
