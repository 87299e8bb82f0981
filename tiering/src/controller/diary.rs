//! Records the controller's inputs, to be replayed on the simulator.

use std::fmt;
use std::io::{self, Write};

use crate::ids::Nanos;
use crate::stream::{Input, Recorder};

use super::Controller;

/// The recording of inputs.
pub(super) struct Diary {
    recorder: Recorder<Box<dyn Write + Send>>,
    /// The first error; nothing is written after it.
    failed: Option<io::Error>,
}

impl fmt::Debug for Diary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diary").finish_non_exhaustive()
    }
}

impl Controller {
    /// Writes all inputs from now on to `out`, in the form of [`stream`](crate::stream), up to
    /// about `limit` bytes. A recording in progress is ended.
    ///
    /// # Errors
    /// The writer's, of the first line or at the end of the recording before.
    pub fn record(&mut self, out: Box<dyn Write + Send>, limit: u64) -> io::Result<()> {
        self.end_recording()?;
        let recorder = Recorder::new(out, limit)?;
        self.diary = Some(Diary {
            recorder,
            failed: None,
        });
        Ok(())
    }

    /// Ends [`Controller::record`]; does nothing without a recording.
    ///
    /// # Errors
    /// The first of the writer's.
    pub fn end_recording(&mut self) -> io::Result<()> {
        match self.diary.take() {
            Some(Diary {
                failed: Some(cause),
                ..
            }) => Err(cause),
            Some(diary) => diary.recorder.finish().map(drop),
            None => Ok(()),
        }
    }

    /// Drops the recording without touching its writer, which belongs to the parent of this
    /// process.
    pub(super) fn forget_recording(&mut self) {
        std::mem::forget(self.diary.take());
    }

    /// Flushes the recording, so that a process that ends by a signal leaves whole lines.
    pub(super) fn flush_recording(&mut self) {
        if let Some(diary) = &mut self.diary
            && diary.failed.is_none()
        {
            diary.failed = diary.recorder.flush().err();
        }
    }

    /// Records an input at `now`; [`Nanos::ZERO`] is as early as possible.
    pub(super) fn note(&mut self, now: Nanos, input: impl FnOnce() -> Input) {
        if let Some(diary) = &mut self.diary
            && diary.failed.is_none()
        {
            diary.failed = diary.recorder.record(now, &input()).err();
        }
    }
}
