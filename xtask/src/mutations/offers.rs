//! Mutations of what is offered at the heads of loops.

use super::{Mutation, equivalent, killed};

const OFFERS: &str = "tiering/src/offers.rs";

pub const TABLE: [Mutation; 14] = [
    killed(
        "an offer is stored relaxed",
        OFFERS,
        [
            "self.slot.store(offered, Ordering::Release)",
            "self.slot.store(offered, Ordering::Relaxed)",
        ],
        "offers::who_leaves_finds_the_continuation",
    ),
    killed(
        "an offer is stored behind the lock",
        OFFERS,
        [
            "        words.put(stub);
        drop(state);
        words.ask();",
            "        drop(state);
        words.put(stub);
        words.ask();",
        ],
        "offers::an_offer_under_way_is_not_made_to_what_was_closed",
    ),
    killed(
        "an offer is made to what was closed",
        OFFERS,
        [
            "        if state.closed {
            return false;
        }
",
            "",
        ],
        "offers::an_offer_under_way_is_not_made_to_what_was_closed",
    ),
    killed(
        "an offer asks nobody",
        OFFERS,
        [
            "        words.ask();
        true",
            "        true",
        ],
        "offers::what_is_taken_back_can_be_offered_again",
    ),
    equivalent(
        "an offer asks before it is there",
        OFFERS,
        [
            "        words.put(stub);
        drop(state);
        words.ask();",
            "        words.ask();
        words.put(stub);
        drop(state);",
        ],
        "who looked too early takes the sign away, as any store of a count may: it is asked for \
         again at the next look",
    ),
    killed(
        "asking asks nothing",
        OFFERS,
        ["self.count.fetch_or(ASKED,", "self.count.fetch_or(0,"],
        "offers::an_offer_is_not_lost_for_good",
    ),
    killed(
        "closing leaves what is offered",
        OFFERS,
        [
            "        state.closed = true;
        all.into_iter().for_each(|words| words.put(0));",
            "        state.closed = true;
        let _ = all;",
        ],
        "offers::after_the_close_nobody_enters",
    ),
    killed(
        "closing does not last",
        OFFERS,
        [
            "        state.closed = true;
        all",
            "        state.closed = false;
        all",
        ],
        "offers::an_offer_under_way_is_not_made_to_what_was_closed",
    ),
    killed(
        "opening opens nothing",
        OFFERS,
        ["self.state.lock().closed = false;", "let _ = self;"],
        "offers::an_offer_under_way_is_not_made_to_what_was_closed",
    ),
    killed(
        "taking back leaves what is offered",
        OFFERS,
        [
            "        let _state = self.state.lock();
        all.into_iter().for_each(|words| words.put(0));",
            "        let _state = self.state.lock();
        let _ = all;",
        ],
        "offers::what_is_taken_back_can_be_offered_again",
    ),
    killed(
        "a second continuation covers the first",
        OFFERS,
        ["Some(free @ None) if !closed", "Some(free) if !closed"],
        "offers::a_loop_has_one_continuation",
    ),
    equivalent(
        "a continuation is noted for what was closed",
        OFFERS,
        ["Some(free @ None) if !closed", "Some(free @ None)"],
        "it is offered to nobody, and given away at the end like others: the check spares its \
         compile",
    ),
    killed(
        "the end keeps what it gives away",
        OFFERS,
        [
            "std::mem::take(&mut self.state.lock().continuations)",
            "self.state.lock().continuations.clone()",
        ],
        "offers::a_loop_has_one_continuation",
    ),
    killed(
        "a count that went back is passes",
        OFFERS,
        ["match added < ASKED / 2 {", "match true {"],
        "offers::lost_counts_are_no_passes",
    ),
];
