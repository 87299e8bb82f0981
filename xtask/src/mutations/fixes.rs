//! Faults that earlier commits fixed. Each entry takes a fix out of today's sources, and names the
//! arguments of `cargo test` for the test that fails then. `cargo xtask mutate --fixes` runs them.

use super::{Mutation, killed};

pub const TABLE: [Mutation; 12] = [
    killed(
        "658b1367: a waiting set ignores new dependents",
        "runtime/src/replace/quiet.rs",
        ["|| is_short()", "|| is_short() && false"],
        "-p uruk --test replace replace_grown",
    ),
    killed(
        "d38f188f: state of host functions stays",
        "runtime/src/calls/functions.rs",
        ["Some((state, false)) if added", "Some((state, _)) if added"],
        "-p uruk --test reclaim host_states",
    ),
    killed(
        "675c1bbc: a wide spread is never learned anew",
        "tiering/src/tuning/drift.rs",
        ["self.spread > WIDE &&", "self.spread > f64::MAX &&"],
        "-p uruk-tiering --lib drift",
    ),
    killed(
        "f1bf4193: constructors run image by image",
        "runtime/src/load/hooks/run.rs",
        ["at, _)| (turn, at)", "at, _)| (at, turn)"],
        "-p uruk --test process initialize",
    ),
    killed(
        "7516750e: a C++ exception passes a destructor",
        "stubs/src/call.rs",
        ["actions & SEARCH == 0 {", "actions & SEARCH <= SEARCH {"],
        "-p uruk --test process exit_destructors",
    ),
    killed(
        "869cd27a: a lazy closure is dropped beside a rollback",
        "runtime/src/calls/lapsing.rs",
        [
            "let Some(turn) = turn else {
        return;
    };",
            "drop(turn);
    let turn = ();",
        ],
        "-p uruk --test load lazy_production",
    ),
    killed(
        "52822fac: unaligned atomics are instructions",
        "runtime/lower/src/atomics.rs",
        ["align >= ty.bytes()", "align >= 1"],
        "-p uruk --test tiers atomics",
    ),
    killed(
        "77be23ac: taken tasks stay in the queue",
        "runtime/session/src/pool/parts.rs",
        ["first.is_taken()", "first.is_taken() && self.quitting"],
        "-p uruk --test memory growth",
    ),
    killed(
        "1e478897: or with all ones counts as use of a result",
        "runtime/live/src/arguments.rs",
        ["Or => !immediate(-1),", "Or => true,"],
        "-p uruk-live --lib arguments",
    ),
    killed(
        "a57515bd: the resolver clears a header only",
        "stubs/src/resolver.rs",
        [
            "; mov rdi, rsp
        ; lea rcx, [rbp - PUSHED]",
            "; lea rdi, [rsp + 512]
        ; lea rcx, [rsp + 576]",
        ],
        "-p uruk-stubs --lib snapshot::resolver",
    ),
    killed(
        "d1761204: functions that a replacement added stay",
        "runtime/src/replace/staging.rs",
        ["if !stubs.is_empty() {", "if false {"],
        "-p uruk --test replace replace_added",
    ),
    killed(
        "361d0374: an offer forgets the passes that were counted",
        "runtime/src/code/loops.rs",
        [
            "u64::from(measure.counted(left));\n        measure",
            "u64::from(measure.counted(left)) * 0;\n        measure",
        ],
        "-p uruk --test replace a_slow_loop",
    ),
];
