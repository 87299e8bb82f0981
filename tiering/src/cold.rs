//! Chooses the code to evict when it exceeds a budget: the least recently used.
//!
//! The holder of the code *looks* now and then: it reports for each function with code its bytes,
//! and whether it was used since the look before. A look is one tick of a clock; the order depends
//! on the tick at which a function was last used.
//!
//! | formula | with |
//! |---|---|
//! | next look at `held + limit / LOOKS`, at `limit * FIRST_LOOK` the earliest | the cost of a look is linear in the functions, so looks follow the growth of code |
//! | evict if `held > limit`, until `held <= limit * ROOM` | else each new function would evict one |
//! | order: by last use, then large ones first; protected ones last, the latest first | |
//! | protected until `tick + PROTECTED << min(times, TIMES)`, while it is used | code that came back within `SOON` ticks of its eviction, `times` in a row |
//!
//! If more code is used by turns than the budget allows, age is the worst order: each member makes
//! room for the next, and all are compiled each time. With protection, those that came back first
//! stay, and the rest share the remaining room. Protection changes the order and exempts no
//! function: the budget holds.
//!
//! Pure: bytes and bits in, functions out.

use std::collections::HashMap;

use crate::ids::FunctionId;

/// Looks between an empty and a full budget.
const LOOKS: u64 = 10;

/// Percentage of the limit below which no look is due.
const FIRST_LOOK: u64 = 60;

/// Percentage of the limit that is kept by an eviction.
const ROOM: u64 = 80;

/// Ticks within which code that comes back was evicted too soon. Protection also ends after so many
/// ticks without use.
const SOON: u64 = 2 * LOOKS;

/// Ticks of protection, the first time.
const PROTECTED: u64 = LOOKS;

/// Evictions in a row that make protection longer, at most.
pub const TIMES: u32 = 5;

/// A function with code, at a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// The function.
    pub function: FunctionId,
    /// Bytes of its code.
    pub bytes: u64,
    /// Whether it was called, or seen running, since the look before.
    pub used: bool,
}

/// The record of one function.
#[derive(Clone, Copy, Debug, Default)]
struct UseRecord {
    /// Tick of the last use.
    used: u64,
    /// Tick of the last eviction; zero for never.
    evicted: u64,
    /// Tick at which protection began; `protected` is its end.
    since: u64,
    protected: u64,
    /// Number of returns that were too soon, in a row.
    times: u32,
    /// Whether it has code, as of the last look or later.
    here: bool,
}

/// The records of all functions, and the budget.
#[derive(Clone, Debug, Default)]
pub struct Cold {
    limit: Option<u64>,
    tick: u64,
    /// Bytes held after the last look.
    held: u64,
    /// Bytes added since.
    come: u64,
    functions: HashMap<FunctionId, UseRecord>,
}

impl Cold {
    /// Makes an empty record, with a limit in bytes or without.
    pub fn new(limit: Option<u64>) -> Cold {
        Cold {
            limit,
            tick: 1,
            ..Cold::default()
        }
    }

    /// The limit.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// Records that a function got code.
    pub fn came(&mut self, function: FunctionId, bytes: u64) {
        self.come += bytes;
        let Some(known) = self.functions.get_mut(&function) else {
            return;
        };
        if known.here || known.evicted == 0 {
            return;
        }
        known.here = true;
        known.used = self.tick;
        if self.tick - known.evicted <= SOON {
            known.since = self.tick;
            known.protected = self.tick + (PROTECTED << known.times.min(TIMES));
            known.times += 1;
        } else {
            known.times = 0;
        }
    }

    /// Whether a look is due.
    pub fn is_due(&self) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        let now = self.held.saturating_add(self.come);
        let first = part(limit, FIRST_LOOK);
        now > limit || (now > first && self.come > limit / LOOKS)
    }

    /// Takes a look at all functions with code that can be evicted. Returns the functions to evict
    /// so that at most `most` bytes are left (`None`: as the limit demands), coldest first.
    pub fn look(&mut self, residents: &[Resident], most: Option<u64>) -> Vec<FunctionId> {
        self.tick += 1;
        self.come = 0;
        self.held = residents.iter().map(|one| one.bytes).sum();
        for known in self.functions.values_mut() {
            known.here = false;
        }
        for one in residents {
            let known = self.functions.entry(one.function).or_insert(UseRecord {
                used: self.tick,
                ..UseRecord::default()
            });
            known.here = true;
            if one.used {
                known.used = self.tick;
            }
        }
        // A function without code that would not be protected on its return needs no record.
        let oldest = self.tick.saturating_sub(SOON);
        self.functions
            .retain(|_, known| known.here || known.evicted > oldest);
        let most = match (most, self.limit) {
            (Some(most), _) => most,
            (None, Some(limit)) if self.held > limit => part(limit, ROOM),
            _ => return Vec::new(),
        };
        self.coldest(residents, most)
    }

    fn coldest(&self, residents: &[Resident], most: u64) -> Vec<FunctionId> {
        let mut order: Vec<_> = residents
            .iter()
            .map(|one| {
                let known = self.functions.get(&one.function).copied();
                let known = known.unwrap_or_default();
                let protected = known.protected > self.tick && self.tick - known.used <= SOON;
                let age = match protected {
                    true => u64::MAX - known.since,
                    false => known.used,
                };
                let bytes = std::cmp::Reverse(one.bytes);
                (protected, age, bytes, one.function)
            })
            .collect();
        order.sort_unstable();
        let mut left = self.held;
        let goes = |&(_, _, std::cmp::Reverse(bytes), function): &(_, _, _, FunctionId)| {
            (left > most).then(|| {
                left -= bytes;
                function
            })
        };
        order.iter().map_while(goes).collect()
    }

    /// Records that a function's code was evicted.
    pub fn went(&mut self, function: FunctionId, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        let known = self.functions.entry(function).or_default();
        known.here = false;
        known.evicted = self.tick;
    }
}

