//! Settings that `uruk live` passes to the library in a program, in the environment variable
//! `URUK_LIVE`: words, separated by commas. A user who preloads the library
//! (`LD_PRELOAD=.../liburuk_preload.so`), or links it, may set the same words. Without the variable the
//! settings are those of `uruk live` without options. With it, clients may attach only if it says so.
//!
//! | word | meaning |
//! |---|---|
//! | `after=MS` | processor time of the process before anything is read; without the word it depends on the size of the bitcode |
//! | `overhead=N` | percent of the program's processor time that the library's threads may take; 0: no limit |
//! | `force=all` | every function is compiled and published before the program starts |
//! | `force=flip` | that, and taken back and published once more; then one after the other, for ever |
//! | `force=guided` | the same with guided code, which versions with probes come before |
//! | `explain` | a table of functions and reasons at the end |
//! | `stats`, `stats=json` | figures of the run, at the end |
//! | `report=FILE`, `trace=FILE` | the page, and the timeline, of the run, written at the end |
//! | `tuning=FILE` | results of earlier runs, written again at the end |
//! | `tuning-percent=N` | part of the program's time for trials that win nothing |
//! | `perf-map` | names of functions are written for `perf report` |
//! | `record` | data for these outputs is kept, for clients that ask before the end |
//! | `no-tune` | hot functions are compiled in one way only, and not compared with native code |
//! | `verbose` | each step is printed |
//! | `jobs=N` | threads that compile |
//! | `control` | `uruk swap` may attach |
//! | `off` | the library does nothing |

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use uruk::StatsFormat;

/// The variable.
pub const VARIABLE: &str = "URUK_LIVE";

/// Default of [`Settings::overhead`].
pub const OVERHEAD: u16 = 4;

/// Actions on functions without samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Force {
    /// Nothing.
    #[default]
    No,
    /// All are compiled before the program starts.
    All,
    /// All are, and are taken back and published in turns.
    Flip,
    /// As [`Flip`](Force::Flip), by guided code.
    Guided,
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Processor time of the process before the library reads anything; `None`: until reading is a
    /// small part of it.
    pub after: Option<Duration>,
    /// Percent of the program's processor time that the library's threads may take; 0: no limit.
    pub overhead: u16,
    /// Actions without samples.
    pub force: Force,
    /// Whether a table of functions is printed at the end.
    pub explain: bool,
    /// Format of the figures printed at the end.
    pub stats: Option<StatsFormat>,
    /// Output file of the page of the run.
    pub report: Option<PathBuf>,
    /// Output file of its timeline.
    pub trace: Option<PathBuf>,
    /// File with results of earlier runs; updated at the end.
    pub tuning: Option<PathBuf>,
    /// Percent of the program's processor time for trials that win nothing.
    pub tuning_percent: Option<u8>,
    /// Whether data for the report and the timeline is kept in any case.
    pub record: bool,
    /// Whether names of functions are written to the file where `perf report` looks for them.
    pub perf_map: bool,
    /// Whether hot functions are compiled in several ways, and compared with native code.
    pub tune: bool,
    /// Whether each step is printed.
    pub verbose: bool,
    /// Whether clients may attach.
    pub control: bool,
    /// Threads that compile.
    pub jobs: Option<usize>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            after: None,
            overhead: OVERHEAD,
            force: Force::No,
            explain: false,
            stats: None,
            report: None,
            trace: None,
            tuning: None,
            tuning_percent: None,
            record: false,
            perf_map: false,
            tune: true,
            verbose: false,
            control: true,
            jobs: None,
        }
    }
}

impl Settings {
    /// Parses the variable, if it is set; `None`: the library is to do nothing.
    ///
    /// ```
    /// use uruk_live::settings::Settings;
    ///
    /// assert_eq!(Settings::asked(None), Some(Settings::default()));
    /// assert_eq!(Settings::asked(Some("explain")), Some(Settings::parse("explain")));
    /// assert_eq!(Settings::asked(Some("off")), None);
    /// ```
    pub fn asked(words: Option<&str>) -> Option<Settings> {
        match words {
            None => Some(Settings::default()),
            Some(words) => {
                let is_off = words.split(',').any(|word| word == "off");
                (!is_off).then(|| Settings::parse(words))
            }
        }
    }

