//! A session under any sequence of adding, calling, compiling, removing and moving.

#![no_main]

#[path = "../../runtime/tests/reclaim/sequences.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sequences::run(bytes));
