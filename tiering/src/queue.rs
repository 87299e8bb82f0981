//! A bounded queue of candidates for promotion, ordered by the rate at which they would save time
//! per time of their compile.
//!
//! That order, Smith's rule, minimizes the loss while they wait for each other. Ordered by rate
//! alone, an interpreter's loop that takes a second to compile would hold up a hundred functions
//! that take ten milliseconds each.
//!
//! All rates decay with the same time constant, so two candidates without new events keep their
//! order for ever. So keys that do not change with time can store the order: for a decayed sum `w`
//! last updated at `t`,
//!
//! ```text
//! ln w(now) = ln w + t / window - now / window        key = ln w + t / window
//! ```
//!
//! Insertion, update and removal cost O(log n); no operation walks the queue.

use std::collections::{BTreeSet, HashMap};

use crate::ids::{FunctionId, Nanos};

/// Position in the order; larger is hotter. See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Heat(i64);

/// Steps of a key per unit of the logarithm: differences of 0.1 % count. The largest ratio of time
/// to time constant, days to milliseconds, fits with plenty of room.
const STEPS: f64 = 1024.0;

impl Heat {
    /// The key of the decayed sum `decayed` at `at`.
    pub(crate) fn new(decayed: f64, at: Nanos, window: Nanos) -> Heat {
        let log = decayed.max(1e-9).ln() + at.as_f64() / window.as_f64();
        // The cast saturates; a tie is broken by the number of the function.
        Heat((log * STEPS) as i64)
    }
}

#[derive(Debug)]
pub(crate) struct Queue {
    order: BTreeSet<(Heat, FunctionId)>,
    heats: HashMap<FunctionId, Heat>,
    capacity: usize,
}

impl Queue {
    /// An empty queue for `capacity` candidates, at least one.
    pub(crate) fn new(capacity: u32) -> Queue {
        Queue {
            order: BTreeSet::new(),
            heats: HashMap::new(),
            capacity: (capacity as usize).max(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.order.len()
    }

    /// Inserts a candidate or changes its place. Returns the candidate that this evicts: the
    /// coldest, which may be the new one.
    pub(crate) fn put(&mut self, function: FunctionId, heat: Heat) -> Option<FunctionId> {
        if let Some(old) = self.heats.insert(function, heat) {
            self.order.remove(&(old, function));
        }
        self.order.insert((heat, function));
        if self.order.len() <= self.capacity {
            return None;
        }
        let (_, coldest) = self.order.pop_first()?;
        self.heats.remove(&coldest);
        Some(coldest)
    }

    pub(crate) fn remove(&mut self, function: FunctionId) -> bool {
        match self.heats.remove(&function) {
            Some(heat) => self.order.remove(&(heat, function)),
            None => false,
        }
    }

    /// Removes the hottest candidate.
    pub(crate) fn pop(&mut self) -> Option<FunctionId> {
        let (_, function) = self.order.pop_last()?;
        self.heats.remove(&function);
        Some(function)
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn contains(&self, function: FunctionId) -> bool {
        self.heats.contains_key(&function)
    }

    /// The approximate number of candidates hotter than `heat`, from its position between the
    /// hottest and the coldest: rates are spread over orders of magnitude, and a count would cost a
    /// walk.
    pub(crate) fn ahead(&self, heat: Heat) -> f64 {
        let (Some(&(coldest, _)), Some(&(hottest, _))) = (self.order.first(), self.order.last())
        else {
            return 0.0;
        };
        let span = hottest.0.saturating_sub(coldest.0).max(1) as f64;
        let below = hottest.0.saturating_sub(heat.0).max(0) as f64;
        self.order.len() as f64 * (below / span).min(1.0)
    }

    pub(crate) fn coldest(&self) -> Option<FunctionId> {
        self.order.first().map(|&(_, function)| function)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn heat(decayed: f64, at_ms: u64) -> Heat {
        Heat::new(decayed, Nanos::from_ms(at_ms), Nanos::from_ms(100))
    }

    #[test]
    fn the_hottest_comes_first_and_the_coldest_leaves() {
        let mut queue = Queue::new(3);
        for (id, decayed) in [(1, 5.0), (2, 9.0), (3, 7.0)] {
            assert_eq!(queue.put(FunctionId(id), heat(decayed, 0)), None);
        }
        // Colder than all: it is evicted at once.
        assert_eq!(queue.put(FunctionId(4), heat(1.0, 0)), Some(FunctionId(4)));
        assert_eq!(queue.put(FunctionId(5), heat(6.0, 0)), Some(FunctionId(1)));
        // An update moves a candidate and does not add one.
        assert_eq!(queue.put(FunctionId(5), heat(60.0, 0)), None);
        assert!(queue.remove(FunctionId(3)) && !queue.remove(FunctionId(3)));
        assert_eq!(queue.coldest(), Some(FunctionId(2)));
        assert_eq!(queue.pop(), Some(FunctionId(5)));
        assert_eq!(queue.pop(), Some(FunctionId(2)));
        assert_eq!((queue.pop(), queue.len()), (None, 0));
    }

    /// A sum of 100 at 0 ms is 100/e at 100 ms.
    #[test]
    fn old_sums_have_decayed() {
        assert!(heat(36.0, 100) < heat(100.0, 0));
        assert!(heat(37.5, 100) > heat(100.0, 0));
        assert!(heat(0.0, 0) < heat(1e-3, 0));
    }

    #[test]
    fn places_are_estimated() {
        let mut queue = Queue::new(100);
        assert_eq!(queue.ahead(heat(1.0, 0)), 0.0);
        for exponent in 0..=10 {
            queue.put(FunctionId(exponent), heat(f64::from(exponent).exp(), 0));
        }
        assert_eq!(queue.ahead(heat(1e9, 0)), 0.0);
        assert_eq!(queue.ahead(heat(0.1, 0)), 11.0);
        let middle = queue.ahead(heat(7.5f64.exp(), 0));
        assert!((2.0..3.5).contains(&middle), "{middle}");
    }

    /// Both indexes stay the same through a random walk.
    #[test]
    fn both_indexes_agree() {
        let mut queue = Queue::new(16);
        let mut random = uruk_testing::Random::new(7);
        for at in 0..2000 {
            let function = FunctionId(random.below(40) as u32);
            match random.below(4) {
                0 => drop(queue.remove(function)),
                1 => drop(queue.pop()),
                _ => drop(queue.put(function, heat(random.unit() * 1e6, at))),
            }
            assert!(queue.len() <= 16 && queue.heats.len() == queue.order.len());
            for &(heat, function) in &queue.order {
                assert_eq!(queue.heats.get(&function), Some(&heat));
            }
        }
    }
}
