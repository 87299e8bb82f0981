//! Collects a report of a run: its head, and the rest at the end.

use std::collections::HashMap;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use uruk_base::{FunctionId, Nanos, VersionId};
use uruk_report::{self as report, Ending, Limits, Recorder, Recording};

use crate::events::recording::kernels_processor;
use crate::host::clock::nanos;
use crate::host::clock::process_time;
use crate::session::Session;
use crate::version::disassemble;

/// Functions whose disassembly goes into a report.
const DISASSEMBLED: usize = 12;

/// A recorder of a program that starts now.
pub(crate) fn recorder(session: &Session, file: &Path, args: Vec<String>) -> Recorder {
    let started = SystemTime::now().duration_since(UNIX_EPOCH);
    let run = report::Run {
        program: file.display().to_string(),
        args,
        uruk: env!("CARGO_PKG_VERSION").to_owned(),
        llvm: uruk_codegen::llvm_version(),
        processor: processor(),
        jobs: u32::try_from(session.jobs).unwrap_or(u32::MAX),
        tiers: session.tiers.describe(),
        started_unix_ms: started.map_or(0, |time| time.as_millis() as u64),
    };
    Recorder::new(run, Nanos(0), Limits::default())
}

/// LLVM's name of the processor; the kernel's while LLVM is not loaded, which is not worth loading
/// it.
fn processor() -> String {
    if uruk_late::is_open() {
        return uruk_codegen::host_cpu();
    }
    kernels_processor()
}

impl Session {
    /// The recording so far, which continues; `with_code` adds the disassembly of the hottest
    /// functions. `None` if nothing is recorded.
    pub(crate) fn recording_so_far(&self, with_code: bool) -> Option<Recording> {
        let recorder = self.events.recorder()?;
        self.tell_all_samples();
        for (id, entries) in self.entries_so_far() {
            recorder.entries(id, entries);
        }
        let mut listings = Vec::new();
        if with_code {
            let versions = recorder.hottest(DISASSEMBLED).into_iter();
            for version in versions.flat_map(|(_, versions)| versions) {
                listings.extend(self.listing(version).map(|text| (version, text)));
            }
        }
        let ending = Ending {
            time: nanos(self.events.now()),
            cpu: nanos(process_time()),
            exit: None,
            defined: self.counters.functions(),
        };
        recorder.so_far(ending, &listings)
    }

    /// Counted calls as far as the controller has read them; the controller's data does not change.
    pub(crate) fn entries_so_far(&self) -> HashMap<FunctionId, u64> {
        let control = self.tiers.control();
        control.entries.iter().map(|(&id, &n)| (id, n)).collect()
    }

    /// The machine code of a version as text, if it is still there.
    pub(crate) fn listing(&self, version: VersionId) -> Option<String> {
        let (entry, bytes) = self.code_of(version)?;
        Some(disassemble::disassemble(self, &bytes, entry))
    }

    /// Ends the recording; `with_code` adds the disassembly of the hottest functions.
    pub(crate) fn finish_recording(&self, with_code: bool, status: i32) -> Option<Recording> {
        let recorder = self.events.recorder()?;
        self.tell_all_samples();
        for (id, entries) in self.tiers.entries() {
            recorder.entries(id, entries);
        }
        if with_code {
            for (_, versions) in recorder.hottest(DISASSEMBLED) {
                for version in versions {
                    if let Some(text) = self.listing(version) {
                        recorder.disassembled(version, &text);
                    }
                }
            }
        }
        recorder.finish(Ending {
            time: nanos(self.events.now()),
            cpu: nanos(process_time()),
            exit: Some(status),
            defined: self.counters.functions(),
        })
    }
}
