//! A native function that is never called again while its loop is hot: `--explain` says so.

use std::thread;
use std::time::Duration;

use crate::live_talk::{Talk, driver, fresh, make, source};
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
    }
    Ok(())
}
