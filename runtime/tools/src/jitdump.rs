//! Writes jitdump files: `perf inject --jit` turns one into ELF files, one for each function, so
//! that `perf report` names and `perf annotate` disassembles code that no longer exists.
//!
//! Format, version 1 (Linux `tools/perf/Documentation/jitdump-specification.txt`);
//! everything is little-endian here:
//!
//! ```text
//! file    magic:u32 version:u32 total_size:u32 elf_mach:u32 pad:u32 pid:u32 time:u64 flags:u64
//! record  id:u32 total_size:u32 time:u64, then
//!   0 load   pid:u32 tid:u32 vma:u64 address:u64 size:u64 index:u64 name\0 code
//!   1 move   pid:u32 tid:u32 vma:u64 old:u64 new:u64 size:u64 index:u64
//!   2 lines  address:u64 count:u64 { address:u64 line:u32 discriminator:u32 file\0 }
//!   3 close
//! ```
//!
//! Lines come before the load of their code. Times are `CLOCK_MONOTONIC`, as those of `perf record
//! -k 1`; report a function before it runs.

use std::path::{Path, PathBuf};

use crate::task;
use crate::{Output, OutputError, marker};

const MAGIC: u32 = 0x4A69_5444;
const VERSION: u32 = 1;
const HEADER_BYTES: u32 = 40;
const EM_X86_64: u32 = 62;

const LOAD: u32 = 0;
const MOVE: u32 = 1;
const LINES: u32 = 2;
const CLOSE: u32 = 3;

/// A compiled function.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its run-time address.
    pub address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The start of a source line in a function.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Address of its first instruction.
    pub address: u64,
    /// The source file.
    pub file: &'a str,
    /// The line, from 1.
    pub line: u32,
    /// Distinguishes parts of one line; else 0.
    pub discriminator: u32,
}

/// The dump of this process.
#[derive(Debug)]
pub struct JitDump {
    output: Output,
    folder: PathBuf,
    index: u64,
}

impl JitDump {
    /// Creates `jit-PID.dump` in a folder and maps a page of it, by which perf finds it. `perf
    /// inject` writes its ELF files into the same folder.
    ///
    /// # Errors
    /// The file cannot be created, written or mapped (a folder mounted `noexec`).
    pub fn create(folder: &Path) -> Result<JitDump, OutputError> {
        let pid = std::process::id();
        let mut output = Output::create(folder, &format!("jit-{pid}.dump"))?;
        let mut header = Vec::new();
        for word in [MAGIC, VERSION, HEADER_BYTES, EM_X86_64, 0, pid] {
            header.extend(word.to_le_bytes());
        }
        header.extend(task::now().to_le_bytes());
        header.extend(0u64.to_le_bytes());
        output.write(&header)?;
        marker::map(&output.file).map_err(|source| OutputError::Marker {
            path: output.path.clone(),
            source,
        })?;
        let folder = output.path.parent().unwrap_or(folder).to_owned();
        Ok(JitDump {
            output,
            folder,
            index: 0,
        })
    }

    /// Reports a function, before it runs. Returns its number, for [`JitDump::moved`].
    ///
    /// # Errors
    /// The file cannot be written or is full.
    pub fn load(&mut self, code: &Code<'_>, lines: &[Line<'_>]) -> Result<u64, OutputError> {
        let mut bytes = Vec::with_capacity(128 + code.bytes.len());
        if !lines.is_empty() {
            let mut record = Record::begin(LINES);
            record.u64(code.address).u64(lines.len() as u64);
            for line in lines {
                record.u64(line.address).u32(line.line);
                record.u32(line.discriminator).text(line.file);
            }
            bytes.extend(record.end());
        }
        let index = self.index;
        let mut record = Record::begin(LOAD);
        record.place(code.address).u64(code.address);
        record.u64(code.bytes.len() as u64).u64(index);
        record.text(code.name).0.extend(code.bytes);
        bytes.extend(record.end());
        self.output.write(&bytes)?;
        self.index += 1;
        Ok(index)
    }

    /// Reports that the `size` bytes of function `index` were moved.
    ///
    /// # Errors
    /// The file cannot be written or is full.
    pub fn moved(&mut self, index: u64, old: u64, new: u64, size: u64) -> Result<(), OutputError> {
        let mut record = Record::begin(MOVE);
        record.place(new).u64(old).u64(new).u64(size).u64(index);
        self.output.write(&record.end())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.output.path
    }

    /// In the child of a fork: begins a file of the child's own. It is empty, because records name
    /// their process; the caller reports the loaded functions again.
    ///
    /// # Errors
    /// Like [`JitDump::create`].
    pub fn after_fork_child(&mut self) -> Result<(), OutputError> {
        // Replaced without the closing record: that file is the parent's.
        let fresh = JitDump::create(&self.folder)?;
        std::mem::forget(std::mem::replace(self, fresh));
        Ok(())
    }
}