    /// Parses the variable's words; unknown words, of another version, are ignored.
    ///
    /// ```
    /// use std::time::Duration;
    /// use uruk_live::settings::{Force, Settings};
    ///
    /// let settings = Settings::parse("after=5,force=all,explain");
    /// assert_eq!((settings.after, settings.force), (Some(Duration::from_millis(5)), Force::All));
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
                        settings.after = Some(Duration::from_millis(ms));
                    }
                }
                ("overhead", value) => settings.overhead = value.parse().unwrap_or(OVERHEAD),
                ("force", "all") => settings.force = Force::All,
                ("force", "flip") => settings.force = Force::Flip,
                ("force", "guided") => settings.force = Force::Guided,
                ("explain", _) => settings.explain = true,
                ("stats", "json") => settings.stats = Some(StatsFormat::Json),
                ("stats", _) => settings.stats = Some(StatsFormat::Table),
                ("report", file) => settings.report = Some(path(file)),
                ("trace", file) => settings.trace = Some(path(file)),
                ("tuning", file) => settings.tuning = Some(path(file)),
                ("tuning-percent", value) => settings.tuning_percent = value.parse().ok(),
                ("record", _) => settings.record = true,
                ("perf-map", _) => settings.perf_map = true,
                ("no-tune", _) => settings.tune = false,
                ("verbose", _) => settings.verbose = true,
                ("control", _) => settings.control = true,
                ("jobs", value) => settings.jobs = value.parse().ok(),
                _ => {}
            }
        }
        settings
    }

    /// Whether the session records events.
    pub fn records(&self) -> bool {
        self.record || self.stats.is_some() || self.report.is_some() || self.trace.is_some()
    }
}

/// Budget of trials that win nothing, from a percentage of the program's time: that share, and the time
/// that they may take before the program has run for long.
///
/// ```
/// let (share, credit) = uruk_live::settings::budget(2);
/// assert_eq!((share, credit.as_millis()), (0.02, 250));
/// ```
pub fn budget(percent: u8) -> (f64, Duration) {
    let share = f64::from(percent) / 100.0;
    (share, Duration::from_millis(u64::from(percent) * 125))
}

/// A file's name as a word; separators and non-graphic bytes become `%` and two digits.
fn word(file: &Path) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !b",%".contains(byte);
    let bytes = file.as_os_str().as_bytes().iter();
    let parts = bytes.map(|byte| match plain(byte) {
        true => char::from(*byte).to_string(),
        false => format!("%{byte:02x}"),
    });
    parts.collect()
}

/// The file of a word.
fn path(word: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = word.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        let digits = more.get(..2).filter(|_| first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        let escaped = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &more[2..] } else { more };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "overhead={}", self.overhead)?;
        if let Some(after) = self.after {
            write!(f, ",after={}", after.as_millis())?;
        }
        match self.force {
            Force::No => {}
            Force::All => f.write_str(",force=all")?,
            Force::Flip => f.write_str(",force=flip")?,
            Force::Guided => f.write_str(",force=guided")?,
        }
        let flags = [
            (self.explain, "explain"),
            (self.stats == Some(StatsFormat::Table), "stats"),
            (self.stats == Some(StatsFormat::Json), "stats=json"),
            (self.record, "record"),
            (self.perf_map, "perf-map"),
            (!self.tune, "no-tune"),
            (self.verbose, "verbose"),
            (self.control, "control"),
        ];
        for (_, word) in flags.iter().filter(|(set, _)| *set) {
            write!(f, ",{word}")?;
        }
        let files = [
            ("report", &self.report),
            ("trace", &self.trace),
            ("tuning", &self.tuning),
        ];
        for (name, file) in files {
            if let Some(file) = file {
                write!(f, ",{name}={}", word(file))?;
            }
        }
        if let Some(percent) = self.tuning_percent {
            write!(f, ",tuning-percent={percent}")?;
        }
        match self.jobs {
            Some(jobs) => write!(f, ",jobs={jobs}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn files_of_any_name_are_handed_on() {
        let odd = OsString::from_vec(b"a,b %2c\xff=c".to_vec());
        let settings = Settings {
            report: Some(PathBuf::from(odd)),
            trace: Some(PathBuf::from("plain.json")),
            tuning: Some(PathBuf::from("/a folder/tuning")),
            stats: Some(StatsFormat::Json),
            tuning_percent: Some(30),
            tune: false,
            perf_map: true,
            ..Settings::default()
        };
        let words = settings.to_string();
        let end = ",trace=plain.json,tuning=/a%20folder/tuning,tuning-percent=30";
        assert!(words.ends_with(end), "{words}");
        assert_eq!(Settings::parse(&words), settings);
        assert!(settings.records() && !Settings::default().records());
    }
}
