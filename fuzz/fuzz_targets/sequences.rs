//! A session under any sequence of adding, calling, compiling, removing and moving; the
//! body is `uruk::fuzz::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uruk::fuzz::run(bytes));
