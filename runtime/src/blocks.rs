//! The memory of one version, and what has to be known to move it and to give it back.
//!
//! A version is one allocation of code memory: text, private constants, unwind records
//! and exception tables. Data that only this version uses (the words of its probes)
//! lives as long.

use std::ffi::CStr;
use std::ops::Range;

use uruk_heap::{Pool, Sealed};
use uruk_link::FdeRow;
use uruk_unwind::Row;

use crate::core::Core;
use crate::error::Error;
use crate::guided::Words;

/// The code of one version.
#[derive(Debug)]
pub(crate) struct Code {
    pub(crate) memory: Vec<Sealed>,
    /// Where its functions lie and are described.
    pub(crate) rows: Vec<FdeRow>,
    /// Name of all of its rows.
    pub(crate) name: &'static CStr,
    /// Kept for the code that counts in them.
    pub(crate) _words: Option<Words>,
}

impl Code {
    /// The addresses of the code.
    pub(crate) fn range(&self) -> Range<u64> {
        let code = self
            .memory
            .iter()
            .find(|memory| memory.pool() == Pool::Code);
        code.map_or(0..0, |code| {
            code.address()..code.address() + code.len() as u64
        })
    }
}

impl Core {
    /// Makes unwind rows findable; before any of the code can run.
    pub(crate) fn register_rows(&self, rows: &[FdeRow], name: &CStr) -> Result<(), Error> {
        let rows: Vec<Row> = rows
            .iter()
            .map(|row| Row {
                start: row.start,
                end: row.end,
                fde: row.fde,
            })
            .collect();
        let names = vec![name.to_str().unwrap_or_default(); rows.len()];
        // SAFETY: the records lie in sealed memory, which is given back only after the
        // rows were removed.
        unsafe { self.region.insert(&rows, &names)? };
        Ok(())
    }
}
