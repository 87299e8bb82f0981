//! Predicts which functions are about to be called for the first time.
//!
//! A program that starts calls hundreds of functions once. All but a few of these calls are in the
//! body of a function that was called before, so the bodies of compiled functions contain the
//! candidates. The question is which of them come, and which come next. [`Foresight`] follows the
//! program by its first calls. Each first call shows the caller's position in its body, and its
//! caller's in turn, and so the calls that may come after it ([`course`]).
//!
//! ```text
//! main ── open ──> parse ──> next     the chain: each stands at a call of the one after it
//!   │       └ close  └ reduce         candidates: calls after the position of each of them,
//!   └ print              └ ...        and the callees of those, if their bodies are known
//! ```
//!
//! # Invariants
//! - A function is proposed once, until it is [forgotten](Foresight::forget).
//! - A proposal is no promise that a call comes. Wrong guesses cost time, so the number of
//!   outstanding guesses is bounded by that of earlier right ones ([`Foresight::may_guess`]).
//! - Bodies kept are bounded ([`MOST_BLOCKS`]).
//!
//! # Why
//! Guesses by the callees of compiled code alone, with any weights derived from a body, were half
//! wrong for sqlite (611 functions of 2,647 run in a trivial query). A chain makes it a quarter at
//! the same speed, because branches that were passed are no candidates. The chances of branches
//! were fitted to the first calls of sqlite and Lua.
//!
//! Of a known order the next few are skipped: with the very next one, the compiler and the program
//! would do the same work at the same time. Computed for the first calls of sqlite's trivial query,
//! with one thread that compiles ahead beside the program. As a part of the time without it: 0.91
//! with the next, 0.63 with the second, 0.55 with the fourth, 0.57 with the ninth. Among guesses
//! none is skipped: the likeliest are the nearest, and a more distant one costs more by being wrong
//! than it gains (0.68 without skipping, 0.72 to 0.83 with one to four skipped).

mod course;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

pub use course::{Course, Sketch};

use crate::ids::FunctionId;

/// The least chance of a candidate.
const LEAST: f32 = 0.15;
/// Factor on the chance of a call for each return on the way to it.
const RETURN: f32 = 0.97;
/// Depth of calls between one on the chain and a candidate.
const DEPTH: u32 = 3;
/// Candidates examined for a guess.
const STEPS: usize = 4_096;
/// Number of next expected functions that are left to the program, as long as there are more.
const NEXT: usize = 3;
/// Functions on the chain: a longer one loses its first.
const CHAIN: usize = 24;
/// Guesses that may be outstanding, independent of the success of others. With 28, and one more for
/// five guesses made, a short run of SQLite took 1.13 of the time, and the same processor time: the
/// idle processor compiled 370 of 1,250 functions ahead in place of 620, and 75 that were not called
/// in place of 130. More than this gained nothing.
const LEAD: usize = 60;
/// For this many guesses made, one more may be outstanding.
const EACH: usize = 3;
/// Blocks of all bodies that are kept: some 5 MB.
const MOST_BLOCKS: usize = 200_000;

/// A function that is taken to be running.
#[derive(Debug)]
struct Level {
    function: FunctionId,
    /// The call that it is at; `None` at its entry.
    at: Option<usize>,
    ahead: Vec<(FunctionId, f32)>,
}

/// The state of one function.
#[derive(Clone, Copy, Debug, Default)]
struct CallState {
    /// It is being compiled, or was.
    begun: bool,
    called: bool,
    guessed: bool,
}

/// Follows a program by its first calls; see the module.
#[derive(Debug, Default)]
pub struct Foresight {
    courses: HashMap<FunctionId, Arc<Course>>,
    blocks: usize,
    known: HashMap<FunctionId, CallState>,
    chain: Vec<Level>,
    /// Expected first calls in their order, and those of them that are still awaited.
    expected: VecDeque<FunctionId>,
    awaited: HashSet<FunctionId>,
    /// The callers of functions by their bodies, once they were asked for.
    callers: Option<HashMap<FunctionId, Vec<FunctionId>>>,
    /// Guesses so far, and those that came true.
    guesses: (usize, usize),
}

impl Foresight {
    /// Whether the body of `function` is known.
    pub fn knows(&self, function: FunctionId) -> bool {
        self.courses.contains_key(&function)
    }

    /// Takes the body of a function.
    pub fn add(&mut self, function: FunctionId, course: Course) {
        if self.blocks + course.blocks() > MOST_BLOCKS {
            return;
        }
        self.blocks += course.blocks();
        for level in &mut self.chain {
            if level.function == function && level.at.is_none() {
                level.ahead = course.ahead().to_vec();
            }
        }
        self.drop_course(function);
        if let Some(callers) = &mut self.callers {
            note_calls(callers, function, &course);
        }
        self.courses.insert(function, Arc::new(course));
    }

    /// The functions whose bodies are known, and call `callee` by name. The first question builds a
    /// table of all callers.
    pub fn callers(&mut self, callee: FunctionId) -> &[FunctionId] {
        let callers = self.callers.get_or_insert_with(|| {
            let mut callers = HashMap::new();
            for (&caller, course) in &self.courses {
                note_calls(&mut callers, caller, course);
            }
            callers
        });
        callers.get(&callee).map_or(&[], Vec::as_slice)
    }

    /// Appends functions to the expected order of first calls.
    pub fn expect(&mut self, functions: impl IntoIterator<Item = FunctionId>) {
        for function in functions {
            self.awaited.insert(function);
            self.expected.push_back(function);
        }
    }

