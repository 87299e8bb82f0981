//! Native programs by hand: built in all ways, with the library in them without `uruk live`, and with
//! functions exchanged while they run.

use std::process::ExitCode;
use std::sync::Arc;

use libtest_mimic::{Arguments, Failed, Trial};

use crate::trial::{self, Bench};
use crate::{
    live_added, live_callers, live_daemon, live_damaged, live_driver, live_edits, live_exchange,
    live_left_out, live_loops, live_memory, live_outlined, live_preload, live_results,
    live_sandbox, live_shapes, live_strings, live_suspended,
};

/// A check; its error describes the failure.
type Judge = fn(&Bench) -> Result<(), String>;

/// The test binary's `main`.
pub fn main() -> ExitCode {
    trial::run(trials)
}

fn trials(arguments: &Arguments) -> Result<Vec<Trial>, String> {
    let bench = Bench::set_up(arguments)?;
    let judges: [(&str, Judge); 31] = [
        ("driver::as_clang", live_driver::judge),
        ("swap::bitcode", live_exchange::judge_bitcode),
        ("swap::refused", live_exchange::judge_refused),
        ("swap::signatures", live_exchange::judge_signatures),
        ("swap::osr", live_exchange::judge_loops),
        ("swap::closed_files", live_exchange::judge_closed),
        ("swap::withdrawn", live_exchange::judge_withdrawn),
        ("swap::back", live_exchange::judge_back),
        ("swap::left_out", live_left_out::judge),
        ("swap::coroutine", live_suspended::judge_coroutine),
        ("swap::split", live_suspended::judge_split),
        ("swap::merged", live_suspended::judge_merged),
        ("swap::results", live_results::judge),
        ("swap::sandbox", live_sandbox::judge),
        ("swap::rights", live_sandbox::judge_rights),
        ("swap::crowd", live_suspended::judge_crowd),
        ("swap::added", live_added::judge),
        ("swap::callers", live_callers::judge),
        ("swap::daemon", live_daemon::judge),
        ("swap::damaged", live_damaged::judge),
        ("swap::edits", live_edits::judge),
        ("explain::loops", live_loops::judge),
        ("outline::as_plain", live_outlined::judge),
        ("outline::main", live_outlined::judge_main),
        ("outline::names", live_outlined::judge_names),
        ("ends::raw_exit", live_loops::judge_raw_exit),
        ("swap::memory", live_memory::judge),
        ("swap::strings", live_strings::judge),
        ("swap::shapes", live_shapes::judge),
        ("preload::by_hand", live_preload::judge),
        ("preload::linked", live_preload::judge_linked),
    ];
    let trials = judges.map(|(name, judge)| {
        let bench: Option<Arc<Bench>> = bench.clone();
        Trial::test(name, move || match bench {
            Some(bench) => judge(&bench).map_err(Failed::from),
            None => Ok(()),
        })
    });
    Ok(trials.into())
}
