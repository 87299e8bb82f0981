//! Functions of a module whose bodies, or facts of them, may be in native code of another one.
//!
//! | a function that native code calls, directly or through others | is |
//! |---|---|
//! | may be inlined there | held: the code may have a copy of its body |
//! | is never inlined, and has an entry that is redirected | relied on: the caller may know of it what the optimizer found out, as that it ignores an argument |
//! | is never inlined, but cannot be redirected | held: it is exchanged with its callers only |
//!
//! The functions that one of the second kind holds are in *its* code: callers rely on them only.
//!
//! # Why
//! A `main` that loops in the file of its functions is never left: if it held all of them, no exchange of
//! one would ever find it quiet. Whether a caller makes use of a fact is asked when the new body is known
//! (`callers`).
//!
//! Of functions that are never inlined, LLVM makes one kind of copy: for calls with known arguments
//! (function specialization). The symbol table lists these.

use std::collections::{HashSet, VecDeque};

use uruk::live::rebound::Survey;

use crate::choose::Known;
use crate::program::symbols::Place;

/// Functions by number in the survey, without the one that was asked for.
pub(crate) struct Reach {
    /// Those whose bodies may be in its code.
    pub(crate) holds: Vec<usize>,
    /// Others of which facts may be.
    pub(crate) relies: Vec<usize>,
}

/// Whether no code but a function's own has its body.
pub(crate) fn is_apart(
    survey: &Survey,
    natives: &[Option<Place>],
    known: &dyn Known,
    function: usize,
) -> bool {
    let info = &survey.functions[function];
    info.never_inlined && natives[function].is_some() && !known.may_be_copied(&info.name)
}

/// The functions with bodies that code of one may have to do with: those it calls or looks at, and those
/// they do. One that is only given to a function of another file is none of them.
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
