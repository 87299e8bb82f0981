//! Walks of the stack under `uruk live`, while functions change: as deep as natively, and down to the same
//! frames. The program is `demos/live/backtraces.c`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::trial::Bench;
use crate::verdict;

/// How long anything may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the program natively and live: there until it saw native frames and new ones in one chain.
///
/// # Errors
/// The failure, in words.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-backtraces");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let program = folder.join("backtraces");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/backtraces.c");
    let mut job = bench.subject.job(LIMIT);
    job.args.extend(["cc", "-O1", "-pthread"].map(Into::into));
    job.arg(source).arg("-o").arg(&program);
    let built = execute(bench, job)?;
    if built.ending != Ending::Status(0) {
        return Err(verdict::excerpt(&built.stderr));
    }
    let native = execute(bench, Job::new(&program, LIMIT))?;
    if native.ending != Ending::Status(0) {
        return Err(format!("natively: {}", verdict::excerpt(&native.stdout)));
    }
    for force in ["--force=flip", "--force=guided"] {
        let mut live = bench.subject.job(LIMIT);
        for word in ["live", force, "--no-control", "--"] {
            live.arg(word);
        }
        live.arg(&program).arg("mixed");
        let ours = execute(bench, live)?;
        if let Some(text) = verdict::difference(&native, &ours, false) {
            return Err(format!("{force}: {text}"));
        }
    }
    Ok(())
}

fn execute(bench: &Bench, job: Job) -> Result<Outcome, String> {
    job.run(&bench.scratch("live-backtraces-run"))
        .map_err(|error| format!("cannot run {}: {error}", job.command_line()))
}
