//! Recording what the tiering policy is told, to try other settings on it.

use std::io::{self, BufWriter, Write};

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

impl Core {
    pub(crate) fn end_policy_record(&self) -> io::Result<()> {
        let _busy = gate::enter();
        self.tiers.control().controller.end_recording()
    }
}
