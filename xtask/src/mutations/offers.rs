//! Mutations of what is offered at the heads of loops.

use super::{Mutation, equivalent, killed};

const OFFERS: &str = "tiering/src/offers.rs";

pub const TABLE: [Mutation; 19] = [
    equivalent(
        "passes that are left are read relaxed",
        OFFERS,
        [
            "self.count.load(Ordering::Acquire)",
            "self.count.load(Ordering::Relaxed)",
        ],
        "a measure that does not see the offer of a request takes passes for new ones that who made \
         the offer counts, too: it is some too many, once",
    ),
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
            "    words.put(stub);
    drop(state);
    words.ask()",
            "    drop(state);
    words.put(stub);
    words.ask()",
        ],
        "offers::an_offer_under_way_is_not_made_to_what_was_closed",
    ),
    killed(
        "an offer is made to what was closed",
        OFFERS,
        [
            "(state.stand == Stand::Open).then(|| give(state, words, stub))",
            "Some(give(state, words, stub))",
        ],
        "offers::an_offer_under_way_is_not_made_to_what_was_closed",
    ),
    killed(
        "an offer asks nobody",
        OFFERS,
        [
            "    drop(state);
    words.ask()",
            "    drop(state);
    words.left_to_count()",
        ],
        "offers::what_is_taken_back_can_be_offered_again",
    ),
    killed(
        "an offer asks before it is there",
        OFFERS,
        [
            "    words.put(stub);
    drop(state);
    words.ask()",
            "    let left = words.ask();
    words.put(stub);
    drop(state);
    left",
        ],
        "offers::who_counts_finds_the_offer",
    ),
    killed(
        "asking asks nothing",
        OFFERS,
        [
            "        self.ask_after(1)\n",
            "        self.left_to_count()\n",
        ],
        "offers::an_offer_is_not_lost_for_good",
    ),
    killed(
        "closing leaves what is offered",
        OFFERS,
        [
            "            state.stand = stand;
        }
        all.into_iter().for_each(|words| words.put(0));",
            "            state.stand = stand;
        }
        let _ = all;",
        ],
        "offers::after_the_close_nobody_enters",
    ),
    killed(
        "closing does not last",
        OFFERS,
        [
            "            state.stand = stand;",
            "            let _ = stand;",
        ],
        "offers::an_offer_under_way_is_not_made_to_what_was_closed",
    ),
    killed(
        "opening opens nothing",
        OFFERS,
        ["            state.stand = Stand::Open;\n", ""],
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
        ["Some(free @ None) if open", "Some(free) if open"],
        "offers::a_loop_has_one_continuation",
    ),
    equivalent(
        "a continuation is noted for what was closed",
        OFFERS,
        ["Some(free @ None) if open", "Some(free @ None)"],
        "it is offered to nobody, and given away at the end like others: the check spares its \
         compile",
    ),
    killed(
        "the end keeps what it gives away",
        OFFERS,
        [
            "std::mem::take(&mut state.continuations)",
            "state.continuations.clone()",
        ],
        "offers::a_loop_has_one_continuation",
    ),
    killed(
        "a request to count is stored relaxed",
        OFFERS,
        [
            ".swap((-passes).cast_unsigned(), Ordering::SeqCst)",
            ".swap((-passes).cast_unsigned(), Ordering::Relaxed)",
        ],
        "offers::who_counts_finds_the_offer",
    ),
    killed(
        "who is removed is opened again",
        OFFERS,
        ["if state.stand == Stand::Closed {", "if true {"],
        "offers::nobody_is_led_to_what_is_rolled_back",
    ),
    killed(
        "opening leaves what leads elsewhere",
        OFFERS,
        [
            "            state.stand = Stand::Open;
            all.into_iter().for_each(|words| words.put(0));",
            "            state.stand = Stand::Open;
            let _ = all;",
        ],
        "offers::nobody_is_led_to_what_is_rolled_back",
    ),
    killed(
        "who is not replaced is led elsewhere",
        OFFERS,
        [
            "        if state.stand != Stand::Closed {
            return None;
        }
",
            "",
        ],
        "offers::nobody_is_led_to_what_is_rolled_back",
    ),
    killed(
        "the end forgets what led elsewhere",
        OFFERS,
        [
            ".flatten().chain(leading).collect()",
            ".flatten().collect()",
        ],
        "offers::nobody_is_led_to_what_is_rolled_back",
    ),
];
