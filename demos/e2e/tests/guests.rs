//! See `uruk_e2e::guest_suite`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::guest_suite::main()
}
