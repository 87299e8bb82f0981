//! See `uruk_e2e::random_suite`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::random_suite::main()
}
