//! The linker under any bytes.

#![no_main]

#[path = "../../runtime/link/tests/support/any.rs"]
mod any;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = any::link_any(bytes);
});
