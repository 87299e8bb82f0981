//! The state of one function: a word of a kind, four flags and a count of turns, and the one
//! function that decides which steps are legal.
//!
//! ```text
//!             Request              Settle
//!   Unbound ----------> Requested ---------> Bound <---+ republish
//!    |  ^ |                     \             |  ^-----+
//!    |  | +-> Prepared -> Bound  +-> Failed <-+ (no: a failed tier-up changes
//!    |  |     (the guest binds)       |          nothing)
//!    |  |     (Bound -> Prepared: it rests)
//!    |  +--- unpublish: Bound, Prepared, Failed; without a service: Requested
//!    +-----> Quarantined: from all but Vacant, until recycled, or revived for the same name
//! ```
//!
//! *gated* is independent of the kind: the function's slot holds its trampoline and callers park.
//! The kind is the one that the function has when the gate opens, and goes on changing meanwhile.
//!
//! | step | by | from | to | effect that goes with it |
//! |---|---|---|---|---|
//! | `Allocate` | runtime | Vacant | Unbound | target = trampoline before it |
//! | `Request` | guest, signals blocked | Unbound, not busy | Requested + queued | link the cell if it was not queued; ring |
//! | `Await` | guest | Requested, busy or gated | + waiters | futex wait on the new word |
//! | `Acquire` | the thread that changes `target` | any but Vacant, not busy | + busy | none |
//! | `Settle(kind)` | the owner of *busy* | busy | kind, - busy, - waiters | wake all if there were waiters |
//! | `Close` | gate | busy, not gated, not Quarantined | + gated, - busy, - waiters, next turn | kept = code, target = trampoline before it; wake all |
//! | `Open(kind)` | gate | busy, gated | kind, - gated, - busy, - waiters | target = code, kept = 0 before it; wake all |
//! | `Nudge` | gate | gated | next turn | a grant before it; wake all |
//! | `Take` | service | queued | - queued | deliver if Requested |
//! | `Recycle` | runtime | Quarantined, not busy, not queued, not gated | Vacant | free list |
//! | `Revive` | runtime | Quarantined, not busy, not gated | Unbound | none: target is the trampoline since |
//!
//! # Invariants
//! - `target` is changed only while *busy* is set, by the thread that set it;
//!   guests set it (Prepared only) with signals blocked, so no handler can find
//!   its own thread in the middle of a change.
//! - *queued* means: the cell is linked in the request list or the batch, or a
//!   guest with blocked signals is about to link it. So a cell is linked at most
//!   once, and `next` belongs to the list while it is set.
//! - *waiters* is set before any thread sleeps on the word, and every step that
//!   ends a wait clears it and wakes. A waiter that left by `longjmp` leaves the
//!   flag, which costs one needless wake.
//! - *turns* only ever count up (25 bits, wrapping). So a function's words differ from gate to
//!   gate. A thread that read its spot under an earlier gate, or before a grant, does not sleep
//!   on the word of a later one. All other conditions of a sleeper are in the word itself, which
//!   may return to an earlier value.

use std::fmt;

/// The kind of a function's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Kind {
    /// Vacant: not allocated (zero, as in fresh slots).
    Vacant = 0,
    /// No code, not requested.
    Unbound = 1,
    /// No code in the slot; `next` holds its offset in the heap.
    Prepared = 2,
    /// No code, requested by a guest.
    Requested = 3,
    /// The slot holds code.
    Bound = 4,
    /// Could not be compiled: calls go to the failure handler.
    Failed = 5,
    /// Removed: calls go to the failure handler. The stub is reused for another function only if no
    /// reference to it is left, and for the same name if that is defined again.
    Quarantined = 6,
}

const KINDS: [Kind; 8] = [
    Kind::Vacant,
    Kind::Unbound,
    Kind::Prepared,
    Kind::Requested,
    Kind::Bound,
    Kind::Failed,
    Kind::Quarantined,
    // Never stored in a word.
    Kind::Vacant,
];

/// A step of a function's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Allocate,
    Request,
    Await,
    Acquire,
    Settle(Kind),
    Close,
    Open(Kind),
    Nudge,
    Take,
    Recycle,
    Revive,
}

/// The state word of a function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word(u32);

const KIND: u32 = 7;
const QUEUED: u32 = 1 << 3;
const BUSY: u32 = 1 << 4;
const WAITERS: u32 = 1 << 5;
const GATED: u32 = 1 << 6;
/// One turn; the bits from this one up count turns.
const TURN: u32 = 1 << 7;
const TURNS: u32 = !(TURN - 1);

impl Word {
    pub(crate) fn from_bits(bits: u32) -> Word {
        Word(bits)
    }

    pub(crate) fn bits(self) -> u32 {
        self.0
    }

    pub(crate) fn kind(self) -> Kind {
        KINDS[(self.0 & KIND) as usize]
    }

    /// The cell is in the request list (or about to be).
    pub(crate) fn queued(self) -> bool {
        self.0 & QUEUED != 0
    }

    /// A thread is changing the target.
    pub(crate) fn busy(self) -> bool {
        self.0 & BUSY != 0
    }

    /// A thread may sleep on the word.
    pub(crate) fn waiters(self) -> bool {
        self.0 & WAITERS != 0
    }

    /// Callers park, for every kind.
    pub(crate) fn gated(self) -> bool {
        self.0 & GATED != 0
    }

    /// The count of turns.
    pub(crate) fn turns(self) -> u32 {
        self.0 & TURNS
    }

