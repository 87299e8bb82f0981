//! The bitcode entry point under any bytes; the body is `uruk_codegen::fuzz::compile_any`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uruk_codegen::fuzz::compile_any(bytes));
