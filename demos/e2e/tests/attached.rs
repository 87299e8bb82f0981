//! Native programs by hand: `uruk cc`, `uruk swap`, and the library without `uruk live`.

use std::process::ExitCode;

fn main() -> ExitCode {
    uruk_e2e::attached_suite::main()
}
