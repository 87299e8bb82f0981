//! The reclaim engine under any sequence of moves.

#![no_main]

#[path = "../../runtime/reclaim/tests/check/mod.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(violation) = check::run(bytes, None) {
        panic!("{violation}");
    }
});
