//! The linker under any bytes; the body is `uruk_link::fuzz::link_any`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = uruk_link::fuzz::link_any(bytes);
});
