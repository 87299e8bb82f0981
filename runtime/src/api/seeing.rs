//! Views of a session from outside: the output that the command prints and writes of a program's
//! run.

use std::io::{self, Write};

use uruk_base::Tier;

use crate::api::builder::JitBuilder;
use crate::api::dylib::Dylib;
use crate::api::jit::Jit;
use crate::error::Error;
use crate::fork::gate;
use crate::told::stats::StatsFormat;

/// A function with its share of the run ([`Jit::hottest`]).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FunctionProfile {
    /// The function.
    pub function: String,
    /// The tier of the version that calls reach; `None` while there is none.
    pub tier: Option<Tier>,
    /// Samples in all its versions.
    pub samples: u64,
    /// Counted calls; only code of tier 1 counts.
    pub entries: u64,
    /// Versions that were compiled and are not retired.
    pub versions: usize,
    /// Bytes of code of these.
    pub bytes: u64,
}

impl JitBuilder {
    /// Records events, for [`Jit::report_page`] and [`Jit::trace`]. Off by default: a full
    /// recording takes up to 50 MB; later events are counted only.
    #[must_use]
    pub fn record(mut self, record: bool) -> JitBuilder {
        self.record = record;
        self
    }
}

impl Jit {
    /// The page of the run so far, as the command's `--report` writes it: one self-contained HTML
    /// file. `None` unless the session [records](JitBuilder::record).
    ///
    /// ```
    /// let jit = uruk::Jit::builder().record(true).build()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// jit.main().compile("one")?;
    /// let page = jit.report_page().expect("it is recorded");
    /// assert!(page.starts_with("<!DOCTYPE html>") && page.contains("one"));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn report_page(&self) -> Option<String> {
        let _pass = gate::enter();
        let recording = self.session().recording_so_far(true)?;
        Some(uruk_report::html::run(&recording))
    }

    /// Writes the timeline of the run so far, as the command's `--trace` does: JSON for Perfetto and
    /// `chrome://tracing`. False, and nothing is written, unless the session
    /// [records](JitBuilder::record).
    ///
    /// ```
    /// let jit = uruk::Jit::builder().record(true).build()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// jit.main().compile("one")?;
    /// let mut trace = Vec::new();
    /// assert!(jit.trace(&mut trace).expect("memory takes all"));
    /// assert!(String::from_utf8_lossy(&trace).contains("\"one"));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `out`.
    pub fn trace(&self, out: &mut dyn Write) -> io::Result<bool> {
        let recording = {
            let _pass = gate::enter();
            self.session().recording_so_far(false)
        };
        match recording {
            Some(recording) => uruk_report::trace::write(&recording, out).map(|()| true),
            None => Ok(false),
        }
    }

    /// [`Jit::stats`] and [`Jit::memory`] as the command's `--stats` prints them: a table, or one
    /// JSON object on a line. Includes the figures of the run where the session
    /// [records](JitBuilder::record).
    ///
    /// ```
    /// use uruk::StatsFormat;
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 }")?;
    /// jit.main().compile("one")?;
    /// assert!(jit.stats_text(StatsFormat::Table).contains("functions in the program"));
    /// assert!(jit.stats_text(StatsFormat::Json).starts_with("{\"functions\":1,\"compiled\":1,"));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn stats_text(&self, format: StatsFormat) -> String {
        let _pass = gate::enter();
        let session = self.session();
        let recording = session.recording_so_far(false).unwrap_or_default();
        session
            .stats()
            .render(format, &recording, &session.memory_report())
    }

    /// The functions that ran most, by samples, then by counted calls; `count` of them at most.
    ///
    /// ```
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i32 @one() { ret i32 1 } define i32 @two() { ret i32 2 }")?;
    /// jit.main().compile("one")?;
    /// let hottest = jit.hottest(10);
    /// assert_eq!(hottest.len(), 1, "the other has no code");
    /// assert_eq!((hottest[0].function.as_str(), hottest[0].versions), ("one", 1));
    /// # Ok::<(), uruk::Error>(())
    /// ```
    pub fn hottest(&self, count: usize) -> Vec<FunctionProfile> {
        let _pass = gate::enter();
        let session = self.session();
        session.tell_all_samples();
        let entries = session.entries_so_far();
        let mut hottest = Vec::new();
        for (&index, record) in session.versions.lock().iter() {
            let Some(id) = session.stubs.function(index) else {
                continue;
            };
            let live = record.built.iter().map(|version| version.samples);
            let hot = FunctionProfile {
                function: String::new(),
                tier: record.versions.snapshot().published.map(|view| view.tier),
                samples: record.past.samples + live.sum::<u64>(),
                entries: entries.get(&id).copied().unwrap_or(0),
                versions: record.built.len(),
                bytes: record.built.iter().map(|version| version.bytes).sum(),
            };
            if hot.versions != 0 || hot.samples != 0 {
                hottest.push((id, hot));
            }
        }
        hottest.sort_by_key(|(id, hot)| {
            let most = (hot.samples, hot.entries, hot.bytes);
            (std::cmp::Reverse(most), id.index())
        });
        hottest.truncate(count);
        let named = hottest.into_iter().map(|(id, hot)| FunctionProfile {
            function: session.name_of(id).to_owned(),
            ..hot
        });
        named.collect()
    }
}

