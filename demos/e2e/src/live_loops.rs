//! A native function that is never called again while its loop is hot: `--explain` says so. And a main
//! thread that ends by the system call.

use std::path::Path;
use std::thread;
use std::time::Duration;

use uruk_guests::execute::Ending;

use crate::live_talk::{LIMIT, Talk, driver, fresh, make, run, source};
use crate::trial::Bench;

/// Pause between two looks, and how many there are at most.
const PAUSE: Duration = Duration::from_millis(100);
const LOOKS: usize = 600;

/// The table names the function and the loop; the program goes on.
///
/// # Errors
/// The table that does not.
pub fn judge(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-loops")?;
    let ways = [
        (&["-DIN_MAIN"][..], "main", "is called once, and has"),
        (&[][..], "serve", "in a loop that was entered before"),
    ];
    for (words, function, remark) in ways {
        let program = make(
            driver(bench),
            words,
            &[&source("loops.c")],
            folder.join(function),
        )?;
        let mut talk = Talk::live(bench, &folder, &program)?;
        let name = format!(" {function} (");
        let is_told = |table: &str| {
            let mut lines = table.lines().filter(|line| line.contains(&name));
            lines.any(|line| line.contains(remark))
        };
        let mut table = String::new();
        for _ in 0..LOOKS {
            table = talk.swap(["--explain"])?.1;
            if is_told(&table) {
                break;
            }
            thread::sleep(PAUSE);
        }
        if !is_told(&table) {
            return Err(format!("{function}: nothing about its loop:\n{table}"));
        }
        talk.asked("abc", "abc")?;
        if function == "main" {
            rests_after_rollback(bench, &folder, &mut talk)?;
        }
    }
    Ok(())
}

/// `main` is compiled for an exchange of a function that it inlined, and native again after it.
fn rests_after_rollback(bench: &Bench, folder: &Path, talk: &mut Talk<'_>) -> Result<(), String> {
    let words = ["-DIN_MAIN", "-DSHIFT=13", "-c"];
    let object = make(
        driver(bench),
        &words,
        &[&source("loops.c")],
        folder.join("new.o"),
    )?;
    talk.swapped([&object], &["exchanged: mix"])?;
    talk.swapped(["--rollback"], &["back: mix"])?;
    let table = talk.swap(["--explain"])?.1;
    let mut lines = table.lines().filter(|line| line.contains(" main ("));
    if !lines.any(|line| line.trim_start().starts_with("0 ")) {
        return Err(format!("`main` is not native again:\n{table}"));
    }
    talk.asked("abc", "abc")
}

/// The process ends at once, with the main thread's status, whether a session is there or not.
///
/// # Errors
/// Another ending.
pub fn judge_raw_exit(bench: &Bench) -> Result<(), String> {
    let folder = fresh(bench, "live-raw-exit")?;
    let from = source("raw_exit.c");
    let program = make(driver(bench), &[], &[&from], folder.join("program"))?;
    for after in ["0", "10000000"] {
        let mut job = bench.subject.job(LIMIT);
        let words = ["live", "--after", after, "--overhead", "1", "--"];
        job.args.extend(words.iter().map(Into::into));
        let ended = run(job.arg(&program), &folder.join("run"))?.ending;
        if ended != Ending::Status(7) {
            return Err(format!("after {after} ms: {ended:?}"));
        }
    }
    Ok(())
}
