//! See `uruk_e2e::bad_input`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::bad_input::main()
}
