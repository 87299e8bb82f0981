//! Mutations of the stub table: state words, slots, requests.

use super::{Mutation, killed, not_modelled};

const CELL: &str = "stubs/src/cell.rs";
const STATE: &str = "stubs/src/state.rs";
const SHARED: &str = "stubs/src/shared.rs";
const GUEST: &str = "stubs/src/guest.rs";
const REQUESTS: &str = "stubs/src/requests.rs";

pub const TABLE: [Mutation; 36] = [
    killed(
        "the state word is read relaxed",
        CELL,
        [
            "self.state.load(Ordering::Acquire)",
            "self.state.load(Ordering::Relaxed)",
        ],
        "model::gate::a_caller_is_found_at_the_next_gate",
    ),
    killed(
        "a step acquires nothing",
        CELL,
        ["Ordering::AcqRel", "Ordering::Release"],
        "model::gate::publication_does_not_open",
    ),
    killed(
        "a step releases nothing",
        CELL,
        ["Ordering::AcqRel", "Ordering::Acquire"],
        "model::gate::a_caller_is_found_at_the_next_gate",
    ),
    killed(
        "who waits does not say so",
        STATE,
        ["Some(Word(self.0 | WAITERS))", "Some(self)"],
        "model::racing_callers",
    ),
    killed(
        "publish stores relaxed",
        SHARED,
        [
            "            // kept words.
            self.place(function, word).store(entry, Ordering::Release);",
            "            self.place(function, word).store(entry, Ordering::Relaxed);",
        ],
        "model::code::a_jump_finds_published_code_whole",
    ),
    killed(
        "publish stores relaxed behind a gate",
        SHARED,
        [
            "            // kept words.
            self.place(function, word).store(entry, Ordering::Release);",
            "            let order = if word.gated() { Ordering::Relaxed } else { Ordering::Release };
            self.place(function, word).store(entry, order);",
        ],
        "model::code::code_behind_the_gate_is_whole",
    ),
    killed(
        "publish settles before it stores",
        SHARED,
        [
            "            self.place(function, word).store(entry, Ordering::Release);
            Kind::Bound
        }) == Kind::Bound",
            "            Kind::Bound
        }) == Kind::Bound && {
            let place = self.place(function, self.cells.get(function).word());
            place.store(entry, Ordering::Release);
            true
        }",
        ],
        "model::gate::publication_does_not_open",
    ),
    killed(
        "prepare stores relaxed for who asked",
        SHARED,
        [
            "            // Partner: as in `publish`.
            self.place(function, word).store(entry, Ordering::Release);",
            "            self.place(function, word).store(entry, Ordering::Relaxed);",
        ],
        "model::code::prepared_code_is_whole",
    ),
    killed(
        "the end of a change wakes nobody",
        SHARED,
        ["before.is_some_and(Word::waiters)", "false"],
        "model::racing_callers",
    ),
    killed(
        "entry reads the slot relaxed",
        SHARED,
        [
            "cell.target.load(Ordering::Acquire)",
            "cell.target.load(Ordering::Relaxed)",
        ],
        "model::code::the_runtime_finds_published_code_whole",
    ),
    killed(
        "entry reads the kept word relaxed",
        SHARED,
        [
            "self.kept.word(function)?.load(Ordering::Acquire)",
            "self.kept.word(function)?.load(Ordering::Relaxed)",
        ],
        "model::code::the_runtime_finds_replaced_code_whole",
    ),
    killed(
        "entry looks once in each place",
        SHARED,
        ["(0..2).find_map", "(0..1).find_map"],
        "model::gate::a_gate_hides_no_code_from_the_runtime",
    ),
    killed(
        "entry takes no notice of turns",
        SHARED,
        ["cell.word().turns() == word.turns()", "true"],
        "model::gate::a_gate_hides_no_code_from_the_runtime",
    ),
    killed(
        "a call reads its slot relaxed",
        GUEST,
        [
            "cell.target.load(Ordering::Acquire)",
            "cell.target.load(Ordering::Relaxed)",
        ],
        "model::code::a_call_finds_published_code_whole",
    ),
    killed(
        "a first call stores prepared code relaxed",
        GUEST,
        [
            "self.place(function, word).store(entry, Ordering::Release);",
            "self.place(function, word).store(entry, Ordering::Relaxed);",
        ],
        "model::code::prepared_code_is_whole",
    ),
    killed(
        "a call rings before it is in the list",
        GUEST,
        [
            "            if !word.queued() {
                self.requests.push(&self.cells, function);
            }
            self.requests.ring();",
            "            self.requests.ring();
            if !word.queued() {
                self.requests.push(&self.cells, function);
            }",
        ],
        "model::racing_callers",
    ),
    killed(
        "a call is linked though it is in the list",
        GUEST,
        ["if !word.queued() {", "if true {"],
        "model::unpublication",
    ),
    not_modelled(
        "the failure handler is read relaxed",
        GUEST,
        [
            "shared.failure_handler.load(Ordering::Acquire)",
            "shared.failure_handler.load(Ordering::Relaxed)",
        ],
        "the handler is a function of the program that is called by its address; a model has \
         no such code",
    ),
    not_modelled(
        "who makes a child whole is read relaxed",
        GUEST,
        [
            "self.attendance.load(Ordering::Acquire)",
            "self.attendance.load(Ordering::Relaxed)",
        ],
        "a function that is called by its address; a model has no such code",
    ),
    killed(
        "the batch list has no tag",
        REQUESTS,
        [
            "((head >> 32).wrapping_add(1) << 32)",
            "(head >> 32 << 32)",
        ],
        "model::lists::what_is_put_back_has_another_successor",
    ),
    killed(
        "putting back takes the tag away",
        REQUESTS,
        ["(head >> 32 << 32) | u64::from(link(first))", "u64::from(link(first))"],
        "model::lists::what_is_put_back_has_another_successor",
    ),
    killed(
        "a chain is put before the batch relaxed",
        REQUESTS,
        [
            "compare_exchange(head, new, Ordering::Release, Ordering::Relaxed)",
            "compare_exchange(head, new, Ordering::Relaxed, Ordering::Relaxed)",
        ],
        "model::lists::a_chain_is_seen_whole",
    ),
    killed(
        "the batch's head is read relaxed",
        REQUESTS,
        [
            "let mut head = self.0.load(Ordering::Acquire);",
            "let mut head = self.0.load(Ordering::Relaxed);",
        ],
        "model::lists::a_chain_is_seen_whole",
    ),
    killed(
        "the batch's new head is read relaxed",
        REQUESTS,
        [
            "compare_exchange(head, new, Ordering::Relaxed, Ordering::Acquire)",
            "compare_exchange(head, new, Ordering::Relaxed, Ordering::Relaxed)",
        ],
        "model::lists::a_new_head_has_its_successor",
    ),
    killed(
        "a request is pushed relaxed",
        REQUESTS,
        [
            "                Ordering::Release,
                Ordering::Relaxed,",
            "                Ordering::Relaxed,
                Ordering::Relaxed,",
        ],
        "model::two_functions",
    ),
    killed(
        "the list is taken relaxed",
        REQUESTS,
        [
            "self.head.swap(0, Ordering::Acquire)",
            "self.head.swap(0, Ordering::Relaxed)",
        ],
        "model::two_functions",
    ),
    killed(
        "the bell is rung relaxed",
        REQUESTS,
        [
            "        self.bell.fetch_add(1, Ordering::Release);
        // Partner: the fence in `wait`.",
            "        self.bell.fetch_add(1, Ordering::Relaxed);
        // Partner: the fence in `wait`.",
        ],
        "model::two_functions",
    ),
    killed(
        "ringing has no fence",
        REQUESTS,
        [
            "        // the bell (and with it the request).
        fence(Ordering::SeqCst);",
            "        // the bell (and with it the request).",
        ],
        "model::racing_callers",
    ),
    killed(
        "ringing wakes nobody",
        REQUESTS,
        ["            self.futex.wake_one(&self.bell);", ""],
        "model::racing_callers",
    ),
    killed(
        "waiting has no fence",
        REQUESTS,
        [
            "            // Partner: the fence in `ring`.
            fence(Ordering::SeqCst);",
            "            // Partner: the fence in `ring`.",
        ],
        "model::racing_callers",
    ),
    killed(
        "the bell is read relaxed",
        REQUESTS,
        [
            "self.bell.load(Ordering::Acquire)",
            "self.bell.load(Ordering::Relaxed)",
        ],
        "model::two_functions",
    ),
    killed(
        "stopping rings relaxed",
        REQUESTS,
        [
            "        self.bell.fetch_add(1, Ordering::Release);
        self.futex.wake_all(&self.bell);",
            "        self.bell.fetch_add(1, Ordering::Relaxed);
        self.futex.wake_all(&self.bell);",
        ],
        "model::stopping_wakes_the_service",
    ),
    killed(
        "stopping does not ring",
        REQUESTS,
        [
            "        self.bell.fetch_add(1, Ordering::Release);
        self.futex.wake_all(&self.bell);",
            "        self.futex.wake_all(&self.bell);",
        ],
        "model::stopping_wakes_the_service",
    ),
    killed(
        "stopping wakes nobody",
        REQUESTS,
        ["        self.futex.wake_all(&self.bell);", ""],
        "model::stopping_wakes_the_service",
    ),
    killed(
        "a wait is declared without a fence before it looks for a service",
        GUEST,
        [
            "        fence(Ordering::SeqCst);
        let unserved",
            "        let unserved",
        ],
        "model::no_service",
    ),
    killed(
        "the end of the service has no fence before it looks for requests",
        REQUESTS,
        [
            "        // or the runtime sees its request.
        fence(Ordering::SeqCst);",
            "        // or the runtime sees its request.",
        ],
        "model::no_service",
    ),
];