/// A percentage of `limit`.
fn part(limit: u64, percent: u64) -> u64 {
    limit / 100 * percent + limit % 100 * percent / 100
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine with functions of 10 bytes each, compiled when they are called.
    struct Machine {
        cold: Cold,
        here: HashMap<u32, bool>,
        compiles: u32,
        most: u64,
    }

    impl Machine {
        fn new(limit: u64) -> Machine {
            Machine {
                cold: Cold::new(Some(limit)),
                here: HashMap::new(),
                compiles: 0,
                most: 0,
            }
        }

        fn call(&mut self, number: u32) {
            if self.here.insert(number, true).is_some() {
                return;
            }
            self.compiles += 1;
            self.cold.came(FunctionId(number), 10);
            if !self.cold.is_due() {
                return;
            }
            let residents = self.here.iter_mut().map(|(&number, used)| Resident {
                function: FunctionId(number),
                bytes: 10,
                used: std::mem::take(used),
            });
            let residents: Vec<_> = residents.collect();
            for gone in self.cold.look(&residents, None) {
                self.here.remove(&gone.0);
                self.cold.went(gone, 10);
            }
            self.most = self.most.max(self.here.len() as u64 * 10);
        }
    }

    #[test]
    fn what_is_used_stays_and_the_budget_holds() {
        let mut machine = Machine::new(1000);
        for number in 0..10_000 {
            machine.call(number);
            // Twenty functions are in use all the time.
            machine.call(number % 20);
        }
        assert!(machine.most <= 1000, "{}", machine.most);
        assert_eq!(machine.compiles, 10_000, "none of the twenty went");
        assert!(
            machine.cold.functions.len() < 1000,
            "what went long ago is forgotten"
        );
    }

    #[test]
    fn a_set_that_is_too_large_stays_in_part() {
        let mut machine = Machine::new(1000);
        for round in 0..200 {
            for number in 0..120 {
                machine.call(number);
            }
            if round == 99 {
                machine.compiles = 0;
            }
        }
        // With age alone every call would compile: 12,000.
        assert!(machine.compiles < 9_000, "{}", machine.compiles);
        assert!(machine.most <= 1000);
    }

    #[test]
    fn nobody_looks_while_there_is_room() {
        let mut cold = Cold::new(Some(1000));
        for number in 0..60 {
            cold.came(FunctionId(number), 10);
            assert!(!cold.is_due(), "{number}");
        }
        assert!(!Cold::new(None).is_due());
        cold.came(FunctionId(60), 500);
        assert!(cold.is_due());
    }

    #[test]
    fn who_asks_for_less_gets_the_coldest_of_all() {
        let mut cold = Cold::new(None);
        let resident = |number, bytes, used| Resident {
            function: FunctionId(number),
            bytes,
            used,
        };
        let look = |cold: &mut Cold, used: [bool; 3], most| {
            let all = [(1, 10), (2, 30), (3, 20)].iter().zip(used);
            let all: Vec<_> = all.map(|(&(n, b), used)| resident(n, b, used)).collect();
            let gone = cold.look(&all, Some(most)).into_iter();
            gone.map(|function| function.0).collect::<Vec<_>>()
        };
        assert_eq!(look(&mut cold, [true; 3], 60), [0; 0]);
        assert_eq!(look(&mut cold, [true, false, true], 60), [0; 0]);
        assert_eq!(look(&mut cold, [true, false, true], 59), [2]);
        assert_eq!(look(&mut cold, [false, false, true], 25), [2, 1]);
        assert_eq!(look(&mut cold, [false; 3], 0), [2, 1, 3]);
    }
}
