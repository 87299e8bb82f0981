//! Records the controller's inputs, to be replayed on the simulator.

use std::fmt;
use std::io::{self, Write};

use crate::ids::Nanos;
use crate::stream::{Input, Recorder};

/// The recording of inputs, while there is one.
#[derive(Debug, Default)]
pub(super) struct Diary(Option<Recording>);

struct Recording {
    recorder: Recorder<Box<dyn Write + Send>>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}

impl Diary {
    /// Writes all inputs from now on to `out`, up to about `limit` bytes.
    ///
    /// # Errors
    /// The writer's, of the first line or at the end of the recording before.
    pub(super) fn begin(&mut self, out: Box<dyn Write + Send>, limit: u64) -> io::Result<()> {
        self.end()?;
        let recorder = Recorder::new(out, limit)?;
        self.0 = Some(Recording {
            recorder,
            failed: None,
        });
        Ok(())
    }

    /// Ends the recording; does nothing without one.
    ///
    /// # Errors
    /// The first of the writer's.
    pub(super) fn end(&mut self) -> io::Result<()> {
        match self.0.take() {
            Some(Recording {
                failed: Some(cause),
                ..
            }) => Err(cause),
            Some(recording) => recording.recorder.finish().map(drop),
            None => Ok(()),
        }
    }

    /// Drops the recording without touching its writer, which belongs to the parent of this
    /// process.
    pub(super) fn forget(&mut self) {
        std::mem::forget(self.0.take());
    }

    /// Flushes the recording, so that a process that ends by a signal leaves whole lines.
    pub(super) fn flush(&mut self) {
        if let Some(recording) = &mut self.0
            && recording.failed.is_none()
        {
            recording.failed = recording.recorder.flush().err();
        }
    }

    /// Records an input at `now`; [`Nanos::ZERO`] is as early as possible.
    pub(super) fn note(&mut self, now: Nanos, input: impl FnOnce() -> Input) {
        if let Some(recording) = &mut self.0
            && recording.failed.is_none()
        {
            recording.failed = recording.recorder.record(now, &input()).err();
        }
    }
}
