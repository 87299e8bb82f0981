//! See `uruk_e2e::case_suite`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::case_suite::main()
}