    /// Records that `function` is being compiled, or was: it is no candidate.
    pub fn begun(&mut self, function: FunctionId) {
        self.known.entry(function).or_default().begun = true;
    }

    /// Records that `function` is called for the first time; false if that was known.
    pub fn called(&mut self, function: FunctionId) -> bool {
        let known = self.known.entry(function).or_default();
        known.begun = true;
        if std::mem::replace(&mut known.called, true) {
            return false;
        }
        if known.guessed {
            self.guesses.1 += 1;
        }
        let calls = |level: &Level| {
            let course = self.courses.get(&level.function)?;
            let at = course.find(function, level.at)?;
            Some((at, Arc::clone(course)))
        };
        let levels = self.chain.iter().enumerate().rev();
        let mut callers = levels.filter_map(|(place, level)| Some((place, calls(level)?)));
        // Without a caller on the chain, the last function called it through a pointer.
        if let Some((place, (at, course))) = callers.next() {
            self.chain.truncate(place + 1);
            let level = &mut self.chain[place];
            level.at = Some(at);
            level.ahead = course.chances(level.at);
        }
        if self.chain.len() >= CHAIN {
            self.chain.remove(0);
        }
        let course = self.courses.get(&function);
        self.chain.push(Level {
            function,
            at: None,
            ahead: course.map_or_else(Vec::new, |course| course.ahead().to_vec()),
        });
        true
    }

    /// Drops the records of a function that was replaced or removed.
    pub fn forget(&mut self, function: FunctionId) {
        self.drop_course(function);
        if self
            .known
            .remove(&function)
            .is_some_and(|known| known.guessed && !known.called)
        {
            // It can no longer come true or be wrong.
            self.guesses.0 -= 1;
        }
        self.chain.retain(|level| level.function != function);
        self.awaited.remove(&function);
    }

    /// Takes a guess back that was not compiled: it does not count, and is not repeated.
    pub fn unguess(&mut self, function: FunctionId) {
        let known = self.known.entry(function).or_default();
        if std::mem::take(&mut known.guessed) {
            self.guesses.0 -= 1;
            self.guesses.1 -= usize::from(known.called);
        }
    }

    /// The number of guesses so far, and how many of them were called.
    pub fn guesses(&self) -> (usize, usize) {
        self.guesses
    }

    /// Whether enough guesses came true to make another one.
    pub fn may_guess(&self) -> bool {
        let (made, true_ones) = self.guesses;
        let outstanding = made - true_ones;
        outstanding < LEAD + made / EACH
    }

    /// Makes the best guess, which counts as begun; `None` without a candidate, or if no guess may
    /// be made.
    pub fn guess(&mut self) -> Option<FunctionId> {
        if !self.may_guess() {
            return None;
        }
        let next = self.next_expected().or_else(|| self.likeliest())?;
        let known = self.known.entry(next).or_default();
        known.begun = true;
        known.guessed = true;
        self.guesses.0 += 1;
        Some(next)
    }

    fn drop_course(&mut self, function: FunctionId) {
        let Some(course) = self.courses.remove(&function) else {
            return;
        };
        self.blocks -= course.blocks();
        let Some(callers) = &mut self.callers else {
            return;
        };
        for callee in course.callees() {
            if let Some(of_one) = callers.get_mut(&callee) {
                of_one.retain(|caller| *caller != function);
            }
        }
    }

    fn is_begun(&self, function: FunctionId) -> bool {
        self.known.get(&function).is_some_and(|known| known.begun)
    }

    fn next_expected(&mut self) -> Option<FunctionId> {
        let mut near = Vec::with_capacity(NEXT + 1);
        while near.len() <= NEXT
            && let Some(next) = self.expected.pop_front()
        {
            if self.awaited.contains(&next) && !self.is_begun(next) {
                near.push(next);
            }
        }
        let found = match near.len() {
            0 => return None,
            many if many > NEXT => near.remove(NEXT),
            _ => near.remove(0),
        };
        near.into_iter()
            .rev()
            .for_each(|next| self.expected.push_front(next));
        Some(found)
    }

    fn likeliest(&self) -> Option<FunctionId> {
        let mut best: Option<(FunctionId, f32)> = None;
        let mut reach = 1.0;
        let mut steps = STEPS;
        for level in self.chain.iter().rev() {
            self.look(&level.ahead, reach, DEPTH, &mut best, &mut steps);
            reach *= RETURN;
        }
        best.map(|(function, _)| function)
    }

    /// Searches the calls `ahead`, which are reached with chance `reach`, for a better candidate.
    fn look(
        &self,
        ahead: &[(FunctionId, f32)],
        reach: f32,
        depth: u32,
        best: &mut Option<(FunctionId, f32)>,
        steps: &mut usize,
    ) {
        for &(function, chance) in ahead {
            let Some(left) = steps.checked_sub(1) else {
                return;
            };
            *steps = left;
            let chance = chance * reach;
            let least = best.map_or(LEAST, |(_, best)| best);
            // Callees of a call are no likelier than the call itself.
            if chance < least || best.is_some_and(|(_, best)| chance == best) {
                continue;
            }
            let known = self.known.get(&function).copied().unwrap_or_default();
            if !known.begun {
                *best = Some((function, chance));
            } else if !known.called
                && depth > 0
                && let Some(course) = self.courses.get(&function)
            {
                self.look(course.ahead(), chance, depth - 1, best, steps);
            }
        }
    }
}

fn note_calls(
    callers: &mut HashMap<FunctionId, Vec<FunctionId>>,
    caller: FunctionId,
    course: &Course,
) {
    for callee in course.callees() {
        callers.entry(callee).or_default().push(caller);
    }
}
