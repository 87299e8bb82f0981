//! Mutations of the handshake with threads, and of the counted ones.

use super::{Mutation, killed};

const SLOT: &str = "runtime/roots/src/slot.rs";
const ENTRIES: &str = "runtime/roots/src/entries.rs";

pub const TABLE: [Mutation; 17] = [
    killed(
        "a request is posted relaxed",
        SLOT,
        [
            "self.word.store(posted, Ordering::Release);",
            "self.word.store(posted, Ordering::Relaxed);",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "a request has the number of the last",
        SLOT,
        [
            "(word & !PHASE).wrapping_add(1 << 2) | POSTED",
            "(word & !PHASE) | POSTED",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "an answer is collected relaxed",
        SLOT,
        [
            "        // Acquire: pairs with the release in `finish`.
        let word = self.word.load(Ordering::Acquire);",
            "        let word = self.word.load(Ordering::Relaxed);",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "a request is read relaxed",
        SLOT,
        [
            "for `thread` and for the work.
        let word = self.word.load(Ordering::Acquire);",
            "for `thread` and for the work.
        let word = self.word.load(Ordering::Relaxed);",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "a request of another thread is claimed",
        SLOT,
        [
            " || self.thread.load(Ordering::Relaxed) != thread",
            " || thread == 0",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "a request is claimed whatever became of it",
        SLOT,
        [
            "            .compare_exchange(word, claimed, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;",
            "            .store(claimed, Ordering::Relaxed);",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "a request is withdrawn whatever became of it",
        SLOT,
        [
            "                .compare_exchange(ticket.0, free, Ordering::Relaxed, Ordering::Relaxed);",
            "                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |_| Some(free));",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "an answer is given relaxed",
        SLOT,
        [
            ".store(self.word & !PHASE | DONE, Ordering::Release);",
            ".store(self.word & !PHASE | DONE, Ordering::Relaxed);",
        ],
        "model::a_late_answer_never_meets_the_next_request",
    ),
    killed(
        "a line is taken without acquiring",
        ENTRIES,
        [
            "compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed)",
            "compare_exchange(0, tid, Ordering::Release, Ordering::Relaxed)",
        ],
        "model::a_line_is_as_its_last_owner_left_it",
    ),
    killed(
        "a line is taken without releasing",
        ENTRIES,
        [
            "compare_exchange(0, tid, Ordering::AcqRel, Ordering::Relaxed)",
            "compare_exchange(0, tid, Ordering::Acquire, Ordering::Relaxed)",
        ],
        "model::a_promise_covers_nothing_before_or_after_it",
    ),
    killed(
        "a line is given away relaxed",
        ENTRIES,
        [
            ".store(if inside { LOST } else { 0 }, Ordering::Release);",
            ".store(if inside { LOST } else { 0 }, Ordering::Relaxed);",
        ],
        "model::a_line_is_as_its_last_owner_left_it",
    ),
    killed(
        "a line that is counted in is given away",
        ENTRIES,
        [
            "if inside { LOST } else { 0 }",
            "if inside { 0 } else { 0 }",
        ],
        "model::a_call_that_outlives_its_line_counts_for_nobody_else",
    ),
    killed(
        "a line is given away without a fence",
        ENTRIES,
        [
            "        // the call finds the new slot.
        asymmetric_fence();",
            "        // the call finds the new slot.",
        ],
        "model::a_promise_covers_nothing_before_or_after_it",
    ),
    killed(
        "a call is counted in without a fence",
        ENTRIES,
        [
            "        asymmetric_fence();
        before",
            "        before",
        ],
        "model::a_thread_found_outside_does_not_run_old_code",
    ),
    killed(
        "a call is counted out relaxed",
        ENTRIES,
        [
            "self.count.store(before, Ordering::Release);",
            "self.count.store(before, Ordering::Relaxed);",
        ],
        "model::a_thread_found_outside_does_not_run_old_code",
    ),
    killed(
        "a line's thread is read relaxed",
        ENTRIES,
        [
            "self.tid.load(Ordering::Acquire) == tid",
            "self.tid.load(Ordering::Relaxed) == tid",
        ],
        "model::a_promise_covers_nothing_before_or_after_it",
    ),
    killed(
        "a line's count is read relaxed",
        ENTRIES,
        [
            "self.count.load(Ordering::Acquire) == 0",
            "self.count.load(Ordering::Relaxed) == 0",
        ],
        "model::a_thread_found_outside_does_not_run_old_code",
    ),
];
