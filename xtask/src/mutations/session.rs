//! Mutations of what runs without the session's lock.

use super::{Mutation, killed};

const READY: &str = "runtime/session/src/ready.rs";
const PARTS: &str = "runtime/session/src/pool/parts.rs";
const SYNC: &str = "runtime/session/src/sync.rs";

pub const TABLE: [Mutation; 8] = [
    killed(
        "a ready symbol is stored relaxed",
        READY,
        [
            "store(word, Ordering::Release)",
            "store(word, Ordering::Relaxed)",
        ],
        "a_ready_address_is_of_finished_code",
    ),
    killed(
        "a ready symbol is read relaxed",
        READY,
        [
            "[spot.word].load(Ordering::Acquire)",
            "[spot.word].load(Ordering::Relaxed)",
        ],
        "a_ready_address_is_of_finished_code",
    ),
    killed(
        "the end of a wait is stored relaxed",
        PARTS,
        [
            "self.done.store(true, Ordering::Release);",
            "self.done.store(true, Ordering::Relaxed);",
        ],
        "what_was_waited_for_is_seen",
    ),
    killed(
        "the end of a wait is read relaxed",
        PARTS,
        [
            "self.done.load(Ordering::Acquire)",
            "self.done.load(Ordering::Relaxed)",
        ],
        "what_was_waited_for_is_seen",
    ),
    killed(
        "the end of a wait is said after the wake",
        PARTS,
        [
            "        self.done.store(true, Ordering::Release);
        self.parker.unpark();",
            "        self.parker.unpark();
        self.done.store(true, Ordering::Release);",
        ],
        "a_wait_ends",
    ),
    killed(
        "a token wakes nobody",
        SYNC,
        ["            self.wake();", ""],
        "a_wait_ends",
    ),
    killed(
        "a token is left relaxed",
        SYNC,
        [
            "self.token.swap(THERE, Ordering::Release)",
            "self.token.swap(THERE, Ordering::Relaxed)",
        ],
        "a_wait_ends",
    ),
    killed(
        "a token is taken relaxed",
        SYNC,
        [
            "(Ordering::Acquire, Ordering::Relaxed)",
            "(Ordering::Relaxed, Ordering::Relaxed)",
        ],
        "a_wait_ends",
    ),
];
