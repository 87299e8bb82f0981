//! The report of a round of `uruk live --force` before the program began, and the values that it
//! must have. Equal behaviour of a program proves nothing if no function of it was exchanged.
//!
//! The line is of numbers that were seen in entries and slots:
//!
//! ```text
//! uruk live: forced: 7 of tier 0, 6 of tier 2, 1 failed, 6 native again
//! ```
//!
//! | number | must be |
//! |---|---|
//! | of tier 2 (or 3) | at least one, unless the case is one of [`STAY`], then none |
//! | failed | the others |
//! | native again | as many as were compiled, if they were taken back |

//!
//! Before a program begins, no thread runs versions with probes. Probes count while the program
//! runs, and their counts produce guided code of native functions: `demos/live/guided.c` checks
//! that.

use std::fs;
use std::path::Path;
use std::time::Duration;

use uruk_guests::execute::{Ending, Job, Outcome};

use crate::trial::Bench;
use crate::verdict;

/// How long a run of that program may take.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs of that program: the option, after how many seconds it gives up, and how it ends.
const COUNTED: [(Forced, &str, i32); 2] = [(Forced::Flip, "3", 1), (Forced::Guided, "200", 0)];

/// Why a program whose allocator the compiler would have to use stays native.
const ALLOCATOR: &str = "it has an allocator of its own";

/// Cases of which nothing is ever compiled, and why.
pub const STAY: [(&str, &str); 17] = [
    ("asm_goto.c", "its assembly may name symbols"),
    (
        "atomics.c",
        "`main` uses a local byte, which may have become a flag",
    ),
    (
        "instrument_entries.c",
        "its functions tell hooks their addresses",
    ),
    ("libraries.c", "`main` calls `dlsym`"),
    ("operator_new.cpp", ALLOCATOR),
    ("operator_new_library.cpp", ALLOCATOR),
    ("own_malloc.c", ALLOCATOR),
    ("own_malloc_library.c", ALLOCATOR),
    ("plugin_new.cpp", ALLOCATOR),
    ("preempt_free_only.c", ALLOCATOR),
    ("preempt_malloc.c", ALLOCATOR),
    ("preempt_malloc_only.c", ALLOCATOR),
    ("preempt_malloc_signal.c", ALLOCATOR),
    ("preempt_malloc_wrapper.c", ALLOCATOR),
    ("preempt_new.cpp", ALLOCATOR),
    ("preempt_new_throws.cpp", ALLOCATOR),
    ("preempt_not.c", ALLOCATOR),
];

/// How functions are forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forced {
    /// Compiled once, at tier 2.
    Once,
    /// Compiled at tier 2 and taken back, again and again.
    Flip,
    /// The same at tier 3.
    Guided,
}

impl Forced {
    /// The option of `uruk live`.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Forced::Once => "--force=all",
            Forced::Flip => "--force=flip",
            Forced::Guided => "--force=guided",
        }
    }

    /// The tier that the code has.
    fn tier(self) -> u32 {
        match self {
            Forced::Once | Forced::Flip => 2,
            Forced::Guided => 3,
        }
    }

    /// Looks whether it was done to a case, by what was said on standard error.
    ///
    /// # Errors
    /// What was not, in words.
    pub fn check(self, case: &str, stderr: &[u8]) -> Result<(), String> {
        let stays = STAY.iter().find(|(name, _)| *name == case);
        let text = String::from_utf8_lossy(stderr);
        let round = text
            .lines()
            .find_map(|line| Round::parse(line, self.tier()));
        let said = || verdict::excerpt(stderr);
        match (stays, round) {
            (Some(_), None) => Ok(()),
            (Some(_), Some(round)) if round.published == 0 => Ok(()),
            (Some((_, why)), Some(round)) => Err(format!(
                "functions were compiled, although {why}: {round:?}\n"
            )),
            (None, None) => Err(format!("nothing was forced:\n{}\n", said())),
            (None, Some(round)) => match round.fault(self) {
                Some(fault) => Err(format!("{fault}: {round:?}\n{}\n", said())),
                None => Ok(()),
            },
        }
    }
}

