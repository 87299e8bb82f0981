//! The reclaim engine under any sequence of moves; the body is `uruk_reclaim::check::run`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Err(violation) = uruk_reclaim::check::run(bytes, None) {
        panic!("{violation}");
    }
});
