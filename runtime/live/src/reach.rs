//! Finds functions of a module whose bodies, or facts of them, may be in native code of another one.
//!
//! | a function that native code calls, directly or through others | is |
//! |---|---|
//! | may be inlined there | held: the code may have a copy of its body |
//! | is never inlined, and has an entry that is redirected | relied on: the caller may use facts that the optimizer found, for example that it ignores an argument |
//! | is never inlined, but cannot be redirected | held: it is exchanged with its callers only |
//!
//! Functions that a relied-on function holds are in *its* code: callers only rely on them.
//!
//! # Why
//! A `main` that loops in the file of its functions is never left: if it held all of them, an exchange
//! of one would never find it quiescent. Whether a caller uses a fact is checked when the new body is
//! known (`callers`).
//!
//! LLVM makes one kind of copy of functions that are never inlined: for calls with known arguments
//! (function specialization). The symbol table lists these copies.

use std::collections::{HashSet, VecDeque};

use uruk::live::rebound::Survey;

use crate::choose::{Known, Reason};
use crate::program::symbols::Place;

/// Functions by number in the survey, without the function in question.
pub(crate) struct Reach {
    /// Functions whose bodies may be in its code.
    pub(crate) holds: Vec<usize>,
    /// Others of which facts may be in its code.
    pub(crate) relies: Vec<usize>,
}

/// Whether only a function's own code has its body.
pub(crate) fn is_apart(
    survey: &Survey,
    natives: &[Option<Place>],
    known: &dyn Known,
    function: usize,
) -> bool {
    let info = &survey.functions[function];
    info.never_inlined && natives[function].is_some() && !known.may_be_copied(&info.name)
}

/// The functions whose bodies may affect the code of one: those it calls or reads, and those that they
/// do. A function that is only passed to a function of another file is not included.
pub(crate) fn reach(survey: &Survey, from: usize, is_apart: impl Fn(usize) -> bool) -> Reach {
    let holds = reachable(survey, from, |callee| !is_apart(callee));
    let held: HashSet<usize> = holds.iter().copied().collect();
    let mut relies = reachable(survey, from, |_| true);
    relies.retain(|it| !held.contains(it));
    Reach { holds, relies }
}

fn reachable(survey: &Survey, from: usize, counts: impl Fn(usize) -> bool) -> Vec<usize> {
    let mut seen = HashSet::from([from]);
    let mut queue = VecDeque::from([from]);
    let mut found = Vec::new();
    while let Some(function) = queue.pop_front() {
        let info = &survey.functions[function];
        let mentioned = info.functions.iter();
        for &callee in mentioned.filter(|callee| !info.given.contains(callee)) {
            let callee = callee as usize;
            if survey.functions[callee].defined && counts(callee) && seen.insert(callee) {
                found.push(callee);
                queue.push_back(callee);
            }
        }
    }
    found
}

/// Functions without native code that a version needs compiled before it, as it may call them.
pub(crate) fn needed(
    survey: &Survey,
    natives: &[Option<Place>],
    refused: &[Option<Reason>],
    number: usize,
) -> usize {
    let mut seen = HashSet::from([number]);
    let mut left = vec![number];
    while let Some(function) = left.pop() {
        for &callee in &survey.functions[function].functions {
            let callee = callee as usize;
            let counts = survey.functions[callee].defined && natives[callee].is_none();
            if counts && refused[callee].is_none() && seen.insert(callee) {
                left.push(callee);
            }
        }
    }
    seen.len() - 1
}
