//! Empty on purpose: see `Cargo.toml` beside this file.