    /// The word with the next turn.
    fn turned(self) -> Word {
        Word(self.0.wrapping_add(TURN))
    }

    fn without(self, flags: u32) -> Word {
        Word(self.0 & !flags)
    }

    fn with(self, kind: Kind) -> Word {
        Word(self.0 & !KIND | kind as u32)
    }

    /// The word in the child of a `fork`, which has one thread: no waiters and no change in
    /// progress; requests are queued again.
    pub(crate) fn inherited(kind: Kind) -> Word {
        Word(0).with(kind).or_queued(kind == Kind::Requested)
    }

    fn or_queued(self, queued: bool) -> Word {
        Word(self.0 | if queued { QUEUED } else { 0 })
    }

    /// The word after `step`; `None` if the step is not legal now.
    pub(crate) fn step(self, step: Step) -> Option<Word> {
        let kind = self.kind();
        match step {
            Step::Allocate if kind == Kind::Vacant => Some(self.with(Kind::Unbound)),
            Step::Request if kind == Kind::Unbound && !self.busy() => {
                Some(self.with(Kind::Requested).or_queued(true))
            }
            Step::Await if kind == Kind::Requested || self.busy() || self.gated() => {
                Some(Word(self.0 | WAITERS))
            }
            Step::Acquire if kind != Kind::Vacant && !self.busy() => Some(Word(self.0 | BUSY)),
            Step::Settle(to) if self.busy() && settles(kind, to) => {
                Some(self.without(BUSY | WAITERS).with(to))
            }
            Step::Close if self.busy() && !self.gated() && kind != Kind::Quarantined => {
                Some(Word(self.0 | GATED).without(BUSY | WAITERS).turned())
            }
            Step::Open(to) if self.busy() && self.gated() && settles(kind, to) => {
                Some(self.without(GATED | BUSY | WAITERS).with(to))
            }
            Step::Nudge if self.gated() => Some(self.turned()),
            Step::Take if self.queued() => Some(Word(self.0 & !QUEUED)),
            Step::Recycle if self.without(WAITERS | TURNS) == Word(Kind::Quarantined as u32) => {
                Some(Word(self.0 & TURNS))
            }
            Step::Revive if kind == Kind::Quarantined && !self.busy() && !self.gated() => {
                Some(self.with(Kind::Unbound))
            }
            _ => None,
        }
    }
}

/// Whether a change may take a function from one kind to another.
fn settles(from: Kind, to: Kind) -> bool {
    use Kind::{Bound, Failed, Prepared, Quarantined, Requested, Unbound, Vacant};
    match (from, to) {
        (Vacant, _) => false,
        (from, to) if from == to => true,
        (Quarantined, _) => false,
        (_, Bound | Quarantined) => true,
        (Unbound | Requested, Failed) => true,
        (Unbound | Failed, Prepared) => true,
        (Prepared | Failed | Requested, Unbound) => true,
        (Bound, Unbound | Prepared) => true,
        _ => false,
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.kind())?;
        for (set, name) in [
            (self.queued(), "queued"),
            (self.busy(), "busy"),
            (self.waiters(), "waiters"),
            (self.gated(), "gated"),
        ] {
            if set {
                write!(f, "+{name}")?;
            }
        }
        Ok(())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Takes every step from every word, and checks the invariants of the module.
    #[test]
    fn steps_keep_the_invariants() {
        let mut steps = vec![
            Step::Allocate,
            Step::Request,
            Step::Await,
            Step::Acquire,
            Step::Take,
            Step::Recycle,
            Step::Revive,
            Step::Close,
            Step::Nudge,
        ];
        steps.extend(KINDS.map(Step::Settle));
        steps.extend(KINDS.map(Step::Open));
        let mut legal = 0;
        for bits in (0..TURN).flat_map(|bits| [bits, bits | TURNS]) {
            let from = Word(bits);
            for &step in &steps {
                let Some(to) = from.step(step) else { continue };
                legal += 1;
                let gates = matches!(step, Step::Close | Step::Open(_));
                let settles = gates || matches!(step, Step::Settle(_));
                assert!(
                    !from.busy() || settles || from.kind() == to.kind() || step == Step::Allocate,
                    "{from:?} {step:?}: only the owner changes a busy kind"
                );
                assert!(
                    !from.waiters() || to.waiters() || settles || step == Step::Recycle,
                    "{from:?} {step:?}: waiters forgotten"
                );
                assert!(
                    !from.queued() || to.queued() || step == Step::Take,
                    "{from:?} {step:?}: unlinked without being taken"
                );
                assert_eq!(from.busy() && !to.busy(), settles, "{from:?} {step:?}");
                assert_eq!(from.gated() != to.gated(), gates, "{from:?} {step:?}");
                assert_eq!(
                    to.0 & TURNS != from.0 & TURNS,
                    matches!(step, Step::Close | Step::Nudge),
                    "{from:?} {step:?}: who sleeps on the word before it sleeps on"
                );
            }
        }
        assert!(legal > 100);
    }

    #[test]
    fn a_first_call() {
        let mut word = Word(0);
        let mut path = String::new();
        for step in [
            Step::Allocate,
            Step::Request,
            Step::Await,
            Step::Take,
            Step::Acquire,
            Step::Settle(Kind::Bound),
        ] {
            word = word.step(step).unwrap();
            path += &format!("{word:?} ");
        }
        assert_eq!(
            path.trim(),
            "Unbound Requested+queued Requested+queued+waiters Requested+waiters \
             Requested+busy+waiters Bound"
        );
    }
}
