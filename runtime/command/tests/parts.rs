//! The unit tests of parts of the command, which has no test harness of its own: it defines C's `main`.

#[path = "../src/cli/cc.rs"]
#[expect(dead_code, reason = "only its own tests run here")]
mod cc;
#[path = "../src/cli/mangled.rs"]
mod mangled;
#[path = "../src/cli/settings.rs"]
#[expect(dead_code, reason = "only its own tests run here")]
mod settings;
