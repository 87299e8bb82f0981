//! See `uruk_e2e::stress_suite`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::stress_suite::main()
}
