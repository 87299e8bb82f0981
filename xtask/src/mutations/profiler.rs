//! Mutations of the queue of samples and of the map from addresses to tags.

use super::{Mutation, equivalent, killed};

const ENTRIES: &str = "profiler/src/entries.rs";
const MAP: &str = "profiler/src/map.rs";
const QUEUE: &str = "profiler/src/queue.rs";

pub const TABLE: [Mutation; 14] = [
    killed(
        "an entry is read before its generation",
        ENTRIES,
        [
            "if self.generation.load(Ordering::Acquire) != generation {",
            "if self.generation.load(Ordering::Relaxed) != generation {",
        ],
        "model::an_entry_moves_to_another_page_under_a_reader",
    ),
    killed(
        "the second look at a generation has no fence",
        ENTRIES,
        ["        fence(Ordering::Acquire);", ""],
        "model::an_entry_moves_to_another_page_under_a_reader",
    ),
    killed(
        "there is no second look at a generation",
        ENTRIES,
        [
            "(self.generation.load(Ordering::Acquire) == generation).then_some(piece)",
            "Some(piece)",
        ],
        "model::an_entry_moves_to_another_page_under_a_reader",
    ),
    equivalent(
        "the second look at a generation is relaxed",
        ENTRIES,
        [
            "(self.generation.load(Ordering::Acquire) == generation).then_some(piece)",
            "(self.generation.load(Ordering::Relaxed) == generation).then_some(piece)",
        ],
        "who sees another generation here starts over, and the fence before it has acquired \
         what came before the other's fence",
    ),
    killed(
        "a generation ends relaxed",
        ENTRIES,
        [
            "            .store(generation.wrapping_add(1), Ordering::Release);",
            "            .store(generation.wrapping_add(1), Ordering::Relaxed);",
        ],
        "model::what_comes_and_goes_hides_nothing_behind_it",
    ),
    killed(
        "an entry is used again without a fence",
        ENTRIES,
        ["        fence(Ordering::Release);", ""],
        "model::an_entry_moves_to_another_page_under_a_reader",
    ),
    killed(
        "a piece is linked relaxed",
        MAP,
        [
            "head.store(link.0, Ordering::Release);",
            "head.store(link.0, Ordering::Relaxed);",
        ],
        "model::what_comes_and_goes_hides_nothing_behind_it",
    ),
    killed(
        "a lookup reads the first link relaxed",
        MAP,
        [
            "Link(head.load(Ordering::Acquire))",
            "Link(head.load(Ordering::Relaxed))",
        ],
        "model::what_comes_and_goes_hides_nothing_behind_it",
    ),
    killed(
        "a piece is unlinked relaxed",
        MAP,
        [
            "place.store(entry.peek().next.0, Ordering::Release);",
            "place.store(entry.peek().next.0, Ordering::Relaxed);",
        ],
        "model::what_comes_and_goes_hides_nothing_behind_it",
    ),
    killed(
        "a piece that is gone keeps its generation",
        MAP,
        ["        entry.close();", ""],
        "model::an_entry_moves_to_another_page_under_a_reader",
    ),
    killed(
        "a sample is filled in relaxed",
        QUEUE,
        [
            "slot.turn.store(position + 1, Ordering::Release);",
            "slot.turn.store(position + 1, Ordering::Relaxed);",
        ],
        "model::samples_come_out_whole_and_once",
    ),
    killed(
        "a filled sample is read relaxed",
        QUEUE,
        [
            "slot.turn.load(Ordering::Acquire) != position + 1",
            "slot.turn.load(Ordering::Relaxed) != position + 1",
        ],
        "model::samples_come_out_whole_and_once",
    ),
    killed(
        "a place in the queue is freed relaxed",
        QUEUE,
        [
            ".store(position + self.slots.len() as u64, Ordering::Release);",
            ".store(position + self.slots.len() as u64, Ordering::Relaxed);",
        ],
        "model::samples_come_out_whole_and_once",
    ),
    killed(
        "a free place in the queue is taken relaxed",
        QUEUE,
        [
            "let turn = slot.turn.load(Ordering::Acquire);",
            "let turn = slot.turn.load(Ordering::Relaxed);",
        ],
        "model::a_full_queue_counts_what_it_drops",
    ),
];