impl Dylib {
    /// The machine code of a function, one instruction a line, with names for the addresses it
    /// mentions: of the version that calls reach, or of the newest of `tier`. `None` if no such
    /// version exists; [`Dylib::compile_at`] makes one.
    ///
    /// ```
    /// use uruk::Tier;
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @twice(i64 %x) { %y = shl i64 %x, 1 ret i64 %y }")?;
    /// assert_eq!(jit.main().disassemble("twice", None)?, None);
    /// jit.compile_at("twice", Tier::Optimized)?;
    /// let text = jit.main().disassemble("twice", Some(Tier::Optimized))?.expect("it is there");
    /// assert!(text.trim_end().ends_with("ret"), "{text}");
    /// assert_eq!(jit.main().disassemble("twice", Some(Tier::Guided))?, None);
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`].
    pub fn disassemble(&self, name: &str, tier: Option<Tier>) -> Result<Option<String>, Error> {
        let id = self.id_of(name)?;
        let _pass = gate::enter();
        let session = self.jit.session();
        let version = {
            let records = session.versions.lock();
            let record = records.get(&id.index());
            record.and_then(|record| match tier {
                None => record.versions.snapshot().published.map(|view| view.id),
                Some(tier) => {
                    let mut built = record.built.iter().rev();
                    let found = built.find(|version| version.tier == tier);
                    found.map(|version| version.id)
                }
            })
        };
        Ok(version.and_then(|version| session.listing(version)))
    }

    /// The IR of a function at a tier, after all passes: with remaining inlined copies and with the
    /// counters of tier 1 (by LLVM; the baseline compiler takes the function's own IR), but without
    /// profile-guided changes. It is compiled for this call only, and never published.
    ///
    /// ```
    /// use uruk::Tier;
    ///
    /// let jit = uruk::Jit::new()?;
    /// jit.add_ir("m", "define i64 @four(i64 %x) { %y = shl i64 %x, 1 %z = shl i64 %y, 1 ret i64 %z }")?;
    /// let text = jit.main().ir("four", Tier::Optimized)?;
    /// // One shift is left of two; the argument may have lost its name.
    /// assert!(text.matches("shl i64").count() == 1 && text.contains(", 2"), "{text}");
    /// # Ok::<(), uruk::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::MissingSymbols`], [`Error::NotAFunction`], also for functions of objects and units;
    /// errors of its compile.
    pub fn ir(&self, name: &str, tier: Tier) -> Result<String, Error> {
        let id = self.id_of(name)?;
        self.jit.session().ir_of(id, tier)
    }
}
