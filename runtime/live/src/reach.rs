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

use uruk::live::rebound::{FunctionInfo, Survey};

use crate::choose::{Known, Reason};
use crate::closure::Closure;
use crate::program::symbols::Place;

/// The functions that those of a survey reach, by number: they call or read them, directly or through
/// others. A function that is only passed to a function of another file is not included.
pub(crate) struct Reach {
    held: Closure,
    all: Closure,
    /// By calls of functions without native code only.
    needed: Closure,
}

impl Reach {
    pub(crate) fn of(
        survey: &Survey,
        natives: &[Option<Place>],
        refused: &[Option<Reason>],
        known: &dyn Known,
    ) -> Reach {
        // Only its own code has its body.
        let is_apart = |(info, native): (&FunctionInfo, &Option<Place>)| {
            info.never_inlined && native.is_some() && !known.may_be_copied(&info.name)
        };
        let apart: Vec<bool> = survey.functions.iter().zip(natives).map(is_apart).collect();
        let defined = |callee: &u32| survey.functions[*callee as usize].defined;
        let callees = |counts: &dyn Fn(&FunctionInfo, &u32) -> bool| {
            let functions = survey.functions.iter().map(|info| {
                let callees = info.functions.iter().copied();
                callees
                    .filter(|it| defined(it) && counts(info, it))
                    .collect()
            });
            Closure::of(&functions.collect::<Vec<_>>())
        };
        let needs_code = |it: &u32| {
            let it = *it as usize;
            natives[it].is_none() && refused[it].is_none()
        };
        Reach {
            held: callees(&|info, it| !info.given.contains(it) && !apart[*it as usize]),
            all: callees(&|info, it| !info.given.contains(it)),
            needed: callees(&|_, it| needs_code(it)),
        }
    }

    /// Functions whose bodies may be in the code of one.
    pub(crate) fn holds(&self, number: usize) -> impl Iterator<Item = usize> {
        self.held.reached(number)
    }

    /// Others of which facts may be in its code.
    pub(crate) fn relies(&self, number: usize) -> impl Iterator<Item = usize> {
        let all = self.all.reached(number);
        all.filter(move |&other| !self.held.reaches(number, other))
    }

    /// Whether a function calls or reads another one, directly or through others.
    pub(crate) fn reaches(&self, number: usize, other: usize) -> bool {
        self.all.reaches(number, other)
    }

    /// Number of functions without native code that a version needs compiled before it, as it may call
    /// them.
    pub(crate) fn needed(&self, number: usize) -> usize {
        self.needed.reached(number).count()
    }
}
