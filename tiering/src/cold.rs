//! Whose code goes when there is more than a budget allows: what was not used for longest.
//!
//! Whoever holds the code *looks* now and then: it says of each function with code whether it was
//! used since the look before, and how many bytes it has. A look is one tick of a clock; what counts
//! is at which tick a function was last used.
//!
//! | formula | with |
//! |---|---|
//! | next look at `held + limit / LOOKS`, at `limit * FIRST_LOOK` the earliest | looks cost as much as there are functions, so they come as code does |
//! | evict if `held > limit`, until `held <= limit * ROOM` | else each new function would evict one |
//! | order: by last use, then large ones first; protected ones last, the latest first | |
//! | protected until `tick + PROTECTED << min(times, TIMES)`, while it is used | code that came back within `SOON` ticks of its eviction, `times` in a row |
//!
//! Where more is used by turns than the budget allows, age is the worst order: each member makes room
//! for the next, and all are compiled each time. Those that came back first stay then, and the rest
//! takes turns in what is left. It is an order and no exemption: the budget holds.
//!
//! Pure: bytes and bits in, functions out.

use std::collections::HashMap;

use crate::ids::FunctionId;

/// Looks between an empty and a full budget.
const LOOKS: u64 = 10;

/// Of the limit, in percent: below, nobody looks.
const FIRST_LOOK: u64 = 60;

/// Of the limit, in percent: what is left after an eviction.
const ROOM: u64 = 80;

/// Ticks within which code that comes back was evicted too soon; and after which, unused, it is not
/// protected any more.
const SOON: u64 = 2 * LOOKS;

/// Ticks for which it is then protected, the first time.
const PROTECTED: u64 = LOOKS;

/// Evictions in a row that make protection longer.
pub const TIMES: u32 = 5;

/// A function with code, when it is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resident {
    /// Which.
    pub function: FunctionId,
    /// Bytes of its code.
    pub bytes: u64,
    /// Whether it was called, or seen running, since the look before.
    pub used: bool,
}

/// What is known of a function.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// When it was last used.
    used: u64,
    /// When it was last evicted; zero for never.
    evicted: u64,
    /// Since when it is protected, and until when.
    since: u64,
    protected: u64,
    /// How often it came back too soon, in a row.
    times: u32,
    /// Whether it has code, as of the last look or since.
    here: bool,
}

/// What is known of all functions.
#[derive(Clone, Debug, Default)]
pub struct Cold {
    limit: Option<u64>,
    tick: u64,
    /// What was held after the last look.
    held: u64,
    /// What came since.
    come: u64,
    functions: HashMap<FunctionId, Known>,
}

impl Cold {
    /// With a limit in bytes, or without.
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

    /// A function got code.
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

    /// Whether it is time for a look.
    pub fn is_due(&self) -> bool {
        let Some(limit) = self.limit else {
            return false;
        };
        let now = self.held.saturating_add(self.come);
        let first = part(limit, FIRST_LOOK);
        now > limit || (now > first && self.come > limit / LOOKS)
    }

    /// A look at all functions with code that can be evicted; those that are to be if no more
    /// than `most` bytes are to be left (`None`: as the limit says), coldest first.
    pub fn look(&mut self, residents: &[Resident], most: Option<u64>) -> Vec<FunctionId> {
        self.tick += 1;
        self.come = 0;
        self.held = residents.iter().map(|one| one.bytes).sum();
        for known in self.functions.values_mut() {
            known.here = false;
        }
        for one in residents {
            let known = self.functions.entry(one.function).or_insert(Known {
                used: self.tick,
                ..Known::default()
            });
            known.here = true;
            if one.used {
                known.used = self.tick;
            }
        }
        // Who is not here and will not be protected is as good as new.
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

    /// A function's code was evicted.
    pub fn went(&mut self, function: FunctionId, bytes: u64) {
        self.held = self.held.saturating_sub(bytes);
        let known = self.functions.entry(function).or_default();
        known.here = false;
        known.evicted = self.tick;
    }
}

/// So many percent of `limit`.
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
            // Twenty functions are used all the time.
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
        // By age alone every call would compile: 12,000.
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
