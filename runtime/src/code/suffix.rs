//! Numbers that distinguish the local names of images. Numbers of removed images are used again: a
//! host that adds and removes one module for months has no new names for its internal functions.
//!
//! # Invariant A number belongs to one image at a time. It is held by the image's
//! [`Life`](crate::code::life::Life). All users of the image's local names hold that (its modules, code
//! that was linked against it, images bound to it), and so do the trackers under which these names
//! are defined. Local names of replacements are passed on to later ones, so that their numbers are
//! not used again.

use std::sync::Arc;

use uruk_base::locks::Mutex;

use crate::fork::gate;

/// Numbers that are not in use, the greatest last.
#[derive(Debug, Clone, Default)]
pub(crate) struct Suffixes(Arc<Mutex<Vec<u64>>>);

/// The number of an image's local names.
#[derive(Debug)]
pub(crate) struct Suffix {
    number: u64,
    all: Suffixes,
}

impl Suffixes {
    /// A number for an image: one that was used before, or else `new`. Under a pass.
    pub(crate) fn take(&self, new: impl FnOnce() -> u64) -> Arc<Suffix> {
        let free = self.0.lock().pop();
        Arc::new(Suffix {
            number: free.unwrap_or_else(new),
            all: self.clone(),
        })
    }
}

impl Suffix {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Suffix {
    fn drop(&mut self) {
        let _pass = gate::enter();
        let mut free = self.all.0.lock();
        free.push(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::Suffixes;
    use crate::fork::gate;

    #[test]
    fn a_number_is_one_images_at_a_time() {
        let _pass = gate::enter();
        let all = Suffixes::default();
        let [one, two] = [7, 8].map(|number| all.take(|| number));
        assert_eq!([one.number(), two.number()], [7, 8]);
        let kept = one.clone();
        drop(one);
        assert_eq!(all.take(|| 9).number(), 9);
        assert_eq!(all.take(|| 10).number(), 9);
        drop(kept);
        assert_eq!(all.take(|| 10).number(), 7);
    }
}
