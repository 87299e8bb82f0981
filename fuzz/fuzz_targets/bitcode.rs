//! The bitcode entry points under any bytes.

#![no_main]

#[path = "../../runtime/codegen/tests/support/any.rs"]
mod any;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| any::compile_any(bytes));