impl Drop for JitDump {
    fn drop(&mut self) {
        // Readers do not need the record; a full disk was reported before.
        let _ = self.output.write(&Record::begin(CLOSE).end());
    }
}

/// A record under construction.
struct Record(Vec<u8>);

impl Record {
    fn begin(id: u32) -> Record {
        let mut record = Record(Vec::new());
        // The size is filled in at the end.
        record.u32(id).u32(0).u64(task::now());
        record
    }

    fn u32(&mut self, word: u32) -> &mut Record {
        self.0.extend(word.to_le_bytes());
        self
    }

    fn u64(&mut self, word: u64) -> &mut Record {
        self.0.extend(word.to_le_bytes());
        self
    }

    /// Process, thread and address: the start of load and move records.
    fn place(&mut self, address: u64) -> &mut Record {
        self.u32(std::process::id())
            .u32(task::current_tid())
            .u64(address)
    }

    /// A text with its zero byte. The text is cut at an inner zero byte.
    fn text(&mut self, text: &str) -> &mut Record {
        let whole = text.split('\0').next().unwrap_or_default();
        self.0.extend(whole.as_bytes());
        self.0.push(0);
        self
    }

    fn end(mut self) -> Vec<u8> {
        // Files end at 1 GiB, so a record that does not fit here is refused there.
        let size = self.0.len() as u32;
        self.0[4..8].copy_from_slice(&size.to_le_bytes());
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(bytes: &[u8], at: usize, count: usize) -> Vec<u64> {
        let word = |i| bytes[at + 8 * i..][..8].try_into().unwrap();
        (0..count).map(|i| u64::from_le_bytes(word(i))).collect()
    }

    #[test]
    fn records_are_laid_out_as_specified() {
        let folder = std::env::temp_dir().join(format!("dump-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let mut dump = JitDump::create(&folder).unwrap();
        let code = Code {
            name: "f",
            address: 0x1000,
            bytes: &[0x90, 0xc3],
        };
        let line = Line {
            address: 0x1001,
            file: "a.c",
            line: 7,
            discriminator: 2,
        };
        assert_eq!(dump.load(&code, &[line]).unwrap(), 0);
        assert_eq!(dump.load(&code, &[]).unwrap(), 1);
        dump.moved(0, 0x1000, 0x2000, 2).unwrap();
        let path = dump.path().to_owned();
        drop(dump);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();

        let pid = u64::from(std::process::id());
        let who = pid | u64::from(task::current_tid()) << 32;
        assert_eq!(
            words(&bytes, 0, 3),
            [1 << 32 | 0x4A69_5444, 62 << 32 | 40, pid << 32]
        );
        let mut at = 40;
        let mut last = words(&bytes, 24, 1)[0];
        let mut next = |id: u64, size: u64| {
            let head = words(&bytes, at, 2);
            assert_eq!(head[0], size << 32 | id);
            assert!(head[1] >= last);
            (last, at) = (head[1], at + size as usize);
            at - size as usize + 16
        };
        let lines = next(2, 16 + 16 + 16 + 4);
        assert_eq!(words(&bytes, lines, 4), [0x1000, 1, 0x1001, 2 << 32 | 7]);
        assert_eq!(&bytes[lines + 32..lines + 36], b"a.c\0");
        for index in 0..2 {
            let load = next(0, 16 + 40 + 2 + 2);
            assert_eq!(words(&bytes, load, 5), [who, 0x1000, 0x1000, 2, index]);
            assert_eq!(&bytes[load + 40..load + 44], b"f\0\x90\xc3");
        }
        let moved = next(1, 16 + 48);
        assert_eq!(words(&bytes, moved, 6), [who, 0x2000, 0x1000, 0x2000, 2, 0]);
        next(3, 16);
        assert_eq!(at, bytes.len());
    }
}
