//! Functions of the host, calls of them, and the examples.
//!
//! Each module has a process of its own in `cargo xtask test`.

mod examples;
mod failure_texts;
mod host;
mod host_errors;
mod host_state;
mod struct_flags;
