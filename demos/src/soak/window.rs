//! Versions that may answer, as exchanges begin and end.
//!
//! A request may be answered by each version that was possible at one moment between the request and
//! its answer: the one that was acknowledged last before the request, and all whose exchange had begun
//! before the answer came.

use std::sync::{Mutex, PoisonError};

/// The possible versions of one file, in the order of time: a list for each time without a change.
#[derive(Debug)]
pub struct Window(Mutex<Vec<Vec<u32>>>);

impl Window {
    /// Only this version is possible.
    pub fn new(version: u32) -> Window {
        Window(Mutex::new(vec![vec![version]]))
    }

    /// From now on these are possible.
    pub fn change(&self, possible: Vec<u32>) {
        self.with(|all| all.push(possible));
    }

    /// The present moment.
    pub fn now(&self) -> usize {
        self.with(|all| all.len() - 1)
    }

    /// Whether this version was possible at some time since that moment.
    pub fn allows(&self, since: usize, version: u32) -> bool {
        self.with(|all| {
            let mut stretches = all[since..].iter();
            stretches.any(|it| it.contains(&version))
        })
    }

    /// The versions that are possible now.
    pub fn possible(&self) -> Vec<u32> {
        self.with(|all| all.last().cloned().unwrap_or_default())
    }

    fn with<T>(&self, body: impl FnOnce(&mut Vec<Vec<u32>>) -> T) -> T {
        // A stretch is added whole.
        body(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::Window;

    #[test]
    fn versions_before_the_request_and_begun_later_are_no_answers() {
        let window = Window::new(1);
        window.change(vec![1, 2]);
        window.change(vec![2]);
        let since = window.now();
        assert!(!window.allows(since, 1));
        assert!(window.allows(since, 2));
        assert!(!window.allows(since, 3));
        window.change(vec![2, 3]);
        assert!(window.allows(since, 3));
        window.change(vec![2]);
        // It was possible meanwhile, and is not for a request that comes later.
        assert!(window.allows(since, 3));
        let since = window.now();
        assert!(!window.allows(since, 3));
        assert_eq!(window.possible(), [2]);
    }
}
