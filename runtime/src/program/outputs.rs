//! Files and text about a run of a program, written at its end.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use uruk_files::{Messages, OutputPath, say};

use crate::error::Error;
use crate::fork::gate;
use crate::program::run::ProgramOptions;
use crate::session::Session;
use crate::tiers::diary::PolicyText;
use crate::told::stats::StatsFormat;

/// The outputs of a run, written at its end.
pub(super) struct Outputs {
    /// The process of the run: a child of a fork writes nothing.
    process: u32,
    stats: Option<StatsFormat>,
    trace: Option<OutputPath>,
    report: Option<OutputPath>,
    first_calls: Option<OutputPath>,
    tuning: Option<OutputPath>,
    /// The file, and its text once the recording has ended.
    record: Option<(OutputPath, PolicyText)>,
}

/// Maximal wait for workers at the end of a run before statistics are written.
const LAST_WORDS: Duration = Duration::from_millis(100);

impl Outputs {
    /// Opens the folders of outputs, before the program can change its current folder.
    pub(crate) fn of(options: &ProgramOptions, session: &Session) -> Result<Outputs, Error> {
        let failed = |path: &Path, cause| Error::File {
            file: path.display().to_string(),
            cause: Arc::new(cause),
        };
        let open = |path: &Option<PathBuf>| {
            let path = path.as_ref();
            let opened = path.map(|path| OutputPath::new(path).map_err(|it| failed(path, it)));
            opened.transpose()
        };
        let record = match open(&options.record)? {
            Some(file) => {
                let _busy = gate::enter();
                let text = session.record_policy_text();
                let text = text.map_err(|cause| failed(file.path(), cause))?;
                Some((file, text))
            }
            None => None,
        };
        Ok(Outputs {
            process: std::process::id(),
            stats: options.stats,
            trace: open(&options.trace)?,
            report: open(&options.report)?,
            first_calls: open(&options.first_calls)?,
            tuning: open(&options.tuning)?,
            record,
        })
    }

    /// Whether the outputs need events of the run.
    pub(super) fn want_events(&self) -> bool {
        self.stats.is_some() || self.trace.is_some() || self.report.is_some()
    }

    /// Writes the requested outputs; failures are reported on standard error, and do not change the
    /// exit status.
    pub(crate) fn write(&self, session: &Session, status: i32) {
        if self.process != std::process::id() {
            return;
        }
        self.write_record(session);
        if let Some(file) = &self.first_calls {
            let _busy = gate::enter();
            if let Err(cause) = session.keep_order(file) {
                say!("uruk: {}: {cause}", file.path().display());
            }
        }
        if let Some(file) = &self.tuning {
            let _busy = gate::enter();
            if let Err(cause) = session.keep_tuning(file) {
                say!("uruk: {}: {cause}", file.path().display());
            }
        }
        // Without a recorder the end of a run does not wait.
        if session.events.recorder().is_none() {
            return;
        }
        // Callers continue before the worker has reported the code it published for them.
        gate::settle(LAST_WORDS);
        let _busy = gate::enter();
        let Some(recording) = session.finish_recording(self.report.is_some(), status) else {
            return;
        };
        if let Some(format) = self.stats {
            let text = session
                .stats()
                .render(format, &recording, &session.memory_report());
            // A closed standard error is no reason to change the exit status.
            Messages.text(&text);
        }
        if let Some(file) = &self.trace {
            let mut text = Vec::new();
            // Memory takes all of it.
            let _ = uruk_report::trace::write(&recording, &mut text);
            write_or_say(file, &text);
        }
        if let Some(file) = &self.report {
            write_or_say(file, uruk_report::html::run(&recording).as_bytes());
        }
    }

    /// Ends a record of the policy's inputs, the embedder's or this one. An incomplete record
    /// replaces no file.
    fn write_record(&self, session: &Session) {
        if let Err(cause) = session.end_policy_record() {
            say!("uruk: the record of the policy's inputs is not whole: {cause}");
            return;
        }
        let Some((file, text)) = &self.record else {
            return;
        };
        let busy = gate::enter();
        let text = text.take();
        drop(busy);
        // It was written before the program gave up system calls.
        if !text.is_empty() {
            write_or_say(file, &text);
        }
    }
}

fn write_or_say(file: &OutputPath, text: &[u8]) {
    if let Err(cause) = file.write(text) {
        say!("uruk: {}: {cause}", file.path().display());
    }
}