/// Guided code of native functions is made by what was counted in them, and other code is not.
///
/// # Errors
/// The failure, in words.
pub fn judge_counted(bench: &Bench) -> Result<(), String> {
    let folder = bench.scratch("live-counted");
    fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let program = folder.join("guided");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../live/guided.c");
    let run = |job: Job| -> Result<Outcome, String> {
        job.run(&folder.join("run"))
            .map_err(|error| format!("cannot run {}: {error}", job.command_line()))
    };
    let mut job = bench.subject.job(LIMIT);
    job.args.extend(["cc", "-O1"].map(Into::into));
    job.arg(source).arg("-o").arg(&program);
    let built = run(job)?;
    if built.ending != Ending::Status(0) {
        return Err(verdict::excerpt(&built.stderr));
    }
    for (forced, seconds, status) in COUNTED {
        let mut job = bench.subject.job(LIMIT);
        // Candidates of the tuner inline more, too.
        for word in ["live", forced.option(), "--no-tune", "--no-control", "--"] {
            job.arg(word);
        }
        job.arg(&program).arg(seconds);
        let done = run(job)?;
        forced.check("guided.c", &done.stderr)?;
        if done.ending != Ending::Status(status) {
            let ending = verdict::ending(done.ending);
            return Err(format!("{}: {ending}, not {status}", forced.option()));
        }
    }
    Ok(())
}

/// The numbers of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Round {
    adopted: usize,
    published: usize,
    failed: usize,
    native: Option<usize>,
}

impl Round {
    /// Of a line about code of that tier.
    fn parse(line: &str, tier: u32) -> Option<Round> {
        let numbers = line.strip_prefix("uruk live: forced: ")?;
        let end_of = |what: &str| {
            let found = numbers.split(", ").find_map(|part| part.strip_suffix(what));
            found.and_then(|number| number.trim().parse().ok())
        };
        Some(Round {
            adopted: end_of("of tier 0")?,
            published: end_of(&format!("of tier {tier}"))?,
            failed: end_of("failed")?,
            native: end_of("native again"),
        })
    }

    /// The fault of the numbers, for a case with functions that can be compiled.
    fn fault(&self, forced: Forced) -> Option<&'static str> {
        let back = match forced {
            Forced::Once => None,
            Forced::Flip | Forced::Guided => Some(self.published),
        };
        if self.published == 0 {
            Some("nothing was published")
        } else if self.published + self.failed != self.adopted {
            Some("functions are neither compiled nor failed")
        } else if self.native != back {
            Some("not all went back")
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Forced::{Flip, Guided, Once};

    #[test]
    fn what_was_not_done_is_noticed() {
        let says = |forced: super::Forced, line: &str| {
            let text = format!("something else\nuruk live: forced: {line}\n");
            forced.check("any.c", text.as_bytes())
        };
        let whole = "7 of tier 0, 6 of tier 2, 1 failed, 6 native again";
        assert_eq!(says(Flip, whole), Ok(()));
        assert_eq!(says(Once, "7 of tier 0, 7 of tier 2, 0 failed"), Ok(()));
        for (forced, line) in [
            (Flip, "7 of tier 0, 0 of tier 2, 7 failed, 0 native again"),
            (Flip, "0 of tier 0, 0 of tier 2, 0 failed, 0 native again"),
            (Flip, "7 of tier 0, 6 of tier 2, 0 failed, 6 native again"),
            (Flip, "7 of tier 0, 7 of tier 2, 0 failed, 6 native again"),
            (Flip, "7 of tier 0, 7 of tier 2, 0 failed"),
            (Guided, whole),
        ] {
            assert!(says(forced, line).is_err(), "{line}");
        }
        assert!(Flip.check("any.c", b"").is_err());
    }
}
