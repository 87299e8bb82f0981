//! Records the input of the tiering policy, to try other settings on it.

use std::io::{self, BufWriter, Write};
use std::mem;
use std::sync::Arc;

use uruk_base::locks::Mutex;

use crate::fork::gate;
use crate::tiers::TierState;

/// Bytes of a recording, at most.
const LIMIT: u64 = 256 << 20;

/// A recording that is kept in memory, for a file that is written whole at the end of a run: an
/// old file survives until then, and no descriptor is open that the program could close.
#[derive(Clone, Default)]
pub(crate) struct PolicyText(Arc<Mutex<Vec<u8>>>);

impl PolicyText {
    /// Takes the text, which leaves none.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut text = self.0.lock();
        mem::take(&mut *text)
    }
}

impl Write for PolicyText {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut text = self.0.lock();
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

impl TierState {
    /// Records the input of the tiering policy from now on to `out`.
    ///
    /// # Errors
    /// The errors of `out` at the end of the previous recording.
    pub(crate) fn record_policy(&self, out: Box<dyn Write + Send>) -> io::Result<()> {
        let mut control = self.control();
        control
            .controller
            .record(Box::new(BufWriter::new(out)), LIMIT)
    }

    /// Records the input of the tiering policy from now on in memory.
    pub(crate) fn record_policy_text(&self) -> io::Result<PolicyText> {
        let text = PolicyText::default();
        let out = Box::new(BufWriter::new(text.clone()));
        self.control().controller.record(out, LIMIT)?;
        Ok(text)
    }

    pub(crate) fn end_policy_record(&self) -> io::Result<()> {
        let _busy = gate::enter();
        self.control().controller.end_recording()
    }
}
