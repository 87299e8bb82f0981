//! What `uruk live` tells the library that it has loaded into a program, in one variable of the
//! environment: words, separated by commas.
//!
//! | word | meaning |
//! |---|---|
//! | `after=MS` | processor time of the process before anything is read |
//! | `force=all` | every function is compiled and published before the program starts |
//! | `force=flip` | that, and then taken back and published again, one after the other, for ever |
//! | `explain` | a table of functions and reasons at the end |
//! | `stats` | what was done, at the end |
//! | `verbose` | what is done, when it is |
//! | `jobs=N` | threads that compile |
//! | `control` | `uruk swap` may attach |

use std::fmt;
use std::time::Duration;

/// The variable.
pub const VARIABLE: &str = "URUK_LIVE";

/// What is done to functions without being asked by samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Force {
    /// Nothing.
    #[default]
    No,
    /// All are compiled before the program starts.
    All,
    /// All are, and are taken back and published in turns.
    Flip,
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Processor time of the process before anything is read.
    pub after: Duration,
    /// What is done without being asked.
    pub force: Force,
    /// A table of functions at the end.
    pub explain: bool,
    /// What was done, at the end.
    pub stats: bool,
    /// What is done, when it is.
    pub verbose: bool,
    /// Others may attach.
    pub control: bool,
    /// Threads that compile.
    pub jobs: Option<usize>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            // A program that ends before is not worth the 20 ms of opening LLVM.
            after: Duration::from_millis(50),
            force: Force::No,
            explain: false,
            stats: false,
            verbose: false,
            control: true,
            jobs: None,
        }
    }
}

impl Settings {
    /// Of the variable's words; unknown ones, of another version, mean nothing.
    ///
    /// ```
    /// use uruk_live::settings::{Force, Settings};
    ///
    /// let settings = Settings::parse("after=5,force=all,explain");
    /// assert_eq!((settings.after.as_millis(), settings.force), (5, Force::All));
    /// assert_eq!(Settings::parse(&settings.to_string()), settings);
    /// ```
    pub fn parse(words: &str) -> Settings {
        let mut settings = Settings {
            control: false,
            ..Settings::default()
        };
        for word in words.split(',') {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            match (name, value) {
                ("after", value) => {
                    if let Ok(ms) = value.parse() {
                        settings.after = Duration::from_millis(ms);
                    }
                }
                ("force", "all") => settings.force = Force::All,
                ("force", "flip") => settings.force = Force::Flip,
                ("explain", _) => settings.explain = true,
                ("stats", _) => settings.stats = true,
                ("verbose", _) => settings.verbose = true,
                ("control", _) => settings.control = true,
                ("jobs", value) => settings.jobs = value.parse().ok(),
                _ => {}
            }
        }
        settings
    }
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "after={}", self.after.as_millis())?;
        match self.force {
            Force::No => {}
            Force::All => f.write_str(",force=all")?,
            Force::Flip => f.write_str(",force=flip")?,
        }
        let flags = [
            (self.explain, "explain"),
            (self.stats, "stats"),
            (self.verbose, "verbose"),
            (self.control, "control"),
        ];
        for (_, word) in flags.iter().filter(|(set, _)| *set) {
            write!(f, ",{word}")?;
        }
        match self.jobs {
            Some(jobs) => write!(f, ",jobs={jobs}"),
            None => Ok(()),
        }
    }
}
