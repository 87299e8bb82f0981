//! Recording what the tiering policy is told, to try other settings on it.

use std::io::{self, BufWriter, Write};
use std::mem;
use std::sync::{Arc, PoisonError};

use uruk_base::locks::Mutex;

use crate::api::jit::Jit;
use crate::core::Core;
use crate::fork::gate;

/// Bytes of a recording, at most.
const LIMIT: u64 = 256 << 20;

impl Jit {
    /// Writes what the tiering policy is told from now on to `out`, as text of
    /// `uruk_tiering::stream`, 256 MiB at most: the package's example `simulate` replays it
    /// under other settings. It costs a line for every function that was called, at every
    /// look at the counters. What is recorded already ends there.
    ///
    /// # Errors
    /// Those of `out`, or at the end of the recording before.
    pub fn record_policy(&self, out: impl Write + Send + 'static) -> io::Result<()> {
        let _busy = gate::enter();
        let mut control = self.core().tiers.control();
        let out = Box::new(BufWriter::new(out));
        control.controller.record(out, LIMIT)
    }

    /// Ends [`Jit::record_policy`]; so does the end of a program of `uruk run`, and the last
    /// handle that is dropped.
    ///
    /// # Errors
    /// The first that `out` has returned.
    pub fn end_policy_record(&self) -> io::Result<()> {
        self.core().end_policy_record()
    }
}

/// A recording that is kept in memory, for a file that is written whole at the end of a run: an
/// old file survives until then, and no descriptor is open that the program could close.
#[derive(Clone, Default)]
pub(crate) struct PolicyText(Arc<Mutex<Vec<u8>>>);

impl PolicyText {
    /// Takes the text, which leaves none.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        mem::take(&mut *text)
    }
}

impl Write for PolicyText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if text.try_reserve(bytes.len()).is_err() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Core {
    /// Records what the tiering policy is told from now on in memory.
    pub(crate) fn record_policy_text(&self) -> io::Result<PolicyText> {
        let text = PolicyText::default();
        let out = Box::new(BufWriter::new(text.clone()));
        self.tiers.control().controller.record(out, LIMIT)?;
        Ok(text)
    }

    pub(crate) fn end_policy_record(&self) -> io::Result<()> {
        let _busy = gate::enter();
        self.tiers.control().controller.end_recording()
    }
}
