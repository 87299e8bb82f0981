//! Every case once more as a native program under `uruk live`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::live_suite::main()
}
