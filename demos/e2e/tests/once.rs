//! See `uruk_e2e::once_suite`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::once_suite::main()
}
