//! Mutations of the gate before a set of functions.

use super::{Mutation, killed};

const STATE: &str = "stubs/src/state.rs";
const GUEST: &str = "stubs/src/guest.rs";
const GATE: &str = "stubs/src/gate.rs";
const SPOTS: &str = "stubs/src/spots.rs";
const KEPT: &str = "stubs/src/kept.rs";

pub const TABLE: [Mutation; 27] = [
    killed(
        "closing does not turn the state word",
        STATE,
        [
            "Some(Word(self.0 | GATED).without(BUSY | WAITERS).turned())",
            "Some(Word(self.0 | GATED).without(BUSY | WAITERS))",
        ],
        "model::gate::a_gate_hides_no_code_from_the_runtime",
    ),
    killed(
        "a nudge does not turn the state word",
        STATE,
        [
            "Step::Nudge if self.gated() => Some(self.turned())",
            "Step::Nudge if self.gated() => Some(self)",
        ],
        "model::gate::a_grant_is_for_one_call",
    ),
    killed(
        "a call that is let through reads relaxed",
        GUEST,
        [
            "self.kept.word(function)?.load(Ordering::Acquire)",
            "self.kept.word(function)?.load(Ordering::Relaxed)",
        ],
        "model::code::code_behind_the_gate_is_whole",
    ),
    killed(
        "a call goes on though the gate has opened",
        GUEST,
        [
            "return (code != 0).then_some(Outcome::Code(code));",
            "return Some(Outcome::Code(code));",
        ],
        "model::code::code_behind_the_next_gate_is_whole",
    ),
    killed(
        "a call does not notice that its spot is lost",
        GUEST,
        [
            "spot.is_none_or(|spot| self.spots.standing(spot) == Standing::Lost)",
            "spot.is_none()",
        ],
        "model::gate::a_caller_is_found_at_the_next_gate",
    ),
    killed(
        "a call does not leave its spot",
        GUEST,
        [
            "                self.spots.leave(spot);",
            "                let _ = spot;",
        ],
        "model::gate::a_grant_is_for_one_call",
    ),
    killed(
        "waits are listed after the scan",
        GATE,
        [
            "        let parked = self.spots.list();
        let seen = scan()?;
",
            "        let seen = scan()?;
        let parked = self.spots.list();
",
        ],
        "model::gate::a_thread_that_left_old_code_waits_for_the_new",
    ),
    killed(
        "a gate is claimed relaxed",
        GATE,
        [
            "compare_exchange(0, number, Ordering::Acquire, Ordering::Relaxed)",
            "compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed)",
        ],
        "model::gate::two_sets_are_serialised",
    ),
    killed(
        "a gate ends relaxed",
        GATE,
        [
            "self.gate.store(0, Ordering::Release)",
            "self.gate.store(0, Ordering::Relaxed)",
        ],
        "model::gate::two_sets_are_serialised",
    ),
    killed(
        "a gate begins with the spots of the last",
        GATE,
        ["        self.spots.clear();", ""],
        "model::gate::waits_that_were_left_by_jumps_take_one_spot",
    ),
    killed(
        "waits of a thread have no numbers",
        SPOTS,
        ["let word = own | (number << 32 & WAIT);", "let word = own;"],
        "model::gate::a_grant_is_for_the_wait_that_was_seen",
    ),
    killed(
        "closing keeps the code relaxed",
        GATE,
        [
            "kept.store(code, Ordering::Release);",
            "kept.store(code, Ordering::Relaxed);",
        ],
        "model::code::code_behind_the_next_gate_is_whole",
    ),
    killed(
        "closing stores the trampoline relaxed",
        GATE,
        [
            ".store(self.cells.trampoline(function), Ordering::Release);",
            ".store(self.cells.trampoline(function), Ordering::Relaxed);",
        ],
        "model::gate::a_gate_hides_no_code_from_the_runtime",
    ),
    killed(
        "closing keeps the code after it is gone",
        GATE,
        [
            "        kept.store(code, Ordering::Release);
        // Partner: the acquire load in `entry`, which finds the code in its kept word.
        cell.target
            .store(self.cells.trampoline(function), Ordering::Release);",
            "        cell.target
            .store(self.cells.trampoline(function), Ordering::Release);
        kept.store(code, Ordering::Release);",
        ],
        "model::gate::a_gate_hides_no_code_from_the_runtime",
    ),
    killed(
        "closing wakes nobody",
        GATE,
        [
            "            self.waiting.wake_all(cell.futex());
        }
        true",
            "        }
        true",
        ],
        "model::gate::a_request_from_before_is_answered",
    ),
    killed(
        "opening stores the code relaxed",
        GATE,
        [
            "cell.target.store(code, Ordering::Release);",
            "cell.target.store(code, Ordering::Relaxed);",
        ],
        "model::code::a_jump_finds_replaced_code_whole",
    ),
    killed(
        "opening empties the kept word relaxed",
        GATE,
        [
            "kept.store(0, Ordering::Release);",
            "kept.store(0, Ordering::Relaxed);",
        ],
        "model::gate::a_gate_hides_no_code_from_the_runtime",
    ),
    killed(
        "opening empties the kept word first",
        GATE,
        [
            "        let old = kept.load(Ordering::Relaxed);",
            "        let old = kept.swap(0, Ordering::AcqRel);",
        ],
        "model::gate::a_gate_hides_no_code_from_the_runtime",
    ),
    killed(
        "opening leaves the kept word",
        GATE,
        ["        kept.store(0, Ordering::Release);", ""],
        "model::gate::one_instant_for_a_set",
    ),
    killed(
        "opening wakes nobody",
        GATE,
        [
            "            self.waiting.wake_all(self.cells.get(function).futex());",
            "            let _ = function;",
        ],
        "model::gate::a_grant_is_for_one_call",
    ),
    killed(
        "a thread is nudged before it is granted a call",
        GATE,
        [
            "        let granted = self.spots.grant(wait);
        if granted {
            let cell = self.cells.get(wait.function());
            // After the grant: a caller that saw the word before it does not sleep on it.
            if cell.step(Step::Nudge).is_some_and(|word| word.waiters()) {
                self.waiting.wake_all(cell.futex());
            }
        }
        granted",
            "        let cell = self.cells.get(wait.function());
        if cell.step(Step::Nudge).is_some_and(|word| word.waiters()) {
            self.waiting.wake_all(cell.futex());
        }
        self.spots.grant(wait)",
        ],
        "model::gate::a_grant_is_for_one_call",
    ),
    killed(
        "letting through wakes nobody",
        GATE,
        [
            "            // After the grant: a caller that saw the word before it does not sleep on it.
            if cell.step(Step::Nudge).is_some_and(|word| word.waiters()) {",
            "            if cell.step(Step::Nudge).is_none() {",
        ],
        "model::gate::a_grant_is_for_one_call",
    ),
    killed(
        "a thread takes a free spot before its own",
        SPOTS,
        ["for wanted in [own, 0] {", "for wanted in [0, own] {"],
        "model::gate::waits_that_were_left_by_jumps_take_one_spot",
    ),
    killed(
        "a thread that waits again keeps its grant",
        SPOTS,
        [
            "place.compare_exchange(found, word, ",
            "place.compare_exchange(found, found | word, ",
        ],
        "model::gate::waits_that_were_left_by_jumps_take_one_spot",
    ),
    killed(
        "a grant is not used up",
        SPOTS,
        [
            "self.swap(spot.index, spot.word | GRANTED, 0)",
            "self.standing(spot) == Standing::Granted",
        ],
        "model::gate::a_grant_is_used_once",
    ),
    killed(
        "the arrays of kept words are stored relaxed",
        KEPT,
        [
            "place.store(allocate()?, Ordering::Release);",
            "place.store(allocate()?, Ordering::Relaxed);",
        ],
        "model::gate::publication_does_not_open",
    ),
    killed(
        "the arrays of kept words are found relaxed",
        KEPT,
        [
            "let array = place.load(Ordering::Acquire);",
            "let array = place.load(Ordering::Relaxed);",
        ],
        "model::gate::publication_does_not_open",
    ),
];
